"""The object graph of a checkpoint that was saved from objects: full names and optimizer slots of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.records import TensorRecord

OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Name of the string that holds the graph."""

_LIMIT: Final = 1 << 24


@dataclass(frozen=True)
class SavedVariable:
    """What the object graph tells of a variable.

    Attributes:
        full_name: Its name in a graph, as checkpoints by name have it; empty if unknown.
        slot: Name of the optimizer slot that it is (``m``), else empty.
        slot_of: Full name, else key, of the variable that the slot belongs to.
    """

    full_name: str
    slot: str = ""
    slot_of: str = ""

    def describe(self) -> str:
        """Returns this as a record's note."""
        slot = f"slot {self.slot} of {self.slot_of}" if self.slot else ""
        return "; ".join(filter(None, (f"full name {self.full_name}" if self.full_name else "", slot)))


def read_object_graph(record: TensorRecord) -> Mapping[str, SavedVariable]:
    """Reads the object graph out of its record: key in the checkpoint -> what is known of the variable.

    Raises:
        DataError: the record cannot be read, or holds no object graph.
    """
    value = record.load()
    if value.shape != () or not isinstance(value.item(), bytes):
        raise DataError(f"{record.op}: is no single string")
    raw: bytes = value.item()
    if len(raw) > _LIMIT:
        raise DataError(f"{record.op}: {len(raw)} bytes are too many for an object graph; names of slots are not known")
    graph = tf_message("TrackableObjectGraph")
    try:
        graph.ParseFromString(raw)
    except decode_error() as error:
        raise DataError(f"{record.op}: is no object graph; names of slots are not known") from error
    return _variables(graph)


def _variables(graph: Message) -> dict[str, SavedVariable]:
    found: dict[str, SavedVariable] = {}
    for node in graph.nodes:
        for attribute in node.attributes:
            found[text(attribute.checkpoint_key)] = SavedVariable(text(attribute.full_name))
    for node in graph.nodes:
        for slot in node.slot_variables:
            owner = _value_of(graph, slot.original_variable_node_id)
            own = _value_of(graph, slot.slot_variable_node_id)
            if owner is not None and own is not None:
                key, full_name = text(own.checkpoint_key), text(own.full_name)
                of = text(owner.full_name) or text(owner.checkpoint_key)
                found[key] = SavedVariable(full_name, text(slot.slot_name), of)
    return found


def _value_of(graph: Message, node: int) -> Message | None:
    """Returns the first attribute of a node, which of a variable is its value."""
    if not 0 <= node < len(graph.nodes) or not graph.nodes[node].attributes:
        return None
    return graph.nodes[node].attributes[0]


def text(raw: bytes) -> str:
    """Returns a name of a checkpoint as text; bytes that are no UTF-8 survive as they do in file names."""
    return raw.decode("utf-8", "surrogateescape")

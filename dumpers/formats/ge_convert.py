"""Device graph messages <-> :class:`dumpers.graph.Graph`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from dumpers.formats.enums import DUMP_NUMBER_OF
from dumpers.formats.ge_attrs import decode_text, descriptor_dtype, encode_text, read_attrs, write_attrs
from dumpers.formats.lowfloat import decoded_dtype, stored_bytes
from dumpers.formats.raw import element_count
from dumpers.formats.schema import Message, ge_message
from dumpers.graph import SUBGRAPHS, AttrValue, Graph, Op, Port, Source

_LOG = logging.getLogger(__name__)

RESERVED_FORMAT: Final = "FORMAT_RESERVED"
"""Layout of an absent optional input."""

_UNKNOWN_RANK: Final = -2
_SLOT_DIGITS: Final = 9

KNOWN_BYTES: Final = 4096
"""A longer block is not looked up: it will not occur again."""

_KNOWN_BLOCKS: Final = 1 << 15
_Value = TypeVar("_Value")


@dataclass
class GraphParts:
    """A graph while its file is read.

    Attributes:
        name: As stored.
        ops: In the order of the file; a name may occur twice.
        attrs: The model's below the graph's own.
    """

    name: bytes = b""
    ops: list[Op] = field(default_factory=list)
    attrs: dict[str, AttrValue] = field(default_factory=dict)


def model_attrs(model: Message) -> dict[str, AttrValue]:
    """Returns a model's attributes; its name and versions, where it has them, are among them as ``model_...``."""
    stated: dict[str, AttrValue] = {
        "model_name": decode_text(model.name),
        "model_version": model.version,
        "model_custom_version": decode_text(model.custom_version),
    }
    return {key: value for key, value in stated.items() if value} | read_attrs(model.attr)


def parts_of(model: Message) -> list[GraphParts]:
    """Returns the graphs of a model in the order of the file."""
    shared, reader = model_attrs(model), _OpReader()
    return [
        GraphParts(graph.name, [reader.op(op) for op in graph.op], {**shared, **read_attrs(graph.attr)})
        for graph in model.graph
    ]


class _OpReader:
    """Reads ops; attributes and descriptors that are the same in many ops are read once."""

    def __init__(self) -> None:
        self._attrs: dict[bytes, dict[str, AttrValue]] = {}
        self._ports: dict[bytes, Port] = {}

    def op(self, message: Message) -> Op:
        attrs: dict[str, AttrValue] = {}
        for entry in message.attr:
            attrs.update(self._attr(entry))
        inputs = tuple(self._port(port) for port in message.input_desc)
        outputs = tuple(self._port(port) for port in message.output_desc)
        return op_of(message, attrs=attrs, input_ports=inputs, output_ports=outputs)

    def _attr(self, entry: Message) -> dict[str, AttrValue]:
        raw = entry.SerializeToString()
        if len(raw) > KNOWN_BYTES:
            return read_attrs([entry])
        if raw not in self._attrs:
            make_room(self._attrs)
            self._attrs[raw] = read_attrs([entry])
        return self._attrs[raw]

    def _port(self, descriptor: Message) -> Port:
        raw = descriptor.SerializeToString()
        if raw not in self._ports:
            make_room(self._ports)
            self._ports[raw] = port_of(descriptor)
        return self._ports[raw]


def make_room(known: dict[bytes, _Value]) -> None:
    """Empties a look-up of what was read before it gets too large."""
    if len(known) >= _KNOWN_BLOCKS:
        known.clear()


def graphs_of(parts: Sequence[GraphParts], path: Path) -> list[Graph]:
    """Returns the graphs of one file, each with the others in reach of the ops that call them."""
    library: dict[str, Graph] = {}
    graphs = []
    for part in parts:
        graph = _named_ops(part, path, library)
        if graph.name in library:
            _LOG.warning("%s: holds several graphs named %r; calls go to the last one", path, graph.name)
        library[graph.name] = graph
        graphs.append(graph)
    return graphs


def computing_graph(graphs: Sequence[Graph]) -> Graph:
    """Returns the graph with most ops, the first of several."""
    return max(graphs, key=len)


def _named_ops(part: GraphParts, path: Path, library: Mapping[str, Graph]) -> Graph:
    ops = {op.name: op for op in part.ops}
    name = decode_text(part.name)
    if len(ops) < len(part.ops):
        seen: set[str] = set()
        twice = next(op.name for op in part.ops if op.name in seen or seen.add(op.name))  # type: ignore[func-returns-value]
        _LOG.warning(
            "%s: graph %r: %d ops have a name that another one has (first %r); the last of each name is used",
            path, name, len(part.ops) - len(ops), twice,
        )  # fmt: skip
    return Graph(name=name, ops=ops, kind="ge", path=path, attrs=part.attrs, library=library)


def op_of(
    message: Message, *, attrs: dict[str, AttrValue], input_ports: tuple[Port, ...], output_ports: tuple[Port, ...]
) -> Op:
    """Returns an op from its message and what was read of its attributes and descriptors."""
    inputs: list[Source] = []
    controls: list[str] = []
    for raw in message.input:
        producer, slot = _split_edge(decode_text(raw))
        if slot == -1:
            controls.append(producer)
        else:
            inputs.append(Source(producer, slot))
    if len(message.subgraph_name):
        attrs[SUBGRAPHS] = tuple(decode_text(name) for name in message.subgraph_name)
    return Op(
        name=decode_text(message.name),
        type=decode_text(message.type),
        inputs=tuple(inputs),
        control_inputs=tuple(controls),
        input_ports=input_ports,
        output_ports=output_ports,
        attrs=attrs,
        id=message.id,
        stream_id=message.stream_id,
    )


def _split_edge(text: str) -> tuple[str, int]:
    """``producer:slot`` split at the last colon; an empty text is an absent input, no number means output 0."""
    producer, colon, slot = text.rpartition(":")
    if colon and (slot == "-1" or (slot.isdigit() and slot.isascii() and len(slot) <= _SLOT_DIGITS)):
        return producer, int(slot)
    return text, 0


def port_of(message: Message) -> Port:
    """Returns what a tensor descriptor says about an input or output."""
    dtype = descriptor_dtype(message)
    layout = decode_text(message.layout)
    shape: tuple[int, ...] | None = tuple(message.shape.dim)
    absent = dtype == "undefined" and layout == RESERVED_FORMAT and not shape
    if absent or shape == (_UNKNOWN_RANK,):
        shape = None
    return Port(dtype=dtype, shape=shape, format=layout, attrs=read_attrs(message.attr))


def model_of(graph: Graph) -> Message:
    """Returns a model that holds one graph, with the redundant lists (``src_*``, ``dst_*``) that compilers write.

    Raises:
        ValueError: a dtype or an attribute that device graphs cannot express.
    """
    model = ge_message()
    target = model.graph.add(name=encode_text(graph.name))
    controls: dict[str, list[str]] = {}
    for op in graph:
        for name in op.control_inputs:
            controls.setdefault(name, []).append(op.name)
    for op in graph:
        message = target.op.add()
        _write_op(message, op, graph)
        _write_consumers(message, graph.consumers[op.name], controls.get(op.name, []))
    write_attrs(target.attr, graph.attrs)
    return model


def _write_op(message: Message, op: Op, graph: Graph) -> None:
    message.name, message.type = encode_text(op.name), encode_text(op.type)
    message.id, message.stream_id = op.id, op.stream_id
    for source in op.inputs:
        message.input.append(encode_text(f"{source.op}:{source.slot}") if source.op else b"")
        if source.op:
            message.src_name.append(encode_text(source.op))
            message.src_index.append(source.slot)
        producer = graph.ops.get(source.op)
        message.is_input_const.append(producer is not None and producer.type in ("Const", "Constant"))
    for name in op.control_inputs:
        message.input.append(encode_text(f"{name}:-1"))
    attrs = dict(op.attrs)
    subgraphs = attrs.pop(SUBGRAPHS, ())
    if isinstance(subgraphs, (tuple, list)):
        message.subgraph_name.extend(encode_text(str(name)) for name in subgraphs)
    write_attrs(message.attr, attrs)
    absent = Port("undefined", None, RESERVED_FORMAT)
    for index in range(len(op.inputs)):
        port = op.input_ports[index] if index < len(op.input_ports) else absent
        _write_port(message.input_desc.add(), port, op.name)
    for port in op.output_ports:
        _write_port(message.output_desc.add(), port, op.name)


def _write_port(message: Message, port: Port, op: str) -> None:
    if port.dtype not in DUMP_NUMBER_OF:
        raise ValueError(f"op {op}: a device has no type {port.dtype}")
    message.dtype = DUMP_NUMBER_OF[port.dtype]
    message.layout = encode_text(port.format)
    if port.shape is None and not (port.dtype == "undefined" and port.format == RESERVED_FORMAT):
        message.shape.dim.append(_UNKNOWN_RANK)
    elif port.shape is not None:
        message.shape.SetInParent()
        message.shape.dim.extend(port.shape)
        message.size = _stored_size(port)
    write_attrs(message.attr, port.attrs)


def _stored_size(port: Port) -> int:
    """Bytes that a device reserves: rounded up to 32, and 32 more; 0 where the shape is not static (or impossible)."""
    if port.shape is None or any(dim < 0 for dim in port.shape):
        return 0
    try:
        decoded_dtype(port.dtype)
    except ValueError:  # a type whose size nobody documents
        return 0
    size = stored_bytes(port.dtype, element_count(port.shape))
    return -(-size // 32) * 32 + 32 if 0 < size < 1 << 62 else 0


def _write_consumers(message: Message, users: Sequence[tuple[str, int, int]], controls: Sequence[str]) -> None:
    if controls:
        message.dst_name.append(encode_text(":".join(controls)))
        message.dst_index.append(-1)
    for slot in sorted({slot for _, _, slot in users}):
        readers = [(name, index) for name, index, used in users if used == slot]
        message.dst_name.append(encode_text(":".join(name for name, _ in readers)))
        message.dst_index.append(readers[-1][1])

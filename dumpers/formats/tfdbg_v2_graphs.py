"""Graphs in a log of Debugger V2: which ops were made, in which function, reading what."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.record_file import Record, read_records
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.graph import Graph, Op, Source

_GENERATED: Final = re.compile(
    r"(?:__(?:inference|forward|backward)_(?P<function>.+)|(?P<branch>.*(?:_cond|_body|_true|_false|_branch\d+|_grad)))_\d+\Z",
    re.DOTALL,
)


class OpName(NamedTuple):
    """Name and type of an op as records have them."""

    name: str
    type: str


class _Made(NamedTuple):
    """The making of an op, as the log tells it."""

    graph_id: str
    name: str
    type: str
    inputs: tuple[str, ...]


@dataclass
class V2Graphs:
    """All functions of a run. Events are added, then :meth:`finish` gives the ops names that are unique in the run."""

    _made: list[_Made] = field(default_factory=list)
    _graph_names: dict[str, str] = field(default_factory=dict)
    _names: dict[tuple[str, str], OpName] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Takes one record of a ``.graphs`` file.

        Raises:
            DataError: it is no debug event, or too large for one that makes an op.
        """
        event = parse_event(record)
        if event.HasField("graph_op_creation"):
            made = event.graph_op_creation
            inputs = tuple(text(name) for name in made.input_names)
            self._made.append(_Made(text(made.graph_id), text(made.op_name), text(made.op_type), inputs))
        elif event.HasField("debugged_graph"):
            graph = event.debugged_graph
            self._graph_names[text(graph.graph_id)] = plain_function_name(text(graph.graph_name)) or "graph"

    def finish(self) -> None:
        """Names graphs and ops: functions that were traced twice are numbered, ``f`` and ``f#2``."""
        seen: Counter[str] = Counter()
        for graph_id, name in list(self._graph_names.items()):
            seen[name] += 1
            self._graph_names[graph_id] = f"{name}#{seen[name]}" if seen[name] > 1 else name
        owners: dict[str, set[str]] = {}
        for made in self._made:
            owners.setdefault(made.name, set()).add(made.graph_id)
        taken = {name for name, graphs in owners.items() if len(graphs) == 1}
        for made in self._made:
            if (made.graph_id, made.name) in self._names:
                continue
            name = made.name
            if len(owners[name]) > 1:
                name = _free(f"{self._graph_names.get(made.graph_id, 'graph')}/{name}", taken)
                taken.add(name)
            self._names[made.graph_id, made.name] = OpName(name, made.type)

    def op(self, graph_id: str, name: str) -> OpName:
        """Returns an op's name in the run, and its type, empty if the log does not have it."""
        return self._names.get((graph_id, name), OpName(name, ""))

    def name_of(self, graph_id: str) -> str:
        """Returns the name of a function, empty if there is none with this id."""
        return self._graph_names.get(graph_id, "")

    def graph(self, path: Path) -> Graph | None:
        """Returns the ops of all functions as one graph, None if the log has none."""
        ops: dict[str, Op] = {}
        for made in self._made:
            name = self._names[made.graph_id, made.name].name
            if name not in ops:
                inputs = tuple(self._source(made.graph_id, item) for item in made.inputs)
                ops[name] = Op(name=name, type=made.type, inputs=inputs, id=len(ops))
        return Graph(name=path.name, ops=ops, kind="tf", path=path.parent) if ops else None

    def _source(self, graph_id: str, item: str) -> Source:
        name, _, slot = item.rpartition(":")
        if not name or not slot.isascii() or not slot.isdigit() or len(slot) > 9:
            return Source(self.op(graph_id, item).name, 0)
        return Source(self.op(graph_id, name).name, int(slot))


def plain_function_name(name: str) -> str:
    """Takes away the number that TensorFlow appends to a function's name; it counts all names of a process."""
    match = _GENERATED.match(name)
    return (match["function"] or match["branch"]) if match else name


def _free(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}#{number}"
    return free


def text(raw: bytes) -> str:
    """Returns a name as text; bytes that are no UTF-8 as escapes."""
    return raw.decode("utf-8", "backslashreplace")


def parse_event(record: Record) -> Message:
    """Parses a ``DebugEvent``.

    Raises:
        DataError: it is none, or was too large to be read with its data.
    """
    if record.data is None:
        raise DataError(f"has {record.length} bytes, too many for an event of this kind")
    event = tf_message("DebugEvent")
    try:
        event.ParseFromString(record.data)
    except decode_error() as error:
        where = broken_at(record.data, record.length, event, base=record.start)
        raise DataError(f"is no debug event: damaged {where}") from error
    return event


def read_first_metadata(path: Path) -> tuple[float, str]:
    """Returns start time (seconds) and run id of a ``.metadata`` file; logs of old versions have no run id.

    Raises:
        DataError: no such file, or it is damaged.
    """
    record = next(iter(read_records(path)), None)
    if record is None:
        raise DataError(f"{path}: is empty")
    event = parse_event(record)
    if not event.HasField("debug_metadata"):
        raise DataError(f"{path}: holds no metadata")
    return float(event.wall_time), text(event.debug_metadata.tfdbg_run_id)

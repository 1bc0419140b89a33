"""Which tensor of the left dump belongs to which of the right one, and why not where none does.

A device dump against a reference is paired by the original names in the device graph; any other pair of dumps by op
name, input or output, and slot. Nothing is dropped: each tensor is in a pair or listed with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compare.op_lookup import OpLookup, TensorLookup, size_bytes
from compare.original_names import OriginalNames, Reference
from dumpers.errors import DataError

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump, Io, TensorRecord


@dataclass(frozen=True)
class Pair:
    """Two tensors to compare.

    Attributes:
        index: Number of the fusion group, or of the op in order of execution.
        op: Name of the left op, in full where a graph tells it.
        left_names, right_names: Ops of each side behind the row; ``right_names`` is empty for an inserted op.
        by_original: Whether the reference is a framework tensor found through the device graph.
    """

    index: int
    op: str
    op_type: str
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    left: TensorRecord
    right: TensorRecord
    by_original: bool = False

    @property
    def io(self) -> Io:
        """Which side of the left op the tensor is on."""
        return self.left.io

    @property
    def slot(self) -> int:
        """Position among the left op's inputs or outputs."""
        return self.left.slot


@dataclass(frozen=True)
class Unpaired:
    """A tensor without a partner, or an op without any data.

    Attributes:
        side: Where the tensor or op is.
        record: None for an op without data.
        reason: Why there is no partner.
    """

    index: int
    op: str
    op_type: str
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    side: str
    record: TensorRecord | None
    reason: str

    @property
    def tensor(self) -> str:
        """``op:output:0``, or the op's name for an op without data."""
        return f"{self.op}:{self.record.io}:{self.record.slot}" if self.record else self.op


@dataclass(frozen=True)
class Coverage:
    """How much of both dumps is in pairs, in bytes."""

    left_bytes: int
    right_bytes: int
    paired_left_bytes: int
    paired_right_bytes: int


@dataclass(frozen=True)
class Pairing:
    """Pairs and the rest.

    Attributes:
        rows: Rows of a result table in its order: pairs, left tensors without a partner, ops without data.
        unpaired: All tensors without a partner and ops without data, of both sides.
    """

    rows: tuple[Pair | Unpaired, ...]
    unpaired: tuple[Unpaired, ...]
    coverage: Coverage

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs, in order of execution."""
        return tuple(row for row in self.rows if isinstance(row, Pair))


def pair_dumps(left: Dump, right: Dump, graph: Graph | None = None) -> Pairing:
    """Pairs two dumps.

    Args:
        left: Under test.
        right: Reference.
        graph: Device graph of a device dump that is compared with a framework dump; that of the dump itself if None.

    Raises:
        DataError: no op of the device dump is in the graph.
    """
    devices = (_device(left), _device(right))
    if devices == ("npu", "tf"):
        device_graph = _device_graph(left, graph)
        if device_graph is not None:
            return _by_original(left, right, device_graph)
    if devices == ("tf", "npu"):
        device_graph = _device_graph(right, graph)
        if device_graph is not None:
            return _swapped(_by_original(right, left, device_graph))
    return _by_name(left, right)


def _device(dump: Dump) -> str:
    return dump.records[0].device if dump.records else ""


def _device_graph(dump: Dump, graph: Graph | None) -> Graph | None:
    chosen = graph if graph is not None else dump.graph
    return chosen if chosen is not None and chosen.kind == "ge" else None


def _by_name(left: Dump, right: Dump) -> Pairing:
    rows: list[Pair | Unpaired] = []
    unpaired: list[Unpaired] = []
    lefts, rights = TensorLookup(left), TensorLookup(right)
    used: set[int] = set()
    index = 0
    for index, (op, records) in enumerate(lefts.by_op().items()):
        found = [(record, rights.find(op, record.io, record.slot)) for record in records]
        if not any(partner for _, partner in found):
            unpaired += [_lone(index, record, "left", _why_none(rights, op, record)) for record in records]
            reason = f'no dump file for op "{op}" on the right'
            rows.append(replace(_lone(index, records[0], "left", reason), record=None, op_type=""))
            continue
        for record, partner in found:
            if partner is None:
                rows.append(_lone(index, record, "left", _why_none(rights, op, record)))
            else:
                used.add(id(partner))
                rows.append(Pair(index, op, record.op_type, (op,), (partner.op,), record, partner))
    rest = [record for record in rights if id(record) not in used]
    numbers: dict[str, int] = {}
    for record in rest:
        number = numbers.setdefault(record.op, index + 1 + len(numbers))
        rows.append(_lone(number, record, "right", "no such tensor on the left"))
    unpaired += [row for row in rows if isinstance(row, Unpaired) and row.record is not None]
    unpaired += _older(lefts, "left") + _older(rights, "right")
    return Pairing(tuple(rows), tuple(unpaired), _coverage(left, right, rows))


def _why_none(rights: TensorLookup, op: str, record: TensorRecord) -> str:
    if rights.ambiguous(op, record.io, record.slot):
        return f"several ops on the right are called {op} once flattened; an index of full names is missing"
    return f"no such tensor on the right: {record.name}"


def _lone(index: int, record: TensorRecord, side: str, reason: str) -> Unpaired:
    names = ((record.op,), ()) if side == "left" else ((), (record.op,))
    return Unpaired(index, record.op, record.op_type, names[0], names[1], side, record, reason)


def _older(lookup: TensorLookup, side: str) -> list[Unpaired]:
    reason = "an older dump of the same tensor; the newest is compared"
    return [_lone(-1, record, side, reason) for record in lookup.older]


def _by_original(left: Dump, right: Dump, graph: Graph) -> Pairing:
    work = _OriginalPairing(left, right, graph)
    work.run()
    return Pairing(tuple(work.rows), tuple(work.unpaired), _coverage(left, right, work.rows))


class _OriginalPairing:
    def __init__(self, left: Dump, right: Dump, graph: Graph) -> None:
        self.rows: list[Pair | Unpaired] = []
        self.unpaired: list[Unpaired] = []
        self._names = OriginalNames(graph)
        self._graph = graph
        self._lefts, self._rights = TensorLookup(left), TensorLookup(right)
        self._used: set[int] = set()
        self._data: dict[str, list[TensorRecord]] = {}
        self._strangers: dict[str, list[TensorRecord]] = {}
        lookup = OpLookup(graph)
        for name, records in self._lefts.by_op().items():
            op = lookup.find(name, records[0].op_type)
            (self._data if op else self._strangers).setdefault(op.name if op else name, []).extend(records)
        if left.records and not self._data:
            raise DataError(
                f"graph {graph.path or graph.name} does not belong to the dump {left.path}: "
                f"it has none of the {len(self._strangers)} ops dumped there"
            )

    def run(self) -> None:
        for op in self._in_order():
            self._add_op(op)
        after = len(self._names.members)
        for number, (name, records) in enumerate(self._strangers.items(), after):
            for record in records:
                self._miss(replace(_lone(number, record, "left", f"graph {self._graph.name} has no op {name}")))
        rest = [record for record in self._rights if id(record) not in self._used]
        self.unpaired += [_lone(-1, r, "right", "no tensor of the device stands for it (fused away)") for r in rest]
        self.unpaired += _older(self._lefts, "left") + _older(self._rights, "right")

    def _in_order(self) -> list[Op]:
        """Ops by group; within a group by time, those without data where the graph has them."""
        place = {name: number for number, name in enumerate(self._graph.ops)}
        groups = self._names.groups

        def key(op: Op) -> tuple[int, int, int]:
            times = [r.timestamp_us for r in self._data.get(op.name, ()) if r.timestamp_us is not None]
            return (groups[op.name], min(times, default=0), place[op.name])

        return sorted(self._graph, key=key)

    def _add_op(self, op: Op) -> None:
        records = self._data.get(op.name)
        if not records:
            kind = f" (type {op.type})" if op.type else ""
            self._miss(self._row(op, None, f'no dump file for op "{op.name}"{kind}'))
            return
        inputs = 1 + max((record.slot for record in records if record.io == "input"), default=-1)
        for record in records:
            self._add_tensor(op, record, inputs)

    def _add_tensor(self, op: Op, record: TensorRecord, inputs: int) -> None:
        skip = self._names.skip_reason(op, record.io)
        if skip:
            self._miss(self._row(op, record, skip))
            return
        wanted = (
            self._names.input(op, record.slot, inputs) if record.io == "input" else self._names.output(op, record.slot)
        )
        partner = self._rights.find(wanted.op, "output", wanted.slot) if wanted.op else None
        if partner is None:
            self._miss(self._row(op, record, self._why(op, record, wanted)))
            return
        self._used.add(id(partner))
        left_names = self._left_names(op)
        self.rows.append(
            Pair(self._names.groups[op.name], op.name, op.type, left_names, op.originals, record, partner, True)
        )

    def _why(self, op: Op, record: TensorRecord, wanted: Reference) -> str:
        tensor = f"{op.name}:{record.io}:{record.slot}"
        if not wanted.op:
            return f"no ground truth for {tensor}: {wanted.reason}"
        if self._rights.ambiguous(wanted.op, "output", wanted.slot):
            return f"no ground truth for {tensor}: several ops are called {wanted.op} once flattened"
        return f"no ground truth dump file for {tensor}: {wanted.op}:{wanted.slot} is not in the reference dump"

    def _left_names(self, op: Op) -> tuple[str, ...]:
        return self._names.members[self._names.groups[op.name]]

    def _row(self, op: Op, record: TensorRecord | None, reason: str) -> Unpaired:
        group = self._names.groups[op.name]
        names = self._left_names(op) if record else (op.name,)
        return Unpaired(group, op.name, op.type, names, op.originals, "left", record, reason)

    def _miss(self, row: Unpaired) -> None:
        self.rows.append(row)
        self.unpaired.append(row)


def _swapped(pairing: Pairing) -> Pairing:
    """Exchanges the sides; a row is then named after the framework's op."""
    rows: list[Pair | Unpaired] = []
    for row in pairing.rows:
        if isinstance(row, Pair):
            op = row.right.op
            rows.append(
                replace(
                    row,
                    op=op,
                    left_names=row.right_names or (op,),
                    right_names=row.left_names,
                    left=row.right,
                    right=row.left,
                )
            )
        else:
            rows.append(_exchange(row))
    whole = pairing.coverage
    coverage = Coverage(whole.right_bytes, whole.left_bytes, whole.paired_right_bytes, whole.paired_left_bytes)
    return Pairing(tuple(rows), tuple(_exchange(row) for row in pairing.unpaired), coverage)


def _exchange(row: Unpaired) -> Unpaired:
    side = "right" if row.side == "left" else "left"
    return replace(row, left_names=row.right_names, right_names=row.left_names, side=side)


def _coverage(left: Dump, right: Dump, rows: Sequence[Pair | Unpaired]) -> Coverage:
    pairs = [row for row in rows if isinstance(row, Pair)]
    return Coverage(
        left_bytes=_total(left),
        right_bytes=_total(right),
        paired_left_bytes=_total({id(pair.left): pair.left for pair in pairs}.values()),
        paired_right_bytes=_total({id(pair.right): pair.right for pair in pairs}.values()),
    )


def _total(records: Iterable[TensorRecord]) -> int:
    return sum(size_bytes(record) for record in records)

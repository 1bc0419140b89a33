"""Pairing of a device dump with a framework dump, by what the device graph says of the originals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from compare.op_lookup import OpLookup, TensorLookup
from compare.original_names import OriginalNames, Reference
from compare.pairs import Pair, Step, Unpaired, lone, older
from compare.slices import whole_op
from dumpers.errors import DataError
from dumpers.names import flatten

if TYPE_CHECKING:
    from compare.name_map import NameMap, Renames, Target
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump, TensorRecord

Rows = list[Pair | Unpaired]


def pair_by_original(
    device: Dump, reference: Dump, graph: Graph, names: NameMap | None = None, *, turned: bool = False
) -> tuple[Rows, list[Unpaired], list[str]]:
    """Pairs a device dump (left) with a framework dump (right).

    Args:
        device: With names of the graph, or flattened ones.
        reference: With names of the framework.
        graph: The device's.
        names: The user's pairs; the device's op or its original on one side, an op of the framework on the other.
        turned: Whether the user's left side is the framework dump, so that the map goes from there to the device.

    Returns:
        The rows of a result table, the tensors without a partner, and what the map did not do.

    Raises:
        DataError: no op of the device dump is in the graph, or the map cannot be applied.
    """
    work = _OriginalPairing(device, reference, graph, names, turned)
    work.run()
    return work.rows, work.unpaired, list(work.renames.unused) if work.renames else []


class _OriginalPairing:
    def __init__(self, left: Dump, right: Dump, graph: Graph, names: NameMap | None, turned: bool) -> None:
        self.rows: Rows = []
        self.unpaired: list[Unpaired] = []
        self._names = OriginalNames(graph)
        self._graph = graph
        self._lefts, self._rights = TensorLookup(left), TensorLookup(right)
        self._used: set[int] = set()
        self._data: dict[str, list[TensorRecord]] = {}
        self._strangers: dict[str, list[TensorRecord]] = {}
        lookup = OpLookup(graph)
        for name, records in self._lefts.by_op().items():
            whole = whole_op(name)
            op = lookup.find(name, records[0].op_type) or (lookup.find(whole, records[0].op_type) if whole else None)
            (self._data if op else self._strangers).setdefault(op.name if op else name, []).extend(records)
        if left.records and not self._data:
            raise DataError(
                f"graph {graph.path or graph.name} does not belong to the dump {left.path}: "
                f"it has none of the {len(self._strangers)} ops dumped there"
            )
        self.renames: Renames | None = None
        if names is not None:
            known = (*self._data, *self._strangers, *self._names.all_references())
            self.renames = names.resolve(dict.fromkeys(r.op for r in right)).inverted() if turned else None
            self.renames = self.renames or names.resolve(dict.fromkeys(known))

    def run(self) -> None:
        for op in self._in_order():
            self._add_op(op)
        for number, (name, records) in enumerate(self._strangers.items(), len(self._names.members)):
            for record in records:
                self._add_stranger(number, name, record)
        rest = [record for record in self._rights if id(record) not in self._used]
        originals = {flatten(name): ops for name, ops in self._graph.by_original.items()} if rest else {}
        for record in rest:
            ops = originals.get(flatten(record.op), ())
            self.unpaired.append(lone(-1, record, "right", self._why_alone(record, ops), "" if ops else record.op))
        self.unpaired += older(self._lefts.older, "left") + older(self._rights.older, "right")

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
        wanted, told = self._wanted(op, record, inputs)
        partner = self._rights.find(wanted.op, "output", wanted.slot) if wanted.op else None
        if partner is None:
            self._miss(self._row(op, record, told + self._why(op, record, wanted), "" if told else wanted.op))
            return
        self._used.add(id(partner))
        group, names = self._names.groups[op.name], self._left_names(op)
        steps = tuple(Step("right", kind, numbers, why) for kind, numbers, why in wanted.steps)
        self.rows.append(Pair(group, op.name, op.type, names, op.originals, record, partner, True, steps))

    def _wanted(self, op: Op, record: TensorRecord, inputs: int) -> tuple[Reference, str]:
        """Returns the reference of a tensor, and the line of the map that changed it."""
        output = record.io == "output"
        wanted = self._names.output(op, record.slot) if output else self._names.input(op, record.slot, inputs)
        target = self._target(wanted.op) if wanted.op else None
        if target is not None:
            return replace(wanted, op=target.op), f"{target.where} pairs {wanted.op} with {target.op}: "
        # A device op may carry the name of one original and stand for another: such a name means the original.
        own = self._target(op.name) if output and op.name not in self._graph.by_original else None
        if own is not None:
            return Reference(own.op, record.slot), f"{own.where} pairs {op.name} with {own.op}: "
        return wanted, ""

    def _target(self, name: str) -> Target | None:
        return self.renames.target(name) if self.renames else None

    def _add_stranger(self, number: int, name: str, record: TensorRecord) -> None:
        target = self._target(name)
        partner = self._rights.find(target.op, record.io, record.slot) if target else None
        if partner is not None:
            self._used.add(id(partner))
            self.rows.append(Pair(number, name, record.op_type, (name,), (partner.op,), record, partner))
            return
        told = f"{target.where} pairs {name} with {target.op}, which the reference lacks; " if target else ""
        wanted = "" if told else name
        self._miss(lone(number, record, "left", f"{told}graph {self._graph.name} has no op {name}", wanted))

    def _why(self, op: Op, record: TensorRecord, wanted: Reference) -> str:
        tensor = f"{op.name}:{record.io}:{record.slot}"
        if not wanted.op:
            return f"no ground truth for {tensor}: {wanted.reason}"
        if self._rights.ambiguous(wanted.op, "output", wanted.slot):
            return f"no ground truth for {tensor}: several ops are called {wanted.op} once flattened"
        return f"no ground truth dump file for {tensor}: {wanted.op}:{wanted.slot} is not in the reference dump"

    def _why_alone(self, record: TensorRecord, ops: Sequence[str]) -> str:
        """Says why a tensor of the reference is in no pair, by the device ops that stand for its op."""
        if not ops:
            return f"graph {self._graph.name} has no op that stands for {record.op}"
        dumped = [name for name in ops if name in self._data]
        if not dumped:
            return f"{', '.join(ops[:3])}, which stands for it, has no dump file"
        fused = [name for name in dumped if len(self._graph.ops[name].originals) > 1]
        if fused:
            return f"no tensor of the device stands for it (fused away in {', '.join(fused[:3])})"
        return f"no dumped tensor of {', '.join(dumped[:3])} is its output {record.slot}"

    def _left_names(self, op: Op) -> tuple[str, ...]:
        return self._names.members[self._names.groups[op.name]]

    def _row(self, op: Op, record: TensorRecord | None, reason: str, wanted: str = "") -> Unpaired:
        group = self._names.groups[op.name]
        names = self._left_names(op) if record else (op.name,)
        return Unpaired(group, op.name, op.type, names, op.originals, "left", record, reason, wanted)

    def _miss(self, row: Unpaired) -> None:
        self.rows.append(row)
        self.unpaired.append(row)

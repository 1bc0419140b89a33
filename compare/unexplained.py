"""Differences that are left when every op that could be run again is within its bound: who made them?

An op whose inputs are equal on both sides and whose outputs are not is a source, wherever it runs. With other inputs it
may be a carrier: if it could not be run again, nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compare.isolation import CONSTANTS, input_records, load_values
from compare.preflight import WEIGHTS as STATE
from compare.preflight import Difference, Partners, against, difference, is_lookup, is_random
from compare.replay import local_error
from dumpers.dtypes import is_float
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.pairing import Pair, Pairing
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump, TensorRecord

DATA_SOURCES = ("Iterator", "GetNext", "QueueDequeue", "ReaderRead", "ReadFile", "DecodeCSV", "ParseExample")
"""Parts of the types of ops that bring batches."""


@dataclass(frozen=True)
class Side:
    """One dump and what its examination could judge.

    Attributes:
        judged: Ops that were run again and are within their bounds.
    """

    name: str
    dump: Dump
    graph: Graph | None
    judged: frozenset[str]

    def op(self, name: str) -> Op | None:
        """Returns an op of the graph."""
        return self.graph.ops.get(name) if self.graph is not None else None


@dataclass
class Unexplained:
    """Output pairs that differ beyond noise, by what can be said about them; each in order of execution.

    Attributes:
        differing: Whether any pair of the two dumps differs at all.
        data: Batches that are not the same.
        random: Random numbers that are not the same.
        left, right: Equal inputs, unequal output, and the op of that side is to blame for it.
        meaning: Equal inputs, unequal outputs, and both are right: the two graphs compute different things there.
        unknown: Not run again on the left, and the inputs are not known to be equal.
    """

    differing: bool = False
    data: list[Difference] = field(default_factory=list)
    random: list[Difference] = field(default_factory=list)
    left: list[Difference] = field(default_factory=list)
    right: list[Difference] = field(default_factory=list)
    meaning: list[Difference] = field(default_factory=list)
    unknown: list[Difference] = field(default_factory=list)


def unexplained(left: Side, right: Side, pairing: Pairing) -> Unexplained:
    """Sorts what differs. Values of variables are none of its business (see :func:`preflight.unequal_weights`)."""
    found = Unexplained()
    search = _Search(left, right, Partners(pairing))
    for pair in pairing.pairs:
        if pair.steps:
            continue  # A slice or a turned tensor has no op of the other side that computed just that.
        if pair.io == "input" and found.differing:
            continue
        try:
            different = difference(pair.left, pair.right)
        except DataError:
            continue  # Listed by the examination as unreadable.
        if different is None:
            continue
        found.differing = True
        if pair.io == "output" and different.beyond_noise:
            search.place(pair, different, found)
    return found


@dataclass(frozen=True)
class _Search:
    left: Side
    right: Side
    partners: Partners

    def place(self, pair: Pair, different: Difference, found: Unexplained) -> None:
        mine, theirs = self.left.op(pair.left.op), self.right.op(pair.right.op)
        kinds = [pair.left.op_type, pair.right.op_type, *(_type_of(op) for op in (mine, theirs) if op is not None)]
        if any(kind in STATE for kind in kinds) or self._is_lookup(mine, theirs) or _is_whole_constant(pair, kinds):
            return
        judged = pair.left.op in self.left.judged, pair.right.op in self.right.judged
        if not judged[0] and any(mark in kind for kind in kinds for mark in DATA_SOURCES):
            found.data.append(different)
        elif not judged[0] and any(is_random(kind) for kind in kinds):
            found.random.append(different)
        elif self._equal_inputs(pair.left.op, mine):
            self._blame(pair, different, judged, found)
        elif not judged[0]:
            found.unknown.append(different)

    def _is_lookup(self, mine: Op | None, theirs: Op | None) -> bool:
        sides = ((mine, self.left.graph), (theirs, self.right.graph))
        return any(op is not None and is_lookup(op, graph) for op, graph in sides)

    def _blame(self, pair: Pair, different: Difference, judged: tuple[bool, bool], found: Unexplained) -> None:
        if not judged[0]:
            found.left.append(different)
        elif self._other_answer(pair):
            (found.meaning if judged[1] else found.right).append(different)

    def _other_answer(self, pair: Pair) -> bool:
        """Whether the right output is beyond the bound of the left op for the left inputs (which are equal)."""
        op, graph = self.left.op(pair.left.op), self.left.graph
        if op is None or graph is None:
            return False
        try:
            inputs = load_values(input_records(self.left.dump, graph, op, self.right.dump)[0])
            theirs, mine = pair.right.load(), pair.left.load()
        except DataError:
            return False
        if theirs.size != mine.size or theirs.dtype != mine.dtype:
            return False  # Another layout or width; no proof of anything.
        outputs = [None] * pair.left.slot + [theirs.reshape(mine.shape)]
        return any(error.faulty for error in local_error(op, inputs, outputs))

    def _equal_inputs(self, name: str, op: Op | None) -> bool:
        """All inputs are known and equal; constants count as equal. Of an op without any input nothing is known."""
        dump, graph = self.left.dump, self.left.graph
        if op is None or graph is None:
            records: Sequence[TensorRecord | None] = [
                r for r in dump.by_op.get(name, ()) if r.io == "input" and r.source is not None
            ]
            return bool(records) and all(self._equal(record) for record in records)
        records, _ = input_records(dump, graph, op, self.right.dump)
        checked = [
            self._equal(record)
            for record, source in zip(records, op.inputs, strict=True)
            if not (source.op in graph.ops and graph.ops[source.op].type in CONSTANTS)
        ]
        return bool(records) and all(checked)

    def _equal(self, record: TensorRecord | None) -> bool:
        if record is None or record.source is None or self.partners.of(record) is None:
            return False
        return against(record, self.partners) is None


def _is_whole_constant(pair: Pair, kinds: Sequence[str]) -> bool:
    """Whether both sides have a constant of whole numbers there: an axis or a shape.

    Versions of the framework write those in other ways (``0`` or ``[0]``, ``1`` or ``-3``) for the same result, and
    what reads a truly different one gives itself away by its own output.
    """
    constant = any(kind in CONSTANTS for kind in kinds)
    return constant and not is_float(pair.left.dtype) and not is_float(pair.right.dtype)


def _type_of(op: Op) -> str:
    """The framework's type of an op that runs on the host, else the type."""
    return str(op.attrs.get("original_type") or op.type)

"""What a judgement measures on its way, for whoever wants to see more than the verdict: numbers only, no arrays.

A :class:`Watch` is handed to :func:`compare.judge.judge`, which tells it what it pairs and examines. It keeps a few
numbers for each op, so that a network of any size fits, and changes nothing of the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare.sweep import SweepOptions, compare_pairs

if TYPE_CHECKING:
    from compare.isolation import Examination, OpCheck
    from compare.pairs import Pairing
    from compare.table import ComparisonRow
    from dumpers.records import Dump

Progress = Callable[[int, int], None]

_COLUMNS = ("CosineSimilarity", "RelativeEuclideanDistance")


@dataclass(frozen=True, slots=True)
class Measured:
    """One op that was run again from its own inputs, by its worst output.

    Attributes:
        position: Place in the order of execution of its side, from 0.
        op, op_type: Names in the graph of its side.
        side: ``left`` or ``right``.
        slot: Number of that output.
        error: Greatest difference from the float64 replay.
        bound: What rounding may explain at the element with the largest ratio; None if nothing differs.
        ratio: Largest error over bound; infinite where nothing may differ, 0 if nothing differs.
    """

    position: int
    op: str
    op_type: str
    side: str
    slot: int
    error: float | None
    bound: float | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Carried:
    """How far an output of the left side is from its partner on the right, whoever is to blame for it.

    Attributes:
        place: Where on the scale of :attr:`Measured.position` of the left side the op stands; one that was not run
            again stands half a place behind the one before it.
        op, op_type: Names in the graph of the left side.
        tensor, partner: Names of the two tensors (``op:output:0``).
        distance: Relative Euclidean distance, 0 for equal; None where it says nothing, ``reason`` has why.
        cosine: Cosine similarity, None where undefined.
        reason: Why there is no distance, empty if there is one.
    """

    place: float
    op: str
    op_type: str
    tensor: str
    partner: str
    distance: float | None
    cosine: float | None
    reason: str = ""


class Watch:
    """Keeps what a judgement measures.

    Attributes:
        measured: Ops that were run again and judged, by side and in order of execution.
        unmeasured: Number of ops of each examined side that could not be judged.
    """

    def __init__(self) -> None:
        self.measured: list[Measured] = []
        self.unmeasured: dict[str, int] = {}
        self._left: Dump | None = None
        self._pairing: Pairing | None = None

    def paired(self, left: Dump, pairing: Pairing) -> None:
        """Takes the pairs of the two sides."""
        self._left, self._pairing = left, pairing

    def examined(self, side: str, exam: Examination) -> None:
        """Takes what was found on one side."""
        found = [measured for check in exam.checks if (measured := _measured(side, check)) is not None]
        self.measured += found
        self.unmeasured[side] = len(exam.checks) - len(found)

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that were examined: ops are run again side by side until something is found."""
        return tuple(self.unmeasured)

    def of(self, side: str) -> list[Measured]:
        """Returns the measured ops of one side in order of execution."""
        return [op for op in self.measured if op.side == side]

    def carried(self, *, threads: int | None = None, progress: Progress | None = None) -> list[Carried]:
        """Compares every output of the left side with its partner, which reads both dumps once more.

        Returns:
            A row for each pair of outputs, in order of execution; nothing where there is no right side.
        """
        if self._pairing is None or self._left is None:
            return []
        pairs = [pair for pair in self._pairing.pairs if pair.left.io == "output"]
        places = _places(self._left, {op.op: op.position for op in self.of("left")})
        options = SweepOptions(metrics=_COLUMNS, details="none")
        rows = compare_pairs(pairs, threads=threads, progress=progress, options=options)
        return sorted((_carried(row, places) for row in rows), key=lambda found: found.place)


def _measured(side: str, check: OpCheck) -> Measured | None:
    worst = check.worst
    if worst is None or worst.ratio is None:
        return None
    return Measured(
        check.position, check.op.name, check.op.type, side, worst.slot, worst.max_error, worst.bound, worst.ratio
    )


def _places(left: Dump, positions: Mapping[str, int]) -> dict[str, float]:
    """Where each op of a dump stands; without any that was run again, its number in the dump."""
    if not positions:
        return {name: float(number) for number, name in enumerate(left.by_op)}
    places: dict[str, float] = {}
    before = -1.0
    for name in left.by_op:
        if name in positions:
            places[name] = before = float(positions[name])
        else:
            places[name] = before + 0.5
    return places


def _carried(row: ComparisonRow, places: Mapping[str, float]) -> Carried:
    op = row.left.op if row.left is not None else row.op
    figures = row.figures
    distance = figures.relative_distance if figures is not None else None
    reason = row.reason
    if figures is not None:
        if figures.non_finite_mismatches:
            distance, reason = None, f"{figures.non_finite_mismatches} elements are NaN or infinite on one side only"
        elif distance is None and figures.differing == 0:
            distance = 0.0
        elif distance is None:
            reason = reason or figures.reasons.get("RelativeEuclideanDistance", "") or "shapes or types differ"
    if distance is not None and not math.isfinite(distance):
        distance, reason = None, "the distance is beyond any number"
    return Carried(
        places.get(op, -0.5),
        row.op,
        row.op_type,
        row.left.name if row.left is not None else row.tensor,
        row.right.name if row.right is not None else "",
        distance,
        figures.cosine if figures is not None else None,
        reason,
    )

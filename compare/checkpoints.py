"""Two checkpoints -> what differs, variable by variable, the worst first.

Variables are compared several at a time, the largest first; their order and figures do not depend on how many.
"""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compare.variable_pairs import Side, VariablePair, pair_variables, suggest_scope
from compare.variable_row import DIFFERENCES, THRESHOLD, VariableRow, Verdict
from compare.variable_slots import Slot, find_slots
from compare.variable_values import Values
from dumpers.errors import DataError
from dumpers.formats.checkpoint import UNREADABLE
from dumpers.formats.object_graph import OBJECT_GRAPH

if TYPE_CHECKING:
    from dumpers.records import Dump, Problem

Progress = Callable[[int, int], None]
"""Called with (variables done, variables in all)."""

_NOISE: Final = 1e-12
"""A typical distance is not taken below this: what differs by less is rounding of whoever saved it."""


@dataclass(frozen=True)
class CheckpointDiff:
    """Two checkpoints held against each other.

    Attributes:
        left, right: Prefixes; left is under test.
        rows: Every variable of both sides, the worst first.
        problems: Damage met while the indexes were read, of both sides.
        notes: What the names did not allow.
    """

    left: Path
    right: Path
    rows: tuple[VariableRow, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Number of variables by verdict."""
        return Counter(row.verdict for row in self.rows)

    @property
    def unreadable(self) -> bool:
        """Whether data of either side were lost or damaged."""
        return bool(self.problems) or "unreadable" in self.counts

    @property
    def different(self) -> bool:
        """Whether any variable differs or is missing."""
        return not DIFFERENCES.isdisjoint(self.counts)

    def below(self, threshold: float = THRESHOLD) -> tuple[VariableRow, ...]:
        """Variables whose cosine is below the threshold, the lowest first."""
        return tuple(row for row in self.rows if row.below(threshold) and not row.flagged)

    @cached_property
    def slots(self) -> Mapping[str, tuple[VariableRow, ...]]:
        """Optimizer slots by the name of their variable's row, in order of their names."""
        found: dict[str, list[VariableRow]] = {}
        for row in sorted(self.rows, key=lambda row: row.name):
            if row.slot_of:
                found.setdefault(row.slot_of, []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    @cached_property
    def suspects(self) -> tuple[tuple[VariableRow, float | None], ...]:
        """What differs, the most suspicious first, each with its distance as a multiple of the typical one.

        A cosine is blind to a factor, and two runs differ a little everywhere. So variables are held against their own
        kind: the relative distance of a variable against the median of all variables that differ, of a slot against
        that of all slots of its name. What no distance can tell (a NaN or zero on one side, ids) comes before that, and
        what one factor or shift explains (a scaled variable) before what does not.
        """
        differing = [row for row in self.rows if row.figures is not None and row.figures.differing]
        distances: dict[str, list[float]] = {}
        for row in differing:
            if row.distance is not None and not row.flagged:
                distances.setdefault(row.slot, []).append(row.distance)
        typical = {slot: max(statistics.median(found), _NOISE) for slot, found in distances.items()}

        def times(row: VariableRow) -> float | None:
            if row.flagged or row.distance is None:
                return None
            return row.distance / typical[row.slot]

        return tuple(sorted(((row, times(row)) for row in differing), key=_suspicion))


def _suspicion(item: tuple[VariableRow, float | None]) -> tuple[object, ...]:
    row, times = item
    figures = row.figures
    if times is None:
        return (0, *(figures.rank if figures is not None else (9, 0.0)), row.name)
    return (1, 0.0 if figures is not None and figures.pattern else 1.0, -times, row.name)


def compare_checkpoints(
    left: Dump,
    right: Dump,
    *,
    scopes: Sequence[str] = (),
    targets: Mapping[str, str] | None = None,
    trust_index: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
) -> CheckpointDiff:
    """Compares two checkpoints variable by variable; a damaged variable spoils its own row only.

    Args:
        left: Under test.
        right: Reference.
        scopes: To take away from names that begin with them, on either side.
        targets: Left name -> right name, as the user says.
        trust_index: Do not read variables whose stored checksums are equal.
        threads: Variables compared at once.
        progress: Told after each variable.

    Raises:
        DataError: a side holds no variables at all.
    """
    for dump in (left, right):
        if not dump.records and not dump.problems:
            raise DataError(f"{dump.path}: a checkpoint without variables; give another one")
    sides = (Side(left), Side(right))
    pairs = pair_variables(*sides, scopes=scopes, targets=targets)
    rows = _Comparison(sides, trust_index).rows(pairs, threads, progress)
    rows.sort(key=lambda row: (row.rank, row.name))
    problems = left.problems + right.problems
    return CheckpointDiff(left.path, right.path, tuple(rows), problems, _notes(pairs))


def _notes(pairs: Sequence[VariablePair]) -> tuple[str, ...]:
    found = suggest_scope(pairs)
    if found is None:
        return ()
    scope, count = found
    return (f"{count} names would meet without the scope {scope}: --strip {scope}",)


class _Comparison:
    """Fills the rows of all pairs."""

    def __init__(self, sides: tuple[Side, Side], trust_index: bool) -> None:
        self._stop = threading.Event()
        self._values = Values(trust=trust_index, check=self._check)
        self._slots: tuple[dict[str, Slot], ...] = tuple(find_slots(side.records, side.graph) for side in sides)

    def _check(self) -> None:
        if self._stop.is_set():
            raise InterruptedError("stopped")

    def rows(self, pairs: Sequence[VariablePair], threads: int, progress: Progress | None) -> list[VariableRow]:
        """Compares the pairs, the largest first, so that no thread is left alone with a large one at the end."""
        order = sorted(range(len(pairs)), key=lambda number: -pairs[number].size)
        found: dict[int, VariableRow] = {}
        pool = ThreadPoolExecutor(threads)
        try:
            work = {pool.submit(self._row, pairs[number]): number for number in order}
            for done, future in enumerate(as_completed(work), 1):
                found[work[future]] = future.result()
                if progress is not None:
                    progress(done, len(pairs))
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)
        return self._with_slots(pairs, [found[number] for number in range(len(pairs))])

    def _row(self, pair: VariablePair) -> VariableRow:
        left, right = pair.left, pair.right
        if left is None or right is None:
            return _one_sided(pair)
        row = VariableRow(left.op, left, right, "unreadable", note=pair.note)
        lost = [record.note.removeprefix(UNREADABLE) for record in (left, right) if record.note.startswith(UNREADABLE)]
        if lost:
            return replace(row, reason="; ".join(lost))
        if left.source is None or right.source is None:
            return replace(row, verdict="not comparable", reason=left.note if left.source is None else right.note)
        return self._values.compare(row, left.source, right.source)

    def _with_slots(self, pairs: Sequence[VariablePair], rows: list[VariableRow]) -> list[VariableRow]:
        """Says which rows are slots, and of which row; what either side knows is enough."""
        both = list(zip(pairs, rows, strict=True))
        names = [
            {pair.left.op: row.name for pair, row in both if pair.left is not None},
            {pair.right.op: row.name for pair, row in both if pair.right is not None},
        ]
        told: dict[str, Slot] = {}
        for slots, known in zip(self._slots, names, strict=True):
            for name, slot in slots.items():
                told.setdefault(known[name], Slot(slot.name, known[slot.owner]))
        return [
            replace(row, slot=told[row.name].name, slot_of=told[row.name].owner) if row.name in told else row
            for row in rows
        ]


def _one_sided(pair: VariablePair) -> VariableRow:
    left, right = pair.left, pair.right
    found = left or right
    name = found.op if found else ""
    if name == OBJECT_GRAPH:
        where = "left" if left else "right"
        return VariableRow(name, left, right, "skipped", reason=f"only the {where} side was saved from objects")
    return VariableRow(name, left, right, "missing on the right" if left else "missing on the left")

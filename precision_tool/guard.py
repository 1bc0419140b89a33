"""The observer guard: holds the ladders of a job with and without recording against each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from dumpers.errors import DataError
from precision_tool.guard_causes import Cause, Difference, Reason, find_cause
from precision_tool.ladders import LadderFile, Mark, Name, Rung, open_ladders
from precision_tool.result import Block, Cell, ExitCode, Panel, Result, Table

SHOWN = 20
"""So many moved values are in the table."""

IN_DATA = 1000
"""So many are in the plain data."""

_TITLES = {
    Cause.NONE: "proved: recording changed no bit",
    Cause.JOB: "not decided: two runs without recording differ already",
    Cause.SETTINGS: "not decided: the two sides ran with different settings",
    Cause.GRAPH: "not decided: the two sides built different graphs",
    Cause.INPUT: "not decided: the two sides started from different inputs",
    Cause.REWRITING: "recording changed bits: graph rewriting",
    Cause.COMPILER: "recording changed bits: compilation by XLA",
    Cause.HOOK: "recording changed bits: the hook is at fault",
    Cause.UNDECIDED: "the sides differ: the hook, or a job that does not repeat itself",
}


@dataclass
class Tally:
    """What was compared and agreed."""

    steps: int = 0
    recorded: int = 0
    fed: int = 0
    fetched: int = 0
    variables: int = 0
    bytes: int = 0

    def add(self, rung: Rung, other: Rung) -> None:
        """Counts a rung that is the same on both sides."""
        if rung.at == "step":
            self.steps += rung.count
            self.recorded += other.recorded
        for (what, _), mark in rung.values.items():
            self.fed += what == "fed"
            self.fetched += what == "fetched"
            self.variables += what == "variable"
            self.bytes += mark.size if mark is not None else 0


@dataclass(frozen=True)
class Guard:
    """What the comparison found.

    Attributes:
        cause: Why values moved; ``NONE`` where none did.
        tally: What was compared up to there.
        difference: Where the recorded run leaves the plain one first; None where nothing moved.
        reason: Evidence for the cause, and what to do.
        notes: What limits the statement.
    """

    cause: Cause
    tally: Tally
    difference: Difference | None = None
    reason: Reason = field(default_factory=Reason)
    notes: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether no bit moved."""
        return self.cause is Cause.NONE


def compare_ladders(first: Path, second: Path, again: Path | None = None) -> Guard:
    """Compares the ladders of a run without recording and one with it.

    Args:
        first: Folder of the plain run.
        second: Folder of the recorded run.
        again: Folder of a second plain run: tells a job that does not repeat itself from a hook that meddles.

    Raises:
        DataError: a folder has no ladders, one is damaged, a plain side was recorded, or nothing was recorded.
    """
    tally, notes = Tally(), list[str]()
    difference = _first_difference(first, second, tally, notes)
    if difference is None:
        if not tally.steps:
            raise DataError(f"{first}: no step ended, so there is nothing to compare")
        if not tally.recorded:
            raise DataError(
                f"{second}: no step of it was recorded, so nothing is proved; set TF_DUMP_STEP, as in 0|2-3"
            )
        return Guard(Cause.NONE, tally, notes=tuple(notes))
    own = None if again is None else _first_difference(first, again, Tally(), notes, both_plain=True)
    cause, reason = find_cause(difference, own, repeated=again is not None)
    return Guard(cause, tally, own if cause is Cause.JOB else difference, reason, tuple(dict.fromkeys(notes)))


def guard_result(guard: Guard) -> Result:
    """Returns what a command answers."""
    tally, difference = guard.tally, guard.difference
    figures = (
        f"{tally.steps} steps, {tally.recorded} of them recorded: {tally.fetched} fetched values, {tally.fed} fed ones "
        f"and {tally.variables} values of variables are the same, {tally.bytes} bytes hashed on each side"
    )
    blocks: list[Block] = [Panel("Compared", (figures,))]
    if difference is not None:
        blocks.append(Panel("First difference", (difference.place, *difference.facts)))
        if difference.moved:
            blocks.append(_moved_table(difference))
        blocks.append(Panel("Why", guard.reason.evidence))
        blocks.append(Panel("What to do", guard.reason.advice))
    return Result(
        title=_TITLES[guard.cause],
        blocks=blocks,
        notes=guard.notes,
        data={
            "proved": guard.proved,
            "cause": guard.cause.value,
            "compared": dict(vars(tally)),
            "ladder": None if difference is None else difference.ladder,
            "step": None if difference is None else difference.step,
            "at": None if difference is None else difference.at,
            "moved": [] if difference is None else [_moved_data(*moved) for moved in difference.moved[:IN_DATA]],
            "moved_count": 0 if difference is None else len(difference.moved),
            "evidence": list(guard.reason.evidence),
            "advice": list(guard.reason.advice),
        },
        exit_code=ExitCode.CLEAN if guard.proved else ExitCode.FOUND,
    )


def _moved_table(difference: Difference) -> Table:
    rows = tuple(_moved_row(*moved) for moved in difference.moved[:SHOWN])
    more = len(difference.moved) - len(rows)
    title = "Moved" + (f" ({more} more not shown)" if more else "")
    return Table(title, ("Kind", "Name", "DType", "Shape", *difference.sides), rows)


def _moved_row(name: Name, left: Mark | None, right: Mark | None) -> tuple[Cell, ...]:
    shown = left or right
    dtype, shape = (None, None) if shown is None else (shown.dtype, str(list(shown.shape)))
    digests = [None if mark is None else mark.hash[:12] for mark in (left, right)]
    return (*name, dtype, shape, *digests)


def _moved_data(name: Name, left: Mark | None, right: Mark | None) -> dict[str, object]:
    sides = [None if m is None else {**vars(m), "shape": list(m.shape)} for m in (left, right)]
    return {"kind": name[0], "name": name[1], "first": sides[0], "second": sides[1]}


def _first_difference(
    first: Path, second: Path, tally: Tally, notes: list[str], *, both_plain: bool = False
) -> Difference | None:
    """Returns the first difference of two runs; ladders of a lower number come first, then lower steps, then ranks."""
    lefts, rights = ({ladder.name: ladder for ladder in open_ladders(folder)} for folder in (first, second))
    found: list[tuple[tuple[int, int, int], Difference]] = []
    recorded_before = False
    for name, left in lefts.items():
        if found and found[0][1].number < left.number:
            break
        right = rights.get(name)
        sides = ("plain", "plain again" if both_plain else "recorded")
        if right is None:
            found.append(((left.number, -1, left.rank), Difference.of_missing(left, sides, name)))
            continue
        pair = _Pair(left, right, sides, recorded_before)
        difference = pair.compare(tally, notes)
        recorded_before |= pair.recorded
        if difference is not None:
            found.append(((left.number, difference.step, left.rank), difference))
    extra = [ladder for name, ladder in rights.items() if name not in lefts]
    if not found and extra:
        return Difference.of_missing(extra[0], ("recorded", "plain"), extra[0].name)
    return min(found, key=lambda one: one[0])[1] if found else None


class _Pair:
    """Two ladders of the same name."""

    def __init__(self, left: LadderFile, right: LadderFile, sides: tuple[str, str], recorded_before: bool) -> None:
        self._left = left
        self._right = right
        self._sides = sides
        self._recorded_before = recorded_before
        self._graphs = ["", ""]
        self._added = 0
        self.recorded = False

    def compare(self, tally: Tally, notes: list[str]) -> Difference | None:
        """Returns where the two differ first."""
        for left, right in zip_longest(self._left.rungs(), self._right.rungs()):
            if left is None or right is None:
                return self._shorter(left or right, notes)
            self._look(left, right)
            moved = tuple(_moved(left, right))
            if moved or (left.at, left.step, left.count) != (right.at, right.step, right.count):
                return self._difference(left, right, moved)
            tally.add(left, right)
            if right.recorded:
                self.recorded = True
        self._note_cut(notes)
        return None

    def _look(self, left: Rung, right: Rung) -> None:
        for ladder, rung, side in zip((self._left, self._right), (left, right), self._sides, strict=True):
            if rung.recorded and side != "recorded":
                raise DataError(
                    f"{ladder.path}: step {rung.step} of a plain run was recorded; run it with TF_DUMP_GUARD_PLAIN=True"
                )
        self._graphs = [
            new.graph if new.graph is not None else old for new, old in zip((left, right), self._graphs, strict=True)
        ]
        self._added += max(right.added - left.added, 0)

    def _difference(
        self, left: Rung, right: Rung, moved: tuple[tuple[Name, Mark | None, Mark | None], ...]
    ) -> Difference:
        facts = []
        if (left.at, left.step) != (right.at, right.step):
            facts.append(f"there: {self._sides[0]} at {_where(left)}, {self._sides[1]} at {_where(right)}")
        return Difference(
            ladder=self._left.name,
            number=self._left.number,
            at=left.at,
            step=left.step,
            sides=self._sides,
            moved=moved,
            facts=tuple(facts),
            headers=(self._left.header, self._right.header),
            same_graph=self._graphs[0] == self._graphs[1],
            added=self._added,
            itself_recorded=right.recorded,
            recorded_before=self._recorded_before or self.recorded,
        )

    def _shorter(self, rung: Rung, notes: list[str]) -> Difference | None:
        """What it means that one side has no more rungs; a side that was cut off is compared as far as it goes."""
        for _ in self._left.rungs():
            pass
        for _ in self._right.rungs():
            pass
        if not (self._left.ended and self._right.ended):
            self._note_cut(notes)
            return None
        difference = self._difference(rung, rung, ())
        fact = f"one of the two runs ends before {_where(rung)}"
        return Difference(**{**vars(difference), "facts": (fact,), "itself_recorded": rung.recorded})

    def _note_cut(self, notes: list[str]) -> None:
        for ladder, side in zip((self._left, self._right), self._sides, strict=True):
            if not ladder.ended:
                notes.append(
                    f"{ladder.name} of the {side} run has no end: what came after its last line is not compared"
                )


def _moved(left: Rung, right: Rung) -> Iterator[tuple[Name, Mark | None, Mark | None]]:
    for name in [*left.values, *(name for name in right.values if name not in left.values)]:
        one, other = left.values.get(name), right.values.get(name)
        if one != other or (name in left.values) != (name in right.values):
            yield name, one, other


def _where(rung: Rung) -> str:
    return {"start": "the start", "step": f"step {rung.step}", "settled": f"the end, after step {rung.step}"}[rung.at]

"""What a result file says about ops: the culprits, what follows from them, and what nobody could judge.

An op is listed when an output's cosine is at or below the threshold, as users know it. Only an output strictly below
makes it a suspect, and only if none of its inputs is below already; otherwise it is a consequence of an op before it.
Ops sort by their number, not by its text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compare.result_file import ResultRow

DEFAULT_THRESHOLD = 0.98
DEFAULT_LIMIT = 3


class Standing(enum.StrEnum):
    """What an op is in the light of the threshold."""

    SUSPECT = "suspect"
    CONSEQUENCE = "consequence"
    AT_THRESHOLD = "at the threshold"
    GOOD = "good"
    UNDETERMINED = "undetermined"
    NO_PARTNER = "no partner"
    NO_DATA = "no data"


@dataclass(frozen=True)
class Value:
    """A cosine of one tensor.

    Attributes:
        text: The cell as it stands.
        number: None where it is not a number.
        bad: Whether the tensor is below the threshold (:meth:`ResultRow.below`); None if that cannot be told.
        row: The whole row.
    """

    text: str
    number: float | None
    bad: bool | None
    row: ResultRow


@dataclass(frozen=True)
class OpSummary:
    """One op of a result file.

    Attributes:
        index: Number of the fusion group; None if the file has no number there.
        name: Op name of TensorIndex; of the left side on a row without data.
        inputs, outputs: Cosines by position, gaps allowed, in order of position.
        reason: What the file says about the first tensor without figures.
    """

    index: int | None
    name: str
    standing: Standing
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    inputs: Mapping[int, Value]
    outputs: Mapping[int, Value]
    reason: str = ""

    @property
    def lowest(self) -> float | None:
        """Lowest cosine of the outputs."""
        return min((v.number for v in self.outputs.values() if v.number is not None), default=None)


@dataclass(frozen=True)
class Summary:
    """All ops of a result file in order of their numbers.

    Attributes:
        listed: Ops with an output at or below the threshold, the first ``limit`` of them.
        found: How many there are.
        unjudged_rows: Rows with a tensor that the file's figures do not allow to judge (R2).
    """

    threshold: float
    ops: tuple[OpSummary, ...]
    listed: tuple[OpSummary, ...]
    found: int
    unjudged_rows: int

    def of(self, standing: Standing) -> tuple[OpSummary, ...]:
        """Returns the ops of one standing, in order of their numbers."""
        return tuple(op for op in self.ops if op.standing is standing)

    @property
    def suspects(self) -> tuple[OpSummary, ...]:
        """Ops that turned good inputs into a bad output: independent culprits."""
        return self.of(Standing.SUSPECT)

    @property
    def consequences(self) -> tuple[OpSummary, ...]:
        """Ops with a bad output and an input that was bad already."""
        return self.of(Standing.CONSEQUENCE)

    @property
    def at_threshold(self) -> tuple[OpSummary, ...]:
        """Ops whose lowest output is exactly at the threshold: listed, not suspected."""
        return self.of(Standing.AT_THRESHOLD)

    @property
    def undetermined(self) -> tuple[OpSummary, ...]:
        """Ops whose outputs have no cosine at all."""
        return self.of(Standing.UNDETERMINED)

    @property
    def no_partner(self) -> tuple[OpSummary, ...]:
        """Ops without a reference."""
        return self.of(Standing.NO_PARTNER)

    @property
    def undetermined_before_first(self) -> tuple[OpSummary, ...]:
        """Undetermined ops that come before the first suspect: the true culprit may be among them."""
        if not self.suspects:
            return self.undetermined
        first = self.ops.index(self.suspects[0])
        return tuple(op for op in self.ops[:first] if op.standing is Standing.UNDETERMINED)

    def warnings(self) -> list[str]:
        """Sentences that belong beside the list."""
        early = self.undetermined_before_first
        if not early:
            return []
        names = ", ".join(op.name for op in early[:3]) + (" ..." if len(early) > 3 else "")
        where = f"before {self.suspects[0].name}" if self.suspects else "and no op is below the threshold"
        return [f"{len(early)} op(s) {where} could not be judged and may be the cause: {names}"]


def summarise(
    rows: Iterable[ResultRow], *, threshold: float = DEFAULT_THRESHOLD, limit: int = DEFAULT_LIMIT
) -> Summary:
    """Groups the rows of one result file by op and says what each op is.

    Args:
        rows: As read; any order.
        threshold: Cosine at which an output is listed, below which it is bad.
        limit: How many ops ``listed`` may have.
    """
    drafts: dict[tuple[int | None, str], _Draft] = {}
    unjudged = 0
    for row in rows:
        name = row.op or ",".join(row.left_names) or ",".join(row.right_names) or f"line {row.line}"
        drafts.setdefault((row.index, name), _Draft(row, threshold)).add(row)
        unjudged += bool(row.op) and row.below(threshold) is None
    ordered = sorted(drafts.items(), key=lambda item: _order(item[0][0]))
    ops = tuple(draft.summary(name) for (_, name), draft in ordered)
    found = [op for op in ops if op.standing in (Standing.SUSPECT, Standing.CONSEQUENCE, Standing.AT_THRESHOLD)]
    return Summary(threshold, ops, tuple(found[: max(limit, 0)]), len(found), unjudged)


def _order(index: int | None) -> tuple[bool, int]:
    return (index is None, index or 0)


@dataclass
class _Draft:
    """One op while its rows are collected; stable sorting keeps file order among equal numbers."""

    first: ResultRow
    threshold: float
    inputs: dict[int, Value] = field(default_factory=dict)
    outputs: dict[int, Value] = field(default_factory=dict)
    reason: str = ""

    def add(self, row: ResultRow) -> None:
        self.reason = self.reason or (row.reason if row.cosine is None else "")
        if row.slot is not None:
            side = self.inputs if row.io == "input" else self.outputs
            side[row.slot] = Value(row.cosine_text, row.cosine, row.below(self.threshold), row)

    def summary(self, name: str) -> OpSummary:
        return OpSummary(
            index=self.first.index,
            name=name,
            standing=self._standing(),
            left_names=self.first.left_names,
            right_names=self.first.right_names,
            inputs=dict(sorted(self.inputs.items())),
            outputs=dict(sorted(self.outputs.items())),
            reason=self.reason,
        )

    def _standing(self) -> Standing:
        outputs = self.outputs.values()
        if all(value.bad is None for value in outputs):
            return self._without_figures()
        if any(value.bad for value in outputs):
            return Standing.CONSEQUENCE if any(v.bad for v in self.inputs.values()) else Standing.SUSPECT
        at = any(value.number is not None and value.number <= self.threshold for value in outputs)
        return Standing.AT_THRESHOLD if at else Standing.GOOD

    def _without_figures(self) -> Standing:
        if self.outputs:
            return Standing.UNDETERMINED if self.first.right_names else Standing.NO_PARTNER
        if not self.first.right_names or not self.first.left_names:
            return Standing.NO_PARTNER
        judged = any(value.bad is not None for value in self.inputs.values())
        return Standing.GOOD if judged else Standing.NO_DATA

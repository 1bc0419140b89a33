"""One variable of two checkpoints: what the answer is, why, and how it ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from compare.figures import Figures, shape_text

if TYPE_CHECKING:
    from dumpers.records import TensorRecord

THRESHOLD: Final = 0.98
"""A cosine below it is suspicious."""

Verdict = Literal[
    "equal",
    "values differ",
    "dtypes differ",
    "shapes differ",
    "missing on the left",
    "missing on the right",
    "not comparable",
    "unreadable",
    "skipped",
]

DIFFERENCES: Final = frozenset(
    {"values differ", "dtypes differ", "shapes differ", "missing on the left", "missing on the right"}
)


@dataclass(frozen=True)
class VariableRow:
    """One variable.

    Attributes:
        name: On the left side; on the right one where the left has none.
        left, right: Records; None on the side that does not have it.
        verdict: The answer in words.
        figures: None where nothing could be held against each other.
        reason: What the verdict does not say: counts, shapes, why there is no figure.
        note: How the pair was found, where not by its name.
        slot: Name of the optimizer slot that it is (``Adam_1``), else empty.
        slot_of: Name of the row of the variable that the slot belongs to.
    """

    name: str
    left: TensorRecord | None
    right: TensorRecord | None
    verdict: Verdict
    figures: Figures | None = None
    reason: str = ""
    note: str = ""
    slot: str = ""
    slot_of: str = ""

    @property
    def cosine(self) -> float | None:
        """Cosine of the flattened values, None where there is none."""
        return self.figures.cosine if self.figures else None

    @property
    def distance(self) -> float | None:
        """L2 distance as a share of the right side, None where there is none."""
        return self.figures.relative_distance if self.figures else None

    def below(self, threshold: float = THRESHOLD) -> bool:
        """Tells whether the cosine exists and is strictly below the threshold."""
        return self.cosine is not None and self.cosine < threshold

    @property
    def flagged(self) -> bool:
        """Whether it differs in a way that no cosine tells: one-sided NaN or zero, ids, text, a single number."""
        figures = self.figures
        if figures is None or not figures.differing:
            return False
        return bool(figures.non_finite_mismatches) or figures.cosine is None or figures.exact_kind

    @property
    def rank(self) -> tuple[float, ...]:
        """Key that sorts the worst first: what no cosine can tell, then by cosine, then what is equal without one."""
        groups = {"unreadable": 0, "missing on the right": 1, "missing on the left": 2, "shapes differ": 3}
        groups |= {"not comparable": 4, "dtypes differ": 5}
        if self.verdict in groups:
            return (groups[self.verdict],)
        if self.flagged and self.figures is not None:
            return (6, *self.figures.rank)
        if self.cosine is not None:
            return (7, self.cosine, self.verdict == "equal")
        return (8,)


def judged(row: VariableRow, figures: Figures) -> VariableRow:
    """Returns the row with what its figures say."""
    if not figures.same_shape:
        return replace(row, verdict="shapes differ", figures=figures, reason=_shapes_reason(figures))
    types = (row.left.dtype if row.left else "", row.right.dtype if row.right else "")
    differing = figures.differing
    if differing is None:
        verdict: Verdict = "dtypes differ" if types[0] != types[1] else "not comparable"
        return replace(row, verdict=verdict, figures=figures, reason=figures.reasons["CosineSimilarity"])
    values = f"{differing} of {figures.elements} differ" if differing else "values equal"
    if types[0] != types[1]:
        return replace(row, verdict="dtypes differ", figures=figures, reason=f"{types[0]} against {types[1]}, {values}")
    if differing:
        return replace(row, verdict="values differ", figures=figures, reason=_values_reason(figures, values))
    return replace(row, verdict="equal", figures=figures, reason=_equal_reason(figures))


def _shapes_reason(figures: Figures) -> str:
    shapes = f"{shape_text(figures.left_shape)} against {shape_text(figures.right_shape)}"
    types = (figures.left_dtype, figures.right_dtype)
    dtypes = f", {types[0]} against {types[1]}" if types[0] != types[1] else ""
    flattened = figures.flattened.differing if figures.flattened else None
    flat = "" if flattened is None else f"; {flattened} of {figures.elements} differ in flat order"
    return f"{shapes}{dtypes}{flat}"


def _values_reason(figures: Figures, values: str) -> str:
    told = [values]
    if figures.non_finite_mismatches:
        told.append(
            f"{figures.non_finite_mismatches} not finite on one side (NaN {figures.nan_left} left, "
            f"{figures.nan_right} right; infinite {figures.inf_left} left, {figures.inf_right} right)"
        )
    if figures.cosine is None:
        told.append(f"no cosine: {figures.reasons['CosineSimilarity']}")
    if figures.pattern:
        told.append(figures.pattern)
    return "; ".join(told)


def _equal_reason(figures: Figures) -> str:
    told = [] if figures.cosine is not None else [figures.reasons["CosineSimilarity"]]
    if figures.nan_left or figures.inf_left:
        told.append(f"NaN {figures.nan_left}, infinite {figures.inf_left} on both sides")
    return "; ".join(told)

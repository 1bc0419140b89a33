"""Figures: what two arrays have in common, or why a figure does not exist."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compare.difference.details import Details

COLUMNS = (
    "CosineSimilarity",
    "MaxAbsoluteError",
    "AccumulatedRelativeError",
    "RelativeEuclideanDistance",
    "KullbackLeiblerDivergence",
    "StandardDeviation",
    "MeanAbsoluteError",
    "RootMeanSquareError",
    "MaxRelativeError",
    "MeanRelativeError",
)
"""The ten columns of a result file, in its order."""

NON_FINITE_MISMATCH = "non-finite mismatch"
BOTH_ZERO = "both sides are zero"
LEFT_ZERO = "left is zero"
RIGHT_ZERO = "right is zero"
BOTH_EMPTY = "both sides are empty"
EQUAL_NOT_FINITE = "equal element for element, none finite"
EQUAL_BY_HASH = "equal by hash"
OVER_LIMIT = "over the limit"
"""Phrases of a result file's CompareFailReason that its readers understand."""

SUSPICIOUS = 5e-3
"""Relative distance from which a pair is worth a second look: ten roundings to float16."""

FIELDS = {
    "CosineSimilarity": "cosine",
    "MaxAbsoluteError": "max_abs_error",
    "AccumulatedRelativeError": "accumulated_relative_error",
    "RelativeEuclideanDistance": "relative_distance",
    "KullbackLeiblerDivergence": "divergence",
    "StandardDeviation": "standard_deviation",
    "MeanAbsoluteError": "mean_abs_error",
    "RootMeanSquareError": "root_mean_square_error",
    "MaxRelativeError": "max_relative_error",
    "MeanRelativeError": "mean_relative_error",
}
"""Field of :class:`Figures` behind each column."""


@dataclass(slots=True)
class Figures:
    """What two arrays have in common. Never changed; frozen it would take four times as long to make and to keep.

    Attributes:
        left_shape, right_shape, left_dtype, right_dtype: As compared.
        elements: Elements of each side, of the left one where the shapes differ.
        differing: Elements that differ (R5); None where the shapes or the kinds of data do not allow the question.
        finite: Elements that are finite on both sides; all figures are over them.
        nan_left, nan_right, inf_left, inf_right: Elements with a NaN, with an infinity (and no NaN).
        non_finite_mismatches: Differing elements that are not finite on one side at least.
        mismatch_index: Flat C-order index of the first of them.
        max_abs_index: Flat C-order index of the greatest difference, None if there is none.
        max_abs_exact: The greatest difference of 64-bit integers, exact.
        differing_at_zero: Elements (parts of complex ones) that differ where the reference is at most 2.2e-16, which no
            relative tolerance covers; None if they were not counted.
        left_mean, left_deviation, right_mean, right_deviation: Population mean and standard deviation.
        pattern: What explains the difference as a whole ("scaled by 2 (right = 2 x left)"), empty if nothing simple.
        reasons: Column name -> why the figure is undefined.
        flattened: Figures of the flattened data when only the shapes differ.
        estimated: What is estimated and from what, where a side has a summary instead of values and the data differ;
            ``differing`` is then None, since nobody counted. Empty for figures that are exact.
        details: The second look (:mod:`compare.second_look`), None where it was not taken or nothing differs.
    """

    left_shape: tuple[int, ...]
    right_shape: tuple[int, ...]
    left_dtype: str
    right_dtype: str
    elements: int
    differing: int | None = None
    finite: int = 0
    nan_left: int = 0
    nan_right: int = 0
    inf_left: int = 0
    inf_right: int = 0
    non_finite_mismatches: int = 0
    mismatch_index: int | None = None
    max_abs_index: int | None = None
    max_abs_exact: int | None = None
    differing_at_zero: int | None = None
    cosine: float | None = None
    max_abs_error: float | None = None
    accumulated_relative_error: float | None = None
    relative_distance: float | None = None
    divergence: float | None = None
    left_mean: float | None = None
    left_deviation: float | None = None
    right_mean: float | None = None
    right_deviation: float | None = None
    mean_abs_error: float | None = None
    root_mean_square_error: float | None = None
    max_relative_error: float | None = None
    mean_relative_error: float | None = None
    pattern: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    flattened: Figures | None = None
    estimated: str = ""
    details: Details | None = None

    @property
    def explanation(self) -> str:
        """What explains the difference as a whole, empty if nothing simple or if no second look was taken."""
        return self.details.explanation if self.details is not None else self.pattern

    @property
    def same_shape(self) -> bool:
        """Whether both sides have the same dimensions."""
        return self.left_shape == self.right_shape

    @property
    def comparable(self) -> bool:
        """Whether elements could be held against each other, or what is known of them."""
        return self.differing is not None or bool(self.estimated)

    @property
    def differs(self) -> bool:
        """Whether the data are known to differ, with a count or without."""
        return bool(self.differing or self.estimated)

    @property
    def equal(self) -> bool:
        """Same shape and not one differing element (R5)."""
        return self.same_shape and self.differing == 0

    @property
    def scalar(self) -> bool:
        """One element, whatever the number of dimensions."""
        return self.elements == 1 and math.prod(self.left_shape) == 1

    @property
    def exact_kind(self) -> bool:
        """Whether any difference is an error: integers, booleans, strings (ids, indices, flags)."""
        return not any(name.startswith(("float", "bfloat", "complex")) for name in (self.left_dtype, self.right_dtype))

    @property
    def standard_deviation(self) -> str | None:
        """``(mean;deviation),(mean;deviation)`` with three decimals, the left side first; below 0.001 it shows 0."""
        numbers = (self.left_mean, self.left_deviation, self.right_mean, self.right_deviation)
        if any(number is None for number in numbers):
            return None
        texts = [f"{0.0 if abs(number) < 0.001 else number:.3f}" for number in numbers if number is not None]
        return f"({texts[0]};{texts[1]}),({texts[2]};{texts[3]})"

    def column(self, name: str) -> float | str | None:
        """Returns the figure of one of :data:`COLUMNS`; text only for StandardDeviation."""
        value: float | str | None = getattr(self, FIELDS[name])
        return value

    def columns(self) -> dict[str, float | str | None]:
        """Returns all figures by column name."""
        return {name: self.column(name) for name in COLUMNS}

    @property
    def verdict(self) -> str:
        """``equal``, ``different``, ``shapes differ`` or ``not comparable``; closeness is another question."""
        if not self.same_shape:
            return "shapes differ"
        if not self.comparable:
            return "not comparable"
        return "different" if self.differs else "equal"

    @property
    def suspicious(self) -> bool:
        """Whether it differs by more than rounding and other orders of summation make in half precision.

        Any difference of ids, of non-finite elements and of what has no relative distance; else a relative distance
        from :data:`SUSPICIOUS` on.
        """
        if not self.differs:
            return False
        if self.non_finite_mismatches or self.exact_kind or self.relative_distance is None:
            return True
        return self.relative_distance >= SUSPICIOUS

    def below(self, threshold: float) -> bool:
        """Tells whether the pair is suspicious at a cosine threshold.

        So is a cosine strictly below it, a NaN or infinity that only one side has, and a zero vector against one that
        is not (no threshold drops those). A scalar has no cosine; it is suspicious when its relative distance is
        above the one that a vector of unchanged length has at the threshold, sqrt(2 (1 - threshold)).
        """
        if self.non_finite_mismatches:
            return True
        if self.cosine is not None:
            return self.cosine < threshold
        if not self.differs or self.finite == 0:
            return False
        if self.scalar and self.relative_distance is not None:
            return self.relative_distance > distance_at(threshold)
        return True

    @property
    def rank(self) -> tuple[int, float]:
        """Key that sorts the worst pair first.

        Non-finite mismatches, differing ids, one-sided zeros, then by relative distance, then what cannot be compared,
        then what is equal.
        """
        if self.non_finite_mismatches:
            return (0, -float(self.non_finite_mismatches))
        if self.estimated:
            return (3, -(self.relative_distance or 0.0))
        if self.differing and self.exact_kind:
            return (1, -self.differing / max(self.elements, 1))
        if self.differing and self.relative_distance is None:
            return (2, -(self.max_abs_error or 0.0))
        if self.differing and self.cosine is None and not self.scalar:
            return (2, -(self.relative_distance or 0.0))
        if self.differing:
            return (3, -(self.relative_distance or 0.0))
        return (5, 0.0) if self.comparable else (4, 0.0)


def distance_at(threshold: float) -> float:
    """Returns the relative distance of two vectors of one length whose cosine is at the threshold."""
    return math.sqrt(max(0.0, 2 * (1 - threshold)))


def shape_text(shape: tuple[int, ...]) -> str:
    """Returns a shape as result files have it: ``[2,3]``, ``[]`` for no dimensions."""
    return f"[{','.join(map(str, shape))}]"

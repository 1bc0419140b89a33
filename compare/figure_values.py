"""Sums -> figures: each column's value, or why it does not exist."""

from __future__ import annotations

import math
from typing import Final

from compare.figures import BOTH_ZERO, COLUMNS, FIELDS
from compare.sums import Sums

BEYOND: Final = "beyond the range of float64"
NOT_ASKED: Final = "not asked for"
NOTHING_FINITE: Final = "no element is finite on both sides"

Values = dict[str, float]
Reasons = dict[str, str]


def figures_of(sums: Sums, *, scalar: bool, relative: bool = True) -> tuple[Values, Reasons]:
    """Returns the figures that exist by field of :class:`compare.figures.Figures`, and reasons by column.

    The Kullback-Leibler divergence has sums of its own, so it is in neither unless nothing exists.
    """
    values: Values = {}
    reasons: Reasons = {}
    if not sums.finite:
        return values, dict.fromkeys(COLUMNS, NOTHING_FINITE)
    n, distance = sums.finite, sums.scale.distance
    zero = _zero_side(sums)
    found = {
        "MaxAbsoluteError": _ldexp(sums.largest, distance),
        "MeanAbsoluteError": _ldexp(sums.distance / n, distance),
        "RootMeanSquareError": _ldexp(math.sqrt(sums.distance_square / n), distance),
    }
    if scalar or zero:
        reasons["CosineSimilarity"] = "scalar" if scalar else zero
    else:
        found["CosineSimilarity"] = _cosine(sums)
    if sums.right_square == 0:
        reasons["RelativeEuclideanDistance"] = zero
    else:
        ratio = math.sqrt(sums.distance_square) / math.sqrt(sums.right_square)
        found["RelativeEuclideanDistance"] = _ldexp(ratio, distance - sums.scale.right)
    if relative and sums.relative_count:
        found["AccumulatedRelativeError"] = sums.relative
        found["MaxRelativeError"] = sums.relative_largest
        found["MeanRelativeError"] = sums.relative_mean
    else:
        for column in ("AccumulatedRelativeError", "MaxRelativeError", "MeanRelativeError"):
            reasons[column] = "no reference element above 2.2e-16" if relative else NOT_ASKED
    for column, value in found.items():
        take(values, reasons, column, value)
    _take_moments(values, reasons, sums)
    return values, reasons


def take(values: Values, reasons: Reasons, column: str, value: float) -> None:
    """Enters one figure, or why it does not exist."""
    if math.isfinite(value):
        values[FIELDS[column]] = value
    else:
        reasons[column] = BEYOND


def _zero_side(sums: Sums) -> str:
    if sums.left_square and sums.right_square:
        return ""
    if sums.left_square == sums.right_square:
        return BOTH_ZERO
    return f"{'right' if sums.left_square else 'left'} is zero"


def _cosine(sums: Sums) -> float:
    # The root of the product, not the product of roots: exact for equal sides, and the same when they are swapped.
    cosine = sums.dot / math.sqrt(sums.left_square * sums.right_square)
    return max(-1.0, min(1.0, cosine))


def _take_moments(values: Values, reasons: Reasons, sums: Sums) -> None:
    left, right = sums.left, sums.right
    numbers = {
        "left_mean": _ldexp(left.mean, sums.scale.left),
        "left_deviation": _ldexp(left.deviation, sums.scale.left),
        "right_mean": _ldexp(right.mean, sums.scale.right),
        "right_deviation": _ldexp(right.deviation, sums.scale.right),
    }
    if all(map(math.isfinite, numbers.values())):
        values.update(numbers)
    else:
        reasons["StandardDeviation"] = BEYOND


def _ldexp(value: float, exponent: int) -> float:
    """Returns ``value * 2**exponent``, infinite where that is beyond float64."""
    if not exponent:
        return value
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def pattern(values: Values, sums: Sums) -> str:
    """Names one factor or one shift that explains nearly all of the difference, if there is one.

    A factor c explains all but sqrt(1 - cosine**2) of the reference, a shift all but the spread of the differences.
    Worth saying when less than a hundredth of the distance is left, the distance itself is beyond what rounding makes,
    and what is left is small against the spread of the reference: unrelated noise about two far means is no shift.
    """
    cosine, distance = values.get("cosine"), values.get("relative_distance")
    if cosine is None or distance is None or distance < 1e-4 or sums.right.spread == 0:
        return ""
    by_factor = math.sqrt(max(0.0, 1 - cosine * cosine)) / distance
    shift, by_shift = _shift(values, sums)
    left_over = min(by_factor, by_shift)
    norm = values.get("root_mean_square_error", math.inf)
    if left_over > 0.01 or left_over * norm > 0.1 * values.get("right_deviation", 0.0):
        return ""
    return _factor_text(sums) if by_factor <= by_shift else f"shifted by {shift:.6g} (left = right + {shift:.6g})"


def _factor_text(sums: Sums) -> str:
    """Names the factor, with the greater side as the multiple; empty where it is beyond float64."""
    shift = sums.scale.right - sums.scale.left
    factor = _ldexp(sums.dot / sums.left_square, shift)
    if not math.isfinite(factor):
        return ""
    if abs(factor) >= 1:
        return f"scaled by {factor:.6g} (right = {factor:.6g} x left)"
    factor = _ldexp(sums.dot / sums.right_square, -shift)
    if not factor or not math.isfinite(factor):
        return ""
    return f"scaled by {factor:.6g} (left = {factor:.6g} x right)"


def _shift(values: Values, sums: Sums) -> tuple[float, float]:
    distance = values.get("root_mean_square_error")
    if not distance or "left_mean" not in values or sums.finite < 2:
        return 0.0, math.inf
    shift = values["left_mean"] - values["right_mean"]
    if not math.isfinite(shift):
        return 0.0, math.inf
    return shift, math.sqrt(max(0.0, 1 - (shift / distance) ** 2))

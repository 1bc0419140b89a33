"""Two arrays -> figures: cosine, maximum and mean errors and the counts that a cosine hides.

Rules, the same for every figure:

* Sums are float64, over the elements that are finite on both sides; NaN and infinities are counted beside.
* A figure that does not exist is None with a reason, never ``nan`` and never 0 (R1).
* Equal means: NaN where the other side has NaN, the same infinity, +0 equal to -0 (R5). It is not a closeness.
* Integers differ exactly, however large. Complex numbers count as one element with two numbers. Strings are compared
  by bytes and have no figures but the number of differing elements.
* The cosine of a single element (all dimensions 1) says nothing but the sign, so it is undefined ("scalar"); the other
  figures of a scalar exist. A 1.000000 there would hide a wrong loss.
* The cosine of a zero vector is undefined with the zero side named. Two zero vectors are equal.
* Relative errors leave out elements whose reference is at most 2.2e-16, as the users' columns have always done; where
  that leaves nothing they are undefined.
* Arrays of different shapes have no figures; those of the flattened data stand in ``flattened`` where the element
  counts agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from compare.blocks import Kind, element_kind
from compare.careful import width_of
from compare.figures import BOTH_EMPTY, BOTH_ZERO, COLUMNS, FIELDS, Figures, shape_text
from compare.sides import Side
from compare.statistics import TensorStatistics, statistics
from compare.sums import Moments, Run, Sums, accumulate, divergence
from compare.verbatim import differing_elements
from dumpers.formats.extent import TensorFile, open_tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dumpers.records import TensorSource

    Array = NDArray[np.generic]

__all__ = ["COLUMNS", "Figures", "TensorStatistics", "compare_arrays", "shape_text", "statistics"]


def compare_arrays(left: Array, right: Array, *, with_divergence: bool = True, run: Run = map) -> Figures:
    """Compares the array under test (left) with the reference (right).

    Args:
        left: Any element type; raw two-byte data must have been given a type before.
        right: The reference.
        with_divergence: The Kullback-Leibler divergence needs more passes; False leaves it undefined.
        run: Sweeps the chunks of large arrays; see :data:`compare.sums.Run`.
    """
    heading = Figures(left.shape, right.shape, left.dtype.name, right.dtype.name, left.size)
    if left.shape != right.shape:
        flat = None
        if left.size == right.size:
            one, two = left.reshape(-1), right.reshape(-1)
            flat = compare_arrays(one, two, with_divergence=with_divergence, run=run)
        return _shapes_differ(heading, right.size, flat)
    kinds = (element_kind(left.dtype), element_kind(right.dtype))
    trouble = _kinds_that_do_not_meet(kinds, left.dtype, right.dtype)
    if trouble:
        return _undefined(heading, trouble)
    if kinds[0] in ("text", "opaque"):
        reason = "strings have no figures" if kinds[0] == "text" else "raw data of unknown type have no figures"
        return _undefined(heading, reason, differing=differing_elements(left, right))
    if left.size == 0:
        return _undefined(heading, BOTH_EMPTY, differing=0)
    return _numbers(heading, Side.of_array(left), Side.of_array(right), with_divergence, run)


def compare_sources(
    left: TensorSource, right: TensorSource, *, with_divergence: bool = True, run: Run = map
) -> Figures:
    """Compares two tensors without loading them where their bytes lie plainly in files; else loads them.

    Raises:
        DataError: a file cannot be read, or is damaged.
    """
    with ExitStack() as opened:
        files = []
        for source in (left, right):
            file = open_tensor(source)
            if file is None:
                break
            files.append(opened.enter_context(file))
        if len(files) == 2 and _in_place(*files):
            return _compare_files(*files, with_divergence=with_divergence, run=run)
    return compare_arrays(left.load(), right.load(), with_divergence=with_divergence, run=run)


def _in_place(left: TensorFile, right: TensorFile) -> bool:
    """Whether both are numbers and there are some; the rest needs no speed."""
    kinds = {element_kind(left.dtype), element_kind(right.dtype)}
    return left.count > 0 and right.count > 0 and not kinds & {"text", "opaque"}


def _compare_files(left: TensorFile, right: TensorFile, *, with_divergence: bool, run: Run) -> Figures:
    names, count = (left.dtype.name, right.dtype.name), left.count
    heading = Figures(left.shape, right.shape, *names, count)
    if left.shape == right.shape:
        return _numbers(heading, Side.of_file(left), Side.of_file(right), with_divergence, run)
    flat = None
    if count == right.count:
        flat_heading = Figures((count,), (count,), *names, count)
        flat = _numbers(flat_heading, Side.of_file(left), Side.of_file(right), with_divergence, run)
    return _shapes_differ(heading, right.count, flat)


def _kinds_that_do_not_meet(kinds: tuple[Kind, Kind], left: np.dtype[np.generic], right: np.dtype[np.generic]) -> str:
    verbatim = [kind for kind in kinds if kind in ("text", "opaque")]
    if len(verbatim) == 1 or (len(verbatim) == 2 and kinds[0] != kinds[1]):
        return f"{left.name} cannot be compared with {right.name}"
    return ""


def _shapes_differ(heading: Figures, right_elements: int, flattened: Figures | None) -> Figures:
    shapes = f"{shape_text(heading.left_shape)} against {shape_text(heading.right_shape)}"
    if flattened is None:
        counts = f"{heading.elements} against {right_elements} elements"
        return _undefined(heading, f"shapes differ: {shapes} ({counts})")
    equal = "; the data are equal element for element" if flattened.differing == 0 else ""
    return _undefined(heading, f"shapes differ (same element count): {shapes}{equal}", flattened=flattened)


def _undefined(
    heading: Figures, reason: str, *, differing: int | None = None, flattened: Figures | None = None
) -> Figures:
    return Figures(
        heading.left_shape,
        heading.right_shape,
        heading.left_dtype,
        heading.right_dtype,
        heading.elements,
        differing=differing,
        reasons=dict.fromkeys(COLUMNS, reason),
        flattened=flattened,
    )


def _numbers(heading: Figures, left: Side, right: Side, with_divergence: bool, run: Run) -> Figures:
    sums = accumulate(left, right, run)
    draft = _Draft(sums, scalar=heading.elements == 1)
    if with_divergence:
        draft.take("KullbackLeiblerDivergence", lambda: divergence(left, right, run))
    else:
        draft.reasons["KullbackLeiblerDivergence"] = "not asked for"
    return Figures(
        heading.left_shape,
        heading.right_shape,
        heading.left_dtype,
        heading.right_dtype,
        heading.elements,
        differing=sums.differing,
        finite=sums.finite // width_of(left, right),
        nan_left=sums.nan_left,
        nan_right=sums.nan_right,
        inf_left=sums.inf_left,
        inf_right=sums.inf_right,
        non_finite_mismatches=sums.mismatches,
        mismatch_index=sums.first_mismatch,
        max_abs_index=sums.largest_at,
        max_abs_exact=sums.largest_exact if sums.largest_exact > 2**53 else None,
        pattern=draft.pattern(),
        reasons=draft.reasons,
        **draft.figures(),
    )


class _Draft:
    """Turns sums into figures and keeps why one does not exist."""

    def __init__(self, sums: Sums, *, scalar: bool) -> None:
        self.sums = sums
        self.scalar = scalar
        self.reasons: dict[str, str] = {}
        self._values: dict[str, float] = {}
        zeros = [name for name, side in (("left", sums.left_square), ("right", sums.right_square)) if side == 0]
        self._zero = BOTH_ZERO if len(zeros) == 2 else f"{zeros[0]} is zero" if zeros else ""
        right_zero = self._zero if sums.right_square == 0 else ""
        tiny = "" if sums.relative_count else "no reference element above 2.2e-16"
        n = sums.finite
        self.take("CosineSimilarity", self._cosine, "scalar" if scalar else self._zero)
        self.take("MaxAbsoluteError", lambda: self._distance(sums.largest))
        self.take("AccumulatedRelativeError", lambda: sums.relative, tiny)
        self.take("RelativeEuclideanDistance", self._relative_distance, right_zero)
        self.take("StandardDeviation", self._spread)
        self.take("MeanAbsoluteError", lambda: self._distance(sums.distance / n))
        self.take("RootMeanSquareError", lambda: self._distance(math.sqrt(sums.distance_square / n)))
        self.take("MaxRelativeError", lambda: sums.relative_largest, tiny)
        self.take("MeanRelativeError", lambda: sums.relative_mean, tiny)

    def take(self, column: str, figure: Callable[[], float], missing: str = "") -> None:
        """Computes one figure, or notes why it does not exist."""
        if not self.sums.finite:
            missing = "no element is finite on both sides"
        value = math.nan
        if not missing:
            try:
                value = figure()
            except OverflowError:
                value = math.inf
            if not math.isfinite(value):
                missing = "beyond the range of float64"
        if missing:
            self.reasons[column] = missing
        else:
            self._values[FIELDS[column]] = value

    def figures(self) -> dict[str, Any]:
        """The defined figures by field name."""
        values = {name: value for name, value in self._values.items() if name != "standard_deviation"}
        if "standard_deviation" in self._values:
            for side, moments, exponent in self._sides():
                values[f"{side}_mean"] = math.ldexp(moments.mean, exponent)
                values[f"{side}_deviation"] = math.ldexp(moments.deviation, exponent)
        return values

    def pattern(self) -> str:
        """Names one factor or one shift that explains nearly all of the difference, if there is one.

        A factor c explains all but sqrt(1 - cosine**2) of the reference, a shift all but the spread of the
        differences. Worth saying when less than a hundredth of the distance is left and the distance itself is
        beyond what rounding makes.
        """
        cosine, distance = self._values.get("cosine"), self._values.get("relative_distance")
        if cosine is None or distance is None or distance < 1e-4 or self.sums.right.spread == 0:
            return ""
        by_factor = math.sqrt(max(0.0, 1 - cosine * cosine)) / distance
        shift, by_shift = self._shift()
        if min(by_factor, by_shift) > 0.01:
            return ""
        return self._factor_text() if by_factor <= by_shift else f"shifted by {shift:.6g} (left = right + {shift:.6g})"

    def _factor_text(self) -> str:
        sums, shift = self.sums, self.sums.scale.right - self.sums.scale.left
        factor = math.ldexp(sums.dot / sums.left_square, shift)
        if abs(factor) >= 1:
            return f"scaled by {factor:.6g} (right = {factor:.6g} x left)"
        factor = math.ldexp(sums.dot / sums.right_square, -shift)
        return f"scaled by {factor:.6g} (left = {factor:.6g} x right)"

    def _shift(self) -> tuple[float, float]:
        values, n = self._values, self.sums.finite
        if not {"root_mean_square_error", "standard_deviation"} <= values.keys():
            return 0.0, math.inf
        left, right = (math.ldexp(moments.mean, exponent) for _, moments, exponent in self._sides())
        shift, distance = left - right, values["root_mean_square_error"]
        if n < 2 or not distance or not math.isfinite(shift):
            return shift, math.inf
        return shift, math.sqrt(max(0.0, 1 - (shift / distance) ** 2))

    def _sides(self) -> tuple[tuple[str, Moments, int], ...]:
        sums = self.sums
        return (("left", sums.left, sums.scale.left), ("right", sums.right, sums.scale.right))

    def _spread(self) -> float:
        return max(
            math.ldexp(max(abs(moments.mean), moments.deviation), exponent) for _, moments, exponent in self._sides()
        )

    def _distance(self, value: float) -> float:
        return math.ldexp(value, self.sums.scale.distance)

    def _cosine(self) -> float:
        # The root of the product, not the product of roots: exact for equal sides, and the same when they are swapped.
        cosine = self.sums.dot / math.sqrt(self.sums.left_square * self.sums.right_square)
        return max(-1.0, min(1.0, cosine))

    def _relative_distance(self) -> float:
        sums = self.sums
        ratio = math.sqrt(sums.distance_square) / math.sqrt(sums.right_square)
        return math.ldexp(ratio, sums.scale.distance - sums.scale.right)

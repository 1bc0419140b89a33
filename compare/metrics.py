"""Two arrays -> figures: cosine, maximum and mean errors and the counts that a cosine hides.

Rules, the same for every figure:

* Sums are float64, over the elements that are finite on both sides; NaN and infinities are counted beside.
* A figure that does not exist is None with a reason, never ``nan`` and never 0 (R1).
* Equal means: NaN where the other side has NaN, the same infinity, +0 equal to -0 (R5). It is not a closeness.
* Integers differ exactly, however large; against floats they count as their nearest float64. Complex numbers count as
  one element with two numbers. Strings are compared by bytes and have no figures but the number of differing elements.
* The cosine of a single element (all dimensions 1) says nothing but the sign, so it is undefined ("scalar"); the other
  figures of a scalar exist. A 1.000000 there would hide a wrong loss.
* The cosine of a zero vector is undefined with the zero side named. Two zero vectors are equal.
* Relative errors leave out elements whose reference is at most 2.2e-16, as the users' columns have always done; where
  that leaves nothing they are undefined.
* Arrays of different shapes have no figures; those of the flattened data stand in ``flattened`` where the element
  counts agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compare.blocks import NUMBERS, Kind, dtype_name, element_kind
from compare.careful import width_of
from compare.figure_values import NOT_ASKED, figures_of, pattern, take
from compare.figures import BOTH_EMPTY, COLUMNS, Figures, shape_text
from compare.sides import Side
from compare.statistics import TensorStatistics, statistics
from compare.sums import Run, accumulate, divergence
from compare.verbatim import differing_elements
from dumpers.formats.extent import TensorFile, open_tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dumpers.records import TensorSource

    Array = NDArray[np.generic]

__all__ = ["COLUMNS", "Figures", "TensorStatistics", "compare_arrays", "shape_text", "statistics"]


def compare_arrays(
    left: Array, right: Array, *, with_divergence: bool = True, with_relative: bool = True, run: Run = map
) -> Figures:
    """Compares the array under test (left) with the reference (right).

    Args:
        left: Any element type; raw two-byte data must have been given a type before.
        right: The reference.
        with_divergence: The Kullback-Leibler divergence needs more passes; False leaves it undefined.
        with_relative: The relative errors take half of the time; False leaves those three columns undefined.
        run: Sweeps the chunks of large arrays; see :data:`compare.sums.Run`.
    """
    return _compare_arrays(left, right, _Asked(with_divergence, with_relative, run))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is wanted of a comparison; see :func:`compare_arrays`."""

    divergence: bool
    relative: bool
    run: Run


def _compare_arrays(left: Array, right: Array, asked: _Asked) -> Figures:
    heading = _heading(left.shape, right.shape, left.dtype, right.dtype, left.size)
    if left.shape != right.shape:
        flat = None
        if left.size == right.size:
            one, two = left.reshape(-1), right.reshape(-1)
            flat = _compare_arrays(one, two, asked)
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
    return _numbers(heading, Side.of_array(left), Side.of_array(right), asked)


def _heading(
    left_shape: tuple[int, ...],
    right_shape: tuple[int, ...],
    left: np.dtype[np.generic],
    right: np.dtype[np.generic],
    elements: int,
) -> dict[str, Any]:
    """What is known of two tensors before they are looked at, by field of :class:`Figures`."""
    return {
        "left_shape": left_shape,
        "right_shape": right_shape,
        "left_dtype": dtype_name(left),
        "right_dtype": dtype_name(right),
        "elements": elements,
    }


def compare_sources(
    left: TensorSource,
    right: TensorSource,
    *,
    with_divergence: bool = True,
    with_relative: bool = True,
    run: Run = map,
) -> Figures:
    """Compares two tensors without loading them where their bytes lie plainly in files; else loads them.

    Raises:
        DataError: a file cannot be read, or is damaged.
    """
    asked = _Asked(with_divergence, with_relative, run)
    one = two = None
    try:
        one = open_tensor(left)
        two = open_tensor(right) if one is not None else None
        if one is not None and two is not None and _in_place(one, two):
            return _compare_files(one, two, asked)
    finally:
        for file in (one, two):
            if file is not None:
                file.close()
    return _compare_arrays(left.load(), right.load(), asked)


def _in_place(left: TensorFile, right: TensorFile) -> bool:
    """Whether both are numbers and there are some; the rest needs no speed."""
    numbers = element_kind(left.dtype) in NUMBERS and element_kind(right.dtype) in NUMBERS
    return numbers and left.count > 0 and right.count > 0


def _compare_files(left: TensorFile, right: TensorFile, asked: _Asked) -> Figures:
    heading = _heading(left.shape, right.shape, left.dtype, right.dtype, left.count)
    sides = (Side.of_file(left), Side.of_file(right))
    if left.shape == right.shape:
        return _numbers(heading, *sides, asked)
    flat = None
    if left.count == right.count:
        flat = _numbers(heading | dict.fromkeys(("left_shape", "right_shape"), (left.count,)), *sides, asked)
    return _shapes_differ(heading, right.count, flat)


def _kinds_that_do_not_meet(kinds: tuple[Kind, Kind], left: np.dtype[np.generic], right: np.dtype[np.generic]) -> str:
    verbatim = [kind for kind in kinds if kind not in NUMBERS]
    if len(verbatim) == 1 or (len(verbatim) == 2 and kinds[0] != kinds[1]):
        return f"{left.name} cannot be compared with {right.name}"
    return ""


def _shapes_differ(heading: Mapping[str, Any], right_elements: int, flattened: Figures | None) -> Figures:
    shapes = f"{shape_text(heading['left_shape'])} against {shape_text(heading['right_shape'])}"
    if flattened is None:
        counts = f"{heading['elements']} against {right_elements} elements"
        return _undefined(heading, f"shapes differ: {shapes} ({counts})")
    equal = "; the data are equal element for element" if flattened.differing == 0 else ""
    return _undefined(heading, f"shapes differ (same element count): {shapes}{equal}", flattened=flattened)


def _undefined(
    heading: Mapping[str, Any], reason: str, *, differing: int | None = None, flattened: Figures | None = None
) -> Figures:
    return Figures(**heading, differing=differing, reasons=dict.fromkeys(COLUMNS, reason), flattened=flattened)


def _numbers(heading: Mapping[str, Any], left: Side, right: Side, asked: _Asked) -> Figures:
    sums = accumulate(left, right, asked.run, relative=asked.relative)
    values, reasons = figures_of(sums, scalar=left.count == 1, relative=asked.relative)
    if not asked.divergence:
        reasons["KullbackLeiblerDivergence"] = NOT_ASKED
    elif sums.finite:
        take(values, reasons, "KullbackLeiblerDivergence", divergence(left, right, asked.run))
    fields: dict[str, Any] = {**heading, **values}
    return Figures(
        **fields,
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
        differing_at_zero=sums.differing_at_zero if asked.relative and not sums.mismatches else None,
        pattern=pattern(values, sums) if sums.differing else "",
        reasons=reasons,
    )

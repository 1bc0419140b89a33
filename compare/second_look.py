"""The second look at a pair that differs: the rarer figures, and one explanation of the difference.

A first pass takes every figure together with what can refute an explanation: ranges, moments, and sums of hashes that
are equal only where both sides hold the same elements. What they leave open is then tried on a sample, and what the
sample leaves open on all elements; only what holds for all of them is said. ``docs/reference/second-look.md`` lists
figures and explanations with their criteria.

Memory does not grow with the arrays but for three things with a bound: hashes of rows and columns
(:data:`compare.difference.rows.LARGEST`), the proof of a shuffle (:data:`compare.difference.places.SORTED`), and the
coordinates of what differs.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from compare.blocks import element_kind
from compare.difference.details import HISTOGRAM, NON_FINITE_KINDS, Details, Tolerance
from compare.difference.explain import explain, explain_verbatim
from compare.difference.measure import Measured, measure
from compare.difference.pair import Pair
from compare.onepass.difference import KINDS
from dumpers.dtypes import numpy_dtype
from dumpers.formats.extent import open_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.figures import Figures
    from dumpers.records import TensorSource

LARGEST: Final = 128 << 20
"""Bytes of a side; a sweep takes no second look at larger ones."""

_SMALL: Final = 1 << 20
_one_at_a_time = threading.Lock()
_BEYOND = "beyond the range of float64"


def look(left: NDArray[np.generic], right: NDArray[np.generic], figures: Figures) -> Details | None:
    """Takes the second look.

    Args:
        left: Under test, of any element type of :func:`compare.blocks.element_kind`; may be a memory map.
        right: The reference. Shapes may differ if the element counts agree: elements are then paired in C order, and
            axes that changed places are recognised.
        figures: Those of the first look.

    Returns:
        None where no element differs, or elements cannot be held against each other.
    """
    known = figures if figures.comparable else figures.flattened
    if known is None or not known.differing or left.size != right.size:
        return None
    pair = Pair(left, right)
    if pair.verbatim:
        return _verbatim(pair)
    with np.errstate(all="ignore"):
        found = measure(pair)
        explanation, skipped = explain(pair, found)
    reasons: dict[str, str] = {}
    tolerance = _tolerance(found, pair, reasons)
    ulp = _ulp(found, pair, reasons)
    bins = zip(HISTOGRAM, found.bins.tolist(), strict=False)
    histogram = {name: count for name, count in bins if count}
    histogram = _with_overflow(histogram, int(found.bins[-1]))
    return Details(
        elements=pair.size,
        differing=found.differing,
        first_index=found.first,
        ulp_dtype=ulp[0],
        max_ulp=ulp[1],
        max_ulp_index=ulp[2],
        within_one_ulp=ulp[3],
        sign_flips=int(found.counts[1]),
        non_finite={name: int(n) for name, n in zip(NON_FINITE_KINDS, found.counts[KINDS:], strict=True) if n},
        histogram=histogram,
        tolerance=tolerance,
        explanation=explanation,
        skipped=tuple(skipped),
        reasons=reasons,
    )


def with_details(figures: Figures, left: NDArray[np.generic], right: NDArray[np.generic]) -> Figures:
    """Returns the figures with the second look in ``details``, unchanged where there is nothing to look at."""
    details = look(left, right, figures)
    return figures if details is None else replace(figures, details=details)


def look_at_sources(left: TensorSource, right: TensorSource, figures: Figures) -> tuple[Details | None, str]:
    """Takes the second look at two tensors where they lie in their files, or loads them.

    Large pairs are looked at one at a time, so that memory stays bounded: elements that lie plainly are mapped, others
    loaded, and pairs beyond :data:`LARGEST` are left out.

    Returns:
        The details, and why there are none where a pair is too large.

    Raises:
        DataError: a file cannot be read.
    """
    sizes = [figures.elements * numpy_dtype(name).itemsize for name in (figures.left_dtype, figures.right_dtype)]
    if max(sizes) > LARGEST:
        return None, f"no second look at more than {LARGEST >> 20} MB a side; cp takes it"
    if max(sizes) <= _SMALL:
        return look(_mapped(left), _mapped(right), figures), ""
    with _one_at_a_time:
        return look(_mapped(left), _mapped(right), figures), ""


def _mapped(source: TensorSource) -> NDArray[np.generic]:
    """The elements, mapped where they lie plainly and begin at a multiple of their size."""
    file = open_tensor(source)
    if file is None:
        return source.load()
    with file:
        if not file.count or file.offset % file.dtype.itemsize or file.nbytes <= _SMALL:
            return source.load()
        mapped = np.memmap(file.where, np.uint8, "r", offset=file.offset, shape=(file.nbytes,))
        return mapped.view(np.ndarray).view(file.dtype).reshape(file.shape)


def _verbatim(pair: Pair) -> Details:
    explanation, region = explain_verbatim(pair)
    kinds = {element_kind(pair.left.dtype), element_kind(pair.right.dtype)}
    reason = "strings have no figures" if "text" in kinds else "raw data of unknown type have no figures"
    names = ("max_ulp", "within_one_ulp", "sign_flips", "histogram", "tolerance")
    return Details(pair.size, region.count, region.first, explanation=explanation, reasons=dict.fromkeys(names, reason))


def _with_overflow(histogram: dict[str, int], infinite: int) -> dict[str, int]:
    """Adds differences beyond float64 to the last bin."""
    if infinite:
        histogram[HISTOGRAM[-1]] = histogram.get(HISTOGRAM[-1], 0) + infinite
    return histogram


def _tolerance(found: Measured, pair: Pair, reasons: dict[str, str]) -> Tolerance:
    names = ("atol", "rtol", "atol_with_usual")
    if found.mismatches:
        reason = f"{found.mismatches} element(s) are not finite on one side only, or differ there"
        reasons.update({f"tolerance.{name}": reason for name in names})
        return Tolerance(usual_rtol=found.usual)
    values: list[float | None] = []
    for name, need in zip(names, (found.needs[0], found.needs[1], found.needs[2]), strict=True):
        usable = math.isfinite(need)
        if not usable:
            reasons[f"tolerance.{name}"] = _BEYOND
        values.append(float(need) if usable else None)
    zero = int(found.zero_reference[0])
    if zero >= 0:
        values[1] = None
        reasons["tolerance.rtol"] = f"the reference is zero where the sides differ, first at element {zero}"
    return Tolerance(values[0], values[1], found.usual, values[2])


def _ulp(
    found: Measured, pair: Pair, reasons: dict[str, str]
) -> tuple[str | None, int | None, int | None, float | None]:
    finite = pair.size - found.not_finite
    if found.ladder is None or not finite:
        reason = (
            "integers have no representable values between them"
            if found.ladder is None
            else ("no element is finite on both sides")
        )
        reasons["max_ulp"] = reasons["within_one_ulp"] = reason
        return (None if found.ladder is None else found.ladder.dtype.name), None, None, None
    return found.ladder.dtype.name, int(found.steps[0]), int(found.steps[1]), int(found.steps[2]) / finite

"""Details: the figures of the second look, plain data without any heavy import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LOWEST_DECADE, HIGHEST_DECADE = -20, 20

NON_FINITE_KINDS = (
    "nan against finite",
    "finite against nan",
    "inf against finite",
    "finite against inf",
    "nan against inf",
    "inf against nan",
    "opposite infinities",
    "parts of a complex number",
)
"""Kinds of a non-finite mismatch, the left side named first; the last is for complex numbers of which no part is
finite on both sides and the parts differ."""

HISTOGRAM = (
    "0",
    f"below 1e{LOWEST_DECADE}",
    *(f"1e{exponent}" for exponent in range(LOWEST_DECADE, HIGHEST_DECADE)),
    f"from 1e{HIGHEST_DECADE}",
)
"""Names of the histogram's bins: ``1e-3`` is 1e-3 <= |error| < 1e-2."""


@dataclass(frozen=True)
class Tolerance:
    """The least tolerance with which ``numpy.isclose(left, right, equal_nan=True)`` holds for all elements.

    The test is |left - right| <= atol + rtol |right| in float64, as ``numpy.isclose`` makes it for float64
    arrays; each number is the smallest float64 that passes.

    Attributes:
        atol: With rtol = 0: the greatest absolute difference.
        rtol: With atol = 0; does not exist where the reference is zero and the other side is not.
        usual_rtol: A usual rtol of the narrower element type (:func:`compare.difference.ulp.usual_rtol`).
        atol_with_usual: The smallest atol beside it.
    """

    atol: float | None = None
    rtol: float | None = None
    usual_rtol: float | None = None
    atol_with_usual: float | None = None


@dataclass(frozen=True)
class Details:
    """What only a pair that differs is asked for.

    A figure that does not exist is None and its reason stands in ``reasons`` under the field's name (R1).

    Attributes:
        elements: Elements of each side.
        differing: Elements that differ (R5).
        first_index: Flat C-order index of the first of them.
        ulp_dtype: The element type in whose steps the ULP distance counts: the narrower of the two floats; the values
            of the other side are rounded to it first. Complex numbers count part by part.
        max_ulp: Greatest number of steps from one side's value to the other's along the representable values, 0 and
            -0 being one value; over the elements that are finite on both sides.
        max_ulp_index: Flat C-order index of the first element with that distance.
        within_one_ulp: Share of the elements finite on both sides that are at most one step apart.
        sign_flips: Elements finite and not zero on both sides with opposite signs (of a complex number: in a part).
        non_finite: Kind of mismatch (:data:`NON_FINITE_KINDS`) -> elements; kinds that do not occur are left out.
        histogram: Bin (:data:`HISTOGRAM`) -> elements finite on both sides whose |left - right| is in it; empty bins
            are left out. The bounds are the float64 numbers nearest to the powers of ten, exact for integers.
        tolerance: See :class:`Tolerance`.
        explanation: One sentence that holds for all elements, empty where nothing was found that does.
        skipped: What was not looked for, and why.
        reasons: Field -> why the figure does not exist; those of the tolerance as ``tolerance.rtol``.
    """

    elements: int
    differing: int
    first_index: int | None = None
    ulp_dtype: str | None = None
    max_ulp: int | None = None
    max_ulp_index: int | None = None
    within_one_ulp: float | None = None
    sign_flips: int | None = None
    non_finite: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[str, int] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    explanation: str = ""
    skipped: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

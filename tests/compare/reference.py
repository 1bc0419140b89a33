"""Every figure of two arrays from exact arithmetic, element by element: the judge of the compare engine.

Nothing here is shared with the engine. Each finite number is a whole count of a step (a power of two, 2**-1074 at the
least), so sums and products are exact Python integers; quotients are fractions, square roots integer roots of 200 bits,
logarithms decimals of 60 digits. What a figure means is written in ``docs/reference/metrics.md``; so are the two rules
about rounding:

* Integers have exact differences from each other. In every other sum, and against a float, an integer counts as its
  nearest float64.
* Each figure is held to 1e-12 of itself, sums that cancel included; only the divergence to 1e-12 of the sum of its
  terms' absolute values. :class:`Exact` carries that allowance with each figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from operator import mul, or_

import numpy as np

FINEST = 1074
"""2**-1074 is the smallest step of float64."""

SIGNIFICANT = 53
RELATIVE = Fraction(1, 10**12)
ABSOLUTE_DIVERGENCE = Fraction(1, 10**14)
"""A ratio of two shares near 1 carries a few roundings of 2**-53, and its logarithm is as small as they are."""

STEP = Fraction(2, 1 << FINEST)
"""Below the normal range a result is a multiple of 2**-1074: it may be two steps off."""

GREATEST = Fraction(np.finfo(np.float64).max)
EPSILON = Fraction(2.220446049250313e-16)
FLOOR = Fraction(1.1920929e-07)
BITS = 200
DIGITS = 60

NO_FINITE = "no element is finite on both sides"
TOO_SMALL = "no reference element above 2.2e-16"
BEYOND = "beyond the range of float64"
BOTH_ZERO = "both sides are zero"


@dataclass(frozen=True)
class Exact:
    """A figure and how far a float64 engine may be from it."""

    value: Fraction
    allowance: Fraction

    @property
    def surely_in_range(self) -> bool:
        return abs(self.value) + self.allowance < GREATEST

    @property
    def surely_beyond(self) -> bool:
        return abs(self.value) - self.allowance > GREATEST

    def admits(self, figure: float) -> bool:
        return math.isfinite(figure) and abs(Fraction(figure) - self.value) <= self.allowance


@dataclass
class Reference:
    """What two arrays of one shape have in common.

    Attributes:
        counts: Fields of Figures that are whole numbers, exact.
        figures: Fields that are real numbers, where they exist.
        reasons: Fields that do not exist, and why.
    """

    counts: dict[str, int | None]
    figures: dict[str, Exact] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: Fraction, terms: Fraction | None = None, floor: Fraction = STEP) -> None:
        """Adds a figure; ``terms`` is the sum of its terms' absolute values if that is what the allowance is of."""
        exact = Exact(value, RELATIVE * abs(value if terms is None else terms) + floor)
        self.figures[name] = exact
        if exact.surely_beyond:
            self.reasons[name] = BEYOND


# ------------------------------------------------------------------------------------------------------------- elements


Number = int | float


def is_whole(dtype: np.dtype) -> bool:
    """Tells integers and booleans, ml_dtypes' small integers included."""
    return dtype.kind in "biu" or dtype.name in ("int2", "uint2", "int4", "uint4")


def numbers_of(array: np.ndarray, width: int) -> list[Number]:
    """Returns the numbers as stored, ``width`` an element: complex ones as two, real ones beside complex with a 0."""
    flat = array.reshape(-1)
    if array.dtype.kind == "c":
        return [float(part) for value in flat.tolist() for part in (value.real, value.imag)]
    if is_whole(array.dtype):
        numbers: list[Number] = [int(value) for value in flat.tolist()]
    elif array.dtype.name == "bfloat16":  # the upper half of a float32
        numbers = (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32).tolist()
    else:
        numbers = [float(value) for value in flat.tolist()]
    return [part for number in numbers for part in (number, 0.0)] if width == 2 else numbers


def by_element(test: Callable[[Number], bool], numbers: list[Number], width: int) -> np.ndarray:
    """Tells the elements of which a number passes the test."""
    return np.array([test(number) for number in numbers], bool).reshape(-1, width).any(axis=1)


def steps(numbers: list[Number]) -> list[int]:
    """Returns the nearest float64 of each number, counted in steps of 2**-1074."""
    ratios = [float(number).as_integer_ratio() for number in numbers]
    return [numerator << FINEST + 1 - denominator.bit_length() for numerator, denominator in ratios]


def rounded(count: int) -> int:
    """Rounds a count of steps to 53 bits, half to even, whatever its size."""
    spare = count.bit_length() - SIGNIFICANT
    if spare <= 0:
        return count
    low, half = count & ((1 << spare) - 1), 1 << (spare - 1)
    up = low > half or (low == half and (count >> spare) & 1)
    return ((count >> spare) + bool(up)) << spare


def root(square: Fraction) -> Fraction:
    """Returns the square root to 200 bits."""
    if not square:
        return Fraction(0)
    shift = BITS - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(4) ** shift
    return math.isqrt(scaled.numerator // scaled.denominator) / Fraction(2) ** shift


@dataclass(frozen=True)
class Counted:
    """The numbers finite on both sides as whole counts.

    Attributes:
        x, y: Each side.
        gaps: Absolute differences.
        kept: Flat index of the element of each number.
        unit: Counts in 1.
        whole: Whether both sides hold integers.
    """

    x: list[int]
    y: list[int]
    gaps: list[int]
    kept: list[int]
    unit: Fraction
    whole: bool


def counted(one: list[Number], two: list[Number], kept: np.ndarray, width: int, *, whole: bool) -> Counted:
    """Takes the kept elements of both sides; the step is the greatest power of two that divides them all."""
    places = [int(at) for at in kept for _ in range(width)]
    numbers = [int(at) * width + part for at in kept for part in range(width)]
    x, y = steps([one[at] for at in numbers]), steps([two[at] for at in numbers])
    if whole:
        gaps = [abs(int(one[at]) - int(two[at])) << FINEST for at in numbers]
    else:
        gaps = [abs(a - b) for a, b in zip(x, y, strict=True)]
    bits = reduce(or_, map(abs, x + y + gaps))
    spare = (bits & -bits).bit_length() - 1 if bits else 0
    x, y, gaps = ([count >> spare for count in side] for side in (x, y, gaps))
    return Counted(x, y, gaps, places, Fraction(2) ** (FINEST - spare), whole)


# -------------------------------------------------------------------------------------------------------------- figures


REAL = (
    *("cosine", "max_abs_error", "accumulated_relative_error", "relative_distance", "divergence", "mean_abs_error"),
    *("left_mean", "left_deviation", "right_mean", "right_deviation", "root_mean_square_error"),
    *("max_relative_error", "mean_relative_error"),
)


def reference(left: np.ndarray, right: np.ndarray) -> Reference:
    """Returns all figures of two numeric arrays of one shape with at least one element."""
    width = 2 if "c" in left.dtype.kind + right.dtype.kind else 1
    whole = is_whole(left.dtype) and is_whole(right.dtype)
    one, two = numbers_of(left, width), numbers_of(right, width)
    if not whole:
        one, two = list(map(float, one)), list(map(float, two))
    found, kept = _count(one, two, width)
    if not kept.size:
        found.reasons = dict.fromkeys(REAL, NO_FINITE)
        return found
    pair = counted(one, two, kept, width, whole=whole)
    _largest(found, pair)
    _distances(found, pair)
    _relative_errors(found, pair)
    _cosine(found, pair, scalar=left.size == 1)
    for side, values in (("left", pair.x), ("right", pair.y)):
        _moments(found, side, values, pair.unit)
    _divergence(found, pair)
    return found


def _count(one: list[Number], two: list[Number], width: int) -> tuple[Reference, np.ndarray]:
    """Counts elements and returns where both sides are finite. Equal is what R5 calls so."""
    equal = [a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, two, strict=True)]
    differ = ~np.array(equal, bool).reshape(-1, width).all(axis=1)
    nan = [by_element(math.isnan, side, width) for side in (one, two)]
    infinite = [by_element(math.isinf, side, width) & ~nan[at] for at, side in enumerate((one, two))]
    odd = nan[0] | nan[1] | infinite[0] | infinite[1]
    mismatches = np.flatnonzero(differ & odd)
    counts = {
        "elements": differ.size,
        "differing": int(differ.sum()),
        "finite": int((~odd).sum()),
        "nan_left": int(nan[0].sum()),
        "nan_right": int(nan[1].sum()),
        "inf_left": int(infinite[0].sum()),
        "inf_right": int(infinite[1].sum()),
        "non_finite_mismatches": mismatches.size,
        "mismatch_index": int(mismatches[0]) if mismatches.size else None,
        "max_abs_index": None,
        "max_abs_exact": None,
    }
    return Reference(counts), np.flatnonzero(~odd)


def _largest(found: Reference, pair: Counted) -> None:
    """The greatest difference; among floats it is the greatest after rounding to float64, the first of them."""
    seen = pair.gaps if pair.whole else [rounded(gap) for gap in pair.gaps]
    greatest = max(seen)
    found.put("max_abs_error", greatest / pair.unit)
    if greatest:
        found.counts["max_abs_index"] = pair.kept[seen.index(greatest)]
    if pair.whole and greatest > pair.unit * (1 << SIGNIFICANT):
        found.counts["max_abs_exact"] = int(greatest / pair.unit)


def _distances(found: Reference, pair: Counted) -> None:
    count, square = len(pair.gaps), sum(map(mul, pair.gaps, pair.gaps))
    found.put("mean_abs_error", sum(pair.gaps) / (count * pair.unit))
    found.put("root_mean_square_error", root(square / (count * pair.unit * pair.unit)))
    length = sum(map(mul, pair.y, pair.y))
    if length:
        found.put("relative_distance", root(Fraction(square, length)))


def _relative_errors(found: Reference, pair: Counted) -> None:
    least = EPSILON * pair.unit
    pairs = [(gap, abs(b)) for gap, b in zip(pair.gaps, pair.y, strict=True) if abs(b) > least]
    names = ("accumulated_relative_error", "max_relative_error", "mean_relative_error")
    if not pairs:
        found.reasons.update(dict.fromkeys(names, TOO_SMALL))
        return
    # Fixed point, 200 bits below the greatest quotient; the sum of 2**20 of them is still right to 180 bits.
    greatest = max((gap.bit_length() - b.bit_length() for gap, b in pairs if gap), default=0)
    shift = max(0, BITS - greatest)
    quotients = [(gap << shift) // b for gap, b in pairs]
    total = Fraction(sum(quotients), 1 << shift)
    for name, value in zip(names, (total, Fraction(max(quotients), 1 << shift), total / len(pair.gaps)), strict=True):
        found.put(name, value)


def _cosine(found: Reference, pair: Counted, *, scalar: bool) -> None:
    left, right = sum(map(mul, pair.x, pair.x)), sum(map(mul, pair.y, pair.y))
    zero = BOTH_ZERO if not (left or right) else "left is zero" if not left else "right is zero" if not right else ""
    if not right:
        found.reasons["relative_distance"] = zero
    if scalar or zero:
        found.reasons["cosine"] = "scalar" if scalar else zero
        return
    dot = sum(map(mul, pair.x, pair.y))
    size = root(Fraction(dot * dot, left * right))
    found.put("cosine", size if dot >= 0 else -size)


def _moments(found: Reference, side: str, values: list[int], unit: Fraction) -> None:
    count, total, square = len(values), sum(values), sum(map(mul, values, values))
    found.put(f"{side}_mean", total / (count * unit))
    found.put(f"{side}_deviation", root((square * count - total * total) / (count * unit) ** 2))


def _divergence(found: Reference, pair: Counted) -> None:
    """Sum p ln(p/q) of both sides, each scaled to 0..1, raised to 1.19e-7 and divided by its sum.

    A constant side is a uniform distribution whatever its value.
    """
    with localcontext() as context:
        context.prec = DIGITS
        p, q = _shares(pair.x), _shares(pair.y)
        logarithms = {share: share.ln() for share in {*p, *q}}
        total_p, total_q = sum(p), sum(q)
        terms = [a * (logarithms[a] - logarithms[b]) for a, b in zip(p, q, strict=True)]
        level = (total_q / total_p).ln()
        value = sum(terms) / total_p + level
        size = sum(map(abs, terms)) / total_p + abs(level)
    found.put("divergence", max(Fraction(0), Fraction(value)), Fraction(size), ABSOLUTE_DIVERGENCE)


def _shares(values: list[int]) -> list[Decimal]:
    low, span = min(values), max(values) - min(values)
    if not span:
        return [Decimal(1)] * len(values)
    floor = Decimal(FLOOR.numerator) / Decimal(FLOOR.denominator)
    known = {value: max(floor, Decimal(value - low) / Decimal(span)) for value in set(values)}
    return [known[value] for value in values]

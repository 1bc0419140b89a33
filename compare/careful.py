"""The passes that few tensors need: scaled, exact or about the mean, block by block; and complex numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from compare.blocks import BLOCK, to_float64
from compare.onepass.state import FIRST_MISMATCH, FLOATS, INTEGERS, TOP_AT
from compare.sides import pair_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.sides import Side

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

SMALLEST_SHARE: Final = 1.1920929e-07
"""Floor of the two distributions of the Kullback-Leibler divergence (float32 epsilon)."""

EXACT: Final = 1 << 14
"""Numbers that are added by ``math.fsum``; of more, pairs of float64 are kept."""

_MOST: Final = 1000
"""Greatest power of two taken out at once: what is left of any float64 can be squared and added up."""


@dataclass(frozen=True)
class Scale:
    """Powers of two taken out of the values, so that squares of 1e200 or 1e-200 stay in range (FC06).

    Attributes:
        left, right: Exponents for the two sides.
        half: 1 when even a difference could leave the range, else 0.
        distance: Exponent for the differences.
    """

    left: int = 0
    right: int = 0
    half: int = 0
    distance: int = 0

    def of(self, number: int) -> int:
        """Exponent of side 0 or 1."""
        return self.right if number else self.left


PLAIN: Final = Scale()


def width_of(left: Side, right: Side) -> int:
    """Numbers an element: 2 for complex, else 1."""
    return 2 if "c" in left.dtype.kind + right.dtype.kind else 1


def sweep(left: Side, right: Side) -> tuple[Floats, Counts]:
    """Adds the types that no kernel decodes."""
    from compare.onepass.double import add_block

    floats, counts = np.zeros(FLOATS), np.zeros(INTEGERS, np.int64)
    counts[FIRST_MISMATCH] = counts[TOP_AT] = -1
    width = width_of(left, right)
    kept_x, kept_y, places = _room(width)
    with np.errstate(all="ignore"):
        for start, one, two in pair_blocks(left, right):
            x, y = to_float64(one, width), to_float64(two, width)
            add_block(x, y, x.size, width, start, kept_x, kept_y, places, floats, counts)
    return floats, counts


def finite_blocks(left: Side, right: Side) -> Iterator[tuple[Floats, Floats]]:
    """Yields the numbers that are finite on both sides, block by block, float64."""
    width = width_of(left, right)
    with np.errstate(all="ignore"):
        for _, one, two in pair_blocks(left, right):
            x, y = to_float64(one, width), to_float64(two, width)
            finite = np.isfinite(x) & np.isfinite(y)
            if not finite.all():
                if width == 2:
                    finite = np.repeat(finite.reshape(-1, 2).all(axis=1), 2)
                x, y = x[finite], y[finite]
            if x.size:
                yield x, y


def magnitudes(left: Side, right: Side) -> tuple[float, float]:
    """Returns the greatest absolute value of each side, over the numbers that are finite on both."""
    great_x = great_y = 0.0
    for x, y in finite_blocks(left, right):
        great_x, great_y = max(great_x, float(np.abs(x).max())), max(great_y, float(np.abs(y).max()))
    return great_x, great_y


def scale_for(sizes: tuple[float, float], largest: float) -> Scale:
    """Returns the scale for two sides with these greatest values and greatest difference (inf if it overflowed)."""
    left, right = (_exponent(size) for size in sizes)
    half = int(math.isinf(largest))  # only then: halving takes a bit from differences of subnormal numbers
    return Scale(left, right, half, _exponent(largest) if math.isfinite(largest) else max(left, right))


def _exponent(magnitude: float) -> int:
    return max(-_MOST, min(_MOST, math.frexp(magnitude)[1])) if magnitude else 0


def add_scaled(left: Side, right: Side, scale: Scale, floats: Floats, counts: Counts) -> None:
    """Takes all sums again with a scale; counts stay, but for the place of the greatest difference."""
    from compare.onepass.double import add_scaled as add

    floats[:] = 0
    counts[TOP_AT] = -1
    width = width_of(left, right)
    kept_x, kept_y, places = _room(width)
    factors = np.array([2.0**-e for e in (scale.left, scale.right, scale.half, scale.distance - scale.half)])
    with np.errstate(all="ignore"):
        for start, one, two in pair_blocks(left, right):
            x, y = to_float64(one, width), to_float64(two, width)
            add(x, y, x.size, width, start, factors, kept_x, kept_y, places, floats, counts)


def _room(width: int) -> tuple[Floats, Floats, NDArray[np.int32]]:
    size = BLOCK * width
    return np.empty(size), np.empty(size), np.empty(size, np.int32)


def exact_sums(left: Side, right: Side, scale: Scale) -> tuple[float, float, float]:
    """Returns the sums of both sides and of their products as if they were taken without rounding, scaled.

    Exactly while there are few numbers, else in pairs of float64.
    """
    from compare.onepass import exact

    one, two = 2.0**-scale.left, 2.0**-scale.right
    few: tuple[list[float], list[float], list[float]] = ([], [], [])
    fields, unused = np.zeros(exact.FIELDS), np.zeros(INTEGERS, np.int64)
    rooms = _room(1)
    many = False
    for left_block, right_block in finite_blocks(left, right):
        x, y = left_block * one, right_block * two
        if not many and len(few[0]) + x.size <= EXACT:
            for terms, more in zip(few, (x.tolist(), y.tolist(), _products(x, y)), strict=True):
                terms.extend(more)
            continue
        many = True
        for start in range(0, x.size, BLOCK):  # a block of complex numbers is twice as long
            part = slice(start, start + BLOCK)
            for products in (False, True):
                exact.add_block(x[part], y[part], x[part].size, products, *rooms, unused, fields)
    totals = [
        math.fsum([*terms, *fields[at : at + 2].tolist()])
        for at, terms in zip((exact.X, exact.Y, exact.XY), few, strict=True)
    ]
    return totals[0], totals[1], totals[2]


def _products(x: Floats, y: Floats) -> list[float]:
    """Terms whose exact sum is that of the products: a product is its rounding and the rest (Dekker 1971)."""
    product = x * y
    big_x, big_y = x * 134217729.0, y * 134217729.0  # 2**27 + 1 splits the 53 bits of a float64 in two
    high_x, high_y = big_x - (big_x - x), big_y - (big_y - y)
    low_x, low_y = x - high_x, y - high_y
    rest = low_x * low_y - (((product - high_x * high_y) - low_x * high_y) - high_x * low_y)
    return [*product.tolist(), *rest.tolist()]


def centred(left: Side, right: Side, number: int, scale: Scale) -> tuple[float, float]:
    """Returns mean and sum of squared distances from it, without cancellation, scaled.

    The corrected two-pass algorithm (Chan, Golub and LeVeque 1983).
    """
    factor = 2.0 ** -scale.of(number)
    count = sum(x.size for x, _ in finite_blocks(left, right))
    mean = float(Fraction(exact_sums(left, right, scale)[number]) / count)
    first = second = 0.0
    for pair in finite_blocks(left, right):
        away = pair[number] * factor - mean
        first += float(away.sum())
        second += float(np.multiply(away, away, out=away).sum())
    return mean, max(0.0, second - first * first / count)


def mean_relative(left: Side, right: Side, count: int) -> float:
    """Returns the mean of ``|x - y| / |y|`` over ``count`` numbers where even the sum is beyond float64."""
    total = 0.0
    for x, y in finite_blocks(left, right):
        above = np.abs(y) > np.finfo(np.float64).eps
        a, b = x[above] / 2, y[above] / 2
        total += float((np.abs(a - b) / np.abs(b) / count).sum())
    return total


def divergence(left: Side, right: Side) -> float:
    """Returns the divergence of sides that the kernels do not take: complex ones, and ranges beyond float64."""
    lows, highs = [math.inf, math.inf], [-math.inf, -math.inf]
    for pair in finite_blocks(left, right):
        for number, values in enumerate(pair):
            lows[number] = min(lows[number], float(values.min()))
            highs[number] = max(highs[number], float(values.max()))
    total_p = total_q = cross = 0.0
    for x, y in finite_blocks(left, right):
        p, q = _share(x, lows[0], highs[0]), _share(y, lows[1], highs[1])
        total_p += float(p.sum())
        total_q += float(q.sum())
        cross += float((p * np.log(p / q)).sum())
    return divergence_of(total_p, total_q, cross)


def divergence_of(total_p: float, total_q: float, cross: float) -> float:
    """Returns the divergence behind its sums; what rounding leaves of a zero is zero."""
    result = cross / total_p + math.log(total_q / total_p)
    return 0.0 if result < float(np.finfo(np.float64).eps) else result


def _share(values: Floats, low: float, high: float) -> Floats:
    span = high - low
    if math.isinf(span):
        values, low, span = values / 2, low / 2, high / 2 - low / 2
    if not span:  # one value is a uniform distribution, whatever the value
        return np.ones_like(values)
    return np.maximum((values - low) / span, SMALLEST_SHARE)

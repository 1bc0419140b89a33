"""The sums behind every figure, taken in one pass over two arrays, over the elements that are finite on both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import Block, pair_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

ZERO = float(np.finfo(np.float64).eps)
"""Reference values up to this one count as zero in the relative errors, as the users' columns have always had it."""

SMALLEST_SHARE = 1.1920929e-07
"""Floor of the two distributions of the Kullback-Leibler divergence (float32 epsilon)."""

_SAFE = (1e-140, 1e140)


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


PLAIN = Scale()


@dataclass
class Moments:
    """Mean and spread of one side, merged block by block (no cancellation however far the mean is from zero)."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Values) -> None:
        """Merges a block of finite values."""
        n = values.size
        mean = float(values.sum()) / n
        centred = values - mean
        spread = float(np.multiply(centred, centred, out=centred).sum())
        total = self.count + n
        shift = mean - self.mean
        self.spread += spread + shift * shift * (self.count * n / total)
        self.mean += shift * (n / total)
        self.count = total
        self.low = min(self.low, float(np.min(values)))
        self.high = max(self.high, float(np.max(values)))

    @property
    def deviation(self) -> float:
        """Population standard deviation."""
        return math.sqrt(self.spread / self.count) if self.count else math.nan

    @property
    def magnitude(self) -> float:
        """Largest absolute value, 0 without values."""
        return max(abs(self.low), abs(self.high)) if self.count else 0.0


@dataclass
class Sums:
    """Counts by element, sums over the numbers (both parts of a complex one) that are finite on both sides."""

    scale: Scale = PLAIN
    finite: int = 0
    differing: int = 0
    nan_left: int = 0
    nan_right: int = 0
    inf_left: int = 0
    inf_right: int = 0
    mismatches: int = 0
    first_mismatch: int | None = None
    dot: float = 0.0
    left_square: float = 0.0
    right_square: float = 0.0
    distance_square: float = 0.0
    distance: float = 0.0
    largest: float = 0.0
    largest_exact: int = 0
    largest_at: int | None = None
    relative: float = 0.0
    relative_largest: float = 0.0
    relative_count: int = 0
    left: Moments = field(default_factory=Moments)
    right: Moments = field(default_factory=Moments)

    def add(self, block: Block) -> None:
        """Adds one block."""
        left_square, right_square = _product(block.x, block.x), _product(block.y, block.y)
        at: NDArray[np.intp] | None = None
        if not (math.isfinite(left_square) and math.isfinite(right_square)):
            block, at = self._without_non_finite(block)
            if not block.x.size:
                return
        differing = self._count_differing(block)
        x, y = _scaled(block.x, self.scale.left), _scaled(block.y, self.scale.right)
        if self.scale != PLAIN or at is not None:
            left_square, right_square = _product(x, x), _product(y, y)
        self.finite += x.size
        self.left_square += left_square
        self.right_square += right_square
        self.dot += _product(x, y)
        self.left.add(x)
        self.right.add(y)
        if differing:
            self._add_distances(block, at)
        else:
            self.relative_count += int(np.count_nonzero(np.abs(block.y) > ZERO))

    def _count_differing(self, block: Block) -> int:
        different = block.distance != 0 if block.distance is not None else block.x != block.y
        number = int(np.count_nonzero(_by_element(different, block.width)))
        self.differing += number
        return number

    def _without_non_finite(self, block: Block) -> tuple[Block, NDArray[np.intp]]:
        """Counts what is not finite and returns the rest with the elements' positions in the block."""
        x, y, width = block.x, block.y, block.width
        nan_x, nan_y = np.isnan(x), np.isnan(y)
        self.nan_left += int(np.count_nonzero(_by_element(nan_x, width)))
        self.nan_right += int(np.count_nonzero(_by_element(nan_y, width)))
        self.inf_left += int(np.count_nonzero(_by_element(np.isinf(x), width) & ~_by_element(nan_x, width)))
        self.inf_right += int(np.count_nonzero(_by_element(np.isinf(y), width) & ~_by_element(nan_y, width)))
        bad = _by_element(~(np.isfinite(x) & np.isfinite(y)), width)
        differs = _by_element(~((x == y) | (nan_x & nan_y)), width) & bad
        found = int(np.count_nonzero(differs))
        self.mismatches += found
        self.differing += found
        if found and self.first_mismatch is None:
            self.first_mismatch = block.start + int(np.argmax(differs))
        keep = np.repeat(~bad, width)
        return Block(block.start, x[keep], y[keep], width), np.flatnonzero(~bad)

    def _add_distances(self, block: Block, at: NDArray[np.intp] | None) -> None:
        half, scale = self.scale.half, self.scale
        y = _scaled(block.y, half)
        if block.distance is not None:
            raw = block.distance
        else:
            raw = np.abs(np.subtract(_scaled(block.x, half), y))
        self._add_relative(raw, np.abs(y), np.abs(block.y) > ZERO if half else None)
        gap = _scaled(raw, scale.distance - half)
        self.distance += float(gap.sum())
        self.distance_square += _product(gap, gap)
        peak = int(np.argmax(gap))
        self.largest_exact = max(self.largest_exact, block.largest)
        if gap[peak] > self.largest:
            self.largest = float(gap[peak])
            element = peak // block.width
            self.largest_at = block.start + (element if at is None else int(at[element]))

    def _add_relative(self, distance: Values, reference: Values, above: NDArray[np.bool_] | None) -> None:
        counted = reference > ZERO if above is None else above
        number = int(np.count_nonzero(counted))
        self.relative_count += number
        if not number or not distance.any():
            return
        ratio = np.divide(distance, reference, out=np.zeros_like(distance), where=counted)
        self.relative += float(ratio.sum())
        self.relative_largest = max(self.relative_largest, float(ratio.max()))


def accumulate(left: NDArray[np.generic], right: NDArray[np.generic]) -> Sums:
    """Returns the sums of two arrays with equally many elements.

    They are taken again with a scale where the first pass shows that squares leave the range of float64.
    """
    sums = _pass(left, right, PLAIN)
    scale = _needed_scale(sums)
    if scale == PLAIN:
        return sums
    again = _pass(left, right, scale)
    # The range is wanted in the values' own unit.
    for fresh, plain in ((again.left, sums.left), (again.right, sums.right)):
        fresh.low, fresh.high = plain.low, plain.high
    return again


def divergence(left: NDArray[np.generic], right: NDArray[np.generic], sums: Sums) -> float:
    """Returns the Kullback-Leibler divergence of both sides, each scaled to 0..1 by its own range: a second pass.

    With p and q not yet divided by their sums P and Q it is sum(p ln(p/q)) / P + ln(Q/P), which needs one pass.
    """
    total_p = total_q = cross = 0.0
    with np.errstate(all="ignore"):
        for block in pair_blocks(left, right):
            keep = np.repeat(_by_element(np.isfinite(block.x) & np.isfinite(block.y), block.width), block.width)
            if not keep.any():
                continue
            p = _share(block.x[keep], sums.left)
            q = _share(block.y[keep], sums.right)
            total_p += float(p.sum())
            total_q += float(q.sum())
            cross += float((p * np.log(p / q)).sum())
    result = cross / total_p + math.log(total_q / total_p)
    return 0.0 if result < ZERO else result


def _pass(left: NDArray[np.generic], right: NDArray[np.generic], scale: Scale) -> Sums:
    sums = Sums(scale)
    with np.errstate(all="ignore"):
        for block in pair_blocks(left, right):
            sums.add(block)
    return sums


def _needed_scale(sums: Sums) -> Scale:
    low, high = _SAFE
    squares = ((sums.left_square, sums.left.magnitude), (sums.right_square, sums.right.magnitude))
    safe = all(low <= square <= high or magnitude == 0 for square, magnitude in squares)
    if safe and (low <= sums.distance_square <= high or sums.largest == 0):
        return PLAIN
    left, right = _exponent(sums.left.magnitude), _exponent(sums.right.magnitude)
    half = int(max(left, right) >= 1023)
    distance = _exponent(sums.largest) if math.isfinite(sums.largest) else max(left, right)
    return Scale(left, right, half, distance)


def _exponent(magnitude: float) -> int:
    return math.frexp(magnitude)[1] if magnitude else 0


def _share(values: Values, moments: Moments) -> Values:
    span = moments.high - moments.low
    if math.isinf(span):
        values, low, span = values / 2, moments.low / 2, moments.high / 2 - moments.low / 2
        return np.maximum((values - low) / span, SMALLEST_SHARE)
    return np.maximum((values - moments.low) / span if span else values, SMALLEST_SHARE)


def _scaled(values: Values, exponent: int) -> Values:
    return np.ldexp(values, -exponent) if exponent else values


def _product(x: Values, y: Values) -> float:
    """Sum of products: pairwise summation, the same to the last bit when the sides are swapped."""
    return float(np.multiply(x, y).sum())


def _by_element(mask: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    return mask if width == 1 else mask.reshape(-1, width).any(axis=1)

"""The one pass of the second look: everything that a sum, a maximum or a count over all elements can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import absolute_difference
from compare.difference.details import HISTOGRAM, NON_FINITE_KINDS
from compare.difference.ulp import Ladder, epsilon, ladder, narrower, usual_rtol
from compare.onepass import difference as kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.difference.pair import Array, Pair

    Values = NDArray[np.float64]

_POWERS = np.array([10**exponent for exponent in range(20)], dtype=np.uint64)
_UNIT_BIN = HISTOGRAM.index("1e0")


def _counts() -> NDArray[np.int64]:
    counts = np.zeros(kernels.COUNTS, np.int64)
    counts[kernels.FIRST] = -1
    return counts


@dataclass
class Side:
    """Least and greatest value of a side (NaN left out) and how many of its elements are NaN."""

    low: float = math.inf
    high: float = -math.inf
    nan: int = 0

    @property
    def constant(self) -> bool:
        """Whether all elements have one value."""
        return self.low == self.high and not self.nan


@dataclass
class Measured:
    """What one pass found.

    Attributes:
        epsilon: Relative step of the narrower element type, 0 of integers.
        counts: See :func:`compare.onepass.difference.pair_scan`.
        left, right: Range of each side; of a complex one, over its parts.
        moments: Sums about ``centre``: u, v, uu, vv, uv, squared distance; over numbers finite on both sides.
        numbers: How many those are (two for a complex element).
        multiset: Sums of hashes; equal where both sides hold the same elements in whatever order.
    """

    epsilon: float
    ladder: Ladder | None
    usual: float
    counts: NDArray[np.int64] = field(default_factory=_counts)
    needs: Values = field(default_factory=lambda: np.zeros(3))
    zero_reference: NDArray[np.int64] = field(default_factory=lambda: np.full(1, -1, np.int64))
    bins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(kernels.BINS, np.int64))
    steps: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(3, np.uint64))
    left: Side = field(default_factory=Side)
    right: Side = field(default_factory=Side)
    centre: tuple[float, float] | None = None
    moments: Values = field(default_factory=lambda: np.zeros(6))
    numbers: int = 0
    multiset: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def differing(self) -> int:
        """Elements that differ (R5)."""
        return int(self.counts[kernels.DIFFERING])

    @property
    def first(self) -> int:
        """Flat index of the first of them, -1 without."""
        return int(self.counts[kernels.FIRST])

    @property
    def mismatches(self) -> int:
        """Elements that differ and are not finite on a side."""
        return int(self.counts[kernels.KINDS :].sum())

    @property
    def not_finite(self) -> int:
        """Elements that are not finite on a side."""
        return int(self.counts[kernels.NOT_FINITE])

    @property
    def max_ulp(self) -> int | None:
        """Greatest distance in steps of the element type, None of integers."""
        return None if self.ladder is None else int(self.steps[0])


def measure(pair: Pair) -> Measured:
    """Takes every sum of a numeric pair in one pass."""
    dtype = narrower(pair.left.dtype, pair.right.dtype)
    found = Measured(epsilon(dtype), ladder(pair.left.dtype, pair.right.dtype), usual_rtol(dtype))
    for start, one, two in pair.blocks():
        _add(found, pair, start, one, two)
    return found


def _add(found: Measured, pair: Pair, start: int, one: Array, two: Array) -> None:
    x, y = pair.plain(one), pair.plain(two)
    bins = found.bins
    if pair.integers:
        error, magnitude, odd = _integer_scan(found, start, one, two), np.abs(y), 0
        bins = np.zeros_like(bins)  # taken already, from the integers themselves
    elif pair.complex:
        error, magnitude, odd = _complex_scan(found, start, x, y)
    else:
        error, magnitude = np.empty(x.size), np.empty(x.size)
        odd = kernels.pair_scan(x, y, start, error, magnitude, found.counts)
    kernels.error_scan(
        error, error.view(np.int64), magnitude, start, found.usual, found.needs, found.zero_reference, bins
    )
    keep = None if not odd else np.flatnonzero(~np.isnan(error))
    _range(found.left, x, odd)
    _range(found.right, y, odd)
    _steps(found, pair, start, one if keep is None else one[keep], two if keep is None else two[keep], keep)
    _moments(found, *((x, y) if keep is None else _kept(x, y, keep, pair.complex)))
    for side, (block, numbers) in enumerate(((one, x), (two, y))):
        found.multiset[side] = (found.multiset[side] + pair.multiset(block, numbers)) % 2**64


def _range(side: Side, values: Values, odd: int) -> None:
    nan = 0
    if odd:
        nan = int(np.count_nonzero(np.isnan(values)))
        values = values[~np.isnan(values)] if nan else values
    side.nan += nan
    if values.size:
        side.low, side.high = min(side.low, float(values.min())), max(side.high, float(values.max()))


def _kept(x: Values, y: Values, keep: NDArray[np.intp], parts: bool) -> tuple[Values, Values]:
    if parts:
        return x.reshape(-1, 2)[keep].reshape(-1), y.reshape(-1, 2)[keep].reshape(-1)
    return x[keep], y[keep]


def _steps(found: Measured, pair: Pair, start: int, one: Array, two: Array, keep: NDArray[np.intp] | None) -> None:
    if found.ladder is None or not one.size:
        return
    before = int(found.steps[0])
    if not found.numbers:  # while no distance is greater than none, the first element that has one stands for it
        found.steps[1] = np.uint64(start if keep is None else start + int(keep[0]))
    if pair.complex:  # a side without imaginary parts gets zeros
        one, two = (side if side.dtype.kind == "c" else side.astype(np.complex128) for side in (one, two))
    p, q = found.ladder.positions(one), found.ladder.positions(two)
    if pair.complex:
        _complex_steps(found, start, p, q, found.ladder.low)
    else:
        kernels.ulp_scan(p, q, found.ladder.low, start, found.steps)
    if keep is not None and int(found.steps[0]) > before:
        found.steps[1] = np.uint64(start + int(keep[int(found.steps[1]) - start]))


def _complex_steps(found: Measured, start: int, p: Array, q: Array, low: int) -> None:
    """Both parts of each element in turn; within one step are elements of which both parts are."""
    one, two = (np.where(side < 0, low - side, side) for side in (p.astype(np.int64), q.astype(np.int64)))
    parts = np.maximum(one, two).view(np.uint64) - np.minimum(one, two).view(np.uint64)
    distance = np.maximum(parts[0::2], parts[1::2])
    peak = int(distance.argmax())
    if distance[peak] > found.steps[0]:
        found.steps[0], found.steps[1] = distance[peak], start + peak
    found.steps[2] += np.uint64(np.count_nonzero(distance <= 1))


def _moments(found: Measured, x: Values, y: Values) -> None:
    if not x.size:
        return
    if found.centre is None:
        found.centre = (float(x[0]), float(y[0]))
    found.numbers += x.size
    kernels.moment_scan(x, y, *found.centre, 1.0, found.moments)


def _complex_scan(found: Measured, start: int, x: Values, y: Values) -> tuple[Values, Values, int]:
    """What :func:`kernels.pair_scan` does, by element: NaN if a part is, else infinite if a part is."""
    left, right = _classes(x), _classes(y)
    odd = (left > 0) | (right > 0)
    counts = found.counts
    counts[kernels.NAN_LEFT] += np.count_nonzero(left == 2)
    counts[kernels.NAN_RIGHT] += np.count_nonzero(right == 2)
    counts[kernels.NOT_FINITE] += np.count_nonzero(odd)
    differing = np.flatnonzero(_either((x != y) & ~(np.isnan(x) & np.isnan(y))))
    counts[kernels.DIFFERING] += differing.size
    if differing.size and counts[kernels.FIRST] < 0:
        counts[kernels.FIRST] = start + differing[0]
    for i in differing[odd[differing]].tolist():
        kind = kernels.kind_of(int(left[i]), int(right[i]), True)
        counts[kernels.KINDS + (len(NON_FINITE_KINDS) - 1 if kind < 0 else kind)] += 1
    counts[kernels.FLIPS] += np.count_nonzero(_either(((x < 0) & (y > 0)) | ((x > 0) & (y < 0))) & ~odd)
    error = np.where(odd, np.nan, np.abs((x - y).view(np.complex128)))
    return error, np.where(odd, 0.0, np.abs(y.view(np.complex128))), int(np.count_nonzero(odd))


def _either(parts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether it holds for a part of each complex number."""
    return parts[0::2] | parts[1::2]


def _classes(parts: Values) -> NDArray[np.int64]:
    """0 for a complex number that is finite, 1 for an infinite one, 2 where a part is NaN."""
    if np.isfinite(parts).all():
        return np.zeros(parts.size // 2, np.int64)
    return np.where(_either(np.isnan(parts)), 2, np.where(_either(np.isinf(parts)), 1, 0)).astype(np.int64)


def _integer_scan(found: Measured, start: int, one: Array, two: Array) -> Values:
    """Counts and bins of integers, exact; returns the differences rounded to float64."""
    distance: Array = absolute_difference(one, two)
    different = np.flatnonzero(distance != 0)
    found.bins[0] += distance.size - different.size
    if different.size:
        decades = np.searchsorted(_POWERS, distance[different], side="right")
        found.bins += np.bincount(decades + (_UNIT_BIN - 1), minlength=found.bins.size)
        found.counts[kernels.DIFFERING] += different.size
        if found.counts[kernels.FIRST] < 0:
            found.counts[kernels.FIRST] = start + different[0]
        found.counts[kernels.FLIPS] += np.count_nonzero(((one < 0) & (two > 0)) | ((one > 0) & (two < 0)))
    return distance.astype(np.float64)

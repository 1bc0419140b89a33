"""Compiled loops of the second look. All of them take contiguous arrays of one block.

None of them may reorder what it does but :func:`moment_scan`, which is only ever given finite values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compare.difference.details import HIGHEST_DECADE, HISTOGRAM, LOWEST_DECADE
from compare.onepass.native import exact_kernel, kernel

DIFFERING, FLIPS, FIRST, NOT_FINITE, NAN_LEFT, NAN_RIGHT, KINDS = range(7)
COUNTS = KINDS + 8
"""Slots of the counts of :func:`pair_scan`; from KINDS on one for each kind of non-finite mismatch."""

BINS = len(HISTOGRAM) + 2
"""Two more than the histogram has: what is NaN, and what is infinite."""

_BOUNDS = np.array(
    [np.nan, np.nan, *(float(f"1e{e}") for e in range(LOWEST_DECADE, HIGHEST_DECADE + 1)), np.nan, -np.inf]
)
_BINADES = (np.arange(2048, dtype=np.uint64) << np.uint64(52)).view(np.float64)
# The bin of each binade's least value; a binade holds one power of ten at most.
_FIRST_BIN = np.searchsorted(_BOUNDS[2:-2], _BINADES, side="right") + 1
_FIRST_BIN[2047] = BINS - 2

_LARGEST = 1.7976931348623157e308
_BELOW, _ABOVE = 1.0 - 2.0**-50, 1.0 + 2.0**-50
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@exact_kernel
def _class_of(value: Any) -> Any:
    """0 finite, 1 infinite, 2 NaN."""
    if np.isnan(value):
        return 2
    return 1 if abs(value) > _LARGEST else 0


@exact_kernel
def kind_of(one: Any, two: Any, same: Any) -> Any:
    """Which kind of mismatch two classes are, -1 for none; ``same`` says whether two infinities are the same."""
    if one == 2 and two == 2:
        return -1
    if one == 2:
        return 0 if two == 0 else 4
    if two == 2:
        return 1 if one == 0 else 5
    if one == 1 and two == 1:
        return -1 if same else 6
    return 2 if one == 1 else 3


@exact_kernel
def pair_scan(x: Any, y: Any, start: Any, error: Any, magnitude: Any, counts: Any) -> Any:
    """Counts what differs and how; writes |x - y| and |y|, NaN and 0 where a side is not finite.

    Args:
        x: float64 or float32.
        y: The same.
        start: Flat index of the block.
        error: float64, filled.
        magnitude: float64, filled.
        counts: int64, :data:`COUNTS` of them, added to; FIRST is -1 until an element differs.

    Returns:
        Elements of this block that are not finite.
    """
    differing = flips = odd = 0
    for i in range(x.size):
        a: Any = np.float64(x[i])
        b: Any = np.float64(y[i])
        error[i] = abs(a - b)
        magnitude[i] = abs(b)
        odd += not ((abs(a) <= _LARGEST) & (abs(b) <= _LARGEST))
        differing += a != b
        flips += (a < 0.0) & (b > 0.0) | (a > 0.0) & (b < 0.0)
    if odd:
        differing, flips = _careful_scan(x, y, error, magnitude, counts)
        counts[NOT_FINITE] += odd
    if differing and counts[FIRST] < 0:
        for i in range(x.size):
            if x[i] != y[i] and not (np.isnan(x[i]) and np.isnan(y[i])):
                counts[FIRST] = start + i
                break
    counts[DIFFERING] += differing
    counts[FLIPS] += flips
    return odd


@exact_kernel
def _careful_scan(x: Any, y: Any, error: Any, magnitude: Any, counts: Any) -> Any:
    differing = flips = 0
    for i in range(x.size):
        a: Any = np.float64(x[i])
        b: Any = np.float64(y[i])
        if abs(a) <= _LARGEST and abs(b) <= _LARGEST:
            differing += a != b
            flips += (a < 0.0) & (b > 0.0) | (a > 0.0) & (b < 0.0)
            continue
        error[i] = np.nan
        magnitude[i] = 0.0
        counts[NAN_LEFT] += np.isnan(a)
        counts[NAN_RIGHT] += np.isnan(b)
        kind = kind_of(_class_of(a), _class_of(b), a == b)
        if kind >= 0:
            counts[KINDS + kind] += 1
            differing += 1
    return differing, flips


@exact_kernel
def _least_factor(error: Any, magnitude: Any) -> Any:
    """The smallest float64 r with r * magnitude >= error > 0, infinity if no finite one does."""
    guess = min(error / magnitude, _LARGEST)
    low, high = guess * _BELOW, min(guess * _ABOVE, _LARGEST)
    if low * magnitude >= error:
        low = 0.0
    if high * magnitude < error:
        high = _LARGEST
    if high * magnitude < error:
        return np.inf
    while True:
        middle = low + (high - low) * 0.5
        if middle <= low or middle >= high:
            return high
        if middle * magnitude >= error:
            high = middle
        else:
            low = middle


@exact_kernel
def _least_term(error: Any, allowed: Any) -> Any:
    """The smallest float64 a with a + allowed >= error > allowed, infinity if no finite one does."""
    guess = min(error - allowed, _LARGEST)
    low, high = guess * _BELOW, min(guess * _ABOVE, _LARGEST)
    if low + allowed >= error:
        low = 0.0
    if high + allowed < error:
        high = _LARGEST
    if high + allowed < error:
        return np.inf
    while True:
        middle = low + (high - low) * 0.5
        if middle <= low or middle >= high:
            return high
        if middle + allowed >= error:
            high = middle
        else:
            low = middle


@exact_kernel
def error_scan(error: Any, bits: Any, magnitude: Any, start: Any, usual: Any, needs: Any, zero: Any, bins: Any) -> Any:
    """Raises the needed tolerances where an element does not pass them, and sorts the errors into decades.

    Whether an element passes only depends on its own least tolerance, so the greatest of those is exact.

    Args:
        error: As :func:`pair_scan` wrote it.
        magnitude: The same.
        bits: ``error`` seen as int64.
        start: Flat index of the block.
        usual: The rtol beside which the third need counts.
        needs: float64: atol, rtol, atol beside the usual rtol.
        zero: int64: index of the first element that differs from a zero reference, -1 before.
        bins: int64, :data:`BINS` counts.
    """
    atol, rtol, beside = needs[0], needs[1], needs[2]
    above = 0
    for i in range(error.size):
        d = error[i]
        m = magnitude[i]
        above += (d > atol) | (rtol * m < d) | (usual * m + beside < d)
    if above:
        _raise_needs(error, magnitude, start, usual, needs, zero)
    for i in range(error.size):
        d = error[i]
        where = _FIRST_BIN[bits[i] >> 52]
        where += d >= _BOUNDS[where + 1]
        where -= d == 0.0
        bins[where] += 1


@exact_kernel
def _raise_needs(error: Any, magnitude: Any, start: Any, usual: Any, needs: Any, zero: Any) -> Any:
    atol, rtol, beside = needs[0], needs[1], needs[2]
    for i in range(error.size):
        d = error[i]
        m = magnitude[i]
        if d > atol:  # noqa: PLR1730  # max() would keep a NaN
            atol = d
        if rtol * m < d:
            if m > 0.0:
                rtol = _least_factor(d, m)
            elif zero[0] < 0:
                zero[0] = start + i
        if usual * m + beside < d:
            beside = _least_term(d, usual * m)
    needs[0], needs[1], needs[2] = atol, rtol, beside


@exact_kernel
def ulp_scan(left: Any, right: Any, low: Any, start: Any, found: Any) -> Any:
    """Counts steps between representable values.

    Args:
        left: Integers, sign and magnitude: p itself for the p-th value from zero up, ``low - p`` for one below.
        right: The same.
        low: Least integer of the type's width.
        start: Flat index of the block.
        found: uint64: greatest distance, its index, elements within one step.
    """
    largest = _ZERO
    within = 0
    for i in range(left.size):
        distance = _steps(left[i], right[i], low)
        largest = max(largest, distance)
        within += distance <= _ONE
    found[2] += np.uint64(within)
    if largest > found[0]:
        found[0] = largest
        for i in range(left.size):
            if _steps(left[i], right[i], low) == largest:
                found[1] = np.uint64(start + i)
                break


@exact_kernel
def _steps(left: Any, right: Any, low: Any) -> Any:
    one, two = np.int64(left), np.int64(right)
    p = one if one >= 0 else low - one
    q = two if two >= 0 else low - two
    return np.uint64(p) - np.uint64(q) if p > q else np.uint64(q) - np.uint64(p)


@kernel
def moment_scan(x: Any, y: Any, centre_x: Any, centre_y: Any, scale: Any, sums: Any) -> Any:
    """Adds first and second moments about a centre: u, v, uu, vv, uv and the squared distance; finite values only."""
    u = v = uu = vv = uv = dd = 0.0
    for i in range(x.size):
        p = np.float64(x[i]) * scale
        q = np.float64(y[i]) * scale
        a = p - centre_x
        b = q - centre_y
        d = p - q
        u += a
        v += b
        uu += a * a
        vv += b * b
        uv += a * b
        dd += d * d
    sums[0] += u
    sums[1] += v
    sums[2] += uu
    sums[3] += vv
    sums[4] += uv
    sums[5] += dd


@exact_kernel
def residual_scan(x: Any, y: Any, factor: Any, shift: Any, epsilon: Any, found: Any) -> Any:
    """How far x is from factor * y + shift, over the elements finite on both sides.

    Args:
        x: float64.
        y: float64.
        factor: Of the relation.
        shift: Of the relation.
        epsilon: Relative rounding that an element may have.
        found: float64: sum of squares, greatest residual, elements with a residual above a tenth of |x - y|, elements
            with one beyond rounding, the greatest residual of those above a fiftieth of |x - y|.
    """
    square, largest, far, beyond, apart = 0.0, found[1], 0, 0, found[4]
    for i in range(x.size):
        a = x[i]
        b = y[i]
        if not (abs(a) <= _LARGEST and abs(b) <= _LARGEST):
            continue
        term = factor * b
        rest = abs(a - (term + shift))
        square += rest * rest
        largest = max(largest, rest)
        rounding = epsilon * (abs(a) + abs(term) + abs(shift))
        far += rest > 0.1 * abs(a - b) + rounding
        beyond += not rest <= rounding
        if rest > 0.02 * abs(a - b) + rounding:
            apart = max(apart, rest)
    found[0] += square
    found[1] = largest
    found[2] += far
    found[3] += beyond
    found[4] = apart

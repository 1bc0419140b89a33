"""Sums over two blocks of float32, which is also how half floats, eight-bit floats and short integers are swept.

Differences, squares and quotients are taken in float64. Maxima are found in two steps: a cheap one in float32 that can
only tell which blocks may hold a greater value than the greatest so far, and an exact one over those few.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass.native import bits32, bits64, exact_kernel, float_of, kernel
from compare.onepass.state import (
    ABOVE,
    AT_ZERO,
    DD,
    DIFFERING,
    FINITE,
    FIRST_MISMATCH,
    INF_LEFT,
    INF_RIGHT,
    MISMATCHES,
    NAN_LEFT,
    NAN_RIGHT,
    REL,
    REL_TOP,
    SD,
    SX,
    SY,
    TOP,
    TOP_AT,
    XX,
    XY,
    YY,
)

ZERO: Final = float(np.finfo(np.float64).eps)
_ZERO32: Final = np.float32(ZERO)
_NOT_FINITE32: Final = np.int32(0x7F800000)
_SLACK: Final = 1 + 2.0**-21
_TINY: Final = 2.0**-148
"""How far a quotient of float32 arithmetic may be below the true one: relative, and where it is subnormal."""


@kernel
def _screen(x, y, n):
    """Counts numbers that differ and references above the threshold; bits of the greatest |x-y| and |x-y|/|y|, about.

    A difference that is not finite means that a number is not, or that float32 cannot hold the difference.
    """
    differing = np.int32(0)
    above = np.int32(0)
    at_zero = np.int32(0)
    top = np.int32(0)
    ratio = np.int32(0)
    for i in range(n):
        b = y[i]
        m = abs(b)
        e = abs(x[i] - b)
        counted = m > _ZERO32
        other = e != np.float32(0)
        differing += np.int32(other)
        above += np.int32(counted)
        at_zero += np.int32(other and not counted)
        r = bits32(e / m)
        ratio = max(ratio, r if counted else np.int32(0))
        top = max(top, bits32(e))
    return differing, above, at_zero, top, ratio


@kernel
def _screen_plainly(x, y, n):
    """Counts numbers that differ; bits of the greatest difference, about."""
    differing = np.int32(0)
    top = np.int32(0)
    for i in range(n):
        e = abs(x[i] - y[i])
        differing += np.int32(e != np.float32(0))
        top = max(top, bits32(e))
    return differing, top


@kernel
def _sums_plainly(x, y, n, sums):
    """The sums without the relative errors, which take as long as all others together."""
    sx = 0.0
    sy = 0.0
    xx = 0.0
    yy = 0.0
    xy = 0.0
    dd = 0.0
    sd = 0.0
    for i in range(n):
        a = np.float64(x[i])
        b = np.float64(y[i])
        d = a - b
        sx += a
        sy += b
        xx += a * a
        yy += b * b
        xy += a * b
        dd += d * d
        sd += abs(d)
    sums[SX] += sx
    sums[SY] += sy
    sums[XX] += xx
    sums[YY] += yy
    sums[XY] += xy
    sums[DD] += dd
    sums[SD] += sd


@kernel
def _sums(x, y, n, sums):
    """All sums. Four elements share one division: n0/m0 + n1/m1 = (n0 m1 + n1 m0) / (m0 m1), far inside float64."""
    q = n // 4
    sx = 0.0
    sy = 0.0
    xx = 0.0
    yy = 0.0
    xy = 0.0
    dd = 0.0
    sd = 0.0
    rel = 0.0
    for i in range(q):
        a0 = np.float64(x[i])
        a1 = np.float64(x[i + q])
        a2 = np.float64(x[i + 2 * q])
        a3 = np.float64(x[i + 3 * q])
        b0 = np.float64(y[i])
        b1 = np.float64(y[i + q])
        b2 = np.float64(y[i + 2 * q])
        b3 = np.float64(y[i + 3 * q])
        d0 = a0 - b0
        d1 = a1 - b1
        d2 = a2 - b2
        d3 = a3 - b3
        e0 = abs(d0)
        e1 = abs(d1)
        e2 = abs(d2)
        e3 = abs(d3)
        sx += (a0 + a1) + (a2 + a3)
        sy += (b0 + b1) + (b2 + b3)
        xx += (a0 * a0 + a1 * a1) + (a2 * a2 + a3 * a3)
        yy += (b0 * b0 + b1 * b1) + (b2 * b2 + b3 * b3)
        xy += (a0 * b0 + a1 * b1) + (a2 * b2 + a3 * b3)
        dd += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
        sd += (e0 + e1) + (e2 + e3)
        m0 = abs(b0)
        m1 = abs(b1)
        m2 = abs(b2)
        m3 = abs(b3)
        c0 = m0 > ZERO
        c1 = m1 > ZERO
        c2 = m2 > ZERO
        c3 = m3 > ZERO
        m0 = m0 if c0 else 1.0
        e0 = e0 if c0 else 0.0
        m1 = m1 if c1 else 1.0
        e1 = e1 if c1 else 0.0
        m2 = m2 if c2 else 1.0
        e2 = e2 if c2 else 0.0
        m3 = m3 if c3 else 1.0
        e3 = e3 if c3 else 0.0
        p = m0 * m1
        r = m2 * m3
        rel += ((e0 * m1 + e1 * m0) * r + (e2 * m3 + e3 * m2) * p) / (p * r)
    for i in range(4 * q, n):
        a = np.float64(x[i])
        b = np.float64(y[i])
        d = a - b
        e = abs(d)
        m = abs(b)
        sx += a
        sy += b
        xx += a * a
        yy += b * b
        xy += a * b
        dd += d * d
        sd += e
        rel += e / m if m > ZERO else 0.0
    sums[SX] += sx
    sums[SY] += sy
    sums[XX] += xx
    sums[YY] += yy
    sums[XY] += xy
    sums[DD] += dd
    sums[SD] += sd
    sums[REL] += rel


@kernel
def _own_sums(x, n):
    """Sum and sum of squares."""
    total = 0.0
    square = 0.0
    for i in range(n):
        a = np.float64(x[i])
        total += a
        square += a * a
    return total, square


@kernel
def _peak(x, y, n):
    """Bits of the greatest |x - y|."""
    top = np.int64(0)
    for i in range(n):
        top = max(top, bits64(abs(np.float64(x[i]) - np.float64(y[i]))))
    return top


@kernel
def _ratio_peak(x, y, n):
    """Bits of the greatest |x - y| / |y|."""
    top = np.int64(0)
    for i in range(n):
        b = np.float64(y[i])
        m = abs(b)
        r = bits64(abs(np.float64(x[i]) - b) / m)
        top = max(top, r if m > ZERO else np.int64(0))
    return top


@exact_kernel
def _place(x, y, n, value):
    """First position with this difference."""
    for i in range(n):
        if abs(np.float64(x[i]) - np.float64(y[i])) == value:
            return i
    return 0


@exact_kernel
def _sift(x, y, n, base, kept_x, kept_y, places, counts):
    """Copies the pairs that are finite on both sides, counts the rest; returns how many were kept."""
    bits_x = x.view(np.int32)
    bits_y = y.view(np.int32)
    kept = 0
    for i in range(n):
        finite_x = (bits_x[i] & _NOT_FINITE32) != _NOT_FINITE32
        finite_y = (bits_y[i] & _NOT_FINITE32) != _NOT_FINITE32
        a = x[i]
        b = y[i]
        if finite_x and finite_y:
            kept_x[kept] = a
            kept_y[kept] = b
            places[kept] = i
            kept += 1
            continue
        nan_x = a != a
        nan_y = b != b
        counts[NAN_LEFT] += nan_x
        counts[NAN_RIGHT] += nan_y
        counts[INF_LEFT] += not (finite_x or nan_x)
        counts[INF_RIGHT] += not (finite_y or nan_y)
        if not (a == b or (nan_x and nan_y)):
            counts[MISMATCHES] += 1
            counts[DIFFERING] += 1
            if counts[FIRST_MISMATCH] < 0:
                counts[FIRST_MISMATCH] = base + i
    return kept


@kernel
def _screened(x, y, n, relative):
    if relative:
        return _screen(x, y, n)
    differing, top = _screen_plainly(x, y, n)
    return differing, np.int32(0), np.int32(0), top, np.int32(0)


@exact_kernel
def add_block(x, y, n, relative, base, kept_x, kept_y, places, sums, counts):
    """Adds ``n`` pairs of float32 numbers, the first of which is element ``base`` of the tensors.

    Without ``relative`` the relative errors are left out. ``kept_x``, ``kept_y`` and ``places`` (int32) are room for
    ``n`` elements.
    """
    differing, above, at_zero, top, ratio = _screened(x, y, n, relative)
    sifted = False
    if top >= _NOT_FINITE32:
        n = _sift(x, y, n, base, kept_x, kept_y, places, counts)
        sifted = True
        x = kept_x
        y = kept_y
        differing, above, at_zero, top, ratio = _screened(x, y, n, relative)
    counts[FINITE] += n
    counts[DIFFERING] += differing
    counts[ABOVE] += above
    counts[AT_ZERO] += at_zero
    if differing == 0:
        total, square = _own_sums(x, n)
        sums[SX] += total
        sums[SY] += total
        sums[XX] += square
        sums[YY] += square
        sums[XY] += square
        return
    if relative:
        _sums(x, y, n, sums)
    else:
        _sums_plainly(x, y, n, sums)
    # Rounding keeps order, so a block whose rounded maximum is smaller cannot hold the greatest difference.
    if float_of(top) >= np.float32(sums[TOP]):
        found = float_of(_peak(x, y, n))
        if found > sums[TOP]:
            sums[TOP] = found
            at = _place(x, y, n, found)
            counts[TOP_AT] = base + (places[at] if sifted else at)
    if relative and np.float64(float_of(ratio)) * _SLACK + _TINY >= sums[REL_TOP]:
        sums[REL_TOP] = max(sums[REL_TOP], float_of(_ratio_peak(x, y, n)))

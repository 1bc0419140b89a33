"""Sums over two blocks of float32, which is also how half floats, eight-bit floats and short integers are swept.

Differences, squares and quotients are taken in float64. Maxima are found in two steps: a cheap one in float32 that can
only tell which blocks may hold a greater value than the greatest so far, and an exact one over those few.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass.native import bits32, bits64, exact_kernel, float_of, fma, kernel, widest_registers
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
_HALF: Final = 0.5 - 2.0**-40
_ABOVE_ALL: Final = 1e300
"""More than any quotient of float32 numbers, the reference above the threshold."""

_SLACK: Final = 1 + 2.0**-21
_TINY: Final = 2.0**-148
"""How far a quotient of float32 arithmetic may be below the true one: relative, and where it is subnormal."""


@kernel
def _screen(x, y, n):
    """Counts numbers that differ; bits of the least |y|, of the greatest |x-y| and |x-y|/|y|, about.

    A difference that is not finite means that a number is not, or that float32 cannot hold the difference.
    """
    widest_registers()
    differing = np.int32(0)
    least = _NOT_FINITE32
    top = np.int32(0)
    ratio = np.int32(0)
    for i in range(n):
        m = abs(y[i])
        e = abs(x[i] - y[i])
        differing += np.int32(e != np.float32(0))
        least = min(least, bits32(m))
        ratio = max(ratio, bits32(e / m))
        top = max(top, bits32(e))
    return differing, least, top, ratio


@kernel
def _screen_with_zeros(x, y, n):
    """Counts references above the threshold, numbers that differ below it; bits of the greatest |x-y|/|y| above it."""
    widest_registers()
    above = np.int32(0)
    at_zero = np.int32(0)
    ratio = np.int32(0)
    for i in range(n):
        m = abs(y[i])
        e = abs(x[i] - y[i])
        counted = m > _ZERO32
        above += np.int32(counted)
        at_zero += np.int32(e != np.float32(0) and not counted)
        r = bits32(e / m)
        ratio = max(ratio, r if counted else np.int32(0))
    return above, at_zero, ratio


@kernel
def _screen_plainly(x, y, n):
    """Counts numbers that differ; bits of the greatest difference, about."""
    widest_registers()
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
    widest_registers()
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
def _sums(x, y, n, zeros, sums):
    """All sums. Four elements share one division: n0/m0 + n1/m1 = (n0 m1 + n1 m0) / (m0 m1), far inside float64.

    Without ``zeros`` every reference is known to be above the threshold.
    """
    widest_registers()
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
        xx += a0 * a0
        xx += a1 * a1
        xx += a2 * a2
        xx += a3 * a3
        yy += b0 * b0
        yy += b1 * b1
        yy += b2 * b2
        yy += b3 * b3
        xy += a0 * b0
        xy += a1 * b1
        xy += a2 * b2
        xy += a3 * b3
        dd += d0 * d0
        dd += d1 * d1
        dd += d2 * d2
        dd += d3 * d3
        sd += (e0 + e1) + (e2 + e3)
        m0 = abs(b0)
        m1 = abs(b1)
        m2 = abs(b2)
        m3 = abs(b3)
        if zeros:
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
    _sums_plainly(x[4 * q : n], y[4 * q : n], n - 4 * q, sums)
    for i in range(4 * q, n):
        m = abs(np.float64(y[i]))
        rel += abs(np.float64(x[i]) - np.float64(y[i])) / m if m > ZERO else 0.0
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
    widest_registers()
    total = 0.0
    square = 0.0
    for i in range(n):
        a = np.float64(x[i])
        total += a
        square += a * a
    return total, square


@kernel
def _any_above(x, y, n, top, ratio):
    """Whether some |x - y| is greater than ``top``, or some |x - y| / |y| greater than ``ratio`` after rounding.

    Numbers of few bits often have the same quotient, and multiplying is cheaper than dividing: a quotient rounds to a
    greater number than ``ratio`` only if it is greater by half its unit in the last place.
    """
    widest_registers()
    half_unit = (float_of(bits64(ratio) + 1) - ratio) * _HALF
    signs = np.int64(0)
    for i in range(n):
        b = np.float64(y[i])
        e = abs(np.float64(x[i]) - b)
        m = abs(b)
        short = bits64(fma(half_unit, m, fma(ratio, m, -e)))
        signs |= bits64(top - e) | (short if m > ZERO else np.int64(0))
    return signs < 0


@kernel
def _peaks(x, y, n):
    """Bits of the greatest |x - y| and |x - y| / |y|."""
    widest_registers()
    top = np.int64(0)
    ratio = np.int64(0)
    for i in range(n):
        b = np.float64(y[i])
        e = abs(np.float64(x[i]) - b)
        m = abs(b)
        r = bits64(e / m)
        top = max(top, bits64(e))
        ratio = max(ratio, r if m > ZERO else np.int64(0))
    return top, ratio


@exact_kernel
def _may_exceed(top, ratio, relative, sums):
    """Whether errors that float32 arithmetic found may be greater ones than those of ``sums``, given as their bits.

    Rounding keeps order, so numbers whose rounded difference is smaller do not hold the greatest.
    """
    return float_of(top) >= np.float32(sums[TOP]) or (
        relative and np.float64(float_of(ratio)) * _SLACK + _TINY >= sums[REL_TOP]
    )


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
    """Differing numbers, references above the threshold, differing ones below it, bits of the two greatest errors."""
    widest_registers()
    if not relative:
        differing, top = _screen_plainly(x, y, n)
        return differing, np.int32(0), np.int32(0), top, np.int32(0)
    differing, least, top, ratio = _screen(x, y, n)
    above = np.int32(n)
    at_zero = np.int32(0)
    if least <= bits32(_ZERO32):
        above, at_zero, ratio = _screen_with_zeros(x, y, n)
    return differing, above, at_zero, top, ratio


@exact_kernel
def add_block(x, y, n, relative, base, kept_x, kept_y, places, sums, counts):
    """Adds ``n`` pairs of float32 numbers, the first of which is element ``base`` of the tensors.

    Without ``relative`` the relative errors are left out. ``kept_x``, ``kept_y`` and ``places`` (int32) are room for
    ``n`` elements.
    """
    widest_registers()
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
        _sums(x, y, n, above < n, sums)
    else:
        _sums_plainly(x, y, n, sums)
    if _may_exceed(top, ratio, relative, sums) and _any_above(
        x, y, n, sums[TOP], sums[REL_TOP] if relative else _ABOVE_ALL
    ):
        exact_top, exact_ratio = _peaks(x, y, n)
        if float_of(exact_top) > sums[TOP]:
            sums[TOP] = float_of(exact_top)
            at = _place(x, y, n, sums[TOP])
            counts[TOP_AT] = base + (places[at] if sifted else at)
        if relative:
            sums[REL_TOP] = max(sums[REL_TOP], float_of(exact_ratio))

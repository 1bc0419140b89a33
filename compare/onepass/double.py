"""Sums over two blocks of float64, which is also how 32-bit integers and pairs of unlike types are swept."""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass.native import bits64, exact_kernel, float_of, kernel, widest_registers
from compare.onepass.single import ZERO
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

_NOT_FINITE64: Final = np.int64(0x7FF0000000000000)


@kernel
def _screen(x, y, n):
    """Counts numbers that differ and references above the threshold; bits of the greatest difference."""
    widest_registers()
    differing = 0
    above = 0
    at_zero = 0
    top = np.int64(0)
    for i in range(n):
        e = abs(x[i] - y[i])
        other = e != 0.0
        counted = abs(y[i]) > ZERO
        differing += np.int64(other)
        above += np.int64(counted)
        at_zero += np.int64(other and not counted)
        top = max(top, bits64(e))
    return differing, above, at_zero, top


@kernel
def _sums(x, y, n, sums):
    widest_registers()
    sx = 0.0
    sy = 0.0
    xx = 0.0
    yy = 0.0
    xy = 0.0
    dd = 0.0
    sd = 0.0
    rel = 0.0
    ratio = np.int64(0)
    for i in range(n):
        a = x[i]
        b = y[i]
        d = a - b
        e = abs(d)
        sx += a
        sy += b
        xx += a * a
        yy += b * b
        xy += a * b
        dd += d * d
        sd += e
        m = abs(b)
        counted = m > ZERO
        r = e / m
        r = r if counted else 0.0
        rel += r
        ratio = max(ratio, bits64(r))
    sums[SX] += sx
    sums[SY] += sy
    sums[XX] += xx
    sums[YY] += yy
    sums[XY] += xy
    sums[DD] += dd
    sums[SD] += sd
    sums[REL] += rel
    sums[REL_TOP] = max(sums[REL_TOP], float_of(ratio))


@kernel
def _own_sums(x, n):
    """Sum and sum of squares."""
    widest_registers()
    total = 0.0
    square = 0.0
    for i in range(n):
        total += x[i]
        square += x[i] * x[i]
    return total, square


@exact_kernel
def _place(x, y, n, value):
    """First position with this difference."""
    for i in range(n):
        if abs(x[i] - y[i]) == value:
            return i
    return 0


@exact_kernel
def sift(x, y, n, width, base, kept_x, kept_y, places, counts):
    """Copies the elements that are finite on both sides, counts the rest; returns how many numbers were kept.

    An element is ``width`` numbers: 2 for complex ones, else 1; ``n`` counts numbers, ``base`` elements.
    """
    bits_x = x.view(np.int64)
    bits_y = y.view(np.int64)
    kept = 0
    for i in range(0, n, width):
        finite_x = True
        finite_y = True
        nan_x = False
        nan_y = False
        same = True
        for j in range(i, i + width):
            finite_x &= (bits_x[j] & _NOT_FINITE64) != _NOT_FINITE64
            finite_y &= (bits_y[j] & _NOT_FINITE64) != _NOT_FINITE64
            nan_x |= x[j] != x[j]
            nan_y |= y[j] != y[j]
            same &= x[j] == y[j] or (x[j] != x[j] and y[j] != y[j])
        if finite_x and finite_y:
            for j in range(i, i + width):
                kept_x[kept] = x[j]
                kept_y[kept] = y[j]
                places[kept] = i // width
                kept += 1
            continue
        counts[NAN_LEFT] += nan_x
        counts[NAN_RIGHT] += nan_y
        counts[INF_LEFT] += not (finite_x or nan_x)
        counts[INF_RIGHT] += not (finite_y or nan_y)
        if not same:
            counts[MISMATCHES] += 1
            counts[DIFFERING] += 1
            if counts[FIRST_MISMATCH] < 0:
                counts[FIRST_MISMATCH] = base + i // width
    return kept


@kernel
def _top(x, n):
    """Bits of the greatest absolute value."""
    widest_registers()
    top = np.int64(0)
    for i in range(n):
        top = max(top, bits64(abs(x[i])))
    return top


@exact_kernel
def finite_on_both(x, y, n, kept_x, kept_y, places, unused):
    """Returns both sides and their length without the numbers that are not finite on one of them.

    Args:
        x, y, n, kept_x, kept_y, places: See :func:`sift`.
        unused: Counts as of :mod:`compare.onepass.state` that nobody reads.
    """
    if max(_top(x, n), _top(y, n)) >= _NOT_FINITE64:
        n = sift(x, y, n, 1, 0, kept_x, kept_y, places, unused)
        x = kept_x
        y = kept_y
    return x, y, n


@exact_kernel
def _differing_elements(x, y, n, width):
    """Number of elements any number of which differs."""
    found = 0
    for i in range(0, n, width):
        different = False
        for j in range(i, i + width):
            different |= x[j] != y[j]
        found += different
    return found


@exact_kernel
def add_block(x, y, n, width, base, kept_x, kept_y, places, sums, counts):
    """Adds ``n`` pairs of float64 numbers; see :func:`compare.onepass.single.add_block` and :func:`sift`."""
    widest_registers()
    differing, above, at_zero, top = _screen(x, y, n)
    sifted = False
    if top >= _NOT_FINITE64:
        n = sift(x, y, n, width, base, kept_x, kept_y, places, counts)
        sifted = True
        x = kept_x
        y = kept_y
        differing, above, at_zero, top = _screen(x, y, n)
    if width > 1 and differing:
        differing = _differing_elements(x, y, n, width)
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
    _sums(x, y, n, sums)
    found = float_of(top)
    if found > sums[TOP]:
        sums[TOP] = found
        at = _place(x, y, n, found)
        counts[TOP_AT] = base + (places[at] if sifted else at // width)


@exact_kernel
def add_scaled(x, y, n, width, base, scale, kept_x, kept_y, places, sums, counts):
    """Adds a block whose squares, or differences, leave the range of float64 unless powers of two are taken out.

    Args:
        x, y, n, width, base, kept_x, kept_y, places, sums, counts: See :func:`add_block`; non-finite numbers are
            dropped without being counted.
        scale: Factors for the left numbers, the right ones, both before they are subtracted, and for the difference.
    """
    unused = np.zeros(counts.size, np.int64)
    n = sift(x, y, n, width, base, kept_x, kept_y, places, unused)
    for i in range(n):
        a = kept_x[i] * scale[0]
        b = kept_y[i] * scale[1]
        sums[SX] += a
        sums[SY] += b
        sums[XX] += a * a
        sums[YY] += b * b
        sums[XY] += a * b
        e = abs(kept_x[i] * scale[2] - kept_y[i] * scale[2])
        m = abs(kept_y[i])
        if m > ZERO:
            r = e / (m * scale[2])
            sums[REL] += r
            sums[REL_TOP] = max(sums[REL_TOP], r)
        d = e * scale[3]
        sums[DD] += d * d
        sums[SD] += d
        if d > sums[TOP]:
            sums[TOP] = d
            counts[TOP_AT] = base + places[i]

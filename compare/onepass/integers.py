"""Sums over two blocks of 64-bit integers: differences are exact, values count as their nearest float64."""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass import double
from compare.onepass.native import exact_kernel, kernel, widest_registers
from compare.onepass.single import ZERO
from compare.onepass.state import (
    ABOVE,
    AT_ZERO,
    DD,
    DIFFERING,
    FINITE,
    REL,
    REL_TOP,
    SD,
    SX,
    SY,
    TOP,
    TOP_AT,
    TOP_BITS,
    TOP_CARRY,
    XX,
    XY,
    YY,
)

_CARRY: Final = 2.0**64
_EXACT: Final = np.uint64(1 << 52)


@kernel
def _bits(x, n, unsigned):
    """All bits in which some number differs from its sign."""
    widest_registers()
    found = np.int64(0)
    if unsigned:
        for i in range(n):
            found |= x[i]
        return found
    for i in range(n):
        found |= x[i] ^ (x[i] >> np.int64(63))
    return found


@kernel
def _to_doubles(x, n, out):
    widest_registers()
    for i in range(n):
        out[i] = np.float64(x[i])


@exact_kernel
def add_block(x, y, n, unsigned_x, unsigned_y, base, double_x, double_y, places, sums, counts):
    """Adds ``n`` pairs of integers given as int64; those of an unsigned side are the same bits read without a sign.

    Numbers that float64 holds exactly, with their differences, are added as such; nearly all ids and counters are.
    ``double_x`` and ``double_y`` (float64) and ``places`` (int32) are room for ``n`` elements.
    """
    bits = np.uint64(_bits(x, n, unsigned_x)) | np.uint64(_bits(y, n, unsigned_y))
    if bits >= _EXACT:
        _add_exactly(x, y, n, unsigned_x, unsigned_y, base, sums, counts)
        return
    _to_doubles(x, n, double_x)
    _to_doubles(y, n, double_y)
    double.add_block(double_x, double_y, n, 1, base, double_x, double_y, places, sums, counts)
    if sums[TOP] < 2 * _EXACT:
        counts[TOP_BITS] = np.int64(sums[TOP])


@exact_kernel
def _add_exactly(x, y, n, unsigned_x, unsigned_y, base, sums, counts):
    """Adds integers one by one.

    The difference of a signed and an unsigned number may need 65 bits: the upper one is kept beside (the carry).
    """
    counts[FINITE] += n
    for i in range(n):
        p = x[i]
        q = y[i]
        a = np.float64(np.uint64(p)) if unsigned_x else np.float64(p)
        b = np.float64(np.uint64(q)) if unsigned_y else np.float64(q)
        # Both as numbers without a sign and a flag for those below zero or beyond the signed range.
        low_p = p < 0 and not unsigned_x
        low_q = q < 0 and not unsigned_y
        if low_p != low_q:
            less = low_p
        else:
            less = np.uint64(p) < np.uint64(q)
        distance = np.uint64(q) - np.uint64(p) if less else np.uint64(p) - np.uint64(q)
        # One is below zero, the other is not: the true distance is theirs modulo 2**64, larger when it wrapped round.
        carry = 0
        if low_p != low_q:
            above_zero = np.uint64(q) if low_p else np.uint64(p)
            if distance < above_zero:
                carry = 1
        e = np.float64(distance) + carry * _CARRY
        sums[SX] += a
        sums[SY] += b
        sums[XX] += a * a
        sums[YY] += b * b
        sums[XY] += a * b
        sums[DD] += e * e
        sums[SD] += e
        counts[DIFFERING] += distance != 0 or carry != 0
        m = abs(b)
        if m > ZERO:
            counts[ABOVE] += 1
            r = e / m
            sums[REL] += r
            sums[REL_TOP] = max(sums[REL_TOP], r)
        else:
            counts[AT_ZERO] += distance != 0
        greatest = np.uint64(counts[TOP_BITS])
        if carry > counts[TOP_CARRY] or (carry == counts[TOP_CARRY] and distance > greatest):
            counts[TOP_CARRY] = carry
            counts[TOP_BITS] = np.int64(distance)
            counts[TOP_AT] = base + i
            sums[TOP] = e

"""Sums over two blocks of 64-bit integers: differences are exact, values count as their nearest float64."""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass.native import exact_kernel, kernel
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


@kernel
def _differing(x, y, n):
    found = 0
    for i in range(n):
        found += np.int64(x[i] != y[i])
    return found


@kernel
def _own_sums(x, n, unsigned):
    total = 0.0
    square = 0.0
    nonzero = 0
    if unsigned:
        for i in range(n):
            a = np.float64(np.uint64(x[i]))
            total += a
            square += a * a
            nonzero += np.int64(a != 0.0)
        return total, square, nonzero
    for i in range(n):
        a = np.float64(x[i])
        total += a
        square += a * a
        nonzero += np.int64(a != 0.0)
    return total, square, nonzero


@exact_kernel
def add_block(x, y, n, unsigned_x, unsigned_y, base, sums, counts):
    """Adds ``n`` pairs of integers given as int64; those of an unsigned side are the same bits read without a sign.

    The difference of a signed and an unsigned number may need 65 bits: the upper one is kept beside (the carry).
    """
    counts[FINITE] += n
    differing = n if unsigned_x != unsigned_y else _differing(x, y, n)
    if differing == 0:
        total, square, nonzero = _own_sums(x, n, unsigned_x)
        sums[SX] += total
        sums[SY] += total
        sums[XX] += square
        sums[YY] += square
        sums[XY] += square
        counts[ABOVE] += nonzero
        return
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

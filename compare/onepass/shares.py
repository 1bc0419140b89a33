"""The Kullback-Leibler divergence over two blocks of float64: ranges first, then the shares scaled by them."""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass.double import finite_on_both
from compare.onepass.native import bits64, exact_kernel, float_of, kernel

SMALLEST: Final = 1.1920929e-07
"""Floor of a share before it is divided by the sum of all (float32 epsilon)."""

LOW_X: Final = 0
HIGH_X: Final = 1
LOW_Y: Final = 2
HIGH_Y: Final = 3
P: Final = 4
"""Sum of the left shares; Q of the right ones, CROSS of p ln(p/q)."""
Q: Final = 5
CROSS: Final = 6
FIELDS: Final = 7

_LN2_HIGH: Final = 0.6931471803691238
"""ln 2 in two parts, the first with zeros at its end, so that a multiple of it is exact."""
_LN2_LOW: Final = 1.9082149292705877e-10
_HALF: Final = np.int64(0x3FE6A09E667F3BCD)
"""Bits of the root of one half."""


@kernel
def _range(x, n):
    """Smallest and greatest of finite numbers, found among integers in the same order."""
    low = np.int64(0x7FFFFFFFFFFFFFFF)
    high = -low
    for i in range(n):
        bits = bits64(x[i])
        ordered = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
        low = min(low, ordered)
        high = max(high, ordered)
    low ^= (low >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)
    high ^= (high >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)
    return float_of(low), float_of(high)


@kernel
def _log(value):
    """Natural logarithm of a normal positive number, to about one unit in the last place.

    With value = 2**k m and m between the roots of 1/2 and 2 it is k ln 2 + 2 artanh((m - 1) / (m + 1)), the series of
    which needs eleven terms. A formula without a call is one that the compiler can take for eight numbers at once.
    """
    bits = bits64(value)
    k = (bits - _HALF) >> 52
    m = float_of(bits - (k << 52))
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    series = 1.0 / 21 + t / 23
    series = 1.0 / 19 + t * series
    series = 1.0 / 17 + t * series
    series = 1.0 / 15 + t * series
    series = 1.0 / 13 + t * series
    series = 1.0 / 11 + t * series
    series = 1.0 / 9 + t * series
    series = 1.0 / 7 + t * series
    series = 1.0 / 5 + t * series
    series = 1.0 / 3 + t * series
    e = np.float64(k)
    return (2.0 * s + 2.0 * s * t * series + e * _LN2_LOW) + e * _LN2_HIGH


@kernel
def _shares(x, y, n, low_x, span_x, low_y, span_y, fields):
    """Adds the shares (value - low) / span; a side of one value has equal ones."""
    one_x = 1.0 / span_x if span_x > 0 else 0.0
    one_y = 1.0 / span_y if span_y > 0 else 0.0
    total_p = 0.0
    total_q = 0.0
    cross = 0.0
    for i in range(n):
        p = (x[i] - low_x) * one_x
        q = (y[i] - low_y) * one_y
        p = p if p > SMALLEST else SMALLEST
        q = q if q > SMALLEST else SMALLEST
        total_p += p
        total_q += q
        cross += p * _log(p / q)
    fields[P] += total_p
    fields[Q] += total_q
    fields[CROSS] += cross


@exact_kernel
def add_block(x, y, n, ranging, kept_x, kept_y, places, unused, fields):
    """Widens the ranges by the numbers that are finite on both sides, or adds their shares.

    ``unused`` are counts as of :mod:`compare.onepass.state` that nobody reads.
    """
    x, y, n = finite_on_both(x, y, n, kept_x, kept_y, places, unused)
    if n == 0:
        return
    if ranging:
        low, high = _range(x, n)
        fields[LOW_X] = min(fields[LOW_X], low)
        fields[HIGH_X] = max(fields[HIGH_X], high)
        low, high = _range(y, n)
        fields[LOW_Y] = min(fields[LOW_Y], low)
        fields[HIGH_Y] = max(fields[HIGH_Y], high)
    else:
        spans = (fields[HIGH_X] - fields[LOW_X], fields[HIGH_Y] - fields[LOW_Y])
        _shares(x, y, n, fields[LOW_X], spans[0], fields[LOW_Y], spans[1], fields)

"""Sums in pairs of float64: as good as twice the precision (Ogita, Rump and Oishi, SIAM J. Sci. Comput. 26, 2005)."""

from __future__ import annotations

from typing import Final

from compare.onepass.native import exact_kernel

_SPLIT: Final = 134217729.0
"""2**27 + 1."""

_CHAINS: Final = 4
"""Independent sums, so that the processor need not wait for the last addition."""


@exact_kernel
def add_values(x, pairs):
    """Adds an array (float64, of n) to four pairs (float64, of 8): high parts first, then low parts."""
    for i in range(x.size):
        lane = i % _CHAINS
        a = pairs[lane]
        b = x[i]
        total = a + b
        back = total - a
        pairs[lane] = total
        pairs[lane + _CHAINS] += (a - (total - back)) + (b - back)


@exact_kernel
def add_products(x, y, pairs):
    """Adds the products of two arrays; the rounding error of a product is exact by Dekker's splitting."""
    for i in range(x.size):
        lane = i % _CHAINS
        a = x[i]
        b = y[i]
        product = a * b
        big_a = _SPLIT * a
        big_b = _SPLIT * b
        high_a = big_a - (big_a - a)
        high_b = big_b - (big_b - b)
        low_a = a - high_a
        low_b = b - high_b
        rest = low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)
        before = pairs[lane]
        total = before + product
        back = total - before
        pairs[lane] = total
        pairs[lane + _CHAINS] += ((before - (total - back)) + (product - back)) + rest

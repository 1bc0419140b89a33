"""Sums in pairs of float64: as good as twice the precision (Ogita, Rump and Oishi, SIAM J. Sci. Comput. 26, 2005)."""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass.double import finite_on_both
from compare.onepass.native import exact_kernel, fma, widest_registers

X: Final = 0
"""Where the sum of the left numbers stands, its rounding errors one further; Y of the right ones, XY of products."""
Y: Final = 2
XY: Final = 4
FIELDS: Final = 6


@exact_kernel
def _fold(high, low, n, at, fields):
    """Adds ``n`` numbers with their errors: each half to the other, until one is left, so nothing waits for a sum."""
    widest_registers()
    while n > 1:
        half = n // 2
        n -= half
        a = high[:half]
        b = high[n : n + half]
        errors = low[:half]
        more = low[n : n + half]
        for i in range(half):
            total = a[i] + b[i]
            back = total - a[i]
            errors[i] += ((a[i] - (total - back)) + (b[i] - back)) + more[i]
            a[i] = total
    total = fields[at] + high[0]
    back = total - fields[at]
    fields[at + 1] += ((fields[at] - (total - back)) + (high[0] - back)) + low[0]
    fields[at] = total


@exact_kernel
def add_block(x, y, n, products, kept_x, kept_y, places, unused, fields):
    """Adds the numbers that are finite on both sides, or their products, all float64.

    Args:
        x, y, n: The numbers; the squares of no number may leave the range of float64.
        products: Whether the products are added.
        kept_x, kept_y, places: Room as of :func:`compare.onepass.double.sift`.
        unused: Counts as of :mod:`compare.onepass.state` that nobody reads.
        fields: The sums, float64 of FIELDS.
    """
    widest_registers()
    x, y, n = finite_on_both(x, y, n, kept_x, kept_y, places, unused)
    if n == 0:
        return
    high = np.empty(n)
    low = np.zeros(n)
    if products:
        for i in range(n):
            product = x[i] * y[i]
            high[i] = product
            low[i] = fma(x[i], y[i], -product)
        _fold(high, low, n, XY, fields)
        return
    for i in range(n):
        high[i] = x[i]
    _fold(high, low, n, X, fields)
    low[:] = 0.0
    for i in range(n):
        high[i] = y[i]
    _fold(high, low, n, Y, fields)

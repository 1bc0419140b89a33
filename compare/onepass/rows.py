"""Rows of two embedding tables: gathered from their files by number, and held against each other row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from compare.onepass.native import exact_kernel, kernel, pread

LEFT, RIGHT, DISTANCE, DOT, LARGEST = range(5)
"""Columns of a row's sums: squares of both sides, of the difference, the product, the greatest absolute difference."""

DIFFERING, MISMATCHES, LEFT_NAN, RIGHT_NAN, LEFT_INF, RIGHT_INF, FINITE = range(7)
"""Columns of a row's counts. ``FINITE`` counts elements that are finite on both sides; the sums are over those."""

_SIZE, _INFINITY = 0x7FFFFFFF, 0x7F800000
"""Bits of a float32 without its sign; those of an infinity, above which there is only NaN."""

_ALL_FINITE = 1e300
"""Squares of float32 stay far below; so a sum that is not below it holds a NaN or an infinity."""


@exact_kernel
def gather(descriptors: Any, starts: Any, rows: Any, row_bytes: Any, buffer: Any) -> Any:
    """Reads rows by number; neighbours in the file that are asked for one after the other are one read.

    Args:
        descriptors: int32 [slices], open files.
        starts: int64 [slices + 1], number of the first row of each.
        rows: int64 [n], each below ``starts[-1]``.
        row_bytes: Size of a row.
        buffer: uint8, n rows at least.

    Returns:
        Number of rows that were read before a file ended or failed; n if all is well.
    """
    at = 0
    while at < rows.size:
        number = np.searchsorted(starts, rows[at], side="right") - 1
        limit = starts[number + 1]
        run = 1
        while at + run < rows.size and rows[at + run] == rows[at] + run and rows[at + run] < limit:
            run += 1
        size = run * row_bytes
        got = pread(descriptors[number], buffer, at * row_bytes, size, (rows[at] - starts[number]) * row_bytes)
        if got != size:
            return at
        at += run
    return at


@kernel
def row_figures(left: Any, right: Any, width: Any, sums: Any, counts: Any) -> Any:
    """Takes sums and counts of each row.

    Args:
        left: float32 [rows * width].
        right: Likewise.
        width: Values a row.
        sums: float64 [rows, 5], filled.
        counts: int64 [rows, 7], filled.
    """
    for row in range(sums.shape[0]):
        one, two = left[row * width : (row + 1) * width], right[row * width : (row + 1) * width]
        left_square: Any = 0.0
        right_square: Any = 0.0
        distance: Any = 0.0
        dot: Any = 0.0
        differing = 0
        for i in range(width):
            x, y = np.float64(one[i]), np.float64(two[i])
            left_square += x * x
            right_square += y * y
            distance += (x - y) * (x - y)
            dot += x * y
            differing += one[i] != two[i]
        counts[row, :] = 0
        sums[row, :] = 0.0
        if left_square + right_square < _ALL_FINITE:
            sums[row, LEFT], sums[row, RIGHT], sums[row, DISTANCE] = left_square, right_square, distance
            sums[row, DOT] = dot
            counts[row, DIFFERING], counts[row, FINITE] = differing, width
            largest: Any = 0.0
            if differing:
                for i in range(width):
                    largest = max(largest, abs(np.float64(one[i]) - np.float64(two[i])))
            sums[row, LARGEST] = largest
        else:
            _careful(one, two, sums[row], counts[row])


@exact_kernel
def _careful(one: Any, two: Any, sums: Any, counts: Any) -> Any:
    """A row with a NaN or an infinity: NaN equals NaN, an infinity the same infinity. Told by the bits."""
    left, right = one.view(np.int32), two.view(np.int32)
    for i in range(one.size):
        x_size, y_size = left[i] & _SIZE, right[i] & _SIZE
        counts[LEFT_NAN] += x_size > _INFINITY
        counts[RIGHT_NAN] += y_size > _INFINITY
        counts[LEFT_INF] += x_size == _INFINITY
        counts[RIGHT_INF] += y_size == _INFINITY
        if x_size >= _INFINITY or y_size >= _INFINITY:
            differs = left[i] != right[i] and not (x_size > _INFINITY and y_size > _INFINITY)
            counts[DIFFERING] += differs
            counts[MISMATCHES] += differs
            continue
        x, y = np.float64(one[i]), np.float64(two[i])
        counts[FINITE] += 1
        counts[DIFFERING] += x != y
        sums[LEFT] += x * x
        sums[RIGHT] += y * y
        sums[DISTANCE] += (x - y) * (x - y)
        sums[DOT] += x * y
        sums[LARGEST] = max(sums[LARGEST], abs(x - y))

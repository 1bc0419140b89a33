"""Sweeps a range of elements of two tensors, in files or in memory, block after block, in one compiled call."""

from __future__ import annotations

from typing import Final

import numpy as np

from compare.onepass import double, exact, integers, shares, single
from compare.onepass.decode import FLOAT32, FLOAT64, to_double, to_integer, to_single
from compare.onepass.native import exact_kernel, fetch

RAW: Final = 1 << 18
"""Bytes read at a time from each side: small enough for a core's cache, large enough to hide the call."""

STEP: Final = 2048
"""Elements added at a time: what is decoded of them stays in the first-level cache."""

DONE: Final = 0
LEFT_SHORT: Final = 1
RIGHT_SHORT: Final = 2


@exact_kernel
def sweep_single(left, right, relative, begin, end, raw_x, raw_y, room_x, room_y, kept_x, kept_y, places, sums, counts):
    """Adds elements ``begin`` to ``end`` as float32.

    Args:
        left, right: File descriptor, address, offset of element 0, element size, type code, table of 256 values.
        relative: Whether the relative errors are wanted.
        begin, end: Elements.
        raw_x, raw_y: Bytes, RAW of them or a multiple; the last so many bytes that were read stay there.
        room_x, room_y, kept_x, kept_y: float32, STEP of them.
        places: int32, STEP of them.
        sums, counts: See :mod:`compare.onepass.state`.

    Returns:
        DONE, or which side ended too early.
    """
    fd_x, address_x, offset_x, size_x, code_x, table_x = left
    fd_y, address_y, offset_y, size_y, code_y, table_y = right
    block = RAW // max(size_x, size_y)
    held = raw_x.size // max(size_x, size_y)
    for start in range(begin, end, block):
        count = min(block, end - start)
        place = (start - begin) % held
        block_x = raw_x[place * size_x : (place + count) * size_x]
        block_y = raw_y[place * size_y : (place + count) * size_y]
        if fetch(fd_x, address_x, offset_x + start * size_x, block_x.size, block_x) != block_x.size:
            return LEFT_SHORT
        if fetch(fd_y, address_y, offset_y + start * size_y, block_y.size, block_y) != block_y.size:
            return RIGHT_SHORT
        for at in range(0, count, STEP):
            n = min(STEP, count - at)
            bytes_x = block_x[at * size_x : (at + n) * size_x]
            bytes_y = block_y[at * size_y : (at + n) * size_y]
            x = room_x
            y = room_y
            if code_x == FLOAT32:
                x = bytes_x.view(np.float32)
            else:
                to_single(code_x, table_x, bytes_x, n, room_x)
            if code_y == FLOAT32:
                y = bytes_y.view(np.float32)
            else:
                to_single(code_y, table_y, bytes_y, n, room_y)
            single.add_block(x, y, n, relative, start + at, kept_x, kept_y, places, sums, counts)
    return DONE


ADD: Final = 0
"""Tasks of :func:`sweep_double`: the sums; the ranges and the shares of the Kullback-Leibler divergence; totals and
products as if without rounding."""
RANGE: Final = 1
SHARE: Final = 2
EXACT: Final = 3
EXACT_PRODUCTS: Final = 4


@exact_kernel
def sweep_double(
    left, right, task, begin, end, raw_x, raw_y, room, room_x, room_y, kept_x, kept_y, places, sums, counts
):
    """Adds elements as float64; ``room`` is float32, the other room float64. See :func:`sweep_single`.

    For the tasks RANGE and SHARE ``sums`` are the fields of :mod:`compare.onepass.shares`, for the exact ones those of
    :mod:`compare.onepass.exact`.
    """
    fd_x, address_x, offset_x, size_x, code_x, table_x = left
    fd_y, address_y, offset_y, size_y, code_y, table_y = right
    block = RAW // max(size_x, size_y)
    held = raw_x.size // max(size_x, size_y)
    for start in range(begin, end, block):
        count = min(block, end - start)
        place = (start - begin) % held
        block_x = raw_x[place * size_x : (place + count) * size_x]
        block_y = raw_y[place * size_y : (place + count) * size_y]
        if fetch(fd_x, address_x, offset_x + start * size_x, block_x.size, block_x) != block_x.size:
            return LEFT_SHORT
        if fetch(fd_y, address_y, offset_y + start * size_y, block_y.size, block_y) != block_y.size:
            return RIGHT_SHORT
        for at in range(0, count, STEP):
            n = min(STEP, count - at)
            bytes_x = block_x[at * size_x : (at + n) * size_x]
            bytes_y = block_y[at * size_y : (at + n) * size_y]
            x = room_x
            y = room_y
            if code_x == FLOAT64:
                x = bytes_x.view(np.float64)
            else:
                to_double(code_x, table_x, bytes_x, n, room, room_x)
            if code_y == FLOAT64:
                y = bytes_y.view(np.float64)
            else:
                to_double(code_y, table_y, bytes_y, n, room, room_y)
            if task == ADD:
                double.add_block(x, y, n, 1, start + at, kept_x, kept_y, places, sums, counts)
            elif task >= EXACT:
                exact.add_block(x, y, n, task == EXACT_PRODUCTS, kept_x, kept_y, places, counts, sums)
            else:
                shares.add_block(x, y, n, task == RANGE, kept_x, kept_y, places, counts, sums)
    return DONE


@exact_kernel
def sweep_integer(
    left,
    right,
    begin,
    end,
    unsigned_x,
    unsigned_y,
    raw_x,
    raw_y,
    room_x,
    room_y,
    double_x,
    double_y,
    places,
    sums,
    counts,
):
    """Adds elements as 64-bit integers; the room is int64 and float64. See :func:`sweep_single`."""
    fd_x, address_x, offset_x, size_x, code_x, _ = left
    fd_y, address_y, offset_y, size_y, code_y, _ = right
    block = RAW // max(size_x, size_y)
    held = raw_x.size // max(size_x, size_y)
    for start in range(begin, end, block):
        count = min(block, end - start)
        place = (start - begin) % held
        block_x = raw_x[place * size_x : (place + count) * size_x]
        block_y = raw_y[place * size_y : (place + count) * size_y]
        if fetch(fd_x, address_x, offset_x + start * size_x, block_x.size, block_x) != block_x.size:
            return LEFT_SHORT
        if fetch(fd_y, address_y, offset_y + start * size_y, block_y.size, block_y) != block_y.size:
            return RIGHT_SHORT
        for at in range(0, count, STEP):
            n = min(STEP, count - at)
            bytes_x = block_x[at * size_x : (at + n) * size_x]
            bytes_y = block_y[at * size_y : (at + n) * size_y]
            x = room_x
            y = room_y
            if size_x == 8:
                x = bytes_x.view(np.int64)
            else:
                to_integer(code_x, bytes_x, n, room_x)
            if size_y == 8:
                y = bytes_y.view(np.int64)
            else:
                to_integer(code_y, bytes_y, n, room_y)
            integers.add_block(x, y, n, unsigned_x, unsigned_y, start + at, double_x, double_y, places, sums, counts)
    return DONE

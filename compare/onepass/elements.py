"""Compiled loops over the elements as such: what they are, hashes of them, where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from compare.onepass.native import exact_kernel

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)
_INFINITY_KEY = np.uint64(0x7FF0000000000000)
_NAN_KEY = np.uint64(0x7FF8000000000000)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


@exact_kernel
def mix(key: Any) -> Any:
    """A 64-bit number spread over all bits (the finaliser of SplitMix64)."""
    key = (key ^ (key >> _SHIFT_1)) * _MIX_1
    key = (key ^ (key >> _SHIFT_2)) * _MIX_2
    return key ^ (key >> _SHIFT_3)


@exact_kernel
def look_up(bits: Any, table: Any, out: Any) -> Any:
    """Writes the entry of a table that each number stands for.

    Args:
        bits: uint8 or uint16.
        table: One entry for each value that they can have.
        out: Of the table's type, filled.
    """
    for i in range(bits.size):
        out[i] = table[bits[i]]


@exact_kernel
def float_keys(bits: Any) -> Any:
    """Makes the bits of float64 equal where the values are equal (R5): one zero, one NaN. In place."""
    for i in range(bits.size):
        key = bits[i]
        magnitude = key & _MAGNITUDE
        if magnitude == _ZERO:
            key = _ZERO
        if magnitude > _INFINITY_KEY:
            key = _NAN_KEY
        bits[i] = key


@exact_kernel
def joined_keys(parts: Any, out: Any) -> Any:
    """One key for the two parts of a complex number."""
    for i in range(out.size):
        out[i] = mix(parts[2 * i] + _STEP) ^ (parts[2 * i + 1] * _STEP)


@exact_kernel
def multiset_sum(bits: Any, sign: Any, infinity: Any) -> Any:
    """A sum of hashes that is the same in whatever order the elements are.

    Args:
        bits: Unsigned integers.
        sign: The bit in which one zero differs from the other; 0 where there is one zero only.
        infinity: Bits of infinity; what is above, without its sign, is a NaN like any other.
    """
    total = _ZERO
    for i in range(bits.size):
        key = np.uint64(bits[i])
        magnitude = key & ~sign
        if magnitude == _ZERO:
            key = _ZERO
        if magnitude > infinity:
            key = infinity + _ONE
        total += mix(key + _STEP)
    return total


@exact_kernel
def axis_sums(keys: Any, start: Any, width: Any, rows: Any, columns: Any) -> Any:
    """Adds a block of a matrix to a hash for each row and each column; an empty array of hashes is left out.

    Args:
        keys: uint64.
        start: Flat index of the block.
        width: Numbers a row.
        rows: uint64, added to.
        columns: uint64, added to.
    """
    row, column = start // width, start % width
    for i in range(keys.size):
        if rows.size:
            rows[row] += mix(keys[i] + np.uint64(column + 1) * _STEP)
        if columns.size:
            columns[column] += mix(keys[i] + np.uint64(row + 1) * _STEP)
        column += 1
        if column == width:
            column = 0
            row += 1


@exact_kernel
def mark_axes(positions: Any, shape: Any, offsets: Any, marks: Any) -> Any:
    """Marks on each axis the coordinates of some elements.

    Args:
        positions: int64 flat indices.
        shape: int64.
        offsets: int64: where in ``marks`` each axis begins.
        marks: uint8, set to 1.
    """
    for i in range(positions.size):
        rest = positions[i]
        for axis in range(shape.size - 1, -1, -1):
            marks[offsets[axis] + rest % shape[axis]] = 1
            rest //= shape[axis]

"""Stored elements -> numbers a kernel can add: float32 for everything that fits, else float64, else 64-bit integers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from compare.onepass.native import exact_kernel, half

if TYPE_CHECKING:
    from numpy.typing import NDArray

Numbers = Literal["single", "double", "integer"]

FLOAT32: Final = 0
FLOAT16: Final = 1
BFLOAT16: Final = 2
INT8: Final = 3
UINT8: Final = 4
BOOL: Final = 5
INT16: Final = 6
UINT16: Final = 7
TABLE: Final = 8
"""One-byte types whose 256 values are listed: the eight-bit floats."""
FLOAT64: Final = 9
INT32: Final = 10
UINT32: Final = 11
INT64: Final = 12
UINT64: Final = 13

_CODES: Final = {
    "float32": FLOAT32,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "int8": INT8,
    "uint8": UINT8,
    "bool": BOOL,
    "int16": INT16,
    "uint16": UINT16,
    "float64": FLOAT64,
    "int32": INT32,
    "uint32": UINT32,
    "int64": INT64,
    "uint64": UINT64,
}

_NO_TABLE: Final = np.zeros(256, np.float32)


@functools.lru_cache(maxsize=256)
def code_of(dtype: np.dtype[np.generic]) -> int | None:
    """Returns how elements of this type are decoded; None if a kernel cannot (complex, text, packed types)."""
    code = _CODES.get(dtype.name)
    if code is not None:
        return code
    return TABLE if dtype.itemsize == 1 and dtype.name.startswith("float") else None


@functools.lru_cache(maxsize=32)
def table_of(dtype: np.dtype[np.generic]) -> NDArray[np.float32]:
    """Returns the values of a one-byte float type, float32 of 256; zeros for all other types."""
    if code_of(dtype) != TABLE:
        return _NO_TABLE
    with np.errstate(all="ignore"):
        return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


@functools.lru_cache(maxsize=256)
def numbers_of(left: int, right: int) -> Numbers:
    """Tells in which numbers two kinds of elements are compared.

    Two integer types of which one has 64 bits keep their integers; 64-bit integers against floats count as their
    nearest float64.
    """
    if max(left, right) <= TABLE:
        return "single"
    integers = (INT8, UINT8, BOOL, INT16, UINT16, INT32, UINT32, INT64, UINT64)
    if max(left, right) >= INT64 and left in integers and right in integers:
        return "integer"
    return "double"


@exact_kernel
def to_single(code, table, raw, n, out):
    """Writes ``n`` elements of type ``code`` from the bytes ``raw`` to ``out`` as float32, exactly."""
    if code == FLOAT16:
        halves = raw.view(np.uint16)
        for i in range(n):
            out[i] = half(halves[i])
    elif code == BFLOAT16:
        brains = raw.view(np.uint16)
        bits = out.view(np.uint32)
        for i in range(n):
            bits[i] = np.uint32(brains[i]) << np.uint32(16)
    elif code == INT8:
        small = raw.view(np.int8)
        for i in range(n):
            out[i] = np.float32(small[i])
    elif code == UINT8:
        for i in range(n):
            out[i] = np.float32(raw[i])
    elif code == BOOL:
        for i in range(n):
            out[i] = np.float32(1) if raw[i] != 0 else np.float32(0)
    elif code == INT16:
        short = raw.view(np.int16)
        for i in range(n):
            out[i] = np.float32(short[i])
    elif code == UINT16:
        unsigned = raw.view(np.uint16)
        for i in range(n):
            out[i] = np.float32(unsigned[i])
    elif code == TABLE:
        for i in range(n):
            out[i] = table[raw[i]]
    else:
        floats = raw.view(np.float32)
        for i in range(n):
            out[i] = floats[i]


@exact_kernel
def to_double(code, table, raw, n, room, out):
    """Writes ``n`` elements to ``out`` as float64; ``room`` (float32) serves the types that fit into float32."""
    if code == INT32:
        integers = raw.view(np.int32)
        for i in range(n):
            out[i] = np.float64(integers[i])
    elif code == UINT32:
        unsigned = raw.view(np.uint32)
        for i in range(n):
            out[i] = np.float64(unsigned[i])
    elif code == INT64:
        wide = raw.view(np.int64)
        for i in range(n):
            out[i] = np.float64(wide[i])
    elif code == UINT64:
        widest = raw.view(np.uint64)
        for i in range(n):
            out[i] = np.float64(widest[i])
    elif code == FLOAT64:
        doubles = raw.view(np.float64)
        for i in range(n):
            out[i] = doubles[i]
    else:
        to_single(code, table, raw, n, room)
        for i in range(n):
            out[i] = np.float64(room[i])


@exact_kernel
def to_integer(code, raw, n, out):
    """Writes ``n`` integers of less than 64 bits to ``out`` (int64)."""
    if code == INT32:
        integers = raw.view(np.int32)
        for i in range(n):
            out[i] = integers[i]
    elif code == UINT32:
        unsigned = raw.view(np.uint32)
        for i in range(n):
            out[i] = unsigned[i]
    elif code == INT16:
        short = raw.view(np.int16)
        for i in range(n):
            out[i] = short[i]
    elif code == UINT16:
        halves = raw.view(np.uint16)
        for i in range(n):
            out[i] = halves[i]
    elif code == INT8:
        small = raw.view(np.int8)
        for i in range(n):
            out[i] = small[i]
    elif code == UINT8:
        for i in range(n):
            out[i] = raw[i]
    else:
        for i in range(n):
            out[i] = np.int64(raw[i] != 0)

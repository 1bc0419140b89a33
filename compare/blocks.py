"""Arrays as blocks of float64, whatever their element types and memory order.

A block is small enough for a core's cache, so every later step on it is cheap and memory does not grow with the tensor.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 15
"""Elements a block: 256 KB as float64."""

Kind = Literal["float", "integer", "boolean", "complex", "text", "opaque"]

NUMBERS: frozenset[Kind] = frozenset({"float", "integer", "boolean", "complex"})
"""Kinds of elements that have figures."""


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Returns a dtype's name; NumPy makes it anew each time, which takes longer than comparing a small tensor."""
    return dtype.name


@functools.lru_cache(maxsize=256)
def element_kind(dtype: np.dtype[np.generic]) -> Kind:
    """Tells what the elements are; ``opaque`` is raw data of unknown type (``V2`` without a declared dtype)."""
    simple: dict[str, Kind] = {"f": "float", "b": "boolean", "i": "integer", "u": "integer", "c": "complex"}
    if dtype.kind in simple:
        return simple[dtype.kind]
    if dtype.kind in "SUO":
        return "text"
    if dtype.name.startswith(("float", "bfloat")):
        return "float"
    return "integer" if dtype.name in ("int4", "uint4", "int2", "uint2") else "opaque"


def flat(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Returns something that gives blocks in C order when sliced, without copying the array."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    return array.flat  # type: ignore[return-value]  # slicing a flatiter copies just the slice


def to_float64(block: NDArray[np.generic], width: int = 1) -> NDArray[np.float64]:
    """Returns a block as contiguous float64; with ``width`` 2 as real and imaginary parts side by side."""
    values: NDArray[np.float64]
    if width == 2:
        values = np.ascontiguousarray(block, dtype=np.complex128).view(np.float64)
        return values
    if block.dtype == np.bool_:  # a stored byte other than 0 and 1 is true all the same
        block = np.ascontiguousarray(block).view(np.uint8) != 0
    values = np.ascontiguousarray(block, dtype=np.float64)
    return values


def absolute_difference(one: NDArray[np.generic], two: NDArray[np.generic]) -> NDArray[np.uint64] | NDArray[np.object_]:
    """Returns ``|one - two|`` of integers without wrapping round or rounding.

    Unsigned subtraction is exact modulo 2**64, and the greater minus the smaller always fits. Only signed against
    unsigned 64-bit numbers need Python's integers.
    """
    if np.uint64 in (one.dtype.type, two.dtype.type) and one.dtype != two.dtype:
        result: NDArray[np.object_] = np.abs(one.astype(object) - two.astype(object))
        return result
    common = np.uint64 if one.dtype == np.uint64 else np.int64
    a, b = one.astype(common), two.astype(common)
    return np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)

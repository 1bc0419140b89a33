"""Two arrays as blocks of float64, whatever their element types and memory order.

A block is small enough for a core's cache, so every later step on it is cheap and the memory of a comparison does not
grow with the tensors. Sixty-four-bit integers bring their differences along, since float64 would round them (FC09).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 15
"""Elements a block: 256 KB as float64."""

Kind = Literal["float", "integer", "boolean", "complex", "text", "opaque"]

Floats = "NDArray[np.float64]"


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


@dataclass(frozen=True)
class Block:
    """Elements ``start`` and following of both sides.

    Attributes:
        x, y: Values; complex numbers as real and imaginary parts side by side.
        width: Numbers an element: 2 for complex, else 1.
        distance: Exact ``|x - y|`` where float64 cannot hold the values, else None.
        largest: Greatest of ``distance`` as a Python number, exact.
    """

    start: int
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    width: int = 1
    distance: NDArray[np.float64] | None = None
    largest: int = 0


def pair_blocks(left: NDArray[np.generic], right: NDArray[np.generic], *, size: int = BLOCK) -> Iterator[Block]:
    """Yields both arrays, which must have equally many elements, in blocks of at most ``size`` elements."""
    width = 2 if "c" in left.dtype.kind + right.dtype.kind else 1
    exact = _both_wide_integers(left.dtype, right.dtype)
    a, b = flat(left), flat(right)
    for start in range(0, left.size, size):
        one, two = a[start : start + size], b[start : start + size]
        if exact:
            yield _integer_block(start, one, two)
        else:
            yield Block(start, to_float64(one, width), to_float64(two, width), width)


def to_float64(block: NDArray[np.generic], width: int = 1) -> NDArray[np.float64]:
    """Returns a block as float64; with ``width`` 2 as real and imaginary parts side by side."""
    if width == 2:
        return np.ascontiguousarray(block, dtype=np.complex128).view(np.float64)
    return block.astype(np.float64)


def _both_wide_integers(left: np.dtype[np.generic], right: np.dtype[np.generic]) -> bool:
    kinds = {element_kind(left), element_kind(right)}
    return kinds <= {"integer", "boolean"} and max(left.itemsize, right.itemsize) == 8


def _integer_block(start: int, one: NDArray[np.generic], two: NDArray[np.generic]) -> Block:
    x, y = one.astype(np.float64), two.astype(np.float64)
    same = np.array_equal(one, two) and one.dtype == two.dtype
    if same:
        return Block(start, x, y, distance=np.zeros(x.shape))
    distance = absolute_difference(one, two)
    return Block(start, x, y, distance=distance.astype(np.float64), largest=int(distance[np.argmax(distance)]))


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

"""Two arrays of equally many elements, read block by block in C order, and what it means that elements are the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.blocks import absolute_difference, element_kind, flat, to_float64
from compare.onepass import elements
from compare.verbatim import same_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

BLOCK = 1 << 14
"""Elements a block: 128 KB as float64; twice as many took longer for fresh pages, half as many for calls."""

_SAMPLE = 1024
_WINDOW = 64
_WHOLE = (np.uint64(0), np.uint64(2**64 - 1))
_SINGLE = (np.uint64(1 << 31), np.uint64(0x7F800000))
_DOUBLE = (np.uint64(1 << 63), np.uint64(0x7FF0000000000000))
"""Sign bit and infinity, as :func:`compare.onepass.elements.multiset_sum` takes them."""


class Pair:
    """Both arrays; they may be memory maps, and nothing here copies more than a block of them."""

    def __init__(self, left: Array, right: Array) -> None:
        self.left, self.right = left, right
        self.a, self.b = flat(left), flat(right)
        self.size = left.size
        kinds = {element_kind(left.dtype), element_kind(right.dtype)}
        self.integers = kinds <= {"integer", "boolean"}
        self.verbatim = bool(kinds & {"text", "opaque"})
        self.complex = "complex" in kinds
        self.single = left.dtype == right.dtype == np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the left side, in which rows and columns are told."""
        return self.left.shape

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[int, Array, Array]]:
        """Yields the flat index and the elements of both sides."""
        for start in range(0, self.size, size):
            yield start, self.a[start : start + size], self.b[start : start + size]

    def numbers(self, block: Array) -> NDArray[np.float64]:
        """Returns a block as contiguous float64, complex numbers as their parts side by side."""
        small = block.dtype.itemsize <= 2 and element_kind(block.dtype) == "float" and block.dtype.isnative
        if small and not self.complex:
            bits = np.ascontiguousarray(block).view(f"u{block.dtype.itemsize}")
            values = np.empty(block.size)
            elements.look_up(bits, _values(block.dtype), values)
            return values
        return np.ascontiguousarray(to_float64(block, 2 if self.complex else 1))

    def plain(self, block: Array) -> Array:
        """Returns what a kernel takes as it is: float32 of both sides unchanged, else :meth:`numbers`."""
        return np.ascontiguousarray(block) if self.single else self.numbers(block)

    def multiset(self, block: Array, numbers: Array) -> int:
        """Returns a sum of hashes over the elements of a block; ``numbers`` is what :meth:`plain` made of it."""
        if self.single:
            return int(elements.multiset_sum(numbers.view(np.uint32), *_SINGLE))
        if self.integers or self.complex:
            return int(elements.multiset_sum(self.keys(block), *_WHOLE))
        return int(elements.multiset_sum(numbers.view(np.uint64), *_DOUBLE))

    def keys(self, block: Array) -> NDArray[np.uint64]:
        """Returns one 64-bit number an element, the same for elements that are the same.

        Different elements have different keys but where complex numbers are concerned, or integers of 64 bits of which
        one side has a sign: a search by keys ends with :meth:`same`.
        """
        if self.integers:
            whole = block.astype(np.uint64 if block.dtype == np.uint64 else np.int64)
            return np.ascontiguousarray(whole).view(np.uint64)
        bits = self.numbers(block).view(np.uint64)
        elements.float_keys(bits)
        if not self.complex:
            return bits
        keys = np.empty(bits.size // 2, np.uint64)
        elements.joined_keys(bits, keys)
        return keys

    def same(self, one: Array, two: Array) -> NDArray[np.bool_]:
        """Tells element by element whether two blocks are the same (R5): NaN is NaN, +0 is -0, integers exactly."""
        if self.verbatim:
            return same_bytes(one, two)
        if self.integers:
            equal = one == two if one.dtype == two.dtype else absolute_difference(one, two) == 0
            return np.asarray(equal, dtype=np.bool_)
        x, y = self.plain(one), self.plain(two)
        equal = np.equal(x, y)
        if not equal.all():
            equal |= np.isnan(x) & np.isnan(y)
        return np.asarray(equal[0::2] & equal[1::2] if self.complex else equal, dtype=np.bool_)

    @cached_property
    def sample(self) -> NDArray[np.int64]:
        """Positions spread over the whole, to give up on a relation early."""
        if self.size <= _SAMPLE:
            return np.arange(self.size, dtype=np.int64)
        return np.unique(np.linspace(0, self.size - 1, _SAMPLE).astype(np.int64))

    def around(self, position: int) -> NDArray[np.int64]:
        """Returns the sample and the positions near one of interest."""
        if self.size <= _SAMPLE:
            return self.sample
        near = np.arange(max(0, position - _WINDOW), min(self.size, position + _WINDOW), dtype=np.int64)
        return np.union1d(self.sample, near)

    def runs_same(self, start: int, other: int, count: int) -> bool:
        """Tells whether ``count`` elements are the same, from ``start`` on the left and ``other`` on the right side."""
        for done in range(0, count, BLOCK):
            size = min(BLOCK, count - done)
            one = self.a[start + done : start + done + size]
            if not self.same(one, self.b[other + done : other + done + size]).all():
                return False
        return True

    def data_same(self, right: Array) -> bool:
        """Tells whether the left side is, element for element in C order, another view of the right one."""
        other = flat(right)
        if not self.same(self.a[self.sample], other[self.sample]).all():
            return False
        for start in range(0, self.size, BLOCK):
            if not self.same(self.a[start : start + BLOCK], other[start : start + BLOCK]).all():
                return False
        return True


@lru_cache(maxsize=16)
def _values(dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """All values of a float type of one or two bytes: looked up they are several times faster than converted."""
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    return to_float64(bits.view(dtype))

"""Counting NaN and infinities by the bits, with NumPy; :mod:`compare.onepass.nonfinite` does the same compiled.

A number of any float type is not finite where its exponent is all ones. Seen as words of 64 bits that hold several
elements, ``(word & mask) + carry`` moves such an exponent into the sign bit of its element and cannot run over into the
next one, so the words of a block combined by *or* tell whether anything in it is not finite. Only then is it counted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from compare.blocks import flat

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_BYTES: Final = 1 << 18
"""Bytes a block: it is still in the core's second cache when it is looked at. A multiple of every element's size."""

_LEAST: Final = {
    "float16": (16, 0x7C00, True),
    "bfloat16": (16, 0x7F80, True),
    "float32": (32, 0x7F80_0000, True),
    "float64": (64, 0x7FF0_0000_0000_0000, True),
    "complex64": (32, 0x7F80_0000, True),
    "complex128": (64, 0x7FF0_0000_0000_0000, True),
    "float8_e5m2": (8, 0x7C, True),
    "float8_e4m3": (8, 0x78, True),
    "float8_e3m4": (8, 0x70, True),
    "float8_e4m3fn": (8, 0x7F, False),
}
"""Bits of a number, the least magnitude (as an integer) that is not finite, and whether that one is an infinity.

IEEE 754 for the wide types; for eight bits the definitions of the OCP specification (e5m2 as IEEE; e4m3fn has no
infinity and one NaN) and of ml_dtypes (e4m3 and e3m4 as IEEE). Types without a free sign bit (e8m0fnu, the fnuz types)
are not here and are counted by their own ``isnan``.
"""


@dataclass(frozen=True)
class Counts:
    """What is not finite in a range of elements.

    Attributes:
        nan: Elements with a NaN (in either part of a complex number).
        positive, negative: Elements with such an infinity and no NaN; one with both counts as positive.
        first: Flat C-order index of the first of them, None for a clean range.
        kind: ``nan``, ``inf`` or ``-inf``: what stands there; empty for a clean range.
    """

    nan: int = 0
    positive: int = 0
    negative: int = 0
    first: int | None = None
    kind: str = ""


CLEAN: Final = Counts()


def merged(parts: Iterable[Counts]) -> Counts:
    """Returns the counts of ranges together; their order does not matter."""
    bad = [part for part in parts if part.first is not None]
    if len(bad) < 2:
        return bad[0] if bad else CLEAN
    first = min(bad, key=lambda part: part.first or 0)
    return Counts(
        sum(part.nan for part in bad),
        sum(part.positive for part in bad),
        sum(part.negative for part in bad),
        first.first,
        first.kind,
    )


class Form(NamedTuple):
    """How a float type looks in words of 64 bits.

    Attributes:
        bits: Of one number; a power of two.
        parts: Numbers an element, 2 for complex.
        least: Least magnitude that is not finite.
        infinity: Magnitude of an infinity, 0 for a type without.
        mask, carry, sign: Magnitude bits, what lifts ``least`` into the sign bit, and the sign bits, of a whole word.
    """

    bits: int
    parts: int
    least: int
    infinity: int
    mask: int
    carry: int
    sign: int


@functools.cache
def form_of(dtype: np.dtype[np.generic]) -> Form | None:
    """Returns how a type looks, None for one that is counted by its own ``isnan`` (or has nothing to count)."""
    if dtype.name not in _LEAST:
        return None
    bits, least, infinite = _LEAST[dtype.name]
    ones = sum(1 << at for at in range(0, 64, bits))
    sign = 1 << (bits - 1)
    return Form(
        bits=bits,
        parts=dtype.itemsize * 8 // bits,
        least=least,
        infinity=least if infinite else 0,
        mask=ones * (sign - 1),
        carry=ones * (sign - least),
        sign=ones * sign,
    )


class Scratch:
    """Memory that a thread uses again for each block.

    Attributes:
        raw: :data:`BLOCK_BYTES` bytes, aligned to 64.
        words: The same as words.
        found: What the compiled kernels count into.
    """

    def __init__(self) -> None:
        self._held = np.empty(BLOCK_BYTES + 64, np.uint8)
        begin = -self._held.ctypes.data % 64
        self.raw: NDArray[np.uint8] = self._held[begin : begin + BLOCK_BYTES]
        self.words: NDArray[np.uint64] = self.raw.view(np.uint64)
        self.found: NDArray[np.int64] = np.zeros(5, np.int64)
        self._flags: NDArray[np.uint64] | None = None

    def any_bad(self, size: int, form: Form) -> bool:
        """Tells whether anything in the first ``size`` bytes of the block is not finite."""
        if self._flags is None:
            self._flags = np.empty_like(self.words)
        count = -(-size // 8)
        self.raw[size : count * 8] = 0
        flags = self._flags[:count]
        np.bitwise_and(self.words[:count], np.uint64(form.mask), out=flags)
        np.add(flags, np.uint64(form.carry), out=flags)
        return bool(np.bitwise_or.reduce(flags) & np.uint64(form.sign))

    def count(self, size: int, begin: int, dtype: np.dtype[np.generic]) -> Counts:
        """Counts the first ``size`` bytes of the block, whose first element is number ``begin`` of its tensor."""
        form = form_of(dtype)
        if form is not None and not self.any_bad(size, form):
            return CLEAN
        return count_values(self.raw[:size].view(dtype), begin)


def count_values(values: NDArray[np.generic], begin: int = 0) -> Counts:
    """Counts a block of numbers of any float or complex type by the type's own tests."""
    with np.errstate(all="ignore"):  # the tests of eight-bit floats set the flag for a NaN
        return _count_values(values, begin)


def count_array(array: NDArray[np.generic]) -> Counts:
    """Counts an array in blocks, whatever its memory order."""
    step, values = BLOCK_BYTES // array.dtype.itemsize, flat(array)
    return merged(count_values(values[at : at + step], at) for at in range(0, array.size, step))


def _count_values(values: NDArray[np.generic], begin: int) -> Counts:
    bad = ~np.isfinite(values)
    at = int(np.argmax(bad)) if bad.size else 0
    if not bad.size or not bad[at]:
        return CLEAN
    places = np.flatnonzero(bad)
    found = values[places]
    is_nan = np.isnan(found)
    if np.iscomplexobj(found):
        positive = (np.real(found) == np.inf) | (np.imag(found) == np.inf)
    else:
        positive = found > np.zeros((), found.dtype)
    positive &= ~is_nan
    nan, plus = int(np.count_nonzero(is_nan)), int(np.count_nonzero(positive))
    kind = "nan" if is_nan[0] else "inf" if positive[0] else "-inf"
    return Counts(nan, plus, found.size - nan - plus, begin + at, kind)

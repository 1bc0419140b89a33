"""NaN and infinities counted while a file is read: block by block, without the interpreter's lock.

The rule is that of :mod:`compare.nonfinite`. A block without anything bad costs one pass of integer operations over
memory that is in the core's cache, which is little beside reading it.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compare.nonfinite import CLEAN, Counts, Form
from compare.onepass.native import exact_kernel, pread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.nonfinite import Scratch

_KINDS: Final = ("", "nan", "inf", "-inf")

# Places in the array that describes a form ...
_MASK, _CARRY, _SIGN, _BITS, _LANES, _PARTS, _LEAST, _INFINITY, _SWAPPED = range(9)
# ... and in the one that counts: 1 NaN, 2 infinity, 3 minus infinity.
_FIRST, _NAN, _KIND = 0, 1, 4


@exact_kernel
def _flags(words: Any, count: Any, mask: Any, carry: Any) -> Any:
    flags = np.uint64(0)
    for i in range(count):
        flags |= (words[i] & mask) + carry
    return flags


@exact_kernel
def _kind_of(words: Any, at: Any, form: Any) -> Any:
    """What number ``at`` of the block is: 0 finite, 1 NaN, 2 infinity, 3 minus infinity."""
    lanes = form[_LANES]
    lane = np.uint64(at) & (lanes - np.uint64(1))
    if form[_SWAPPED]:
        lane = lanes - np.uint64(1) - lane
    word = words[np.uint64(at) // lanes] >> (lane * form[_BITS])
    sign = np.uint64(1) << (form[_BITS] - np.uint64(1))
    magnitude = word & (sign - np.uint64(1))
    if magnitude < form[_LEAST]:
        return 0
    if magnitude != form[_INFINITY]:
        return 1
    return 3 if word & sign else 2


@exact_kernel
def _count(words: Any, elements: Any, begin: Any, form: Any, found: Any) -> Any:
    parts = np.int64(form[_PARTS])
    for element in range(elements):
        kind = _kind_of(words, element * parts, form)
        if parts == 2:
            other = _kind_of(words, element * parts + 1, form)
            # A NaN counts before an infinity, an infinity before a minus infinity: the lesser number that is not 0.
            kind = max(kind, other) if kind == 0 or other == 0 else min(kind, other)
        if kind:
            if found[_FIRST] < 0:
                found[_FIRST] = begin + element
                found[_KIND] = kind
            found[_NAN + kind - 1] += 1


@exact_kernel
def _block(raw: Any, words: Any, size: Any, begin: Any, form: Any, found: Any) -> Any:
    count = (size + 7) // 8
    for i in range(size, count * 8):
        raw[i] = 0
    if _flags(words, count, form[_MASK], form[_CARRY]) & form[_SIGN]:
        elements = size * 8 // np.int64(form[_BITS] * form[_PARTS])
        _count(words, elements, begin, form, found)


@exact_kernel
def _file(fd: Any, offset: Any, size: Any, begin: Any, raw: Any, words: Any, form: Any, found: Any) -> Any:
    item = np.int64(form[_BITS] * form[_PARTS]) // 8
    done = 0
    while done < size:
        want = min(raw.size, size - done)
        got = pread(fd, raw, 0, want, offset + done)
        if got < want:
            return done + got
        _block(raw, words, got, begin + done // item, form, found)
        done += got
    return done


@exact_kernel
def _memory(data: Any, raw: Any, words: Any, form: Any, found: Any) -> Any:
    item = np.int64(form[_BITS] * form[_PARTS]) // 8
    for start in range(0, data.size, raw.size):
        size = min(raw.size, data.size - start)
        block = data[start : start + size]
        for i in range(size):
            raw[i] = block[i]
        _block(raw, words, size, start // item, form, found)


def scan_file(fd: int, offset: int, size: int, begin: int, form: Form, scratch: Scratch) -> tuple[Counts, int]:
    """Counts a range of a tensor while it is read.

    Args:
        fd: Descriptor of the file.
        offset: Of the first byte of the range.
        size: Bytes of the range, whole elements.
        begin: Number of its first element.
        form: Of the elements.
        scratch: This thread's memory.

    Returns:
        The counts, and how many bytes could be read: fewer than ``size`` where the file ends or fails.
    """
    scratch.found[:] = (-1, 0, 0, 0, 0)
    read = _file(fd, offset, size, begin, scratch.raw, scratch.words, _packed(form), scratch.found)
    return _counts(scratch.found), int(read)


def scan_memory(values: NDArray[np.generic], form: Form, scratch: Scratch) -> Counts:
    """Counts an array whose elements have that form."""
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    data.flags.writeable = False  # one compiled version serves what may be written and what may not
    scratch.found[:] = (-1, 0, 0, 0, 0)
    _memory(data, scratch.raw, scratch.words, _packed(form), scratch.found)
    return _counts(scratch.found)


@functools.cache
def _packed(form: Form) -> NDArray[np.uint64]:
    lanes, swapped = 64 // form.bits, int(sys.byteorder == "big")
    numbers = (form.mask, form.carry, form.sign, form.bits, lanes, form.parts, form.least, form.infinity, swapped)
    return np.array(numbers, np.uint64)


def _counts(found: NDArray[np.int64]) -> Counts:
    first, nan, positive, negative, kind = found.tolist()
    return CLEAN if first < 0 else Counts(nan, positive, negative, first, _KINDS[kind])

"""Hashes of a tensor's elements: in their order, and as a multiset that any permutation keeps.

Both are sums modulo a power of two over a block that lies in the cache, so that NumPy computes them in a few passes;
the sums of all blocks, the dtype and the shape then go through BLAKE2b. They find accidents and are no defence against
somebody who looks for a collision.

**In order** (``positional``). The bytes are read as 64-bit words. A word ``q`` becomes ``w = q ^ (q >> 32)``, which is
invertible, and a block gives two sums of ``w[i] * key[i]`` mod 2^64, with two sets of fixed pseudo-random keys. Words
that differ differ in the low 32 bits of ``w``, so that for any two unequal blocks one sum is the same under a share of
at most 2^-32 of all keys, both under 2^-64.

**Any order** (``order_free``). An element of up to 32 bits becomes ``t = v * A``, ``t ^= t >> 27`` mod 2^32 with an odd
``A``, which is invertible; kept are the sums of ``t`` and of ``t * t`` mod 2^32. Elements of 64 bits the same way mod
2^64. An accidental change is missed once in about 2^64 times; in the worst case, where only signs of 32-bit elements
change and as many up as down, once in about 2^27 times.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import TYPE_CHECKING, List, Tuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_WORDS = 1 << 15
"""64-bit words that are hashed at a time: words, keys and scratch stay in the second-level cache."""

_ELEMENTS = 1 << 16
_GOLDEN = 0x9E3779B97F4A7C15
_ODD_32 = np.uint32(0x9E3779B1)
_ODD_64 = np.uint64(_GOLDEN)
_KEYS_SEED = 0x70726563
_MASK = (1 << 64) - 1

_local = threading.local()


def random_words(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """Returns words ``first`` to ``first + count`` of a fixed stream: the finaliser of SplitMix64 of a counter.

    Integer arithmetic modulo 2^64 only, so that they are the same on every machine and under every NumPy.
    """
    with np.errstate(over="ignore"):
        z = np.arange(first, first + count, dtype=np.uint64)
        z *= _ODD_64
        z += np.uint64((seed * _GOLDEN) & _MASK)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


class _Scratch:
    """Buffers of one thread, so that no pass over a block asks for memory."""

    def __init__(self) -> None:
        self.words = np.empty(_WORDS, np.uint64)
        self.short = np.empty(_ELEMENTS, np.uint32)
        self.short_2 = np.empty(_ELEMENTS, np.uint32)
        self.long_2 = np.empty(_WORDS, np.uint64)


def _scratch() -> _Scratch:
    if not hasattr(_local, "scratch"):
        _local.scratch = _Scratch()
    found: _Scratch = _local.scratch
    return found


_KEYS: List[NDArray[np.uint64]] = []


def _keys() -> NDArray[np.uint64]:
    """Keys of both sums: those of the second are those of the first, one word further (a Toeplitz construction)."""
    if not _KEYS:
        _KEYS.append(random_words(_KEYS_SEED, 0, _WORDS + 1))
    return _KEYS[0]


def positional_hash(array: Array, dtype: str) -> str:
    """Returns 128 bits in hex that are equal for equal bytes, dtype and shape.

    Args:
        array: C order.
        dtype: TensorFlow's name of the type.
    """
    sums: List[int] = []
    raw = array.reshape(-1).view(np.uint8) if array.size and array.dtype.itemsize else np.empty(0, np.uint8)
    whole = len(raw) // 8 * 8
    words = raw[:whole].view(np.uint64)
    for start in range(0, len(words), _WORDS):
        sums.extend(_word_sums(words[start : start + _WORDS]))
    if whole < len(raw):
        tail = raw[whole:].tobytes()
        sums.append(int.from_bytes(tail, "little"))
    return _digest("positional", dtype, array.shape, sums, 16)


def _word_sums(words: NDArray[np.uint64]) -> Tuple[int, int]:
    keys, mixed = _keys(), _scratch().words[: len(words)]
    np.right_shift(words, np.uint64(32), out=mixed)
    np.bitwise_xor(mixed, words, out=mixed)
    first = np.einsum("i,i->", mixed, keys[: len(words)])
    second = np.einsum("i,i->", mixed, keys[1 : len(words) + 1])
    return int(first), int(second)


def order_free_hash(array: Array, dtype: str) -> str:
    """Returns 64 bits in hex that are equal for the same elements in any order and shape, bit for bit.

    Args:
        array: C order.
        dtype: TensorFlow's name of the type.
    """
    size = array.dtype.itemsize
    flat = array.reshape(-1)
    if size in (1, 2, 4):
        sums = _short_sums(flat.view(np.dtype("u{}".format(size))))
    elif size == 8:
        sums = _long_sums(flat.view(np.uint64))
    elif size == 16:
        sums = _long_sums(_folded(flat.view(np.uint64)))
    else:
        sums = _text_sums(flat)
    return _digest("order free", dtype, (array.size,), sums, 8)


def _short_sums(flat: Array) -> List[int]:
    """Sums over elements of at most 32 bits."""
    scratch, totals = _scratch(), [0, 0]
    for start in range(0, len(flat), _ELEMENTS):
        block = flat[start : start + _ELEMENTS]
        mixed, top = scratch.short[: len(block)], scratch.short_2[: len(block)]
        np.multiply(block, _ODD_32, out=mixed, dtype=np.uint32)
        np.right_shift(mixed, np.uint32(27), out=top)
        np.bitwise_xor(mixed, top, out=mixed)
        totals[0] += int(np.add.reduce(mixed, dtype=np.uint32))
        np.multiply(mixed, mixed, out=mixed)
        totals[1] += int(np.add.reduce(mixed, dtype=np.uint32))
    return [total & 0xFFFFFFFF for total in totals]


def _long_sums(flat: NDArray[np.uint64]) -> List[int]:
    """Sums over elements of 64 bits."""
    scratch, totals = _scratch(), [0, 0]
    for start in range(0, len(flat), _WORDS):
        block = flat[start : start + _WORDS]
        mixed, top = scratch.words[: len(block)], scratch.long_2[: len(block)]
        np.multiply(block, _ODD_64, out=mixed)
        np.right_shift(mixed, np.uint64(59), out=top)
        np.bitwise_xor(mixed, top, out=mixed)
        totals[0] += int(np.add.reduce(mixed))
        totals[1] += int(np.einsum("i,i->", mixed, mixed))
    return [total & _MASK for total in totals]


def _folded(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One word for the two of a complex128; the parts change places for another word."""
    first, second = words[0::2].copy(), words[1::2].copy()
    first ^= first >> np.uint64(32)
    second ^= second >> np.uint64(32)
    first *= np.uint64(0xBF58476D1CE4E5B9)
    second *= np.uint64(0x94D049BB133111EB)
    first ^= first >> np.uint64(29)
    first += second
    return first


def _text_sums(flat: Array) -> List[int]:
    """Sum of each element's own hash, for strings."""
    total = 0
    for element in flat:
        content = element.tobytes() if flat.dtype.kind != "S" else bytes(element)
        total += int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")
    return [total & _MASK, (total >> 64) & _MASK]


def _digest(what: str, dtype: str, shape: Tuple[int, ...], sums: List[int], size: int) -> str:
    hasher = hashlib.blake2b(digest_size=size)
    hasher.update("{} 1 {} {}".format(what, dtype, list(shape)).encode("utf-8"))
    hasher.update(struct.pack("<{}Q".format(len(sums)), *sums))
    return hasher.hexdigest()

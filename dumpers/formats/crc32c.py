"""CRC-32C (Castagnoli), the checksum of TensorFlow's tables, checkpoints and record files, at memory speed.

The checksum is the remainder of the data, seen as one long polynomial over GF(2), divided by P. Two facts make it fast
with nothing but NumPy:

* ``P(x)`` divides ``x^5685 + x^1362 + x^426 + 1``, and with a polynomial over GF(2) the one whose exponents are
  multiplied by 64 is divided too. So a 64-bit word may be taken away and XORed into the words 4323, 5259 and 5685
  places later: whole blocks of a big buffer fold into its last 5685 words by plain XOR.
* what is left folds in halves: a front half times ``x^k`` is added to the back half, byte-wise by tables, all at once.
"""

from __future__ import annotations

import functools
import mmap
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]
    Remainders: TypeAlias = NDArray[np.uint32]

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap

_POLYNOMIAL: Final = 0x82F63B78
"""P without its leading term, lowest coefficient in the highest bit, as the register holds it."""

_NEAR, _MIDDLE, _FAR = 4323, 5259, 5685
"""Where a 64-bit word may go: so many words later."""

_ROUND: Final = 4 * _NEAR
_SHORT: Final = 512
"""Below so many bytes a loop in Python is faster than calling NumPy."""

_MASK_DELTA: Final = 0xA282EAD8


def crc32c(data: Buffer, value: int = 0) -> int:
    """Returns the CRC-32C of bytes, or of bytes before them (whose checksum is ``value``) and these.

    Args:
        data: Contiguous bytes.
        value: Checksum of what came before.
    """
    view = memoryview(data).cast("B")
    head = len(view) if len(view) < _SHORT else len(view) % 8
    crc = value ^ 0xFFFFFFFF
    table = _byte_table()
    for byte in view[:head]:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    if head < len(view):
        words = np.frombuffer(view, dtype="<u8", offset=head)
        crc = _remainder(words, crc)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Returns a checksum as files store it: turned and shifted, so that a checksum over checksums stays useful."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def unmasked(crc: int) -> int:
    """Returns the checksum behind a stored one."""
    turned = (crc - _MASK_DELTA) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF


def _remainder(words: Words, crc: int) -> int:
    """Returns the register after these words, ``crc`` being the register before."""
    if len(words) <= 2 * _FAR:
        return _tree(words, crc)
    rest = _fold(words, crc)
    # The words were folded as if _FAR zero words followed them; taking those away again is a division by x^(64 * _FAR).
    return _multiply(_tree(rest, 0), _behind(_FAR))


def _fold(words: Words, crc: int) -> Words:
    """Folds all words into the _FAR words behind their end."""
    work = np.zeros(_FAR + _ROUND, dtype=np.uint64)
    first = True
    for start in range(0, len(words), _ROUND):
        count = min(_ROUND, len(words) - start)
        for at in range(0, count, _NEAR):
            size = min(_NEAR, count - at)
            here = slice(_FAR + at, _FAR + at + size)
            source = words[start + at : start + at + size]
            np.bitwise_xor(source, work[at : at + size], out=work[here])
            if first:
                work[_FAR] ^= np.uint64(crc)
                first = False
            for distance in (_NEAR, _MIDDLE):
                begin = _FAR + at - distance
                np.bitwise_xor(work[here], work[begin : begin + size], out=work[here])
        work[:_FAR] = work[count : count + _FAR].copy()
    rest = work[:_FAR].copy()
    for distance in (_NEAR, _MIDDLE):
        rest[:distance] ^= work[_FAR - distance : _FAR]
    return rest


def _tree(words: Words, crc: int) -> int:
    """Returns the register after a moderate number of words: each by tables, then front halves added to back halves."""
    size = 1 << (len(words) - 1).bit_length()
    padded = np.zeros(size, dtype="<u8")
    padded[size - len(words) :] = words
    padded[size - len(words)] ^= np.uint64(crc)
    lanes = padded.view(np.uint8).reshape(size, 8)
    found = _look_up(_word_tables(), lanes)
    level = size.bit_length() - 2
    while len(found) > 1:
        half = len(found) // 2
        found = _look_up(_shift_tables(level), _bytes_of(found[:half])) ^ found[half:]
        level -= 1
    return int(found[0])


def _look_up(tables: Remainders, lanes: NDArray[np.uint8]) -> Remainders:
    found: Remainders = tables[0].take(lanes[:, 0])
    for table, lane in zip(tables[1:], lanes.T[1:], strict=True):
        found ^= table.take(lane, mode="clip")  # a byte is never outside; the default would look twice
    return found


@functools.cache
def _byte_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


@functools.cache
def _word_tables() -> Remainders:
    """Tables by position in a word: what a byte leaves in the register at the word's end."""
    tables = [np.array(_byte_table(), dtype=np.uint32)]
    for _ in range(7):
        last = tables[-1]
        tables.append(tables[0][last & 0xFF] ^ (last >> np.uint32(8)))
    return _frozen(np.array(tables[::-1]))


@functools.cache
def _shift_tables(level: int) -> Remainders:
    """Tables by byte of a register: what it becomes when 2^level words of zeros follow."""
    if level == 0:  # the register meets the first four bytes of a word, so this is a word of zeros
        return _frozen(_word_tables()[:4].copy())
    half = _shift_tables(level - 1)
    return _frozen(np.array([_look_up(half, _bytes_of(table)) for table in half]))


def _bytes_of(found: Remainders) -> NDArray[np.uint8]:
    return found.astype("<u4", copy=False).view(np.uint8).reshape(len(found), 4)


def _frozen(array: Remainders) -> Remainders:
    array.flags.writeable = False
    return array


def _multiply(left: int, right: int) -> int:
    """Multiplies two remainders modulo P; bit 31 is the coefficient of x^0."""
    product = 0
    for bit in range(31, -1, -1):
        if right >> bit & 1:
            product ^= left
        left = (left >> 1) ^ (_POLYNOMIAL if left & 1 else 0)
    return product


@functools.cache
def _behind(words: int) -> int:
    """Returns x^(-64 * words) modulo P."""
    # P has a constant term, so x^-1 = (P - 1) / x; in the register's order that is one place to the left.
    inverse = ((_POLYNOMIAL << 1) | 1) & 0xFFFFFFFF
    power, exponent = 0x80000000, 64 * words
    while exponent:
        if exponent & 1:
            power = _multiply(power, inverse)
        inverse = _multiply(inverse, inverse)
        exponent >>= 1
    return power

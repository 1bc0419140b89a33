"""Element encodings that NumPy and ml_dtypes lack: HiFloat8, FLOAT8_E8M0, packed bits."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from dumpers.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN = frozenset(
    {
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
        *("float16", "float32", "float64", "complex64", "complex128"),
        *("bfloat16", "float8_e5m2", "float8_e4m3fn"),
    }
)
"""Encodings whose elements are whole bytes and a dtype of NumPy or of every ml_dtypes."""

_TABLES = frozenset({"hifloat8", "float8_e8m0fnu"})


def decoded_dtype(encoding: str) -> str:
    """Returns the dtype name of the array that :func:`decode` makes.

    Raises:
        ValueError: there is no value in, or no known reading of, this encoding.
    """
    if encoding in _TABLES:
        return "float32"
    if encoding == "uint1":
        return "uint8"
    if encoding not in _PLAIN:  # asking NumPy would find packed types too, once ml_dtypes has registered them
        raise ValueError(f"no reading of dtype {encoding} is known")
    return encoding


def stored_bytes(encoding: str, count: int) -> int:
    """Returns how many bytes ``count`` decoded elements take."""
    if encoding in _TABLES:
        return count
    if encoding == "uint1":
        return -(-count // 8)
    return count * numpy_dtype(encoding).itemsize


def decode(raw: NDArray[np.uint8], encoding: str, count: int) -> NDArray[np.generic]:
    """Turns little-endian bytes into a flat array of ``count`` elements of :func:`decoded_dtype`."""
    if encoding in _TABLES:
        table = _hifloat8_table() if encoding == "hifloat8" else _e8m0_table()
        return table[raw]
    if encoding == "uint1":
        return np.unpackbits(raw, count=count, bitorder="big")
    return raw.view(_little_endian(encoding))


def _little_endian(encoding: str) -> np.dtype[np.generic]:
    dtype = numpy_dtype(encoding)
    return dtype if encoding.startswith(("bfloat", "float8")) else dtype.newbyteorder("<")


@functools.cache
def _hifloat8_table() -> NDArray[np.float32]:
    table = np.array([hifloat8_value(code) for code in range(256)], dtype=np.float32)
    table.flags.writeable = False
    return table


@functools.cache
def _e8m0_table() -> NDArray[np.float32]:
    table = np.array([math.ldexp(1.0, code - 127) for code in range(255)] + [math.nan], dtype=np.float32)
    table.flags.writeable = False
    return table


def hifloat8_value(code: int) -> float:
    """Returns the number behind one HiFloat8 byte.

    A prefix of one to four bits says how many exponent bits D follow; the first of them is the exponent's sign, and the
    magnitude has an implied leading one. What is left is fraction. Prefix 0000 with fraction m is the denormal
    2^(m-23), and the code of minus zero is NaN.
    """
    if code == 0x80:
        return math.nan
    sign = -1.0 if code & 0x80 else 1.0
    bits = code & 0x7F
    if bits == 0x6F:
        return sign * math.inf
    if bits < 8:
        return sign * math.ldexp(1.0, bits - 23) if bits else 0.0
    if bits >= 0x60:
        width, rest = 4, bits & 0x1F
    elif bits >= 0x40:
        width, rest = 3, bits & 0x1F
    elif bits >= 0x20:
        width, rest = 2, bits & 0x1F
    elif bits >= 0x10:
        width, rest = 1, bits & 0x0F
    else:
        width, rest = 0, bits & 0x07
    fraction_bits = {4: 1, 3: 2, 2: 3, 1: 3, 0: 3}[width]
    fraction = (rest & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    return sign * math.ldexp(1.0 + fraction, _exponent(rest >> fraction_bits, width))


def _exponent(field: int, width: int) -> int:
    if width == 0:
        return 0
    top = 1 << (width - 1)
    magnitude = (field & (top - 1)) | top
    return -magnitude if field & top else magnitude

"""Element encodings of device files: what NumPy and ml_dtypes lack, packed elements, and the plain ones beside them.

Encodings of whole bytes that NumPy or every ml_dtypes knows stay arrays of that type (``bfloat16``, ``float8_e5m2``,
``float8_e4m3fn``). All others come out as the plain type that holds their values, whatever ml_dtypes is installed.

Several elements a byte: the first element has the low bits, which is the usual order and that of the vendor's public
simulators, but was not confirmed on a dump of a device; only uint1 has the first element in the highest bit. Elements
of six bits are not read: how they are packed is not public. HiFloat4 elements are numbers without their scales.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN: Final = frozenset(
    {
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
        *("float16", "float32", "float64", "complex64", "complex128"),
        *("bfloat16", "float8_e5m2", "float8_e4m3fn"),
    }
)
"""Encodings whose elements are whole bytes and a dtype of NumPy or of every ml_dtypes."""

_SAME_AS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "qint8": "int8",
        "qint16": "int16",
        "qint32": "int32",
        "quint8": "uint8",
        "quint16": "uint16",
        "dual_sub_int8": "int8",
        "dual_sub_uint8": "uint8",
    }
)
"""Quantised types and halves of dual outputs: the integers as they are stored, without any scale."""

_INTEGERS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"int4": ("int8", 4), "uint4": ("uint8", 4), "int2": ("int8", 2), "uint2": ("uint8", 2)}
)
"""Packed integers: the type they come out as, and their bits."""

_FLOAT_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {"hifloat8": 8, "float8_e8m0fnu": 8, "float4_e2m1": 4, "float4_e1m2": 4, "hifloat4": 4}
)
"""Floats that come out as float32, and their bits."""

_NO_READING: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("float6_e3m2", "float6_e2m3"), "how its elements of six bits are packed is not public"),
        "hifloat4_scale": "its rule is not public",
        "dual": "how its two parts are laid out is not public",
    }
)


def decoded_dtype(encoding: str) -> str:
    """Returns the dtype name of the array that :func:`decode` makes.

    Raises:
        ValueError: there is no value in, or no known reading of, this encoding; the message says why.
    """
    if encoding in _FLOAT_BITS:
        return "float32"
    if encoding in _INTEGERS:
        return _INTEGERS[encoding][0]
    if encoding in _SAME_AS:
        return _SAME_AS[encoding]
    if encoding in ("uint1", "complex32"):
        return "uint8" if encoding == "uint1" else "complex64"
    if encoding not in _PLAIN:  # asking NumPy would find packed types too, once ml_dtypes has registered them
        reason = _NO_READING.get(encoding)
        raise ValueError(
            f"dtype {encoding} has no value: {reason}" if reason else f"no reading of dtype {encoding} is known"
        )
    return encoding


def is_plain(encoding: str) -> bool:
    """Tells whether the stored bytes are the array itself."""
    return encoding in _PLAIN


def stored_bytes(encoding: str, count: int) -> int:
    """Returns how many bytes ``count`` decoded elements take.

    Raises:
        ValueError: as for :func:`decoded_dtype`.
    """
    bits = _bits(encoding)
    return -(-count * bits // 8) if bits < 8 else count * (bits // 8)


def _bits(encoding: str) -> int:
    if encoding in _FLOAT_BITS:
        return _FLOAT_BITS[encoding]
    if encoding in _INTEGERS:
        return _INTEGERS[encoding][1]
    if encoding in ("uint1", "complex32"):
        return 1 if encoding == "uint1" else 32
    return numpy_dtype(decoded_dtype(encoding)).itemsize * 8


def decode(raw: NDArray[np.uint8], encoding: str, count: int) -> NDArray[np.generic]:
    """Turns little-endian bytes into a flat array of ``count`` elements of :func:`decoded_dtype`.

    Raises:
        ValueError: as for :func:`decoded_dtype`.
    """
    if encoding == "uint1":
        return np.unpackbits(raw, count=count, bitorder="big")
    if encoding == "complex32":
        return raw.view("<f2").astype(np.float32).view(np.complex64)
    if encoding in _FLOAT_BITS and _FLOAT_BITS[encoding] == 8:
        return _float_table(encoding)[raw]
    if encoding in _FLOAT_BITS or encoding in _INTEGERS:
        # One look-up yields all elements of a byte; the table has them side by side in one wide element.
        return _packed_table(encoding)[raw].view(decoded_dtype(encoding))[:count]
    return raw.view(_little_endian(_SAME_AS.get(encoding, encoding)))


def encode(values: NDArray[np.generic], encoding: str) -> NDArray[np.uint8]:
    """Turns values into the bytes that :func:`decode` reads; unused bits of the last byte are 0.

    Floats are rounded to the nearest value: hifloat8 and float8_e8m0fnu with ties away from zero, as the device
    rounds, the others with ties to the even code. hifloat8 goes to infinity from the middle behind its largest value
    on; the 4-bit floats, which have no infinity, stop at their largest value. What float8_e8m0fnu cannot hold (0,
    negative, too large) becomes its NaN.

    Raises:
        ValueError: as for :func:`decoded_dtype`; an integer out of range; NaN for a 4-bit float.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if encoding == "uint1":
        return np.packbits(_checked(flat, 0, 1).astype(np.uint8), bitorder="big")
    if encoding == "complex32":
        parts = flat.astype(np.complex64).view(np.float32)
        return _bytes(_half(parts))
    if encoding in _FLOAT_BITS:
        codes = _float_codes(flat.astype(np.float64), encoding)
        return codes if _FLOAT_BITS[encoding] == 8 else _pack(codes, 4)
    if encoding in _INTEGERS:
        dtype, bits = _INTEGERS[encoding]
        signed = dtype == "int8"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return _pack(_checked(flat, low, high).astype(np.int8).view(np.uint8) & np.uint8((1 << bits) - 1), bits)
    return _bytes(_cast(flat, _little_endian(decoded_dtype(encoding))))


def _half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return values.astype("<f2")


def _cast(values: NDArray[np.generic], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        low, high = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        values = _checked(values, low, high)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _checked(values: NDArray[np.generic], low: int, high: int) -> NDArray[np.generic]:
    """Refuses values that are not integers of the range."""
    if values.dtype.kind not in "iub":
        raise ValueError(f"{values.dtype} values are no integers")
    if values.size and values.dtype.kind != "b" and (int(values.min()) < low or int(values.max()) > high):
        raise ValueError(f"values reach from {values.min()} to {values.max()}, the type from {low} to {high}")
    return values


def _bytes(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8)


def _pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Puts codes of less than eight bits into bytes, the first into the low bits."""
    each = 8 // bits
    padded = np.zeros(-(-codes.size // each) * each, np.uint8)
    padded[: codes.size] = codes
    packed = np.zeros(padded.size // each, np.uint8)
    for place in range(each):
        packed |= padded[place::each] << np.uint8(place * bits)
    return packed


def _little_endian(encoding: str) -> np.dtype[np.generic]:
    dtype = numpy_dtype(encoding)
    return dtype if encoding.startswith(("bfloat", "float8")) else dtype.newbyteorder("<")


@functools.cache
def _float_table(encoding: str) -> NDArray[np.float32]:
    """Value of each code of an encoding."""
    value = _VALUES[encoding]
    table = np.array([value(code) for code in range(1 << _FLOAT_BITS[encoding])], np.float32)
    table.flags.writeable = False
    return table


@functools.cache
def _packed_table(encoding: str) -> NDArray[np.generic]:
    """For each byte its elements, side by side in one element as wide as all of them."""
    if encoding in _INTEGERS:
        dtype, bits = _INTEGERS[encoding]
        codes = np.arange(1 << bits)
        values = np.where(codes >> (bits - 1), codes - (1 << bits), codes) if dtype == "int8" else codes
        values = values.astype(dtype)
    else:
        bits, values = _FLOAT_BITS[encoding], _float_table(encoding)
    every = np.arange(256)[:, None] >> np.arange(0, 8, bits)
    table = values[every & ((1 << bits) - 1)]
    wide: NDArray[np.generic] = table.view(f"u{table.itemsize * table.shape[1]}")[:, 0]
    wide.flags.writeable = False
    return wide


def _float_codes(values: NDArray[np.float64], encoding: str) -> NDArray[np.uint8]:
    """Returns the code of the nearest value of each number."""
    magnitudes, codes, limits, even = _rounding(encoding)
    size = np.abs(values)
    upper = np.searchsorted(limits, size, side="right")
    if even:  # a number in the middle goes up there; down again where the lower code is the even one
        middle = upper > 0
        middle[middle] = limits[upper[middle] - 1] == size[middle]
        upper -= middle & (codes[upper - 1] % 2 == 0)
    result = codes[upper]
    missing = np.isnan(values)
    if encoding == "float8_e8m0fnu":
        return np.where(missing | (values <= 0) | (upper == magnitudes.size), 255, result).astype(np.uint8)
    sign = np.signbit(values)
    if encoding == "hifloat8":
        negative = np.where(result == 0, 0, result | 0x80)  # the code of minus zero is NaN
        return np.where(missing, 0x80, np.where(sign, negative, result)).astype(np.uint8)
    if missing.any():
        raise ValueError(f"{encoding} has no NaN")
    return np.where(sign, result | 8, result).astype(np.uint8)


@functools.cache
def _rounding(encoding: str) -> tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.float64], bool]:
    """Returns magnitudes in order, their codes, the middles between them, and whether ties go to the even code."""
    table = _float_table(encoding).astype(np.float64)
    positive = table[: table.size // 2] if encoding != "float8_e8m0fnu" else table[:255]
    codes = np.argsort(positive, kind="stable").astype(np.uint8)
    magnitudes = positive[codes]
    if encoding == "hifloat8":  # infinity stands where the format would go on
        magnitudes = np.where(np.isinf(magnitudes), 49152.0, magnitudes)
    limits = (magnitudes[1:] + magnitudes[:-1]) / 2
    if encoding == "float8_e8m0fnu":  # one more, which is NaN
        limits = np.append(limits, 1.5 * magnitudes[-1])
        codes = np.append(codes, np.uint8(255))
    return magnitudes, codes, limits, encoding not in ("hifloat8", "float8_e8m0fnu")


def e8m0_value(code: int) -> float:
    """Returns the power of two behind one FLOAT8_E8M0 byte; 255 is NaN."""
    return math.nan if code == 255 else math.ldexp(1.0, code - 127)


def float4_value(code: int, exponent_bits: int) -> float:
    """Returns the number behind four bits: sign, then ``exponent_bits`` (bias 1 for both kinds), the rest fraction."""
    fraction_bits = 3 - exponent_bits
    exponent, fraction = (code & 7) >> fraction_bits, code & ((1 << fraction_bits) - 1)
    one = 1 << fraction_bits
    size = math.ldexp((one + fraction) / one, exponent - 1) if exponent else fraction / one
    return -size if code & 8 else size


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


_VALUES: Final[Mapping[str, Callable[[int], float]]] = MappingProxyType(
    {
        "hifloat8": hifloat8_value,
        "float8_e8m0fnu": e8m0_value,
        "float4_e2m1": functools.partial(float4_value, exponent_bits=2),
        "float4_e1m2": functools.partial(float4_value, exponent_bits=1),
        "hifloat4": functools.partial(float4_value, exponent_bits=1),
    }
)

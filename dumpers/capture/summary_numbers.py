"""The elements of a captured array as numbers that NumPy computes with, block by block.

TensorFlow's types that NumPy lacks arrive as raw bytes or as arrays of ``ml_dtypes``; the hosts of the capture have no
``ml_dtypes`` to decode them with, so that is done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, NamedTuple, Optional, Tuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


class Numbers(NamedTuple):
    """How the elements of an array are read as numbers.

    Attributes:
        flat: The stored elements in C order; the parts of complex ones one after the other.
        decode: Turns a slice of ``flat`` into float32, float64, or integers of at most 64 bits, each value exact.
        width: Numbers an element: 2 for complex, else 1.
        least_exponent: Exponent of the smallest normal number of the type; None for integers, which have no subnormals.
    """

    flat: Array
    decode: Callable[[Array], Array]
    width: int
    least_exponent: Optional[int]


class _Small(NamedTuple):
    """An eight-bit float.

    Attributes:
        mantissa: Bits of the mantissa.
        bias: Of the exponent.
        special: ``ieee`` (the top exponent is infinity and NaN), ``fn`` (all ones are NaN, no infinity), ``fnuz`` (the
            code of -0 is NaN, no infinity).
    """

    mantissa: int
    bias: int
    special: str


_SMALL = {
    "float8_e5m2": _Small(2, 15, "ieee"),
    "float8_e4m3": _Small(3, 7, "ieee"),
    "float8_e4m3fn": _Small(3, 7, "fn"),
    "float8_e4m3fnuz": _Small(3, 8, "fnuz"),
    "float8_e4m3b11fnuz": _Small(3, 11, "fnuz"),
    "float8_e5m2fnuz": _Small(2, 16, "fnuz"),
}

_USER_TYPE = 2
"""``dtype.isbuiltin`` of a type that some package registered with NumPy."""

_LEAST = {2: -14, 4: -126, 8: -1022}
"""Exponent of the smallest normal number of NumPy's floats, by their bytes."""

_names: Dict[Any, str] = {}
"""What NumPy calls its types: it makes the name anew each time it is asked, which takes as long as a small tensor."""

_tables: Dict[str, Array] = {}


def numbers_of(array: Array, dtype: str) -> Optional[Numbers]:
    """Returns how an array is read as numbers, None for strings and types that are not known here.

    Args:
        array: C order, native byte order.
        dtype: TensorFlow's name of the type, which tells what raw bytes are.
    """
    flat = array.reshape(-1)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "c" and size in (8, 16):
        return Numbers(flat.view(np.float32 if size == 8 else np.float64), _same, 2, _LEAST[size // 2])
    if kind == "f" and size in _LEAST:
        return Numbers(flat, _half if size == 2 else _same, 1, _LEAST[size])
    if kind in "iu":
        return Numbers(flat, _same, 1, None)
    if kind == "b":
        return Numbers(flat.view(np.uint8), _same, 1, None)
    return _raw(flat, dtype) if kind == "V" else None


def _raw(flat: Array, dtype: str) -> Optional[Numbers]:
    size = flat.dtype.itemsize
    if dtype == "bfloat16" and size == 2:
        return Numbers(flat.view(np.uint16), _bfloat16, 1, _LEAST[4])
    if dtype in _SMALL and size == 1:
        table = _small_table(dtype)
        return Numbers(flat.view(np.uint8), lambda block: table[block], 1, 1 - _SMALL[dtype].bias)
    if dtype in ("int4", "uint4", "int2", "uint2") and size == 1:  # one element a byte
        table = _integer_table(dtype)
        return Numbers(flat.view(np.uint8), lambda block: table[block], 1, None)
    return None


def _same(block: Array) -> Array:
    return block


def _half(block: Array) -> Array:
    return block.astype(np.float32)


def _bfloat16(block: Array) -> Array:
    wide = block.astype(np.uint32)
    np.left_shift(wide, np.uint32(16), out=wide)
    return wide.view(np.float32)


def _small_table(dtype: str) -> Array:
    """The 256 values of an eight-bit float."""
    if dtype not in _tables:
        form = _SMALL[dtype]
        _tables[dtype] = np.array([_small_value(code, form) for code in range(256)], dtype=np.float32)
    return _tables[dtype]


def _small_value(code: int, form: _Small) -> float:
    exponent, mantissa = (code & 127) >> form.mantissa, code & ((1 << form.mantissa) - 1)
    sign = -1.0 if code & 128 else 1.0
    if form.special == "fnuz" and code == 128:
        return float("nan")
    if form.special == "fn" and code & 127 == 127:
        return float("nan")
    if form.special == "ieee" and exponent == 127 >> form.mantissa:
        return sign * float("inf") if mantissa == 0 else float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - form.bias - form.mantissa)
    return sign * (mantissa + (1 << form.mantissa)) * 2.0 ** (exponent - form.bias - form.mantissa)


def _integer_table(dtype: str) -> Array:
    """Values of the integers that take a part of a byte: the low bits count, in two's complement if signed."""
    if dtype not in _tables:
        bits = int(dtype[-1])
        values = np.arange(256) & ((1 << bits) - 1)
        if not dtype.startswith("u"):
            values = np.where(values >> (bits - 1) == 1, values - (1 << bits), values)
        _tables[dtype] = values.astype(np.int8)
    return _tables[dtype]


def plain(array: Array, dtype: str) -> Tuple[Array, str]:
    """Returns an array in C order and native byte order without types of other packages, and its type's name.

    ``storable`` of :mod:`.arrays` gives such arrays; this makes them of what else a caller may have.
    """
    kind = array.dtype
    if kind not in _names:
        _names[kind] = kind.name
    if kind.kind == "V" or kind.isbuiltin == _USER_TYPE:
        name = dtype if kind.isbuiltin != _USER_TYPE else _names[kind]
        return np.ascontiguousarray(array).view(np.dtype("V{}".format(kind.itemsize))).reshape(array.shape), name
    if kind.kind in "SU":
        return np.ascontiguousarray(array).reshape(array.shape), "string"
    if not kind.isnative:
        array = array.astype(kind.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array, _names[kind]

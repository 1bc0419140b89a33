"""Representable values: which float type two sides are counted in, and where on its ladder a value stands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.blocks import element_kind, to_float64

if TYPE_CHECKING:
    from numpy.typing import NDArray

_USUAL = {"float64": 1e-7, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}


def float_type(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Returns the float type of the numbers in an array, of the parts of a complex one; None for integers and text.

    Types beyond float64 are compared as float64 everywhere, so they count as it.
    """
    kind = element_kind(dtype)
    if kind == "complex":
        return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    if kind != "float":
        return None
    return dtype.newbyteorder("=") if dtype.itemsize <= 8 else np.dtype(np.float64)


@lru_cache(maxsize=64)
def digits(dtype: np.dtype[Any]) -> int:
    """Returns the number of stored fraction bits: 23 for float32, 7 for bfloat16."""
    import ml_dtypes

    return int(ml_dtypes.finfo(dtype).nmant)


def narrower(left: np.dtype[Any], right: np.dtype[Any]) -> np.dtype[Any] | None:
    """Returns the float type with fewer fraction bits, then with fewer bits; the only float beside integers."""
    found = [kind for kind in (float_type(left), float_type(right)) if kind is not None]
    return min(found, key=lambda kind: (digits(kind), kind.itemsize), default=None)


def epsilon(dtype: np.dtype[Any] | None) -> float:
    """Returns the relative distance of neighbouring values, 0 without a float type (integers are exact)."""
    return 0.0 if dtype is None else 2.0 ** -digits(dtype)


def usual_rtol(dtype: np.dtype[Any] | None) -> float:
    """Returns a relative tolerance that is usual for an element type.

    1e-7 for float64 (``numpy.testing.assert_allclose``), 1e-5 for float32 (``numpy.isclose``), 1e-3 for float16 and
    1e-2 for bfloat16 (TensorFlow's ``assertAllCloseAccordingToType``), the epsilon of eight-bit floats, 0 of integers.
    """
    return 0.0 if dtype is None else _USUAL.get(dtype.name, epsilon(dtype))


@dataclass(frozen=True)
class Ladder:
    """Numbers the representable values of a float type from zero up and down.

    Attributes:
        dtype: The type.
        low: A value below zero with number -p has the position ``low - p``, which in a type of 16 bits and more is
            its bits read as an integer.
    """

    dtype: np.dtype[Any]
    low: int

    def positions(self, values: NDArray[Any]) -> NDArray[np.signedinteger[Any]]:
        """Returns the position of each value, those of another type rounded to this one first.

        The integers are as wide as the type, 64 bits for one of eight. Finite values beyond the type's range count as
        one step above its greatest value. Of a complex array all parts side by side. What stands for NaN and infinities
        means nothing.
        """
        width = 2 if values.dtype.kind == "c" else 1
        own = width == 1 and values.dtype.newbyteorder("=") == self.dtype
        rounded = np.ascontiguousarray(values if own else to_float64(values, width), dtype=self.dtype)
        if self.dtype.itemsize > 1:
            bits: NDArray[np.signedinteger[Any]] = rounded.view(f"i{self.dtype.itemsize}")
            return bits
        table, beyond = _table(self.dtype)
        found = table[rounded.view(np.uint8)]
        if own:
            return found
        wide = to_float64(values, width)
        lost = np.isnan(to_float64(rounded)) & np.isfinite(wide)
        return np.where(lost, np.where(wide < 0, self.low + beyond, beyond), found) if lost.any() else found


def ladder(left: np.dtype[Any], right: np.dtype[Any]) -> Ladder | None:
    """Returns the ladder to count in, None where both sides hold integers."""
    dtype = narrower(left, right)
    if dtype is None:
        return None
    return Ladder(dtype, -(1 << (8 * dtype.itemsize - 1)) if dtype.itemsize > 1 else -(1 << 62))


@lru_cache(maxsize=16)
def _table(dtype: np.dtype[Any]) -> tuple[NDArray[np.int64], int]:
    """Positions of all 256 values of an eight-bit type, and the one above the greatest finite value."""
    with np.errstate(all="ignore"):
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    size = np.where(np.isnan(values), np.inf, np.abs(values))
    steps = np.unique(np.append(size[np.isfinite(size)], 0.0))
    number = np.searchsorted(steps, size).astype(np.int64)
    negative = (values < 0) & (number > 0)
    return np.where(negative, -(1 << 62) + number, number), int(steps.size)

"""Figures of two variables whose bytes are equal: what can be said without the sums that need both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from compare.blocks import element_kind
from compare.figures import BOTH_EMPTY, BOTH_ZERO, COLUMNS, Figures
from dumpers.formats.raw import element_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_CHUNK: Final = 1 << 20


def same_bytes(left: Array, right: Array) -> bool:
    """Tells whether two arrays are equal byte for byte; False where that is no question (strings)."""
    if left.dtype != right.dtype or left.shape != right.shape or left.dtype.hasobject:
        return False
    if not (left.flags.c_contiguous and right.flags.c_contiguous):
        return False
    one, two = left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8)
    return all(
        np.array_equal(one[at : at + _CHUNK], two[at : at + _CHUNK]) for at in range(0, max(one.size, 1), _CHUNK)
    )


def equal_figures(array: Array) -> Figures:
    """Returns the figures of an array against one with the same bytes."""
    census = Census(array.dtype, array.shape)
    flat = array.reshape(-1)
    for start in range(0, array.size, _CHUNK):
        census.add(flat[start : start + _CHUNK])
    return census.figures()


class Census:
    """Counts the elements that are finite, NaN, infinite while blocks pass by; whether all finite ones are zero.

    Attributes:
        dtype, shape: Of the whole variable.
    """

    def __init__(self, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._nan = self._inf = 0
        self._zero = True
        self._floating = element_kind(dtype) in ("float", "complex")

    def add(self, block: Array) -> None:
        """Adds some elements."""
        if self._floating and not np.isfinite(block).all():
            nan = np.isnan(block)
            self._nan += int(nan.sum())
            self._inf += int((np.isinf(block) & ~nan).sum())
            block = block[np.isfinite(block)]
        self._zero = self._zero and not block.astype(bool).any()

    def figures(self) -> Figures:
        """Returns the figures, once all elements have passed."""
        size = element_count(self.shape)
        finite = size - self._nan - self._inf
        reason = ""
        if size == 0:
            reason = BOTH_EMPTY
        elif not finite:
            reason = "no element is finite on both sides"
        elif size == 1:
            reason = "scalar"
        elif self._zero:
            reason = BOTH_ZERO
        reasons = dict.fromkeys(COLUMNS, "equal byte for byte" if finite else reason)
        reasons["CosineSimilarity"] = reason
        defined = ["MaxAbsoluteError"] if finite else []
        defined += ["RelativeEuclideanDistance"] if finite and not self._zero else []
        defined += [] if reason else ["CosineSimilarity"]
        return Figures(
            self.shape,
            self.shape,
            self.dtype.name,
            self.dtype.name,
            size,
            differing=0,
            finite=finite,
            nan_left=self._nan,
            nan_right=self._nan,
            inf_left=self._inf,
            inf_right=self._inf,
            cosine=None if reason else 1.0,
            max_abs_error=0.0 if finite else None,
            relative_distance=0.0 if finite and not self._zero else None,
            reasons={column: text for column, text in reasons.items() if column not in defined},
        )

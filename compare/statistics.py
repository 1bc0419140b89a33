"""What one array holds: count, NaN, infinities, and the range and mean of the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import BLOCK, element_kind, flat, to_float64
from compare.sums import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class TensorStatistics:
    """Figures of one tensor.

    Attributes:
        count: Elements.
        nan: Elements with a NaN (in either part of a complex number).
        positive_inf, negative_inf: Elements with such an infinity and no NaN.
        minimum, maximum, mean, deviation: Over the finite elements (both parts of complex ones), None without any;
            minimum and maximum of integers are exact.
        first_non_finite: Flat C-order index of the first NaN or infinity.
    """

    count: int
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    minimum: float | int | None = None
    maximum: float | int | None = None
    mean: float | None = None
    deviation: float | None = None
    first_non_finite: int | None = None

    @property
    def inf(self) -> int:
        """Infinite elements of either sign."""
        return self.positive_inf + self.negative_inf

    @property
    def finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not (self.nan or self.inf)


def statistics(array: NDArray[np.generic]) -> TensorStatistics:
    """Returns the figures of one array, read in blocks; strings and raw data have a count only."""
    kind = element_kind(array.dtype)
    if kind in ("text", "opaque") or not array.size:
        return TensorStatistics(array.size)
    scan, moments = NonFinite(), Moments()
    low: int | None = None
    high: int | None = None
    width = 2 if kind == "complex" else 1
    blocks = flat(array)
    with np.errstate(all="ignore"):
        for start in range(0, array.size, BLOCK):
            block = blocks[start : start + BLOCK]
            if kind in ("integer", "boolean"):
                least, most = int(block[np.argmin(block)].item()), int(block[np.argmax(block)].item())
                low = least if low is None else min(low, least)
                high = most if high is None else max(high, most)
            finite = scan.add(start, to_float64(block, width), width)
            if finite.size:
                moments.add(finite)
    return _result(array.size, scan, moments, low, high)


def _result(count: int, scan: NonFinite, moments: Moments, low: int | None, high: int | None) -> TensorStatistics:
    some = moments.count > 0
    return TensorStatistics(
        count=count,
        nan=scan.nan,
        positive_inf=scan.positive,
        negative_inf=scan.negative,
        minimum=low if low is not None else moments.low if some else None,
        maximum=high if high is not None else moments.high if some else None,
        mean=moments.mean if some and math.isfinite(moments.mean) else None,
        deviation=moments.deviation if some and math.isfinite(moments.spread) else None,
        first_non_finite=scan.first,
    )


@dataclass
class NonFinite:
    """Counts NaN and infinities block by block and remembers the first.

    Attributes:
        first_nan: Flat index of the first NaN; ``first`` may be an infinity before it.
    """

    nan: int = 0
    positive: int = 0
    negative: int = 0
    first: int | None = None
    first_nan: int | None = None

    def add(self, start: int, values: NDArray[np.float64], width: int = 1) -> NDArray[np.float64]:
        """Counts one block and returns its finite numbers."""
        if math.isfinite(float(values.sum())):
            return values
        finite = np.isfinite(values)
        bad = ~finite.reshape(-1, width).all(axis=1)
        if not bad.any():
            return values
        parts = values.reshape(-1, width)
        is_nan = np.isnan(parts).any(axis=1)
        self.nan += int(np.count_nonzero(is_nan))
        self.positive += int(np.count_nonzero((parts == np.inf).any(axis=1) & ~is_nan))
        self.negative += int(
            np.count_nonzero((parts == -np.inf).any(axis=1) & ~is_nan & ~(parts == np.inf).any(axis=1))
        )
        if self.first is None:
            self.first = start + int(np.argmax(bad))
        if self.first_nan is None and is_nan.any():
            self.first_nan = start + int(np.argmax(is_nan))
        kept: NDArray[np.float64] = values[finite]
        return kept

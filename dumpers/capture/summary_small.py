"""Figures of many small tensors of one type, taken together: each pass of NumPy goes over all their numbers.

They are bit for bit those of one tensor alone, which is added up by ``reduceat`` too: ``reduce`` rounds otherwise.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

import numpy as np

from .summary_exponents import biased_exponents, histogram
from .summary_numbers import Numbers
from .summary_sketch import project_small

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SMALL = 8192
"""Numbers of a tensor up to which it is small. The histogram, by far the dearest figure, looks at every one of them."""

TOGETHER = 128
"""Tensors that go through the passes together: a million numbers at most, whose scratch is 30 MB."""

WIDE = 2.0**400
"""Beyond it, and below its inverse, a power of two is taken out, since squares would leave the range of float64."""

_START = np.zeros(1, np.intp)

FIGURES = (
    "finite", "nan", "pos_inf", "neg_inf", "min", "max", "mean", "l1", "l2", "zero_share", "exponents",
)  # fmt: skip


def small_figures(tensors: Sequence[Numbers], *, projected: bool) -> List[Optional[Dict[str, Any]]]:
    """Returns the figures of each tensor; None for one that has to go through the passes alone.

    That is one with an element that is not finite, or with magnitudes near the ends of float64.

    Args:
        tensors: Of one type; one to :data:`SMALL` numbers each, one number an element.
        projected: Whether projections are wanted too.
    """
    lengths = np.array([len(tensor.flat) for tensor in tensors])
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    kind = tensors[0]
    with np.errstate(all="ignore"):  # a signalling NaN must not warn in a training log
        block = kind.decode(np.concatenate([tensor.flat for tensor in tensors]))
        low, high = np.minimum.reduceat(block, starts).tolist(), np.maximum.reduceat(block, starts).tolist()
        zeros = np.add.reduceat(block == 0, starts, dtype=np.int64).tolist()
        places, bins, bias = biased_exponents(block)
        which = np.repeat(np.arange(len(tensors)) * bins, lengths)
        which += places
        counts = np.bincount(which, minlength=bins * len(tensors)).reshape(len(tensors), bins)
        values = block.astype(np.float64)
        sums = np.add.reduceat(values, starts).tolist()
        squares = np.add.reduceat(values * values, starts).tolist()
        magnitudes = np.add.reduceat(np.absolute(values), starts).tolist()
    found: List[Optional[Dict[str, Any]]] = []
    for index, tensor in enumerate(tensors):
        greatest = max(abs(low[index]), abs(high[index]))
        if not (greatest == 0 or _tame(greatest, block.dtype)):
            found.append(None)
            continue
        size = len(tensor.flat)
        exponents = counts[index]
        exponents[0] -= zeros[index]
        figures: Dict[str, Any] = {
            "finite": size,
            "nan": 0,
            "pos_inf": 0,
            "neg_inf": 0,
            "min": low[index] + 0,
            "max": high[index] + 0,
            "mean": sums[index] / size + 0,
            "l1": magnitudes[index],
            "l2": math.sqrt(squares[index]),
            "zero_share": zeros[index] / size,
            "exponents": histogram(exponents, size, zeros[index], tensor.least_exponent, bias),
        }
        if projected:
            start = int(starts[index])
            figures["projection"] = encoded(project_small(values[start : start + size]))
        found.append(figures)
    return found


def small_sum(values: Floats) -> float:
    """Returns the sum of one or more numbers, rounded as that of a small tensor among others."""
    return float(np.add.reduceat(values, _START)[0])


def encoded(projection: Floats) -> Optional[str]:
    """Returns the numbers of a projection as base64 of little-endian float64, None if one is not finite."""
    if not np.isfinite(projection).all():
        return None
    return base64.b64encode(projection.astype("<f8").tobytes()).decode("ascii")


def _tame(greatest: float, dtype: Any) -> bool:  # noqa: ANN401 - a dtype of NumPy
    """Whether a greatest magnitude is finite, and as float64 not near the ends of the range."""
    return 1 / WIDE < greatest < WIDE if dtype == np.float64 else math.isfinite(greatest)

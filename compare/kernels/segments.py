"""Kernels of sums, means, products and extrema over the segments of a tensor.

A segment is all rows with one id, in a row (``Segment...``) or anywhere (``UnsortedSegment...``). Sums follow
:func:`compare.kernels.gather_scatter.segment_error`; a mean adds a division, or rounds ``x / K`` before the sum; K
factors are off by at most ``K u`` relative (Higham 2002, lemma 3.1) while no product of some of them leaves the normal
numbers, else the segment is not judged. Extrema are exact; a segment with a NaN is not judged, since implementations
differ.

Rows with a negative id are left out. A segment without rows holds 0 in sums, means and the sorted extrema, 1 in
products, and the lowest (highest) number of its dtype in the other maxima (minima).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from compare.bounds import FORMATS, Array, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_indices, checked_scratch, checked_shape
from compare.kernels.gather_scatter import segment_error


def _segments(call: Call) -> tuple[Array, Array, int]:
    """Rows, segment per row (negative ones dropped) and number of segments."""
    data, ids = call.array(0), call.array(1)
    if ids.dtype.kind not in "iu" or ids.shape != data.shape[: ids.ndim]:
        raise KernelError(f"segment ids of shape {ids.shape} and {ids.dtype} for data of shape {data.shape}")
    if _counted(call):
        (count,) = call.integers(2, "num_segments")
    else:
        count = int(ids.max()) + 1 if ids.size else 0
        if ids.size and ids.min() < 0:
            raise KernelError("negative segment id")
        if count > ids.size:  # a damaged id, or one that is far off, would lay out rows that nothing fills
            checked_scratch(count * math.prod(data.shape[ids.ndim :]), "segments that have no rows")
    flat = ids.reshape(-1).astype(np.int64)
    rows = data.reshape((flat.size, *data.shape[ids.ndim :]))
    if np.any(flat < 0):
        rows, flat = rows[flat >= 0], flat[flat >= 0]
    checked_shape([count, *rows.shape[1:]])
    return rows, checked_indices(flat, count), count


def _counted(call: Call) -> bool:
    """Whether the op is told how many segments there are."""
    return call.type.startswith("Unsorted") or call.type.endswith("V2")


def _sum(call: Call) -> list[Array]:
    rows, ids, count = _segments(call)
    result = np.zeros((count, *rows.shape[1:]), rows.dtype)
    np.add.at(result, ids, rows)
    return [result]


def _sum_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    rows, ids, count = _segments(call)
    return [segment_error(np.asarray(rows, dtype=np.float64), ids, count, call.u)]


def _sizes(rows: Array, ids: Array, count: int) -> Array:
    """Rows of each segment, at least one, in a shape that broadcasts to the result."""
    found = np.maximum(np.bincount(ids, minlength=count), 1)
    return found.reshape((-1,) + (1,) * (rows.ndim - 1))


def _mean(call: Call) -> list[Array]:
    (total,) = _sum(call)
    sizes = _sizes(*_segments(call))
    if total.dtype.kind in "iu":
        return [np.asarray(np.sign(total) * (np.abs(total) // sizes), total.dtype)]
    return [total / sizes.astype(total.dtype)]


def _mean_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    rows, ids, count = _segments(call)
    error = segment_error(np.asarray(rows, dtype=np.float64), ids, count, call.u, products=True)
    return [error / _sizes(rows, ids, count) + 3.0 * call.u * np.abs(exact[0])]


def _product(call: Call) -> list[Array]:
    rows, ids, count = _segments(call)
    result = np.ones((count, *rows.shape[1:]), rows.dtype)
    np.multiply.at(result, ids, rows)
    return [result]


def _product_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """``K u`` relative; infinite where factors below (above) one alone leave the normal numbers of the arithmetic."""
    rows, ids, count = _segments(call)
    form = next(found for found in FORMATS.values() if found.u == call.u)
    size = np.abs(np.asarray(rows, dtype=np.float64))
    low, high = np.ones((2, count, *rows.shape[1:]))
    np.multiply.at(low, ids, np.where(size > 0, np.minimum(size, 1.0), 1.0))
    np.multiply.at(high, ids, np.maximum(size, 1.0))
    lost = (low < form.normal) | (np.isfinite(high) & (high > form.largest))
    sizes = _sizes(rows, ids, count)
    lost &= (np.asarray(exact[0]) != 0) & (sizes > 1)
    return [np.where(lost, np.inf, 2.0 * sizes * call.u * np.abs(exact[0]))]


def _extreme(function: np.ufunc, sign: float) -> Callable[[Call], list[Array]]:
    """A maximum (sign -1: where it starts from) or a minimum."""

    def run(call: Call) -> list[Array]:
        rows, ids, count = _segments(call)
        shape = (count, *rows.shape[1:])
        result = np.full(shape, _end(rows.dtype, sign), rows.dtype)
        function.at(result, ids, rows)
        empty = np.bincount(ids, minlength=count) == 0
        result[empty] = _end(call.dtype(0) or rows.dtype, np.copysign(1.0, sign), finite=True) if _counted(call) else 0
        return [result]

    return run


def _end(dtype: np.dtype[Any], sign: float, *, finite: bool = False) -> float | int:
    """The lowest or highest number of a dtype: infinity where maxima start, the largest number where they end up."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.max if sign > 0 else info.min
    if not finite:
        return sign * np.inf
    if dtype.name not in FORMATS:
        raise KernelError(f"the largest number of {dtype} is unknown")
    return sign * FORMATS[dtype.name].largest


def _with_nan(call: Call) -> Array:
    """Segments that hold a NaN."""
    rows, ids, count = _segments(call)
    found = np.zeros((count, *rows.shape[1:]), dtype=bool)
    if rows.dtype.kind in "fV":
        np.logical_or.at(found, ids, np.isnan(rows))
    return found


def _kernels() -> dict[str, Kernel]:
    found = {}
    plain = {"Sum": (_sum, _sum_bound), "Mean": (_mean, _mean_bound), "Prod": (_product, _product_bound)}
    for prefix, most in (("UnsortedSegment", 3), ("Segment", 2)):
        least = 2
        for name, (run, bound) in plain.items():
            found[prefix + name] = Kernel(run, bound, (least, most), accumulates=True)
        found[prefix + "Max"] = Kernel(_extreme(np.maximum, -1.0), None, (least, most), unsure=_with_nan)
        found[prefix + "Min"] = Kernel(_extreme(np.minimum, 1.0), None, (least, most), unsure=_with_nan)
    del found["UnsortedSegmentMean"]  # no such op
    for name in ("Sum", "Prod", "Max", "Min"):
        found[f"Segment{name}V2"] = found[f"UnsortedSegment{name}"]
    return found


SEGMENTS: Mapping[str, Kernel] = MappingProxyType(_kernels())

"""Kernels of running sums and products along an axis.

Each partial sum is a sum of its own: :func:`compare.bounds.sum_error` with what it must know as running sums too, so
that a scan may be done one by one, in blocks or as a tree. A product of K factors is off by at most ``K u`` relative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import FORMATS, Accumulation, Array, Real, few_values, sum_error
from compare.kernels.base import Call, Kernel, checked_axis


def _lines(call: Call) -> tuple[Array, int]:
    """Puts the axis last, in the direction in which it is run through."""
    x = call.array(0)
    (axis,) = call.integers(1, "axis")
    axis = checked_axis(axis, x.ndim)
    lines = np.moveaxis(x, axis, -1)
    return (lines[..., ::-1] if call.flag("reverse") else lines), axis


def _placed(call: Call, lines: Array, axis: int, first: float) -> Array:
    """Puts running results back; ``exclusive`` ones begin with ``first`` and leave out the last."""
    if call.flag("exclusive") and lines.shape[-1]:
        start = np.full((*lines.shape[:-1], 1), first, lines.dtype)
        lines = np.concatenate([start, lines[..., :-1]], axis=-1)
    return np.moveaxis(lines[..., ::-1] if call.flag("reverse") else lines, -1, axis)


def _running(function: Callable[..., Array], first: float) -> Callable[[Call], list[Array]]:
    def run(call: Call) -> list[Array]:
        lines, axis = _lines(call)
        return [_placed(call, np.asarray(function(lines, axis=-1, dtype=lines.dtype)), axis, first)]

    return run


def _sum_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Forwards the squares of all partial sums so far; backwards those of ``s_j - s_i``, multiplied out."""
    lines, axis = _lines(call)
    terms = np.asarray(lines, dtype=np.float64)
    size, partial = np.abs(terms), np.cumsum(terms, axis=-1)
    number = np.arange(1.0, terms.shape[-1] + 1.0)
    squares = np.cumsum(partial**2, axis=-1)
    backward = number * partial**2 - 2.0 * partial * np.cumsum(partial, axis=-1) + squares
    high = np.maximum.accumulate(size, axis=-1)
    low = np.minimum.accumulate(np.where(size > 0, size, np.inf), axis=-1)
    found = Accumulation(
        count=np.cumsum(terms != 0, axis=-1).astype(np.float64),
        magnitude=np.cumsum(size, axis=-1),
        squares=np.cumsum(terms**2, axis=-1),
        total=partial,
        walk=np.maximum(squares, backward),
        products=False,
        uniform=np.logical_or(high <= low * (1 + 1e-6), few_values(terms)),
    )
    return [_placed(call, sum_error(found, call.own_u), axis, 0.0)]


def _product_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Below the normal numbers a partial product may become zero, and all after it with it."""
    lines, axis = _lines(call)
    partial = np.abs(np.cumprod(np.asarray(lines, dtype=np.float64), axis=-1))
    normal = max((form.normal for form in FORMATS.values() if form.u == call.own_u), default=0.0)
    lost = np.minimum.accumulate(np.where(partial > 0, partial, np.inf), axis=-1) < normal
    number = np.arange(1.0, partial.shape[-1] + 1.0)
    return [_placed(call, np.where(lost, partial, 2.0 * number * call.own_u * partial), axis, 0.0)]


CUMULATIVE: Mapping[str, Kernel] = MappingProxyType(
    {
        "Cumsum": Kernel(_running(np.cumsum, 0.0), _sum_bound, (1, 2)),
        "Cumprod": Kernel(_running(np.cumprod, 1.0), _product_bound, (1, 2)),
    }
)

"""Kernels of gathers and scatters, and what sums over groups of rows may be off by.

A gather moves rows: bound 0. Where rows are added, an element's bound depends on how many terms met there
(:func:`compare.bounds.sum_error` with the count per target): an untouched row and a row with one term in an empty
segment are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import Accumulation, Array, Real, few_values, sum_error
from compare.kernels.base import Call, Kernel, KernelError, checked_axis, checked_indices, checked_shape, moving


def _gather(call: Call) -> list[Array]:
    params, indices = call.array(0), call.array(1)
    batch = call.integer("batch_dims")
    batch = batch + indices.ndim if batch < 0 else batch
    has_axis = len(call.inputs) > 2 or "axis" in call.attrs
    (axis,) = call.integers(2, "axis") if has_axis else (batch,)
    axis = checked_axis(axis, params.ndim)
    if not 0 <= batch <= min(axis, indices.ndim) or params.shape[:batch] != indices.shape[:batch]:
        raise KernelError(f"batch_dims {batch} does not fit shapes {params.shape} and {indices.shape}")
    found = checked_indices(indices, params.shape[axis])
    if batch == 0:
        return [np.take(params, found, axis=axis)]
    lead = params.shape[:batch]
    flat = params.reshape((-1, *params.shape[batch:]))
    rows = found.reshape((-1, *indices.shape[batch:]))
    parts = [np.take(p, i, axis=axis - batch) for p, i in zip(flat, rows, strict=True)]
    return [np.stack(parts).reshape((*lead, *parts[0].shape))] if parts else [np.zeros((*lead, 0), params.dtype)]


def _gather_nd(call: Call) -> list[Array]:
    params, indices = call.arrays()
    if call.integer("batch_dims"):
        raise KernelError("batch_dims of GatherNd is not supported")
    return [params[_nd_index(indices, params.shape)]]


def _nd_index(indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    if indices.ndim < 1 or indices.shape[-1] > len(shape):
        raise KernelError(f"indices of shape {indices.shape} into rank {len(shape)}")
    return tuple(checked_indices(indices[..., k], shape[k]) for k in range(indices.shape[-1]))


def _targets(call: Call, updates_at: int) -> tuple[Array, Array]:
    """Row number per update and the updates as rows."""
    var, indices, updates = call.array(0), call.array(1), call.array(updates_at)
    rows = checked_indices(indices, var.shape[0] if var.ndim else 0).reshape(-1)
    return rows, np.broadcast_to(updates, indices.shape + var.shape[1:]).reshape((rows.size, *var.shape[1:]))


def _scatter_update(call: Call) -> list[Array]:
    rows, updates = _targets(call, 2)
    result = call.array(0).copy()
    result[rows] = updates
    return [result]


def _scatter_update_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Exact, except that of several updates of one row any may win: their spread there."""
    rows, updates = _targets(call, 2)
    bound = np.zeros(np.shape(exact[0]))
    np.maximum.at(bound, rows, np.abs(np.asarray(updates, dtype=np.float64) - np.asarray(exact[0])[rows]))
    return [bound]


def _scatter_add(call: Call) -> list[Array]:
    rows, updates = _targets(call, 2)
    result = call.array(0).copy()
    np.add.at(result, rows, -updates if call.type == "ScatterSub" else updates)
    return [result]


def _scatter_add_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Per touched row the sum of its old value and its updates."""
    rows, updates = _targets(call, 2)
    touched, local = np.unique(rows, return_inverse=True)
    sign = -1.0 if call.type == "ScatterSub" else 1.0
    terms = np.concatenate([np.asarray(call.array(0), np.float64)[touched], sign * np.asarray(updates, np.float64)])
    ids = np.concatenate([np.arange(touched.size), local.reshape(-1)])
    bound = np.zeros(np.shape(exact[0]))
    bound[touched] = segment_error(terms, ids, touched.size, call.u)
    return [bound]


def segment_error(rows: Real, ids: Array, segments: int, u: float, *, products: bool = False) -> Real:
    """:func:`sum_error` per segment; terms of one segment are taken in the order of the data.

    Args:
        rows: Terms, float64, ``[n, ...]``.
        ids: Segment of each, in ``[0, segments)``.
        segments: How many there are.
        u: Unit roundoff of the accumulator.
        products: Whether the terms are products, which were rounded themselves.
    """
    result = np.zeros((segments, *rows.shape[1:]))
    if not rows.size:
        return result
    order = np.argsort(ids, kind="stable")
    ordered, present = ids[order], rows[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    if not products:
        # One term alone is copied: only segments with two and more need any further work.
        sizes = np.diff(np.r_[starts, ordered.size])
        many = np.repeat(sizes > 1, sizes)
        if not many.any():
            return result
        ordered, present = ordered[many], present[many]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    result[ordered[starts]] = sum_error(_grouped(present, starts, products=products), u)
    return result


def _grouped(rows: Real, starts: Array, *, products: bool) -> Accumulation:
    """Describes the sums of consecutive groups of rows."""
    total = np.add.reduceat(rows, starts, axis=0)
    lengths = np.diff(np.r_[starts, rows.shape[0]])
    running = np.cumsum(rows, axis=0)
    before = np.concatenate([np.zeros((1, *rows.shape[1:])), running])[starts]
    partial = running - np.repeat(before, lengths, axis=0)
    backward = np.repeat(total, lengths, axis=0) - partial
    size = np.abs(rows)
    high = np.maximum.reduceat(size, starts, axis=0)
    low = np.minimum.reduceat(np.where(size > 0, size, np.inf), starts, axis=0)
    return Accumulation(
        count=np.add.reduceat((rows != 0).astype(np.float64), starts, axis=0),
        magnitude=np.add.reduceat(size, starts, axis=0),
        squares=np.add.reduceat(rows**2, starts, axis=0),
        total=total,
        walk=np.maximum(np.add.reduceat(partial**2, starts, axis=0), np.add.reduceat(backward**2, starts, axis=0)),
        products=products,
        uniform=np.logical_or(high <= low * (1 + 1e-6), few_values(rows)),
    )


def _scatter_nd_rows(call: Call) -> tuple[Array, Array, tuple[int, ...], tuple[int, ...]]:
    indices, updates = call.array(0), call.array(1)
    shape = checked_shape(call.integers(2, "shape"))
    index = _nd_index(indices, shape)
    depth = indices.shape[-1]
    flat = np.ravel_multi_index([part.reshape(-1) for part in index], shape[:depth]) if depth else np.zeros(1, int)
    return np.asarray(flat), updates.reshape((np.size(flat), *shape[depth:])), shape, shape[:depth]


def _scatter_nd(call: Call) -> list[Array]:
    flat, rows, shape, lead = _scatter_nd_rows(call)
    result = np.zeros((int(np.prod(lead)), *rows.shape[1:]), rows.dtype)
    np.add.at(result, flat, rows)
    return [result.reshape(shape)]


def _scatter_nd_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    flat, rows, shape, lead = _scatter_nd_rows(call)
    error = segment_error(np.asarray(rows, dtype=np.float64), flat, int(np.prod(lead)), call.u)
    return [error.reshape(shape)]


GATHERS: Mapping[str, Kernel] = MappingProxyType(
    {
        "GatherV2": moving(_gather, 2, 3),
        "GatherNd": moving(_gather_nd, 2),
        "ScatterUpdate": Kernel(_scatter_update, _scatter_update_bound, (3, 3), moves=True),
        "ScatterAdd": Kernel(_scatter_add, _scatter_add_bound, (3, 3), accumulates=True),
        "ScatterSub": Kernel(_scatter_add, _scatter_add_bound, (3, 3), accumulates=True),
        "ScatterNd": Kernel(_scatter_nd, _scatter_nd_bound, (2, 3), accumulates=True),
    }
)

"""Kernels of ops that compare elements: unique values, largest ones, positions among boundaries, counts.

Nothing is computed but counts, so the bound is 0, except where an op leaves a choice: of equal values any index may
come first. Rows with a NaN have no order and are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import Array, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_axis, checked_shape, moving
from compare.kernels.gather_scatter import segment_error


def comparable(x: Array) -> Array:
    """The same values in a type that NumPy can sort."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _index(call: Call, slot: int, values: Array) -> Array:
    return values.astype(call.dtype(slot) or np.int32)


def _unique(call: Call) -> list[Array]:
    """Values in the order of their first occurrence, the index of each element among them, how often each occurs."""
    x = call.array(0)
    if call.type.endswith("V2") and call.integers(1, "axis"):
        axis = checked_axis(call.integers(1, "axis")[0], x.ndim)
    elif x.ndim == 1:
        axis = 0
    else:
        raise KernelError(f"unique values of shape {x.shape} without an axis")
    rows = np.moveaxis(comparable(x), axis, 0)
    if rows.ndim > 1 and not rows.size:
        raise KernelError(f"unique rows of shape {x.shape}")
    kept = rows.reshape((rows.shape[0], -1)) if rows.ndim > 1 else rows
    _, first, group, count = np.unique(
        kept,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=None if kept.ndim == 1 else 0,
        equal_nan=False,
    )
    order = np.argsort(first, kind="stable")
    place = np.argsort(order, kind="stable")
    result = [np.take(x, first[order], axis=axis), _index(call, 1, place[group.reshape(-1)])]
    return [*result, _index(call, 2, count[order])] if "Counts" in call.type else result


def _list_diff(call: Call) -> list[Array]:
    x, y = call.arrays()
    if x.ndim != 1 or y.ndim != 1:
        raise KernelError(f"lists of shapes {x.shape} and {y.shape}")
    at = np.flatnonzero(~np.isin(comparable(x), comparable(y)))
    return [x[at], _index(call, 1, at)]


def _where(call: Call) -> list[Array]:
    return [np.argwhere(comparable(call.array(0)) != 0).astype(np.int64)]


def _ranked(call: Call) -> tuple[Array, Array, int]:
    """All values of each row from large to small (a lower index first among equals), their indices, and k."""
    x = call.array(0)
    (k,) = call.integers(1, "k")
    if x.ndim < 1 or not 0 <= k <= x.shape[-1]:
        raise KernelError(f"the {k} largest of shape {x.shape}")
    if call.attrs.get("largest") is False or call.integer("dim", -1) not in (-1, x.ndim - 1):
        raise KernelError("smallest values, or along another axis than the last")
    values = comparable(x)
    backward = np.argsort(values[..., ::-1], axis=-1, kind="stable")
    at = (x.shape[-1] - 1 - backward)[..., ::-1]
    return np.take_along_axis(x, at, axis=-1), at, k


def _top_k(call: Call) -> list[Array]:
    values, at, k = _ranked(call)
    return [values[..., :k], _index(call, 1, at[..., :k])]


def _top_k_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Of equal values any may come first: their indices may be off by as much as they lie apart.

    With ``sorted=False`` the values may come in any order.
    """
    values, at, k = _ranked(call)
    wide = comparable(values).astype(np.float64)
    unknown = np.isnan(wide).any(axis=-1, keepdims=True)
    if call.attrs.get("sorted") is False:
        top = wide[..., :k]
        high, low = top.max(axis=-1, keepdims=True, initial=-np.inf), top.min(axis=-1, keepdims=True, initial=np.inf)
        room = np.maximum(high - top, top - low)
        return [np.where(np.isnan(room) | unknown, np.inf, room), np.full(top.shape, float(values.shape[-1]))]
    place = np.broadcast_to(np.arange(wide.shape[-1]), wide.shape)
    new = np.ones(wide.shape, dtype=bool)
    new[..., 1:] = wide[..., 1:] != wide[..., :-1]
    last = np.ones(wide.shape, dtype=bool)
    last[..., :-1] = new[..., 1:]
    start = np.maximum.accumulate(np.where(new, place, 0), axis=-1)
    end = np.minimum.accumulate(np.where(last, place, wide.shape[-1])[..., ::-1], axis=-1)[..., ::-1]
    spread = np.take_along_axis(at, end, axis=-1) - np.take_along_axis(at, start, axis=-1)
    bounds = [np.zeros(wide.shape), spread.astype(np.float64)]
    return [np.where(unknown, np.inf, part)[..., :k] for part in bounds]


def _in_top_k(call: Call) -> list[Array]:
    """Whether fewer than k classes are more probable than the target; never in a row that is not finite."""
    predictions, targets = call.array(0), call.array(1)
    (k,) = call.integers(2, "k")
    if predictions.ndim != 2 or targets.shape != predictions.shape[:1] or targets.dtype.kind not in "iu":
        raise KernelError(f"predictions of shape {predictions.shape} and targets of shape {targets.shape}")
    known = (targets >= 0) & (targets < predictions.shape[1])
    if not predictions.shape[1]:
        return [np.zeros(targets.shape, dtype=bool)]
    mine = np.take_along_axis(predictions, np.where(known, targets, 0)[:, None].astype(np.int64), axis=1)
    better = np.count_nonzero(predictions > mine, axis=1)
    return [known & (better < k) & np.isfinite(predictions).all(axis=1)]


def _bucketize(call: Call) -> list[Array]:
    edges = np.asarray(call.attrs.get("boundaries", ()))
    if edges.ndim != 1 or edges.dtype.kind not in "iuf":
        raise KernelError("boundaries are no list of numbers")
    wide = edges.astype(np.float32).astype(np.float64)
    if np.any(np.diff(wide) < 0):
        raise KernelError("boundaries are not in order")
    return [np.searchsorted(wide, call.array(0).astype(np.float64), side="right").astype(np.int32)]


def _search(side: str) -> Callable[[Call], list[Array]]:
    def run(call: Call) -> list[Array]:
        lines, values = (comparable(part) for part in call.arrays())
        if lines.ndim != 2 or values.ndim != 2 or lines.shape[0] != values.shape[0]:
            raise KernelError(f"sorted rows of shape {lines.shape} and values of shape {values.shape}")
        if np.any(lines[:, 1:] < lines[:, :-1]):
            raise KernelError("rows are not in order")
        found = np.zeros(values.shape, dtype=np.int64)
        for number, (line, row) in enumerate(zip(lines, values, strict=True)):
            found[number] = np.searchsorted(line, row, side="left" if side == "left" else "right")
        return [_index(call, 0, found)]

    return run


def _counted(call: Call) -> tuple[Array, Array, tuple[int, ...]]:
    """Bin of each element that has one, its weight, and the shape of the result."""
    values, (size,), weights = call.array(0), call.integers(1), call.array(2)
    if values.dtype.kind not in "iu" or (call.type == "DenseBincount" and values.ndim not in (1, 2)):
        raise KernelError(f"bins of shape {values.shape} and {values.dtype}")
    if weights.size and weights.shape != values.shape:
        raise KernelError(f"weights of shape {weights.shape} for shape {values.shape}")
    if values.size and values.min() < 0:
        raise KernelError(f"bin {values.min()} is negative")
    lead = values.shape[:1] if call.type == "DenseBincount" and values.ndim == 2 else ()
    shape = checked_shape([*lead, size])
    row = np.arange(values.shape[0])[:, None] if lead else np.zeros((), np.int64)
    weight = weights if weights.size else np.ones(values.shape, weights.dtype)
    inside = values < size
    flat = np.broadcast_to(row * size, values.shape)[inside] + values[inside].astype(np.int64)
    return flat, weight[inside], shape


def _bincount(call: Call) -> list[Array]:
    flat, weight, shape = _counted(call)
    result = np.zeros(int(np.prod(shape)), weight.dtype)
    if call.flag("binary_output"):
        result[flat] = 1
    else:
        np.add.at(result, flat, weight)
    return [result.reshape(shape)]


def _bincount_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Weights add up as in a segment sum; counts are exact below 2^24."""
    flat, weight, shape = _counted(call)
    if call.flag("binary_output") or not call.array(2).size:
        return [np.zeros(shape)]
    return [segment_error(weight.astype(np.float64), flat, int(np.prod(shape)), call.u).reshape(shape)]


ORDERS: Mapping[str, Kernel] = MappingProxyType(
    {
        "Unique": moving(_unique),
        "UniqueV2": moving(_unique, 1, 2),
        "UniqueWithCounts": moving(_unique),
        "UniqueWithCountsV2": moving(_unique, 1, 2),
        "ListDiff": moving(_list_diff, 2),
        "Where": moving(_where),
        "TopKV2": Kernel(_top_k, _top_k_bound, (1, 2), moves=True),
        "InTopKV2": moving(_in_top_k, 2, 3),
        "Bucketize": moving(_bucketize),
        "LowerBound": moving(_search("left"), 2),
        "UpperBound": moving(_search("right"), 2),
        "Bincount": Kernel(_bincount, _bincount_bound, (3, 3), accumulates=True),
        "DenseBincount": Kernel(_bincount, _bincount_bound, (3, 3), accumulates=True),
    }
)

"""Kernels of updates at indices: scattered into a variable's rows (Scatter) or elements (ScatterNd, TensorScatter).

A new value and an extremum are exact; sums are bounded per target by the terms that met there, the old value among
them, products and quotients by one rounding per update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import FORMATS, Array, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_indices
from compare.kernels.gather_scatter import segment_error
from compare.kernels.updates import occurrences

Targets = Callable[[Call], tuple[Array, Array, Array]]


def _rows(call: Call) -> tuple[Array, Array, Array]:
    """Row of each update, updates as rows, and the variable."""
    var, indices, updates = (call.array(k) for k in range(3))
    rows = checked_indices(indices, var.shape[0] if var.ndim else 0).reshape(-1)
    wide = np.broadcast_to(updates, indices.shape + var.shape[1:])
    return rows, wide.reshape((rows.size, *var.shape[1:])), var


def _elements(call: Call) -> tuple[Array, Array, Array]:
    """The same where the last axis of the indices names an element or a slice: the leading axes are joined."""
    var, indices, updates = (call.array(k) for k in range(3))
    if indices.ndim < 1 or not 0 < indices.shape[-1] <= var.ndim:
        raise KernelError(f"indices of shape {indices.shape} into shape {var.shape}")
    depth = indices.shape[-1]
    lead, inner = var.shape[:depth], var.shape[depth:]
    if updates.shape != indices.shape[:-1] + inner:
        raise KernelError(f"updates of shape {updates.shape} for indices of shape {indices.shape}")
    parts = [checked_indices(indices[..., k], lead[k]).reshape(-1) for k in range(depth)]
    flat = np.asarray(np.ravel_multi_index(parts, lead)) if parts[0].size else np.zeros(0, np.int64)
    return flat, updates.reshape((flat.size, *inner)), var.reshape((int(np.prod(lead)), *inner))


def _applied(targets: Targets, function: np.ufunc) -> Callable[[Call], list[Array]]:
    def run(call: Call) -> list[Array]:
        rows, updates, var = targets(call)
        result = var.copy()
        function.at(result, rows, updates)
        return [result.reshape(call.array(0).shape)]

    return run


def _divided(call: Call) -> list[Array]:
    """One after the other; integers are cut towards zero each time."""
    rows, updates, var = _rows(call)
    if var.dtype.kind not in "iu":
        return _applied(_rows, np.divide)(call)
    if not np.all(updates):
        raise KernelError("integer division by zero")
    result = var.copy()
    for at in occurrences(rows):
        old, by = result[rows[at]], updates[at]
        size = np.abs(old) // np.abs(by)
        result[rows[at]] = np.where((old < 0) != (by < 0), -size, size)
    return [result]


def _replaced(targets: Targets) -> Callable[[Call], list[Array]]:
    def run(call: Call) -> list[Array]:
        rows, updates, var = targets(call)
        result = var.copy()
        result[rows] = updates
        return [result.reshape(call.array(0).shape)]

    return run


def _replaced_bound(targets: Targets) -> Callable[[Call, Sequence[Array]], list[Real]]:
    """Of several updates of one element any may win: their spread there."""

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        rows, updates, var = targets(call)
        known = np.asarray(exact[0], dtype=np.float64).reshape(var.shape)
        room = np.zeros(var.shape)
        np.maximum.at(room, rows, np.abs(updates.astype(np.float64) - known[rows]))
        return [room.reshape(call.array(0).shape)]

    return bound


def _sum_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    rows, updates, var = _elements(call)
    touched, local = np.unique(rows, return_inverse=True)
    sign = -1.0 if call.type == "ScatterNdSub" else 1.0
    terms = np.concatenate([np.asarray(var, np.float64)[touched], sign * np.asarray(updates, np.float64)])
    ids = np.concatenate([np.arange(touched.size), local.reshape(-1)])
    room = np.zeros(var.shape)
    room[touched] = segment_error(terms, ids, touched.size, call.own_u)
    return [room.reshape(call.array(0).shape)]


def _factor_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """``2 u`` per update, relative; where a partial result may have left the normal numbers, nothing is known."""
    rows, updates, var = _rows(call)
    count = np.bincount(rows, minlength=var.shape[0]).astype(np.float64)
    count = count.reshape((-1,) + (1,) * (var.ndim - 1))
    size = np.abs(np.asarray(exact[0], dtype=np.float64))
    room = np.where(count > 0, 2.0 * count * call.own_u * size, 0.0)
    form = next(found for found in FORMATS.values() if found.u == call.own_u)
    value, unsafe = np.abs(np.asarray(var, np.float64)), np.zeros(var.shape, dtype=bool)
    factors = np.abs(np.asarray(updates, np.float64))
    for at in occurrences(rows):
        hit = rows[at]
        value[hit] = value[hit] * factors[at] if call.type == "ScatterMul" else value[hit] / factors[at]
        unsafe[hit] |= (value[hit] > 0) & (value[hit] < form.normal) | (value[hit] > form.largest)
    return [np.where(unsafe & (count > 1), np.inf, room)]


SCATTERS: Mapping[str, Kernel] = MappingProxyType(
    {
        "ScatterMul": Kernel(_applied(_rows, np.multiply), _factor_bound, (3, 3)),
        "ScatterDiv": Kernel(_divided, _factor_bound, (3, 3)),
        "ScatterMax": Kernel(_applied(_rows, np.maximum), None, (3, 3), nan_free=True),
        "ScatterMin": Kernel(_applied(_rows, np.minimum), None, (3, 3), nan_free=True),
        "ScatterNdAdd": Kernel(_applied(_elements, np.add), _sum_bound, (3, 3)),
        "ScatterNdSub": Kernel(_applied(_elements, np.subtract), _sum_bound, (3, 3)),
        "ScatterNdMax": Kernel(_applied(_elements, np.maximum), None, (3, 3), nan_free=True),
        "ScatterNdMin": Kernel(_applied(_elements, np.minimum), None, (3, 3), nan_free=True),
        "ScatterNdUpdate": Kernel(_replaced(_elements), _replaced_bound(_elements), (3, 3), moves=True),
    }
)

"""Kernels of ops on sparse tensors (indices, values, shape) and of sums over looked-up rows.

What only moves values is exact. Sums of products follow :func:`compare.kernels.gather_scatter.segment_error`; a mean or
a division by the root of the count multiplies each bound alike and rounds twice more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import Array, Real
from compare.kernels.base import (
    Call,
    Kernel,
    KernelError,
    checked_axis,
    checked_indices,
    checked_scratch,
    checked_shape,
    moving,
)
from compare.kernels.gather_scatter import segment_error


def _places(indices: Array, shape: Sequence[int]) -> Array:
    """Returns the flat positions of entries ``[n, rank]`` in a dense tensor.

    Raises:
        KernelError: an entry lies outside.
    """
    if indices.ndim != 2 or indices.shape[1] != len(shape):
        raise KernelError(f"indices of shape {indices.shape} for rank {len(shape)}")
    columns = [checked_indices(indices[:, axis], size) for axis, size in enumerate(shape)]
    if not columns:
        return np.zeros(len(indices), np.int64)
    return np.asarray(np.ravel_multi_index(columns, tuple(shape)), np.int64)


def _to_dense(call: Call) -> list[Array]:
    indices, values, default = call.array(0), call.array(2), call.array(3).reshape(())
    shape = checked_shape(call.integers(1, "output_shape"))
    entries = indices.reshape(1, 1) if indices.ndim == 0 else indices.reshape(len(indices), -1)
    result = np.full(int(np.prod(shape)), default, values.dtype)
    result[_places(entries, shape)] = values
    return [result.reshape(shape)]


def _reorder(call: Call) -> list[Array]:
    indices, values = call.array(0), call.array(1)
    order = np.argsort(_places(indices, call.integers(2)), kind="stable")
    return [indices[order], values[order]]


def _reorder_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Of entries with equal indices any may come first: the spread of their values there."""
    places = np.sort(_places(call.array(0), call.integers(2)))
    values = np.asarray(exact[1], np.float64)
    bound = np.zeros(values.shape)
    if values.size:
        starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
        spread = np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts)
        bound = np.repeat(spread, np.diff(np.r_[starts, values.size]))
    return [np.zeros(np.shape(exact[0])), bound]


def _reshape(call: Call) -> list[Array]:
    indices, old, new = call.array(0), call.integers(1), call.integers(2)
    if new.count(-1) > 1:
        raise KernelError(f"shape {new} has several unknown sizes")
    if -1 in new:
        rest = int(np.prod([size for size in new if size != -1]))
        whole = int(np.prod(old))
        if not rest or whole % rest:
            raise KernelError(f"shape {old} does not become {new}")
        new[new.index(-1)] = whole // rest
    if int(np.prod(old)) != int(np.prod(new)):
        raise KernelError(f"shape {old} does not become {new}")
    moved = np.unravel_index(_places(indices, old), tuple(new)) if new else ()
    entries = np.stack(moved, axis=1) if len(moved) else np.zeros((len(indices), 0), np.int64)
    return [entries.astype(np.int64), np.asarray(new, np.int64)]


def _fill_empty_rows(call: Call) -> list[Array]:
    """Rows without an entry get one: the default, in the first column."""
    indices, values, shape = call.array(0), call.array(1), call.integers(2)
    default = call.array(3).reshape(())
    if not shape:
        raise KernelError("a sparse tensor without axes has no rows")
    _places(indices, shape)
    empty = np.bincount(indices[:, 0], minlength=shape[0]) == 0
    added = np.zeros((int(empty.sum()), len(shape)), indices.dtype)
    added[:, 0] = np.flatnonzero(empty)
    every = np.concatenate([indices, added])
    order = np.argsort(every[:, 0], kind="stable")
    back = np.empty(len(every), np.int64)
    back[order] = np.arange(len(every))
    filled = np.concatenate([values, np.full(len(added), default, values.dtype)])
    return [every[order], filled[order], empty, back[: len(indices)]]


def _fill_empty_rows_grad(call: Call) -> list[Array]:
    back, gradient = call.array(0), call.array(1)
    places = checked_indices(back, len(gradient))
    rest = np.ones(len(gradient), bool)
    rest[places] = False
    return [gradient[places], np.asarray(gradient[rest].sum(), gradient.dtype)]


def _fill_empty_rows_grad_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    back, gradient = call.array(0), np.asarray(call.array(1), np.float64)
    rest = np.ones(len(gradient), bool)
    rest[checked_indices(back, len(gradient))] = False
    terms = gradient[rest]
    total = segment_error(terms, np.zeros(len(terms), np.int64), 1, call.u)
    return [np.zeros(back.shape), total.reshape(())]


def _concat(call: Call) -> list[Array]:
    count = len(call.inputs) // 3
    if not count or len(call.inputs) != 3 * count:
        raise KernelError(f"{len(call.inputs)} inputs, wanted indices, values and shapes alike")
    parts = call.arrays()
    shapes = [[int(size) for size in shape] for shape in parts[2 * count :]]
    axis = checked_axis(call.integer("concat_dim"), len(shapes[0]))
    moved, start = [], 0
    for indices, shape in zip(parts[:count], shapes, strict=True):
        if len(shape) != len(shapes[0]):
            raise KernelError("sparse tensors of different ranks")
        _places(indices, shape)
        shifted = indices.copy()
        shifted[:, axis] += start
        start += shape[axis]
        moved.append(shifted)
    whole = [*shapes[0][:axis], start, *shapes[0][axis + 1 :]]
    indices = np.concatenate(moved)
    order = np.argsort(_places(indices, whole), kind="stable")
    return [indices[order], np.concatenate(parts[count : 2 * count])[order], np.asarray(whole, np.int64)]


def _slice(call: Call) -> list[Array]:
    indices, values, shape = call.array(0), call.array(1), call.integers(2)
    start, size = np.asarray(call.integers(3)), np.asarray(call.integers(4))
    _places(indices, shape)
    if not len(start) == len(size) == len(shape):
        raise KernelError(f"start {start.tolist()} and size {size.tolist()} for rank {len(shape)}")
    kept = ((indices >= start) & (indices < start + size)).all(axis=1)
    end = np.clip(np.asarray(shape) - start, 0, size)
    return [indices[kept] - start, values[kept], end.astype(np.int64)]


def _reduced(call: Call) -> tuple[Array, Array, tuple[int, ...]]:
    """Terms, the element of the result each goes to, and the shape of the result with all axes."""
    indices, values, shape = call.array(0), call.array(1), call.integers(2)
    axes = {checked_axis(axis, len(shape)) for axis in call.integers(3)}
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    _places(indices, shape)
    moved = np.where([axis in axes for axis in range(len(shape))], 0, indices)
    return values, _places(moved, kept), checked_shape(kept)


def _reduce_sum(call: Call) -> list[Array]:
    values, places, shape = _reduced(call)
    return [_reduced_shape(call, _added(values, places, int(np.prod(shape))).reshape(shape))]


def _reduced_shape(call: Call, result: Array) -> Array:
    if call.flag("keep_dims"):
        return result
    axes = {checked_axis(axis, result.ndim) for axis in call.integers(3)}
    return result.reshape([size for axis, size in enumerate(result.shape) if axis not in axes])


def _reduce_sum_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    values, places, shape = _reduced(call)
    error = segment_error(np.asarray(values, np.float64), places, int(np.prod(shape)), call.u)
    return [_reduced_shape(call, error.reshape(shape))]


def _added(rows: Array, places: Array, count: int) -> Array:
    result = np.zeros((count, *rows.shape[1:]), rows.dtype)
    np.add.at(result, places, rows)
    return result


def _matrix_terms(call: Call) -> tuple[Array, Array, int]:
    """Each product of an entry with a row of the dense matrix, its row in the result, and how many rows that has."""
    indices, values, (rows, columns), dense = call.array(0), call.array(1), _pair(call), call.array(3)
    _places(indices, (rows, columns))
    at, of = (1, 0) if call.flag("adjoint_a") else (0, 1)
    dense = dense.T if call.flag("adjoint_b") else dense
    if dense.ndim != 2 or dense.shape[0] != (rows, columns)[of]:
        raise KernelError(f"a sparse matrix of {rows} x {columns} and a dense one of shape {dense.shape}")
    checked_scratch(len(values) * dense.shape[1], "the products of this sparse matrix")
    return values[:, None] * dense[indices[:, of]], indices[:, at].astype(np.int64), (rows, columns)[at]


def _pair(call: Call) -> tuple[int, int]:
    shape = call.integers(2)
    if len(shape) != 2:
        raise KernelError(f"a sparse matrix of shape {shape}")
    checked_shape(shape)
    return shape[0], shape[1]


def _matmul(call: Call) -> list[Array]:
    return [_added(*_matrix_terms(call))]


def _matmul_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    terms, places, count = _matrix_terms(call)
    return [segment_error(np.asarray(terms, np.float64), places, count, call.u, products=True)]


def _weights(counts: Real, how: str) -> Real:
    """What the sum of a segment of so many rows is multiplied by."""
    least = np.maximum(counts, 1.0)
    return np.asarray({"Sum": np.ones_like(least), "Mean": 1.0 / least, "SqrtN": 1.0 / np.sqrt(least)}[how])


def _how(call: Call) -> str:
    name = call.type.removeprefix("SparseSegment").removesuffix("WithNumSegments")
    return name.removesuffix("V2").removesuffix("Grad")


def _segments(call: Call) -> tuple[Array, Array, int]:
    """Looked-up rows, the segment of each, and how many segments there are."""
    data, indices, ids = call.array(0), call.array(1), call.array(2)
    if data.ndim < 1 or indices.ndim != 1 or ids.shape != indices.shape:
        raise KernelError(f"indices of shape {indices.shape}, segments of shape {ids.shape}, data of {data.shape}")
    if np.any(np.diff(ids) < 0):
        raise KernelError("segment ids are not sorted")
    count = call.integers(3)[0] if len(call.inputs) > 3 else int(ids[-1]) + 1 if ids.size else 0
    checked_shape([count, *data.shape[1:]])
    return data[checked_indices(indices, data.shape[0])], checked_indices(ids, count), count


def _each(weights: Real, rows: Array) -> Array:
    return weights.reshape((-1,) + (1,) * (rows.ndim - 1)).astype(rows.dtype)


def _segment(call: Call) -> list[Array]:
    rows, ids, count = _segments(call)
    total = _added(rows, ids, count)
    return [total * _each(_weights(np.bincount(ids, minlength=count).astype(np.float64), _how(call)), total)]


def _segment_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    rows, ids, count = _segments(call)
    error = segment_error(np.asarray(rows, np.float64), ids, count, call.u)
    how = _how(call)
    if how == "Sum":
        return [error]
    weights = _weights(np.bincount(ids, minlength=count).astype(np.float64), how)
    return [error * _each(weights, error) + 4.0 * call.u * np.abs(exact[0])]


def _gradient_terms(call: Call) -> tuple[Array, Array, int]:
    """Scaled rows of the gradient, the row of the table each goes to, and how many rows that has."""
    gradient, indices, ids, (count,) = call.array(0), call.array(1), call.array(2), call.integers(3)
    if gradient.ndim < 1 or indices.ndim != 1 or ids.shape != indices.shape:
        raise KernelError(f"indices of shape {indices.shape}, segments of shape {ids.shape}")
    checked_shape([count, *gradient.shape[1:]])
    found = checked_indices(ids, gradient.shape[0])
    weights = _weights(np.bincount(found, minlength=gradient.shape[0]).astype(np.float64), _how(call))
    scaled = gradient if _how(call) == "Sum" else gradient * _each(weights, gradient)
    return scaled[found], checked_indices(indices, count), count


def _segment_grad(call: Call) -> list[Array]:
    return [_added(*_gradient_terms(call))]


def _segment_grad_rows(call: Call) -> list[Array]:
    """Version 2: only the rows of the table that got a gradient, and which they are, in order."""
    found, local = np.unique(call.array(1), return_inverse=True)
    (whole,) = _segment_grad(_of_rows(call, local, found.size))
    checked_indices(found, call.integers(3)[0])
    return [whole, found]


def _of_rows(call: Call, local: Array, count: int) -> Call:
    """The same gradient of a table of those rows alone."""
    return call.with_inputs([call.array(0), local.reshape(-1), call.array(2), np.asarray(count)])


def _segment_grad_rows_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    found, local = np.unique(call.array(1), return_inverse=True)
    return [*_segment_grad_bound(_of_rows(call, local, found.size), exact[:1]), np.zeros(found.shape)]


def _segment_grad_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """A sum of rows; scaled ones carry two roundings each besides."""
    rows, places, count = _gradient_terms(call)
    wide = np.asarray(rows, np.float64)
    error = segment_error(wide, places, count, call.u)
    if _how(call) == "Sum":
        return [error]
    return [error + 4.0 * call.u * _added(np.abs(wide), places, count)]


def _sums(
    names: Sequence[str], run: Callable[[Call], list[Array]], bound: Callable[..., list[Real]]
) -> dict[str, Kernel]:
    return {name: Kernel(run, bound, (3, 4), accumulates=True) for name in names}


_HOW = ("Sum", "Mean", "SqrtN")

SPARSE: Mapping[str, Kernel] = MappingProxyType(
    {
        "SparseToDense": moving(_to_dense, 4),
        "SparseReorder": Kernel(_reorder, _reorder_bound, (3, 3), moves=True),
        "SparseReshape": moving(_reshape, 3),
        "SparseFillEmptyRows": moving(_fill_empty_rows, 4),
        "SparseFillEmptyRowsGrad": Kernel(_fill_empty_rows_grad, _fill_empty_rows_grad_bound, (2, 2), accumulates=True),
        "SparseConcat": moving(_concat, 3, -1),
        "SparseSlice": moving(_slice, 5),
        "SparseReduceSum": Kernel(_reduce_sum, _reduce_sum_bound, (4, 4), accumulates=True),
        "SparseTensorDenseMatMul": Kernel(_matmul, _matmul_bound, (4, 4), accumulates=True),
    }
    | _sums([f"SparseSegment{how}" for how in _HOW], _segment, _segment_bound)
    | _sums([f"SparseSegment{how}WithNumSegments" for how in _HOW], _segment, _segment_bound)
    | _sums([f"SparseSegment{how}Grad" for how in _HOW], _segment_grad, _segment_grad_bound)
    | _sums([f"SparseSegment{how}GradV2" for how in _HOW], _segment_grad_rows, _segment_grad_rows_bound)
)

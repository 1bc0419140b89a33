"""Kernels of ops that move, shape or convert data, and of those that compute shapes. All exact: bound 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from compare.bounds import Array, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_axis, checked_shape, moving
from dumpers.dtypes import numpy_dtype

TYPE_NUMBERS: Mapping[int, str] = MappingProxyType(
    {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64", 10: "bool"}
    | {14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}
)
"""TensorFlow's DataType numbers."""

TYPE_WORDS: Mapping[str, str] = MappingProxyType({"float": "float32", "half": "float16", "double": "float64"})


def target_dtype(call: Call, *names: str) -> np.dtype[Any] | None:
    """Returns the output dtype: as declared by the port, else by one of the attributes, else None.

    Raises:
        KernelError: the attribute names no dtype.
    """
    declared = call.dtype(0)
    value = next((call.attrs[name] for name in names if call.attrs.get(name) is not None), None)
    if declared is not None or value is None:
        return declared
    word = TYPE_NUMBERS.get(value, "") if isinstance(value, int) else str(value).lower().removeprefix("dt_")
    try:
        return numpy_dtype(TYPE_WORDS.get(word, word))
    except ValueError as error:
        raise KernelError(f"unknown dtype {value!r}") from error


def _same(call: Call) -> list[Array]:
    return [call.array(0)]


def _second(call: Call) -> list[Array]:
    return [call.array(1)]


def _cast(call: Call) -> list[Array]:
    x, target = call.array(0), target_dtype(call, "DstT", "dst_type")
    if target is None:
        raise KernelError("target dtype unknown")
    if target.kind in "iub" and x.dtype.kind not in "iub":
        # NumPy's conversion of NaN and of numbers out of range is undefined; _cast_bound leaves those out.
        wide = x.astype(np.float64)
        return [(wide != 0) if target.kind == "b" else _truncated(wide, target)]
    return [x.astype(target)]


def _truncated(x: Real, target: np.dtype[Any]) -> Array:
    valid = _fits(x, target)
    result: Array = np.trunc(np.where(valid, x, 0.0)).astype(target)
    return result


def _fits(x: Real, target: np.dtype[Any]) -> Array:
    info = np.iinfo(target)
    # The upper limit of int64 is no float64; the comparison must be strict there.
    fits: Array = (np.trunc(x) >= float(info.min)) & (np.trunc(x) < float(info.max) + (0.0 if info.bits > 53 else 1.0))
    return fits


def _cast_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Conversions round once, to nearest even; a float beyond the range of an integer type may become anything."""
    x, target = call.array(0), exact[0].dtype
    if target.kind in "iu" and x.dtype.kind not in "iub":
        return [np.where(_fits(x.astype(np.float64), target), 0.0, np.inf)]
    return [np.zeros(x.shape)]


def _reshape(call: Call) -> list[Array]:
    x, dims = call.array(0), call.integers(1, "shape")
    return [x.reshape(dims)]


def _expand_dims(call: Call) -> list[Array]:
    x = call.array(0)
    (axis,) = call.integers(1, "axis", "dim")
    return [np.expand_dims(x, checked_axis(axis, x.ndim + 1))]


def _squeeze(call: Call) -> list[Array]:
    x = call.array(0)
    dims = call.attrs.get("squeeze_dims") or call.attrs.get("axis")
    if not dims:
        return [np.squeeze(x)]
    return [np.squeeze(x, axis=tuple(checked_axis(int(d), x.ndim) for d in np.asarray(dims).reshape(-1)))]


def _transpose(call: Call) -> list[Array]:
    return [np.transpose(call.array(0), call.integers(1, "perm"))]


def _tile(call: Call) -> list[Array]:
    x, times = call.array(0), call.integers(1, "multiples")
    if len(times) != x.ndim:
        raise KernelError(f"{len(times)} multiples for rank {x.ndim}")
    checked_shape([size * count for size, count in zip(x.shape, times, strict=True)])
    return [np.tile(x, times)]


def _slice(call: Call) -> list[Array]:
    x, begin, size = call.array(0), call.integers(1, "begin", "offsets"), call.integers(2, "size")
    if not len(begin) == len(size) == x.ndim:
        raise KernelError(f"begin and size of lengths {len(begin)} and {len(size)} for rank {x.ndim}")
    cut = []
    for first, length, whole in zip(begin, size, x.shape, strict=True):
        end = whole if length == -1 else first + length
        if not 0 <= first <= end <= whole:
            raise KernelError(f"slice {first}..{end} outside 0..{whole}")
        cut.append(slice(first, end))
    return [x[tuple(cut)]]


def _strided_index(call: Call, first: int) -> tuple[Any, ...]:
    begin, end, step = (call.integers(first + k, n) for k, n in enumerate(("begin", "end", "strides")))
    if not len(begin) == len(end) == len(step):
        raise KernelError("begin, end and strides of different lengths")
    masks = {name: call.integer(name + "_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    index: list[Any] = []
    for k, (low, high, stride) in enumerate(zip(begin, end, step, strict=True)):
        here = {name: bool(mask >> k & 1) for name, mask in masks.items()}
        if here["ellipsis"]:
            index.append(Ellipsis)
        elif here["new_axis"]:
            index.append(np.newaxis)
        elif here["shrink_axis"]:
            index.append(low)
        else:
            index.append(slice(None if here["begin"] else low, None if here["end"] else high, stride))
    return tuple(index)


def _strided_slice(call: Call) -> list[Array]:
    return [np.asarray(call.array(0)[_strided_index(call, 1)])]


def _strided_slice_grad(call: Call) -> list[Array]:
    shape, dy = checked_shape(call.integers(0, "shape")), call.array(4)
    result = np.zeros(shape, dy.dtype)
    result[_strided_index(call, 1)] = dy
    return [result]


def _pad(call: Call) -> list[Array]:
    x = call.array(0)
    widths = np.asarray(call.integers(1, "paddings")).reshape(-1, 2)
    if len(widths) != x.ndim or (widths < 0).any():
        raise KernelError(f"paddings {widths.tolist()} for rank {x.ndim}")
    shape = checked_shape([n + int(a) + int(b) for n, (a, b) in zip(x.shape, widths, strict=True)])
    fill = call.array(2) if len(call.inputs) > 2 else np.zeros((), x.dtype)
    result = np.full(shape, fill.reshape(()), x.dtype)
    result[tuple(slice(int(a), int(a) + n) for n, (a, _) in zip(x.shape, widths, strict=True))] = x
    return [result]


def _broadcast_to(call: Call) -> list[Array]:
    return [np.broadcast_to(call.array(0), checked_shape(call.integers(1, "shape")))]


def _fill(call: Call) -> list[Array]:
    return [np.full(checked_shape(call.integers(0, "dims")), call.array(1).reshape(()), call.array(1).dtype)]


def _zeros_like(call: Call) -> list[Array]:
    return [np.zeros_like(call.array(0))]


def _ones_like(call: Call) -> list[Array]:
    return [np.ones_like(call.array(0))]


def _concat(call: Call) -> list[Array]:
    if call.type == "Concat":
        axis, parts = call.integers(0)[0], [call.array(k) for k in range(1, len(call.inputs))]
    elif call.type == "ConcatV2":
        axis, parts = call.integers(len(call.inputs) - 1)[0], [call.array(k) for k in range(len(call.inputs) - 1)]
    else:
        axis, parts = call.integer("concat_dim"), list(call.arrays())
    return [np.concatenate(parts, axis=checked_axis(axis, parts[0].ndim))]


def _concat_offset(call: Call) -> list[Array]:
    axis, shapes = call.integers(0)[0], [call.integers(k) for k in range(1, len(call.inputs))]
    axis = checked_axis(axis, len(shapes[0]))
    result, offset = [], 0
    for shape in shapes:
        row = np.zeros(len(shape), call.array(1).dtype)
        row[axis] = offset
        result.append(row)
        offset += shape[axis]
    return result


def _split(call: Call) -> list[Array]:
    (axis,), x = call.integers(0, "split_dim"), call.array(1)
    parts = call.integer("num_split", len(call.dtypes))
    return list(np.split(x, parts, axis=checked_axis(axis, x.ndim))) if parts > 0 else []


def _split_v(call: Call) -> list[Array]:
    x, sizes, (axis,) = call.array(0), call.integers(1, "size_splits"), call.integers(2, "split_dim")
    axis = checked_axis(axis, x.ndim)
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s != -1)
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise KernelError(f"sizes {sizes} do not add up to {x.shape[axis]}")
    return list(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _pack(call: Call) -> list[Array]:
    return [np.stack(call.arrays(), axis=checked_axis(call.integer("axis"), call.array(0).ndim + 1))]


def _unpack(call: Call) -> list[Array]:
    x = call.array(0)
    return list(np.moveaxis(x, checked_axis(call.integer("axis"), x.ndim), 0))


def _number_type(call: Call) -> np.dtype[Any]:
    return target_dtype(call, "out_type", "dtype") or np.dtype(np.int32)


def _shape(call: Call) -> list[Array]:
    return [np.asarray(x.shape, dtype=_number_type(call)) for x in call.arrays()]


def _size(call: Call) -> list[Array]:
    return [np.asarray(call.array(0).size, dtype=_number_type(call))]


def _rank(call: Call) -> list[Array]:
    return [np.asarray(call.array(0).ndim, dtype=np.int32)]


def _range(call: Call) -> list[Array]:
    start, limit, delta = (call.array(k).reshape(()) for k in range(3))
    if delta == 0:
        raise KernelError("range with delta 0")
    count = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    checked_shape([count])
    steps = np.arange(count, dtype=start.dtype if start.dtype.kind in "iu" else np.float64)
    return [(start + steps * delta).astype(start.dtype)]


def _range_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Integers are exact; floats are multiplied or added up step by step: one unit of the largest value per step."""
    values = np.abs(np.asarray(exact[0], dtype=np.float64))
    if call.array(0).dtype.kind in "iu" or not values.size:
        return [np.zeros(values.shape)]
    return [(np.arange(values.size) + 2.0) * call.own_u * values.max()]


def _gradient_axes(call: Call) -> list[Array]:
    """Over which axes the gradients of a broadcast binary op are summed."""
    left, right = call.integers(0), call.integers(1)
    kind = call.array(0).dtype
    if left == right:
        return [np.zeros(0, kind), np.zeros(0, kind)]
    rank = max(len(left), len(right))
    a, b = [1] * (rank - len(left)) + left, [1] * (rank - len(right)) + right
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        raise KernelError(f"shapes {left} and {right} do not broadcast")
    return [np.asarray([k for k, size in enumerate(shape) if size == 1], dtype=kind) for shape in (a, b)]


def _invert(call: Call) -> list[Array]:
    x = call.array(0)
    if sorted(int(v) for v in x.reshape(-1)) != list(range(x.size)):
        raise KernelError("not a permutation")
    return [np.argsort(x).astype(x.dtype)]


def _one_hot(call: Call) -> list[Array]:
    indices, (depth,) = call.array(0), call.integers(1, "depth")
    on, off = call.array(2).reshape(()), call.array(3).reshape(())
    axis = call.integer("axis", -1)
    checked_shape([*indices.shape, depth])
    hot = np.where(indices[..., None] == np.arange(depth), on, off).astype(on.dtype)
    return [np.moveaxis(hot, -1, axis if axis >= 0 else indices.ndim)]


SHAPES: Mapping[str, Kernel] = MappingProxyType(
    {name: moving(_same) for name in ("Identity", "StopGradient", "PreventGradient", "Snapshot", "ReadVariableOp")}
    | {
        "Assign": moving(_second, 2),
        "Cast": Kernel(_cast, _cast_bound, (1, 1), moves=True),
        "Reshape": moving(_reshape, 1, 2),
        "ExpandDims": moving(_expand_dims, 1, 2),
        "Squeeze": moving(_squeeze),
        "Transpose": moving(_transpose, 1, 2),
        "Tile": moving(_tile, 1, 2),
        "Slice": moving(_slice, 1, 3),
        "StridedSlice": moving(_strided_slice, 1, 4),
        "StridedSliceGrad": moving(_strided_slice_grad, 5),
        "Pad": moving(_pad, 1, 3),
        "BroadcastTo": moving(_broadcast_to, 1, 2),
        "Fill": moving(_fill, 2),
        "ZerosLike": moving(_zeros_like),
        "OnesLike": moving(_ones_like),
        "Concat": moving(_concat, 2, -1),
        "ConcatV2": moving(_concat, 2, -1),
        "ConcatD": moving(_concat, 1, -1),
        "ConcatOffset": moving(_concat_offset, 2, -1),
        "Split": moving(_split, 2),
        "SplitV": moving(_split_v, 1, 3),
        "Pack": moving(_pack, 1, -1),
        "Unpack": moving(_unpack),
        "Shape": moving(_shape),
        "ShapeN": moving(_shape, 1, -1),
        "Size": moving(_size),
        "Rank": moving(_rank),
        "Range": Kernel(_range, _range_bound, (3, 3), moves=True),
        "BroadcastGradientArgs": moving(_gradient_axes, 2),
        "InvertPermutation": moving(_invert),
        "OneHot": moving(_one_hot, 4),
    }
)

"""Kernels that put elements elsewhere: reversed, rolled, parted and stitched, mirrored, on a diagonal.

All exact but the gradient of a mirror, which adds up what came from one element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import Array, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_axis, checked_indices, checked_shape, moving


def _reverse(call: Call) -> list[Array]:
    x = call.array(0)
    if call.type == "Reverse":
        chosen = call.array(1).reshape(-1)
        if chosen.size != x.ndim:
            raise KernelError(f"{chosen.size} flags for rank {x.ndim}")
        axes = [axis for axis, turned in enumerate(chosen) if turned]
    else:
        axes = [checked_axis(axis, x.ndim) for axis in call.integers(1, "axis")]
    if len(set(axes)) != len(axes):
        raise KernelError(f"axes {axes} repeat themselves")
    return [np.flip(x, tuple(axes))]


def _reverse_sequence(call: Call) -> list[Array]:
    """The first ``seq_lengths[b]`` elements of each batch element are reversed, the rest stay."""
    x, lengths = call.array(0), call.array(1)
    along, batch = checked_axis(call.integer("seq_dim"), x.ndim), checked_axis(call.integer("batch_dim"), x.ndim)
    if along == batch or lengths.shape != (x.shape[batch],):
        raise KernelError(f"lengths of shape {lengths.shape} for shape {x.shape}, axes {along} and {batch}")
    size = x.shape[along]
    if lengths.size and (lengths.min() < 0 or lengths.max() > size):
        raise KernelError(f"lengths outside 0..{size}")
    place = np.arange(size)
    count = lengths.astype(np.int64)[:, None]
    at = np.where(place < count, count - 1 - place, place)
    moved = np.moveaxis(x, (batch, along), (0, 1))
    found = moved[np.arange(x.shape[batch])[:, None], at]
    return [np.moveaxis(found, (0, 1), (batch, along))]


def _roll(call: Call) -> list[Array]:
    x, shifts, axes = call.array(0), call.integers(1, "shifts", "shift"), call.integers(2, "dims", "axis")
    if len(shifts) != len(axes):
        raise KernelError(f"{len(shifts)} shifts along {len(axes)} axes")
    return [np.roll(x, shifts, [checked_axis(axis, x.ndim) for axis in axes])]


def _partition(call: Call) -> list[Array]:
    data, parts, count = call.array(0), call.array(1), call.integer("num_partitions", len(call.dtypes))
    if parts.shape != data.shape[: parts.ndim] or not 0 < count <= 2**20:
        raise KernelError(f"{count} partitions of shape {parts.shape} for data of shape {data.shape}")
    numbers = checked_indices(parts, count).reshape(-1)
    rows = data.reshape((numbers.size, *data.shape[parts.ndim :]))
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=count))[:-1]
    return list(np.split(rows[order], ends))


def _stitched(call: Call) -> tuple[Array, Array, int]:
    """Target row and row of each part in the order of the inputs, and how many rows there are."""
    half = len(call.inputs) // 2
    indices, data = call.arrays()[:half], call.arrays()[half:]
    if half * 2 != len(call.inputs):
        raise KernelError("as many lists of indices as of data needed")
    inner = data[0].shape[indices[0].ndim :]
    for at, part in zip(indices, data, strict=True):
        if at.dtype.kind not in "iu" or part.shape != at.shape + inner:
            raise KernelError(f"data of shape {part.shape} for indices of shape {at.shape}")
    rows = np.concatenate([at.reshape(-1).astype(np.int64) for at in indices])
    count = int(rows.max(initial=-1)) + 1
    checked_shape([count, *inner])
    parts = [part.reshape((at.size, *inner)) for at, part in zip(indices, data, strict=True)]
    return checked_indices(rows, count), np.concatenate(parts), count


def _stitch(call: Call) -> list[Array]:
    rows, parts, count = _stitched(call)
    result = np.zeros((count, *parts.shape[1:]), parts.dtype)
    result[rows] = parts
    return [result]


def _stitch_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Rows that nobody writes may hold anything; of several writers the last wins, in the parallel form any of them."""
    rows, parts, count = _stitched(call)
    bound = np.full((count, *parts.shape[1:]), np.inf)
    bound[rows] = 0.0
    if call.type == "ParallelDynamicStitch":
        np.maximum.at(bound, rows, np.abs(parts.astype(np.float64) - np.asarray(exact[0], np.float64)[rows]))
    return [bound]


def _mirror(call: Call, shape: Sequence[int]) -> list[Array]:
    """For each axis, from which element of an array of ``shape`` each padded one comes."""
    widths = np.asarray(call.integers(1, "paddings")).reshape(-1, 2)
    mode = str(call.attrs.get("mode", "REFLECT")).upper()
    if mode not in ("REFLECT", "SYMMETRIC") or len(widths) != len(shape) or (widths < 0).any():
        raise KernelError(f"paddings {widths.tolist()} of mode {mode} for rank {len(shape)}")
    inside = 1 if mode == "REFLECT" else 0
    checked_shape([size + int(width.sum()) for size, width in zip(shape, widths, strict=True)])
    places = []
    for size, width in zip(shape, widths, strict=True):
        if width.max() > max(size - inside, 0):
            raise KernelError(f"padding {width.tolist()} of {size} elements")
        before = np.arange(int(width[0]), 0, -1) - 1 + inside
        after = size - 1 - inside - np.arange(int(width[1]))
        places.append(np.concatenate([before, np.arange(size), after]))
    return places


def _mirror_pad(call: Call) -> list[Array]:
    x = call.array(0)
    places = _mirror(call, x.shape)
    return [x[np.ix_(*places)] if places else x]


def _folded(call: Call, dy: Array) -> Array:
    """Adds each padded element to the one it came from, axis by axis."""
    widths = np.asarray(call.integers(1, "paddings")).reshape(-1, 2)
    if len(widths) != dy.ndim:
        raise KernelError(f"paddings {widths.tolist()} for rank {dy.ndim}")
    shape = [size - int(width.sum()) for size, width in zip(dy.shape, widths, strict=True)]
    for axis, place in enumerate(_mirror(call, checked_shape(shape))):
        lines = np.moveaxis(dy, axis, 0)
        result = np.zeros((shape[axis], *lines.shape[1:]), dy.dtype)
        np.add.at(result, place, lines)
        dy = np.moveaxis(result, 0, axis)
    return dy


def _mirror_grad(call: Call) -> list[Array]:
    return [_folded(call, call.array(0))]


def _mirror_grad_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """A sum of a few terms: ``(K - 1) u sum|t|``."""
    dy = call.array(0).astype(np.float64)
    count, size = _folded(call, np.ones_like(dy)), _folded(call, np.abs(dy))
    return [np.maximum(count - 1.0, 0.0) * call.own_u * size * (1.0 + count * call.own_u)]


def _diagonal(call: Call) -> list[Array]:
    x = call.array(0)
    checked_shape([x.size, x.size])
    result = np.zeros((x.size, x.size), x.dtype)
    np.fill_diagonal(result, x.reshape(-1))
    return [result.reshape(x.shape + x.shape)]


def _diagonal_part(call: Call) -> list[Array]:
    x = call.array(0)
    half = x.ndim // 2
    if x.ndim < 2 or x.ndim % 2 or x.shape[:half] != x.shape[half:]:
        raise KernelError(f"diagonal of shape {x.shape}")
    size = math.prod(x.shape[:half])
    return [np.diagonal(x.reshape(size, size)).reshape(x.shape[:half])]


REARRANGED: Mapping[str, Kernel] = MappingProxyType(
    {
        "Reverse": moving(_reverse, 2),
        "ReverseV2": moving(_reverse, 1, 2),
        "ReverseSequence": moving(_reverse_sequence, 2),
        "Roll": moving(_roll, 1, 3),
        "DynamicPartition": moving(_partition, 2),
        "DynamicStitch": Kernel(_stitch, _stitch_bound, (2, -1), moves=True),
        "ParallelDynamicStitch": Kernel(_stitch, _stitch_bound, (2, -1), moves=True),
        "MirrorPad": moving(_mirror_pad, 1, 2),
        "MirrorPadGrad": Kernel(_mirror_grad, _mirror_grad_bound, (1, 2)),
        "Diag": moving(_diagonal),
        "DiagPart": moving(_diagonal_part),
    }
)

"""How the emulated device computes: its precision modes and the order in which it adds.

Everything here is honest arithmetic in the declared type: float32 sums are float32 sums, only in another order than
TensorFlow's, as two devices differ. float16 and bfloat16 operands are multiplied exactly and added in float32.
"""

from __future__ import annotations

import enum
import functools
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError

MATMUL_BLOCKS = 4
"""Parts of the inner dimension of a product that are multiplied one by one and then added, last part first."""

SUM_BLOCK = 128
"""Elements a partial sum has before partial sums are added up."""

Array = NDArray[np.generic]
Numbers = NDArray[Any]


class Numerics(enum.Enum):
    """Precision modes. The value is what the device graph declares as its ``precision_mode``."""

    FP32 = "must_keep_origin_dtype"
    MIX = "allow_mix_precision"


_MODES = {
    "": Numerics.FP32,
    "must_keep_origin_dtype": Numerics.FP32,
    "force_fp32": Numerics.FP32,
    "allow_mix_precision": Numerics.MIX,
    "allow_mix_precision_fp16": Numerics.MIX,
}
_MODES_V2 = {"": Numerics.FP32, "origin": Numerics.FP32, "mixed_float16": Numerics.MIX}


def numerics_of(precision_mode: str, precision_mode_v2: str = "") -> Numerics:
    """Returns the numerics of an ``NpuOptimizer``'s precision options.

    Raises:
        EngineError: the mode is not one that the emulation knows, or both options are set.
    """
    if precision_mode and precision_mode_v2:
        raise EngineError("precision_mode and precision_mode_v2 are both set; keep one of them")
    option, text, modes = (
        ("precision_mode_v2", precision_mode_v2, _MODES_V2)
        if precision_mode_v2
        else ("precision_mode", precision_mode, _MODES)
    )
    try:
        return modes[text]
    except KeyError:
        known = ", ".join(name for name in modes if name)
        raise EngineError(f"{option}={text!r}: the emulated device knows {known}") from None


def accumulator(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Returns the type in which values of ``dtype`` are added up: float32 for everything narrower."""
    return np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)


def blocked_matmul(left: Numbers, right: Numbers, *, bias: Numbers | None = None) -> Numbers:
    """Multiplies two (stacks of) matrices, the inner dimension in blocks that are added last to first.

    Args:
        left: float [..., M, K].
        right: float [..., K, N].
        bias: Added to the finished sum before it leaves the accumulator, broadcast to the result.

    Returns:
        The product in the accumulator's type.

    Raises:
        ValueError: the shapes do not fit.
    """
    kind = accumulator(left.dtype)
    if left.ndim < 2 or right.ndim < 2 or left.shape[-1] != right.shape[-2]:
        raise ValueError(f"matrices of shapes {left.shape} and {right.shape} cannot be multiplied")
    left, right = left.astype(kind, copy=False), right.astype(kind, copy=False)
    width = left.shape[-1]
    edges = sorted({width * part // MATMUL_BLOCKS for part in range(MATMUL_BLOCKS + 1)})
    # An inner dimension of 0 has no blocks; NumPy's own product then gives the zeros.
    blocks = list(itertools.pairwise(edges)) or [(0, 0)]
    parts = (left[..., low:high] @ right[..., low:high, :] for low, high in reversed(blocks))
    total: Numbers = functools.reduce(np.add, parts)
    return total if bias is None else total + bias.astype(kind, copy=False)


def blocked_sum(values: Array, axes: tuple[int, ...], *, keep_dims: bool = False) -> Array:
    """Sums over axes: partial sums of :data:`SUM_BLOCK` elements, added last to first.

    Args:
        values: float, any shape.
        axes: Axes to sum over, not negative.
        keep_dims: Whether summed axes stay with length 1.

    Returns:
        The sums in the accumulator's type.
    """
    kind = accumulator(values.dtype)
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    rest = tuple(values.shape[axis] for axis in kept)
    count = int(np.prod([values.shape[axis] for axis in axes], dtype=np.int64))
    flat = values.transpose([*axes, *kept]).reshape(count, -1 if values.size else int(np.prod(rest)))
    total = _sum_rows(flat.astype(kind, copy=False))
    shape = tuple(1 if axis in axes else values.shape[axis] for axis in range(values.ndim)) if keep_dims else rest
    return total.reshape(shape)


def _sum_rows(rows: Numbers) -> Numbers:
    """Sums a matrix over its first axis in blocks."""
    if len(rows) == 0:
        return np.zeros(rows.shape[1:], rows.dtype)
    partial: Numbers = np.add.reduceat(rows, np.arange(0, len(rows), SUM_BLOCK), axis=0)
    total: Numbers = partial[::-1].sum(axis=0)
    return total


def segment_sums(values: Array, segments: Numbers, count: int) -> Array:
    """Adds up the rows of each segment, the last row of a segment first.

    Args:
        values: float [R, ...].
        segments: Integers [R], the segment of each row; rows of negative segments are dropped.
        count: Number of segments.

    Returns:
        float [count, ...], zero for empty segments.

    Raises:
        ValueError: a segment is too large.
    """
    kind = accumulator(values.dtype)
    result = np.zeros((count, *values.shape[1:]), kind)
    if len(segments) and int(segments.max()) >= count:
        raise ValueError(f"segment {int(segments.max())} is not in [0, {count})")
    order = np.argsort(segments, kind="stable")[::-1]
    order = order[segments[order] >= 0]
    if len(order) == 0:
        return result
    sorted_segments = segments[order]
    starts = np.flatnonzero(np.r_[True, sorted_segments[1:] != sorted_segments[:-1]])
    result[sorted_segments[starts]] = np.add.reduceat(values[order].astype(kind, copy=False), starts, axis=0)
    return result


def multiply_add(left: Array, right: Array, addend: Array) -> Array:
    """Returns ``left * right + addend`` of float32 values, rounded once at the end.

    The product of two float32 numbers is exact in float64, so only the float64 sum rounds before the final rounding:
    a fused multiply-add up to double rounding.
    """
    exact = left.astype(np.float64) * right.astype(np.float64) + addend.astype(np.float64)
    return exact.astype(np.float32)


def round_to_bfloat16(values: Array) -> Array:
    """Returns float values rounded to bfloat16 and back in their own type."""
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16).astype(values.dtype)

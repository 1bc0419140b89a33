"""The fault kind that adds up in float16: an accumulator that is too narrow.

The accumulator is rounded to float16 after every :data:`STEP` summands, as a matrix unit with a narrow accumulator
does; between two roundings it adds in float32. A segment's rows are rounded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.npu.executor import Call
from engine.npu.fault_place import FaultPlace
from engine.npu.fusions import FusedKernel

Array = NDArray[np.generic]
STEP = 16
"""Summands between two roundings of the accumulator."""


def fp16_accumulate(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Computes a sum, a mean, or a (fused) product with a float16 accumulator."""
    values = _SUMS[place.op.type](place.op.attrs, call.inputs)
    kernel = call.task.kernel
    if isinstance(kernel, FusedKernel) and kernel.members[-1].type == "Relu":
        values = np.maximum(values, 0)
    return place.replaced(right, values)


def _matmul(attrs: Mapping[str, Any], inputs: Any) -> Any:  # noqa: ANN401 - arithmetic whose types the rules promise
    left = inputs[0].T if attrs.get("transpose_x1") else inputs[0]
    right = inputs[1].T if attrs.get("transpose_x2") else inputs[1]
    product = _product(left, right)
    return product if len(inputs) < 3 else _rounded(product + inputs[2].astype(np.float32))


def _batch_matmul(attrs: Mapping[str, Any], inputs: Any) -> Any:  # noqa: ANN401
    left = np.swapaxes(inputs[0], -1, -2) if attrs.get("adj_x1") else inputs[0]
    right = np.swapaxes(inputs[1], -1, -2) if attrs.get("adj_x2") else inputs[1]
    return _product(left, right)


def _product(left: Any, right: Any) -> Any:  # noqa: ANN401
    left, right = left.astype(np.float32), right.astype(np.float32)
    total: Any = np.zeros((), np.float32)
    for start in range(0, max(1, left.shape[-1]), STEP):
        total = _rounded(total + left[..., start : start + STEP] @ right[..., start : start + STEP, :])
    return total


def _sum(attrs: Mapping[str, Any], inputs: Any) -> Any:  # noqa: ANN401
    values = inputs[0]
    axes = sorted({int(axis) % max(1, values.ndim) for axis in inputs[1].reshape(-1)}) if values.ndim else []
    return _over(values, axes)


def _mean(attrs: Mapping[str, Any], inputs: Any) -> Any:  # noqa: ANN401
    total = _sum(attrs, inputs)
    return total / np.float32(max(1, inputs[0].size) / max(1, total.size))


def _bias_add_grad(attrs: Mapping[str, Any], inputs: Any) -> Any:  # noqa: ANN401
    gradient = inputs[0]
    channel = 1 if attrs.get("data_format") == "NCHW" else gradient.ndim - 1
    return _over(gradient, [axis for axis in range(gradient.ndim) if axis != channel])


def _over(values: Any, axes: list[int]) -> Any:  # noqa: ANN401
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    shape = tuple(values.shape[axis] for axis in kept)
    count = int(np.prod([values.shape[axis] for axis in axes], dtype=np.int64))
    rows = values.transpose([*axes, *kept]).reshape(count, *shape).astype(np.float32)
    total: Any = np.zeros(shape, np.float32)
    for start in range(0, count, STEP):
        total = _rounded(total + rows[start : start + STEP].sum(axis=0))
    return total


def _segment_sum(attrs: Mapping[str, Any], inputs: Any) -> Any:  # noqa: ANN401
    """Adds the rows of a segment in turns: every segment takes its next row, and rounds."""
    data, segments, count = inputs[0], inputs[1].reshape(-1), int(inputs[2].item())
    rows = data.reshape(segments.size, *data.shape[inputs[1].ndim :]).astype(np.float32)
    total = np.zeros((count, *rows.shape[1:]), np.float32)
    order = np.argsort(segments, kind="stable")
    order = order[segments[order] >= 0]
    starts = np.searchsorted(segments[order], segments[order], side="left")
    turn = np.arange(len(order)) - starts
    for number in range(int(turn.max(initial=-1)) + 1):
        now = order[turn == number]
        total[segments[now]] = _rounded(total[segments[now]] + rows[now])
    return total


def _rounded(values: Any) -> Any:  # noqa: ANN401
    return values.astype(np.float16).astype(np.float32)


_SUMS: Mapping[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "MatMulV2": _matmul,
    "BatchMatMulV2": _batch_matmul,
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "BiasAddGrad": _bias_add_grad,
    "UnsortedSegmentSum": _segment_sum,
}

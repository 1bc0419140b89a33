"""The emulated device's own kernels, in NumPy.

They cover the ops whose result depends on the order of additions or on where it is rounded, and the ops on variables.
Everything else is executed by TensorFlow, one op at a time (:mod:`engine.npu.eager`).

A kernel takes the op's attributes (:attr:`DeviceOp.attrs`) and its input arrays and returns its output arrays. It never
changes an input. A ValueError becomes TensorFlow's InvalidArgumentError with the op's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.npu.numerics import blocked_matmul, blocked_sum, multiply_add, segment_sums

Array = NDArray[np.generic]
Number = NDArray[Any]
Attrs = Mapping[str, Any]
Kernel = Callable[[Attrs, Sequence[Array]], list[Array]]

FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


def matmul(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """MatMulV2: a, b and optionally a bias that is added in the accumulator. float16 operands give float32."""
    left = inputs[0].T if attrs.get("transpose_x1") else inputs[0]
    right = inputs[1].T if attrs.get("transpose_x2") else inputs[1]
    if left.ndim != 2 or right.ndim != 2:
        raise ValueError(f"MatMul needs two matrices, got shapes {inputs[0].shape} and {inputs[1].shape}")
    bias = inputs[2] if len(inputs) > 2 else None
    return [_as_declared(attrs, blocked_matmul(left, right, bias=bias))]


def batch_matmul(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """BatchMatMulV2: stacks of matrices, broadcast."""
    left = np.swapaxes(inputs[0], -1, -2) if attrs.get("adj_x1") else inputs[0]
    right = np.swapaxes(inputs[1], -1, -2) if attrs.get("adj_x2") else inputs[1]
    return [_as_declared(attrs, blocked_matmul(left, right))]


def reduce_sum(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ReduceSum: x, axes."""
    return [_sum(attrs, inputs).astype(inputs[0].dtype, copy=False)]


def reduce_mean(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ReduceMean: x, axes; NaN for no elements, as TensorFlow has it."""
    total = _sum(attrs, inputs)
    count = total.dtype.type(int(np.prod([inputs[0].shape[axis] for axis in _axes(inputs)], dtype=np.int64)))
    return [(total / count).astype(inputs[0].dtype, copy=False)]


def bias_add_grad(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """BiasAddGrad: sums over everything but the channels."""
    gradient = inputs[0]
    channel = 1 if attrs.get("data_format") == "NCHW" else gradient.ndim - 1
    axes = tuple(axis for axis in range(gradient.ndim) if axis != channel)
    return [blocked_sum(gradient, axes).astype(gradient.dtype, copy=False)]


def unsorted_segment_sum(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """UnsortedSegmentSum: data, segment ids, number of segments."""
    data, segments = inputs[0], _any(inputs[1])
    if data.shape[: segments.ndim] != segments.shape:
        raise ValueError(f"data of shape {data.shape} does not begin with segment_ids' shape {segments.shape}")
    rows = data.reshape(segments.size, *data.shape[segments.ndim :])
    total = segment_sums(rows, segments.reshape(-1), int(inputs[2].item()))
    return [total.astype(data.dtype, copy=False)]


def l2_loss(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """L2Loss: half the sum of squares."""
    values: Any = inputs[0]
    total: Any = blocked_sum(values * values, tuple(range(values.ndim)))
    return [(total / total.dtype.type(2)).astype(values.dtype, copy=False)]


def add_n(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """AddN: last to first."""
    total: Any = inputs[-1]
    for value in reversed(inputs[:-1]):
        total = total + value
    return [total]


def identity(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """Identity and its kin; also the read of a variable."""
    return [inputs[0]]


def cast_half(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """The compiler's Cast to float16. Values beyond 65504 become infinite."""
    return [inputs[0].astype(np.float16)]


def gather(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """GatherV2 without batch dimensions: params, indices, axis."""
    params, indices, axis = _any(inputs[0]), _any(inputs[1]), int(inputs[2].item())
    _check_rows(indices, params.shape[axis])
    return [np.take(params, indices, axis=axis)]


def assign(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """Assign: ref, value."""
    return [inputs[1]]


def assign_add(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """AssignAdd: ref, value."""
    ref, value = _same_shape(inputs)
    return [ref + value]


def assign_sub(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """AssignSub: ref, value."""
    ref, value = _same_shape(inputs)
    return [ref - value]


def scatter_update(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ScatterUpdate: var, indices, updates. Of several updates of a row the last one stays."""
    var, indices, updates = _scatter_operands(inputs)
    result = var.copy()
    result[indices] = updates
    return [result]


def scatter_add(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ScatterAdd: var, indices, updates."""
    return [_scatter_sums(inputs, np.add)]


def scatter_sub(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ScatterSub: var, indices, updates."""
    return [_scatter_sums(inputs, np.subtract)]


def apply_gradient_descent(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ApplyGradientDescent: var, alpha, delta."""
    var, alpha, delta = (_any(value) for value in inputs)
    return [var - alpha * delta]


def apply_adam(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """ApplyAdamD: var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad; all in the variable's type."""
    var, m, v, beta1_power, beta2_power, rate, beta1, beta2, epsilon, gradient = (_any(value) for value in inputs)
    one = var.dtype.type(1)
    alpha = rate * np.sqrt(one - beta2_power) / (one - beta1_power)
    new_m = m + (gradient - m) * (one - beta1)
    new_v = v + (gradient * gradient - v) * (one - beta2)
    step = gradient * (one - beta1) + beta1 * new_m if attrs.get("use_nesterov") else new_m
    return [var - step * alpha / (np.sqrt(new_v) + epsilon), new_m, new_v]


def fused_multiply_add(attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
    """FusedMulAdd: x, y, addend; float32, rounded once."""
    return [multiply_add(inputs[0], inputs[1], inputs[2])]


OWN: Mapping[str, Kernel] = {
    "MatMulV2": matmul,
    "BatchMatMulV2": batch_matmul,
    "ReduceSum": reduce_sum,
    "ReduceMean": reduce_mean,
    "BiasAddGrad": bias_add_grad,
    "UnsortedSegmentSum": unsorted_segment_sum,
    "L2Loss": l2_loss,
    "AddN": add_n,
}
"""Kernels by device type for ops on floating-point values."""

ON_VARIABLES: Mapping[str, Kernel] = {
    "ReadVariableOp": identity,
    "GatherV2": gather,
    "Assign": assign,
    "AssignAdd": assign_add,
    "AssignSub": assign_sub,
    "ScatterUpdate": scatter_update,
    "ScatterAdd": scatter_add,
    "ScatterSub": scatter_sub,
    "ApplyGradientDescent": apply_gradient_descent,
    "ApplyAdamD": apply_adam,
}
"""Kernels by device type for ops on variables; written variables are outputs."""


def _any(value: Array) -> Number:
    """Hands an array to arithmetic whose types the attributes promise, not the annotations."""
    return value


def _as_declared(attrs: Attrs, product: Array) -> Array:
    """Rounds a product to the op's own type; inserted Casts leave that at float32."""
    declared = str(attrs.get("T", product.dtype.name))
    if declared == product.dtype.name:
        return product
    if declared == "bfloat16":
        import ml_dtypes

        return product.astype(ml_dtypes.bfloat16)
    return product.astype(declared)


def _axes(inputs: Sequence[Array]) -> tuple[int, ...]:
    rank = inputs[0].ndim
    axes = [int(axis) for axis in inputs[1].reshape(-1).tolist()]
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"invalid reduction dimension {axis} for an input of rank {rank}")
    return tuple(sorted({axis % rank for axis in axes}))


def _sum(attrs: Attrs, inputs: Sequence[Array]) -> Number:
    return blocked_sum(inputs[0], _axes(inputs), keep_dims=bool(attrs.get("keep_dims")))


def _check_rows(indices: Number, rows: int) -> None:
    bad = np.flatnonzero((indices < 0) | (indices >= rows))
    if len(bad):
        raise ValueError(f"indices[{bad[0]}] = {indices.reshape(-1)[bad[0]]} is not in [0, {rows})")


def _same_shape(inputs: Sequence[Array]) -> tuple[Any, Any]:
    ref, value = inputs[0], inputs[1]
    if ref.shape != value.shape:
        raise ValueError(f"cannot update a variable of shape {ref.shape} with a value of shape {value.shape}")
    return ref, value


def _scatter_operands(inputs: Sequence[Array]) -> tuple[Any, Any, Any]:
    var, indices, updates = inputs[0], inputs[1], inputs[2]
    if var.ndim == 0:
        raise ValueError("cannot scatter into a scalar")
    _check_rows(indices, var.shape[0])
    if updates.ndim and updates.shape != indices.shape + var.shape[1:]:
        raise ValueError(f"updates of shape {updates.shape} do not fit indices {indices.shape} and rows of {var.shape}")
    return var, indices, updates


def _scatter_sums(inputs: Sequence[Array], combine: np.ufunc) -> Array:
    """Adds up repeated rows first, then changes each row once."""
    var, indices, updates = _scatter_operands(inputs)
    rows, places = np.unique(indices.reshape(-1), return_inverse=True)
    width = var.shape[1:]
    full = np.broadcast_to(updates, indices.shape + width).reshape(indices.size, *width)
    if full.dtype.kind in "iu":
        sums: Any = np.zeros((len(rows), *width), full.dtype)
        np.add.at(sums, places.reshape(-1), full)
    else:
        sums = segment_sums(full, places.reshape(-1), len(rows)).astype(full.dtype, copy=False)
    result: Array = var.copy()
    result[rows] = combine(var[rows], sums)
    return result

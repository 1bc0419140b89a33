"""Kernels that reduce: sums, means, extrema, softmax and the losses built on it.

Sums follow :func:`compare.bounds.sum_error`; a mean adds a division, or rounds ``x / K`` before the sum. Products of K
factors are off by at most ``K u`` relative (Higham 2002, lemma 3.1); softmax is bounded by running errors
(P. Blanchard, D. J. Higham, N. J. Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer.
Anal. 41 (2021), section 4). Extrema are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import Array, Bounded, Operand, Real, accumulation, sum_error
from compare.kernels.base import Call, Kernel, KernelError, checked_axis, checked_indices
from compare.kernels.functions import exp, log


def _axes(call: Call) -> tuple[int, ...]:
    rank = call.array(0).ndim
    return tuple(dict.fromkeys(checked_axis(axis, rank) for axis in call.integers(1, "axes", "axis")))


def _reduce(function: Callable[..., Array]) -> Callable[[Call], list[Array]]:
    def run(call: Call) -> list[Array]:
        x = call.array(0)
        result = function(x, axis=_axes(call), keepdims=call.flag("keep_dims", "keepdims"))
        return [np.asarray(result).astype(x.dtype) if x.dtype.kind in "iu" else np.asarray(result)]

    return run


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    count = math.prod(x.shape[a] for a in axis)
    if x.dtype.kind in "iu":
        whole = np.asarray(np.sum(x, axis=axis, keepdims=True, dtype=x.dtype))
        mean = np.trunc(whole / max(count, 1))
    else:
        mean = np.asarray(np.sum(x, axis=axis, keepdims=True)) / np.asarray(count, x.dtype)
    return np.asarray(mean if keepdims else np.squeeze(mean, axis))


def lines_of(x: Array, axes: tuple[int, ...]) -> Real:
    """Moves the reduced axes to the end and joins them: the terms of each output element along the last axis."""
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = np.transpose(np.asarray(x, dtype=np.float64), kept + sorted(axes))
    return moved.reshape([x.shape[a] for a in kept] + [math.prod(x.shape[a] for a in axes)])


def _sum_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    error = sum_error(accumulation(lines_of(call.array(0), _axes(call))), call.u)
    return [error.reshape(np.shape(exact[0]))]


def _mean_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    lines = lines_of(call.array(0), _axes(call))
    error = sum_error(accumulation(lines, products=True), call.u) / max(lines.shape[-1], 1)
    return [error.reshape(np.shape(exact[0])) + 3.0 * call.u * np.abs(exact[0])]


def _prod_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    count = math.prod(call.array(0).shape[a] for a in _axes(call))
    return [2.0 * count * call.u * np.abs(exact[0])]


def _bias_axes(call: Call) -> tuple[int, ...]:
    """All axes but the channel's, which is the last, or the second for the NCHW layouts."""
    rank = call.array(0).ndim
    if rank < 1:
        raise KernelError("the gradient of a bias needs at least one axis")
    channel = 1 if str(call.attrs.get("data_format", "")).startswith("NC") and rank > 1 else rank - 1
    return tuple(a for a in range(rank) if a != channel)


def _bias_grad(call: Call) -> list[Array]:
    return [np.asarray(np.sum(call.array(0), axis=_bias_axes(call), dtype=call.array(0).dtype))]


def _bias_grad_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    return [sum_error(accumulation(lines_of(call.array(0), _bias_axes(call))), call.u)]


def _bias_add(call: Call) -> list[Array]:
    x, bias = call.arrays()
    return [x + bias_shaped(call, x, bias)]


def bias_shaped(call: Call, x: Array, bias: Array) -> Array:
    """Returns a bias with its axis where ``x`` has the channels."""
    if bias.ndim != 1:
        raise KernelError(f"bias must have one axis, has shape {bias.shape}")
    if str(call.attrs.get("data_format", "")).startswith("NC") and x.ndim > 2:
        return bias.reshape((-1,) + (1,) * (x.ndim - 2))
    return bias


def _bias_add_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """One addition."""
    return [(2.0 if call.own_u <= 2.0**-24 else 1.0) * call.own_u * np.abs(exact[0])]


def _add_n(call: Call) -> list[Array]:
    parts = call.arrays()
    if any(part.shape != parts[0].shape for part in parts):
        raise KernelError("inputs of different shapes")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return [total]


def _add_n_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """A sum of N terms per element; each of them a rounding in the tensor's own format."""
    stacked = np.stack([np.asarray(part, dtype=np.float64) for part in call.arrays()], axis=-1)
    return [np.maximum(sum_error(accumulation(stacked), call.own_u), 0.0)]


def _arg(function: Callable[..., Array]) -> Callable[[Call], list[Array]]:
    def run(call: Call) -> list[Array]:
        x = call.array(0)
        (axis,) = call.integers(1, "dimension", "axis") if len(call.inputs) > 1 else (0,)
        return [np.asarray(function(x, axis=checked_axis(axis, x.ndim)), dtype=call.dtype(0) or np.int64)]

    return run


def _l2_loss(call: Call) -> list[Array]:
    x = call.array(0)
    return [np.asarray(np.sum(x * x) / np.asarray(2, x.dtype))]


def _l2_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """A sum of rounded squares; halving is exact."""
    x = np.asarray(call.array(0), dtype=np.float64).reshape(-1)
    return [sum_error(accumulation(x * x, products=True), call.u).reshape(()) / 2]


def _total(x: Operand) -> Operand:
    """Sum over the last axis, kept; on Bounded operands the terms' own errors add up."""
    if isinstance(x, Bounded):
        error = sum_error(accumulation(x.value), x.u) + x.error.sum(axis=-1)
        return Bounded(x.value.sum(axis=-1, keepdims=True), error[..., None], x.u, x.ulps)
    return np.asarray(np.sum(x, axis=-1, keepdims=True))


def _shifted(x: Operand) -> Operand:
    """``x - max x``; the maximum is exact."""
    if isinstance(x, Bounded):
        peak: Real = x.value.max(axis=-1, keepdims=True)
        return x - peak
    array = np.asarray(x)
    return np.asarray(array - array.max(axis=-1, keepdims=True))


def _softmax(x: Operand) -> Operand:
    powers = exp(_shifted(x))
    return powers / _total(powers)


def _log_softmax(x: Operand) -> Operand:
    shifted = _shifted(x)
    return shifted - log(_total(exp(shifted)))


def _cross_entropy(x: Operand, labels: Operand) -> tuple[Operand, Operand]:
    loss = _total(labels * -_log_softmax(x))
    return loss, _softmax(x) - labels


def _softmax_kernel(function: Callable[[Operand], Operand]) -> Kernel:
    def run(call: Call) -> list[Array]:
        return [np.asarray(function(call.array(0)))]

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        result = function(call.bounded(0))
        return [result.error] if isinstance(result, Bounded) else []

    return Kernel(run, bound, (1, 1))


def _cross_entropy_inputs(call: Call) -> tuple[Array, Array]:
    x, labels = np.broadcast_arrays(call.array(0), call.array(1))
    if x.ndim != 2:
        raise KernelError(f"logits must have two axes, have shape {x.shape}")
    return x, labels


def _cross_entropy_run(call: Call) -> list[Array]:
    loss, gradient = _cross_entropy(*_cross_entropy_inputs(call))
    return [np.asarray(loss)[:, 0], np.asarray(gradient)]


def _cross_entropy_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    wide = call.with_inputs(_cross_entropy_inputs(call))
    loss, gradient = _cross_entropy(wide.bounded(0), wide.bounded(1))
    if not isinstance(loss, Bounded) or not isinstance(gradient, Bounded):
        raise KernelError("formula without an error bound")
    return [loss.error[:, 0], gradient.error]


def _sparse_inputs(call: Call) -> tuple[Array, Array]:
    """Logits and the class of each row."""
    x, labels = call.array(0), call.array(1)
    if x.ndim != 2 or labels.shape != x.shape[:1]:
        raise KernelError(f"logits of shape {x.shape} and labels of shape {labels.shape}")
    return x, checked_indices(labels, x.shape[1])


def _sparse_cross_entropy(call: Call) -> list[Array]:
    x, labels = _sparse_inputs(call)
    rows, gradient = np.arange(labels.size), np.asarray(_softmax(x))
    gradient[rows, labels] -= 1
    return [-np.asarray(_log_softmax(x))[rows, labels], gradient]


def _sparse_cross_entropy_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """One element of the logarithm of softmax; its gradient is softmax, less one at the label."""
    x, labels = _sparse_inputs(call)
    rows, hot = np.arange(labels.size), np.zeros(x.shape)
    hot[rows, labels] = 1.0
    logits = call.bounded(0)
    loss, gradient = _log_softmax(logits), _softmax(logits) - hot
    if not isinstance(loss, Bounded) or not isinstance(gradient, Bounded):
        raise KernelError("formula without an error bound")
    return [loss.error[rows, labels], gradient.error]


REDUCTIONS: Mapping[str, Kernel] = MappingProxyType(
    {
        "ReduceSum": Kernel(_reduce(np.sum), _sum_bound, (1, 2), accumulates=True),
        "ReduceMean": Kernel(_reduce(_mean), _mean_bound, (1, 2), accumulates=True),
        "ReduceProd": Kernel(_reduce(np.prod), _prod_bound, (1, 2), accumulates=True),
        "ReduceMax": Kernel(_reduce(np.max), None, (1, 2), nan_free=True),
        "ReduceMin": Kernel(_reduce(np.min), None, (1, 2), nan_free=True),
        "ReduceAll": Kernel(_reduce(np.all), None, (1, 2)),
        "ReduceAny": Kernel(_reduce(np.any), None, (1, 2)),
        "ArgMax": Kernel(_arg(np.argmax), None, (1, 2)),
        "ArgMin": Kernel(_arg(np.argmin), None, (1, 2)),
        "BiasAdd": Kernel(_bias_add, _bias_add_bound, (2, 2)),
        "BiasAddGrad": Kernel(_bias_grad, _bias_grad_bound, (1, 1), accumulates=True),
        "AddN": Kernel(_add_n, _add_n_bound, (1, -1)),
        "L2Loss": Kernel(_l2_loss, _l2_bound, (1, 1), accumulates=True),
        "Softmax": _softmax_kernel(_softmax),
        "LogSoftmax": _softmax_kernel(_log_softmax),
        "SoftmaxCrossEntropyWithLogits": Kernel(_cross_entropy_run, _cross_entropy_bound, (2, 2)),
        "SparseSoftmaxCrossEntropyWithLogits": Kernel(_sparse_cross_entropy, _sparse_cross_entropy_bound, (2, 2)),
    }
)

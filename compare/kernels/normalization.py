"""Kernels of batch and layer normalization and their gradients.

Bounds are running errors over the moments. A mean is a sum (:func:`compare.bounds.sum_error`) and a division. The
variance is the mean of squared distances from that mean: since the distances add up to 0, an error e of the mean costs
``e^2`` there and no more (T. F. Chan, G. H. Golub, R. J. LeVeque, Algorithms for Computing the Sample Variance, The
American Statistician 37 (1983), section 2), besides the rounding of distances and squares. The normalized value may be
computed as ``(x - mean) scale r + offset`` or as ``x (scale r) + (offset - mean scale r)``; the second rounds numbers
of the size of x and the mean, and the bound allows it.

What a forward op keeps for its gradient (``reserve_space_*``) differs: TensorFlow's CPU kernels keep the variance,
CUDA's its inverse root. Those outputs are not judged; a gradient op takes the meaning that fits its own x.

S. Ioffe, C. Szegedy, Batch Normalization, ICML 2015; J. L. Ba, J. R. Kiros, G. E. Hinton, Layer Normalization, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from compare.bounds import Array, Bounded, Operand, Real, accumulation, sum_error
from compare.kernels.base import Call, Kernel, KernelError, checked_axis
from compare.kernels.functions import constant, sqrt
from compare.kernels.reductions import lines_of

RESERVED = "not replayable: kept for the gradient, each implementation keeps another value"

Axes = tuple[int, ...]


_Outputs = tuple[list[Operand], list[tuple[int, ...]]]
"""Results, and the shape of each."""


def _lifting(call: Call, x: Array, *, bounded: bool) -> Callable[[Array], Operand]:
    """What makes operands of arrays: Bounded ones, or arrays in the dtype of the arithmetic, at least single."""

    def lifted(part: Array) -> Operand:
        wide = np.asarray(part, dtype=np.float64)
        return Bounded(wide, np.zeros_like(wide), call.u, 2.0)

    dtype = np.float64 if x.dtype == np.float64 else np.float32
    return lifted if bounded else (lambda part: part.astype(dtype))


def _summed(x: Operand, axes: Axes) -> Operand:
    """Sum over axes, which stay with length 1; errors of the terms add up."""
    if isinstance(x, Bounded):
        total = x.value.sum(axis=axes, keepdims=True)
        error = sum_error(accumulation(lines_of(x.value, axes)), x.u).reshape(total.shape)
        return Bounded(total, error + x.error.sum(axis=axes, keepdims=True), x.u, x.ulps)
    array = np.asarray(x)
    return np.asarray(array.sum(axis=axes, keepdims=True, dtype=array.dtype))


def _count(x: Operand, axes: Axes) -> int:
    shape = x.value.shape if isinstance(x, Bounded) else np.shape(x)
    return math.prod(shape[a] for a in axes)


def _mean(x: Operand, axes: Axes) -> Operand:
    count = _count(x, axes)
    if isinstance(x, Bounded):
        mean = _summed(x, axes) / float(count)
        return mean.widened(1.0) if isinstance(mean, Bounded) else mean
    total = np.asarray(_summed(x, axes))
    return np.asarray(total / np.asarray(count, total.dtype))


def _variance(x: Operand, mean: Operand, axes: Axes) -> Operand:
    """Mean of ``(x - mean)^2``, with the error that the module's text derives."""
    if isinstance(x, Bounded) and isinstance(mean, Bounded):
        centred = Bounded(x.value - mean.value, np.zeros_like(x.value), x.u, x.ulps)
        spread = _mean(centred * centred, axes)
        if not isinstance(spread, Bounded):
            raise KernelError("variance without an error bound")
        error = spread.error + mean.error**2 + 4.0 * x.u * spread.value
        return Bounded(spread.value, error, x.u, x.ulps)
    distance = x - mean
    return _mean(distance * distance, axes)


def _inverse_root(variance: Operand, epsilon: float) -> Operand:
    """``1 / sqrt(variance + epsilon)``; hardware estimates with a Newton step are off by two units."""
    if isinstance(variance, Bounded):
        root = 1.0 / sqrt(variance + Bounded(np.asarray(epsilon), np.asarray(0.0), variance.u, variance.ulps))
        return root.widened(2.0) if isinstance(root, Bounded) else root
    array = np.asarray(variance)
    return np.asarray(np.ones((), array.dtype) / np.sqrt(array + np.asarray(epsilon, array.dtype)))


def _normalized(x: Operand, mean: Operand, factor: Operand, offset: Operand) -> Operand:
    """``(x - mean) factor + offset``, or multiplied out."""
    result = (x - mean) * factor + offset
    if isinstance(result, Bounded) and isinstance(x, Bounded) and isinstance(mean, Bounded):
        size = np.abs(factor.value) if isinstance(factor, Bounded) else np.abs(np.asarray(factor))
        extra = 2.0 * x.u * size * (np.abs(x.value) + np.abs(mean.value))
        return Bounded(result.value, result.error + extra, result.u, result.ulps)
    return result


class _Layout(NamedTuple):
    """The reduced axes of x, and the shape in which a parameter per channel broadcasts."""

    axes: Axes
    channel: tuple[int, ...]


def _layout(call: Call, x: Array) -> _Layout:
    axis = 1 if call.text("data_format", "NHWC").startswith("NC") else x.ndim - 1
    if x.ndim not in (4, 5):
        raise KernelError(f"images must have four or five axes, have shape {x.shape}")
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return _Layout(tuple(a for a in range(x.ndim) if a != axis), tuple(shape))


def _channels(call: Call, index: int, layout: _Layout) -> Array:
    found = call.array(index)
    if found.size != math.prod(layout.channel):
        raise KernelError(f"input {index} of shape {found.shape} for {math.prod(layout.channel)} channels")
    return found.reshape(layout.channel)


def _values(outputs: Sequence[Operand], like: Sequence[tuple[int, ...]]) -> list[Array]:
    return [np.asarray(part).reshape(shape) for part, shape in zip(outputs, like, strict=True)]


def _errors(outputs: Sequence[Operand], like: Sequence[tuple[int, ...]]) -> list[Real]:
    """Bounds of Bounded outputs; an output that is no more than an input has none."""
    return [
        np.broadcast_to(part.error, part.value.shape).reshape(shape) if isinstance(part, Bounded) else np.zeros(shape)
        for part, shape in zip(outputs, like, strict=True)
    ]


def _batch_norm(call: Call, *, bounded: bool) -> _Outputs:
    """y, then mean and variance: of the batch (unbiased, blended with the old ones) or as given."""
    x = call.array(0)
    layout = _layout(call, x)
    count = math.prod(x.shape[a] for a in layout.axes)
    lift = _lifting(call, x, bounded=bounded)
    data, scale, offset = lift(x), lift(_channels(call, 1, layout)), lift(_channels(call, 2, layout))
    training = bool(call.attrs.get("is_training", True))
    epsilon, blend = call.number("epsilon", 1e-4), call.number("exponential_avg_factor", 1.0)
    shapes = [x.shape, (math.prod(layout.channel),), (math.prod(layout.channel),)]
    if not training:
        given = [_channels(call, 3, layout), _channels(call, 4, layout)]
        mean, variance = (lift(part) for part in given)
        y = _normalized(data, mean, _inverse_root(variance, epsilon) * scale, offset)
        return [y, *given], shapes
    mean = _mean(data, layout.axes)
    variance = _variance(data, mean, layout.axes)
    y = _normalized(data, mean, _inverse_root(variance, epsilon) * scale, offset)
    unbiased = variance * constant(variance, count / max(count - 1, 1))
    if blend == 1.0:
        return [y, mean, unbiased], shapes
    old = [lift(_channels(call, index, layout)) for index in (3, 4)]
    kept, new = (constant(variance, part) for part in (1.0 - blend, blend))
    return [y, old[0] * kept + mean * new, old[1] * kept + unbiased * new], shapes


def _saved_variance(call: Call, layout: _Layout, epsilon: float) -> tuple[Array, bool]:
    """The variance that the forward op kept, and whether it is the inverse root, as CUDA keeps it."""
    saved = _channels(call, 4, layout)
    if not call.attrs.get("is_training", True):
        return saved, False
    x = np.asarray(call.array(1), dtype=np.float64)
    own = x.var(axis=layout.axes, keepdims=True) if x.size else np.asarray(saved, dtype=np.float64)
    wide = np.asarray(saved, dtype=np.float64)
    plain = np.abs(wide - own).sum()
    inverse = np.abs(wide - 1.0 / np.sqrt(own + epsilon)).sum()
    return saved, bool(inverse < 1e-3 * plain)


def _batch_norm_grad(call: Call, *, bounded: bool) -> _Outputs:
    """Gradients of x, scale and offset from the moments that the forward op kept."""
    dy, x = call.array(0), call.array(1)
    if dy.shape != x.shape:
        raise KernelError(f"gradient of shape {dy.shape} for shape {x.shape}")
    layout, epsilon = _layout(call, x), call.number("epsilon", 1e-4)
    lift = _lifting(call, x, bounded=bounded)
    slope, scale = lift(dy), lift(_channels(call, 2, layout))
    saved, inverted = _saved_variance(call, layout, epsilon)
    root = lift(saved) if inverted else _inverse_root(lift(saved), epsilon)
    channels = (math.prod(layout.channel),)
    shapes = [x.shape, channels, channels]
    found = _gradients(slope, lift(x) - lift(_channels(call, 3, layout)), root, scale, layout.axes)
    if not call.attrs.get("is_training", True):
        return [slope * (root * scale), *found[1:]], shapes
    return found, shapes


def _gradients(dy: Operand, centred: Operand, root: Operand, scale: Operand, axes: Axes) -> list[Operand]:
    """Of ``centred root scale + offset`` where the moments come from x: for x, scale and offset."""
    product = dy * centred
    direct = dy - _mean(dy, axes) - centred * (root * root * _mean(product, axes))
    return [direct * (root * scale), _summed(product, axes) * root, _summed(dy, axes)]


def _bn_infer(call: Call, *, bounded: bool) -> _Outputs:
    """Of devices: parameters broadcast to x as they are, or lie along its channels."""
    x, epsilon = call.array(0), call.number("epsilon", 1e-4)
    lift = _lifting(call, x, bounded=bounded)
    scale, offset, mean, variance = (lift(_along(call, call.array(k), x)) for k in range(1, 5))
    return [_normalized(lift(x), mean, _inverse_root(variance, epsilon) * scale, offset)], [x.shape]


def _along(call: Call, part: Array, x: Array) -> Array:
    """A parameter in the shape in which it broadcasts to x."""
    if part.ndim == x.ndim:
        return part
    return part.reshape(_layout(call, x).channel)


def _bn_reduce(call: Call, *, bounded: bool) -> _Outputs:
    """Of devices: sum and sum of squares per channel, for x in NC1HWC0 or with its layout told."""
    x = call.array(0)
    if x.ndim == 5 and "data_format" not in call.attrs:
        axes: Axes = (0, 2, 3)
        shape: tuple[int, ...] = (1, x.shape[1], 1, 1, x.shape[4])
    elif "data_format" in call.attrs:
        layout = _layout(call, x)
        axes, shape = layout.axes, (math.prod(layout.channel),)
    else:
        raise KernelError(f"the layout of shape {x.shape} is not told")
    data = _lifting(call, x, bounded=bounded)(x)
    return [_summed(data, axes), _summed(data * data, axes)], [shape, shape]


def _bn_update(call: Call, *, bounded: bool) -> _Outputs:
    """Of devices: normalizes by sums that were taken before; ``E x^2 - (E x)^2`` is the variance."""
    x, epsilon, factor = call.array(0), call.number("epsilon", 1e-4), call.number("factor", 0.1)
    lift = _lifting(call, x, bounded=bounded)
    given = [call.array(k) for k in range(1, 7)]
    total, squares, scale, offset, mean, variance = (lift(_along(call, part, x)) for part in given)
    count = x.size // max(given[0].size, 1)
    share = constant(total, 1.0 / max(count, 1))
    own = total * share
    spread = squares * share - own * own
    unbiased = spread * constant(total, count / (count - 1) if count > 1 else 0.0)
    new, kept = constant(total, factor), constant(total, 1.0 - factor)
    y = _normalized(lift(x), own, _inverse_root(spread, epsilon) * scale, offset)
    outputs = [y, own * new + mean * kept, unbiased * new + variance * kept, own, unbiased]
    return outputs, [x.shape, *(given[k].shape for k in (4, 5, 0, 0))]


def _layer_norm(call: Call, *, bounded: bool) -> _Outputs:
    """Of devices: normalizes over all axes from ``begin_norm_axis`` on; also gives mean and variance."""
    x = call.array(0)
    axes = tuple(range(checked_axis(call.integer("begin_norm_axis", 0), x.ndim), x.ndim))
    lift = _lifting(call, x, bounded=bounded)
    data = lift(x)
    mean = _mean(data, axes)
    variance = _variance(data, mean, axes)
    root = _inverse_root(variance, call.number("epsilon", 1e-7))
    y = _normalized(data, mean, root * lift(call.array(1)), lift(call.array(2)))
    kept = tuple(1 if a in axes else size for a, size in enumerate(x.shape))
    return [y, mean, variance], [x.shape, kept, kept]


def _layer_norm_grad(call: Call, *, bounded: bool) -> _Outputs:
    """Of devices, from ``dy, x, variance, mean, gamma``: gradients of x, gamma and beta."""
    dy, x, gamma = call.array(0), call.array(1), call.array(4)
    if dy.shape != x.shape or gamma.ndim > x.ndim or gamma.shape != x.shape[x.ndim - gamma.ndim :]:
        raise KernelError(f"gradient of shape {dy.shape} and gamma of {gamma.shape} for shape {x.shape}")
    inner = tuple(range(x.ndim - gamma.ndim, x.ndim))
    outer = tuple(range(x.ndim - gamma.ndim))
    lift = _lifting(call, x, bounded=bounded)
    slope, scale = lift(dy), lift(gamma)
    root = _inverse_root(lift(call.array(2)), call.number("epsilon", 1e-12))
    centred = lift(x) - lift(call.array(3))
    one = constant(slope, 1.0)
    for_x = _gradients(slope * scale, centred, root, one, inner)[0]
    for_gamma = _summed(slope * centred * root, outer)
    return [for_x, for_gamma, _summed(slope, outer)], [x.shape, gamma.shape, gamma.shape]


def _kernel(form: Callable[..., _Outputs], least: int, most: int, rest: str = Kernel.rest) -> Kernel:
    def run(call: Call) -> list[Array]:
        return _values(*form(call, bounded=False))

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        return _errors(*form(call, bounded=True))

    return Kernel(run, bound, (least, most), accumulates=True, rest=rest)


NORMALIZATIONS: Mapping[str, Kernel] = MappingProxyType(
    {
        "FusedBatchNorm": _kernel(_batch_norm, 5, 5, RESERVED),
        "FusedBatchNormGrad": _kernel(_batch_norm_grad, 5, 6, RESERVED),
        "BNInfer": _kernel(_bn_infer, 5, 5),
        "BNTrainingReduce": _kernel(_bn_reduce, 1, 1),
        "BNTrainingUpdate": _kernel(_bn_update, 7, 7),
        "LayerNorm": _kernel(_layer_norm, 3, 3),
        "LayerNormGrad": _kernel(_layer_norm_grad, 5, 5),
    }
)

"""Kernels of two-dimensional convolutions and their gradients: matrix products over the windows of the images.

With the windows of the padded images as rows, a convolution is one product a group of channels, the gradient of the
filter the product of the transposed windows with the gradient, and the gradient of the images a convolution of the
gradient, its elements moved apart by the strides, with the filter turned round (V. Dumoulin, F. Visin, A guide to
convolution arithmetic for deep learning, 2016, chapter 4). Bounds are those of a matrix product; algorithms that
transform images and filters first (Winograd, FFT) err more and are not what devices use by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from compare.bounds import Array, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_scratch, checked_shape
from compare.kernels.matmul import product_error

PORTION = 2**21
"""Elements of windows that are made at a time where rows do not depend on each other."""


class _Axis(NamedTuple):
    """A convolution along height or width; ``before`` and ``after`` are rows of zeros around the image."""

    size: int
    window: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        """Rows that one window spans."""
        return (self.window - 1) * self.dilation + 1

    @property
    def results(self) -> int:
        """Windows along the axis."""
        return (self.size + self.before + self.after - self.reach) // self.stride + 1

    def turned(self) -> _Axis:
        """The convolution that is its gradient, over the spread results; paddings may be negative."""
        spread = (self.results - 1) * self.stride + 1
        before = self.reach - 1 - self.before
        return _Axis(spread, self.window, 1, self.dilation, before, self.size + self.reach - 1 - spread - before)


class _Geometry(NamedTuple):
    """Of one convolution over images with the channels last."""

    height: _Axis
    width: _Axis
    groups: int


def _channels_first(call: Call) -> bool:
    return str(call.attrs.get("data_format", "NHWC")).startswith("NC")


def _channels_last(call: Call, x: Array) -> Array:
    if x.ndim != 4:
        raise KernelError(f"images must have four axes, have shape {x.shape}")
    return np.moveaxis(x, 1, -1) if _channels_first(call) else x


def _as_given(call: Call, x: Array) -> Array:
    return np.moveaxis(x, -1, 1) if _channels_first(call) else x


def _pair(call: Call, name: str) -> tuple[int, int]:
    """Height and width of an attribute that has one number for each axis of the images."""
    value = call.attrs.get(name)
    given = [1, 1, 1, 1] if value is None else [int(size) for size in np.asarray(value).reshape(-1)]
    if len(given) == 2:
        return given[0], given[1]
    if len(given) != 4:
        raise KernelError(f"{name} {given}: wanted one for each of four axes")
    return (given[2], given[3]) if _channels_first(call) else (given[1], given[2])


def _axis(call: Call, index: int, size: int, window: int, stride: int, dilation: int) -> _Axis:
    padding = str(call.attrs.get("padding", "VALID"))
    if stride < 1 or dilation < 1 or window < 1:
        raise KernelError(f"window {window}, stride {stride}, dilation {dilation}: wanted one or more")
    reach = (window - 1) * dilation + 1
    before = after = 0
    if padding == "SAME":
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        before, after = total // 2, total - total // 2
    elif padding == "EXPLICIT":
        pads = np.asarray(call.attrs.get("explicit_paddings", [])).reshape(-1)
        if pads.size != 8:
            raise KernelError(f"explicit_paddings has {pads.size} numbers, wanted 8")
        axis = index + (2 if _channels_first(call) else 1)
        before, after = int(pads[2 * axis]), int(pads[2 * axis + 1])
    elif padding != "VALID":
        raise KernelError(f"padding {padding!r}")
    if size + before + after < reach:
        raise KernelError(f"a window of {reach} over {size} + {before + after} rows")
    return _Axis(size, window, stride, dilation, before, after)


def _geometry(call: Call, images: Sequence[int], kernel: Sequence[int], *, depthwise: bool) -> _Geometry:
    """Of images ``[N, H, W, C]`` under a filter ``[h, w, C / groups, out]``, or a depthwise one ``[h, w, C, m]``."""
    if len(images) != 4 or len(kernel) != 4:
        raise KernelError(f"images {list(images)} and filter {list(kernel)}: wanted four axes each")
    strides, dilations = _pair(call, "strides"), _pair(call, "dilations")
    height, width = (_axis(call, k, images[1 + k], kernel[k], strides[k], dilations[k]) for k in range(2))
    if depthwise:
        groups = images[3]
        fits = kernel[2] == images[3] and groups > 0
    else:
        groups = images[3] // kernel[2] if kernel[2] else 0
        fits = groups > 0 and groups * kernel[2] == images[3] and kernel[3] % groups == 0
    if not fits:
        raise KernelError(f"images {list(images)} and filter {list(kernel)} do not fit")
    return _Geometry(height, width, groups)


def _padded(images: Array, geometry: _Geometry) -> Array:
    """With the zeros around; negative paddings cut off."""
    for number, axis in ((1, geometry.height), (2, geometry.width)):
        pads = [(0, 0)] * 4
        pads[number] = (max(axis.before, 0), max(axis.after, 0))
        images = np.pad(images, pads)
        cut = [slice(None)] * 4
        cut[number] = slice(max(-axis.before, 0), images.shape[number] - max(-axis.after, 0))
        images = images[tuple(cut)]
    return images


def _windows(images: Array, geometry: _Geometry) -> Array:
    """Returns ``[groups, N * rows * columns, h * w * C / groups]``: what each result is made of."""
    h, w = geometry.height, geometry.width
    rows_of_all, columns_of_all = (axis.size + axis.before + axis.after for axis in (h, w))
    checked_scratch(images.shape[0] * rows_of_all * columns_of_all * images.shape[3], "the padded images")
    each = h.results * w.results * h.window * w.window
    checked_scratch(images.shape[0] * each * images.shape[3], "the windows over the images")
    padded = _padded(images, geometry)
    rows = np.arange(h.results)[:, None] * h.stride + np.arange(h.window) * h.dilation
    columns = np.arange(w.results)[:, None] * w.stride + np.arange(w.window) * w.dilation
    found = padded[:, rows[:, None, :, None], columns[None, :, None, :], :]
    count = images.shape[0] * h.results * w.results
    split = found.reshape(count, h.window * w.window, geometry.groups, -1)
    return np.moveaxis(split, 2, 0).reshape(geometry.groups, count, -1)


def _by_group(kernel: Array, groups: int) -> Array:
    """Returns a filter ``[h, w, c, out]`` as ``[groups, h * w * c, out / groups]``."""
    split = kernel.reshape(-1, groups, kernel.shape[3] // groups)
    return np.moveaxis(split, 1, 0)


def _flat(kernel: Array, *, depthwise: bool) -> Array:
    """A depthwise filter ``[h, w, C, m]`` as one of C groups, ``[h, w, 1, C m]``."""
    return kernel.reshape(*kernel.shape[:2], 1, -1) if depthwise else kernel


def _portions(images: Array, geometry: _Geometry) -> Iterator[slice]:
    """Images that are looked at together."""
    each = geometry.height.results * geometry.width.results * geometry.height.window * geometry.width.window
    step = max(1, PORTION // max(each * images.shape[3], 1))
    for start in range(0, images.shape[0], step):
        yield slice(start, start + step)


_Product = Callable[[Array, Array], Array]


def _convolved(images: Array, kernel: Array, geometry: _Geometry, product: _Product) -> Array:
    """Applies ``product`` to windows and filter; returns ``[N, rows, columns, out]``."""
    shape = (geometry.height.results, geometry.width.results, kernel.shape[3])
    checked_shape((images.shape[0], *shape))
    by_group = _by_group(kernel, geometry.groups)
    parts = []
    for portion in _portions(images, geometry):
        chosen = images[portion]
        found = product(_windows(chosen, geometry), by_group)
        parts.append(np.moveaxis(found, 0, 1).reshape(chosen.shape[0], *shape))
    return np.concatenate(parts) if parts else np.zeros((0, *shape), kernel.dtype)


def _plain(a: Array, b: Array) -> Array:
    return np.asarray(a @ b)


def _error(u: float) -> _Product:
    def product(a: Array, b: Array) -> Array:
        left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return product_error(left, right, left @ right, u)

    return product


def _forward(call: Call, product: _Product, *, depthwise: bool) -> list[Array]:
    images, kernel = _channels_last(call, call.array(0)), call.array(1)
    geometry = _geometry(call, images.shape, kernel.shape, depthwise=depthwise)
    return [_as_given(call, _convolved(images, _flat(kernel, depthwise=depthwise), geometry, product))]


def _image_sizes(call: Call, index: int) -> list[int]:
    sizes = call.integers(index, "input_size", "input_sizes")
    if len(sizes) != 4:
        raise KernelError(f"input sizes {sizes}: wanted four")
    return [sizes[0], sizes[2], sizes[3], sizes[1]] if _channels_first(call) else sizes


def _for_images(call: Call, product: _Product, *, depthwise: bool) -> list[Array]:
    """Gradient of the images: inputs are their sizes, the filter and the gradient of the results."""
    sizes, kernel, gradient = _image_sizes(call, 0), call.array(1), _channels_last(call, call.array(2))
    geometry = _geometry(call, sizes, kernel.shape, depthwise=depthwise)
    h, w, groups = geometry
    kernel = _flat(kernel, depthwise=depthwise)
    _check_gradient(gradient, (sizes[0], h.results, w.results, kernel.shape[3]))
    checked_scratch(sizes[0] * h.size * w.size * kernel.shape[3], "the spread gradient")
    spread = np.zeros((sizes[0], (h.results - 1) * h.stride + 1, (w.results - 1) * w.stride + 1, kernel.shape[3]))
    spread = spread.astype(gradient.dtype)
    spread[:, :: h.stride, :: w.stride] = gradient
    # Turned round, its inputs and outputs changed: [h, w, out / groups, groups * c].
    split = kernel[::-1, ::-1].reshape(h.window, w.window, kernel.shape[2], groups, -1)
    turned = np.moveaxis(split, 4, 2)
    turned = np.moveaxis(turned, 4, 3).reshape(h.window, w.window, kernel.shape[3] // groups, -1)
    found = _convolved(spread, turned, _Geometry(h.turned(), w.turned(), groups), product)
    return [_as_given(call, found)]


def _for_filter(call: Call, product: _Product, *, depthwise: bool) -> list[Array]:
    """Gradient of the filter: inputs are the images, its sizes and the gradient of the results."""
    images, gradient = _channels_last(call, call.array(0)), _channels_last(call, call.array(2))
    sizes = call.integers(1, "filter_size", "filter_sizes")
    geometry = _geometry(call, images.shape, sizes, depthwise=depthwise)
    h, w, groups = geometry
    out = sizes[2] * sizes[3] if depthwise else sizes[3]
    _check_gradient(gradient, (images.shape[0], h.results, w.results, out))
    windows = np.swapaxes(_windows(images, geometry), -1, -2)
    by_group = np.moveaxis(gradient.reshape(-1, groups, out // groups), 1, 0)
    found = product(windows, by_group)
    return [np.moveaxis(found, 0, 1).reshape(sizes)]


def _check_gradient(gradient: Array, wanted: tuple[int, ...]) -> None:
    if gradient.shape != wanted:
        raise KernelError(f"gradient of shape {gradient.shape}, wanted {wanted}")


_Form = Callable[..., list[Array]]


def _kernel(form: _Form, arity: int, *, depthwise: bool = False) -> Kernel:
    def run(call: Call) -> list[Array]:
        return form(call, _plain, depthwise=depthwise)

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        return form(call, _error(call.u), depthwise=depthwise)

    return Kernel(run, bound, (arity, arity), accumulates=True)


CONVOLUTIONS: Mapping[str, Kernel] = MappingProxyType(
    {
        "Conv2D": _kernel(_forward, 2),
        "Conv2DBackpropInput": _kernel(_for_images, 3),
        "Conv2DBackpropFilter": _kernel(_for_filter, 3),
        "DepthwiseConv2dNative": _kernel(_forward, 2, depthwise=True),
        "DepthwiseConv2dNativeBackpropInput": _kernel(_for_images, 3, depthwise=True),
        "DepthwiseConv2dNativeBackpropFilter": _kernel(_for_filter, 3, depthwise=True),
    }
)

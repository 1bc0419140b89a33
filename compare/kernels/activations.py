"""Kernels of activations and their gradients: TensorFlow's, Keras's and those that devices fuse into one op.

Bounds are running errors of the formula that TensorFlow or the device documents. Two forms cost accuracy that better
ones would keep: ``e^x - 1`` in elu and selu (an absolute error of a few units near 0), and ``1 + tanh`` in gelu (an
absolute error of a few units of x where the result vanishes). Both forms are in use, so the bound allows both.

D.-A. Clevert et al., Fast and Accurate Deep Network Learning by Exponential Linear Units, ICLR 2016 (elu);
G. Klambauer et al., Self-Normalizing Neural Networks, NIPS 2017 (selu); D. Hendrycks, K. Gimpel, Gaussian Error Linear
Units, 2016 (gelu, its tanh form and ``x sigmoid(1.702 x)``); P. Ramachandran et al., Searching for Activation
Functions, 2017 (swish); K. He et al., Delving Deep into Rectifiers, ICCV 2015 (prelu); D. Misra, Mish, BMVC 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import FORMATS, Array, Bounded, Operand, Real
from compare.kernels.base import Call, Kernel, KernelError, attributed, formula
from compare.kernels.functions import constant, erf, exp, expm1, logistic, softplus, tanh
from compare.kernels.piecewise import absolute, chosen, clipped, value_of

SELU_SCALE = 1.0507009873554804934193349852946
SELU_SCALE_ALPHA = 1.7580993408473768599402175208123
GELU_CUBIC, GELU_SLOPE = 0.044715, math.sqrt(2.0 / math.pi)
FAST_GELU_SLOPE = 1.702


def _power_less_one(x: Operand) -> Operand:
    """``e^x - 1`` with the error of the plain difference."""
    return exp(x) - 1.0 if isinstance(x, Bounded) else expm1(x)


def _elu(x: Operand) -> Operand:
    return chosen(value_of(x) < 0, _power_less_one(x), x)


def _elu_grad(dy: Operand, y: Operand) -> Operand:
    return chosen(value_of(y) < 0, (y + _one(y)) * dy, dy)


def _selu(x: Operand) -> Operand:
    below = constant(x, SELU_SCALE_ALPHA) * _power_less_one(x)
    return chosen(value_of(x) < 0, below, constant(x, SELU_SCALE) * x)


def _selu_grad(dy: Operand, y: Operand) -> Operand:
    below = dy * (y + constant(y, SELU_SCALE_ALPHA))
    return chosen(value_of(y) < 0, below, dy * constant(y, SELU_SCALE))


def _softsign(x: Operand) -> Operand:
    return x / (_one(x) + absolute(x))


def _softsign_grad(dy: Operand, x: Operand) -> Operand:
    root = _one(x) + absolute(x)
    square = root * root
    result = dy / square
    if isinstance(result, Bounded) and isinstance(square, Bounded):
        # Where the square overflows the device's format, the quotient is 0.
        largest = next((form.largest for form in FORMATS.values() if form.u == square.u), math.inf)
        lost = np.where(square.value >= largest, np.abs(result.value), 0.0)
        return Bounded(result.value, result.error + lost, result.u, result.ulps)
    return result


def _one(like: Operand) -> Operand:
    """One, which every format has."""
    return 1.0 if isinstance(like, Bounded) else np.ones((), np.asarray(like).dtype)


def _leaky_relu(call: Call, x: Operand) -> Operand:
    return chosen(value_of(x) > 0, x, x * _alpha(call, x))


def _leaky_relu_grad(call: Call, dy: Operand, x: Operand) -> Operand:
    return chosen(value_of(x) > 0, dy, dy * _alpha(call, dy))


def _alpha(call: Call, like: Operand) -> Operand:
    """The slope below zero; devices call it ``negative_slope``."""
    name = "negative_slope" if "negative_slope" in call.attrs else "alpha"
    return constant(like, call.number(name, 0.0 if name == "negative_slope" else 0.2))


def _channel_slopes(call: Call) -> Call:
    """Gives the slopes a shape that broadcasts: one slope, one a channel (axis 1), or one an element."""
    x, weight = call.array(0), call.array(1)
    if weight.size == 1:
        shape: tuple[int, ...] = ()
    elif weight.shape == x.shape:
        shape = x.shape
    elif x.ndim > 1 and weight.size == x.shape[1]:
        shape = (-1, *(1 for _ in x.shape[2:]))
    else:
        raise KernelError(f"slopes of shape {weight.shape} for shape {x.shape}")
    return call.with_inputs([x, weight.reshape(shape)])


def _prelu(x: Operand, slope: Operand) -> Operand:
    return chosen(value_of(x) > 0, x, x * slope)


def _by_channel(kernel: Kernel) -> Kernel:
    def bound(call: Call, exact: Sequence[Array]) -> Sequence[Real]:
        return kernel.bound(_channel_slopes(call), exact) if kernel.bound else []

    return Kernel(lambda call: kernel.run(_channel_slopes(call)), bound, kernel.inputs, nan_free=True)


def _gelu_inner(x: Operand) -> Operand:
    cube = x * x * x
    return constant(x, GELU_SLOPE) * (x + constant(x, GELU_CUBIC) * cube)


def _gelu(x: Operand) -> Operand:
    return constant(x, 0.5) * x * (_one(x) + tanh(_gelu_inner(x)))


def _gelu_grad(dy: Operand, x: Operand, y: Operand) -> Operand:
    bent = tanh(_gelu_inner(x))
    slope = constant(x, GELU_SLOPE) * (_one(x) + constant(x, 3.0 * GELU_CUBIC) * (x * x))
    own = constant(x, 0.5) * (_one(x) + bent)
    return dy * (own + constant(x, 0.5) * x * (_one(x) - bent * bent) * slope)


def _gelu_v2(call: Call, x: Operand) -> Operand:
    form = call.text("approximate", "none")
    if form == "tanh":
        return _gelu(x)
    if form != "none":
        raise KernelError(f"approximate {form!r}: wanted none or tanh")
    return constant(x, 0.5) * x * (_one(x) + erf(x * constant(x, math.sqrt(0.5))))


def _fast_gelu(x: Operand) -> Operand:
    return x * logistic(constant(x, FAST_GELU_SLOPE) * x)


def _fast_gelu_grad(dy: Operand, x: Operand) -> Operand:
    scaled = constant(x, FAST_GELU_SLOPE) * x
    part = logistic(scaled)
    return dy * part * (_one(x) + scaled * (_one(x) - part))


def _swish(call: Call, x: Operand) -> Operand:
    return x * logistic(constant(x, call.number("scale", 1.0)) * x)


def _swish_grad(call: Call, dy: Operand, x: Operand, y: Operand) -> Operand:
    """``scale y + sigmoid(scale x) (1 - scale y)``, y the result of the forward op."""
    scale = constant(x, call.number("scale", 1.0))
    part = scale * y
    return dy * (part + logistic(scale * x) * (_one(x) - part))


def _silu_grad(dy: Operand, x: Operand) -> Operand:
    part = logistic(x)
    return dy * part * (_one(x) + x * (_one(x) - part))


def _mish(x: Operand) -> Operand:
    return x * tanh(softplus(x))


def _hard_sigmoid(call: Call, x: Operand) -> Operand:
    alpha, beta = call.number("alpha", 1.0 / 6.0), call.number("beta", 0.5)
    return clipped(constant(x, alpha) * x + constant(x, beta), 0.0, 1.0)


def _hard_swish(x: Operand) -> Operand:
    return x * clipped(x + constant(x, 3.0), 0.0, 6.0) * constant(x, 1.0 / 6.0)


ACTIVATIONS: Mapping[str, Kernel] = MappingProxyType(
    {
        "Elu": formula(_elu, 1),
        "EluGrad": formula(_elu_grad, 2),
        "Selu": formula(_selu, 1),
        "SeluGrad": formula(_selu_grad, 2),
        "Softsign": formula(_softsign, 1),
        "SoftsignGrad": formula(_softsign_grad, 2),
        "LeakyRelu": attributed(_leaky_relu, 1, nan_free=True),
        "LeakyReluGrad": attributed(_leaky_relu_grad, 2, nan_free=True),
        "PRelu": _by_channel(formula(_prelu, 2)),
        "Gelu": formula(_gelu, 1),
        "GeluGrad": formula(_gelu_grad, 3),
        "GeluV2": attributed(_gelu_v2, 1),
        "FastGelu": formula(_fast_gelu, 1),
        "FastGeluGrad": formula(_fast_gelu_grad, 2),
        "Swish": attributed(_swish, 1),
        "SwishGrad": attributed(_swish_grad, 3),
        "SiluGrad": formula(_silu_grad, 2),
        "Mish": formula(_mish, 1),
        "HardSigmoid": attributed(_hard_sigmoid, 1),
        "HardSwish": formula(_hard_swish, 1),
    }
)

"""Kernels of element-wise ops.

A formula is written once and evaluated three times: in the op's own dtype, in float64, and on Bounded operands, where
each basic operation adds one unit in the last place and each elementary function LIBM_ULPS of them (running error
analysis, Higham 2002, section 3.3). Comparisons, relu, max, sign, logic and everything on integers is exact: bound 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from compare.bounds import Array, Bounded, Operand, Real
from compare.kernels.base import Call, Kernel, KernelError, formula
from compare.kernels.functions import exp, expm1, log, log1p, logistic, reciprocal, softplus, sqrt, tanh


def _add(x: Operand, y: Operand) -> Operand:
    return x + y


def _sub(x: Operand, y: Operand) -> Operand:
    return x - y


def _mul(x: Operand, y: Operand) -> Operand:
    return x * y


def _neg(x: Array) -> Array:
    result: Array = -x
    return result


def _div(x: Operand, y: Operand) -> Operand:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.dtype.kind in "iu" and y.dtype.kind in "iu":
        return _int_div(x, y)
    return x / y


def _int_div(x: Array, y: Array) -> Array:
    if not np.all(y):
        raise KernelError("integer division by zero")
    size = np.abs(x) // np.abs(y)
    result: Array = np.where((x < 0) != (y < 0), -size, size).astype(np.result_type(x, y))
    return result


def _div_no_nan(x: Operand, y: Operand) -> Operand:
    if isinstance(x, Bounded) and isinstance(y, Bounded):
        zero = y.value == 0
        quotient = x / Bounded(np.where(zero, 1.0, y.value), y.error, y.u, y.ulps)
        return Bounded(
            np.where(zero, 0.0, quotient.value), np.where(zero, 0.0, quotient.error), quotient.u, quotient.ulps
        )
    divisor = np.asarray(y)
    safe = np.where(divisor == 0, np.ones_like(divisor), divisor)
    result: Array = np.where(divisor == 0, np.zeros_like(divisor), np.asarray(x) / safe)
    return result


def _square(x: Operand) -> Operand:
    return x * x


def _squared_difference(x: Operand, y: Operand) -> Operand:
    difference = x - y
    return difference * difference


def _rsqrt(x: Operand) -> Operand:
    root = 1.0 / sqrt(x)
    # Fast hardware estimates with one Newton step: two units more.
    return root.widened(2.0) if isinstance(root, Bounded) else root


def _rsqrt_grad(y: Operand, dy: Operand) -> Operand:
    return dy * -0.5 * (y * y * y)


def _sqrt_grad(y: Operand, dy: Operand) -> Operand:
    return dy * 0.5 / y


def _reciprocal_grad(y: Operand, dy: Operand) -> Operand:
    return -dy * (y * y)


def _sigmoid_grad(y: Operand, dy: Operand) -> Operand:
    result = dy * y * (1.0 - y)
    return _or_difference(result, dy, y, y)


def _tanh_grad(y: Operand, dy: Operand) -> Operand:
    result = dy * (1.0 - y * y)
    return _or_difference(result, dy, y, y)


def _or_difference(result: Operand, dy: Operand, a: Operand, b: Operand) -> Operand:
    """Adds room for ``dy - dy a b`` and ``y - a b`` in place of the factored form: one rounding of ``dy a b``."""
    if isinstance(result, Bounded) and isinstance(dy, Bounded) and isinstance(a, Bounded) and isinstance(b, Bounded):
        extra = result.u * np.abs(dy.value * a.value * b.value)
        return Bounded(result.value, result.error + extra, result.u, result.ulps)
    return result


def _softplus_grad(dy: Operand, x: Operand) -> Operand:
    return dy * logistic(x)


def _infinite_times_nothing(call: Call) -> Array:
    """Where an infinite gradient meets a slope of zero: kept out, or multiplied by zero, which makes a NaN."""
    dy, x = call.array(0), call.array(1)
    found: Array = np.isinf(dy) & ~(x > 0)
    return found if call.type == "ReluGrad" else found | (np.isinf(dy) & (x >= 6))


def _infinite_by_infinite(call: Call) -> Array:
    """An infinite gradient times ``1 / (1 + e^-x)`` is a NaN where it is divided by an overflowing power."""
    dy, x = call.array(0), call.array(1)
    found: Array = np.isinf(dy) & (x < 0)
    return found


def _fused_mul_add(x: Operand, y: Operand, z: Operand) -> Operand:
    return x * y + z


FORMULAS: Mapping[str, Kernel] = MappingProxyType(
    {
        "Add": formula(_add, 2),
        "Sub": formula(_sub, 2),
        "Mul": formula(_mul, 2),
        "RealDiv": formula(_div, 2),
        "Div": formula(_div, 2),
        "DivNoNan": formula(_div_no_nan, 2),
        "Square": formula(_square, 1),
        "Sqrt": formula(sqrt, 1),
        "Rsqrt": formula(_rsqrt, 1),
        "Reciprocal": formula(reciprocal, 1),
        "RsqrtGrad": formula(_rsqrt_grad, 2),
        "SqrtGrad": formula(_sqrt_grad, 2),
        "ReciprocalGrad": formula(_reciprocal_grad, 2),
        "Exp": formula(exp, 1),
        "Expm1": formula(expm1, 1),
        "Log": formula(log, 1),
        "Log1p": formula(log1p, 1),
        "Sigmoid": formula(logistic, 1),
        "SigmoidGrad": formula(_sigmoid_grad, 2),
        "Tanh": formula(tanh, 1),
        "TanhGrad": formula(_tanh_grad, 2),
        "Softplus": formula(softplus, 1),
        "SoftplusGrad": replace(formula(_softplus_grad, 2), unsure=_infinite_by_infinite),
        "SquaredDifference": formula(_squared_difference, 2),
        "FusedMulAdd": formula(_fused_mul_add, 3),
    }
)


def _pow_run(call: Call) -> list[Array]:
    x, y = call.arrays()
    return [np.power(x, y)]


def _pow_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """``exp(y log x)`` in working precision: the rounded exponent costs ``|y log x|`` units, the two functions 16."""
    x, y = (np.asarray(part, dtype=np.float64) for part in call.arrays())
    exponent = np.abs(y * np.log(np.where(np.abs(x) > 0, np.abs(x), 1.0)))
    return [(16.0 + 2.0 * exponent) * call.own_u * np.abs(np.asarray(exact[0], dtype=np.float64))]


def _floor_div_run(call: Call) -> list[Array]:
    x, y = call.arrays()
    if y.dtype.kind in "iu" and not np.all(y):
        raise KernelError("integer division by zero")
    return [np.floor_divide(x, y) if y.dtype.kind in "iu" else np.floor(x / y)]


def _near_integer(call: Call) -> NDBool:
    """Where ``x / y`` lies so close to an integer that its rounding decides the floor."""
    x, y = (np.asarray(part, dtype=np.float64) for part in call.arrays())
    quotient = x / y
    near: NDBool = np.abs(quotient - np.rint(quotient)) <= 4.0 * call.own_u * np.abs(quotient)
    return near


def _floor_div_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """Off by one where the quotient rounds across an integer, else exact up to the rounding of the integer itself."""
    return [_near_integer(call) * 1.0 + call.own_u * np.abs(np.asarray(exact[0], dtype=np.float64))]


def _floor_mod_run(call: Call) -> list[Array]:
    x, y = call.arrays()
    if y.dtype.kind in "iu" and not np.all(y):
        raise KernelError("integer division by zero")
    return [np.mod(x, y)]


def _floor_mod_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    """``x - floor(x/y) y``: two roundings of numbers of the size of x, and a whole y at a jump."""
    x, y = (np.abs(np.asarray(part, dtype=np.float64)) for part in call.arrays())
    return [4.0 * call.own_u * (x + y) + np.where(_near_integer(call), y, 0.0)]


def _unary(function: Callable[[Array], Array], *, nan_free: bool = False) -> Kernel:
    return Kernel(lambda call: [np.asarray(function(call.array(0)))], None, (1, 1), nan_free=nan_free)


def _binary(function: Callable[[Array, Array], Array], *, nan_free: bool = False) -> Kernel:
    return Kernel(lambda call: [np.asarray(function(call.array(0), call.array(1)))], None, (2, 2), nan_free=nan_free)


def _relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), x.dtype))


def _relu6(x: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(x, np.zeros((), x.dtype)), np.asarray(6, x.dtype)))


def _relu_grad(dy: Array, x: Array) -> Array:
    result: Array = np.where(x > 0, dy, np.zeros_like(dy))
    return result


def _relu6_grad(dy: Array, x: Array) -> Array:
    result: Array = np.where((x > 0) & (x < 6), dy, np.zeros_like(dy))
    return result


def _select(call: Call) -> list[Array]:
    condition, x, y = call.arrays()
    if call.type == "Select" and condition.ndim == 1 and x.ndim > 1:
        condition = condition.reshape((-1,) + (1,) * (x.ndim - 1))
    return [np.where(condition.astype(bool), x, y)]


NDBool = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

EXACT: Mapping[str, Kernel] = MappingProxyType(
    {
        "Neg": _unary(_neg),
        "Abs": _unary(np.abs),
        "Sign": _unary(np.sign),
        "Floor": _unary(np.floor),
        "Ceil": _unary(np.ceil),
        "Rint": _unary(np.rint),
        "Relu": _unary(_relu, nan_free=True),
        "Relu6": _unary(_relu6, nan_free=True),
        "ReluGrad": replace(_binary(_relu_grad, nan_free=True), unsure=_infinite_times_nothing),
        "Relu6Grad": replace(_binary(_relu6_grad, nan_free=True), unsure=_infinite_times_nothing),
        "Maximum": _binary(np.maximum, nan_free=True),
        "Minimum": _binary(np.minimum, nan_free=True),
        "Greater": _binary(np.greater),
        "GreaterEqual": _binary(np.greater_equal),
        "Less": _binary(np.less),
        "LessEqual": _binary(np.less_equal),
        "Equal": _binary(np.equal),
        "NotEqual": _binary(np.not_equal),
        "LogicalAnd": _binary(np.logical_and),
        "LogicalOr": _binary(np.logical_or),
        "LogicalNot": _unary(np.logical_not),
        "IsNan": _unary(np.isnan),
        "IsInf": _unary(np.isinf),
        "IsFinite": _unary(np.isfinite),
        "Select": Kernel(_select, None, (3, 3), moves=True),
        "SelectV2": Kernel(_select, None, (3, 3), moves=True),
    }
)

OTHERS: Mapping[str, Kernel] = MappingProxyType(
    {
        "Pow": Kernel(_pow_run, _pow_bound, (2, 2)),
        "FloorDiv": Kernel(_floor_div_run, _floor_div_bound, (2, 2)),
        "FloorMod": Kernel(_floor_mod_run, _floor_mod_bound, (2, 2)),
    }
)

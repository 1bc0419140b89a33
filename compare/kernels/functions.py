"""Elementary functions on arrays and on Bounded values alike, each with its condition (bound of the slope)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from compare.bounds import FORMATS, Array, Bounded, Operand, Real

BLOCK = 2**16
"""Elements that are Python numbers at a time."""


def exp(x: Operand) -> Operand:
    """``e^x``; slope e^(x + error)."""
    if isinstance(x, Bounded):
        return x.function(np.exp(x.value), np.exp(x.value + x.error))
    return np.asarray(np.exp(x))


def expm1(x: Operand) -> Operand:
    """``e^x - 1``."""
    if isinstance(x, Bounded):
        return x.function(np.expm1(x.value), np.exp(x.value + x.error))
    return np.asarray(np.expm1(x))


def log(x: Operand) -> Operand:
    """Natural logarithm; slope 1 / (x - error), unbounded where that is not positive."""
    if isinstance(x, Bounded):
        return x.function(np.log(x.value), _inverse(x.value - x.error))
    return np.asarray(np.log(x))


def log1p(x: Operand) -> Operand:
    """``log(1 + x)``."""
    if isinstance(x, Bounded):
        return x.function(np.log1p(x.value), _inverse(1.0 + x.value - x.error))
    return np.asarray(np.log1p(x))


def tanh(x: Operand) -> Operand:
    """Hyperbolic tangent; slope at most 1. Rational approximations (Eigen's among them) are off by up to 5 units."""
    if isinstance(x, Bounded):
        return x.function(np.tanh(x.value), np.ones_like(x.value), 6.0)
    return np.asarray(np.tanh(x))


def sqrt(x: Operand) -> Operand:
    """Square root: correctly rounded by IEEE hardware, two units off elsewhere. The slope is half its inverse."""
    if isinstance(x, Bounded):
        low = np.sqrt(np.maximum(x.value - x.error, 0.0))
        value = np.sqrt(x.value)
        # sqrt(x + e) - sqrt(x - e) <= e / sqrt(x) holds down to x = e; below that the result itself is the bound.
        slope = np.where(low > 0, _inverse(2.0 * low), _inverse(np.sqrt(np.maximum(x.error, np.finfo(float).tiny))))
        return x.function(value, slope, 2.0 if x.ulps > 1 else 0.5)
    return np.asarray(np.sqrt(x))


def reciprocal(x: Operand) -> Operand:
    """``1 / x``; hardware estimates with a Newton step are off by two units."""
    result = 1.0 / x
    return result.widened(1.0) if isinstance(result, Bounded) and result.ulps > 1 else result


def logistic(x: Operand) -> Operand:
    """``1 / (1 + e^-x)``; slope at most 1/4.

    Some implementations clamp the argument (TensorFlow 1.x at -18), which is an absolute error of u/4, covered by an
    absolute floor of u/2. In float16 e^-x overflows from x = -11.1 on, which makes a zero of 1.5e-5 (floor 2^-15).
    """
    if isinstance(x, Bounded):
        value = _logistic(x.value)
        result = x.function(value, np.full_like(value, 0.25), 2.0 * 4.0)
        floor = 2.0**-15 if x.u == FORMATS["float16"].u else 0.5 * min(x.u, 2.0**-24)
        return Bounded(result.value, result.error + floor, x.u, x.ulps)
    return _logistic(np.asarray(x))


def softplus(x: Operand) -> Operand:
    """``log(1 + e^x)``; slope at most 1.

    TensorFlow replaces it by e^x below and by x above a threshold near log(eps) + 2, which costs up to 8 u there.
    """
    if isinstance(x, Bounded):
        value = np.logaddexp(0.0, x.value)
        return x.function(value, np.ones_like(value), 8.0)
    array = np.asarray(x)
    return np.asarray(np.logaddexp(np.zeros((), array.dtype), array))


def erf(x: Operand) -> Operand:
    """Error function; slope at most ``2 / sqrt(pi)``."""
    if isinstance(x, Bounded):
        value = each(math.erf, x.value)
        return x.function(value, np.full_like(value, 2.0 / math.sqrt(math.pi)))
    array = np.asarray(x)
    return each(math.erf, array).astype(array.dtype)


def constant(like: Operand, value: float) -> Operand:
    """A constant in the arithmetic of ``like``, rounded to its format."""
    if isinstance(like, Bounded):
        return Bounded(np.asarray(value), np.asarray(like.u * abs(value)), like.u, like.ulps)
    return np.asarray(value, np.asarray(like).dtype)


def each(function: Callable[[float], float], x: Array) -> Real:
    """A function of the C library on every element: float64, NaN outside its domain."""
    flat = np.asarray(x, dtype=np.float64).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, BLOCK):
        numbers = flat[start : start + BLOCK].tolist()
        result[start : start + len(numbers)] = [_called(function, number) for number in numbers]
    return result.reshape(np.shape(x))


def _called(function: Callable[[float], float], number: float) -> float:
    try:
        return function(number)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf


def _logistic(x: Array) -> Array:
    # exp of a non-positive number cannot overflow.
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return result


def _inverse(x: Real) -> Real:
    result: Real = np.where(x > 0, 1.0 / np.where(x > 0, x, 1.0), np.inf)
    return result

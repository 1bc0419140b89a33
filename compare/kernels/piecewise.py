"""Functions with a kink or a jump, on arrays and on Bounded values alike.

A maximum, an absolute value and a soft threshold change by no more than their arguments do (Lipschitz constant 1), so
an error passes through as it is. A sign jumps: where the error reaches across zero the result may be any of -1, 0, 1.
"""

from __future__ import annotations

import numpy as np

from compare.bounds import Array, Bounded, Operand, Real


def sign(x: Operand) -> Operand:
    """-1, 0 or 1; off by up to 2 where zero lies within the error."""
    if isinstance(x, Bounded):
        unsure = (x.error > 0) & (np.abs(x.value) <= x.error)
        return Bounded(np.sign(x.value), np.where(unsure, 2.0, 0.0), x.u, x.ulps)
    return np.asarray(np.sign(x))


def absolute(x: Operand) -> Operand:
    """``|x|``, exact."""
    if isinstance(x, Bounded):
        return Bounded(np.abs(x.value), x.error, x.u, x.ulps)
    return np.asarray(np.abs(x))


def larger(x: Operand, y: Operand) -> Operand:
    """``max(x, y)``, exact."""
    if isinstance(x, Bounded) and isinstance(y, Bounded):
        return Bounded(np.maximum(x.value, y.value), np.maximum(x.error, y.error), x.u, x.ulps)
    return np.asarray(np.maximum(np.asarray(x), np.asarray(y)))


def clipped(x: Operand, low: float, high: float) -> Operand:
    """``min(max(x, low), high)``, exact."""
    if isinstance(x, Bounded):
        return Bounded(np.clip(x.value, low, high), x.error, x.u, x.ulps)
    array = np.asarray(x)
    return np.asarray(np.minimum(np.maximum(array, np.asarray(low, array.dtype)), np.asarray(high, array.dtype)))


def chosen(condition: Array, x: Operand, y: Operand) -> Operand:
    """``x`` where the condition holds, else ``y``; the condition itself must be beyond doubt."""
    if isinstance(x, Bounded) or isinstance(y, Bounded):
        u, ulps = (x.u, x.ulps) if isinstance(x, Bounded) else (y.u, y.ulps) if isinstance(y, Bounded) else (0.0, 0.0)
        value = np.where(condition, value_of(x), value_of(y)).astype(np.float64)
        return Bounded(value, np.where(condition, _error_of(x), _error_of(y)), u, ulps)
    result: Array = np.where(condition, x, y)
    return result


def value_of(x: Operand) -> Array:
    """The value of an operand, without its error."""
    return x.value if isinstance(x, Bounded) else np.asarray(x)


def _error_of(x: Operand) -> Real:
    return x.error if isinstance(x, Bounded) else np.zeros(np.shape(x))


def soft_threshold(x: Operand, threshold: Operand) -> Operand:
    """``sign(x) max(|x| - threshold, 0)``: one subtraction, and the errors of both."""
    if isinstance(x, Bounded) and isinstance(threshold, Bounded):
        value = np.sign(x.value) * np.maximum(np.abs(x.value) - threshold.value, 0.0)
        error = x.error + threshold.error + x.ulps * x.u * np.abs(value)
        return Bounded(value, error, x.u, x.ulps)
    array = np.asarray(x)
    return np.asarray(np.sign(array) * np.maximum(np.abs(array) - np.asarray(threshold), np.zeros((), array.dtype)))

"""Kernels of optimizers with an L1 term: FTRL, proximal steps, dual averaging.

H. B. McMahan et al., Ad Click Prediction: a View from the Trenches, KDD 2013 (FTRL-Proximal); J. Duchi, Y. Singer,
Efficient Online and Batch Learning Using Forward Backward Splitting, JMLR 10 (2009); J. Duchi, E. Hazan, Y. Singer,
Adaptive Subgradient Methods, JMLR 12 (2011). All end in a soft threshold, which is continuous: where a value lies so
near to it that rounding decides, both outcomes are within the running error.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from compare.bounds import Bounded, Operand
from compare.kernels.base import Call, Kernel
from compare.kernels.functions import exp, log, sqrt
from compare.kernels.piecewise import chosen, soft_threshold, value_of
from compare.kernels.updates import Values, dense, rule, sparse


def _ftrl(call: Call, p: Values) -> list[Operand]:
    """``linear`` gets the gradient less what the change of the learning rate takes back; then the threshold."""
    var, grad, rate, l1, l2 = p["var"], p["grad"], p["lr"], p["l1"], p["l2"]
    accum = p["accum"] + grad * grad
    if "l2_shrinkage" in p:
        grad = grad + 2.0 * p["l2_shrinkage"] * var
    new, old = _power(accum, p["lr_power"]), _power(p["accum"], p["lr_power"])
    if call.flag("multiply_linear_by_lr"):
        linear = p["linear"] + (grad * rate - (new - old) * var)
        return [-soft_threshold(linear, l1 * rate) / (new + 2.0 * l2 * rate), accum, linear]
    linear = p["linear"] + (grad - (new - old) / rate * var)
    return [-soft_threshold(linear, l1) / (new / rate + 2.0 * l2), accum, linear]


def _power(x: Operand, power: Operand) -> Operand:
    """``x^(-power)``: a square root for the usual -0.5, else ``e^(-power log x)`` with the error of both functions."""
    if np.all(value_of(power) == -0.5):
        return sqrt(x)
    if isinstance(x, Bounded):
        zero = (x.value == 0) & (x.error == 0)
        inner = Bounded(np.where(zero, 1.0, x.value), x.error, x.u, x.ulps)
        result = exp(-power * log(inner))
        return chosen(zero, np.power(x.value, -value_of(power)), result)
    return np.asarray(np.power(x, -np.asarray(power)))


def _proximal_adagrad(call: Call, p: Values) -> list[Operand]:
    accum = p["accum"] + p["grad"] * p["grad"]
    rate = p["lr"] / sqrt(accum)
    rate = rate.widened(2.0) if isinstance(rate, Bounded) else rate
    return [_shrunk(p["var"] - p["grad"] * rate, rate, p), accum]


def _proximal_descent(call: Call, p: Values) -> list[Operand]:
    gradient = p["delta"] if "delta" in p else p["grad"]
    return [_shrunk(p["var"] - gradient * p["alpha"], p["alpha"], p)]


def _shrunk(x: Operand, rate: Operand, p: Values) -> Operand:
    top = soft_threshold(x, rate * p["l1"]) if np.any(value_of(p["l1"]) > 0) else x
    return top / (1.0 + p["l2"] * rate)


def _dual_averaging(call: Call, p: Values) -> list[Operand]:
    total = p["gradient_accumulator"] + p["grad"]
    squares = p["gradient_squared_accumulator"] + p["grad"] * p["grad"]
    top = soft_threshold(total, p["l1"] * p["global_step"]) if np.any(value_of(p["l1"]) > 0) else total
    below = p["l2"] * p["global_step"] * p["lr"] + sqrt(squares)
    return [-p["lr"] * top / below, total, squares]


_FTRL = "lr l1 l2 lr_power"
_FTRL_V2 = "lr l1 l2 l2_shrinkage lr_power"
_DUAL = "var gradient_accumulator gradient_squared_accumulator grad"

DENSE_RULES = {
    "ApplyFtrl": rule(_ftrl, 3, f"var accum linear grad {_FTRL}"),
    "ApplyFtrlV2": rule(_ftrl, 3, f"var accum linear grad {_FTRL_V2}"),
    "ApplyProximalAdagrad": rule(_proximal_adagrad, 2, "var accum lr l1 l2 grad"),
    "ApplyProximalGradientDescent": rule(_proximal_descent, 1, "var alpha l1 l2 delta"),
    "ApplyAdagradDA": rule(_dual_averaging, 3, f"{_DUAL} lr l1 l2 global_step"),
}

SPARSE_RULES = {
    "SparseApplyFtrl": rule(_ftrl, 3, f"var accum linear grad indices {_FTRL}"),
    "SparseApplyFtrlV2": rule(_ftrl, 3, f"var accum linear grad indices {_FTRL_V2}"),
    "SparseApplyProximalAdagrad": rule(_proximal_adagrad, 2, "var accum lr l1 l2 grad indices"),
    "SparseApplyProximalGradientDescent": rule(_proximal_descent, 1, "var alpha l1 l2 grad indices"),
    "SparseApplyAdagradDA": rule(_dual_averaging, 3, f"{_DUAL} indices lr l1 l2 global_step"),
}

PROXIMAL: Mapping[str, Kernel] = MappingProxyType(
    {name: dense(found) for name, found in DENSE_RULES.items()}
    | {name: sparse(found) for name, found in SPARSE_RULES.items()}
)

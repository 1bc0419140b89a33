"""Kernels of optimizer updates; bounds by running errors through the update formula.

Each kernel returns the new variable first, then its slots, in the order of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compare.bounds import Array, Bounded, Operand, Real
from compare.kernels.base import Call, Kernel, KernelError
from compare.kernels.functions import sqrt

Update = Callable[[Call, Sequence[Operand]], Sequence[Operand]]


def _adam(call: Call, x: Sequence[Operand]) -> list[Operand]:
    """D. P. Kingma, J. Ba, Adam, ICLR 2015, section 2, last paragraph (the form with epsilon outside)."""
    var, m, v, power1, power2, lr, beta1, beta2, epsilon, grad = x
    rate = lr * sqrt(1.0 - power2) / (1.0 - power1)
    new_m = _mixed(m, grad, beta1)
    new_v = _mixed(v, grad * grad, beta2)
    top = new_m * beta1 + (1.0 - beta1) * grad if call.flag("use_nesterov") else new_m
    return [var - rate * top / (sqrt(new_v) + epsilon), new_m, new_v]


def _mixed(old: Operand, new: Operand, beta: Operand) -> Operand:
    """``old + (new - old)(1 - beta)``; the bound also holds for ``beta old + (1 - beta) new``.

    The two differ by a rounding of ``beta old``, of ``(1 - beta) new`` and of ``beta`` itself: three units of both.
    """
    result = old + (new - old) * (1.0 - beta)
    if isinstance(result, Bounded) and isinstance(old, Bounded) and isinstance(new, Bounded):
        share = np.abs(1.0 - beta.value) if isinstance(beta, Bounded) else np.zeros(())
        extra = 3.0 * result.u * (np.abs(old.value) + share * np.abs(new.value))
        return Bounded(result.value, result.error + extra, result.u, result.ulps)
    return result


def _gradient_descent(call: Call, x: Sequence[Operand]) -> list[Operand]:
    var, rate, delta = x
    return [var - rate * delta]


def _momentum(call: Call, x: Sequence[Operand]) -> list[Operand]:
    var, slot, rate, grad, momentum = x
    slot = slot * momentum + grad
    if call.flag("use_nesterov"):
        return [var - (grad * rate + slot * momentum * rate), slot]
    return [var - rate * slot, slot]


def _adagrad(call: Call, x: Sequence[Operand]) -> list[Operand]:
    var, slot, rate, grad = x
    if call.attrs.get("update_slots") is not False:
        slot = slot + grad * grad
    return [var - rate * grad / sqrt(slot), slot]


def _adagrad_v2(call: Call, x: Sequence[Operand]) -> list[Operand]:
    var, slot, rate, epsilon, grad = x
    if call.attrs.get("update_slots") is not False:
        slot = slot + grad * grad
    return [var - rate * grad / (sqrt(slot) + epsilon), slot]


def _assign_add(call: Call, x: Sequence[Operand]) -> list[Operand]:
    return [x[0] - x[1]] if call.type == "AssignSub" else [x[0] + x[1]]


def _update(function: Update, arity: int, arrays: Sequence[int]) -> Kernel:
    """Kernel of an update; ``arrays`` are the inputs of the variable's shape, the others are scalars."""

    def check(call: Call) -> None:
        shape = call.array(0).shape
        for index in range(arity):
            wanted = shape if index in arrays else ()
            if call.array(index).shape != wanted and not (wanted == () and call.array(index).size == 1):
                raise KernelError(f"input {index} has shape {call.array(index).shape}, wanted {wanted}")

    def values(call: Call, index: int) -> Array:
        return call.array(index) if index in arrays else call.array(index).reshape(())

    def run(call: Call) -> list[Array]:
        check(call)
        # One axis at least: NumPy 1.x computes 0-d arrays with Python numbers in float64.
        parts = function(call, [np.atleast_1d(values(call, i)) for i in range(arity)])
        return [np.asarray(part).reshape(call.array(0).shape) for part in parts]

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        flat = call.with_inputs([values(call, i) for i in range(arity)])
        parts = function(call, [flat.bounded(i) for i in range(arity)])
        return [part.error for part in parts if isinstance(part, Bounded)]

    return Kernel(run, bound, (arity, arity))


UPDATES: Mapping[str, Kernel] = MappingProxyType(
    {
        "ApplyAdamD": _update(_adam, 10, (0, 1, 2, 9)),
        "ApplyGradientDescent": _update(_gradient_descent, 3, (0, 2)),
        "ApplyMomentum": _update(_momentum, 5, (0, 1, 3)),
        "ApplyAdagrad": _update(_adagrad, 4, (0, 1, 3)),
        "ApplyAdagradV2": _update(_adagrad_v2, 5, (0, 1, 4)),
        "AssignAdd": _update(_assign_add, 2, (0, 1)),
        "AssignSub": _update(_assign_add, 2, (0, 1)),
    }
)

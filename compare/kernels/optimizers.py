"""Kernels of optimizer updates; bounds by running errors through the update formula.

Each kernel returns the new variable first, then its slots, in the order of the inputs. Formulas are those of
TensorFlow's kernels (documentation of the raw ops); a sparse form is the same rule over rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from compare.bounds import Bounded, Operand
from compare.kernels.base import Call, Kernel
from compare.kernels.functions import exp, sqrt
from compare.kernels.piecewise import absolute, larger, sign
from compare.kernels.updates import Values, dense, rule, sparse


def _rate(p: Values) -> Operand:
    """Step size of Adam with the bias of both moments taken out."""
    return p["lr"] * sqrt(1.0 - p["beta2_power"]) / (1.0 - p["beta1_power"])


def _adam(call: Call, p: Values) -> list[Operand]:
    """D. P. Kingma, J. Ba, Adam, ICLR 2015, section 2, last paragraph (the form with epsilon outside)."""
    grad, beta1 = p["grad"], p["beta1"]
    m, v = _mixed(p["m"], grad, beta1), _mixed(p["v"], grad * grad, p["beta2"])
    top = m * beta1 + (1.0 - beta1) * grad if call.flag("use_nesterov") else m
    return [p["var"] - _rate(p) * top / (sqrt(v) + p["epsilon"]), m, v]


def _amsgrad(call: Call, p: Values) -> list[Operand]:
    """S. J. Reddi, S. Kale, S. Kumar, On the Convergence of Adam and Beyond, ICLR 2018."""
    m, v = _mixed(p["m"], p["grad"], p["beta1"]), _mixed(p["v"], p["grad"] * p["grad"], p["beta2"])
    largest = larger(p["vhat"], v)
    return [p["var"] - _rate(p) * m / (sqrt(largest) + p["epsilon"]), m, v, largest]


def _ada_max(call: Call, p: Values) -> list[Operand]:
    """D. P. Kingma, J. Ba, Adam, ICLR 2015, section 7.1."""
    m = _mixed(p["m"], p["grad"], p["beta1"])
    v = larger(p["beta2"] * p["v"], absolute(p["grad"]))
    return [p["var"] - p["lr"] / (1.0 - p["beta1_power"]) * (m / (v + p["epsilon"])), m, v]


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


def _gradient_descent(call: Call, p: Values) -> list[Operand]:
    return [p["var"] - p["alpha"] * p["delta"]]


def _momentum(call: Call, p: Values) -> list[Operand]:
    rate, grad, momentum = p["lr"], p["grad"], p["momentum"]
    slot = p["accum"] * momentum + grad
    if call.flag("use_nesterov"):
        return [p["var"] - (grad * rate + slot * momentum * rate), slot]
    return [p["var"] - rate * slot, slot]


def _keras_momentum(call: Call, p: Values) -> list[Operand]:
    step = p["grad"] * p["lr"]
    slot = p["accum"] * p["momentum"] - step
    return [p["var"] + (slot * p["momentum"] - step if call.flag("use_nesterov") else slot), slot]


def _adagrad(call: Call, p: Values) -> list[Operand]:
    slot, grad = p["accum"], p["grad"]
    if call.attrs.get("update_slots") is not False:
        slot = slot + grad * grad
    root = sqrt(slot)
    return [p["var"] - p["lr"] * grad / (root + p["epsilon"] if "epsilon" in p else root), slot]


def _rms_prop(call: Call, p: Values) -> list[Operand]:
    """T. Tieleman, G. Hinton, Lecture 6.5, 2012; epsilon is under the root."""
    ms = _mixed(p["ms"], p["grad"] * p["grad"], p["rho"])
    mom = p["mom"] * p["momentum"] + _root_step(p, ms + p["epsilon"])
    return [p["var"] - mom, ms, mom]


def _centered_rms_prop(call: Call, p: Values) -> list[Operand]:
    ms, mg = _mixed(p["ms"], p["grad"] * p["grad"], p["rho"]), _mixed(p["mg"], p["grad"], p["rho"])
    mom = p["mom"] * p["momentum"] + _root_step(p, ms - mg * mg + p["epsilon"])
    return [p["var"] - mom, mg, ms, mom]


def _root_step(p: Values, under: Operand) -> Operand:
    """``grad lr / sqrt(under)``; two units more for an estimate of the inverse root."""
    step = p["grad"] * p["lr"] / sqrt(under)
    return step.widened(2.0) if isinstance(step, Bounded) else step


def _adadelta(call: Call, p: Values) -> list[Operand]:
    """M. D. Zeiler, ADADELTA, arXiv:1212.5701, 2012."""
    accum = _mixed(p["accum"], p["grad"] * p["grad"], p["rho"])
    update = sqrt(p["accum_update"] + p["epsilon"]) / sqrt(accum + p["epsilon"]) * p["grad"]
    update = update.widened(2.0) if isinstance(update, Bounded) else update
    return [p["var"] - update * p["lr"], accum, _mixed(p["accum_update"], update * update, p["rho"])]


def _add_sign(call: Call, p: Values) -> list[Operand]:
    """I. Bello et al., Neural Optimizer Search with Reinforcement Learning, ICML 2017."""
    m = _mixed(p["m"], p["grad"], p["beta"])
    agreement = sign(p["grad"]) * sign(m)
    return [p["var"] - p["lr"] * (p["alpha"] + p["sign_decay"] * agreement) * p["grad"], m]


def _power_sign(call: Call, p: Values) -> list[Operand]:
    m = _mixed(p["m"], p["grad"], p["beta"])
    agreement = sign(p["grad"]) * sign(m)
    return [p["var"] - p["lr"] * exp(p["logbase"] * p["sign_decay"] * agreement) * p["grad"], m]


def _assign_add(call: Call, p: Values) -> list[Operand]:
    return [p["var"] - p["value"] if call.type == "AssignSub" else p["var"] + p["value"]]


DENSE_RULES = {
    "ApplyAdamD": rule(_adam, 3, "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad"),
    "ApplyAdamWithAmsgrad": rule(_amsgrad, 4, "var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad"),
    "ApplyAdaMax": rule(_ada_max, 3, "var m v beta1_power lr beta1 beta2 epsilon grad"),
    "ApplyGradientDescent": rule(_gradient_descent, 1, "var alpha delta"),
    "ApplyMomentum": rule(_momentum, 2, "var accum lr grad momentum"),
    "ApplyKerasMomentum": rule(_keras_momentum, 2, "var accum lr grad momentum"),
    "ApplyAdagrad": rule(_adagrad, 2, "var accum lr grad"),
    "ApplyAdagradV2": rule(_adagrad, 2, "var accum lr epsilon grad"),
    "ApplyRMSProp": rule(_rms_prop, 3, "var ms mom lr rho momentum epsilon grad"),
    "ApplyCenteredRMSProp": rule(_centered_rms_prop, 4, "var mg ms mom lr rho momentum epsilon grad"),
    "ApplyAdadelta": rule(_adadelta, 3, "var accum accum_update lr rho epsilon grad"),
    "ApplyAddSign": rule(_add_sign, 2, "var m lr alpha sign_decay beta grad"),
    "ApplyPowerSign": rule(_power_sign, 2, "var m lr logbase sign_decay beta grad"),
    "AssignAdd": rule(_assign_add, 1, "var value"),
    "AssignSub": rule(_assign_add, 1, "var value"),
}

SPARSE_RULES = {
    "SparseApplyMomentum": rule(_momentum, 2, "var accum lr grad indices momentum"),
    "SparseApplyKerasMomentum": rule(_keras_momentum, 2, "var accum lr grad indices momentum"),
    "SparseApplyAdagrad": rule(_adagrad, 2, "var accum lr grad indices"),
    "SparseApplyAdagradV2": rule(_adagrad, 2, "var accum lr epsilon grad indices"),
    "SparseApplyRMSProp": rule(_rms_prop, 3, "var ms mom lr rho momentum epsilon grad indices"),
    "SparseApplyCenteredRMSProp": rule(_centered_rms_prop, 4, "var mg ms mom lr rho momentum epsilon grad indices"),
    "SparseApplyAdadelta": rule(_adadelta, 3, "var accum accum_update lr rho epsilon grad indices"),
}

UPDATES: Mapping[str, Kernel] = MappingProxyType(
    {name: dense(found) for name, found in DENSE_RULES.items()}
    | {name: sparse(found) for name, found in SPARSE_RULES.items()}
)

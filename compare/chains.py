"""Fused ops: the chain of original ops inside one device op, member by member, whole or with one member left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from compare.bounds import Array, Bounded, Real, rounding
from compare.kernels.base import Call, Kernel, KernelError
from compare.kernels.matmul import PRODUCTS, operands, product_error
from compare.kernels.reductions import bias_shaped
from compare.kernels.table import device_type, find_kernel

if TYPE_CHECKING:
    from compare.bounds import Format
    from dumpers.graph import Op

MONOTONE = ("Relu", "Relu6", "Identity", "StopGradient", "PreventGradient", "Snapshot")
"""Exact members: an error e before them lies between f(x - e) and f(x + e) after them."""

COMMUTING = ("Add", "Mul")
"""Binary members that may follow: with these it does not matter which operand comes from the chain."""


@dataclass(frozen=True)
class Member:
    """One original op of a fused one.

    Attributes:
        type: Device type.
        externals: Which inputs of the fused op it reads from outside the chain.
    """

    name: str
    type: str
    externals: tuple[int, ...]


def members(op: Op, inputs: int) -> tuple[Member, ...]:
    """Returns the chain inside ``op``, empty when it is a plain op.

    Inputs of the fused op are the external inputs in member order. Without a record of the original types the
    device type tells: a MatMulV2 with a third input adds it as a bias.

    Raises:
        KernelError: a member is unknown, or the number of inputs does not fit the chain.
    """
    types = [device_type(name) for name in op.original_types]
    names = list(op.originals)
    if len(types) < 2 and len(names) <= 2:
        known = _known_chain(device_type(op.type), inputs)
        types, names = known or types, names if len(names) == len(known) else [op.name] * len(known)
    if len(types) < 2:
        if op.fused:
            raise KernelError("the graph does not tell the types of the fused ops")
        return ()
    names += [op.name] * (len(types) - len(names))
    chain, used = [], 0
    for position, (name, kind) in enumerate(zip(names, types, strict=False)):
        count = _externals(kind, leads=position == 0)
        chain.append(Member(name, kind, tuple(range(used, used + count))))
        used += count
    if used != inputs:
        raise KernelError(f"{inputs} inputs for the chain {'+'.join(types)}, which reads {used}")
    return tuple(chain)


def _known_chain(kind: str, inputs: int) -> list[str]:
    if kind == "MatMulV2" and inputs == 3:
        return ["MatMulV2", "BiasAdd"]
    return ["Mul", "Add"] if kind == "FusedMulAdd" else []


def _externals(kind: str, *, leads: bool) -> int:
    kernel = find_kernel(kind)
    if kernel is None:
        raise KernelError(f"no kernel for fused member {kind}")
    if leads:
        return kernel.inputs[0]
    if kind in MONOTONE:
        return 0
    if kind == "BiasAdd" or kind in COMMUTING:
        return 1
    if kernel.formula is not None and kernel.inputs == (1, 1):
        return 0
    raise KernelError(f"member {kind} inside a fused op is not supported")


def without(chain: Sequence[Member], dropped: str) -> tuple[Member, ...] | None:
    """Returns the chain with one member left out, None where that makes no sense.

    A leading element-wise member is left out by passing its first operand on.
    """
    position = next((k for k, member in enumerate(chain) if member.name == dropped), None)
    if position is None or len(chain) < 2:
        return None
    if position:
        return tuple(member for k, member in enumerate(chain) if k != position)
    kernel = find_kernel(chain[0].type)
    if kernel is None or kernel.formula is None:
        return None
    return (replace(chain[0], type="Identity", externals=chain[0].externals[:1]), *chain[1:])


def run_chain(chain: Sequence[Member], call: Call) -> Array:
    """Evaluates a chain in the dtype of the inputs."""
    value = _leader(chain[0], call)
    for member in chain[1:]:
        kernel = _kernel(member)
        value = np.asarray(kernel.run(_member_call(member, call, value))[0])
    return value


def bound_chain(chain: Sequence[Member], call: Call, form: Format) -> Real:
    """Bounds a chain: each member's own rounding, and the error before it carried through it.

    ``call`` has float64 inputs. In 16-bit formats each member's result may or may not be stored in between.
    """
    value = np.asarray(_leader(chain[0], call), dtype=np.float64)
    kernel = _kernel(chain[0])
    own = _member_call(chain[0], call, None)
    start = _accumulator_start(chain, call, value)
    if start is not None:
        error = product_error(*operands(own), value, call.u, start=start)
    else:
        error = np.asarray(kernel.bound(own, [value])[0] if kernel.bound else np.zeros(value.shape))
    if kernel.accumulates and form.u > call.u:
        error = error + rounding(value, form)
    state = Bounded(value, error, call.own_u, 2.0 if call.own_u <= 2.0**-24 else 1.0)
    for member in chain[1:]:
        state = _carry(member, call, state)
    return state.error


def _accumulator_start(chain: Sequence[Member], call: Call, value: Real) -> Array | None:
    """Returns the bias (or summand) that a device may load into the accumulator of a matrix product beforehand.

    Cube units and libraries alike do so: then each partial sum is rounded with the bias in it, which matters where the
    bias is larger than the product.
    """
    if len(chain) < 2 or chain[0].type not in PRODUCTS or chain[1].type not in ("BiasAdd", "Add"):
        return None
    addend = call.array(chain[1].externals[0])
    shaped = bias_shaped(call, value, addend) if chain[1].type == "BiasAdd" else addend
    fits = shaped.ndim <= value.ndim and np.broadcast_shapes(shaped.shape, value.shape) == value.shape
    return shaped if fits else None


def _carry(member: Member, call: Call, state: Bounded) -> Bounded:
    if member.type in MONOTONE:
        return _monotone(state, lambda x: np.asarray(_kernel(member).run(_member_call(member, call, x))[0]))
    if member.type == "BiasAdd":
        return state + bias_shaped(call, state.value, call.array(member.externals[0]))
    function = _kernel(member).formula
    result = function(state, *(call.bounded(k) for k in member.externals)) if function else None
    if not isinstance(result, Bounded):
        raise KernelError(f"no error bound through fused member {member.type}")
    return result


def _monotone(state: Bounded, function: Callable[[Real], Array]) -> Bounded:
    value = function(state.value)
    up, down = function(state.value + state.error) - value, value - function(state.value - state.error)
    return Bounded(value, np.maximum(up, down), state.u, state.ulps)


def _leader(member: Member, call: Call) -> Array:
    return np.asarray(_kernel(member).run(_member_call(member, call, None))[0])


def _kernel(member: Member) -> Kernel:
    kernel = find_kernel(member.type)
    if kernel is None:
        raise KernelError(f"no kernel for fused member {member.type}")
    return kernel


def _member_call(member: Member, call: Call, value: Array | None) -> Call:
    first = [] if value is None else [value]
    return replace(call, type=member.type, inputs=(*first, *(call.array(k) for k in member.externals)))

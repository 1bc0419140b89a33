"""Replay of one op from its dumped inputs: what it should have written, and whether rounding explains the difference.

This decides every verdict: an op whose local error is far above its bound is a source, whatever its cosine; one within
its bound only carries what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from compare.bounds import RATIO_LIMIT, Array
from compare.chains import Member, members, without
from compare.evaluation import Replay, evaluate
from compare.kernels.base import KernelError
from compare.kernels.matmul import PRODUCTS
from compare.kernels.table import device_type
from compare.local_error import LocalError, judge, unjudged

if TYPE_CHECKING:
    from dumpers.graph import Op

__all__ = [
    "Hypothesis",
    "LocalError",
    "Replay",
    "explains",
    "fusion_hypotheses",
    "local_error",
    "precision_fit",
    "replay_op",
]


def replay_op(op: Op, inputs: Sequence[Array | None]) -> Replay:
    """Runs an op again on the CPU, without TensorFlow.

    Args:
        op: Type (device or TensorFlow name), attributes, ports, original types of a fused op.
        inputs: As dumped, in the slots of the graph; None where missing.

    Returns:
        Results in the op's own dtype and in float64 with error bounds, or the reason why it cannot be replayed.
    """
    return evaluate(op, inputs, [port.dtype for port in op.output_ports])


def local_error(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> list[LocalError]:
    """Judges what an op wrote, one entry per output; the dtype of each dumped output is the one it is judged in."""
    if not outputs:
        return []
    replay = evaluate(op, inputs, _dtypes(op, outputs))
    return _judged(replay, outputs)


class Hypothesis(NamedTuple):
    """A member that may have been lost, and the float64 outputs of the rest of the chain."""

    member: str
    member_type: str
    outputs: tuple[Array, ...]


def fusion_hypotheses(op: Op, inputs: Sequence[Array | None]) -> list[Hypothesis]:
    """What a fused op would write if one member were lost, for each member.

    Members that cannot be left out (a leading matrix product) are not listed; a plain op has none.
    """
    found = []
    for member, rest in _shortened(op, inputs):
        replay = evaluate(op, inputs, [port.dtype for port in op.output_ports], chain=rest)
        if replay.replayable:
            found.append(Hypothesis(member.name, member.type, replay.exact))
    return found


def explains(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None], member: str) -> bool:
    """Whether a fused op wrote what its chain gives without ``member``, within rounding, and not what it should."""
    if all(not error.faulty for error in local_error(op, inputs, outputs)):
        return False
    for candidate, rest in _shortened(op, inputs):
        if candidate.name == member:
            replay = evaluate(op, inputs, _dtypes(op, outputs), chain=rest)
            return replay.replayable and _within(_judged(replay, outputs))
    return False


def precision_fit(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> str | None:
    """Names the arithmetic that explains an op which rounding in its declared precision does not.

    Returns:
        ``hfloat32``, ``tfloat32``, ``float16`` or ``bfloat16``: with its float inputs rounded to that first, the op's
        outputs lie within the bound. None if none does, or if nothing needs an explanation. Evidence, not proof.
    """
    if all(not error.faulty for error in local_error(op, inputs, outputs)):
        return None
    # A bias may go into the wide accumulator as it is.
    factors_only = (2,) if len(inputs) > 2 and device_type(op.type) in PRODUCTS else ()
    for name, convert in ROUNDED.items():
        for first in (len(inputs), *factors_only):
            rounded = [
                convert(x) if k < first and x is not None and x.dtype.kind in "fV" else x for k, x in enumerate(inputs)
            ]
            if _within(local_error(op, rounded, outputs)):
                return name
    return None


def _judged(replay: Replay, outputs: Sequence[Array | None]) -> list[LocalError]:
    result = []
    for slot, got in enumerate(outputs):
        if replay.reason:
            result.append(unjudged(slot, got, replay.reason))
        elif got is None:
            result.append(unjudged(slot, got, "output missing"))
        elif slot >= len(replay.exact):
            result.append(unjudged(slot, got, replay.rest))
        else:
            flushed = (replay.flushed[slot], replay.flushed_bound[slot]) if replay.flushed else None
            result.append(judge(slot, got, replay.exact[slot], replay.bound[slot], flushed))
    return result


def _within(errors: Sequence[LocalError]) -> bool:
    ratios = [error.ratio for error in errors if error.ratio is not None]
    return bool(ratios) and max(ratios) <= RATIO_LIMIT


def _dtypes(op: Op, outputs: Sequence[Array | None]) -> list[str]:
    declared = [port.dtype for port in op.output_ports] + [""] * len(outputs)
    return [declared[slot] if got is None else got.dtype.name for slot, got in enumerate(outputs)]


def _shortened(op: Op, inputs: Sequence[Array | None]) -> list[tuple[Member, tuple[Member, ...]]]:
    given = [x for x in inputs if x is not None]
    try:
        chain = members(op, len(given))
    except KernelError:
        return []
    pairs = [(member, without(chain, member.name)) for member in chain]
    return [(member, rest) for member, rest in pairs if rest is not None]


def _to_float16(x: Array) -> Array:
    return x.astype(np.float16).astype(x.dtype)


def _to_significand(bits: int) -> Callable[[Array], Array]:
    """Rounds to ``bits`` explicit bits of significand, exponent range unchanged, ties to even."""

    def convert(x: Array) -> Array:
        mantissa, exponent = np.frexp(x.astype(np.float64))
        return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, bits + 1)), exponent - bits - 1)).astype(x.dtype)

    return convert


ROUNDED = MappingProxyType(
    {
        "hfloat32": _to_significand(11),
        "tfloat32": _to_significand(10),
        "float16": _to_float16,
        "bfloat16": _to_significand(7),
    }
)

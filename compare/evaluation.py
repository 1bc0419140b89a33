"""One op again: in its own dtype, in float64, and what rounding may explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from compare.bounds import FORMATS, Array, Format, Real, rounding
from compare.chains import Member, bound_chain, members, run_chain
from compare.kernels.base import Call, Kernel, KernelError
from compare.kernels.table import device_type, find_kernel, why_no_kernel

if TYPE_CHECKING:
    from dumpers.graph import Op


FLUSHED = ("float32", "float64", "bfloat16")
"""Formats whose subnormal numbers processors and devices may take for zero; those of float16 are in daily use."""


@dataclass(frozen=True)
class Replay:
    """One op, computed again. The three tuples have one array per output.

    Attributes:
        own: Computed in the op's own dtype (16-bit floats through float32).
        exact: Computed in float64; of ops that round nothing, the same as ``own``.
        bound: Greatest error that an honest implementation may have, per element; infinite where the element cannot
            be judged.
        flushed: ``exact`` with subnormal inputs taken as zero, empty if there are none: as right as ``exact``.
        flushed_bound: The bounds that go with ``flushed``.
        rest: Why outputs beyond these are not judged.
        reason: Why the op was not replayed, empty if it was; begins with ``not replayable:``.
    """

    own: tuple[Array, ...] = ()
    exact: tuple[Array, ...] = ()
    bound: tuple[Real, ...] = ()
    flushed: tuple[Array, ...] = ()
    flushed_bound: tuple[Real, ...] = ()
    rest: str = ""
    reason: str = ""

    @property
    def replayable(self) -> bool:
        """Whether there are values."""
        return not self.reason


def evaluate(
    op: Op,
    inputs: Sequence[Array | None],
    dtypes: Sequence[str],
    *,
    chain: Sequence[Member] | None = None,
) -> Replay:
    """Computes ``op`` from its inputs.

    Args:
        op: Type, attributes and ports.
        inputs: Dumped inputs, None where missing.
        dtypes: Dtype name of each output as it was dumped or declared.
        chain: Members to evaluate in place of those that the op tells.

    Returns:
        The values, or the reason why there are none. Never raises for what data can be.
    """
    given = _without_trailing_none(inputs)
    try:
        with np.errstate(all="ignore"):
            call = Call(op.type, tuple(given), op.attrs, tuple(dtypes))
            parts = members(op, len(given)) if chain is None else tuple(chain)
            return _Evaluation(call, parts).replay()
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError, MemoryError) as error:
        return Replay(reason=f"not replayable: {error or type(error).__name__}")


def _without_trailing_none(inputs: Sequence[Array | None]) -> list[Array | None]:
    result = list(inputs)
    while result and result[-1] is None:
        result.pop()
    return result


class _Evaluation:
    """A call with its kernel or chain, evaluated in several precisions."""

    def __init__(self, call: Call, chain: tuple[Member, ...]) -> None:
        self._chain = chain
        self._kernel = _kernel_of(call) if not chain else _chain_kernel(chain)
        self._check(call)
        self._default = _promoted(call)
        self._forms = self._formats(call)
        wide = "float64" in (self._default, *(form.name for form in self._forms))
        self._wide = wide
        work = FORMATS["float64" if wide else "float32"]
        own_u = max(form.u for form in self._forms) if self._forms else work.u
        self._call = replace(call, u=work.u, own_u=own_u, type=device_type(call.type))

    def _check(self, call: Call) -> None:
        least, most = self._kernel.inputs
        count = len(call.inputs)
        missing = [k for k in range(max(least, count)) if k >= count or call.inputs[k] is None]
        if missing:
            raise KernelError(f"input {missing[0]} missing")
        if most >= 0 and count > most:
            raise KernelError(f"{count} inputs, {call.type} reads at most {most}")
        if any(x is not None and (x.dtype.kind in "cOSU") for x in call.inputs):
            raise KernelError("inputs that are complex or no numbers")

    def _formats(self, call: Call) -> tuple[Format, ...]:
        names = call.dtypes or (self._default,)
        return tuple(FORMATS[name if name in FORMATS else self._default or "float32"] for name in names)

    def replay(self) -> Replay:
        """Evaluates in all precisions."""
        if self._kernel.moves:
            return self._moved()
        own, exact, bound = self._judged()
        if not any(x is not None and _subnormal(x).any() for x in self._call.inputs):
            return Replay(own, exact, bound, rest=self._kernel.rest)
        self._call = self._call.with_inputs([None if x is None else _without_subnormals(x) for x in self._call.inputs])
        _, flushed, flushed_bound = self._judged()
        return Replay(own, exact, bound, flushed, flushed_bound, rest=self._kernel.rest)

    def _judged(self) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[Real, ...]]:
        """Results in the own precision, in float64, and the bound."""
        own = [self._rounded(part, slot) for slot, part in enumerate(self._run(_narrow))]
        if self._kernel.bound is None or not any(_is_float(part) for part in own):
            exact, bound = own, [np.zeros(part.shape) for part in own]
        else:
            exact = self._run(_double)
            bound = self._bound(exact, own)
        if self._kernel.nan_free:
            bound = [
                np.where(self._nan_operands(part), np.inf, limit) for part, limit in zip(exact, bound, strict=True)
            ]
        if self._kernel.unsure is not None:
            unsure = self._kernel.unsure(self._call)
            bound = [np.where(unsure, np.inf, limit) for limit in bound]
        return tuple(own), tuple(exact), tuple(self._flush_room(exact, bound))

    def _moved(self) -> Replay:
        own = [np.asarray(part) for part in self._kernel.run(self._call)]
        bound = (
            list(self._kernel.bound(self._call, own)) if self._kernel.bound else [np.zeros(part.shape) for part in own]
        )
        return Replay(tuple(own), tuple(own), tuple(bound), rest=self._kernel.rest)

    def _run(self, convert: Callable[[Array], Array]) -> list[Array]:
        call = self._call.with_inputs([convert(x) if x is not None else None for x in self._call.inputs])
        if self._chain:
            return [run_chain(self._chain, call)]
        return [np.asarray(part) for part in self._kernel.run(call)]

    def _rounded(self, part: Array, slot: int) -> Array:
        """Brings a result to the format of its output."""
        return part.astype(_numpy(self._form(slot).name)) if _is_float(part) else part

    def _form(self, slot: int) -> Format:
        return self._forms[slot] if slot < len(self._forms) else FORMATS[self._default or "float32"]

    def _bound(self, exact: Sequence[Array], own: Sequence[Array]) -> list[Real]:
        wide = self._call.with_inputs([_double(x) if x is not None else None for x in self._call.inputs])
        errors: Sequence[Real]
        if self._chain:
            errors = [bound_chain(self._chain, wide, self._form(0))]
        else:
            errors = self._kernel.bound(wide, exact) if self._kernel.bound else []
        result = []
        for slot, (error, value, plain) in enumerate(zip(errors, exact, own, strict=True)):
            form = self._form(slot)
            last = rounding(value, form)
            narrower = self._kernel.accumulates and form.u > wide.u
            # No error before the last rounding: the value is zero or one of the inputs, which needs none.
            known = np.where(np.isnan(error), np.inf, error)  # infinity times zero: nothing is known there
            full = np.where(known > 0, known + last if narrower else np.maximum(known, form.smallest / 2), 0.0)
            # The float64 reference has the same rounding errors as a float64 op.
            full = full * 2.0 if self._wide and form.name == "float64" else full
            unsafe = ~np.isfinite(np.asarray(plain, dtype=np.float64)) & (np.abs(value) < form.largest)
            # A result that is not finite in float64 leaves no room; judge() knows when infinity is right.
            result.append(np.where(np.isfinite(value), np.where(np.isnan(full) | unsafe, np.inf, full), 0.0))
        return result

    def _flush_room(self, exact: Sequence[Array], bound: Sequence[Real]) -> list[Real]:
        """A result that is subnormal may be flushed to zero, except in float16."""
        result = []
        for slot, (value, limit) in enumerate(zip(exact, bound, strict=True)):
            form = self._form(slot)
            if form.name in FLUSHED and _is_float(value):
                size = np.abs(value)
                tiny = (size > 0) & (size < form.normal)
                result.append(np.where(tiny, np.maximum(limit, form.normal), limit))
            else:
                result.append(limit)
        return result

    def _nan_operands(self, part: Array) -> Array:
        found: Array = np.isnan(np.asarray(part, dtype=np.float64))
        for x in self._call.inputs:
            if x is not None and _is_float(x) and _spreads(x.shape, part.shape):
                found = found | np.isnan(np.asarray(x, dtype=np.float64))
        return found


def _kernel_of(call: Call) -> Kernel:
    kernel = find_kernel(call.type)
    if kernel is None:
        raise KernelError(why_no_kernel(call.type, str(call.attrs.get("original_type", ""))))
    return kernel


def _chain_kernel(chain: tuple[Member, ...]) -> Kernel:
    """Stands for a whole chain: it reads what the members read, and accumulates nothing at its very end."""
    last = max((k for member in chain for k in member.externals), default=0) + 1
    return Kernel(lambda call: [run_chain(chain, call)], lambda call, exact: [], (last, -1))


def _promoted(call: Call) -> str:
    """Name of the widest float format among the inputs, empty if none is float."""
    names = [x.dtype.name for x in call.inputs if x is not None and _is_float(x)]
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise KernelError(f"arithmetic in {unknown[0]} is not supported")
    if set(names) == {"float16", "bfloat16"}:
        return "float32"
    return min(names, key=lambda name: FORMATS[name].u, default="")


def _spreads(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether an array of shape ``small`` broadcasts to ``large``."""
    tail = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(a in (1, b) for a, b in zip(small, tail, strict=True))


def _is_float(x: Array) -> bool:
    return x.dtype.kind in "fV"


def _numpy(name: str) -> np.dtype[np.generic]:
    from dumpers.dtypes import numpy_dtype

    return numpy_dtype(name)


def _narrow(x: Array) -> Array:
    return x.astype(np.float32) if _is_float(x) and x.dtype.itemsize < 4 else x


def _double(x: Array) -> Array:
    return x.astype(np.float64) if _is_float(x) else x


def _subnormal(x: Array) -> Array:
    if x.dtype.name not in FLUSHED:
        return np.zeros(x.shape, dtype=bool)
    size = np.abs(_narrow(x))
    found: Array = (size > 0) & (size < FORMATS[x.dtype.name].normal)
    return found


def _without_subnormals(x: Array) -> Array:
    return np.where(_subnormal(x), np.zeros_like(x), x)

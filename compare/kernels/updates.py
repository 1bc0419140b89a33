"""How an optimizer's rule becomes a kernel: over a whole variable, or over the rows that indices name.

A rule is written once, for arrays and for Bounded values. Over indices TensorFlow applies repeated ones one after the
other: the first update of every row, then the second, and so on, each with the errors that the row has by then. Rows
that are not named stay as they are: bound 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.bounds import Array, Bounded, Operand, Real
from compare.kernels.base import Call, Kernel, KernelError, checked_indices

if TYPE_CHECKING:
    from dumpers.graph import AttrValue

Values = Mapping[str, Operand]


@dataclass(frozen=True)
class Rule:
    """One optimizer.

    Attributes:
        function: New state from the inputs by name, in the order of the state's names.
        state: Names of the variable and its slots, which are also the outputs.
        names: Names of all inputs in TensorFlow's order.
        gradient: Name of the input with the variable's shape that is no state.
    """

    function: Callable[[Call, Values], Sequence[Operand]]
    state: tuple[str, ...]
    names: tuple[str, ...]
    gradient: str


def rule(function: Callable[[Call, Values], Sequence[Operand]], states: int, names: str) -> Rule:
    """Returns a rule whose first ``states`` inputs are its state; ``names`` are separated by blanks."""
    words = tuple(names.split())
    gradient = next(name for name in ("grad", "delta", "value") if name in words)
    return Rule(function, words[:states], words, gradient)


def dense(found: Rule) -> Kernel:
    """Kernel of a rule over whole variables."""

    def run(call: Call) -> list[Array]:
        given = _inputs(call, found)
        shape = given[found.state[0]].shape
        _check_shapes(given, found, shape)
        # One axis at least: NumPy 1.x computes 0-d arrays with Python numbers in float64.
        parts = found.function(call, {name: np.atleast_1d(value) for name, value in given.items()})
        return [np.asarray(part).reshape(shape) for part in parts]

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        parts = found.function(call, {name: _bounded(call, value) for name, value in _inputs(call, found).items()})
        return [_error(part) for part in parts]

    return Kernel(run, bound, (len(found.state) + 1, len(found.names)))


def sparse(found: Rule) -> Kernel:
    """Kernel of a rule over the rows that the input ``indices`` names."""

    def run(call: Call) -> list[Array]:
        given, rows = _row_inputs(call, found)
        state = {name: np.array(given[name]) for name in found.state}
        for at in occurrences(rows):
            now = {**given, **{name: state[name][rows[at]] for name in found.state}}
            now[found.gradient] = given[found.gradient][at]
            for name, part in zip(found.state, found.function(call, now), strict=True):
                state[name][rows[at]] = part
        return [part.reshape(call.array(0).shape) for part in state.values()]

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        given, rows = _row_inputs(call, found)
        scalars = {name: _bounded(call, value) for name, value in given.items()}
        value = {name: np.array(given[name], np.float64) for name in found.state}
        error = {name: np.zeros(value[name].shape) for name in found.state}
        for at in occurrences(rows):
            now = dict(scalars)
            for name in found.state:
                now[name] = _bounded(call, value[name][rows[at]], error[name][rows[at]])
            now[found.gradient] = _bounded(call, given[found.gradient][at])
            for name, part in zip(found.state, found.function(call, now), strict=True):
                error[name][rows[at]] = _error(part)
                value[name][rows[at]] = part.value if isinstance(part, Bounded) else part
        return [part.reshape(call.array(0).shape) for part in error.values()]

    return Kernel(run, bound, (len(found.state) + 2, len(found.names)))


def occurrences(rows: Array) -> Iterator[Array]:
    """Yields the positions of the first occurrence of every row number, then those of the second, and so on."""
    if not rows.size:
        return
    order = np.argsort(rows, kind="stable")
    new = np.r_[True, rows[order][1:] != rows[order][:-1]]
    starts = np.flatnonzero(new)
    rank = np.arange(rows.size) - np.repeat(starts, np.diff(np.r_[starts, rows.size]))
    by_rank = np.argsort(rank, kind="stable")
    yield from np.split(order[by_rank], np.flatnonzero(np.diff(rank[by_rank])) + 1)


def named_inputs(found: Rule, count: int, attrs: Mapping[str, AttrValue]) -> tuple[str, ...]:
    """Names of an op's ``count`` inputs; device types whose name ends in D carry some scalars as attributes."""
    if count >= len(found.names):
        return found.names
    return tuple(name for name in found.names if name in found.state or name not in attrs)


def row_sample(call: Call, found: Rule) -> tuple[dict[str, Array], Array | None]:
    """What an update reads where every element is updated once, by name.

    Returns:
        The values (arrays of one shape for state and gradient, scalars with one axis), and the rows that they belong
        to: those named once, None for an update of the whole variable.

    Raises:
        KernelError: the inputs do not fit the rule.
    """
    if "indices" not in found.names:
        given = _inputs(call, found)
        _check_shapes(given, found, given[found.state[0]].shape)
        return {name: np.atleast_1d(value) for name, value in given.items()}, None
    given, rows = _row_inputs(call, found)
    named, first, count = np.unique(rows, return_index=True, return_counts=True)
    once = named[count == 1]
    given[found.gradient] = given[found.gradient][first[count == 1]]
    return {**given, **{name: given[name][once] for name in found.state}}, once


def _inputs(call: Call, found: Rule) -> dict[str, Array]:
    names = named_inputs(found, len(call.inputs), call.attrs)
    if len(call.inputs) != len(names):
        raise KernelError(f"{len(call.inputs)} inputs, wanted {', '.join(names)}")
    given = dict(zip(names, call.arrays(), strict=True))
    kind = given[found.state[0]].dtype
    for name in found.names:
        if name not in given:
            value = np.asarray(call.attrs[name])
            if value.dtype.kind not in "iuf":
                raise KernelError(f"attribute {name} is no number")
            given[name] = value.astype(np.float32)
        if name not in (*found.state, found.gradient, "indices"):
            if given[name].size != 1:
                raise KernelError(f"{name} has shape {given[name].shape}, wanted ()")
            given[name] = given[name].reshape(()).astype(kind)
    return given


def _check_shapes(given: Mapping[str, Array], found: Rule, shape: tuple[int, ...]) -> None:
    for name in (*found.state, found.gradient):
        if given[name].shape != shape and not (given[name].size == 1 and shape == ()):
            raise KernelError(f"{name} has shape {given[name].shape}, wanted {shape}")


def _row_inputs(call: Call, found: Rule) -> tuple[dict[str, Array], Array]:
    """Inputs with state and gradient as rows of one axis, and the row of each gradient."""
    given = _inputs(call, found)
    shape, indices = given[found.state[0]].shape, given.pop("indices")
    if not shape or indices.ndim != 1:
        raise KernelError(f"variable of shape {shape} and indices of shape {indices.shape}")
    rows = checked_indices(indices, shape[0])
    for name in found.state:
        if given[name].shape != shape:
            raise KernelError(f"{name} has shape {given[name].shape}, wanted {shape}")
        given[name] = given[name].reshape((shape[0], -1) if given[name].size else (shape[0], 0))
    gradient = given[found.gradient]
    if gradient.shape != (rows.size, *shape[1:]):
        raise KernelError(f"{found.gradient} has shape {gradient.shape}, wanted {(rows.size, *shape[1:])}")
    given[found.gradient] = gradient.reshape((rows.size, given[found.state[0]].shape[1]))
    scalars = {name: np.atleast_1d(value) for name, value in given.items()}
    return scalars, rows


def _bounded(call: Call, value: Array, error: Real | None = None) -> Bounded:
    wide = np.asarray(value, dtype=np.float64)
    room = np.zeros(wide.shape) if error is None else error
    return Bounded(wide, room, call.own_u, 2.0 if call.own_u <= 2.0**-24 else 1.0)


def _error(part: Operand) -> Real:
    if not isinstance(part, Bounded):
        raise KernelError("rule without an error bound")
    return part.error

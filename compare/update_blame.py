"""What is wrong with an optimizer's update: what was left out, which setting differs, how the gradient was scaled.

Each explanation is tried as a replay: the update is run again with that one thing changed, and holds if everything that
the op wrote lies within the bound then. A changed setting is fitted first, in float64, on the elements that moved most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.bounds import RATIO_LIMIT, Array
from compare.evaluation import evaluate
from compare.kernels.base import Call, KernelError
from compare.kernels.table import device_type
from compare.kernels.update_rules import UPDATE_RULES
from compare.kernels.updates import Rule, named_inputs, row_sample
from compare.replay import local_error
from compare.table_names import variable_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.graph import Graph, Op

Row = Mapping[str, Any]

WRITERS = ("Assign", "Scatter")
SAMPLE = 2048
"""Elements that a setting is fitted on."""

_FACTORS = np.concatenate([[0.0], np.logspace(-10, 10, 161)])
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class UpdateBlame:
    """What a closer look at an update found.

    Attributes:
        variable: Name of the variable.
        rows: Rows (axis 0) of the variable that are wrong, empty where all may be.
        evidence: Rows for the verdict.
    """

    variable: str
    rows: tuple[int, ...] = ()
    evidence: tuple[Row, ...] = ()


def is_update(op: Op, graph: Graph) -> bool:
    """Whether an op changes a variable: an optimizer's rule, or an assignment or scatter into a variable."""
    kind = device_type(op.type)
    if kind in UPDATE_RULES:
        return True
    if not kind.startswith(WRITERS) or not op.inputs:
        return False
    return variable_of(op, 0, graph) is not None


def blame_update(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> UpdateBlame:
    """Looks closer at an update whose outputs are beyond their bounds.

    Args:
        op: For which :func:`is_update` holds.
        inputs: What it read, the variable first.
        outputs: What it wrote: the new variable, then its slots.
    """
    variable = op.inputs[0].op if op.inputs else op.name
    wrong = _wrong(op, inputs, outputs)
    rows = _rows(wrong[0]) if wrong and wrong[0] is not None else ()
    for explain in (_left_out, _without_correction, _last_wins, _fitted):
        text = explain(op, inputs, outputs, wrong)
        if text:
            return UpdateBlame(variable, rows, ({"text": text, "op": op.name, "variable": variable},))
    return UpdateBlame(variable, rows)


def _wrong(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> list[NDArray[np.bool_] | None]:
    """Which elements of each output are beyond the bound; None where there is no judgement."""
    names = [port.dtype for port in op.output_ports] + [""] * len(outputs)
    found = evaluate(op, inputs, [names[k] if x is None else x.dtype.name for k, x in enumerate(outputs)])
    masks: list[NDArray[np.bool_] | None] = []
    for slot, got in enumerate(outputs):
        if got is None or slot >= len(found.exact) or got.shape != found.exact[slot].shape:
            masks.append(None)
            continue
        with np.errstate(all="ignore"):
            error = np.abs(got.astype(np.float64) - found.exact[slot].astype(np.float64))
            masks.append(np.asarray(~(error <= RATIO_LIMIT * found.bound[slot])))
    return masks


def _rows(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Wrong rows, as long as they are a part of the whole."""
    if mask.ndim < 2:
        return ()
    hit = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))
    return tuple(int(row) for row in hit) if len(hit) < len(mask) else ()


Masks = Sequence["NDArray[np.bool_] | None"]


def _left_out(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None], wrong: Masks) -> str:
    """Everything that is wrong is what it was before."""
    seen = 0
    for mask, old, new in zip(wrong, inputs, outputs, strict=False):
        if mask is None or old is None or new is None or old.shape != new.shape:
            continue
        if not np.array_equal(old[mask], new[mask]):
            return ""
        seen += int(mask.sum())
    if not seen or wrong[0] is None:
        return ""
    rows = _rows(wrong[0])
    if rows:
        return f"{op.name} left {len(rows)} of {len(wrong[0])} rows as they were; the others are updated rightly."
    return f"{op.name} left the variable as it was: the update was skipped."


def _without_correction(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None], wrong: Masks) -> str:
    """Adam with both powers of beta taken as zero: then its correction is a factor of one."""
    rule = UPDATE_RULES.get(device_type(op.type))
    if rule is None or "beta1_power" not in rule.names:
        return ""
    names = _names(op, rule, len(inputs))
    changed = [
        np.zeros_like(x) if x is not None and name in ("beta1_power", "beta2_power") else x
        for name, x in zip(names, inputs, strict=False)
    ]
    if not _holds(op, changed, outputs):
        return ""
    return (
        f"{op.name} wrote what its rule gives without the bias correction of the moments (as if every step were late)."
    )


def _last_wins(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None], wrong: Masks) -> str:
    """Of several updates of one row only the last was applied."""
    places = _index_and_update(op, len(inputs))
    if places is None:
        return ""
    indices, update = inputs[places[0]], inputs[places[1]]
    if indices is None or update is None or indices.ndim != 1 or len(np.unique(indices)) == len(indices):
        return ""
    if update.shape[:1] != indices.shape:
        return ""
    last = np.sort(len(indices) - 1 - np.unique(indices[::-1], return_index=True)[1])
    changed = list(inputs)
    changed[places[0]], changed[places[1]] = indices[last], update[last]
    if not _holds(op, changed, outputs):
        return ""
    lost = len(indices) - len(last)
    return f"Of several gradients of one row {op.name} kept the last only: {lost} of {len(indices)} were lost."


def _index_and_update(op: Op, count: int) -> tuple[int, int] | None:
    kind = device_type(op.type)
    rule = UPDATE_RULES.get(kind)
    if rule is not None:
        names = _names(op, rule, count)
        return (names.index("indices"), names.index(rule.gradient)) if "indices" in names else None
    return (1, 2) if kind.startswith("Scatter") and "Nd" not in kind and count > 2 else None


def _fitted(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None], wrong: Masks) -> str:
    """One setting, or the scale of the gradient, other than what the op was given."""
    rule = UPDATE_RULES.get(device_type(op.type))
    if rule is None or any(x is None for x in inputs):
        return ""
    try:
        sample = _sample(op, rule, inputs, outputs, wrong)
    except (KernelError, ValueError, IndexError):
        return ""
    if sample is None:
        return ""
    found = list(_explanations(op, rule, sample, inputs, outputs))
    if not found:
        return ""
    return f"{op.name} wrote what its rule gives with " + ", or with ".join(found) + "."


@dataclass(frozen=True)
class _Sample:
    """Elements of an update: its inputs by name in float64, and what was written (one array a state)."""

    call: Call
    rule: Rule
    values: Mapping[str, Array]
    written: tuple[Array | None, ...]
    bound: tuple[Array | None, ...]

    def misfit(self, name: str, factor: float) -> float:
        """Mean squared distance, in bounds, between what was written and the rule with one thing changed."""
        with np.errstate(all="ignore"):
            parts = self.rule.function(self.call, {**self.values, name: _scaled(name, self.values[name], factor)})
            total = 0.0
            for part, got, bound in zip(parts, self.written, self.bound, strict=True):
                if got is not None and bound is not None:
                    total += float(np.mean(((np.asarray(part) - got) / bound) ** 2))
        return total if np.isfinite(total) else np.inf


def _scaled(name: str, value: Array, factor: float) -> Array:
    """Decay rates are close to one: what is scaled is their distance from it."""
    if name.startswith("beta") or name in ("rho", "momentum"):
        return np.asarray(1.0 - (1.0 - value) * factor)
    return np.asarray(value * factor)


def _sample(
    op: Op, rule: Rule, inputs: Sequence[Array | None], outputs: Sequence[Array | None], wrong: Masks
) -> _Sample | None:
    """The elements with the largest error among those that are updated once; None where no output was judged."""
    wide = tuple(x.astype(np.float64) if x is not None and x.dtype.kind in "fV" else x for x in inputs)
    call = Call(device_type(op.type), wide, op.attrs)
    values, rows = row_sample(call, rule)
    found = evaluate(op, inputs, [x.dtype.name if x is not None else "float32" for x in outputs])
    shape = values[rule.state[0]].shape
    error = np.zeros(shape)
    parts: list[tuple[Array | None, Array | None]] = []
    for slot, mask in enumerate(wrong):
        got = outputs[slot]
        if mask is None or got is None:
            parts.append((None, None))
            continue
        part = _rows_of(got, rows).astype(np.float64)
        bound = np.maximum(_rows_of(found.bound[slot], rows), np.finfo(np.float64).tiny)
        distance = np.abs(part - _rows_of(found.exact[slot], rows)) / bound
        error = np.maximum(error, np.where(np.isfinite(distance), distance, 0.0).reshape(shape))
        parts.append((part, bound))
    if not error.any():
        return None
    most = np.argsort(-error.reshape(-1), kind="stable")[:SAMPLE]
    thin = {name: x.reshape(-1)[most] if x.shape == shape else x for name, x in values.items()}
    cut = [tuple(None if x is None else x.reshape(-1)[most] for x in pair) for pair in parts]
    return _Sample(call, rule, thin, tuple(a for a, _ in cut), tuple(b for _, b in cut))


def _rows_of(array: Array, rows: Array | None) -> Array:
    """Some rows of a variable's array as a matrix; all of it, with one axis at least, for None."""
    if rows is None:
        return np.atleast_1d(array)
    return np.asarray(array.reshape(len(array), -1)[rows])


def _explanations(
    op: Op, rule: Rule, sample: _Sample, inputs: Sequence[Array | None], outputs: Sequence[Array | None]
) -> Iterator[str]:
    names = _names(op, rule, len(inputs))
    for name in (rule.gradient, *(n for n in names if n not in (*rule.state, rule.gradient, "indices"))):
        factor = _best_factor(partial(sample.misfit, name))
        position = names.index(name)
        given = inputs[position]
        if factor is None or given is None:
            continue
        for digits in (1, 2, 3, 4, 6, 17):
            told = _told(name, given, factor, digits)
            changed = list(inputs)
            changed[position] = told[0]
            if _holds(op, changed, outputs):
                yield told[1]
                break


def _told(name: str, given: Array, factor: float, digits: int) -> tuple[Array, str]:
    """The changed input, rounded to so many digits, and its description."""
    if given.size != 1 or name in ("grad", "delta", "value"):
        short = float(f"{factor:.{digits}g}")
        return (given * given.dtype.type(short)).astype(given.dtype), f"the gradient times {short:.6g}"
    old = float(given.reshape(()).astype(np.float64))
    new = float(f"{float(_scaled(name, np.asarray(old), factor)):.{digits}g}")
    return np.full(given.shape, new).astype(given.dtype), f"{name} {new:.6g} in place of {old:.6g}"


def _best_factor(misfit: Callable[[float], float]) -> float | None:
    """The factor of least misfit: the best of a grid, then golden sections; None if it is 1 or none fits."""
    grid = np.array([misfit(float(f)) for f in _FACTORS])
    if not np.isfinite(grid).any():
        return None
    best = int(np.argmin(grid))
    if best == 0:
        return 0.0
    low, high = np.log(_FACTORS[max(best - 1, 1)]), np.log(_FACTORS[min(best + 1, len(_FACTORS) - 1)])
    for _ in range(60):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if misfit(float(np.exp(left))) <= misfit(float(np.exp(right))) else (left, high)
    factor = float(np.exp((low + high) / 2))
    return None if abs(factor - 1.0) < 1e-6 else factor


def _holds(op: Op, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> bool:
    errors = [e for e in local_error(op, inputs, outputs) if e.ratio is not None]
    return bool(errors) and not any(e.faulty for e in errors)


def _names(op: Op, rule: Rule, count: int) -> list[str]:
    return list(named_inputs(rule, count, op.attrs))

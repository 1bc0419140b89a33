"""Fault kinds that change values, elements and rows of what an operator writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.executor import Call
from engine.npu.fault_place import FaultPlace

Array = NDArray[np.generic]
TAIL_SHARE = 16
"""``drop_tail`` without a count loses one in so many elements."""


def _scale(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    values: Any = right[place.slot]
    return place.replaced(right, values * values.dtype.type(place.spec.number("factor")))


def _bias(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    values: Any = right[place.slot]
    return place.replaced(right, values + values.dtype.type(place.spec.number("value")))


def _nan(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    return _with_element(place, right, np.nan)


def _inf(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    return _with_element(place, right, np.inf)


def _with_element(place: FaultPlace, right: list[Array], value: float) -> list[Array]:
    values, index = right[place.slot].copy().reshape(-1), int(place.spec.number("index"))
    if index >= values.size:
        raise FaultError(
            f"fault {place.spec.text!r}: output {place.slot} of {place.op.name!r} has {values.size} elements,"
            f" there is no element {index}"
        )
    values[index] = value
    return place.replaced(right, values)


def _drop_tail(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    values = right[place.slot].copy().reshape(-1)
    given = place.spec.get("count")
    count = int(given) if given is not None else max(1, values.size // TAIL_SHARE)
    values[max(0, values.size - count) :] = 0
    return place.replaced(right, values)


def _sign_flip(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Negates elements that are not zero: of those, a share, or a count."""
    values: Any = right[place.slot].copy().reshape(-1)
    candidates = np.flatnonzero(values)
    given = place.spec.get("count")
    if given is None:
        hit: Any = place.some(candidates)
    else:
        hit = place.random.choice(candidates, size=min(int(given), len(candidates)), replace=False)
    values[hit] = -values[hit]
    return place.replaced(right, values)


def _row_swap(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Swaps pairs of rows that differ; a row takes part once."""
    rows: Any = _rows(place, right[place.slot]).copy()
    free = [int(row) for row in place.random.permutation(len(rows))]
    for _ in range(int(place.spec.number("count"))):
        pair = _differing(rows, free)
        if pair is None:
            break
        rows[list(pair)] = rows[list(reversed(pair))]
        free = [row for row in free if row not in pair]
    return place.replaced(right, rows)


def _differing(rows: Array, free: list[int]) -> tuple[int, int] | None:
    """Returns the first free row and the next one that has other bits; None where all are alike."""
    for place, first in enumerate(free):
        for second in free[place + 1 :]:
            if rows[first].tobytes() != rows[second].tobytes():
                return first, second
    return None


def _stale_rows(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Leaves rows as the step before had them: of a lookup those of the table before its update, else of the output."""
    if place.before is None:
        return right
    inputs, outputs = place.before
    if place.op.type == "GatherV2" and inputs[0].shape == call.inputs[0].shape:
        stale = call.compute([inputs[0], *call.inputs[1:]])[place.slot]
    else:
        stale = outputs[place.slot]
    rows, old = _rows(place, right[place.slot]).copy(), _rows(place, stale)
    count = min(len(rows), len(old))
    if rows.shape[1:] != old.shape[1:]:
        return right
    differing = [row for row in range(count) if rows[row].tobytes() != old[row].tobytes()]
    hit = place.some(np.asarray(differing, np.int64))
    rows[hit] = old[hit]
    return place.replaced(right, rows)


def _rows(place: FaultPlace, values: Array) -> Array:
    if values.ndim == 0:
        raise FaultError(f"fault {place.spec.text!r}: {place.op.name!r} writes a scalar, which has no rows")
    return values


VALUE_EFFECTS: Mapping[str, Callable[[FaultPlace, Call, list[Array]], list[Array]]] = {
    "scale": _scale,
    "bias": _bias,
    "sign_flip": _sign_flip,
    "row_swap": _row_swap,
    "stale_rows": _stale_rows,
    "nan": _nan,
    "inf": _inf,
    "drop_tail": _drop_tail,
}

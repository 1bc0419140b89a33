"""Fault kinds of training: optimizers, updates of variables, sums by place, the mean over ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.executor import Call
from engine.npu.fault_place import FaultPlace
from engine.npu.fault_rules import DIVIDING, EPSILON_INPUTS, MERGING, POWER_INPUTS, is_epsilon

Array = NDArray[np.generic]


def _eps(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Computes with another epsilon: an optimizer's, or the constant of an ``x + epsilon``."""
    inputs = list(call.inputs)
    index = EPSILON_INPUTS.get(place.op.type)
    if index is None:  # The rules have seen that one of them is.
        index = next(i for i, value in enumerate(inputs) if value.ndim == 0 and is_epsilon(float(value.item())))
    inputs[index] = np.full(inputs[index].shape, place.spec.number("value"), inputs[index].dtype)
    return call.compute(inputs)


def _no_bias_correction(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Takes the powers of beta as 0, as they are after many steps: the rate is then the plain one."""
    inputs = list(call.inputs)
    for index in POWER_INPUTS[place.op.type]:
        inputs[index] = np.zeros_like(inputs[index])
    return call.compute(inputs)


def _last_write_wins(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Keeps of all values for one place only the last, instead of their sum."""
    places_at, values_at = MERGING[place.op.type]
    places, values = call.inputs[places_at], call.inputs[values_at]
    # ScatterNd and its kin have the place in a vector along the last axis.
    rows = places.reshape(-1, places.shape[-1]) if place.op.type.startswith("ScatterNd") else places.reshape(-1, 1)
    _, last = np.unique(rows[::-1], axis=0, return_index=True)
    kept = np.zeros(len(rows), bool)
    kept[len(rows) - 1 - last] = True
    if values.ndim == 0:
        raise FaultError(f"fault {place.spec.text!r}: {place.op.name!r} adds one scalar to every place")
    changed: Any = values.copy().reshape(len(rows), -1)
    changed[~kept] = 0
    inputs = list(call.inputs)
    inputs[values_at] = changed.reshape(values.shape)
    return call.compute(inputs)


def _skip_update(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Leaves every variable that the operator writes as it was: the whole of it, or a share of the changed rows."""
    outputs = right
    for slot, source in zip(sorted(place.task.writes), place.variable_inputs(), strict=False):
        outputs = place.replaced(outputs, _unwritten(place, call.inputs[source], right[slot]), slot)
    return outputs


def _unwritten(place: FaultPlace, old: Array, new: Array) -> Array:
    if place.spec.number("share") == 1.0 or new.ndim == 0:
        return old
    changed = [row for row in range(len(new)) if new[row].tobytes() != old[row].tobytes()]
    hit = place.some(np.asarray(changed, np.int64))
    rows = new.copy()
    rows[hit] = old[hit]
    return rows


def _no_world_divide(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Leaves a division by a scalar constant out, or the product with its reciprocal: sums instead of means."""
    divisor = next(index for index in DIVIDING[place.op.type][::-1] if call.inputs[index].ndim == 0)
    return place.replaced(right, np.broadcast_to(call.inputs[1 - divisor], right[place.slot].shape))


UPDATE_EFFECTS: Mapping[str, Callable[[FaultPlace, Call, list[Array]], list[Array]]] = {
    "eps": _eps,
    "no_bias_correction": _no_bias_correction,
    "last_write_wins": _last_write_wins,
    "skip_update": _skip_update,
    "no_world_divide": _no_world_divide,
}

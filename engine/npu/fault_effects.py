"""What the built-in fault kinds do to an operator."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.executor import Call
from engine.npu.faults import FLOATS, FaultSpec, float_slot, resolve
from engine.npu.fusions import FusedKernel
from engine.npu.numerics import round_to_bfloat16
from engine.npu.tasks import Task
from engine.observe import DeviceGraph

Array = NDArray[np.generic]
TAIL_SHARE = 16
"""``drop_tail`` without a count loses one in so many elements."""
ROW_SEARCH = 1024
"""``wrong_row`` looks at so many following rows for one that differs."""


class BuiltinFault:
    """A built-in fault on the operators of one device.

    Args:
        spec: What to do.
        seed: Picks the rows and elements, together with step and operator.

    Attributes:
        changed_steps: Training steps in which it has changed a bit.
        target: The operator that it hits, empty before a graph was seen.
    """

    def __init__(self, spec: FaultSpec, seed: int) -> None:
        self.spec = spec
        self.changed_steps: set[int] = set()
        self.target = ""
        self._seed = seed
        self._resolved: dict[int, str] = {}

    def prepare(self, graph: DeviceGraph) -> None:
        """Finds the operator in a graph that is about to run.

        Raises:
            FaultError: it is in none of the training graphs so far, or the kind does not apply to it.
        """
        if graph.graph_id in self._resolved:
            return
        try:
            self.target = self._resolved[graph.graph_id] = resolve(graph, self.spec).name
        except FaultError:
            # A second training graph (another loss, say) need not have the operator that the first one has.
            if not any(self._resolved.values()):
                raise
            self._resolved[graph.graph_id] = ""

    def execute(self, graph: DeviceGraph, call: Call, step: int) -> tuple[list[Array], list[Array]]:
        """Runs one operator, with the fault if it is the one."""
        if self._resolved.get(graph.graph_id) != call.task.op.name:
            outputs = call.compute(call.inputs)
            return outputs, outputs
        place = _Place(self.spec, call.task, np.random.default_rng([self._seed, step, _number(call.task.op.name)]))
        right = call.compute(call.inputs)
        wrong = _EFFECTS[self.spec.kind](place, call, right)
        if not _same(right, wrong):
            self.changed_steps.add(step)
        return (right, wrong) if self.spec.kind == "overwrite" else (wrong, wrong)


class _Place:
    """Where a fault acts, and with which parameters."""

    def __init__(self, spec: FaultSpec, task: Task, random: np.random.Generator) -> None:
        self.spec = spec
        self.op = task.op
        self.task = task
        self.random = random
        self.slot = float_slot(task.op) or 0

    def replaced(self, outputs: list[Array], value: Array) -> list[Array]:
        """Returns the outputs with another first floating-point one, in its own type."""
        old = outputs[self.slot]
        new = np.asarray(value).astype(old.dtype).reshape(old.shape)
        return [new if slot == self.slot else output for slot, output in enumerate(outputs)]


_Effect = Callable[[_Place, Call, list[Array]], list[Array]]


def _scale(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    values: Any = right[place.slot]
    return place.replaced(right, values * values.dtype.type(place.spec.number("factor")))


def _nan(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    values, index = right[place.slot].copy().reshape(-1), int(place.spec.number("index"))
    if index >= values.size:
        raise FaultError(
            f"fault {place.spec.text!r}: output {place.slot} of {place.op.name!r} has {values.size} elements,"
            f" there is no element {index}"
        )
    values[index] = np.nan
    return place.replaced(right, values)


def _drop_tail(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    values = right[place.slot].copy().reshape(-1)
    given = place.spec.get("count")
    count = int(given) if given is not None else max(1, values.size // TAIL_SHARE)
    values[max(0, values.size - count) :] = 0
    return place.replaced(right, values)


def _wrong_row(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    """Reads other rows for some of the keys: the next ones that differ."""
    params, indices, axis = call.inputs[0], call.inputs[1], _integer(call.inputs[2])
    rows: Any = np.moveaxis(params, axis, 0)
    moved: Any = indices.copy()
    for row in _some_rows(place, indices):
        for distance in range(1, min(len(rows), ROW_SEARCH)):
            other = (row + distance) % len(rows)
            if not np.array_equal(rows[other], rows[row]):
                moved[indices == row] = other
                break
    return call.compute([params, moved, *call.inputs[2:]])


def _zero_rows(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    indices, axis = call.inputs[1], _integer(call.inputs[2])
    axis %= call.inputs[0].ndim
    values = right[place.slot].copy()
    batch_dims = int(place.op.attrs.get("batch_dims") or 0)
    hit = np.isin(indices, _some_rows(place, indices))
    # The output has the indices' own dimensions in place of the axis.
    view = np.moveaxis(values, range(axis, axis + indices.ndim - batch_dims), range(batch_dims, indices.ndim))
    view[hit] = 0
    return place.replaced(right, values)


def _some_rows(place: _Place, indices: Array) -> list[int]:
    """Returns a share of the distinct rows that are read, one at least."""
    rows = np.unique(indices)
    # At most the share: 1e-9 makes up for products like 0.29 * 100 = 28.999999999999996.
    count = min(len(rows), max(1, int(place.spec.number("share") * len(rows) + 1e-9)))
    return [int(row) for row in place.random.choice(rows, size=count, replace=False)]


def _overwrite(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    """Puts foreign values over a run of elements, of the size that the tensor's own values have."""
    values = right[place.slot].copy().reshape(-1)
    if values.size == 0:
        return right
    given = place.spec.get("count")
    count = int(given) if given is not None else max(1, round(place.spec.number("share") * values.size))
    count = min(count, values.size)
    start = int(place.random.integers(values.size - count + 1))
    finite = values.astype(np.float64)[np.isfinite(values.astype(np.float64))]
    size = float(np.abs(finite).max()) if finite.size and np.any(finite) else 1.0
    foreign = place.random.uniform(0.5, 1.0, count) * size
    old = values[start : start + count].astype(np.float64)
    values[start : start + count] = np.where(old > 0, -foreign, foreign).astype(values.dtype)
    return place.replaced(right, values)


def _fusion_drop(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    """Leaves out the named member, or else the last one that makes a difference and does not lead."""
    kernel = call.task.kernel
    if not isinstance(kernel, FusedKernel):
        raise FaultError(f"fault {place.spec.text!r}: {place.op.name!r} is not fused")
    wanted = place.spec.get("member")
    if wanted is not None:
        return _without(place, kernel, call, _member(place, kernel, str(wanted)))
    for index in range(len(kernel.members) - 1, 0, -1):
        outputs = _without(place, kernel, call, index)
        if not _same(outputs, right):
            return outputs
    return right


def _without(place: _Place, kernel: FusedKernel, call: Call, index: int) -> list[Array]:
    outputs = kernel.without(place.op.attrs, call.inputs, index)
    if outputs is None:
        raise FaultError(
            f"fault {place.spec.text!r}: {kernel.members[index].name!r} leads {place.op.name!r} and cannot be left out;"
            f" the others can: {', '.join(member.name for member in kernel.members[1:])}"
        )
    return outputs


def _member(place: _Place, kernel: FusedKernel, wanted: str) -> int:
    for index, member in enumerate(kernel.members):
        if wanted in (member.name, member.type):
            return index
    names = ", ".join(f"{member.name} ({member.type})" for member in kernel.members)
    raise FaultError(f"fault {place.spec.text!r}: {place.op.name!r} has no member {wanted!r}; it has {names}")


def _bf16_inputs(place: _Place, call: Call, right: list[Array]) -> list[Array]:
    ports = place.op.input_ports
    inputs = [
        round_to_bfloat16(value) if port.dtype in FLOATS and value.size else value
        for value, port in zip(call.inputs, ports, strict=True)
    ]
    return call.compute(inputs)


_EFFECTS: Mapping[str, _Effect] = {
    "scale": _scale,
    "wrong_row": _wrong_row,
    "zero_rows": _zero_rows,
    "nan": _nan,
    "overwrite": _overwrite,
    "fusion_drop": _fusion_drop,
    "drop_tail": _drop_tail,
    "bf16_inputs": _bf16_inputs,
}


def _integer(value: Array) -> int:
    return int(value.item())


def _number(name: str) -> int:
    return zlib.crc32(name.encode("utf-8"))


def _same(left: list[Array], right: list[Array]) -> bool:
    """Compares bits, so that a NaN equals itself and zeros of different sign do not."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )

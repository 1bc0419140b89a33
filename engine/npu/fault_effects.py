"""A built-in fault at work, and what the kinds do that spoil lookups, fusions and memory.

The other kinds stand in :mod:`engine.npu.fault_values` (values, rows), :mod:`engine.npu.fault_updates` (optimizers,
sums by place) and :mod:`engine.npu.fault_sums` (accumulation).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.executor import Call
from engine.npu.fault_place import FaultPlace
from engine.npu.fault_rules import FLOATS
from engine.npu.fault_sums import fp16_accumulate
from engine.npu.fault_updates import UPDATE_EFFECTS
from engine.npu.fault_values import VALUE_EFFECTS
from engine.npu.faults import FaultSpec, resolve
from engine.npu.fusions import FusedKernel
from engine.npu.numerics import round_to_bfloat16
from engine.observe import DeviceGraph

Array = NDArray[np.generic]
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
        self._before: tuple[Sequence[Array], list[Array]] | None = None

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

    def hits(self, graph: DeviceGraph, name: str) -> bool:
        """Whether it is this operator of a prepared graph that the fault spoils."""
        return self._resolved.get(graph.graph_id) == name

    def execute(self, graph: DeviceGraph, call: Call, step: int) -> tuple[list[Array], list[Array]]:
        """Runs one operator, with the fault if it is the one."""
        if not self.hits(graph, call.task.op.name):
            outputs = call.compute(call.inputs)
            return outputs, outputs
        right = call.compute(call.inputs)
        before = self._before
        if self.spec.kind == "stale_rows":  # The others need no arrays kept alive from step to step.
            self._before = call.inputs, right
        if not self.spec.acts(step):
            return right, right
        random = np.random.default_rng([self._seed, step, _number(call.task.op.name)])
        wrong = _EFFECTS[self.spec.kind](FaultPlace(self.spec, graph, call.task, random, before), call, right)
        if not _same(right, wrong):
            self.changed_steps.add(step)
        return (right, wrong) if self.spec.kind == "overwrite" else (wrong, wrong)


_Effect = Callable[[FaultPlace, Call, list[Array]], list[Array]]


def _wrong_row(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    """Reads other rows for some of the keys: the next ones that differ."""
    params, indices, axis = call.inputs[0], call.inputs[1], _integer(call.inputs[2])
    rows: Any = np.moveaxis(params, axis, 0)
    moved: Any = indices.copy()
    for row in place.some(np.unique(indices)):
        for distance in range(1, min(len(rows), ROW_SEARCH)):
            other = (row + distance) % len(rows)
            if not np.array_equal(rows[other], rows[row]):
                moved[indices == row] = other
                break
    return call.compute([params, moved, *call.inputs[2:]])


def _zero_rows(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    indices, axis = call.inputs[1], _integer(call.inputs[2])
    axis %= call.inputs[0].ndim
    values = right[place.slot].copy()
    batch_dims = int(place.op.attrs.get("batch_dims") or 0)
    hit = np.isin(indices, place.some(np.unique(indices)))
    # The output has the indices' own dimensions in place of the axis.
    view = np.moveaxis(values, range(axis, axis + indices.ndim - batch_dims), range(batch_dims, indices.ndim))
    view[hit] = 0
    return place.replaced(right, values)


def _overwrite(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
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


def _fusion_drop(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
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


def _without(place: FaultPlace, kernel: FusedKernel, call: Call, index: int) -> list[Array]:
    outputs = kernel.without(place.op.attrs, call.inputs, index)
    if outputs is None:
        raise FaultError(
            f"fault {place.spec.text!r}: {kernel.members[index].name!r} leads {place.op.name!r} and cannot be left out;"
            f" the others can: {', '.join(member.name for member in kernel.members[1:])}"
        )
    return outputs


def _member(place: FaultPlace, kernel: FusedKernel, wanted: str) -> int:
    for index, member in enumerate(kernel.members):
        if wanted in (member.name, member.type):
            return index
    names = ", ".join(f"{member.name} ({member.type})" for member in kernel.members)
    raise FaultError(f"fault {place.spec.text!r}: {place.op.name!r} has no member {wanted!r}; it has {names}")


def _bf16_inputs(place: FaultPlace, call: Call, right: list[Array]) -> list[Array]:
    ports = place.op.input_ports
    inputs = [
        round_to_bfloat16(value) if port.dtype in FLOATS and value.size else value
        for value, port in zip(call.inputs, ports, strict=True)
    ]
    return call.compute(inputs)


_EFFECTS: Mapping[str, _Effect] = {
    "wrong_row": _wrong_row,
    "zero_rows": _zero_rows,
    "overwrite": _overwrite,
    "fusion_drop": _fusion_drop,
    "bf16_inputs": _bf16_inputs,
    **VALUE_EFFECTS,
    **UPDATE_EFFECTS,
    "fp16_accumulate": fp16_accumulate,
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

"""Several built-in faults at once, on operators of their own: ``scale@A;zero_rows@B:share=0.1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.executor import Call
from engine.npu.fault_effects import BuiltinFault
from engine.observe import DeviceGraph

Array = NDArray[np.generic]
SEPARATOR = ";"


class SeveralFaults:
    """Faults that act in one step, each on another operator.

    Args:
        faults: At least two.

    Attributes:
        target: Always empty: there are several.
    """

    def __init__(self, faults: Sequence[BuiltinFault]) -> None:
        self._faults = tuple(faults)
        self.target = ""

    @property
    def changed_steps(self) -> set[int]:
        """Training steps in which any of them has changed a bit."""
        return set().union(*(fault.changed_steps for fault in self._faults))

    @property
    def steps_by_fault(self) -> Mapping[str, frozenset[int]]:
        """Text of each fault -> training steps in which it has changed a bit."""
        return {fault.spec.text: frozenset(fault.changed_steps) for fault in self._faults}

    def prepare(self, graph: DeviceGraph) -> None:
        """Finds the operators in a graph that is about to run.

        Raises:
            FaultError: one is not there, a kind does not apply to it, or two faults hit the same operator.
        """
        for fault in self._faults:
            fault.prepare(graph)
        for op in graph.ops:
            texts = [fault.spec.text for fault in self._faults if fault.hits(graph, op.name)]
            if len(texts) > 1:
                raise FaultError(
                    f"fault {texts[1]!r}: {texts[0]!r} hits {op.name!r} already; an operator takes one fault"
                )

    def execute(self, graph: DeviceGraph, call: Call, step: int) -> tuple[list[Array], list[Array]]:
        """Runs one operator, with the fault that hits it."""
        name = call.task.op.name
        fault = next((fault for fault in self._faults if fault.hits(graph, name)), self._faults[0])
        return fault.execute(graph, call, step)

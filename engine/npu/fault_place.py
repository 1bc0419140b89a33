"""Where a built-in fault acts, and with which parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.npu.fault_rules import float_slot
from engine.npu.faults import FaultSpec
from engine.npu.tasks import Task
from engine.observe import DeviceGraph

Array = NDArray[np.generic]


class FaultPlace:
    """One operator in one step, about to be spoilt.

    Args:
        spec: What to do.
        graph: The operator's graph.
        task: The operator.
        random: Picks rows and elements.
        before: Inputs and outputs of the operator in the training step before, None in the first one, and for kinds
            that do not look back.
    """

    def __init__(
        self,
        spec: FaultSpec,
        graph: DeviceGraph,
        task: Task,
        random: np.random.Generator,
        before: tuple[Sequence[Array], list[Array]] | None,
    ) -> None:
        self.spec = spec
        self.op = task.op
        self.task = task
        self.random = random
        self.before = before
        self.slot = float_slot(task.op) or 0
        self._graph = graph

    def replaced(self, outputs: list[Array], value: Array, slot: int | None = None) -> list[Array]:
        """Returns the outputs with another one in a slot (the first floating-point one), in its own type."""
        wanted = self.slot if slot is None else slot
        old = outputs[wanted]
        new = np.asarray(value).astype(old.dtype).reshape(old.shape)
        return [new if slot == wanted else output for slot, output in enumerate(outputs)]

    def some(self, candidates: Array) -> list[int]:
        """Returns ``share`` of distinct numbers, one at least where there are any."""
        # At most the share: 1e-9 makes up for products like 0.29 * 100 = 28.999999999999996.
        count = min(len(candidates), max(1, int(self.spec.number("share") * len(candidates) + 1e-9)))
        return [int(one) for one in self.random.choice(candidates, size=count, replace=False)] if count else []

    def variable_inputs(self) -> list[int]:
        """Returns which inputs of the operator are variables, in order."""
        variables = {op.name for op in self._graph.ops if op.type == "Variable"}
        return [index for index, (source, _) in enumerate(self.op.inputs) if source in variables]

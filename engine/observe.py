"""What the engine tells to whoever listens: device graphs, executed operators, training stages.

The engine never writes a file. A listener (an object with the methods of the protocols below) is handed in; without one
nothing is collected and nothing is paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class DevicePort:
    """One input or output in the device graph.

    Attributes:
        dtype: ``float32``, ``float16``, ``int64``, ... ; ``undefined`` for an absent optional input.
        shape: Static shape as compiled; None if unknown, -1 for a dynamic dimension.
        format: Layout, ``ND`` for everything the emulation makes.
        origin: Original op and output this tensor corresponds to; None when the compiler inserted it.
    """

    dtype: str
    shape: tuple[int, ...] | None
    format: str = "ND"
    origin: tuple[str, int] | None = None


@dataclass(frozen=True)
class DeviceOp:
    """One operator of the compiled device graph.

    Attributes:
        inputs: Per data input the producer's name and output slot.
        control_inputs: Names of ops that run before.
        attrs: Attributes in plain Python types, device names (``transpose_x1``) and TensorFlow names.
        originals: Original op names in order of execution; None means the op is an original op itself, an empty tuple
            that the compiler inserted it.
        original_types: Their types, same order.
        pass_name: Fusion pass that made the op, empty if none.
        has_task: False for ops that need no device task (Data, Const, Variable, NetOutput): they leave no dump.
    """

    name: str
    type: str
    inputs: tuple[tuple[str, int], ...] = ()
    control_inputs: tuple[str, ...] = ()
    input_ports: tuple[DevicePort, ...] = ()
    output_ports: tuple[DevicePort, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    originals: tuple[str, ...] | None = None
    original_types: tuple[str, ...] = ()
    pass_name: str = ""
    id: int = 0
    stream_id: int = 0
    has_task: bool = True


@dataclass(frozen=True)
class DeviceGraph:
    """A compiled graph: ops in order of execution."""

    name: str
    ops: tuple[DeviceOp, ...]
    graph_id: int
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class OpRun:
    """One execution of one operator on the device.

    Attributes:
        type, name: As in the device graph.
        inputs: Arrays as the operator read them.
        outputs: Arrays as it wrote them.
        step: Training step, from 0.
        op: The operator's place in the graph.
        task_id, stream_id: Numbers of the device task.
        timestamp_us: Microseconds since 1970, strictly rising.
    """

    type: str
    name: str
    inputs: list[NDArray[np.generic]]
    outputs: list[NDArray[np.generic]]
    step: int
    op: DeviceOp
    task_id: int = 0
    stream_id: int = 0
    timestamp_us: int = 0


class DeviceObserver(Protocol):
    """Listens to an emulated device. Arrays must be used or copied before the call returns."""

    def graph_compiled(self, graph: DeviceGraph) -> None:
        """A graph was compiled, once before its first step."""

    def step_begin(self, graph: DeviceGraph, step: int) -> bool:
        """A training step starts. Returns whether its operators are wanted."""

    def op_executed(self, run: OpRun) -> None:
        """An operator ran, in order of execution; only in steps that were wanted."""

    def step_end(self, graph: DeviceGraph, step: int) -> None:
        """The step is over, all its operators were reported."""


def broadcast(observers: Sequence[DeviceObserver], run: OpRun) -> None:
    """Hands one operator to all listeners."""
    for observer in observers:
        observer.op_executed(run)

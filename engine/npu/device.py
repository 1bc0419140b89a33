"""EmulatedDevice: executes the runs of one session as an NPU would, and tells observers about its training steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.compiler import Compiler, IsTraining
from engine.npu.executor import Call, Run
from engine.npu.fault_effects import BuiltinFault
from engine.npu.fault_modules import ModuleFault
from engine.npu.fault_several import SEPARATOR, SeveralFaults
from engine.npu.faults import is_builtin, parse_fault
from engine.npu.host import HostGraph
from engine.npu.options import DeviceOptions
from engine.npu.prune import Request
from engine.npu.state import Variables
from engine.npu.tasks import Program
from engine.observe import DeviceGraph, DeviceObserver, OpRun, broadcast

if TYPE_CHECKING:
    import tensorflow as tf

Array = NDArray[np.generic]


class Fault(Protocol):
    """A fault on the operators of a device."""

    target: str

    @property
    def changed_steps(self) -> set[int]:
        """Training steps in which it has changed a bit."""

    def prepare(self, graph: DeviceGraph) -> None:
        """Called before each training step; raises FaultError if the fault has no place in the graph."""

    def execute(self, graph: DeviceGraph, call: Call, step: int) -> tuple[list[Array], list[Array]]:
        """Runs one operator. Returns what it wrote and what its consumers read."""


class EmulatedDevice:
    """One emulated NPU: its variables, its compiled graphs, its step counter.

    Args:
        graph: The TensorFlow graph of the session.
        options: How it computes.
        is_training: Tells training steps from other runs.
        observers: Are told of training graphs, steps and operators.

    Attributes:
        options: As given.
        graphs: Compiled graphs of training steps, in order of their first step.
        steps: Training steps done so far.

    Raises:
        FaultError: the fault's text is wrong.
    """

    def __init__(
        self,
        graph: tf.Graph,
        options: DeviceOptions,
        *,
        is_training: IsTraining,
        observers: Sequence[DeviceObserver] = (),
    ) -> None:
        self.options = options
        self.graphs: list[DeviceGraph] = []
        self.steps = 0
        self._observers = tuple(observers)
        self._fault = make_fault(options.fault, options.seed)
        self._host = HostGraph(graph)
        self._compiler = Compiler(
            graph, numerics=options.numerics, switches=options.switches, host=self._host, is_training=is_training
        )
        self._variables = Variables()
        self._programs: dict[object, Program] = {}
        self._started = time.strftime("%Y%m%d%H%M%S")
        self._compile_lock = threading.Lock()
        # Other runs (queue runners, evaluation) may go on beside a training step; two training steps may not.
        self._step_lock = threading.Lock()
        self._clock = _Clock()

    @property
    def fault_changed(self) -> bool:
        """Whether the fault has changed any bit so far; False without a fault."""
        return bool(self.fault_steps)

    @property
    def fault_steps(self) -> frozenset[int]:
        """Training steps in which the fault has changed a bit; a fault may find nothing to spoil in some."""
        return frozenset() if self._fault is None else frozenset(self._fault.changed_steps)

    @property
    def steps_by_fault(self) -> Mapping[str, frozenset[int]]:
        """Of several faults at once: text of each -> training steps in which it has changed a bit; else empty."""
        return self._fault.steps_by_fault if isinstance(self._fault, SeveralFaults) else {}

    @property
    def fault_target(self) -> str:
        """Name of the operator that a built-in fault hits; empty before the first step, and for other faults."""
        return "" if self._fault is None else self._fault.target

    def variables(self) -> Mapping[str, Array]:
        """Returns what each initialised variable holds now, by name."""
        return self._variables.snapshot()

    def run(self, request: Request, feeds: Mapping[str, Array]) -> list[Array]:
        """Executes one run; returns the fetched values.

        Args:
            request: Fetches, targets and the fed tensors.
            feeds: Fed values by tensor name.

        Raises:
            EngineError: the graph cannot be executed here, or the fault is wrong.
            tensorflow.errors.OpError: an operator failed.
        """
        program = self._program(request)
        if not program.training:
            return Run(program, self._variables, feeds).execute()
        with self._step_lock:
            return self._train(program, feeds)

    def close(self) -> None:
        """Frees variables and programs and ends the host's session."""
        self._host.close()
        self._variables.clear()
        self._programs.clear()

    def _program(self, request: Request) -> Program:
        with self._compile_lock:
            if request.key not in self._programs:
                graph_id = len(self._programs) + 1
                name = f"ge_default_{self._started}_{graph_id}"
                self._programs[request.key] = self._compiler.compile(request, name=name, graph_id=graph_id)
            return self._programs[request.key]

    def _train(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        graph, step = program.graph, self.steps
        if self._fault is not None:
            self._fault.prepare(graph)
        if all(graph.graph_id != known.graph_id for known in self.graphs):
            self.graphs.append(graph)
            for observer in self._observers:
                observer.graph_compiled(graph)
        listening = [observer for observer in self._observers if observer.step_begin(graph, step)]
        hook = _StepHook(graph, step, self._fault, listening, self._clock) if self._fault or listening else None
        try:
            results = Run(program, self._variables, feeds, hook).execute()
        finally:
            for observer in listening:
                observer.step_end(graph, step)
        self.steps += 1
        return results


def make_fault(text: str, seed: int) -> Fault | None:
    """Returns the fault of a text, None for none.

    Raises:
        FaultError: the text is wrong.
    """
    parts = [part for part in text.split(SEPARATOR) if part]
    if len(parts) > 1:
        return SeveralFaults([_builtin(part, seed) for part in parts])
    if not is_builtin(text):
        return ModuleFault(text)
    spec = parse_fault(text)
    return None if spec is None else BuiltinFault(spec, seed)


def _builtin(text: str, seed: int) -> BuiltinFault:
    """One of several faults."""
    spec = parse_fault(text) if is_builtin(text) else None
    if spec is None:
        raise FaultError(f"fault {text!r}: several faults at once, with {SEPARATOR!r} between them, are KIND@OP each")
    return BuiltinFault(spec, seed)


class _Clock:
    """Microseconds that always rise."""

    def __init__(self) -> None:
        self._last = 0

    def tick(self) -> int:
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last


class _StepHook:
    """Puts the fault into a training step and reports its operators."""

    def __init__(
        self, graph: DeviceGraph, step: int, fault: Fault | None, observers: Sequence[DeviceObserver], clock: _Clock
    ) -> None:
        self._graph = graph
        self._step = step
        self._fault = fault
        self._observers = observers
        self._clock = clock

    def execute(self, call: Call) -> tuple[list[Array], list[Array]]:
        if self._fault is None:
            written = seen = call.compute(call.inputs)
        else:
            written, seen = self._fault.execute(self._graph, call, self._step)
        if self._observers:
            op = call.task.op
            moment = self._clock.tick()
            run = OpRun(op.type, op.name, list(call.inputs), list(written), self._step, op, op.id, op.stream_id, moment)
            broadcast(self._observers, run)
        return written, seen

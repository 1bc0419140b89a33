"""Runs a compiled program, operator by operator, in the program's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import errors

from engine.npu.state import Variables
from engine.npu.tasks import Place, Program, Task

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Call:
    """One operator about to run.

    Attributes:
        task: The operator.
        inputs: What it reads.
        compute: Computes its outputs, from these or from other inputs of the same kind.
        number: How many operators with a task ran before it in this run.
    """

    task: Task
    inputs: Sequence[Array]
    compute: Callable[[Sequence[Array]], list[Array]]
    number: int


class Hook(Protocol):
    """What happens around the operators of a training step: faults and reports."""

    def execute(self, call: Call) -> tuple[list[Array], list[Array]]:
        """Runs one operator. Returns what it wrote, and what its consumers will read (the same but for a fault)."""


class Run:
    """One run of a program.

    Args:
        program: What to run.
        variables: The device's state.
        feeds: Fed values by tensor name.
        hook: Runs each operator that has a task; None runs them plainly.
    """

    def __init__(
        self, program: Program, variables: Variables, feeds: Mapping[str, Array], hook: Hook | None = None
    ) -> None:
        self._program = program
        self._variables = variables
        self._feeds = feeds
        self._hook = hook
        self._values: dict[Place, Array] = {}
        self._executed = 0

    def execute(self) -> list[Array]:
        """Runs all operators; returns the fetched values.

        Raises:
            tensorflow.errors.OpError: an operator failed; the error has its TensorFlow op.
        """
        with np.errstate(all="ignore"):
            for number, task in enumerate(self._program.tasks[:-1]):
                self._step(task)
                for place in self._program.last_use.get(number, ()):
                    self._values.pop(place, None)
        output = self._program.tasks[-1]
        return [self._read(output, place) for place in self._program.fetches]

    def _step(self, task: Task) -> None:
        if not task.op.has_task:
            self._without_task(task)
            return
        inputs = [self._read(task, place) for place in task.op.inputs]
        call = Call(task, inputs, lambda read: self._compute(task, read), self._executed)
        if self._hook is None:
            written = seen = call.compute(inputs)
        else:
            written, seen = self._hook.execute(call)
        self._executed += 1
        for slot, value in enumerate(seen):
            self._values[(task.op.name, slot)] = value
        for slot, key in task.writes.items():
            self._variables.set(key, written[slot])

    def _without_task(self, task: Task) -> None:
        if task.constant is not None:
            self._values[(task.op.name, 0)] = task.constant
        elif task.op.type == "Data":
            if not task.feed:
                dtype = task.op.output_ports[0].dtype
                raise _error(errors.InvalidArgumentError, task, f"You must feed a value for it (dtype {dtype})")
            self._values[(task.op.name, 0)] = self._feeds[task.feed]
        elif task.op.name not in self._program.variables:
            for slot in range(len(task.op.output_ports)):
                self._values[(task.op.name, slot)] = _NO_VALUE

    def _read(self, task: Task, place: Place) -> Array:
        """Returns what an operator reads at a place: a value computed in this run, or what a variable holds now."""
        key = self._program.variables.get(place[0])
        if key is None:
            return self._values[place]
        value = self._variables.get(key)
        if value is not None:
            return value
        if task.optional:
            return _NO_VALUE
        raise _error(
            errors.FailedPreconditionError,
            task,
            f"Attempting to use uninitialized value {place[0]}; run the variables' initializer first",
        )

    def _compute(self, task: Task, inputs: Sequence[Array]) -> list[Array]:
        if task.asks_initialized:
            return [np.asarray(self._variables.get(self._program.variables[task.op.inputs[0][0]]) is not None)]
        with _named_errors(task):
            if task.host is not None:
                return task.host([self._read(task, place) for place in task.host_inputs])
            if task.kernel is not None:
                return task.kernel(task.op.attrs, inputs)
        raise AssertionError(f"{task.op.name} has a task and nothing to run")


_NO_VALUE: Array = np.empty(0, np.uint8)
_NO_VALUE.flags.writeable = False


@contextmanager
def _named_errors(task: Task) -> Iterator[None]:
    """Gives errors of an operator the TensorFlow op that they belong to, as a plain session does."""
    try:
        yield
    except errors.OpError as error:
        raise _error(type(error), task, error.message) from error
    except ValueError as error:
        raise _error(errors.InvalidArgumentError, task, str(error)) from error


def _error(kind: type[errors.OpError], task: Task, message: str) -> Exception:
    node = task.source.node_def if task.source is not None else None
    error: Exception = kind(node, task.source, f"{message}\n\t [[{{{{node {task.op.name}}}}}]]")
    return error

"""Steps of TensorFlow 2: calls of functions and eager blocks, counted, and recorded where wanted."""

from __future__ import annotations

import re
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, TypeVar

from ..errors import UsageError
from ..settings import read_settings
from .eager_calls import Listener, Listening, Run, is_listening
from .function_graph import InlinedBody
from .function_outputs import Expanded, Expander, FunctionDef, must_compile
from .guard import Rung
from .guard_eager import EagerLadder, Nested, is_nested, tensors_in
from .ranks import NO_STEPS
from .record import FORMAT, GraphFile, Item, RunRecord
from .recorder import StepCounter
from .selection import Selection, read_selection
from .step_block import StepBlock
from .steps import Steps
from .talk import SayOnce
from .variables import Variables
from .worker import BoundedWorker

_NUMBER = re.compile(r"_(\d+)\Z")
Result = TypeVar("Result")

_MACHINE_NAME = re.compile(r"(__(inference|forward)_)?(?P<back>__backward_)?(?P<name>.*?)(_\d+)+\Z", re.DOTALL)


class FunctionPlans:
    """The extended functions of a process, made when a function is first met.

    Args:
        say_once: Where it is told that a function cannot be looked into.
    """

    def __init__(self, say_once: SayOnce) -> None:
        self._say_once = say_once
        self._lock = threading.Lock()
        self._expander = Expander(self.find)
        self._plans: Dict[str, Optional[Expanded]] = {}
        self._bodies: Dict[str, InlinedBody] = {}
        self._found: Dict[str, Optional[FunctionDef]] = {}
        self._born = _next_function()
        self.draws = False
        """Whether a function was met that draws random numbers from a state of its own."""

    def find(self, name: str) -> Optional[FunctionDef]:
        """Returns the definition of a function, None if there is none of that name."""
        from tensorflow.python.eager import context

        if name not in self._found:
            ctx = context.context()
            self._found[name] = ctx.get_function_def(name) if ctx.has_function(name) else None
        return self._found[name]

    def plan(self, name: str) -> Optional[Expanded]:
        """Returns the extended function, known to TensorFlow; None for one that runs as one op."""
        with self._lock:
            if name not in self._plans:
                self._plans[name] = self._make(name)
            return self._plans[name]

    def body(self, name: str, prefix: str, sources: Sequence[str]) -> InlinedBody:
        """Returns the nodes of a function; those of the last time where it had the same inputs."""
        with self._lock:
            found = self._bodies.get(name)
            if found is None or found.key != (prefix, tuple(sources)):
                found = self._bodies[name] = InlinedBody(self.find(name), prefix, sources, self.find)
            return found

    def _make(self, name: str) -> Optional[Expanded]:
        import tensorflow as tf
        from tensorflow.python.eager import context

        definition = self.find(name)
        if definition is None or must_compile(definition):
            self._say_compiled(name)
            return None
        try:
            plan = self._expander.expand(name)
            ctx = context.context()
            for function in plan.needed:
                if not ctx.has_function(function.signature.name):
                    ctx.add_function_def(function)
        except (ValueError, KeyError, IndexError, RecursionError, tf.errors.OpError) as error:
            self._say_once(name, "function {} is recorded as one op: {}".format(short_name(name), error))
            return None
        if plan.draws and _number(name) < self._born:
            self._say_once(
                name,
                "function {} draws random numbers and was there before the hook: the tensors inside are not recorded, "
                "so that its numbers go on. Put the hook in front of the first step to see them".format(
                    short_name(name)
                ),
            )
            return None
        if plan.draws:
            self.draws = True
            self._say_once(
                "draws",
                "function {} draws random numbers from the state of its op {}: so that they stay the same, the steps "
                "that are not recorded run with all tensors as outputs too, which takes longer".format(
                    short_name(name), plan.draws[0]
                ),
            )
        if any("compiled by XLA" in tensor.note for tensor in plan.inner):
            self._say_compiled(name)
        return plan

    def _say_compiled(self, name: str) -> None:
        self._say_once(
            "compiled",
            "function {} is compiled by XLA: only what goes in and comes out is recorded. Use jit_compile=False "
            "(Keras: model.compile(..., jit_compile=False)) to see the tensors inside".format(short_name(name)),
        )


class StepLog:
    """Counts steps and records those that are wanted.

    Args:
        folder: Where the ``run_*`` folders go.
        steps: Which steps to record.
        worker: The background writer, one of its own by default.
        keep: What is kept of tensors, one of :data:`.record.KEEPS`; as the settings say by default.
        selection: Which tensors are wanted; as the settings say by default.
        kind: What hook it is of, for the guard.
    """

    def __init__(
        self,
        folder: Path,
        steps: Steps,
        worker: Optional[BoundedWorker] = None,
        keep: Optional[str] = None,
        selection: Optional[Selection] = None,
        kind: str = "function_dump",
    ) -> None:
        settings = read_settings()
        self.say_once = SayOnce()
        self.plans = FunctionPlans(self.say_once)
        self.variables = Variables()
        self._folder = folder
        self._steps = NO_STEPS if settings.guard_plain else steps
        self._ladder: Optional[EagerLadder] = None
        if settings.guard is not None:
            self._ladder = EagerLadder(settings.guard.absolute(), str(self._steps), kind)
        self._worker = worker or BoundedWorker()
        self._keep = settings.keep if keep is None else keep
        self._selection = read_selection(settings) if selection is None else selection
        self._counter = StepCounter()
        self._lock = threading.Lock()
        self._last_us = 0
        self._record_bytes = 0
        self._graph = GraphFile(b"")

    def flush(self) -> None:
        """Waits until every record begun so far is on disk."""
        if self._ladder is not None:
            self._ladder.settle()
        self._worker.flush()

    def around(self, call: Callable[[], Result], main: FrozenSet[str], count: int = 1, given: object = ()) -> Result:
        """Makes a call that is a training step, or several in one, with the result and the errors it has without us.

        Args:
            call: The step.
            main: Names of the functions whose tensors keep their names; others get the function's name in front.
            count: How many steps the call makes.
            given: Its arguments, for the guard.
        """
        with_step = self.begin(main, count, given)
        with with_step:
            result = call()
        self.climb(with_step, result)
        return result

    def climb(self, step: OneStep, result: object) -> None:
        """Writes the guard's rung of a step that went well, where there is a guard."""
        if self._ladder is not None and step.rung is not None:
            self._ladder.finish(step.rung, lambda: tensors_in(result, "result"))

    def begin(self, main: FrozenSet[str], count: int = 1, given: object = ()) -> OneStep:
        """Returns the step that starts now, to be entered with ``with``."""
        last = self._steps.last
        over = last is not None and self._counter.started > last
        if is_nested() or is_listening() or (over and not self.plans.draws and self._ladder is None):
            return OneStep(None, [], self._counter)
        begun = [self._counter.begin() for _ in range(count)]
        wanted = [step for _, step in begun if step in self._steps]
        numbers = [step for _, step in begun]
        rung = None
        if self._ladder is not None:
            fed = partial(tensors_in, given, "given")
            rung = self._ladder.begin(numbers[0], bool(wanted), fed, count=count)
        if over and not self.plans.draws:
            return OneStep(None, numbers, self._counter, rung)
        if not wanted:
            return OneStep(Unrecorded(self.plans), numbers, self._counter, rung)
        self._warn_rewriting()
        self._worker.admit(self._record_bytes)  # the next record will be about as large as the last one
        return OneStep(StepBlock(self, main, begun[0][0], wanted[0]), numbers, self._counter, rung)

    def queue(
        self, run: int, step: int, functions: Sequence[str], graph: bytes, items: List[Item], reason: str
    ) -> None:
        """Hands the record of a step to the writer.

        Args:
            run: Number of the run, from 1.
            step: Number of the step, from 0.
            functions: Names of the functions that ran.
            graph: The serialized GraphDef.
            items: The tensors; their time stamps count from the start of the step.
            reason: Why the record is not complete.
        """
        start_us = self._moments(max([0, *(item.timestamp_us for item in items)]) + 1)
        header = {
            "format": FORMAT,
            "run": run,
            "step": step,
            "start_us": start_us,
            "graph": None,
            "fetches": list(functions),
            "selection": dict(self._selection.texts),
        }
        record = RunRecord(self._folder, header, self.say_once, self._keep, self._selection.budget)
        wanted = self._selection.sized([item for item in items if self._selection.takes(item.taken)])
        timed = [item._replace(timestamp_us=start_us + item.timestamp_us) for item in wanted]
        with self._lock:
            if self._graph.content != graph:
                self._graph = GraphFile(graph)
            file = self._graph
        self._record_bytes = record.submit(self._worker, file, timed, reason)

    def _moments(self, count: int) -> int:
        """Reserves ``count`` microseconds, so that records never overlap, and returns the first."""
        with self._lock:
            first = max(int(time.time() * 1e6), self._last_us + 1)
            self._last_us = first + count
            return first

    def _warn_rewriting(self) -> None:
        import tensorflow as tf

        if not tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer"):
            self.say_once(
                "rewriting",
                "TensorFlow rewrites its functions; recorded steps may then fuse less and differ from unrecorded ones "
                "in the last bit. Switch it off on both sides with "
                "tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})",
            )


class OneStep:
    """One step, wanted or not; an error gives its number back and goes on to the caller.

    Args:
        listener: What sees the execution, None for nothing.
        numbers: Numbers of the steps in it.
        counter: Where they came from.
        rung: What the guard noted of it.
    """

    def __init__(
        self, listener: Optional[Listener], numbers: List[int], counter: StepCounter, rung: Optional[Rung] = None
    ) -> None:
        self.rung = rung
        self._nested = Nested() if rung is not None else None
        self._listener = listener
        self._numbers = numbers
        self._counter = counter
        self._listening = Listening(listener) if listener is not None else None

    def __enter__(self) -> None:
        if self._nested is not None:
            self._nested.__enter__()
        if self._listening is not None:
            self._listening.__enter__()

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:  # noqa: ANN401
        if self._nested is not None:
            self._nested.__exit__()
        if self._listening is not None:
            self._listening.__exit__(kind, error, trace)
        if error is not None:
            for number in reversed(self._numbers):
                self._counter.take_back(number)
        if isinstance(self._listener, StepBlock):
            self._listener.close(error)


class Unrecorded(Listener):
    """A step that is counted only; functions with a random state run extended all the same."""

    def __init__(self, plans: FunctionPlans) -> None:
        self._plans = plans

    def call(self, name: str, inputs: Sequence[Any], outputs: int, run: Run) -> Any:  # noqa: ANN401 - tensors
        """Runs the function as it is, or its first outputs where the draws have to go on."""
        plan = self._plans.plan(name)
        if plan is None or not plan.draws:
            return run(name, outputs)
        return run(plan.name, outputs + plan.added)[:outputs]


def short_name(name: str) -> str:
    """Name of a function without TensorFlow's counters: ``train_step`` for ``__inference_train_step_4711``."""
    match = _MACHINE_NAME.match(name)
    if match is None or not name.startswith("__"):
        return name
    return ("backward_" if match.group("back") else "") + match.group("name")


def _next_function() -> int:
    """Number that TensorFlow would put into the name of a function made now; those made before have smaller ones."""
    from tensorflow.python.framework import ops

    return int(ops.uid())


def _number(name: str) -> float:
    """The number in a function's name; without one nobody knows, so it counts as new."""
    match = _NUMBER.search(name)
    return int(match.group(1)) if match is not None else float("inf")


def need_tensorflow_2(what: str) -> None:
    """Refuses what TensorFlow 1 does not have.

    Raises:
        UsageError: this is TensorFlow 1, or eager execution is switched off.
    """
    import tensorflow as tf

    if int(tf.__version__.split(".")[0]) < 2:
        raise UsageError(
            "{} needs TensorFlow 2, this is {}; record the session with sess_dump".format(what, tf.__version__)
        )
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise UsageError("{} needs eager execution, which is off; record the session with sess_dump".format(what))

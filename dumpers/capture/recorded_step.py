"""One recorded step: what is fetched besides what the caller asked for, and how it gets to the writer."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

import numpy as np

from .aftermath import repeatable_before
from .aliasing import private
from .arrays import storable
from .plan import How, Plan, Taken
from .requests import Fetched, Request
from .turns import Turns, time_stamps
from .watch import WatchFolder

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import NDArray

    from .recorder import Recorder

Read = Callable[[List[str]], List[Any]]
"""Evaluates tensors in a run of their own, with the feeds of the step, and is not recorded."""


class RecordedStep:
    """What has to be done around one run.

    Whoever does the run goes through these in order::

        with step:
            step.read_before(read)
            ...  # the run, with step.extra fetched too and step.options(options)
            step.finish(result, values)  # or step.fail(error, read)

    A ``with`` block that is left without ``finish`` gives the step's number back.

    Args:
        recorder: Whose step it is.
        plan: What to take; None for a step that is counted but not wanted.
        request: Fetches and feeds of the run.
        run: Number of the run, from 1.
        step: Number of the step, from 0.
    """

    def __init__(self, recorder: Recorder, plan: Optional[Plan], request: Request, run: int, step: int) -> None:
        self._recorder = recorder
        self._step = step
        self._finished = False
        self.skipped = plan is None
        self._plan = plan or Plan(training=True)
        self._request = request
        self.asked = frozenset(request.fetches)
        self.extra: List[str] = self._plan.names(How.FETCH)
        loops = self._plan.loops()
        self._watched = sorted(self._plan.watched() - self._plan.copied - loops)
        self._folder = WatchFolder(sorted(self._plan.watched()), loops, recorder.loop_turns)
        self._turns: Dict[str, Turns] = {}
        self._values: Dict[str, Any] = {}
        self._notes: Dict[str, str] = {}
        if plan is not None:
            self._start_us = recorder.moments(plan.moments(recorder.loop_turns))
            self._record = recorder.new_record(request, run, step, self._start_us)
            self._graph = recorder.graph_bytes()
            self._values.update(request.fed_copies())

    def __enter__(self) -> RecordedStep:
        self._folder.__enter__()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._folder.__exit__(kind, error, trace)
        if not self._finished:
            self._recorder.take_back(self._step)

    def options(self, options: Optional[tf.compat.v1.RunOptions]) -> Optional[tf.compat.v1.RunOptions]:
        """Returns the caller's options with what the step needs besides."""
        return self._folder.add_to(options)

    def read_before(self, read: Read) -> None:
        """Reads right before the run what can be seen in no other way."""
        import tensorflow as tf

        names = self._plan.names(How.BEFORE)
        if not names:
            return
        try:
            values = read(names)
        except tf.errors.OpError as error:
            # The run itself meets the same error, or writes the variable first; either way there is no value to read.
            self._notes.update({name: "no value: {}".format(_first_line(error.message)) for name in names})
            return
        for name, value in zip(names, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self._values[name] = np.array(value)

    def finish(self, result: Fetched, values: Sequence[Any]) -> None:
        """Queues the record of a run that went well.

        Args:
            result: What the caller gets, which may share memory with what is recorded.
            values: Those of ``extra``.
        """
        self._finished = True
        if self.skipped:
            return
        self._read_watched()
        shared = self._request.shared_arrays(result)
        for name, value in zip(self.extra, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self._values[name] = _own(value, shared, self._plan.shares_state)
        self._queue("")

    def fail(self, error: tf.errors.OpError, read: Read) -> None:
        """Queues the record of a run that raised, with what led to the failing op."""
        self._read_watched()
        self._read_after(read, error.op)
        self._queue("the run failed: {}: {}".format(type(error).__name__, _first_line(error.message)))

    def _read_watched(self) -> None:
        found, turns = self._folder.read(self._watched), self._folder.read_turns()
        for taken in self._plan.tensors:
            if taken.how is How.WATCH and taken.watch_name in found:
                self._values[taken.name] = found[taken.watch_name]
            elif taken.how is How.WATCH and taken.watch_name in turns:
                self._turns[taken.name] = turns[taken.watch_name]

    def _read_after(self, read: Read, failing: Optional[tf.Operation]) -> None:
        """Evaluates once more what led to the failing op, as far as that gives the same values."""
        import tensorflow as tf

        if failing is None:
            return
        fed = frozenset(tensor.name for tensor in self._request.fed)
        ops = repeatable_before(failing.graph, self._request.roots, fed, failing)
        names = [taken.name for taken in self._plan.tensors if taken.op in ops and taken.how is How.FETCH]
        try:
            values = read(names) if names else []
        except tf.errors.OpError:
            return  # more than one op fails; the record then has the feeds and the reason
        for name, value in zip(names, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self._values[name] = np.array(value)
            self._notes[name] = "evaluated again after the step failed"

    def _queue(self, reason: str) -> None:
        recorder, record = self._recorder, self._record
        needed = sum(int(getattr(value, "nbytes", 0)) for value in self._values.values())
        needed += sum(turns.size_bytes for turns in self._turns.values())
        names = [taken.name for taken in self._plan.tensors]
        recorder.submit(len(self._graph), record.open, self._graph, names, needed)
        self._graph = b""
        for taken, moment, turn in time_stamps(self._plan.tensors, self._turns):
            value, note = self._value(taken, failed=bool(reason)) if turn is None else self._turn(taken, turn)
            size = value[0].nbytes if value is not None else 0
            recorder.submit(size, record.write, taken, self._start_us + moment, value, note)
        recorder.submit(0, record.close, reason)

    def _turn(self, taken: Taken, index: int) -> Tuple[Optional[Tuple[NDArray[np.generic], str]], str]:
        turns = self._turns[taken.name]
        number, path = turns.files[index]
        value = self._folder.read_turn(path)
        if value is None:
            return None, "{}; no value: its file was cut short".format(turns.note(number))
        try:
            array, dtype, note = storable(value, taken.dtype)
        except ValueError as error:
            return None, "{}; {}".format(turns.note(number), error)
        return (array, dtype), "; ".join(text for text in (turns.note(number), taken.note, note) if text)

    def _value(self, taken: Taken, *, failed: bool) -> Tuple[Optional[Tuple[NDArray[np.generic], str]], str]:
        if taken.name in self._turns:
            return None, self._turns[taken.name].summary
        if taken.name not in self._values:
            note = self._notes.get(taken.name) or taken.note
            if not note or taken.how is not How.NOT:
                note = note or "no value: " + ("the run failed" if failed else "did not run or was not initialised")
            return None, note
        try:
            array, dtype, note = storable(self._values.pop(taken.name), taken.dtype)
        except ValueError as error:
            return None, str(error)
        notes = (taken.note, self._notes.get(taken.name, ""), note)
        return (array, dtype), "; ".join(text for text in notes if text)


def _own(value: Fetched, shared: List[NDArray[np.generic]], always: bool) -> Fetched:
    """A value that nobody else can change any more: not TensorFlow's next step, not the caller."""
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value) if always else private(value, shared)


def _first_line(message: Optional[str]) -> str:
    lines = (message or "").strip().splitlines()
    return lines[0][:300] if lines else ""

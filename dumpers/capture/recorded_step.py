"""One recorded step: what is fetched besides what the caller asked for, and how it gets to the writer."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Type

import numpy as np

from .aftermath import repeatable_before
from .aliasing import private
from .arrays import storable
from .guard import Rung
from .plan import How, Plan, Taken
from .record import Item
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
        rung: What the guard noted of it.

    Attributes:
        skipped: Whether the step is only counted.
        plan, request, rung: As above; the plan of a skipped step takes nothing.
        extra: Names of the tensors to fetch with the run.
        values: Values by name, as far as they are known; before the run those that are fed.
    """

    def __init__(
        self,
        recorder: Recorder,
        plan: Optional[Plan],
        request: Request,
        run: int,
        step: int,
        rung: Optional[Rung] = None,
    ) -> None:
        self._recorder = recorder
        self.rung = rung
        self._step = step
        self._finished = False
        self.skipped = plan is None
        self.plan = plan or Plan(training=True)
        self.request = request
        self.asked = frozenset(request.fetches)
        self.extra: List[str] = self.plan.names(How.FETCH)
        loops = self.plan.loops()
        self._watched = sorted(self.plan.watched() - self.plan.copied - loops)
        self._folder = WatchFolder(recorder.watches, sorted(self.plan.watched()), loops, recorder.loop_turns)
        self._turns: Dict[str, Turns] = {}
        self.values: Dict[str, Any] = {}
        self._notes: Dict[str, str] = {}
        if plan is not None:
            self._start_us = recorder.moments(plan.moments(recorder.loop_turns))
            self._record = recorder.new_record(request, run, step, self._start_us)
            self._graph = recorder.graph_file()
            self.values.update(request.fed_copies())

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

        names = self.plan.names(How.BEFORE)
        if not names:
            return
        try:
            values = read(names)
        except tf.errors.OpError as error:
            # The run itself meets the same error, or writes the variable first; either way there is no value to read.
            self._notes.update({name: "no value: {}".format(_first_line(error.message)) for name in names})
            return
        for name, value in zip(names, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self.values[name] = np.array(value)

    def finish(self, result: Fetched, values: Sequence[Any]) -> None:
        """Queues the record of a run that went well.

        Args:
            result: What the caller gets, which may share memory with what is recorded.
            values: Those of ``extra``.
        """
        self._finished = True
        if self.skipped:
            return
        try:
            self._read_watched()
            shared = self.request.shared_arrays(result)
            for name, value in zip(self.extra, values):  # noqa: B905 - as many as were asked for; Python 3.7
                self.values[name] = _own(value, shared, self.plan.shares_state)
            self._queue(self._without_watches())
        except Exception as broken:  # whatever it is, the user's step went well
            self._recorder.say_once.fault("step {} could not be recorded".format(self._step), broken)

    def fail(self, error: tf.errors.OpError, read: Read) -> None:
        """Queues the record of a run that raised, with what led to the failing op."""
        try:
            self._read_watched()
            self._read_after(read, error.op)
            self._queue("the run failed: {}: {}".format(type(error).__name__, _first_line(error.message)))
        except Exception as broken:  # the user has to see the error of the run
            self._recorder.say_once.fault("step {} could not be recorded".format(self._step), broken)

    def _without_watches(self) -> str:
        """Leaves out what the debugger was to copy, and says why, where there was no folder for its files."""
        reason = self._folder.refusal
        if not reason:
            return ""
        for taken in self.plan.tensors:
            if taken.how is How.WATCH or taken.watch_name in self.plan.copied:
                self.values.pop(taken.name, None)
                self._notes[taken.name] = "no value: " + reason
        self._recorder.say_once("watch", "step {} is not recorded completely: {}".format(self._step, reason))
        return reason

    def _read_watched(self) -> None:
        found, turns = self._folder.read(self._watched), self._folder.read_turns()
        for taken in self.plan.tensors:
            if taken.how is How.WATCH and taken.watch_name in found:
                self.values[taken.name] = found[taken.watch_name]
            elif taken.how is How.WATCH and taken.watch_name in turns:
                self._turns[taken.name] = turns[taken.watch_name]

    def _read_after(self, read: Read, failing: Optional[tf.Operation]) -> None:
        """Evaluates once more what led to the failing op, as far as that gives the same values."""
        import tensorflow as tf

        if failing is None:
            return
        fed = frozenset(tensor.name for tensor in self.request.fed)
        ops = repeatable_before(failing.graph, self.request.roots, fed, failing)
        names = [taken.name for taken in self.plan.tensors if taken.op in ops and taken.how is How.FETCH]
        try:
            values = read(names) if names else []
        except tf.errors.OpError:
            return  # more than one op fails; the record then has the feeds and the reason
        for name, value in zip(names, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self.values[name] = np.array(value)
            self._notes[name] = "evaluated again after the step failed"

    def _queue(self, reason: str) -> None:
        items = [
            self._item(taken, moment, failed=bool(reason)) if turn is None else self._turn(taken, moment, turn)
            for taken, moment, turn in time_stamps(self.plan.tensors, self._turns)
        ]
        self._recorder.queue(self._record, self._graph, items, reason)

    def _turn(self, taken: Taken, moment: int, index: int) -> Item:
        turns = self._turns[taken.name]
        number, path = turns.files[index]
        start, value = self._start_us + moment, self._folder.read_turn(path)
        if value is None:
            return Item(taken, start, None, taken.dtype, turns.note(number) + "; no value: its file was cut short")
        try:
            array, dtype, note = storable(value, taken.dtype)
        except ValueError as error:
            return Item(taken, start, None, taken.dtype, "{}; {}".format(turns.note(number), error))
        return Item(taken, start, array, dtype, "; ".join(filter(None, (turns.note(number), taken.note, note))))

    def _item(self, taken: Taken, moment: int, *, failed: bool) -> Item:
        start = self._start_us + moment
        if taken.name in self._turns:
            return Item(taken, start, None, taken.dtype, self._turns[taken.name].summary)
        if taken.name not in self.values:
            note = self._notes.get(taken.name) or taken.note
            if not note or taken.how is not How.NOT:
                note = note or "no value: " + ("the run failed" if failed else "did not run or was not initialised")
            return Item(taken, start, None, taken.dtype, note)
        try:
            array, dtype, note = storable(self.values.pop(taken.name), taken.dtype)
        except ValueError as error:
            return Item(taken, start, None, taken.dtype, str(error))
        if taken.note or note or self._notes:
            note = "; ".join(filter(None, (taken.note, self._notes.get(taken.name, ""), note)))
        return Item(taken, start, array, dtype, note)


def _own(value: Fetched, shared: List[NDArray[np.generic]], always: bool) -> Fetched:
    """A value that nobody else can change any more: not TensorFlow's next step, not the caller."""
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value) if always else private(value, shared)


def _first_line(message: Optional[str]) -> str:
    lines = (message or "").strip().splitlines()
    return lines[0][:300] if lines else ""

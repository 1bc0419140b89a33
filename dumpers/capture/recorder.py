"""Records the training steps of one session: fetches what the step computes and hands it to the writer."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np

from .aftermath import repeatable_before
from .aliasing import private
from .arrays import storable
from .plan import How, Plan, Taken, make_plan
from .record import FORMAT, RunRecord
from .requests import Fetched, Fetches, Request, read_request
from .steps import Steps
from .talk import SayOnce
from .watch import WatchFolder, watch_room
from .worker import BoundedWorker

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import NDArray

_MAX_PLANS = 64
PlainRun = Callable[..., Any]
"""``run(fetches, feed_dict, options, run_metadata)`` as without a hook."""


class StepCounter:
    """Numbers the training steps of a session, from 0, whichever thread runs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._next = 0

    def begin(self) -> Tuple[int, int]:
        """Returns the number of the run (from 1) and of the step (from 0) that starts now."""
        with self._lock:
            self._runs += 1
            self._next += 1
            return self._runs, self._next - 1

    def take_back(self, step: int) -> None:
        """Frees the number of a step that failed, unless a later one has started meanwhile."""
        with self._lock:
            if self._next == step + 1:
                self._next = step

    @property
    def started(self) -> int:
        """How many steps have started."""
        return self._next


class Recorder:
    """What a wrapped session does around each run.

    Args:
        session: The session underneath; its graph and configuration are read.
        folder: Where the ``run_*`` folders go.
        steps: Which steps to record.
        worker: The background writer.
    """

    def __init__(self, session: tf.compat.v1.Session, folder: Path, steps: Steps, worker: BoundedWorker) -> None:
        self._session = session
        self._folder = folder
        self._steps = steps
        self._worker = worker
        self._counter = StepCounter()
        self._plans: "OrderedDict[Tuple[Any, ...], Plan]" = OrderedDict()
        self._lock = threading.Lock()
        self._last_us = 0
        self.say_once = SayOnce()

    def flush(self) -> None:
        """Waits until every record begun so far is on disk."""
        self._worker.flush()

    def run(
        self,
        plain: PlainRun,
        fetches: Fetches,
        feed_dict: Optional[Mapping[Any, Any]] = None,
        options: Optional[tf.compat.v1.RunOptions] = None,
        run_metadata: Optional[tf.compat.v1.RunMetadata] = None,
    ) -> Fetched:
        """Does one ``run`` with the result and the errors that it has without a hook."""
        if self._over():
            return plain(fetches, feed_dict, options, run_metadata)
        request = read_request(self._session.graph, fetches, feed_dict)
        plan = self._plan(request, can_watch=self._local()) if request.roots else Plan(training=False)
        if not plan.training:
            return plain(fetches, feed_dict, options, run_metadata)
        self._warn_rewriting()
        run, step = self._counter.begin()
        failed = True
        try:
            if step in self._steps:
                recorded = _RecordedRun(self, self._with_room(plan, request), request, run, step)
                result = recorded.execute(plain, fetches, feed_dict, options, run_metadata)
            else:
                result = plain(fetches, feed_dict, options, run_metadata)
            failed = False
            return result
        finally:
            if failed:
                self._counter.take_back(step)

    def moments(self, count: int) -> int:
        """Reserves ``count`` microseconds, so that records never overlap, and returns the first."""
        with self._lock:
            first = max(int(time.time() * 1e6), self._last_us + 1)
            self._last_us = first + count
            return first

    def new_record(self, request: Request, run: int, step: int, start_us: int) -> RunRecord:
        """Returns the record of a run, nothing of it on disk yet."""
        header = {
            "format": FORMAT,
            "run": run,
            "step": step,
            "start_us": start_us,
            "graph": None,
            "fetches": list(request.fetches),
        }
        return RunRecord(self._folder, header, self.say_once)

    def submit(self, size_bytes: int, action: Callable[..., None], *args: object) -> None:
        """Hands work to the writer."""
        self._worker.submit(size_bytes, action, *args)

    def graph_bytes(self) -> bytes:
        """Returns the session's graph, serialized, with the shapes that TensorFlow inferred; empty if it is too big."""
        try:
            return bytes(self._session.graph.as_graph_def(add_shapes=True).SerializeToString(deterministic=True))
        except ValueError as error:
            self.say_once("graph", "the graph is not in the record: {}".format(error))
            return b""

    def _over(self) -> bool:
        last = self._steps.last
        return last is not None and self._counter.started > last

    def _plan(self, request: Request, *, can_watch: bool) -> Plan:
        graph = self._session.graph
        key = (can_watch, graph.version, request.fetches, tuple(tensor.name for tensor in request.fed))
        with self._lock:
            found = self._plans.get(key)
        if found is None:
            found = make_plan(graph, request.roots, request.fed, can_watch=can_watch)
            with self._lock:
                self._plans[key] = found
                while len(self._plans) > _MAX_PLANS:
                    self._plans.popitem(last=False)
        return found

    def _with_room(self, plan: Plan, request: Request) -> Plan:
        """Returns the plan, or one that does without the debugger where that has no room for its files."""
        watched = plan.watched()
        needed = sum(taken.size_bytes for taken in plan.tensors if taken.name in watched)
        if not watched or watch_room(len(watched), needed):
            return plan
        self.say_once(
            "watch",
            "the temporary directory has no room for {} bytes; {} tensors that share memory with variables are read "
            "right before the step instead of in it. Set TMPDIR to a larger one".format(needed, len(watched)),
        )
        return self._plan(request, can_watch=False)

    def _local(self) -> bool:
        """Whether the session runs in this process, where the debugger's files can be read."""
        return not self._session.sess_str

    def _warn_rewriting(self) -> None:
        rewrite = self._session._config.graph_options.rewrite_options
        if not rewrite.disable_meta_optimizer:
            self.say_once(
                "rewriting",
                "the session rewrites its graph; recorded steps may then fuse less and differ from unrecorded ones in "
                "the last bit. Switch it off on both sides with "
                "config.graph_options.rewrite_options.disable_meta_optimizer = True",
            )


class _RecordedRun:
    """One step that is recorded."""

    def __init__(self, recorder: Recorder, plan: Plan, request: Request, run: int, step: int) -> None:
        self._recorder = recorder
        self._plan = plan
        self._request = request
        count = plan.tensors[-1].moment + 1 if plan.tensors else 1
        self._start_us = recorder.moments(count)
        self._record = recorder.new_record(request, run, step, self._start_us)
        self._graph = recorder.graph_bytes()
        self._values: Dict[str, Any] = dict(request.fed_copies())
        self._notes: Dict[str, str] = {}

    def execute(
        self,
        plain: PlainRun,
        fetches: Fetches,
        feed_dict: Optional[Mapping[Any, Any]],
        options: Optional[tf.compat.v1.RunOptions],
        run_metadata: Optional[tf.compat.v1.RunMetadata],
    ) -> Fetched:
        """Runs the step with everything in it fetched, and queues the record."""
        import tensorflow as tf

        plan = self._plan
        extra = plan.names(How.FETCH)
        watched = plan.names(How.WATCH)
        self._read_before(plain, feed_dict)
        with WatchFolder(sorted(plan.watched())) as folder:
            try:
                result, values = plain([fetches, extra], feed_dict, folder.add_to(options), run_metadata)
            except tf.errors.OutOfRangeError:
                raise
            except tf.errors.OpError as error:
                self._values.update(folder.read(watched))
                self._read_after(plain, feed_dict, error.op)
                self._queue("the run failed: {}: {}".format(type(error).__name__, _first_line(error.message)))
                raise
            self._values.update(folder.read(watched))
        shared = self._request.shared_arrays(result)
        for name, value in zip(extra, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self._values[name] = _own(value, shared, plan.shares_state)
        del values
        self._queue("")
        return result

    def _read_before(self, plain: PlainRun, feed_dict: Optional[Mapping[Any, Any]]) -> None:
        import tensorflow as tf

        names = self._plan.names(How.BEFORE)
        if not names:
            return
        try:
            values = plain(names, feed_dict, None, None)
        except tf.errors.OpError as error:
            # The run itself meets the same error, or writes the variable first; either way there is no value to read.
            self._notes.update({name: "no value: {}".format(_first_line(error.message)) for name in names})
            return
        for name, value in zip(names, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self._values[name] = np.array(value)

    def _read_after(
        self, plain: PlainRun, feed_dict: Optional[Mapping[Any, Any]], failing: Optional[tf.Operation]
    ) -> None:
        """Evaluates once more what led to the failing op, as far as that gives the same values."""
        import tensorflow as tf

        if failing is None:
            return
        fed = frozenset(tensor.name for tensor in self._request.fed)
        ops = repeatable_before(failing.graph, self._request.roots, fed, failing)
        names = [taken.name for taken in self._plan.tensors if taken.op in ops and taken.how is How.FETCH]
        try:
            values = plain(names, feed_dict, None, None) if names else []
        except tf.errors.OpError:
            return  # more than one op fails; the record then has the feeds and the reason
        for name, value in zip(names, values):  # noqa: B905 - as many as were asked for; Python 3.7
            self._values[name] = np.array(value)
            self._notes[name] = "evaluated again after the step failed"

    def _queue(self, reason: str) -> None:
        recorder, record = self._recorder, self._record
        needed = sum(int(getattr(value, "nbytes", 0)) for value in self._values.values())
        names = [taken.name for taken in self._plan.tensors]
        recorder.submit(len(self._graph), record.open, self._graph, names, needed)
        self._graph = b""
        for taken in self._plan.tensors:
            value, note = self._value(taken, failed=bool(reason))
            size = value[0].nbytes if value is not None else 0
            recorder.submit(size, record.write, taken, self._start_us + taken.moment, value, note)
        recorder.submit(0, record.close, reason)

    def _value(self, taken: Taken, *, failed: bool) -> Tuple[Optional[Tuple[NDArray[np.generic], str]], str]:
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

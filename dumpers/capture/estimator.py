"""``estimator_dump``: the hook that records the steps of an Estimator or of any ``MonitoredSession``.

Imports TensorFlow, since TensorFlow takes only its own kind of hook; so it is imported when a hook is wanted.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import tensorflow as tf

from .recorded_step import RecordedStep
from .recorder import Recorder
from .steps import Steps
from .worker import BoundedWorker

if TYPE_CHECKING:
    from .requests import Fetched

RunContext = Any
"""``tf.compat.v1.train.SessionRunContext``; one object for ``before_run`` and ``after_run`` of the same run."""

RunValues = Any
"""``tf.compat.v1.train.SessionRunValues``."""

RunArgs = Any
"""``tf.compat.v1.train.SessionRunArgs``."""


class DumpHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow is imported without its types
    """Records the chosen steps of the sessions that it is given to, each session's from 0.

    In a graph that trains, its training runs are the steps; in one that cannot (evaluation, prediction) every run over
    a batch. What other hooks run on their own (savers, the final value of the metrics) passes by it, and what they add
    to a run is not recorded.

    TensorFlow tells hooks nothing of a run that raises: such a step leaves no record, and its number goes to the next.

    Args:
        folder: Where the ``run_*`` folders go.
        steps: Which steps to record.
        worker: The background writer, one of its own by default.
    """

    def __init__(self, folder: Path, steps: Steps, *, worker: Optional[BoundedWorker] = None) -> None:
        self._folder = folder
        self._steps = steps
        self._worker = worker or BoundedWorker()
        self._recorders: Dict[tf.Graph, Recorder] = {}
        self._open = _OpenSteps()
        # Folders of the debugger's copies are left by a run that raised in the end; nobody tells the hook then.
        weakref.finalize(self, self._open.drop_all)

    def __deepcopy__(self, memo: Dict[int, Any]) -> DumpHook:
        """Is itself: Estimators copy their ``params``, where model functions get their hooks from."""
        return self

    def before_run(self, run_context: RunContext) -> RunArgs:
        """Asks for what the step computes, if the run is a step that is wanted."""
        self._open.drop()
        asked = run_context.original_args
        step = self._recorder(run_context.session).begin(asked.fetches, asked.feed_dict)
        if step is None:
            return None
        self._open.add(run_context, step)
        shown = _shown(step)
        if step.skipped:
            return tf.compat.v1.train.SessionRunArgs([[], shown]) if shown else None

        def read(names: List[str]) -> List[Fetched]:
            return run_context.session.run(names, asked.feed_dict)  # type: ignore[no-any-return]

        step.read_before(read)
        return tf.compat.v1.train.SessionRunArgs([step.extra, shown], options=step.options(None))

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Hands what the step computed to the writer."""
        step = self._open.take(run_context)
        if step is None:
            return
        try:
            values, shown = run_values.results or ([], [])
            fetched = zip(step.extra, values)  # noqa: B905 - one for each, or none at all; Python 3.7
            # The caller gets the very arrays of what it fetched itself, and may write into them.
            step.finish([value for name, value in fetched if name in step.asked], values)
            names = _shown(step)
            recorder = self._recorder(run_context.session)
            recorder.climb(step, lambda: zip(names, shown))  # noqa: B905 - as many as were asked for; Python 3.7
        finally:
            _leave(step)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Waits until all records are on disk; a later session counts from 0 again."""
        self._open.drop()
        recorder = self._recorders.pop(session.graph, None)
        if recorder is not None:
            recorder.settle(session)
        self._worker.flush()

    def _recorder(self, session: tf.compat.v1.Session) -> Recorder:
        """The recorder of a session's graph: one that TensorFlow makes again after a failure goes on counting."""
        found = self._recorders.get(session.graph)
        if found is None:
            found = self._recorders[session.graph] = Recorder(session, self._folder, self._steps, self._worker)
        found.watch(session)
        return found


class _OpenSteps:
    """Steps between ``before_run`` and ``after_run``, at most one a thread."""

    def __init__(self) -> None:
        self._steps: Dict[int, Tuple[RunContext, RecordedStep]] = {}

    def add(self, context: RunContext, step: RecordedStep) -> None:
        """Opens the step of this thread."""
        step.__enter__()
        self._steps[threading.get_ident()] = (context, step)

    def take(self, context: RunContext) -> Optional[RecordedStep]:
        """Returns this thread's step if it is the one of a run; whoever takes it leaves it."""
        opened, step = self._steps.pop(threading.get_ident(), (None, None))
        if step is None or opened is context:
            return step
        _leave(step)
        return None

    def drop(self) -> None:
        """Leaves this thread's step, whose run raised."""
        _, step = self._steps.pop(threading.get_ident(), (None, None))
        if step is not None:
            _leave(step)

    def drop_all(self) -> None:
        """Leaves the steps of all threads."""
        while self._steps:
            _leave(self._steps.popitem()[1][1])


def _shown(step: RecordedStep) -> List[str]:
    """What the guard hashes of the tensors that the caller fetches."""
    return [] if step.rung is None else [name for name in step.request.fetches if ":" in name]


def _leave(step: RecordedStep) -> None:
    step.__exit__(None, None, None)

"""Records the training steps of one session: fetches what the step computes and hands it to the writer."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..settings import read_settings
from .fast_fetch import FastFetch, feed_values
from .guard import Named, Rung
from .guard_session import SessionLadder, named_results
from .lowered import FUNCTIONAL, with_bodies
from .plan import How, Plan, make_plan
from .ranks import NO_STEPS
from .record import FORMAT, GraphFile, Item, RunRecord
from .recorded_step import RecordedStep
from .requests import Fetched, Fetches, Request, read_request
from .selection import Selection, read_selection
from .steps import Steps
from .talk import SayOnce
from .watch import watch_room
from .watch_folders import WatchFolders
from .worker import BoundedWorker

if TYPE_CHECKING:
    import tensorflow as tf

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
        loop_turns: How many turns of a loop to record; as ``TF_DUMP_LOOP_TURNS`` says by default.
        keep: What is kept of tensors, one of :data:`.record.KEEPS`; as the settings say by default.
        selection: Which tensors are wanted; as the settings say by default.
        direct: Whether what is run is the session's own ``run``, with nothing around it.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        folder: Path,
        steps: Steps,
        worker: BoundedWorker,
        loop_turns: Optional[int] = None,
        *,
        keep: Optional[str] = None,
        selection: Optional[Selection] = None,
        direct: bool = False,
    ) -> None:
        settings = read_settings()
        self._session = session
        self._folder = folder
        self._steps = NO_STEPS if settings.guard_plain else steps
        self._ladder: Optional[SessionLadder] = None
        if settings.guard is not None:
            self._ladder = SessionLadder(
                settings.guard.absolute(), str(self._steps), "session" if direct else "monitored session"
            )
        self._worker = worker
        self._counter = StepCounter()
        self._keep = settings.keep if keep is None else keep
        self._selection = read_selection(settings) if selection is None else selection
        self._direct = direct
        self._plans: "OrderedDict[Tuple[Any, ...], Plan]" = OrderedDict()
        # By the id of a plan, which is kept beside so that no other gets its id.
        self._whole: "OrderedDict[int, Tuple[Plan, Plan]]" = OrderedDict()
        self._fast: "OrderedDict[int, Tuple[Plan, FastFetch]]" = OrderedDict()
        self._graphs: Dict[int, GraphFile] = {}
        self._lock = threading.Lock()
        self._last_us = 0
        self._record_bytes = 0
        self.say_once = SayOnce()
        self.watches = WatchFolders()
        self.loop_turns = settings.loop_turns if loop_turns is None else loop_turns

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
        import tensorflow as tf

        step = self.begin(fetches, feed_dict)
        if step is None:
            return plain(fetches, feed_dict, options, run_metadata)
        if step.skipped:
            with step:
                result = plain(fetches, feed_dict, options, run_metadata)
                step.finish(result, ())
            self.climb(step, lambda: named_results(self._session.graph, fetches, result))
            return result

        def read(names: List[str]) -> List[Fetched]:
            return plain(names, feed_dict, None, None)  # type: ignore[no-any-return]

        with step:
            step.read_before(read)
            try:
                fast = self._guarded_fetch(step) if options is None and run_metadata is None else None
                if fast is not None:
                    result, values = fast[0].run(fetches, fast[1])
                else:
                    result, values = plain([fetches, step.extra], feed_dict, step.options(options), run_metadata)
            except tf.errors.OutOfRangeError:
                raise
            except tf.errors.OpError as error:
                step.fail(error, read)
                raise
            step.finish(result, values)
        self.climb(step, lambda: named_results(self._session.graph, fetches, result))
        return result

    def begin(self, fetches: Fetches, feed_dict: Optional[Mapping[Any, Any]] = None) -> Optional[RecordedStep]:
        """Returns what has to be done around a run, None if it is no training step or no more are wanted."""
        over, version = self._over(), self._session.graph.version
        if over and self._ladder is None:
            return None
        request = read_request(self._session.graph, fetches, feed_dict)
        try:
            plan = self._plan(request, can_watch=self._local()) if request.roots else Plan(training=False)
        except Exception as error:
            self.say_once.fault("a run could not be looked at; it is neither counted as a step nor recorded", error)
            return None
        if not plan.training:
            return None
        if not over:
            self._warn_rewriting()
        run, number = self._counter.begin()
        wanted = number in self._steps
        rung = self._begin_rung(number, wanted, request, version) if self._ladder is not None else None
        if wanted:
            try:
                self._worker.admit(self._record_bytes)  # the next record will be about as large as the last one
                whole = self._with_room(self._whole_plan(plan, request), request)
                return RecordedStep(self, whole, request, run, number, rung)
            except Exception as error:
                self.say_once.fault("step {} could not be prepared and is not recorded".format(number), error)
        return RecordedStep(self, None, request, run, number, rung)

    def climb(self, step: RecordedStep, results: Callable[[], Named]) -> None:
        """Writes the guard's rung of a step that went well, where there is a guard.

        Args:
            step: The step.
            results: Gives names and values of what its caller got.
        """
        if self._ladder is not None and step.rung is not None:
            self._ladder.finish(step.rung, results)

    def settle(self, session: Optional[tf.compat.v1.Session] = None) -> None:
        """Lets the guard read the last variables, before the session is closed.

        Args:
            session: The one to read from; that of the recorder by default.
        """
        if self._ladder is not None:
            self._ladder.watch(self._session if session is None else session)
            self._ladder.settle()

    def watch(self, session: tf.compat.v1.Session) -> None:
        """Takes over a session that TensorFlow made for the same graph after a failure."""
        self._session = session

    def take_back(self, step: int) -> None:
        """Frees the number of a step that failed, unless a later one has started meanwhile."""
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
            "selection": dict(self._selection.texts),
        }
        return RunRecord(self._folder, header, self.say_once, self._keep, self._selection.budget)

    def queue(self, record: RunRecord, graph: GraphFile, items: Sequence[Item], reason: str) -> None:
        """Hands a record to the writer."""
        self._record_bytes = record.submit(self._worker, graph, self._selection.sized(items), reason)

    def graph_file(self) -> GraphFile:
        """Returns the session's graph, serialized, with the shapes that TensorFlow inferred; empty if it is too big."""
        graph = self._session.graph
        with self._lock:
            found = self._graphs.get(graph.version)
        if found is None:
            try:
                found = GraphFile(graph.as_graph_def(add_shapes=True).SerializeToString(deterministic=True))
            except ValueError as error:
                self.say_once("graph", "the graph is not in the record: {}".format(error))
                found = GraphFile(b"")
            with self._lock:
                self._graphs = {graph.version: found}  # what it was before will not come back
        return found

    def _guarded_fetch(self, step: RecordedStep) -> Optional[Tuple[FastFetch, List[Any]]]:
        try:
            return self._fast_fetch(step)
        except Exception as error:
            self.say_once.fault("a step is fetched the slow way", error)
            return None

    def _fast_fetch(self, step: RecordedStep) -> Optional[Tuple[FastFetch, List[Any]]]:
        """Returns how to fetch quickly and what to feed, None where the session's own ``run`` has to do it."""
        if not self._direct or step.plan.watched():
            return None
        feeds = feed_values(step.request, step.values)
        if feeds is None:
            return None
        with self._lock:
            known = self._fast.get(id(step.plan))
        if known is None:
            known = (step.plan, FastFetch(self._session, step.request, step.extra))
            with self._lock:
                _remember(self._fast, known)
        return (known[1], feeds) if known[1].possible else None

    def _begin_rung(self, step: int, recorded: bool, request: Request, version: int) -> Rung:
        assert self._ladder is not None
        self._ladder.watch(self._session)
        return self._ladder.begin(step, recorded, request.fed_copies, version=version)

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
        watched, needed = plan.watched(), plan.watched_bytes(self.loop_turns)
        if not watched or watch_room(len(watched) + self.loop_turns * len(plan.loops()), needed):
            return plan
        self.say_once(
            "watch",
            "the temporary directory has no room for {} bytes; {} tensors that share memory with variables are read "
            "right before the step instead of in it, and loops not at all. Set TMPDIR to a larger one".format(
                needed, len(watched)
            ),
        )
        return self._whole_plan(self._plan(request, can_watch=False), request)

    def _whole_plan(self, plan: Plan, request: Request) -> Plan:
        """Returns what is wanted of a plan and of the bodies of loops and branches that are functions."""
        with self._lock:
            found = self._whole.get(id(plan))
        if found is None:
            found = (plan, self._selection.chosen(self._with_bodies(plan, request)))
            with self._lock:
                _remember(self._whole, found)
        return found[1]

    def _with_bodies(self, plan: Plan, request: Request) -> Plan:
        if any(taken.op_type in FUNCTIONAL for taken in plan.tensors):
            names = [*request.fetches, *plan.names(How.FETCH)]
            feeds = dict(zip((tensor.name for tensor in request.fed), request.feed_values))  # noqa: B905 - Python 3.7

            def prepare(options: tf.compat.v1.RunOptions) -> object:
                return self._session.run(names, feeds, options)

            return with_bodies(plan, self._session.graph, prepare if plan.can_watch else None)
        return plan

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


def _remember(cache: "OrderedDict[int, Tuple[Plan, Any]]", entry: Tuple[Plan, Any]) -> None:
    cache[id(entry[0])] = entry
    while len(cache) > _MAX_PLANS:
        cache.popitem(last=False)

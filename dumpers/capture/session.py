"""``sess_dump``: a session that behaves as the one it wraps and records its training steps."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Type

from ..errors import UsageError
from .recorder import Recorder
from .requests import Fetched, Fetches
from .selection import Selection
from .steps import Steps
from .worker import BoundedWorker

if TYPE_CHECKING:
    import tensorflow as tf

WrappedSession = Any
"""A TensorFlow session, or an object around one; TensorFlow has no common type for them."""

Options = Any
"""RunOptions, CallableOptions or None."""

Metadata = Any
"""RunMetadata or None."""

Feeds = Any
"""A feed dictionary or None."""

_RECORDER = "_precision_tool_recorder"
_WRAPPED = "_precision_tool_session"


def record_session(
    session: tf.compat.v1.Session,
    folder: Path,
    steps: Steps,
    *,
    worker: Optional[BoundedWorker] = None,
    keep: Optional[str] = None,
    selection: Optional[Selection] = None,
) -> tf.compat.v1.Session:
    """Returns a session that records the chosen training steps of another one.

    The result is an instance of the session's own class and shares its whole state; what runs through the original is
    not recorded. A session of another kind that has ``run`` and a TensorFlow session inside
    (``MonitoredTrainingSession``) gives an object that hands everything else on to it.

    Args:
        session: The session to record. One that is recorded already is returned as it is.
        folder: Where the ``run_*`` folders go.
        steps: Which steps to record.
        worker: The background writer, one of its own by default.
        keep: What is kept of tensors, one of :data:`.record.KEEPS`; as the settings say by default.
        selection: Which tensors are wanted; as the settings say by default.

    Raises:
        UsageError: it is no session of TensorFlow 1's kind.
    """
    from tensorflow.python.client.session import BaseSession

    if getattr(session, _RECORDER, None) is not None:
        return session
    inner = _tensorflow_session(session)
    direct = inner is session and type(session).run is BaseSession.run
    recorder = Recorder(inner, folder, steps, worker or BoundedWorker(), keep=keep, selection=selection, direct=direct)
    if not isinstance(session, BaseSession):
        return _Delegate(session, recorder)
    kind = type(session)
    members: Dict[str, Any] = dict(_Recording.__dict__, __slots__=(_RECORDER, _WRAPPED), __module__=kind.__module__)
    for unwanted in ("__dict__", "__weakref__"):
        members.pop(unwanted, None)
    wrapper: Any = type("Recording" + kind.__name__, (kind,), members)
    result = wrapper.__new__(wrapper)
    result.__dict__ = session.__dict__
    setattr(result, _RECORDER, recorder)
    setattr(result, _WRAPPED, session)
    return result


def flush(session: tf.compat.v1.Session) -> None:
    """Waits until all steps recorded so far are on disk; closing the session does it too."""
    recorder = getattr(session, _RECORDER, None)
    if recorder is not None:
        recorder.settle()
        recorder.flush()


class _Recording:
    """The methods that differ in a recorded session; put on top of the session's own class."""

    def run(
        self,
        fetches: Fetches,
        feed_dict: Optional[Mapping[Any, Any]] = None,
        options: Optional[tf.compat.v1.RunOptions] = None,
        run_metadata: Optional[tf.compat.v1.RunMetadata] = None,
    ) -> Fetched:
        """Runs as the wrapped session does; a training step that is wanted is recorded."""
        return getattr(self, _RECORDER).run(getattr(self, _WRAPPED).run, fetches, feed_dict, options, run_metadata)

    def make_callable(
        self, fetches: Fetches, feed_list: Optional[Sequence[Any]] = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Makes a callable whose training steps are recorded too."""
        session, recorder = getattr(self, _WRAPPED), getattr(self, _RECORDER)
        plain = session.make_callable(fetches, feed_list, accept_options)
        feeds = list(feed_list or ())

        def call(*args: Fetched, **options: Fetched) -> Fetched:
            if len(args) != len(feeds):
                return plain(*args, **options)

            def run(asked: Fetches, feed_dict: Feeds, run_options: Options, run_metadata: Metadata) -> Fetched:
                if asked is fetches:
                    return plain(*args, **options)
                return session.run(asked, feed_dict, run_options, run_metadata)

            feed_dict = dict(zip(feeds, args))  # noqa: B905 - as many, see above; Python 3.7
            return recorder.run(run, fetches, feed_dict, options.get("options"), options.get("run_metadata"))

        return call

    def partial_run_setup(self, fetches: Fetches, feeds: Optional[Sequence[Any]] = None) -> Fetched:
        """Prepares a partial run; these are not recorded."""
        getattr(self, _RECORDER).say_once("partial", "partial runs are not recorded")
        return getattr(self, _WRAPPED).partial_run_setup(fetches, feeds)

    def _make_callable_from_options(self, callable_options: Options) -> Fetched:
        getattr(self, _RECORDER).say_once("callable", "calls made from CallableOptions (Keras fit) are not recorded")
        return getattr(self, _WRAPPED)._make_callable_from_options(callable_options)

    def close(self) -> None:
        """Closes the session and waits until all records are on disk."""
        getattr(self, _RECORDER).settle()
        getattr(self, _WRAPPED).close()
        getattr(self, _RECORDER).flush()

    def __del__(self) -> None:
        # The state belongs to the wrapped session, which frees it; the class below would free it here.
        return None


class _Delegate:
    """A recorded session of another kind; everything but ``run`` is the wrapped one's."""

    def __init__(self, session: WrappedSession, recorder: Recorder) -> None:
        self.__dict__[_WRAPPED] = session
        self.__dict__[_RECORDER] = recorder

    def run(
        self,
        fetches: Fetches,
        feed_dict: Optional[Mapping[Any, Any]] = None,
        options: Optional[tf.compat.v1.RunOptions] = None,
        run_metadata: Optional[tf.compat.v1.RunMetadata] = None,
    ) -> Fetched:
        """Runs as the wrapped session does; a training step that is wanted is recorded."""
        return self.__dict__[_RECORDER].run(self.__dict__[_WRAPPED].run, fetches, feed_dict, options, run_metadata)

    def close(self) -> None:
        """Closes the session and waits until all records are on disk."""
        self.__dict__[_RECORDER].settle()
        self.__dict__[_WRAPPED].close()
        self.__dict__[_RECORDER].flush()

    def __enter__(self) -> _Delegate:
        self.__dict__[_WRAPPED].__enter__()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> Fetched:
        self.__dict__[_RECORDER].settle()
        try:
            return self.__dict__[_WRAPPED].__exit__(kind, error, trace)
        finally:
            self.__dict__[_RECORDER].flush()

    def __getattr__(self, name: str) -> Fetched:
        return getattr(self.__dict__[_WRAPPED], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__[_WRAPPED], name, value)


def _tensorflow_session(session: WrappedSession) -> Fetched:
    """The TensorFlow session inside a monitored one, or the session itself.

    Raises:
        UsageError: there is none.
    """
    from tensorflow.python.client.session import BaseSession

    if isinstance(session, BaseSession):
        return session
    if callable(getattr(session, "_tf_sess", None)) and callable(getattr(session, "run", None)):
        inner = session._tf_sess()
        if isinstance(inner, BaseSession):
            return inner
    raise UsageError(
        "sess_dump: {} is no tf.compat.v1.Session; pass the session that runs the training ops".format(
            type(session).__name__
        )
    )

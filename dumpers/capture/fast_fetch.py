"""Fetches thousands of tensors with a run at the cost of a few.

``Session.run`` looks at every name of every fetch in Python and again in the runtime; two thousand of them cost more
than the step. A callable made once from ``CallableOptions`` does not, and hands out the same buffers. It is private API
(``BaseSession._make_callable_from_options``, there from TensorFlow 1.15 to 2.21), so whatever does not fit it goes
through ``run``: feeds that are handles, options of the caller, sessions that do not allow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .requests import Fetched, Fetches, Request

if TYPE_CHECKING:
    import tensorflow as tf

Results = Tuple[Fetched, List[Any]]


class FastFetch:
    """Runs one set of fetches of a session, always with the same feeds.

    Args:
        session: A ``tf.compat.v1.Session`` itself, nothing around one.
        request: Fetches and feeds of the caller.
        extra: Names of the tensors to fetch besides.
    """

    def __init__(self, session: tf.compat.v1.Session, request: Request, extra: Sequence[str]) -> None:
        self._session = session
        self._fed = request.fed
        self._place: Dict[str, int] = {}
        self._call: Optional[Callable[..., Any]] = None
        asked = [name for name in request.fetches if ":" in name]
        for name in [*asked, *extra]:
            self._place.setdefault(name, len(self._place))
        self._extra = [self._place[name] for name in extra]
        self._targets = [name for name in request.fetches if ":" not in name]
        self._make(set(asked))

    @property
    def possible(self) -> bool:
        """Whether :meth:`run` may be called."""
        return self._call is not None

    def _make(self, asked: "set[str]") -> None:
        from tensorflow.core.protobuf import config_pb2

        graph = self._session.graph
        if asked.intersection(tensor.name for tensor in self._fed):
            return
        handles = ("GetSessionHandle", "GetSessionHandleV2")
        if any(graph.get_tensor_by_name(name).op.type in handles for name in asked):
            return
        options = config_pb2.CallableOptions()
        options.feed.extend(tensor.name for tensor in self._fed)
        options.fetch.extend(self._place)
        options.target.extend(self._targets)
        try:
            self._call = self._session._make_callable_from_options(options)
        except Exception:  # whatever a session of another kind raises, its own run does without
            self._call = None

    def run(self, fetches: Fetches, feeds: Sequence[Any]) -> Results:
        """Runs once.

        Args:
            fetches: As the caller wrote them.
            feeds: Values of the fed tensors, in their dtypes.

        Returns:
            What the caller gets, and the values of the extra tensors.

        Raises:
            tf.errors.OpError: as ``Session.run`` raises it.
        """
        from tensorflow.python.client import session as client

        handler = client._FetchHandler(self._session.graph, fetches, {})
        values = self._session._do_call(self._call, *feeds)
        asked = [values[self._place[tensor.name]] for tensor in handler.fetches()]
        return handler.build_results(self._session, asked), [values[at] for at in self._extra]


def feed_values(request: Request, copies: Dict[str, Any]) -> Optional[List[Any]]:
    """Returns what to feed, None where ``Session.run`` has to look at it itself: handles, and what it would refuse."""
    found = []
    for tensor, given in zip(request.fed, request.feed_values):  # noqa: B905 - one made with the other; Python 3.7
        value = copies.get(tensor.name)
        if not isinstance(value, np.ndarray) or hasattr(given, "to_numpy_array"):
            return None
        if isinstance(given, int) and value != given:
            return None
        if not tensor.shape.is_compatible_with(value.shape) or not tensor.graph.is_feedable(tensor):
            return None
        found.append(value)
    return found

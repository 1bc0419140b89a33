"""What a caller asks of a run: the ops behind the fetches and the tensors behind the feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Tuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import NDArray

Fetches = Any
"""Whatever ``Session.run`` takes: tensors, ops, names, and lists, tuples, dicts and registered types of them."""

Fetched = Any
"""What it returns for them: the same structure with arrays in it."""


@dataclass(frozen=True)
class Request:
    """The fetches and feeds of one run.

    Attributes:
        roots: Ops that must run; empty for a run without fetches.
        fetches: Names of the fetched tensors and ops.
        fed: Fed tensors.
        feed_values: What is fed to them.
    """

    roots: Tuple[tf.Operation, ...] = ()
    fetches: Tuple[str, ...] = ()
    fed: Tuple[tf.Tensor, ...] = ()
    feed_values: Tuple[Any, ...] = ()

    def fed_copies(self) -> Iterator[Tuple[str, NDArray[np.generic]]]:
        """Yields names and copies of the fed values as TensorFlow sees them.

        Copies, since callers fill the same buffer for the next step. A value that TensorFlow is going to refuse is
        left out.
        """
        for tensor, value in zip(self.fed, self.feed_values):  # noqa: B905 - one made with the other; Python 3.7
            held = hasattr(value, "to_numpy_array")  # a handle of a tensor that lives in the session
            try:
                source = value.to_numpy_array() if held else value
                yield tensor.name, np.array(source, dtype=tensor.dtype.base_dtype.as_numpy_dtype)
            except (TypeError, ValueError, OverflowError, NotImplementedError):
                continue

    def shared_arrays(self, result: Fetched) -> List[NDArray[np.generic]]:
        """Returns the arrays that the caller holds and may change: those fed and those in the result."""
        fed = [value for value in self.feed_values if isinstance(value, np.ndarray)]
        return fed + list(_arrays(result))


def read_request(graph: tf.Graph, fetches: Fetches, feed_dict: Optional[Mapping[Any, Any]]) -> Request:
    """Takes fetches and feeds apart with the rules of ``Session.run`` itself, those registered by other packages too.

    What ``Session.run`` is going to refuse gives an empty request: the run then raises its own error.
    """
    from tensorflow.python.client import session as client

    try:
        with graph.as_default():
            asked = client._FetchMapper.for_fetch(fetches).unique_fetches()
        elements = [graph.as_graph_element(e, allow_tensor=True, allow_operation=True) for e in asked]
        feeds = list(_feeds(graph, feed_dict)) if feed_dict else []
    except (TypeError, ValueError, KeyError):
        return Request()
    fed_names = {tensor.name for tensor, _ in feeds}
    roots = [_op(element) for element in elements if element.name not in fed_names]
    return Request(
        roots=tuple(dict.fromkeys(roots)),
        fetches=tuple(str(element.name) for element in elements),
        fed=tuple(tensor for tensor, _ in feeds),
        feed_values=tuple(value for _, value in feeds),
    )


def _feeds(graph: tf.Graph, feed_dict: Mapping[Any, Any]) -> Iterator[Tuple[tf.Tensor, Any]]:
    from tensorflow.python.client import session as client
    from tensorflow.python.util import nest

    for key, value in nest.flatten_dict_items(feed_dict).items():
        expand = next(rule[2] for rule in client._REGISTERED_EXPANSIONS if isinstance(key, rule[0]))
        for part, part_value in expand(key, value):
            yield graph.as_graph_element(part, allow_tensor=True, allow_operation=False), part_value


def _op(element: Fetches) -> tf.Operation:
    """The op of a tensor, or the op itself."""
    import tensorflow as tf

    return element if isinstance(element, tf.Operation) else element.op


def _arrays(value: Fetched) -> Iterator[NDArray[np.generic]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _arrays(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _arrays(part)
    elif hasattr(type(value), "__attrs_attrs__"):
        for field in type(value).__attrs_attrs__:
            yield from _arrays(getattr(value, field.name))

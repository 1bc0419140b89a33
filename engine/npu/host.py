"""Ops that stay on the host: random numbers, data iterators, Python functions, tables of keys.

They run in a plain session of their own, on copies of their nodes, so that they keep their state from run to run and
give the same bits as in a plain session of the whole graph. What they read from the device is fed; what they read
through handles (a data set, an iterator, a hash table) is copied along with them. Control edges are not: the device has
put the ops in order already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.framework import dtypes

from engine.errors import UnsupportedOpError
from engine.npu.eager import as_array
from engine.npu.optypes import VARIABLES

Array = NDArray[np.generic]


class HostGraph:
    """The host's copy of the ops that it has to run.

    Args:
        graph: The graph of the session.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self._source = graph
        self._graph = tf.Graph()
        self._graph.seed = graph.seed
        self._session: Any = None
        self._copies: dict[str, Any] = {}
        self._placeholders: dict[str, Any] = {}
        self._has_library = False
        self._lock = threading.RLock()

    def prepare(self, op: tf.Operation) -> tuple[Callable[[Sequence[Array]], list[Array]], list[Any]]:
        """Copies an op, and the ops behind its handles.

        Returns:
            What runs it, and the tensors of the source graph whose values that reads, in this order.
        """
        with self._lock:
            needed: dict[str, Any] = {}
            copy = self._copy(op, needed)
        placeholders = [self._placeholders[name] for name in needed]

        def run(inputs: Sequence[Array]) -> list[Array]:
            outputs = [tensor for tensor in copy.outputs if not is_handle(tensor)]
            values = self._run([copy, outputs], dict(zip(placeholders, inputs, strict=True)))
            found = iter(values[1])
            return [np.empty(0, np.uint8) if is_handle(t) else as_array(next(found)) for t in copy.outputs]

        return run, list(needed.values())

    def close(self) -> None:
        """Ends the session with all its state."""
        with self._lock:
            if self._session is not None:
                self._session.close()

    def _run(self, fetches: list[Any], feeds: dict[Any, Array]) -> list[Any]:
        with self._lock:
            if self._session is None:
                self._session = tf.compat.v1.Session(graph=self._graph)
        results: list[Any] = self._session.run(fetches, feed_dict=feeds)
        return results

    def _copy(self, op: tf.Operation, needed: dict[str, Any]) -> tf.Operation:
        """Returns the copy of an op, made at the first call; adds the tensors that must be fed to ``needed``."""
        if op.type in VARIABLES:
            raise UnsupportedOpError(
                f"op {op.name!r}: a host op (a data set or a table) reads this variable, which the emulated device"
                f" holds; set use_off_line to False, or use a plain session"
            )
        mapping = {}
        for index, tensor in enumerate(op.inputs):
            if is_handle(tensor):
                copy = self._copy(tensor.op, needed)
                mapping[f"input_{index}:0"] = copy.outputs[tensor.value_index]
            else:
                needed[tensor.name] = tensor
                mapping[f"input_{index}:0"] = self._placeholder(tensor)
        if op.name not in self._copies:
            self._copies[op.name] = self._import(op, mapping)
        return self._copies[op.name]

    def _placeholder(self, tensor: tf.Tensor) -> tf.Tensor:
        if tensor.name not in self._placeholders:
            with self._graph.as_default():
                made = tf.compat.v1.placeholder(tensor.dtype.base_dtype, tensor.shape, name="from_device")
            self._placeholders[tensor.name] = made
        return self._placeholders[tensor.name]

    def _import(self, op: tf.Operation, mapping: dict[str, Any]) -> tf.Operation:
        node = tf.compat.v1.NodeDef()
        node.CopyFrom(op.node_def)
        del node.input[:]
        node.input.extend(name.partition(":")[0] for name in mapping)
        node.device = ""
        for attr in [name for name in node.attr if name.startswith("_")]:
            del node.attr[attr]
        definition = tf.compat.v1.GraphDef(node=[node])
        definition.versions.CopyFrom(self._source.graph_def_versions)
        if not self._has_library and _needs_functions(node):
            definition.library.CopyFrom(self._source.as_graph_def().library)
            self._has_library = True
        with self._graph.as_default():
            return tf.compat.v1.import_graph_def(definition, input_map=mapping, return_elements=[op.name], name="host")[
                0
            ]


def is_handle(tensor: tf.Tensor) -> bool:
    """Tells whether a tensor is a handle to something on the host, which has no value."""
    return tensor.dtype.base_dtype in (dtypes.resource, dtypes.variant)


def _needs_functions(node: tf.compat.v1.NodeDef) -> bool:
    return any(value.WhichOneof("value") == "func" or value.list.func for value in node.attr.values())

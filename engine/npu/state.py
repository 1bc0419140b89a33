"""Variables of an emulated device: which tensor stands for which variable, and what each holds now."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import dtypes

from engine.npu.attributes import dtype_name
from engine.npu.optypes import REFERENCE_VARIABLES

if TYPE_CHECKING:
    import tensorflow as tf

Array = NDArray[np.generic]


class Variables:
    """Values by variable key. Arrays are replaced, never changed, so whoever read one keeps what it read."""

    def __init__(self) -> None:
        self._values: dict[str, Array] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> Array | None:
        """Returns the value, None before the first assignment."""
        with self._lock:
            return self._values.get(key)

    def set(self, key: str, value: Array) -> None:
        """Replaces the value."""
        with self._lock:
            self._values[key] = value

    def discard(self, key: str) -> None:
        """Makes a variable uninitialised again."""
        with self._lock:
            self._values.pop(key, None)

    def snapshot(self) -> Mapping[str, Array]:
        """Returns all values by key."""
        with self._lock:
            return dict(self._values)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._values.clear()


def variable_op(tensor: tf.Tensor) -> tf.Operation | None:
    """Returns the op that made the variable behind a resource handle or a reference, None if there is none."""
    seen = tensor
    while True:
        op = seen.op
        if op.type == "VarHandleOp" or op.type in REFERENCE_VARIABLES:
            return op
        handle = seen.dtype == dtypes.resource or seen.dtype._is_ref_dtype
        if not handle or not op.inputs or (seen.dtype == dtypes.resource and op.type != "Identity"):
            return None
        seen = op.inputs[0]


def variable_key(op: tf.Operation) -> str:
    """Returns the key of a variable: equal for handles that share one variable."""
    attrs = op.node_def.attr
    shared = attrs["shared_name"].s.decode() if "shared_name" in attrs else ""
    container = attrs["container"].s.decode() if "container" in attrs else ""
    return f"{container}/{shared or op.name}" if container else shared or str(op.name)


def variable_type(op: tf.Operation) -> tuple[str, tuple[int, ...] | None]:
    """Returns dtype name and static shape of a variable."""
    attrs = op.node_def.attr
    shape = attrs["shape"].shape
    return dtype_name(attrs["dtype"].type), None if shape.unknown_rank else tuple(int(dim.size) for dim in shape.dim)


def takes_reference(op: tf.Operation) -> list[bool]:
    """Tells for each input of an op whether it wants the reference itself, not the value behind it."""
    attrs = op.node_def.attr
    result: list[bool] = []
    for arg in op.op_def.input_arg:
        if arg.number_attr:
            count = int(attrs[arg.number_attr].i)
        elif arg.type_list_attr:
            count = len(attrs[arg.type_list_attr].list.type)
        else:
            count = 1
        result += [bool(arg.is_ref)] * count
    return result

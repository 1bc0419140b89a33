"""One TensorFlow op at a time, outside any graph: how the emulated device runs what it has no kernel of its own for.

Works whether or not eager execution is switched on for the program, and inside a graph context: neither mode is asked
or changed, the ops are handed to TensorFlow's eager runtime directly.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import dtypes, op_def_registry, ops

from engine.errors import UnsupportedOpError
from engine.npu.attributes import eager_attrs

if TYPE_CHECKING:
    import tensorflow as tf

Array = NDArray[np.generic]


class EagerOp:
    """A TensorFlow op prepared for repeated execution from arrays.

    Args:
        op: The op of the graph; its attributes are read once, here.
    """

    def __init__(self, op: tf.Operation) -> None:
        self._type: str = op.type
        self._attrs = eager_attrs(op)
        self._outputs = len(op.outputs)
        self._dtypes = [int(tensor.dtype.base_dtype.as_datatype_enum) for tensor in op.inputs]

    def __call__(self, attrs: Mapping[str, Any], inputs: Sequence[Array]) -> list[Array]:
        """Executes the op; the signature is that of a kernel, the device's attributes are not needed."""
        runtime = _runtime()
        tensors = [to_tensor(value, kind, runtime) for value, kind in zip(inputs, self._dtypes, strict=True)]
        results = execute.quick_execute(self._type, self._outputs, tensors, self._attrs, runtime)
        return [from_tensor(result) for result in results]


class EagerVariableOp:
    """An op that reads or writes variables in place, executed on temporary variables that hold the current values.

    Args:
        op: The op of the graph, on resource or on reference variables.
        variables: Positions of its inputs that are variables.
        writes: Whether it changes them.
    """

    def __init__(self, op: tf.Operation, variables: Sequence[int], *, writes: bool) -> None:
        reference = op.inputs[variables[0]].dtype != dtypes.resource
        self._type: str = "Resource" + op.type if reference else op.type
        if op_def_registry.get(self._type) is None:
            raise UnsupportedOpError(
                f"op {op.name!r}: the emulated device cannot execute {op.type} on a reference variable;"
                f" create the variable with use_resource=True, or set use_off_line to False"
            )
        known = {attr.name for attr in op_def_registry.get(self._type).attr}
        self._attrs = tuple(part for pair in _pairs(eager_attrs(op)) if pair[0] in known for part in pair)
        self._outputs = 0 if reference else len(op.outputs)
        self._dtypes = [int(tensor.dtype.base_dtype.as_datatype_enum) for tensor in op.inputs]
        self._variables = tuple(variables)
        self._writes = writes

    def __call__(self, attrs: Mapping[str, Any], inputs: Sequence[Array]) -> list[Array]:
        """Executes the op. Returns its outputs, then the written variables."""
        runtime = _runtime()
        handles: dict[int, tuple[Any, int]] = {}
        try:
            tensors = []
            for index, value in enumerate(inputs):
                if index in self._variables:
                    kind = int(dtypes.as_dtype(value.dtype).as_datatype_enum)
                    handles[index] = (_new_variable(value, kind, runtime), kind)
                    tensors.append(handles[index][0])
                else:
                    tensors.append(to_tensor(value, self._dtypes[index], runtime))
            results = execute.quick_execute(self._type, self._outputs, tensors, self._attrs, runtime)
            written = [_read(*handles[index], runtime) for index in self._variables] if self._writes else []
            return [from_tensor(result) for result in results] + written
        finally:
            for handle, _ in handles.values():
                execute.quick_execute("DestroyResourceOp", 0, [handle], ("ignore_lookup_error", True), runtime)


def to_tensor(value: Array, kind: int, runtime: context.Context) -> tf.Tensor:
    """Returns an array as an eager tensor of a dtype given by its number."""
    return ops.EagerTensor(value, runtime.device_name, kind)


def from_tensor(tensor: tf.Tensor) -> Array:
    """Returns an eager tensor as an array (scalars as arrays without dimensions)."""
    return as_array(tensor.numpy())


def as_array(value: object) -> Array:
    """Returns what TensorFlow hands out for a tensor as an array; text stays text, of any length."""
    return np.asarray(value, dtype=object if isinstance(value, bytes) else None)


def _runtime() -> context.Context:
    runtime = context.context()
    runtime.ensure_initialized()
    return runtime


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _new_variable(value: Array, kind: int, runtime: context.Context) -> tf.Tensor:
    name = f"emulated_npu_{uuid.uuid4().hex}".encode()
    attrs = ("container", b"", "shared_name", name, "dtype", kind, "shape", list(value.shape))
    handle = execute.quick_execute("VarHandleOp", 1, [], attrs, runtime)[0]
    tensor = to_tensor(value, kind, runtime)
    execute.quick_execute("AssignVariableOp", 0, [handle, tensor], ("dtype", kind), runtime)
    return handle


def _read(handle: tf.Tensor, kind: int, runtime: context.Context) -> Array:
    return from_tensor(execute.quick_execute("ReadVariableOp", 1, [handle], ("dtype", kind), runtime)[0])

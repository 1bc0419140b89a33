"""Attributes of a TensorFlow op, for the device graph and for executing it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import dtypes

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework import tensor_shape_pb2
    from tensorflow.core.framework.attr_value_pb2 import AttrValue

Plain = str | int | float | bool | list[Any] | None

_SKIPPED = frozenset({"_class", "_output_shapes", "_XlaCompile", "_XlaScope"})


def dtype_name(dtype: tf.DType | int) -> str:
    """Returns NumPy's name of a TensorFlow dtype (``bool``, ``float32``, ``bfloat16``, ``resource``, ...)."""
    name: str = dtypes.as_dtype(dtype).base_dtype.name
    return name


def device_attrs(op: tf.Operation) -> dict[str, Any]:
    """Returns the attributes of a TensorFlow op in plain Python types; tensors and functions' bodies are left out.

    Attributes that begin with ``_embedding`` are kept, other private ones that TensorFlow adds are not.
    """
    result: dict[str, Any] = {}
    for name, value in op.node_def.attr.items():
        if name in _SKIPPED or (name.startswith("_") and not name.startswith("_embedding")):
            continue
        plain = _plain(value)
        if plain is not None:
            result[name] = plain
    return result


def _plain(value: tf.compat.v1.AttrValue) -> Plain:
    kind = value.WhichOneof("value")
    if kind == "list":
        return _plain_list(value.list)
    if kind == "s":
        return str(value.s, "utf-8", "replace")
    if kind == "type":
        return dtype_name(value.type)
    if kind == "shape":
        return None if value.shape.unknown_rank else [int(dim.size) for dim in value.shape.dim]
    if kind == "func":
        return str(value.func.name)
    plain: Plain = getattr(value, kind) if kind in ("i", "f", "b") else None
    return plain


def _plain_list(values: AttrValue.ListValue) -> list[Any] | None:
    if values.s:
        return [text.decode("utf-8", "replace") for text in values.s]
    if values.type:
        return [dtype_name(kind) for kind in values.type]
    for field in (values.i, values.f, values.b):
        if field:
            return list(field)
    if values.shape or values.tensor or values.func:
        return None
    return []


def eager_attrs(op: tf.Operation) -> tuple[Any, ...]:
    """Returns the declared attributes of an op as the flat name, value, ... tuple that single-op execution takes."""
    flat: list[Any] = []
    values = op.node_def.attr
    for declared in op.op_def.attr:
        if declared.name in values:
            flat += [declared.name, _eager_value(declared.type, values[declared.name])]
    return tuple(flat)


def _eager_value(kind: str, value: tf.compat.v1.AttrValue) -> object:
    if kind.startswith("list("):
        return _eager_list(kind[5:-1], value.list)
    if kind == "shape":
        return _eager_shape(value.shape)
    field = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "func": "func", "tensor": "tensor"}
    return getattr(value, field[kind])


def _eager_list(kind: str, values: AttrValue.ListValue) -> list[Any]:
    if kind == "shape":
        return [_eager_shape(shape) for shape in values.shape]
    field = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "func": "func", "tensor": "tensor"}
    return list(getattr(values, field[kind]))


def _eager_shape(shape: tensor_shape_pb2.TensorShapeProto) -> list[int] | None:
    return None if shape.unknown_rank else [int(dim.size) for dim in shape.dim]

"""How a script runs an op that has no NumPy formula: as a graph of one node, which TensorFlow runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.op_def_pb2 import OpDef

    from precision_tool.plain_data import Plain

RAW_OP = """\
import tensorflow as tf
from google.protobuf import json_format
def once(x):
    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        held = [tf.compat.v1.placeholder(k.dtype, k.shape) for k in x]
        node = json_format.ParseDict(a["node"], tf.compat.v1.NodeDef())
        node.input.extend("x%d" % k for k in range(len(x)))
        for name, k in a["types"].items():
            node.attr[name].type = tf.as_dtype(x[k].dtype).as_datatype_enum
        tf.import_graph_def(tf.compat.v1.GraphDef(node=[node]), dict(zip(node.input, held)), name="")
        with tf.compat.v1.Session() as session:
            return session.run(list(graph.get_operation_by_name(node.name).outputs), dict(zip(held, x)))
try:
    out = once(x)
except (TypeError, ValueError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError):  # no float64 kernel
    out = once([k.astype(np.float32) if k.dtype == np.float64 else k for k in x])
return [k if k.dtype.kind in "iub" else k.astype(np.float64) for k in out]"""
"""Body for a type without a formula: the same op in TensorFlow, in float64 where that has a kernel."""


def raw_node(kind: str, count: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the node of an op as :data:`RAW_OP` takes it, and which tensor gives it which type.

    Args:
        kind: Type of the op in TensorFlow.
        count: Number of tensors it reads.
        attributes: Its attributes, plain.

    Raises:
        DataError: TensorFlow is not there or has no such op, or the op cannot be run from plain tensors.
    """
    lacks = f"not exported: {kind} has no NumPy formula here"
    try:
        from google.protobuf import json_format
        from tensorflow.core.framework.node_def_pb2 import NodeDef
        from tensorflow.python.framework import op_def_registry
    except ImportError as error:
        raise DataError(f"{lacks}, and TensorFlow, which would run it, cannot be imported") from error
    definition = op_def_registry.get(kind)
    if definition is None:
        raise DataError(f"{lacks}, and TensorFlow has no operator of this type")
    if definition.is_stateful:
        raise DataError(f"{lacks}, and TensorFlow's operator keeps a state")
    node = NodeDef(name="op", op=kind)
    types, numbers = _ports(definition, count, attributes, lacks)
    for name, length in numbers.items():
        node.attr[name].i = length
    for attribute in definition.attr:
        if attribute.name in types or attribute.name in numbers:
            continue
        if attribute.name in attributes:
            try:
                _set(node.attr[attribute.name], attribute.type, attributes[attribute.name])
            except (TypeError, ValueError) as error:
                raise DataError(f"{lacks}, and its attribute {attribute.name} is no plain value: {error}") from error
        elif not attribute.HasField("default_value"):
            raise DataError(f"{lacks}, and the graph does not give its attribute {attribute.name}")
    return {"node": json_format.MessageToDict(node), "types": types}


def _ports(
    definition: OpDef, count: int, attributes: Mapping[str, Any], lacks: str
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns which input tensor has the type that an attribute names, and the lengths of the lists of inputs."""
    lists = [argument for argument in definition.input_arg if argument.number_attr or argument.type_list_attr]
    names = {argument.number_attr for argument in lists}
    spare = count - (len(definition.input_arg) - len(lists))
    types: dict[str, int] = {}
    numbers: dict[str, int] = {}
    at = 0
    for argument in definition.input_arg:
        # TensorFlow's numbers for "resource" and "variant", which no dump holds.
        if argument.is_ref or argument.type in (20, 21):
            raise DataError(f"{lacks}, and TensorFlow's operator reads a handle or a reference")
        if argument.type_list_attr:
            raise DataError(f"{lacks}, and TensorFlow's operator reads a list of several types")
        length = 1
        if argument.number_attr:
            # Several lists share one number (DynamicStitch).
            known = spare // len(lists) if len(names) == 1 else attributes.get(argument.number_attr)
            if not isinstance(known, int) or known < 1:
                raise DataError(f"{lacks}, and the graph does not say how long its input lists are")
            length = numbers[argument.number_attr] = known
        if argument.type_attr:
            types.setdefault(argument.type_attr, at)
        at += length
    if at != count:
        raise DataError(f"{lacks}, and TensorFlow's operator reads {at} tensors where {count} are here")
    return types, numbers


def _set(slot: AttrValue, kind: str, value: Plain) -> None:
    """Sets a ``tensorflow.AttrValue`` of a kind as an ``OpDef`` names it.

    Raises:
        TypeError: the value or the kind is another.
        ValueError: a number is out of range, or a dtype is unknown.
    """
    fields = {"int": "i", "float": "f", "bool": "b", "string": "s", "type": "type"}
    plain = kind.removeprefix("list(").removesuffix(")")
    if plain not in fields:
        raise TypeError(kind)
    items = [value] if kind == plain else value
    if not isinstance(items, list):
        raise TypeError(f"{items!r} is no list")
    values = [_encoded(plain, item) for item in items]
    if kind != plain:
        getattr(slot.list, fields[plain]).extend(values)
        slot.list.SetInParent()
    else:
        setattr(slot, fields[plain], values[0])


def _encoded(kind: str, value: Plain) -> Plain | bytes:
    if kind == "string":
        return str(value).encode("utf-8")
    if kind == "type":
        import tensorflow as tf

        return int(tf.as_dtype(str(value)).as_datatype_enum)
    return value

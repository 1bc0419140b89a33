"""A node for an op that ran eagerly, so that the record has a graph there too."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

NodeDef = Any
Tensor = Any


def eager_node(
    name: str,
    op_type: str,
    sources: Sequence[str],
    inputs: Sequence[Tensor],
    attrs: Sequence[Any],
    outputs: Sequence[Tensor],
) -> NodeDef:
    """Returns a node with the attributes that the op ran with.

    Args:
        name: Its name.
        op_type: Its type.
        sources: The graph's names of the inputs.
        inputs: The tensors behind them.
        attrs: Names and values in turn, as TensorFlow hands them to callbacks.
        outputs: What came out.
    """
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    node = tf.compat.v1.NodeDef(name=name, op=op_type)
    node.input.extend(sources)
    known = op_def_registry.get(op_type)
    if known is None:
        return node
    given = dict(zip(attrs[::2], attrs[1::2]))  # noqa: B905 - pairs; Python 3.7
    types = _types(known.input_arg, inputs)
    types.update(_types(known.output_arg, outputs))
    for attr in known.attr:
        value = given.get(attr.name)
        try:
            if value is not None and attr.type in _SETTERS:
                _SETTERS[attr.type](node.attr[attr.name], value)
            elif attr.name in types:
                _set_known(node.attr[attr.name], attr.type, types[attr.name])
            elif attr.HasField("default_value"):
                node.attr[attr.name].CopyFrom(attr.default_value)
        except (TypeError, ValueError):  # an attribute of a kind that no message holds; the node does without
            del node.attr[attr.name]
    return node


def input_names(op_type: str, tensors: Sequence[Tensor]) -> List[str]:
    """Returns a name for each input, from the op's definition where that is plain."""
    from tensorflow.python.framework import op_def_registry

    known = op_def_registry.get(op_type)
    if known is not None and len(known.input_arg) == len(tensors):
        return [str(argument.name) for argument in known.input_arg]
    return ["input_{}".format(index) for index in range(len(tensors))]


def _types(arguments: Sequence[Any], tensors: Sequence[Tensor]) -> Dict[str, Any]:
    """Attributes that follow from the tensors: dtypes, and how many tensors a list has."""
    found: Dict[str, Any] = {}
    listed = [argument for argument in arguments if argument.number_attr or argument.type_list_attr]
    if len(listed) > 1:
        return found
    rest = list(tensors)
    for argument in arguments:
        count = len(tensors) - len(arguments) + 1 if argument in listed else 1
        mine, rest = rest[:count], rest[count:]
        numbers = [tensor.dtype.base_dtype.as_datatype_enum for tensor in mine]
        if argument.number_attr:
            found[argument.number_attr] = count
        if argument.type_list_attr:
            found[argument.type_list_attr] = numbers
        elif argument.type_attr and numbers:
            found[argument.type_attr] = numbers[0]
    return found


def _set_known(target: Any, kind: str, value: Any) -> None:  # noqa: ANN401 - an AttrValue
    if kind == "type":
        target.type = value
    elif kind == "int":
        target.i = value
    else:
        target.list.type.extend(value)


def _dtype(value: Any) -> int:  # noqa: ANN401 - a DType or its number
    import tensorflow as tf

    return int(tf.as_dtype(value).as_datatype_enum)


def _bytes(value: "str | bytes") -> bytes:
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)


def _shape(target: Any, value: Any) -> None:  # noqa: ANN401 - an AttrValue
    import tensorflow as tf

    target.shape.CopyFrom(tf.TensorShape(value).as_proto())


def _shapes(target: Any, value: Any) -> None:  # noqa: ANN401 - an AttrValue
    import tensorflow as tf

    target.list.shape.extend([tf.TensorShape(item).as_proto() for item in value])


_SETTERS: Dict[str, Any] = {
    "type": lambda target, value: setattr(target, "type", _dtype(value)),
    "int": lambda target, value: setattr(target, "i", int(value)),
    "float": lambda target, value: setattr(target, "f", float(value)),
    "bool": lambda target, value: setattr(target, "b", bool(value)),
    "string": lambda target, value: setattr(target, "s", _bytes(value)),
    "shape": _shape,
    "list(shape)": _shapes,
    "list(type)": lambda target, value: target.list.type.extend([_dtype(item) for item in value]),
    "list(int)": lambda target, value: target.list.i.extend([int(item) for item in value]),
    "list(float)": lambda target, value: target.list.f.extend([float(item) for item in value]),
    "list(string)": lambda target, value: target.list.s.extend([_bytes(item) for item in value]),
}

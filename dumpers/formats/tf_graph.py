"""TensorFlow graphs: GraphDef, binary or text, and the graph inside a ``.meta`` file. No TensorFlow needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.enums import tf_dtype
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.tf_tensor import proto_array, proto_shape
from dumpers.formats.wire import WireError, fields
from dumpers.graph import AttrValue, Graph, Op, Port, Source

MAX_VALUES: Final = 1024
"""A constant with more elements is described by dtype and shape only."""

_TEXT: Final = re.compile(rb"\A\s*(?:#[^\n]*\n\s*)*(?:node|library|versions|version|graph_def|meta_info_def)\s*[:{<\d]")
_META_TEXT: Final = re.compile(rb"(?m)^(?:graph_def|meta_info_def)\s*[:{<]")


def read_graph_def(path: Path) -> Graph:
    """Reads the main graph of a GraphDef or MetaGraphDef. Ops keep the order of the file.

    Attributes are plain Python: dtypes as names, shapes as tuples (None for unknown rank), functions and tensors as
    dicts; a tensor has its ``values`` (flat) if it is not larger than :data:`MAX_VALUES`. Names of library functions
    are the graph attribute ``functions``; :func:`read_functions` gives their bodies.

    Raises:
        DataError: no such file, or no TensorFlow graph in it.
    """
    path = Path(path)
    graph = _load(path)
    attrs: dict[str, AttrValue] = {
        "producer": graph.versions.producer,
        "functions": tuple(_text(function.signature.name) for function in graph.library.function),
    }
    return Graph(name=path.stem, ops=read_ops(graph.node), kind="tf", path=path, attrs=attrs)


def read_functions(path: Path) -> Mapping[str, Graph]:
    """Reads the bodies of a graph's library functions; a slot counts within the producer's named output.

    Raises:
        DataError: no such file, or no TensorFlow graph in it.
    """
    path = Path(path)
    result = {}
    for function in _load(path).library.function:
        name = _text(function.signature.name)
        result[name] = Graph(name=name, ops=read_ops(function.node_def), kind="tf", path=path)
    return result


def looks_like_graph_text(raw: bytes) -> bool:
    """Tells whether bytes begin like the text of a TensorFlow graph."""
    return bool(_TEXT.match(raw))


def graph_from_bytes(raw: bytes) -> Message:
    """Returns the GraphDef message of a file's bytes.

    Raises:
        DataError: they are none.
    """
    if not raw.strip():
        raise DataError("is empty")
    graph = _parse_text(raw) if looks_like_graph_text(raw) else _parse_binary(raw)
    if not len(graph.node) and not len(graph.library.function):
        raise DataError("holds no TensorFlow graph")
    return graph


def _load(path: Path) -> Message:
    try:
        return graph_from_bytes(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _parse_text(raw: bytes) -> Message:
    from google.protobuf import text_format

    if not raw.isascii():
        raw = re.sub(rb"[\x80-\xff]", lambda match: f"\\{match[0][0]:03o}".encode(), raw)
    meta = bool(_META_TEXT.search(raw))
    message = tf_message("MetaGraphDef" if meta else "GraphDef")
    try:
        text_format.Merge(raw.decode("ascii"), message, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise DataError(f"is not the text of a TensorFlow graph, or was cut off: line {error}") from error
    return message.graph_def if meta else message


def _parse_binary(raw: bytes) -> Message:
    try:
        meta = _is_meta(raw)
        message = tf_message("MetaGraphDef" if meta else "GraphDef")
        message.ParseFromString(raw)
    except (decode_error(), WireError) as error:
        raise DataError("is not a TensorFlow graph, or was cut off") from error
    return message.graph_def if meta else message


def _is_meta(raw: bytes) -> bool:
    """Tells a MetaGraphDef, which has a graph in field 2, from a GraphDef, which has its function library there.

    Both begin with a repeated message in field 1. A node always has a field 2 (its type), a function never.
    """
    for field in fields(raw, 0, len(raw)):
        if field.number == 2 and field.kind == 2:
            first = next(fields(raw, field.start, field.end), None)
            if first is None or first.number != 1 or first.kind != 2:
                return False
            return any(part.number == 2 for part in fields(raw, first.start, first.end))
    return False


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def read_ops(nodes: Iterable[Message]) -> dict[str, Op]:
    """Returns the ops of ``NodeDef`` messages by name."""
    ops = {}
    for index, node in enumerate(nodes):
        inputs: list[Source] = []
        controls: list[str] = []
        for raw in node.input:
            text = _text(raw)
            if text.startswith("^"):
                controls.append(text[1:])
            else:
                inputs.append(_source(text))
        attrs = {_text(entry.key): read_attr(entry.value) for entry in node.attr}
        name = _text(node.name)
        ops[name] = Op(
            name=name,
            type=_text(node.op),
            inputs=tuple(inputs),
            control_inputs=tuple(controls),
            output_ports=_output_ports(attrs),
            attrs=attrs,
            id=index,
        )
    return ops


def _source(text: str) -> Source:
    """``op``, ``op:1``, or ``op:output name:1`` inside a function."""
    head, colon, slot = text.rpartition(":")
    if not (colon and slot.isdigit()):
        return Source(text, 0)
    return Source(head.partition(":")[0], int(slot))


def _output_ports(attrs: Mapping[str, AttrValue]) -> tuple[Port, ...]:
    """Outputs, where a shape inference wrote them down; their dtype only where one attribute says it for all."""
    shapes = attrs.get("_output_shapes")
    if not isinstance(shapes, tuple):
        return ()
    dtype = next((attrs[key] for key in ("DstT", "dtype", "T") if isinstance(attrs.get(key), str)), "undefined")
    return tuple(Port(str(dtype), shape if isinstance(shape, tuple) else None) for shape in shapes)


def read_attr(value: Message) -> AttrValue:
    """Returns an ``AttrValue`` message as plain Python."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind != "list":
        return _plain(kind, getattr(value, kind))
    for name in ("s", "i", "f", "b", "type", "shape", "tensor", "func"):
        items = getattr(value.list, name)
        if len(items):
            return tuple(_plain(name, item) for item in items)
    return ()


def _plain(kind: str, content: Message) -> AttrValue:
    if kind in ("s", "placeholder"):
        try:
            return str(content.decode("utf-8"))
        except UnicodeDecodeError:
            return bytes(content)
    if kind == "type":
        return tf_dtype(content)
    if kind == "shape":
        return proto_shape(content)
    if kind == "tensor":
        return _tensor(content)
    if kind == "func":
        return {"name": _text(content.name), **{_text(entry.key): read_attr(entry.value) for entry in content.attr}}
    result: AttrValue = content
    return result


def _tensor(tensor: Message) -> dict[str, AttrValue]:
    shape = proto_shape(tensor.tensor_shape)
    result: dict[str, AttrValue] = {"dtype": tf_dtype(tensor.dtype), "shape": shape}
    size = 1
    for dim in shape or ():
        size *= max(dim, 0)
    if shape is None or size > MAX_VALUES:
        return result
    try:
        array = proto_array(tensor).reshape(-1)
    except DataError:  # resource, variant: described by its type
        return result
    if array.dtype.kind == "c":
        result["values"] = tuple((float(item.real), float(item.imag)) for item in array)
    elif array.dtype.kind in "biuO":
        result["values"] = tuple(array.tolist())
    else:
        result["values"] = tuple(float(item) for item in array)
    return result

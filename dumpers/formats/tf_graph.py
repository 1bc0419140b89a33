"""TensorFlow graphs and their functions, without TensorFlow: GraphDef, MetaGraphDef (``.meta``), binary and text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.enums import tf_dtype
from dumpers.formats.file_view import mapped
from dumpers.formats.proto_text import Buffer, TextError, TextParser, line_number
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.tf_outputs import OutputSlots
from dumpers.formats.tf_tensor import proto_array, proto_shape
from dumpers.formats.wire import WireError, fields
from dumpers.graph import AttrValue, Graph, Op, Port, Source

MAX_VALUES: Final = 1024
"""A constant with more elements is described by dtype and shape only."""

_TEXT: Final = re.compile(
    rb"\A\s*(?:#[^\n]*\n\s*)*(?:node|library|versions|version|graph_def|meta_info_def|saver_def|collection_def"
    rb"|signature_def|saved_model_schema_version|meta_graphs)\s*[:{<\d]"
)
_META_TEXT: Final = re.compile(rb"(?m)^(?:graph_def|meta_info_def)\s*[:{<]")
_SLOT_DIGITS: Final = 9


def read_graph_def(path: Path) -> Graph:
    """Reads the main graph of a GraphDef, a MetaGraphDef or a SavedModel. Ops keep the order of the file.

    Attributes are plain Python: dtypes as names, shapes as tuples (None for unknown rank), functions and tensors as
    dicts; a tensor has its ``values`` (flat) if it is not larger than :data:`MAX_VALUES`. Functions are in the graph's
    ``library``, their names in its attribute ``functions``. For a MetaGraphDef see :func:`meta_graph`; of a SavedModel
    with several graphs the one with most ops is taken.

    Raises:
        DataError: no such file, or no TensorFlow graph in it.
    """
    path = Path(path)
    with mapped(path) as data:
        from dumpers.formats.saved_model import is_saved_model_data, saved_graphs

        try:
            if is_saved_model_data(data):
                return max(saved_graphs(data, path), key=len)
            meta = _parse(data)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
    return meta_graph(meta, path, path.stem)


def read_functions(path: Path) -> Mapping[str, Graph]:
    """Reads the bodies of a graph's library functions.

    Raises:
        DataError: no such file, or no TensorFlow graph in it.
    """
    library = read_graph_def(path).library
    return {name: graph for name, graph in library.items() if name}


def looks_like_graph_text(raw: bytes) -> bool:
    """Tells whether bytes begin like the text of a TensorFlow graph."""
    return bool(_TEXT.match(raw))


def graph_from_bytes(raw: bytes) -> Message:
    """Returns the GraphDef message of a file's bytes.

    Raises:
        DataError: they are none.
    """
    return _parse(raw).graph_def


def meta_graph(meta: Message, path: Path, name: str) -> Graph:
    """Returns the graph of a MetaGraphDef message, with its functions in the library.

    Graph attributes where the file has them: ``tags``, ``tensorflow_version``, ``collections`` (names, with the nodes
    of collections of nodes), ``saver`` (its tensors and op), ``signatures`` (tensors by name).
    """
    definition = meta.graph_def
    slots = OutputSlots(
        [*meta.meta_info_def.stripped_op_list.op, *(function.signature for function in definition.library.function)]
    )
    library: dict[str, Graph] = {}
    for function in definition.library.function:
        graph = _function(function, slots, path, library)
        library[graph.name] = graph
    attrs: dict[str, AttrValue] = {
        "producer": definition.versions.producer,
        "functions": tuple(library),
        **_meta_attrs(meta),
    }
    main = Graph(name=name, ops=read_ops(definition.node), kind="tf", path=path, attrs=attrs, library=library)
    library[""] = main
    return main


def _function(function: Message, slots: OutputSlots, path: Path, library: Mapping[str, Graph]) -> Graph:
    ops = read_ops(function.node_def, slots)
    returned = {_text(entry.key): _text(entry.value) for entry in function.ret}
    names = [_text(argument.name) for argument in function.signature.output_arg]
    return Graph(
        name=_text(function.signature.name),
        ops=ops,
        kind="tf",
        path=path,
        arguments=tuple(_text(argument.name) for argument in function.signature.input_arg),
        results=tuple(_source(returned.get(name, ""), ops, slots) for name in names),
        library=library,
    )


def _meta_attrs(meta: Message) -> dict[str, AttrValue]:
    info, saver = meta.meta_info_def, meta.saver_def
    result: dict[str, AttrValue] = {}
    if info.tags:
        result["tags"] = tuple(_text(tag) for tag in info.tags)
    if info.tensorflow_version:
        result["tensorflow_version"] = _text(info.tensorflow_version)
    if meta.collection_def:
        result["collections"] = {
            _text(entry.key): tuple(_text(node) for node in entry.value.node_list.value)
            for entry in meta.collection_def
        }
    if saver.filename_tensor_name or saver.restore_op_name:
        result["saver"] = {
            "filename_tensor": _text(saver.filename_tensor_name),
            "save_tensor": _text(saver.save_tensor_name),
            "restore_op": _text(saver.restore_op_name),
        }
    if meta.signature_def:
        result["signatures"] = {_text(entry.key): _signature(entry.value) for entry in meta.signature_def}
    return result


def _signature(signature: Message) -> AttrValue:
    return {
        "method": _text(signature.method_name),
        "inputs": {_text(entry.key): _text(entry.value.name) for entry in signature.inputs},
        "outputs": {_text(entry.key): _text(entry.value.name) for entry in signature.outputs},
    }


def _parse(data: Buffer) -> Message:
    """Returns a MetaGraphDef; a plain GraphDef is put into an empty one."""
    if not data[:4096].strip() and not data[:].strip():
        raise DataError("is empty")
    meta = parse_text(data, "MetaGraphDef") if looks_like_graph_text(data[:65536]) else _parse_binary(data[:])
    if not len(meta.graph_def.node) and not len(meta.graph_def.library.function):
        raise DataError("holds no TensorFlow graph")
    return meta


def parse_text(data: Buffer, kind: str) -> Message:
    """Returns a message of a text; a GraphDef where a MetaGraphDef is wanted is put into an empty one.

    Raises:
        DataError: it is no such text, or was cut off; the message says where.
    """
    message = tf_message(kind)
    plain = kind == "MetaGraphDef" and not _META_TEXT.search(data)
    try:
        if plain:
            TextParser(data, "tf").message(message.graph_def, "GraphDef", 0)
        else:
            TextParser(data, "tf").message(message, kind, 0)
    except TextError as error:
        place = f"line {line_number(data, error.offset)}, byte {error.offset}"
        raise DataError(f"is not the text of a TensorFlow graph, or was cut off: {place}: {error.reason}") from error
    return message


def _parse_binary(raw: bytes) -> Message:
    message = tf_message("MetaGraphDef")
    target = message.graph_def
    try:
        target = message if _is_meta(raw) else target
        target.ParseFromString(raw)
    except (decode_error(), WireError) as error:
        where = broken_at(raw, len(raw), target)
        raise DataError(f"is not a TensorFlow graph, or was cut off {where}; save it again") from error
    return message


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


def read_ops(nodes: Iterable[Message], slots: OutputSlots | None = None) -> dict[str, Op]:
    """Returns the ops of ``NodeDef`` messages by name.

    Args:
        nodes: The messages.
        slots: Tells the slots of named outputs, which inputs inside functions have.
    """
    parsed = {_text(node.name): node for node in nodes}
    attrs = {name: {_text(entry.key): read_attr(entry.value) for entry in node.attr} for name, node in parsed.items()}
    bare = {name: Op(name, _text(node.op), attrs=attrs[name]) for name, node in parsed.items()}
    ops = {}
    for index, (name, node) in enumerate(parsed.items()):
        texts = [_text(raw) for raw in node.input]
        ops[name] = Op(
            name=name,
            type=bare[name].type,
            inputs=tuple(_source(text, bare, slots) for text in texts if not text.startswith("^")),
            control_inputs=tuple(text[1:] for text in texts if text.startswith("^")),
            output_ports=_output_ports(attrs[name]),
            attrs=attrs[name],
            id=index,
        )
    return ops


def _source(text: str, ops: Mapping[str, Op], slots: OutputSlots | None) -> Source:
    """``op``, ``op:1``, or ``op:output name:1`` inside a function."""
    head, colon, slot = text.rpartition(":")
    if not (colon and slot.isdigit() and slot.isascii() and len(slot) <= _SLOT_DIGITS):
        return Source(text, 0)
    producer, named, output = head.partition(":")
    op = ops.get(producer)
    first = slots.first(op.type, output, op.attrs) if slots and named and op else 0
    return Source(producer, first + int(slot))


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
    if kind == "type_name":  # of a type that is newer than our list
        return _text(content).removeprefix("DT_").lower()
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

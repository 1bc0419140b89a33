"""Device graph messages <-> :class:`dumpers.graph.Graph`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dumpers.formats.enums import DUMP_NUMBER_OF, DUMP_TYPES, device_dtype
from dumpers.formats.ge_attrs import decode_text, encode_text, read_attrs, write_attrs
from dumpers.formats.lowfloat import decoded_dtype, stored_bytes
from dumpers.formats.raw import element_count
from dumpers.formats.schema import Message, ge_message
from dumpers.graph import AttrValue, Graph, Op, Port, Source

_LOG = logging.getLogger(__name__)

RESERVED_FORMAT: Final = "FORMAT_RESERVED"
"""Layout of an absent optional input."""

_UNKNOWN_RANK: Final = -2
_SUBGRAPHS: Final = "subgraph_name"


def graphs_of(model: Message, path: Path) -> list[Graph]:
    """Returns the graphs of a model in the order of the file; a graph has the model's attributes below its own."""
    shared = read_attrs(model.attr)
    return [_read_graph(graph, shared, path) for graph in model.graph]


def computing_graph(graphs: Sequence[Graph]) -> Graph:
    """Returns the graph with most ops, the first of several."""
    return max(graphs, key=len)


def _read_graph(graph: Message, shared: dict[str, AttrValue], path: Path) -> Graph:
    ops: dict[str, Op] = {}
    for message in graph.op:
        op = _read_op(message)
        if op.name in ops:
            _LOG.warning("%s: op %s occurs twice in graph %s; the last one is used", path, op.name, graph.name)
        ops[op.name] = op
    attrs = {**shared, **read_attrs(graph.attr)}
    return Graph(name=decode_text(graph.name), ops=ops, kind="ge", path=path, attrs=attrs)


def _read_op(message: Message) -> Op:
    inputs: list[Source] = []
    controls: list[str] = []
    for raw in message.input:
        producer, slot = _split_edge(decode_text(raw))
        if slot == -1:
            controls.append(producer)
        else:
            inputs.append(Source(producer, slot))
    attrs = read_attrs(message.attr)
    if len(message.subgraph_name):
        attrs[_SUBGRAPHS] = tuple(decode_text(name) for name in message.subgraph_name)
    return Op(
        name=decode_text(message.name),
        type=decode_text(message.type),
        inputs=tuple(inputs),
        control_inputs=tuple(controls),
        input_ports=tuple(_read_port(port) for port in message.input_desc),
        output_ports=tuple(_read_port(port) for port in message.output_desc),
        attrs=attrs,
        id=message.id,
        stream_id=message.stream_id,
    )


def _split_edge(text: str) -> tuple[str, int]:
    """``producer:slot`` split at the last colon; an empty text is an absent input, no number means output 0."""
    producer, colon, slot = text.rpartition(":")
    if colon and slot.removeprefix("-").isdigit():
        return producer, int(slot)
    return text, 0


def _read_port(message: Message) -> Port:
    dtype = device_dtype(DUMP_TYPES.get(message.dtype, f"type_{message.dtype}"))
    layout = decode_text(message.layout)
    shape: tuple[int, ...] | None = tuple(message.shape.dim)
    absent = dtype == "undefined" and layout == RESERVED_FORMAT and not shape
    if absent or shape == (_UNKNOWN_RANK,):
        shape = None
    return Port(dtype=dtype, shape=shape, format=layout, attrs=read_attrs(message.attr))


def model_of(graph: Graph) -> Message:
    """Returns a model that holds one graph, with the redundant lists (``src_*``, ``dst_*``) that compilers write.

    Raises:
        ValueError: a dtype or an attribute that device graphs cannot express.
    """
    model = ge_message()
    target = model.graph.add(name=encode_text(graph.name))
    controls: dict[str, list[str]] = {}
    for op in graph:
        for name in op.control_inputs:
            controls.setdefault(name, []).append(op.name)
    for op in graph:
        message = target.op.add()
        _write_op(message, op, graph)
        _write_consumers(message, graph.consumers[op.name], controls.get(op.name, []))
    write_attrs(target.attr, graph.attrs)
    return model


def _write_op(message: Message, op: Op, graph: Graph) -> None:
    message.name, message.type = encode_text(op.name), encode_text(op.type)
    message.id, message.stream_id = op.id, op.stream_id
    for source in op.inputs:
        message.input.append(encode_text(f"{source.op}:{source.slot}") if source.op else b"")
        if source.op:
            message.src_name.append(encode_text(source.op))
            message.src_index.append(source.slot)
        producer = graph.ops.get(source.op)
        message.is_input_const.append(producer is not None and producer.type in ("Const", "Constant"))
    for name in op.control_inputs:
        message.input.append(encode_text(f"{name}:-1"))
    attrs = dict(op.attrs)
    subgraphs = attrs.pop(_SUBGRAPHS, ())
    if isinstance(subgraphs, (tuple, list)):
        message.subgraph_name.extend(encode_text(str(name)) for name in subgraphs)
    write_attrs(message.attr, attrs)
    absent = Port("undefined", None, RESERVED_FORMAT)
    for index in range(len(op.inputs)):
        port = op.input_ports[index] if index < len(op.input_ports) else absent
        _write_port(message.input_desc.add(), port, op.name)
    for port in op.output_ports:
        _write_port(message.output_desc.add(), port, op.name)


def _write_port(message: Message, port: Port, op: str) -> None:
    if port.dtype not in DUMP_NUMBER_OF:
        raise ValueError(f"op {op}: a device has no type {port.dtype}")
    message.dtype = DUMP_NUMBER_OF[port.dtype]
    message.layout = encode_text(port.format)
    if port.shape is None and not (port.dtype == "undefined" and port.format == RESERVED_FORMAT):
        message.shape.dim.append(_UNKNOWN_RANK)
    elif port.shape is not None:
        message.shape.SetInParent()
        message.shape.dim.extend(port.shape)
        message.size = _stored_size(port)
    write_attrs(message.attr, port.attrs)


def _stored_size(port: Port) -> int:
    """Bytes that a device reserves: rounded up to 32, and 32 more; 0 where the shape is not static (or impossible)."""
    if port.shape is None or any(dim < 0 for dim in port.shape):
        return 0
    try:
        decoded_dtype(port.dtype)
    except ValueError:  # a type whose size nobody documents
        return 0
    size = stored_bytes(port.dtype, element_count(port.shape))
    return -(-size // 32) * 32 + 32 if 0 < size < 1 << 62 else 0


def _write_consumers(message: Message, users: Sequence[tuple[str, int, int]], controls: Sequence[str]) -> None:
    if controls:
        message.dst_name.append(encode_text(":".join(controls)))
        message.dst_index.append(-1)
    for slot in sorted({slot for _, _, slot in users}):
        readers = [(name, index) for name, index, used in users if used == slot]
        message.dst_name.append(encode_text(":".join(name for name, _ in readers)))
        message.dst_index.append(readers[-1][1])

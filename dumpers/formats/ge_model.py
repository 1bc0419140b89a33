"""Compiled models (``.om``): where the graph and the weights lie, and the constants as records.

A header of usually 256 bytes, a table of partitions, their bytes. Two forms of the table are in use: three 32-bit
numbers a partition, and in newer files 64-bit offsets and sizes. Which one a file has is told by which one fits it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.file_view import mapped
from dumpers.formats.ge_attrs import decode_text, read_descriptor
from dumpers.formats.lowfloat import decoded_dtype, stored_bytes
from dumpers.formats.proto_text import Buffer
from dumpers.formats.raw import RawSource, bad_shape, element_count
from dumpers.formats.schema import Message, decode_error, ge_message
from dumpers.graph import AttrValue, Port
from dumpers.records import TensorRecord

_MAGIC: Final = b"IMOD"
_GRAPH: Final = 0
_WEIGHTS: Final = 1
_MOST_PARTITIONS: Final = 64
_HEADER_BYTES: Final = 256
_LENGTH_AT: Final = 76
_CONSTANTS: Final = frozenset({"Const", "Constant", "FileConstant"})


class Partition(NamedTuple):
    """One part of the container: 0 the graph, 1 the weights, others kernels and tasks."""

    kind: int
    start: int
    end: int


def is_model_container(raw: Buffer) -> bool:
    """Tells whether bytes begin like an ``.om`` file."""
    return raw[:4] == _MAGIC


def read_model(raw: Buffer) -> Message:
    """Returns the ``ModelDef`` of an ``.om`` file, or of bytes that are one.

    Raises:
        DataError: it is none, or the container's table points outside the file.
    """
    part = _partition(raw, _GRAPH) if is_model_container(raw) else Partition(_GRAPH, 0, len(raw))
    model = ge_message()
    try:
        model.ParseFromString(raw[part.start : part.end])
    except decode_error() as error:
        where = broken_at(raw[part.start : part.end], part.end - part.start, ge_message(), base=part.start)
        raise DataError(f"is not a compiled model, or was cut off (no graph {where}); compile it again") from error
    return model


def partitions(raw: Buffer) -> list[Partition]:
    """Returns the partitions of an ``.om`` file in the order of its table.

    Raises:
        DataError: no such container, or its table points outside the file.
    """
    if not is_model_container(raw):
        raise DataError("is not an .om file; it does not begin with IMOD at byte 0")
    if len(raw) < _HEADER_BYTES:
        raise DataError(f"ends at byte {len(raw)}, inside the .om header; copy or compile it again")
    (header,) = struct.unpack_from("<I", raw[4:8])
    if not 16 <= header <= len(raw) - 4:
        raise DataError(f"states a header of {header} bytes at byte 4 of {len(raw)}; this .om version is not known")
    (count,) = struct.unpack_from("<I", raw[header : header + 4])
    if not 0 < count <= _MOST_PARTITIONS:
        raise DataError(f"has a table of {count} partitions at byte {header}; this .om version is not known")
    narrow, wide = _table(raw, header, count, wide=False), _table(raw, header, count, wide=True)
    for table in (narrow, wide):
        if table and all(part.end <= len(raw) for part in table) and len({part.kind for part in table}) == count:
            return table
    raise DataError(_misfit(raw, header, count, narrow))


def _table(raw: Buffer, header: int, count: int, *, wide: bool) -> list[Partition]:
    """Reads the table; 64-bit numbers stand at multiples of eight bytes. Empty where it does not fit the file."""
    form, first = (struct.Struct("<I4xQQ"), header + 8) if wide else (struct.Struct("<III"), header + 4)
    data = first + form.size * count
    if data > len(raw):
        return []
    entries = list(form.iter_unpack(raw[first:data]))
    return [Partition(kind, data + offset, data + offset + size) for kind, offset, size in entries]


def _misfit(raw: Buffer, header: int, count: int, narrow: list[Partition]) -> str:
    (length,) = struct.unpack_from("<I", raw[_LENGTH_AT : _LENGTH_AT + 4])
    beyond = next((part for part in narrow if part.end > len(raw)), None)
    if beyond and beyond.kind < _MOST_PARTITIONS and header + length > len(raw):
        return (
            f"partition {beyond.kind} reaches to byte {beyond.end} of {len(raw)}; the .om file was cut off, copy or"
            " compile it again"
        )
    return f"has a table of {count} partitions at byte {header} that does not fit the file of {len(raw)} bytes"


def weight_bytes(raw: Buffer) -> bytes:
    """Returns the weights partition of an ``.om`` file; a constant's ``data_offset`` counts from its start.

    Raises:
        DataError: no such container, or its table points outside the file.
    """
    part = _partition(raw, _WEIGHTS)
    return raw[part.start : part.end]


def _partition(raw: Buffer, wanted: int) -> Partition:
    for part in partitions(raw):
        if part.kind == wanted:
            return part
    raise DataError(f"has no partition {wanted}; this .om version is not known")


def om_constants(path: Path) -> tuple[TensorRecord, ...]:
    """Returns the constants of a compiled model, in the order of its ops.

    A record's array has the stored layout; :func:`dumpers.formats.layouts.load_original` undoes it. A constant whose
    bytes do not lie in the weights partition has no source, and its note says why.

    Raises:
        DataError: the file cannot be read or is no ``.om`` file.
    """
    path = Path(path)
    with mapped(path) as raw:
        try:
            weights = _partition(raw, _WEIGHTS)
            model = read_model(raw)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
    return tuple(_record(name, kind, value, path, weights) for name, kind, value in _constants(model))


def _constants(model: Message) -> Iterator[tuple[str, str, Message]]:
    for graph in model.graph:
        for op in graph.op:
            kind = decode_text(op.type)
            if kind in _CONSTANTS:
                found = [entry.value for entry in op.attr if entry.key == b"value"]
                yield decode_text(op.name), kind, found[-1] if found else None


def _record(name: str, kind: str, value: Message, path: Path, weights: Partition) -> TensorRecord:
    if value is None or value.WhichOneof("value") != "t":
        note = "its value lies in a file of its own" if kind == "FileConstant" else "the graph has no value for it"
        return TensorRecord(name, kind, "output", 0, "undefined", None, None, note=note)
    tensor = read_descriptor(value.t.desc)
    port = _port(tensor)
    shape = port.shape or ()
    note = _misplaced(value.t, port, weights)
    source = None
    if not note:
        offset = weights.start + value.t.desc.data_offset
        source = RawSource(path, offset, port.dtype, shape, layout=port.origin_format)
    return TensorRecord(
        op=name,
        op_type=kind,
        io="output",
        slot=0,
        dtype=decoded_dtype(port.dtype) if source else port.dtype,
        shape=port.shape,
        source=source,
        format=port.format,
        original_shape=port.origin_shape,
        note=note,
    )


def _port(tensor: Mapping[str, AttrValue]) -> Port:
    shape, attrs = tensor["shape"], tensor["attrs"]
    return Port(
        dtype=str(tensor["dtype"]),
        shape=tuple(dim for dim in shape if isinstance(dim, int)) if isinstance(shape, tuple) else None,
        format=str(tensor["format"]),
        attrs=attrs if isinstance(attrs, Mapping) else {},
    )


def _misplaced(tensor: Message, port: Port, weights: Partition) -> str:
    """Says why a constant's bytes cannot be read, empty if they can."""
    if tensor.data:
        return "its bytes stand in the graph, not in the weights partition"
    shape = port.shape or ()
    if reason := bad_shape(shape):
        return reason
    try:
        decoded_dtype(port.dtype)
    except ValueError:
        return f"type {port.dtype} has no values to read"
    needed = stored_bytes(port.dtype, element_count(shape))
    offset, size = tensor.desc.data_offset, tensor.desc.weight_size
    room = weights.end - weights.start
    if needed > size:
        return f"{needed} bytes of {port.dtype} {list(shape)} in a constant of {size}"
    if offset < 0 or offset + size > room:
        return f"bytes {offset} to {offset + size} of a weights partition of {room}"
    return ""

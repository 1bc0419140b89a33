"""Device dump files: 8 bytes of header length, a protobuf header, then the raw bytes of all tensors.

Only the header is read when a file is listed. The payload of a tensor is longer than its elements (rounded up to 32
bytes and 32 more); nothing past the elements is ever looked at. Very old files are one protobuf message with the bytes
inside; they are recognised too. Headers of files are not trusted: every size is checked against the file's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.formats.dump_names import DumpName, parse_dump_name
from dumpers.formats.enums import DTYPE_OF, DUMP_NUMBER_OF, DUMP_TYPES, FORMAT_NUMBER_OF, FORMATS
from dumpers.formats.lowfloat import decoded_dtype, stored_bytes
from dumpers.formats.raw import RawSource, bad_shape, element_count
from dumpers.formats.schema import Message, decode_error, dump_data
from dumpers.formats.wire import WireError, fields
from dumpers.names import flatten
from dumpers.records import Io, Problem, TensorRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffer", "DumpName", "NpuDumpFile", "parse_dump_name", "read_npu_dump", "write_npu_dump"]

_PAD: Final = b"\xee"
"""Filler of our own padding: visible at once where a reader takes it for data."""

_QUANTISED: Final = {"qint8": "int8", "qint16": "int16", "qint32": "int32", "quint8": "uint8", "quint16": "uint16"}
_OLD_FIRST_BYTES: Final = (b"\x0a", b"\x10", b"\x1a", b"\x22")
"""First byte of the very old form: the tag of version, time, output or input."""

_NANO_MAGIC: Final = 0x5A5A5A5A


@dataclass(frozen=True)
class Buffer:
    """Bytes in a dump that are no tensor: an L1 buffer (kind 0) or a workspace (kind 0 = log)."""

    name: str
    kind: int
    offset: int
    size: int


@dataclass(frozen=True)
class NpuDumpFile:
    """One dump file, its tensors not yet read.

    Attributes:
        path: The file.
        op_name: Name from the header; empty if the device did not fill it.
        dump_time: Number in the header, microseconds on current devices.
        inputs, outputs: Tensors; one that is damaged or was not written has no source and says why in ``note``.
        attrs: Header attributes (JSON text for operators cut into slices).
        buffers: L1 buffers and workspaces.
        problems: What is wrong with the file.
    """

    path: Path
    op_name: str
    dump_time: int
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    attrs: Mapping[str, str] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_npu_dump(
    path: Path,
    *,
    name: DumpName | None = None,
    step: int | None = None,
    op_name: Callable[[str, str], str] | None = None,
) -> NpuDumpFile:
    """Reads the header of a dump file.

    Args:
        path: The file.
        name: Fields of its name; parsed from ``path`` if not given. A name that is none leaves its fields unknown.
        step: Training step for the records.
        op_name: Gets (name from the header or else the file name, op type) and returns the op's full name.

    Raises:
        DataError: no such file, or no dump file. A file that was cut off is read as far as it goes.
    """
    path = Path(path)
    name = name or parse_dump_name(path.name)
    try:
        with open(path, "rb") as file:
            header, payload, size = _read_header(file, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    stored_name = _text(header.op_name)
    known = stored_name or (name.op_name if name else path.name)
    if op_name is not None:
        known = op_name(known, name.op_type if name else "")
    reader = _FileReader(path, known, name, step, size)
    if payload is None:
        reader.locate_inline_data()
    offset = payload or 0
    inputs, offset = reader.tensors("input", header.input, offset)
    outputs, offset = reader.tensors("output", header.output, offset)
    buffers = [] if payload is None else _buffers(header, offset)
    return NpuDumpFile(
        path=path,
        op_name=stored_name,
        dump_time=header.dump_time,
        inputs=inputs,
        outputs=outputs,
        attrs={_text(attr.name): _text(attr.value) for attr in header.attr},
        buffers=tuple(buffers),
        problems=tuple(reader.problems),
    )


def _read_header(file: BinaryIO, path: Path) -> tuple[Message, int | None, int]:
    """Returns (header, offset of the payload or None for the very old form, file size)."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    header = dump_data()
    if len(prefix) == 8 and 0 < length <= size - 8:
        raw = file.read(length)
        if int.from_bytes(raw[:4], "little") == _NANO_MAGIC:
            raise DataError(f"{path}: is a dump of a nano device, which is not supported")
        try:
            header.ParseFromString(raw)
        except decode_error() as error:
            raise DataError(f"{path}: header of {length} bytes is damaged; dump it again") from error
        return header, 8 + length, size
    if prefix[:1] in _OLD_FIRST_BYTES:
        file.seek(0)
        try:
            header.ParseFromString(file.read())
        except decode_error():
            header.Clear()
    if not any(tensor.data for tensor in (*header.input, *header.output)):
        raise DataError(
            f"{path}: is not a dump file: claims a header of {length} bytes, the file has {size}; it is damaged or "
            "something else"
        )
    return header, None, size


def _buffers(header: Message, offset: int) -> list[Buffer]:
    found = []
    for buffer in header.buffer:
        found.append(Buffer("l1buffer", buffer.buffer_type, offset, buffer.size))
        offset += buffer.size
    for space in header.space:
        found.append(Buffer("space", space.type, offset, space.size))
        offset += space.size
    return found


class _FileReader:
    """Turns the descriptors of one file into records."""

    def __init__(self, path: Path, op: str, name: DumpName | None, step: int | None, size: int) -> None:
        self.path = path
        self.op = op
        self.name = name
        self.step = step
        self.size = size
        self.problems: list[Problem] = []
        self._inline: dict[Io, list[tuple[int, int]]] | None = None

    def locate_inline_data(self) -> None:
        """Very old form: finds where the bytes of each tensor lie inside the message."""
        raw = self.path.read_bytes()
        found: dict[Io, list[tuple[int, int]]] = {"input": [], "output": []}
        try:
            for message in fields(raw, 0, len(raw)):
                io: Io | None = {3: "output", 4: "input"}.get(message.number)  # type: ignore[assignment]
                if io is None or message.kind != 2:
                    continue
                data_field = 5 if io == "output" else 4
                place = (0, 0)
                for part in fields(raw, message.start, message.end):
                    if part.number == data_field and part.kind == 2:
                        place = (part.start, part.end - part.start)
                found[io].append(place)
        except WireError as error:
            raise DataError(f"{self.path}: is damaged: {error}") from error
        self._inline = found

    def tensors(self, io: Io, descriptors: Sequence[Message], offset: int) -> tuple[tuple[TensorRecord, ...], int]:
        """Returns the records of one side and the offset behind them."""
        records = []
        for slot, descriptor in enumerate(descriptors):
            if self._inline is None:
                start, size, end = offset, descriptor.size, self.size
                offset += size
            else:
                start, size = self._inline[io][slot]
                end = start + size
            records.append(self._record(io, slot, descriptor, (start, size, end)))
        return tuple(records), offset

    def _record(self, io: Io, slot: int, descriptor: Message, place: tuple[int, int, int]) -> TensorRecord:
        start, size, end = place
        shape = tuple(int(dim) for dim in descriptor.shape.dim)
        original = tuple(int(dim) for dim in descriptor.original_shape.dim)
        stored_shape = shape
        encoding, shape, note = _encoding(descriptor.data_type, shape, size)
        source, problem = None, ""
        if encoding:
            source, problem = self._source(encoding, shape, place, max(1, _groups(descriptor)))
        if problem.startswith("!"):
            problem = problem[1:]
            self.problems.append(Problem(self.path, f"{io} {slot}: {problem}"))
        elif source is not None and start + size > end:
            note = "; ".join(filter(None, (note, "the file ends inside the padding")))
        return TensorRecord(
            op=self.op,
            op_type=self.name.op_type if self.name else "",
            io=io,
            slot=slot,
            dtype=decoded_dtype(encoding) if encoding else _dtype(descriptor.data_type),
            shape=shape,
            source=source,
            step=self.step,
            timestamp_us=self.name.timestamp_us if self.name else None,
            format=FORMATS.get(descriptor.format & 0xFF, f"FORMAT_{descriptor.format & 0xFF}"),
            original_shape=original if original and original != stored_shape else None,
            note="; ".join(filter(None, (note, problem))),
            task_id=self.name.task_id if self.name else None,
            stream_id=self.name.stream_id if self.name else None,
        )

    def _source(
        self, encoding: str, shape: tuple[int, ...], place: tuple[int, int, int], groups: int
    ) -> tuple[RawSource | None, str]:
        """Returns the source, or None and why not; a reason that begins with ``!`` means that the file is damaged."""
        start, size, end = place
        if reason := bad_shape(shape):
            return None, "!" + reason
        needed = stored_bytes(encoding, element_count(shape))
        if needed == 0:
            return RawSource(self.path, 0, encoding, shape, groups), ""
        if size == 0:
            return None, "the device wrote no data for it (size 0)"
        if needed > size:
            return None, f"!shape {shape} needs {needed} bytes, the header gives it {size}"
        if start + needed > end:
            return None, f"!cut off: needs {needed} bytes at {start}, the file ends at {end}"
        return RawSource(self.path, start, encoding, shape, groups), ""


def _groups(descriptor: Message) -> int:
    return int(descriptor.sub_format or descriptor.format >> 8)


def _dtype(number: int) -> str:
    return DTYPE_OF.get(DUMP_TYPES.get(number, ""), f"type_{number}")


def _encoding(number: int, shape: tuple[int, ...], size: int) -> tuple[str, tuple[int, ...], str]:
    """Returns (encoding or empty, shape of the array, note) for a type number of a header."""
    if number == 30:  # one old schema numbered UINT1 like this; INT2, which has the number today, is unreadable anyway
        return "", shape, "INT2 (or UINT1 of an old schema) is not decoded"
    dtype = _dtype(number)
    if dtype == "undefined":
        return "int8", (size,), "type undefined: raw bytes"
    if dtype in _QUANTISED:
        return _QUANTISED[dtype], shape, f"stored as {dtype}, shown as plain integers"
    if dtype in ("resource", "string", "variant", "string_ref"):
        return "", shape, f"no value: {dtype}"
    if dtype == "uint1":
        return _bits(shape, size)
    try:
        shown = decoded_dtype(dtype)
    except ValueError:
        return "", shape, f"type {DUMP_TYPES.get(number, number)} is not decoded"
    return dtype, shape, "" if shown == dtype else f"stored as {dtype}"


def _bits(shape: tuple[int, ...], size: int) -> tuple[str, tuple[int, ...], str]:
    """The shape of packed bits counts bits or bytes; the size tells which, and a small tensor is read as bytes."""
    count = element_count(shape)
    if shape and count <= size and size in (count, _padded(count)):
        return "uint1", (*shape[:-1], shape[-1] * 8), "stored as uint1, shape counts bytes"
    return "uint1", shape, "stored as uint1, shape counts bits"


def _padded(size: int) -> int:
    return -(-size // 32) * 32 + 32 if size else 0


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def write_npu_dump(
    path: Path,
    *,
    op_name: str,
    inputs: Sequence[NDArray[np.generic]],
    outputs: Sequence[NDArray[np.generic]],
    dump_time_us: int,
) -> None:
    """Writes a dump file as a device does, sizes padded; whole or not at all.

    Args:
        path: The file; its name is the caller's business (``<type>.<flat name>.<task>.<stream>.<us>``).
        op_name: Full name for the header.
        inputs: Arrays in slot order, format ND.
        outputs: The same for what the op wrote.
        dump_time_us: Time for the header.

    Raises:
        ValueError: an array's type does not exist on the device (text, objects).
        OSError: as for :func:`dumpers.formats.atomic.atomic_file`.
    """
    header = dump_data()
    header.version = b"2.0"
    header.dump_time = dump_time_us
    header.op_name = op_name.encode("utf-8", "surrogateescape")
    for descriptors, arrays in ((header.input, inputs), (header.output, outputs)):
        for array in arrays:
            _describe(descriptors.add(), array)
    raw = header.SerializeToString(deterministic=True)
    with atomic_file(Path(path)) as file:
        file.write(len(raw).to_bytes(8, "little"))
        file.write(raw)
        for array in (*inputs, *outputs):
            _write_payload(file, array)


def _describe(descriptor: Message, array: NDArray[np.generic]) -> None:
    number = DUMP_NUMBER_OF.get(array.dtype.name)
    if number is None:
        raise ValueError(f"a device has no type for {array.dtype}")
    descriptor.data_type = number
    descriptor.format = FORMAT_NUMBER_OF["ND"]
    descriptor.shape.SetInParent()
    descriptor.shape.dim.extend(array.shape)
    descriptor.original_shape.SetInParent()
    descriptor.original_shape.dim.extend(array.shape)
    descriptor.size = _padded(array.nbytes)


def _write_payload(file: BinaryIO, array: NDArray[np.generic]) -> None:
    if array.nbytes == 0:
        return
    native = array if array.dtype.byteorder not in (">", "!") else array.astype(array.dtype.newbyteorder("<"))
    file.write(np.ascontiguousarray(native).reshape(-1).view(np.uint8).data)
    file.write(_PAD * (_padded(array.nbytes) - array.nbytes))


def dump_file_name(op_type: str, op_name: str, task_id: int, stream_id: int, timestamp_us: int) -> str:
    """Returns ``<type>.<flat name>.<task>.<stream>.<us>``, the current layout; it may be too long for a file system."""
    return f"{op_type}.{flatten(op_name)}.{task_id}.{stream_id}.{timestamp_us}"

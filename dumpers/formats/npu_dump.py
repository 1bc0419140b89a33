"""Device dump files: 8 bytes of header length, a protobuf header, then the raw bytes of all tensors.

Only the header is read when a file is listed. The payload of a tensor is longer than its elements (rounded up to 32
bytes and 32 more); nothing past the elements is ever looked at. Very old files are one protobuf message with the bytes
inside; they are recognised too. Headers of files are not trusted: every size is checked against the file's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import DumpName, parse_dump_name
from dumpers.formats.enums import DUMP_TYPES
from dumpers.formats.lowfloat import decoded_dtype, stored_bytes
from dumpers.formats.npu_dump_writer import (
    HeaderExtras,
    TensorSpec,
    dump_file_name,
    padded_size,
    short_file_name,
    write_npu_dump,
)
from dumpers.formats.npu_header import (
    DumpHeader,
    OriginalOp,
    Place,
    TensorFields,
    dtype_name,
    format_name,
    group_count,
    parse_message,
    read_header,
    tensor_fields,
    text,
)
from dumpers.formats.npu_slice_info import SliceInfo, as_slice, slice_info
from dumpers.formats.raw import RawSource, bad_shape, element_count, open_regular
from dumpers.formats.schema import Message
from dumpers.records import Io, Problem, TensorRecord

__all__ = [
    "Buffer",
    "DumpName",
    "HeaderExtras",
    "NpuDumpFile",
    "OriginalOp",
    "TensorFields",
    "TensorSpec",
    "buffer_blocks",
    "buffer_file_name",
    "dump_file_name",
    "parse_dump_name",
    "read_npu_dump",
    "short_file_name",
    "write_npu_dump",
]

_NO_VALUE: Final = frozenset({"resource", "string", "variant", "string_ref"})
_INT2_OR_UINT1: Final = 30
_BLOCK: Final = 1 << 20
_NO_ADDRESS: Final = "has no address: the device left it out of the file"


@dataclass(frozen=True)
class Buffer:
    """Bytes in a dump that are no tensor.

    Attributes:
        name: ``l1buffer`` or ``space`` (workspace), as the names of exported files have it.
        index: Place among its like, from 0.
        kind: Number in the header: of a buffer 0 = L1, of a workspace 0 = log.
        offset, size: Where it lies in the file.
        arg_index: Of a workspace; the newest writers fill it.
        problem: Why it cannot be read, empty for a whole one.
    """

    name: str
    index: int
    kind: int
    offset: int
    size: int
    arg_index: int = 0
    problem: str = ""


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
        version: Of the format, as the header states it.
        dfx_message: Text that the newest devices add.
        slices: What the header says of the cuts of an operator that ran in slices, None for any other.
        header: The bytes of the header.
    """

    path: Path
    op_name: str
    dump_time: int
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    attrs: Mapping[str, str] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()
    problems: tuple[Problem, ...] = ()
    version: str = ""
    dfx_message: str = ""
    slices: SliceInfo | None = None
    header: bytes = field(default=b"", repr=False)

    @functools.cached_property
    def input_fields(self) -> tuple[TensorFields, ...]:
        """Every header field of the inputs (address, offset, argument index, ...)."""
        return tensor_fields(parse_message(self.header, self.path).input, "input")

    @functools.cached_property
    def output_fields(self) -> tuple[TensorFields, ...]:
        """Every header field of the outputs (address, original op, ranges of the dimensions, ...)."""
        return tensor_fields(parse_message(self.header, self.path).output, "output")


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
    path = path if isinstance(path, Path) else Path(path)
    name = name or parse_dump_name(path.name)
    header = read_header(path)
    message = header.message
    stored_name = text(message.op_name)
    known = stored_name or (name.op_name if name else path.name)
    attrs = {text(attr.name): text(attr.value) for attr in message.attr} if message.attr else {}
    problems: list[Problem] = []
    slices = _slices(attrs, known, name, problems, path) if attrs else None
    if op_name is not None:
        known = op_name(known, name.op_type if name else "")
    places = _Places(header)
    reader = _FileReader(path, known, name, step, slices)
    inputs = reader.tensors("input", message.input, places)
    outputs = reader.tensors("output", message.output, places)
    return NpuDumpFile(
        path=path,
        op_name=stored_name,
        dump_time=message.dump_time,
        inputs=inputs,
        outputs=outputs,
        attrs=attrs,
        buffers=_buffers(message, places) if message.buffer or message.space else (),
        problems=(*problems, *reader.problems),
        version=text(message.version),
        dfx_message=text(message.dfx_message),
        slices=slices,
        header=header.raw,
    )


def _slices(
    attrs: Mapping[str, str], op: str, name: DumpName | None, problems: list[Problem], path: Path
) -> SliceInfo | None:
    try:
        return slice_info(attrs, op, name)
    except ValueError as error:
        problems.append(Problem(path, str(error)))
        return None


class _Places:
    """Hands out where the bytes of each tensor and buffer lie, in the order of the payload.

    Device writers leave tensors without data out of the payload although the header counts them. A payload that is
    shorter than the header says by exactly the tensors without an address, where others have one, is read like that.
    """

    def __init__(self, header: DumpHeader) -> None:
        message = header.message
        self.end = header.file_size
        self._inline = {name: iter(places) for name, places in header.inline.items()} if header.inline else None
        self._at = header.payload or 0
        self.without_address = False
        if self._inline is None:
            tensors = (*message.input, *message.output)
            promised = sum(one.size for one in (*tensors, *message.buffer, *message.space))
            if promised > self.end - self._at and any(tensor.address for tensor in tensors):
                left_out = sum(tensor.size for tensor in tensors if not tensor.address)
                self.without_address = promised - left_out == self.end - self._at

    def next(self, kind: str, size: int) -> Place:
        """Returns the next place of an ``input``, ``output``, ``buffer`` or ``space``."""
        if self._inline is not None:
            return next(self._inline[kind], Place(0, 0))
        place = Place(self._at, size)
        self._at += size
        return place


def _buffers(message: Message, places: _Places) -> tuple[Buffer, ...]:
    found = []
    for name, kind, blocks in (("l1buffer", "buffer", message.buffer), ("space", "space", message.space)):
        for index, block in enumerate(blocks):
            place = places.next(kind, block.size)
            problem = ""
            if place.start + place.size > places.end:
                problem = f"cut off: needs {place.size} bytes at {place.start}, the file ends at {places.end}"
            number = block.buffer_type if kind == "buffer" else block.type
            argument = 0 if kind == "buffer" else block.arg_index
            found.append(Buffer(name, index, number, place.start, place.size, argument, problem))
    return tuple(found)


def buffer_blocks(path: Path, buffer: Buffer) -> Iterator[bytes]:
    """Yields the bytes of a buffer or workspace of a dump file, a mebibyte at a time.

    Raises:
        DataError: the file does not hold them, or vanished.
    """
    if buffer.problem:
        raise DataError(f"{path}: {buffer.name} {buffer.index}: {buffer.problem}; dump it again")
    with open_regular(path) as file:
        file.seek(buffer.offset)
        left = buffer.size
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                raise DataError(
                    f"{path}: ends {left} bytes before the end of {buffer.name} {buffer.index}; dump it again"
                )
            left -= len(block)
            yield block


def buffer_file_name(dump: str, buffer: Buffer) -> str:
    """Returns the name of an exported buffer: ``<dump>.l1buffer.<i>.bin`` or ``<dump>.space.<i>.bin``."""
    return f"{dump}.{buffer.name}.{buffer.index}.bin"


class _FileReader:
    """Turns the descriptors of one file into records."""

    def __init__(self, path: Path, op: str, name: DumpName | None, step: int | None, slices: SliceInfo | None) -> None:
        self.path = path
        self.op = op
        self.name = name
        self.step = step
        self.slices = slices
        self.problems: list[Problem] = []

    def tensors(self, io: Io, descriptors: Sequence[Message], places: _Places) -> tuple[TensorRecord, ...]:
        """Returns the records of one side."""
        records = []
        for slot, descriptor in enumerate(descriptors):
            if places.without_address and not descriptor.address and descriptor.size:
                source, note = None, _NO_ADDRESS
                encoding, shape, _ = _encoding(descriptor.data_type, tuple(descriptor.shape.dim), descriptor.size)
            else:
                place = places.next(io, descriptor.size)
                encoding, shape, note = self._reading(io, slot, descriptor, place)
                source, problem = self._source(encoding, shape, place, places.end) if encoding else (None, "")
                if problem.startswith("!"):
                    problem = problem[1:]
                    self.problems.append(Problem(self.path, f"{io} {slot}: {problem}"))
                elif source is not None and place.start + place.size > places.end:
                    problem = "the file ends inside the padding"
                if problem:
                    note = f"{note}; {problem}" if note else problem
            records.append(self._record(io, slot, descriptor, (encoding, shape, note), source))
        return tuple(records)

    def _reading(self, io: Io, slot: int, descriptor: Message, place: Place) -> tuple[str, tuple[int, ...], str]:
        """Returns (encoding or empty, shape of the array, note)."""
        encoding, shape, note = _encoding(descriptor.data_type, tuple(descriptor.shape.dim), place.size)
        if self.slices is None or not encoding:
            return encoding, shape, note
        return encoding, as_slice(self.slices, io, slot, shape, lambda n: stored_bytes(encoding, n) <= place.size), note

    def _record(
        self,
        io: Io,
        slot: int,
        descriptor: Message,
        reading: tuple[str, tuple[int, ...], str],
        source: RawSource | None,
    ) -> TensorRecord:
        encoding, shape, note = reading
        name = self.name
        if source is not None and (groups := group_count(descriptor)) > 1:
            source = RawSource(source.path, source.offset, source.encoding, source.shape, groups)
        original = tuple(descriptor.original_shape.dim)
        return TensorRecord(
            op=self.op,
            op_type=name.op_type if name else "",
            io=io,
            slot=slot,
            dtype=decoded_dtype(encoding) if encoding else dtype_name(descriptor.data_type),
            shape=shape,
            source=source,
            step=self.step,
            timestamp_us=name.timestamp_us if name else None,
            format=format_name(descriptor.format),
            original_shape=original if original and original != tuple(descriptor.shape.dim) else None,
            note=note,
            task_id=name.task_id if name else None,
            stream_id=name.stream_id if name else None,
        )

    def _source(
        self, encoding: str, shape: tuple[int, ...], place: Place, file_end: int
    ) -> tuple[RawSource | None, str]:
        """Returns the source, or None and why not; a reason that begins with ``!`` means that the file is damaged."""
        start, size = place
        if reason := bad_shape(shape):
            return None, f"!{reason} (tensor at byte {start})"
        needed = stored_bytes(encoding, element_count(shape))
        if needed == 0:
            return RawSource(self.path, 0, encoding, shape), ""
        if size == 0:
            return None, "the device wrote no data for it (size 0)"
        if needed > size:
            return None, f"!shape {shape} needs {needed} bytes, the header gives it {size} at byte {start}"
        if start + needed > file_end:
            return None, f"!cut off: needs {needed} bytes at {start}, the file ends at {file_end}"
        return RawSource(self.path, start, encoding, shape), ""


def _encoding(number: int, shape: tuple[int, ...], size: int) -> tuple[str, tuple[int, ...], str]:
    """Returns (encoding or empty, shape of the array, note) for a type number of a header."""
    if number == _INT2_OR_UINT1 and _fits_only_bits(shape, size):
        return _bits(shape, size)
    encoding, note = _plain_encoding(number)
    if encoding == "uint1":
        return _bits(shape, size)
    return encoding, (size,) if number == 0 else shape, note


@functools.lru_cache(maxsize=256)
def _plain_encoding(number: int) -> tuple[str, str]:
    dtype = dtype_name(number)
    if dtype == "undefined":
        return "int8", "type undefined: raw bytes"
    if dtype in _NO_VALUE:
        return "", f"no value: {dtype}"
    try:
        shown = decoded_dtype(dtype)
    except ValueError as error:
        return "", f"type {DUMP_TYPES.get(number, number)} is not decoded: {error}"
    note = "" if shown == dtype else f"stored as {dtype}"
    return dtype, f"{note} (an old schema has this number for uint1)" if number == _INT2_OR_UINT1 else note


def _fits_only_bits(shape: tuple[int, ...], size: int) -> bool:
    """Tells whether a tensor of number 30, which an old schema has for UINT1, has the size of bits and not of INT2."""
    count = element_count(shape)
    quarter, eighth = -(-count // 4), -(-count // 8)
    return size not in (quarter, padded_size(quarter)) and size in (eighth, padded_size(eighth))


def _bits(shape: tuple[int, ...], size: int) -> tuple[str, tuple[int, ...], str]:
    """The shape of packed bits counts bits or bytes; the size tells which, and a small tensor is read as bytes."""
    count = element_count(shape)
    if shape and count <= size and size in (count, padded_size(count)):
        return "uint1", (*shape[:-1], shape[-1] * 8), "stored as uint1, shape counts bytes"
    return "uint1", shape, "stored as uint1, shape counts bits"

"""The header of a device dump file: found, checked, parsed, and every field of it in plain words.

Current form: 8 bytes of length, the protobuf message ``DumpData``, then the bytes of all tensors. Very old form: one
message with the bytes inside; it is walked over without taking them into memory. Field table: ``DumpData`` of the
public schema, see :mod:`dumpers.formats.schema`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.enums import DTYPE_OF, DUMP_TYPES, FORMATS
from dumpers.formats.raw import open_regular
from dumpers.formats.schema import Message, decode_error, dump_data
from dumpers.formats.wire import WireError, fields

MAX_HEADER_BYTES: Final = 4 << 20
"""No device writes headers of this size; a file that claims one is damaged, and is not taken into memory."""

_MAX_OLD_HEADER_BYTES: Final = 1 << 20
"""The same for the very old form, which has to be walked over."""

_MAX_TENSORS: Final = 1 << 16

_FIRST_READ: Final = 4096
"""Most headers are shorter, so that one read is enough."""

_OLD_FIRST_BYTES: Final = (b"\x0a", b"\x10", b"\x1a", b"\x22")
"""First byte of the very old form: the tag of version, time, output or input."""

_NANO_MAGIC: Final = 0x5A5A5A5A

_DATA_FIELDS: Final = {3: ("output", 5), 4: ("input", 4), 5: ("buffer", 2), 8: ("space", 2)}
"""Field of ``DumpData`` -> (its name, the field in it that holds bytes in the very old form)."""


class Place(NamedTuple):
    """Where bytes lie in a file."""

    start: int
    size: int


@dataclass(frozen=True)
class DumpHeader:
    """A parsed header.

    Attributes:
        message: The ``DumpData`` message, without tensor bytes.
        raw: What it was parsed from.
        payload: Where the tensors begin; None for the very old form.
        file_size: Of the whole file.
        inline: Very old form: where the bytes of each ``input``, ``output``, ``buffer`` and ``space`` lie.
    """

    message: Message
    raw: bytes
    payload: int | None
    file_size: int
    inline: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class OriginalOp:
    """What a header says about the framework's op behind an output."""

    name: str
    output_index: int
    dtype: str
    format: str


@dataclass(frozen=True)
class TensorFields:
    """All header fields of one tensor; what a file leaves out is 0, empty or None.

    Attributes:
        data_type: Number of the element type; ``dtype`` is its name (``type_99`` for one that is not known).
        format: Layout; ``sub_format`` and the upper bits of the number hold the group count (``groups``).
        shape, original_shape: As written.
        size: Bytes in the payload, padding included.
        address: Device address, 0 if the file does not tell.
        offset: Of an input: field 9. Of an output: field 11, in which the newest writers put the argument's index.
        arg_index, input_type: Of an input only; the newest writers fill them.
        dim_range: (start, end) of each dimension of an output of dynamic shape.
        original_op: Of an output only; None if not given.
    """

    data_type: int
    dtype: str
    format: str
    sub_format: int
    groups: int
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    size: int
    address: int
    offset: int
    arg_index: int = 0
    input_type: int = 0
    dim_range: tuple[tuple[int, int], ...] = ()
    original_op: OriginalOp | None = None


def read_header(path: Path) -> DumpHeader:
    """Reads the header of a dump file; the bytes of its tensors stay on the disk.

    Raises:
        DataError: no such file, no dump file, or a damaged header.
    """
    with open_regular(path) as file:
        try:
            size = file.seek(0, 2)
            file.seek(0)
            start = file.read(_FIRST_READ)
            length = int.from_bytes(start[:8], "little")
            if len(start) >= 8 and 0 < length <= size - 8:
                return _current_form(path, file, start, size)
            found = _old_form(file, size) if start[:1] in _OLD_FIRST_BYTES else None
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if found is None:
        raise DataError(
            f"{path}: is not a dump file: claims a header of {length} bytes at byte 8, the file has {size}; it is "
            "damaged or something else"
        )
    return found


def _current_form(path: Path, file: BinaryIO, start: bytes, size: int) -> DumpHeader:
    length = int.from_bytes(start[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise DataError(f"{path}: claims a header of {length} bytes at byte 8, more than any device writes; damaged")
    raw = start[8 : 8 + length]
    while len(raw) < length:
        more = file.read(length - len(raw))
        if not more:
            raise DataError(f"{path}: ended while its header was read, at byte {8 + len(raw)}; dump it again")
        raw += more
    if int.from_bytes(raw[:4], "little") == _NANO_MAGIC:
        raise DataError(f"{path}: is a dump of a nano device, which is not supported")
    return DumpHeader(parse_message(raw, path), raw, 8 + length, size)


def parse_message(raw: bytes, path: Path) -> Message:
    """Returns the message of header bytes.

    Raises:
        DataError: they are none.
    """
    message = dump_data()
    try:
        message.ParseFromString(raw)
    except (decode_error(), RecursionError) as error:
        where = broken_at(raw, len(raw), message, base=8)
        raise DataError(f"{path}: header of {len(raw)} bytes at byte 8 is damaged {where}; dump it again") from error
    if (count := len(message.input) + len(message.output)) > _MAX_TENSORS:
        raise DataError(f"{path}: header at byte 8 has {count} tensors, more than any op; damaged")
    return message


def _old_form(file: BinaryIO, size: int) -> DumpHeader | None:
    """Reads a file that is one message; None for one that is none, or has no tensor bytes in it."""
    message = dump_data()
    try:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            raw, inline = _without_data(data, size)
        message.ParseFromString(raw)
    except (WireError, decode_error(), RecursionError):
        return None
    if not any(place.size for io in ("input", "output") for place in inline[io]):
        return None
    return DumpHeader(message, raw, None, size, {name: tuple(places) for name, places in inline.items()})


def _without_data(data: mmap.mmap, size: int) -> tuple[bytes, dict[str, list[Place]]]:
    """Returns the message without its ``data`` fields, and where their contents lie.

    Raises:
        WireError: it is no message, or what is left of it is larger than any header.
    """
    kept = bytearray()
    inline: dict[str, list[Place]] = {name: [] for name, _ in _DATA_FIELDS.values()}
    begin = 0
    for part in fields(data, 0, size):
        name, data_field = _DATA_FIELDS.get(part.number, ("", 0))
        if name and part.kind == 2:
            inner, place = _tensor_without_data(data, part.start, part.end, data_field)
            kept += bytes([part.number << 3 | 2]) + _varint(len(inner)) + inner
            inline[name].append(place)
            if len(inline[name]) > _MAX_TENSORS:
                raise WireError("more tensors than any op has")
        else:
            if part.end - begin > _MAX_OLD_HEADER_BYTES:
                raise WireError(f"field {part.number} at byte {begin} is larger than any header")
            kept += data[begin : part.end]
        begin = part.end
        if len(kept) > _MAX_OLD_HEADER_BYTES:
            raise WireError("larger than any header")
    return bytes(kept), inline


def _tensor_without_data(data: mmap.mmap, start: int, end: int, data_field: int) -> tuple[bytes, Place]:
    kept, place, begin = bytearray(), Place(0, 0), start
    for part in fields(data, start, end):
        if part.number == data_field and part.kind == 2:
            place = Place(part.start, part.end - part.start)
        elif part.end - begin + len(kept) > _MAX_OLD_HEADER_BYTES:
            raise WireError(f"field {part.number} at byte {begin} is larger than any header")
        else:
            kept += data[begin : part.end]
        begin = part.end
    return bytes(kept), place


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def tensor_fields(descriptors: Iterable[Message], io: str) -> tuple[TensorFields, ...]:
    """Returns all header fields of the inputs or the outputs of a message."""
    return tuple(_input_fields(one) if io == "input" else _output_fields(one) for one in descriptors)


def _input_fields(descriptor: Message) -> TensorFields:
    return TensorFields(
        **_common_fields(descriptor), arg_index=int(descriptor.arg_index), input_type=int(descriptor.input_type)
    )


def _output_fields(descriptor: Message) -> TensorFields:
    original = descriptor.original_op if descriptor.HasField("original_op") else None
    return TensorFields(
        **_common_fields(descriptor),
        dim_range=tuple((int(dim.start), int(dim.end)) for dim in descriptor.dim_range),
        original_op=original
        and OriginalOp(
            text(original.name),
            int(original.output_index),
            dtype_name(original.data_type),
            format_name(original.format),
        ),
    )


def _common_fields(descriptor: Message) -> Message:
    return {
        "data_type": int(descriptor.data_type),
        "dtype": dtype_name(descriptor.data_type),
        "format": format_name(descriptor.format),
        "sub_format": int(descriptor.sub_format),
        "groups": group_count(descriptor),
        "shape": tuple(descriptor.shape.dim),
        "original_shape": tuple(descriptor.original_shape.dim),
        "size": int(descriptor.size),
        "address": int(descriptor.address),
        "offset": int(descriptor.offset),
    }


def group_count(descriptor: Message) -> int:
    """Returns the group count of a grouped convolution's filter: ``sub_format``, or the upper bits of ``format``."""
    return max(1, int(descriptor.sub_format or descriptor.format >> 8))


def format_name(number: int) -> str:
    """Returns the layout of a header's ``format`` field, whose upper bits may hold a group count."""
    return FORMATS.get(number & 0xFF, f"FORMAT_{number & 0xFF}")


def dtype_name(number: int) -> str:
    """Returns the dtype name of a header's type number, ``type_<n>`` for one that is not known."""
    return DTYPE_OF.get(DUMP_TYPES.get(number, ""), f"type_{number}")


def text(raw: bytes) -> str:
    """Returns a text field; bytes that are no UTF-8 stay visible as escapes."""
    return raw.decode("utf-8", "backslashreplace")

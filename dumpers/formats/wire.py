"""A look at protobuf bytes without building messages: where a field's bytes lie in a large file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, overload


class WireError(ValueError):
    """The bytes are no protobuf message."""


class ByteSource(Protocol):
    """Bytes by position: ``bytes``, a memory map, or a window on a file."""

    @overload
    def __getitem__(self, key: int, /) -> int: ...

    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...


class Field(NamedTuple):
    """One field as it lies on the wire.

    Attributes:
        number: Field number.
        kind: Wire type: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
        value: The number of a varint, 0 otherwise.
        start, end: Where the content lies; of a length-delimited field without its length.
    """

    number: int
    kind: int
    value: int
    start: int
    end: int


def fields(data: ByteSource, start: int, end: int) -> Iterator[Field]:
    """Walks over the fields of one message between two offsets; contents are not touched.

    Raises:
        WireError: while walking, where the bytes stop making sense.
    """
    position = start
    while position < end:
        tag, position = read_varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        value, size = 0, {1: 8, 5: 4}.get(kind, 0)
        begin = position
        if kind == 0:
            value, position = read_varint(data, position, end)
        elif kind == 2:
            size, begin = read_varint(data, position, end)
            position = begin + size
        elif size:
            position += size
        else:
            raise WireError(f"wire type {kind} at byte {begin}")
        if position > end or number == 0:
            raise WireError(f"field {number} at byte {begin} reaches past the end")
        yield Field(number, kind, value, begin, position)


def few_fields(data: ByteSource, start: int, end: int, limit: int = 1 << 16) -> Iterator[Field]:
    """Walks over the fields of a message that has no reason to hold many, whatever the file's size.

    Raises:
        WireError: as :func:`fields`, or there are more than ``limit``.
    """
    for count, field in enumerate(fields(data, start, end)):
        if count >= limit:
            raise WireError(f"more than {limit} fields in the message at byte {start}")
        yield field


def read_varint(data: ByteSource, position: int, end: int) -> tuple[int, int]:
    """Reads a number of variable length; returns it and the position behind it.

    Raises:
        WireError: it does not end before ``end``, or has more than ten bytes.
    """
    result = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise WireError("ends inside a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise WireError(f"number too long before byte {position}")


def signed64(value: int) -> int:
    """Returns a varint of type int32 or int64: its low 64 bits as two's complement."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value

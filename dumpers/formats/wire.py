"""A look at protobuf bytes without building messages: where a field's bytes lie in a large file."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple


class WireError(ValueError):
    """The bytes are no protobuf message."""


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


def fields(data: bytes | mmap.mmap, start: int, end: int) -> Iterator[Field]:
    """Walks over the fields of one message between two offsets; contents are not touched.

    Raises:
        WireError: while walking, where the bytes stop making sense.
    """
    position = start
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        value, size = 0, {1: 8, 5: 4}.get(kind, 0)
        begin = position
        if kind == 0:
            value, position = _varint(data, position, end)
        elif kind == 2:
            size, begin = _varint(data, position, end)
            position = begin + size
        elif size:
            position += size
        else:
            raise WireError(f"wire type {kind} at byte {begin}")
        if position > end or number == 0:
            raise WireError(f"field {number} at byte {begin} reaches past the end")
        yield Field(number, kind, value, begin, position)


def _varint(data: bytes | mmap.mmap, position: int, end: int) -> tuple[int, int]:
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

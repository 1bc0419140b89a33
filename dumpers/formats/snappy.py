"""Snappy's raw format, read only: what TensorFlow's older tables are compressed with."""

from __future__ import annotations

from typing import Final

LARGEST_GAIN: Final = 22
"""A two-byte reference gives at most 11 bytes and a three-byte one 64; no stream grows by more than 64/3."""

_LONG_LITERAL: Final = 60


class SnappyError(ValueError):
    """The bytes are no snappy stream."""


def uncompress(data: bytes) -> bytes:
    """Returns the bytes behind a snappy stream.

    The length that the stream claims is believed only as far as a stream of this size can reach, and nothing beyond it
    is written.

    Raises:
        SnappyError: the stream is damaged, or claims an impossible length.
    """
    size, position = _length(data)
    if size > LARGEST_GAIN * len(data):
        raise SnappyError(f"claims {size} bytes, more than {len(data)} compressed ones can hold")
    out = bytearray()
    while position < len(data):
        tag = data[position]
        if tag & 3:
            length, distance, position = _reference(data, position)
            _copy(out, length, distance)
        else:
            start, position = _literal(data, position)
            out += data[start:position]
        if len(out) > size:
            raise SnappyError(f"holds more than the {size} bytes that it claims")
    if len(out) != size:
        raise SnappyError(f"holds {len(out)} of the {size} bytes that it claims")
    return bytes(out)


def _length(data: bytes) -> tuple[int, int]:
    size = 0
    for index in range(min(5, len(data))):
        size |= (data[index] & 0x7F) << (7 * index)
        if data[index] < 0x80:
            return size, index + 1
    raise SnappyError("has no length at its start")


def _literal(data: bytes, position: int) -> tuple[int, int]:
    """Returns where the bytes of a literal begin and end."""
    length, start = data[position] >> 2, position + 1
    if length >= _LONG_LITERAL:
        width = length - _LONG_LITERAL + 1
        length, start = int.from_bytes(data[start : start + width], "little"), start + width
    end = start + length + 1
    if end > len(data):
        raise SnappyError(f"literal at byte {position} reaches past the end")
    return start, end


def _reference(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns length and distance of a reference to earlier output, and the position behind it."""
    tag = data[position]
    width = (0, 1, 2, 4)[tag & 3]
    end = position + 1 + width
    if end > len(data):
        raise SnappyError(f"reference at byte {position} reaches past the end")
    distance = int.from_bytes(data[position + 1 : end], "little")
    if width == 1:
        return ((tag >> 2) & 7) + 4, (tag >> 5 << 8) | distance, end
    return (tag >> 2) + 1, distance, end


def _copy(out: bytearray, length: int, distance: int) -> None:
    if not 0 < distance <= len(out):
        raise SnappyError(f"refers {distance} bytes back where only {len(out)} are")
    start = len(out) - distance
    if distance >= length:
        out += out[start : start + length]
    else:  # the reference reaches into what it makes: a pattern that repeats
        pattern = bytes(out[start:])
        out += (pattern * (length // distance + 1))[:length]

"""Files of TensorFlow's debugger: each holds one serialized Event, with a tensor, a graph or a line of text.

A run has a file a tensor, most of them small. Those are read in one go, and up to 512 bytes of content are kept with
the record: opening a file twice would cost more than all the rest. Of a large file only the message around the values
is looked at.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.file_view import FileWindow
from dumpers.formats.raw import RawSource, element_count, open_regular
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.tf_tensor import (
    InlineSource,
    StoredTensor,
    check_content,
    plain_type,
    stored_tensor,
    value_dtype,
    walk_tensor,
    without_value,
)
from dumpers.formats.wire import ByteSource, Field, WireError, few_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SMALL: Final = 4096
"""Files below this are read in one go."""

_INLINE: Final = 512
_MAX_NAME: Final = 1 << 16
_MAX_TEXT_FILE: Final = 1 << 24
_NO_TENSOR: Final = StoredTensor(
    "undefined", None, None, "no value: TensorFlow recorded none (uninitialised or unconvertible)"
)
_USUAL_END: Final = b'"numChunks":1,"chunkIndex":0}'
_CHUNKS: Final = re.compile(rb'"numChunks"\s*:\s*(\d{1,9})\b')
_INDEX: Final = re.compile(rb'"chunkIndex"\s*:\s*(\d{1,9})\b')
_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class Chunk(NamedTuple):
    """Which piece of a tensor an Event holds.

    Attributes:
        position: Of the piece, from 0.
        total: Number of pieces.
        wall_time: Of the Event; all pieces have the same.
    """

    position: int
    total: int
    wall_time: float


class TensorEvent(NamedTuple):
    """What a tensor file says.

    Attributes:
        node_name: ``<op>:<slot>:<debug op>``.
        tensor: The tensor; of a piece only its dtype and shape.
        chunk: None for a whole tensor, as files have it.
    """

    node_name: str
    tensor: StoredTensor
    chunk: Chunk | None = None


class Piece(NamedTuple):
    """Where a piece of a tensor lies.

    Attributes:
        path: The file.
        start: Offset of the tensor message.
        end: Offset behind it.
        number: TensorFlow's type number.
        size: Bytes of raw content.
    """

    path: Path
    start: int
    end: int
    number: int
    size: int


@dataclass(frozen=True)
class ChunkedSource:
    """A tensor that was sent in pieces.

    Attributes:
        pieces: In order.
        shape: Of the whole.
    """

    pieces: tuple[Piece, ...]
    shape: tuple[int, ...]

    @property
    def path(self) -> Path:
        """The file of the first piece."""
        return self.pieces[0].path

    def load(self) -> NDArray[np.generic]:
        """Returns the array.

        Raises:
            DataError: a file vanished, or the pieces do not make up the shape.
        """
        messages = [_tensor_message(piece) for piece in self.pieces]
        count, dtype = element_count(self.shape), plain_type(self.pieces[0].number)
        if dtype is None:
            texts = [text for message in messages for text in message.string_val]
            if len(texts) != count:
                raise DataError(f"{self.path}: {len(texts)} texts in all pieces for {count} elements")
            return np.array(texts, dtype=object).reshape(self.shape)
        raw = b"".join(message.tensor_content for message in messages)
        if len(raw) != count * dtype.itemsize:
            raise DataError(f"{self.path}: {len(raw)} bytes in all pieces for a tensor of shape {self.shape}")
        return np.frombuffer(raw, dtype).reshape(self.shape)


def read_tensor_event(file: str) -> TensorEvent:
    """Reads what one tensor file says; values only where they are few.

    Raises:
        DataError: it cannot be read, holds no tensor, or was cut off.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | _CLOEXEC)
        try:
            raw = os.read(descriptor, _SMALL)
            if len(raw) == _SMALL:
                return _large(Path(file), descriptor)
        finally:
            os.close(descriptor)
        return _small(file, raw)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (WireError, IndexError) as error:
        raise DataError(f"{file}: is no tensor file, or was cut off: {error}") from error
    except DataError as error:
        raise DataError(f"{file}: {error}") from error


def _small(file: str, raw: bytes) -> TensorEvent:
    if not raw:
        raise DataError("is empty; the dump was interrupted or the disk full")
    event = _event_class()()
    try:
        event.ParseFromString(raw)
    except decode_error() as error:
        raise DataError(f"is no tensor file, or was cut off {broken_at(raw, len(raw), event)}") from error
    values = event.summary.value
    if not values:
        raise DataError(f"holds no tensor (no summary value before byte {len(raw)})")
    value = values[0]
    name = value.node_name.decode("utf-8", "backslashreplace")
    tensor = value.tensor
    number, content, shape = tensor.dtype, tensor.tensor_content, tensor.tensor_shape
    dims = tuple([dim.size for dim in shape.dim])
    if not raw.endswith(_USUAL_END) and (chunk := _chunk(value.metadata.plugin_data.content, event.wall_time)):
        return TensorEvent(name, _of_piece(number, dims), chunk)
    if not content or shape.unknown_rank or plain_type(number) is None:
        return TensorEvent(name, _placed(Path(file), raw))
    try:
        dtype, reason = _checked(number, dims, len(content))
    except DataError as error:
        raise DataError(f"{error} (its content at byte {raw.find(content)})") from error
    if reason:
        return TensorEvent(name, StoredTensor(dtype, dims, None, reason))
    if len(content) <= _INLINE:
        return TensorEvent(name, StoredTensor(dtype, dims, InlineSource(file, content, number, dims)))
    # Should the same bytes stand further ahead in the file too, they are the same bytes.
    return TensorEvent(name, StoredTensor(dtype, dims, RawSource(Path(file), raw.find(content), dtype, dims)))


@functools.cache
def _event_class() -> Message:
    return type(tf_message("Event"))


@functools.lru_cache(maxsize=1024)  # tensors of a run have few different types and shapes
def _checked(number: int, shape: tuple[int, ...], size: int) -> tuple[str, str]:
    """Dtype of a tensor with raw content, and why it has no value."""
    reason = without_value(number, shape, has_values=True)
    if not reason:
        check_content(number, shape, size)
    return value_dtype(number), reason


def _placed(path: Path, raw: bytes) -> StoredTensor:
    """The tensor by its place in the file."""
    value = _value(raw, len(raw))
    tensor = _first(few_fields(raw, value.start, value.end), 8)
    if tensor is None:
        return _NO_TENSOR
    return stored_tensor(path, raw, tensor.start, tensor.end)


def _large(path: Path, descriptor: int) -> TensorEvent:
    data, size = FileWindow(descriptor), os.fstat(descriptor).st_size
    value = _value(data, size)
    name, metadata, tensor = b"", b"", None
    for field in few_fields(data, value.start, value.end):
        if field.kind != 2:
            continue
        if field.number == 7:
            name = _short(data, field)
        elif field.number == 8:
            tensor = field
        elif field.number == 9:
            metadata = _short(data, field)
    text = name.decode("utf-8", "backslashreplace")
    if tensor is None:
        return TensorEvent(text, _NO_TENSOR)
    if chunk := _chunk(metadata, _wall_time(data, size)):
        found = walk_tensor(data, tensor.start, tensor.end)
        return TensorEvent(text, _of_piece(found.number, found.shape), chunk)
    return TensorEvent(text, stored_tensor(path, data, tensor.start, tensor.end))


def _of_piece(number: int, shape: tuple[int, ...] | None) -> StoredTensor:
    reason = without_value(number, shape, has_values=True)
    return StoredTensor(value_dtype(number), shape, None, reason)


def _value(data: ByteSource, size: int) -> Field:
    summary = _first(few_fields(data, 0, size), 5)
    value = _first(few_fields(data, summary.start, summary.end), 1) if summary else None
    if value is None:
        raise DataError(f"holds no tensor (no summary value before byte {size})")
    return value


def _first(found: Iterable[Field], number: int) -> Field | None:
    return next((field for field in found if field.number == number and field.kind == 2), None)


def _short(data: ByteSource, field: Field) -> bytes:
    if field.end - field.start > _MAX_NAME:
        raise DataError(f"field {field.number} at byte {field.start} has {field.end - field.start} bytes")
    return data[field.start : field.end]


def _wall_time(data: ByteSource, size: int) -> float:
    for field in few_fields(data, 0, size):
        if field.number == 1 and field.kind == 1:
            return float(np.frombuffer(data[field.start : field.end], "<f8")[0])
    return 0.0


def _chunk(metadata: bytes, wall_time: float) -> Chunk | None:
    """Which piece it is; a writer may leave out numbers that are zero."""
    count, index = _CHUNKS.search(metadata), _INDEX.search(metadata)
    total = int(count[1]) if count else 1
    return Chunk(int(index[1]) if index else 0, total, wall_time) if total > 1 else None


def find_piece(file: str) -> Piece:
    """Returns where the tensor message of a file lies.

    Raises:
        DataError: it cannot be read, or holds no tensor.
    """
    path = Path(file)
    with open_regular(path) as opened:
        data, size = FileWindow(opened.fileno()), os.fstat(opened.fileno()).st_size
        try:
            value = _value(data, size)
            tensor = _first(few_fields(data, value.start, value.end), 8)
            if tensor is None:
                raise DataError("holds no tensor")
            found = walk_tensor(data, tensor.start, tensor.end)
        except (WireError, IndexError, DataError) as error:
            raise DataError(f"{path}: {error}") from error
    start, end = found.content or (0, 0)
    return Piece(path, tensor.start, tensor.end, found.number, end - start)


def _tensor_message(piece: Piece) -> Message:
    message = tf_message("TensorProto")
    with open_regular(piece.path) as file:
        try:
            file.seek(piece.start)
            message.ParseFromString(file.read(piece.end - piece.start))
        except OSError as error:
            raise DataError(f"{piece.path}: cannot be read: {error.strerror or error}") from error
        except decode_error() as error:
            raise DataError(f"{piece.path}: tensor at byte {piece.start} is damaged; dump it again") from error
    return message


def read_event_bytes(path: Path, field_name: str) -> bytes:
    """Returns the graph (``graph_def``) or text (``log_message``) of an Event file.

    Raises:
        DataError: it cannot be read, or is no Event with such a content.
    """
    with open_regular(path) as file:
        try:
            if field_name == "log_message" and os.fstat(file.fileno()).st_size > _MAX_TEXT_FILE:
                raise DataError(f"{path}: is too large for a line of text")
            raw = file.read()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    event = tf_message("Event")
    try:
        event.ParseFromString(raw)
    except decode_error() as error:
        where = broken_at(raw, len(raw), event)
        raise DataError(f"{path}: is no file of TensorFlow's debugger, or was cut off {where}") from error
    return bytes(event.graph_def if field_name == "graph_def" else event.log_message.message)

"""TensorFlow's record files (TFRecord): event files, Debugger V2 logs.

A record is its length (8 bytes, little-endian), a masked CRC-32C of those, the data, and a masked CRC-32C of the data.
There is no end mark and no way to find the next record behind a damaged one, so reading stops there, as TensorFlow's
own readers do; what came before is good.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.crc32c import crc32c, masked
from dumpers.formats.raw import open_regular
from dumpers.formats.tf_tensor import WireTensor, array_from_bytes, check_content, plain_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD: Final = struct.Struct("<QI")
_CHECKSUM: Final = struct.Struct("<I")
_FRAME: Final = _HEAD.size + _CHECKSUM.size
_BLOCK: Final = 1 << 20

WHOLE: Final = 1 << 16
"""Records up to this size are handed over with their data, checksum verified."""


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        offset: Of its length field.
        length: Bytes of data.
        data: The data, verified; None for a large record, of which only the place is known.
    """

    offset: int
    length: int
    data: bytes | None

    @property
    def start(self) -> int:
        """Offset of the data."""
        return self.offset + _HEAD.size


class DamagedRecordError(DataError):
    """A record cannot be trusted; nothing behind it can be found.

    Attributes:
        offset: Where the record begins.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def read_records(path: Path, *, whole: int = WHOLE) -> Iterator[Record]:
    """Walks over a record file. A large record is stepped over; its length is verified, its data are not.

    Args:
        path: The file.
        whole: Largest record that is read.

    Raises:
        DamagedRecordError: a record is cut off or its checksum is wrong; raised after all good ones were yielded.
        DataError: the file cannot be read.
    """
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            with open(file.fileno(), "rb", closefd=False) as buffered:
                yield from _walk(path, buffered, size, whole)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _walk(path: Path, file: BinaryIO, size: int, whole: int) -> Iterator[Record]:
    offset = 0
    while offset < size:
        length = _length(path, file.read(_HEAD.size), offset, size)
        data = None
        if length <= whole:
            data = file.read(length)
            _check(path, file.read(_CHECKSUM.size), crc32c(data), offset)
        else:
            file.seek(offset + _FRAME + length)
        yield Record(offset, length, data)
        offset += _FRAME + length


def _length(path: Path, head: bytes, offset: int, size: int) -> int:
    if len(head) < _HEAD.size:
        raise DamagedRecordError(f"{path}: record at byte {offset} is cut off after {len(head)} bytes", offset)
    length, checksum = _HEAD.unpack(head)
    if masked(crc32c(head[:8])) != checksum:
        raise DamagedRecordError(f"{path}: length of the record at byte {offset} has a wrong checksum", offset)
    if length > size - offset - _FRAME:
        raise DamagedRecordError(
            f"{path}: record at byte {offset} has {length} bytes, {max(size - offset - _FRAME, 0)} are there", offset
        )
    return int(length)


def _check(path: Path, raw: bytes, crc: int, offset: int) -> None:
    if len(raw) < _CHECKSUM.size:
        raise DamagedRecordError(f"{path}: record at byte {offset} is cut off", offset)
    if masked(crc) != _CHECKSUM.unpack(raw)[0]:
        raise DamagedRecordError(f"{path}: data of the record at byte {offset} have a wrong checksum", offset)


def verify_record(path: Path, file: BinaryIO, record: Record) -> None:
    """Verifies the data of a large record, a block at a time.

    Raises:
        DamagedRecordError: the checksum is wrong, or the file became shorter.
        OSError: the file cannot be read.
    """
    crc, left, position = 0, record.length, record.start
    while left:
        block = os.pread(file.fileno(), min(left, _BLOCK), position)
        if not block:
            raise DamagedRecordError(f"{path}: record at byte {record.offset} is cut off", record.offset)
        crc, left, position = crc32c(block, crc), left - len(block), position + len(block)
    _check(path, os.pread(file.fileno(), _CHECKSUM.size, position), crc, record.offset)


@dataclass(frozen=True)
class RecordSource:
    """A ``TensorProto`` inside a record; the record is verified whenever it is loaded.

    Attributes:
        path: The file.
        offset: Of the record's length field.
        start: Offset of the tensor message within the record's data.
        end: Offset behind it.
        tensor: Its parts, offsets within the record's data.
    """

    path: Path
    offset: int
    start: int
    end: int
    tensor: WireTensor

    def load(self) -> NDArray[np.generic]:
        """Returns the array; it lies within the bytes that were read.

        Raises:
            DataError: the file vanished or changed, or content and shape do not belong together.
        """
        data = self._data()
        number, shape, content, typed = self.tensor
        dtype = plain_type(number)
        try:
            if content is None or typed or shape is None or dtype is None:
                return array_from_bytes(data[self.start : self.end])
            check_content(number, shape, content[1] - content[0])
        except DataError as error:
            raise DataError(f"{self.path}: tensor in the record at byte {self.offset}: {error}") from error
        raw = np.frombuffer(data, np.uint8, content[1] - content[0], content[0])
        return raw.view(dtype).reshape(shape)

    def _data(self) -> bytes:
        with open_regular(self.path) as file:
            try:
                size = os.fstat(file.fileno()).st_size
                length = _length(self.path, os.pread(file.fileno(), _HEAD.size, self.offset), self.offset, size)
                data = os.pread(file.fileno(), length, self.offset + _HEAD.size)
                checksum = os.pread(file.fileno(), _CHECKSUM.size, self.offset + _HEAD.size + length)
            except OSError as error:
                raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        _check(self.path, checksum, crc32c(data), self.offset)
        if self.end > length:
            raise DataError(f"{self.path}: the record at byte {self.offset} is another one now; list the run again")
        return data

"""Sorted tables of keys and values: the container of TensorFlow's checkpoints.

The format is LevelDB's. At the end of the file a footer of 48 bytes says where the index block lies; the index has one
entry a data block (a key not below any of the block's keys, and where the block lies). A block is entries whose keys
share a prefix with the one before, a list of restart points, one byte for its compression and a checksum over all that.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dumpers.errors import DataError
from dumpers.formats import wire
from dumpers.formats.crc32c import crc32c, unmasked
from dumpers.formats.raw import open_regular
from dumpers.formats.snappy import SnappyError, uncompress

MAGIC: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
"""Last bytes of a table."""

_FOOTER: Final = 48
_TRAILER: Final = 5
_PLAIN, _SNAPPY = 0, 1

_KEY_BYTES: Final = 64
"""Keys of a block may take so many times its size; without a bound, entries of four bytes could share a huge prefix."""


class Block(NamedTuple):
    """Where a data block lies.

    Attributes:
        last_key: Not below any key of the block, below all keys of the next one.
        offset, size: Of its bytes in the file, without the trailer.
    """

    last_key: bytes
    offset: int
    size: int


@dataclass(frozen=True)
class Table:
    """The index of a table file; blocks are read when asked for.

    Attributes:
        path: The file.
        blocks: In order of their keys.
    """

    path: Path
    blocks: tuple[Block, ...]

    def entries(self, block: Block) -> Iterator[tuple[bytes, bytes]]:
        """Returns the keys and values of one block, in order.

        Raises:
            DataError: the block is damaged.
        """
        with open_regular(self.path) as file:
            content = _read_block(self.path, file, block.offset, block.size)
        return _entries(content, f"{self.path}: block at byte {block.offset}")

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, None if the table does not have it.

        Raises:
            DataError: the block it would be in is damaged.
        """
        at = bisect.bisect_left([block.last_key for block in self.blocks], key)
        if at == len(self.blocks):
            return None
        return next((value for found, value in self.entries(self.blocks[at]) if found == key), None)


def is_table(path: Path) -> bool:
    """Tells whether a file ends as tables do."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(MAGIC)))
            return size >= _FOOTER and file.read(len(MAGIC)) == MAGIC
    except (DataError, OSError):
        return False


def read_table(path: Path) -> Table:
    """Reads the footer and the index of a table file.

    Raises:
        DataError: no such file, none of this kind, or its index is damaged.
    """
    with open_regular(path) as file:
        size = file.seek(0, 2)
        if size < _FOOTER:
            raise DataError(f"{path}: ends after {size} bytes, a table has {_FOOTER} at least; copy or save it again")
        footer = _read(path, file, size - _FOOTER, _FOOTER)
        if footer[-len(MAGIC) :] != MAGIC:
            raise DataError(
                f"{path}: does not end as a table does at byte {size} (cut off, or no checkpoint); save it again"
            )
        where = f"{path}: footer at byte {size - _FOOTER}"
        _, _, position = _handle(footer, 0, where)
        offset, length, _ = _handle(footer, position, where)
        _check(where, offset, length, size - _FOOTER)
        index = _read_block(path, file, offset, length)
    return Table(path, tuple(_blocks(index, path, offset)))


def _blocks(index: bytes, path: Path, index_offset: int) -> Iterator[Block]:
    """Blocks must follow each other, so that none is read twice: a small file cannot claim a mountain of entries."""
    where = f"{path}: index block at byte {index_offset}"
    free = 0
    for key, value in _entries(index, where):
        offset, size, _ = _handle(value, 0, where)
        _check(where, offset, size, index_offset)
        if offset < free:
            raise DataError(f"{where}: names overlapping blocks; save the checkpoint again")
        free = offset + size + _TRAILER
        yield Block(key, offset, size)


def _check(where: str, offset: int, size: int, end: int) -> None:
    if offset + size + _TRAILER > end:
        raise DataError(f"{where}: names {size} bytes at {offset}, beyond byte {end}; copy or save the file again")


def _handle(data: bytes, position: int, where: str) -> tuple[int, int, int]:
    offset, position = read_varint(data, position, 64, where)
    size, position = read_varint(data, position, 64, where)
    return offset, size, position


def _read(path: Path, file: BinaryIO, offset: int, size: int) -> bytes:
    try:
        file.seek(offset)
        data = _read_fully(file, size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) < size:
        raise DataError(f"{path}: ends at byte {offset + len(data)} where {size} bytes are expected at {offset}")
    return data


def _read_fully(file: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_block(path: Path, file: BinaryIO, offset: int, size: int) -> bytes:
    where = f"{path}: block at byte {offset}"
    data = _read(path, file, offset, size + _TRAILER)
    stored = unmasked(int.from_bytes(data[size + 1 :], "little"))
    found = crc32c(memoryview(data)[: size + 1])
    if stored != found:
        raise DataError(f"{where}: checksum {found:08x} instead of {stored:08x}; damaged, copy or save the file again")
    if data[size] == _PLAIN:
        return data[:size]
    if data[size] != _SNAPPY:
        raise DataError(f"{where}: compression {data[size]} is not known (only none and snappy are)")
    try:
        return uncompress(data[:size])
    except SnappyError as error:
        raise DataError(f"{where}: snappy data {error}; copy or save the file again") from error


def _entries(block: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values; keys must ascend."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise DataError(f"{where}: {restarts} restart points in {len(block)} bytes; damaged, save the checkpoint again")
    key, first, position, left = b"", True, 0, _KEY_BYTES * len(block)
    while position < end:
        shared, position = read_varint(block, position, 32, where)
        rest, position = read_varint(block, position, 32, where)
        size, position = read_varint(block, position, 32, where)
        stop = position + rest + size
        left -= shared + rest
        if shared > len(key) or stop > end or left < 0:
            raise DataError(f"{where}: impossible entry before byte {position} of it; save the checkpoint again")
        last, key = key, key[:shared] + block[position : position + rest]
        if key <= last and not first:
            raise DataError(f"{where}: keys are not in order; save the checkpoint again")
        yield key, block[position + rest : stop]
        first, position = False, stop


def read_varint(data: bytes, position: int, bits: int, where: str) -> tuple[int, int]:
    """Returns a number of at most so many bits and the position behind it.

    Raises:
        DataError: the number does not end, or is too great.
    """
    try:
        number, end = wire.read_varint(data, position, len(data))
    except wire.WireError as error:
        raise DataError(f"{where}: damaged number at byte {position} of it; copy or save the file again") from error
    if number >> bits:
        raise DataError(f"{where}: number at byte {position} of it is too great; copy or save the file again")
    return number, end

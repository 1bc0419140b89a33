"""Sorted tables and checkpoints written byte by byte, also wrong ones: what no program would save."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

MAGIC = 0xDB4775248B80FB57


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def crc(data: bytes) -> int:
    """CRC-32C bit by bit, for short data."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    value = crc(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def block(entries: Sequence[tuple[bytes, bytes]], *, interval: int = 16) -> bytes:
    """The content of a block: keys share prefixes between restart points."""
    out, restarts, last = bytearray(), [], b""
    for index, (key, value) in enumerate(entries):
        shared = 0
        if index % interval:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        else:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return bytes(out) + struct.pack(f"<{len(restarts)}II", *restarts, len(restarts))


def sealed(content: bytes, kind: int = 0) -> bytes:
    return content + bytes([kind]) + struct.pack("<I", masked_crc(content + bytes([kind])))


def table(blocks: Sequence[bytes], last_keys: Sequence[bytes], *, kind: int = 0) -> bytes:
    """A table of blocks that are given as their contents."""
    out, handles = bytearray(), []
    for content in blocks:
        handles.append(varint(len(out)) + varint(len(content)))
        out += sealed(content, kind)
    index = block(list(zip(last_keys, handles, strict=True)), interval=1)
    return with_index(bytes(out), index)


def with_index(blocks: bytes, index: bytes) -> bytes:
    """Blocks, an empty block of statistics, an index block, and the footer."""
    meta = block([])
    out = blocks + sealed(meta)
    at = len(out)
    out += sealed(index)
    handles = varint(len(blocks)) + varint(len(meta)) + varint(at) + varint(len(index))
    return out + handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def table_of(entries: Sequence[tuple[bytes, bytes]], *, per_block: int = 5, compress: Callable | None = None) -> bytes:
    """A table of sorted entries."""
    groups = [entries[at : at + per_block] for at in range(0, len(entries), per_block)]
    contents = [block(group) for group in groups]
    if compress:
        contents = [compress(content) for content in contents]
    return table(contents, [group[-1][0] for group in groups], kind=1 if compress else 0)


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protobuf message: a number or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    return varint(number << 3 | 2) + varint(len(value)) + value


def shape_message(shape: Sequence[int]) -> bytes:
    return b"".join(field(2, field(1, dim)) for dim in shape)


def entry(dtype: int, shape: Sequence[int], data: bytes, offset: int, **other: int) -> bytes:
    """A ``BundleEntryProto``; ``shard``, ``size`` and ``checksum`` may lie."""
    checksum = other["checksum"] if "checksum" in other else masked_crc(data)
    out = field(1, dtype) + field(2, shape_message(shape)) + field(3, other.get("shard", 0)) + field(4, offset)
    return out + field(5, other.get("size", len(data))) + varint(6 << 3 | 5) + struct.pack("<I", checksum)


def header(shards: int = 1, *, big_endian: bool = False, min_consumer: int = 0) -> bytes:
    version = field(1, 1) + (field(2, min_consumer) if min_consumer else b"")
    return field(1, shards) + (field(2, 1) if big_endian else b"") + field(3, version)


def write_bundle(prefix: Path, entries: dict[str, bytes], data: bytes, *, head: bytes | None = None) -> Path:
    """Writes a checkpoint of version 2 of ready entries and one data file."""
    items = [(b"", header() if head is None else head), *sorted((k.encode(), v) for k, v in entries.items())]
    Path(f"{prefix}.index").write_bytes(table_of(items))
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    return prefix

"""Sorted tables and snappy: what they hold, and that no damage gives anything but one error."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.snappy import SnappyError, uncompress
from dumpers.formats.sstable import is_table, read_table
from dumpers.formats.wire import fields
from tests.table_files import block, sealed, table, table_of, varint, with_index

ENTRIES = [(b"", b"head"), *((f"layer/{n:03d}/kernel".encode(), bytes([n]) * (n % 7)) for n in range(60))]


def literal(data):
    """A snappy stream that only copies its own bytes."""
    out = varint(len(data))
    for at in range(0, len(data), 60):
        part = data[at : at + 60]
        out += bytes([(len(part) - 1) << 2]) + part
    return out


def all_entries(path):
    found = read_table(path)
    return [pair for part in found.blocks for pair in found.entries(part)]


@pytest.mark.parametrize("compress", [None, literal])
@pytest.mark.parametrize("per_block", [1, 7, 100])
def test_entries_come_back(tmp_path, compress, per_block):
    path = tmp_path / "table"
    path.write_bytes(table_of(ENTRIES, per_block=per_block, compress=compress))
    assert is_table(path)
    assert all_entries(path) == ENTRIES
    found = read_table(path)
    assert all(found.get(key) == value for key, value in ENTRIES)
    assert found.get(b"layer/0005") is None
    assert found.get(b"zzz") is None


def test_a_table_cut_anywhere_is_one_error(tmp_path):
    path = tmp_path / "table"
    whole = table_of(ENTRIES[:12])
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert not is_table(path) or size < 48
        with pytest.raises(DataError, match="table") as caught:
            read_table(path)
        assert "\n" not in str(caught.value)


def test_a_flipped_byte_is_found_and_spoils_its_block_only(tmp_path):
    path = tmp_path / "table"
    whole = bytearray(table_of(ENTRIES, per_block=20))
    first = read_and_write(path, whole).blocks[0]
    whole[first.offset + 3] ^= 4
    found = read_and_write(path, whole)
    with pytest.raises(DataError, match=f"block at byte {first.offset}: checksum"):
        list(found.entries(found.blocks[0]))
    assert [pair for part in found.blocks[1:] for pair in found.entries(part)] == ENTRIES[20:]


def read_and_write(path, data):
    path.write_bytes(bytes(data))
    return read_table(path)


def test_bits_flipped_at_random_give_the_entries_or_one_error(tmp_path):
    path = tmp_path / "table"
    whole = table_of(ENTRIES, per_block=20)
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        found = entries_or_error(path, data)
        # Without an error the flips were in the footer's padding or the unread statistics.
        assert found == ENTRIES or found.startswith(str(path))


def entries_or_error(path, data):
    path.write_bytes(bytes(data))
    try:
        return all_entries(path)
    except DataError as error:
        return str(error)


def one(content, kind=0):
    return table([content], [b"z"], kind=kind)


HUGE = (1 << 64) - 1
GOOD = block(ENTRIES[:3])
HOSTILE = {
    "restart count beyond the block": one(GOOD[:-4] + struct.pack("<I", 0x7FFFFFFF)),
    "restart count wraps": one(GOOD[:-4] + struct.pack("<I", 0xFFFFFFFF)),
    "no room for restarts": one(b"\0\0"),
    "shares more than there is": one(b"\x05\x01\x01ab" + struct.pack("<II", 0, 1)),
    "value beyond the block": one(b"\x00\x01\x7fab" + struct.pack("<II", 0, 1)),
    "number without end": one(b"\xff" * 12 + struct.pack("<II", 0, 1)),
    "number of more than 32 bits": one(b"\x00\xff\xff\xff\xff\x1f\x00" + struct.pack("<II", 0, 1)),
    "keys not in order": one(block([(b"b", b""), (b"a", b"")])),
    "unknown compression": one(GOOD, kind=2),
    "zlib bomb": one(GOOD, kind=4),
    "snappy without a length": one(b"", kind=1),
    "snappy length bomb": one(varint((1 << 32) - 1) + b"\0a", kind=1),
    "snappy reference before the start": one(varint(20) + b"\x00a" + b"\x01\x05" * 5, kind=1),
    "snappy literal beyond the end": one(varint(20) + b"\xf0\xffabc", kind=1),
    "block beyond the file": with_index(sealed(GOOD), block([(b"z", varint(0) + varint(1 << 40))])),
    "offset of 64 bits": with_index(sealed(GOOD), block([(b"z", varint(HUGE) + varint(HUGE))])),
    "one block many times": with_index(
        sealed(GOOD), block([(bytes([n]), varint(0) + varint(len(GOOD))) for n in range(100)])
    ),
    "handle is no number": with_index(sealed(GOOD), block([(b"z", b"\xff")])),
    "index beyond the file": GOOD
    + (b"\0\0" + varint(5) + varint(HUGE)).ljust(40, b"\0")
    + sealed(b"")[:0]
    + struct.pack("<Q", 0xDB4775248B80FB57),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tables_are_one_error_and_little_memory(tmp_path, name):
    path = tmp_path / "table"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            all_entries(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_prefix_shared_by_many_keys_does_not_fill_the_memory(tmp_path):
    content = bytearray(varint(0) + varint(50_000) + varint(0) + b"k" * 50_000)
    for number in range(10_000):
        content += varint(50_000) + varint(2) + varint(0) + struct.pack(">H", number)
    path = tmp_path / "table"
    path.write_bytes(one(bytes(content) + struct.pack("<II", 0, 1)))
    found = read_table(path)
    with pytest.raises(DataError, match="impossible entry"):
        sum(len(key) for key, _ in found.entries(found.blocks[0]))


@pytest.mark.parametrize("kind", ["folder", "pipe", "none"])
def test_what_is_no_file(tmp_path, kind):
    path = tmp_path / "table"
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "none": lambda: None}[kind]()
    assert not is_table(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_table(path)


# ------------------------------------------------------------------------------------------------------------- snappy


def test_snappy_elements_of_every_kind():
    data = varint(4 + 8 + 64 + 5 + 61 + 3)
    data += b"\x0cabcd"  # literal
    data += bytes([1 | 4 << 2, 4])  # 8 bytes from 4 back, one byte of distance: abcdabcd
    data += bytes([2 | 63 << 2, 1, 0])  # 64 times the last byte
    data += bytes([3 | 4 << 2]) + struct.pack("<I", 76)  # 5 bytes from the very start, four bytes of distance
    data += b"\xf0\x3c" + b"x" * 61  # a literal whose length takes one byte more
    data += b"\xf4\x02\x00xyz"  # and two
    assert uncompress(data) == b"abcd" + b"abcdabcd" + b"d" * 64 + b"abcda" + b"x" * 61 + b"xyz"


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff" * 6, b"\x05\x00a", b"\x01\x04ab", b"\x05\x01", b"\x05\x02\x01", b"\x05\x03\x01\0\0", b"\x01\xfc"],
)
def test_damaged_snappy_is_an_error(data):
    with pytest.raises(SnappyError):
        uncompress(data)


def test_snappy_never_writes_more_than_it_claims():
    bomb = varint(22 * 3000) + b"\x00a" + b"\xfe\x01\x00" * 2000  # 2000 references of 64 bytes
    tracemalloc.start()
    with pytest.raises(SnappyError, match="more than"):
        uncompress(bomb)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def compressed_by_tensorflow(array):
    """The snappy stream that TensorFlow's data service makes of an array."""
    tf = pytest.importorskip("tensorflow")
    element = tf.io.serialize_tensor(tf.raw_ops.CompressElement(components=[tf.constant(array)])).numpy()
    at, levels = 0, (4, 2, 1)  # the tensor's content, behind its length the variant, its metadata, the stream in that
    for level in levels:
        found = next(f for f in fields(element, at, len(element)) if f.number == level)
        element, at = element[found.start : found.end], 0
        if level == 4:
            at = next(index for index, byte in enumerate(element) if byte < 0x80) + 1
    return element


@pytest.mark.parametrize("kind", ["noise", "zeros", "few values", "text"])
def test_snappy_streams_of_a_real_program(kind):
    chance = np.random.default_rng(5)
    array = {
        "noise": chance.standard_normal(40_000).astype(np.float32),
        "zeros": np.zeros(70_000, np.float32),
        "few values": chance.integers(0, 3, 30_000),
        "text": np.frombuffer(b"layer/kernel layer/bias " * 3000, np.uint8),
    }[kind]
    stream = compressed_by_tensorflow(array)
    assert uncompress(stream) == array.tobytes()
    assert (len(stream) < array.nbytes / 2) is (kind != "noise")

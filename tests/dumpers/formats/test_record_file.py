"""TFRecord framing: against TensorFlow's writer and reader."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.crc32c import crc32c, masked
from dumpers.formats.raw import open_regular
from dumpers.formats.record_file import DamagedRecordError, Record, RecordSource, read_records, verify_record
from dumpers.formats.tf_tensor import walk_tensor

SIZES = (0, 1, 11, 12, 13, 700, 65536, 65537, 3_000_000)


def frame(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(crc32c(head))) + data + struct.pack("<I", masked(crc32c(data)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    tf = pytest.importorskip("tensorflow")
    path = tmp_path_factory.mktemp("records") / "data.tfrecord"
    rng = np.random.default_rng(5)
    contents = [rng.integers(0, 256, size, dtype=np.uint8).tobytes() for size in SIZES]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)
    return path, contents


def test_reads_what_tensorflow_writes(written: tuple[Path, list[bytes]]):
    path, contents = written
    records = list(read_records(path))
    assert [record.length for record in records] == list(SIZES)
    assert [record.data for record in records] == [data if len(data) <= 65536 else None for data in contents]
    assert [record.data for record in read_records(path, whole=1 << 24)] == contents
    raw = path.read_bytes()
    assert all(
        raw[record.start : record.start + record.length] == data for record, data in zip(records, contents, strict=True)
    )
    assert b"".join(map(frame, contents)) == raw


def test_large_record_is_verified_on_request(written: tuple[Path, list[bytes]], tmp_path: Path):
    path, _ = written
    record = list(read_records(path))[-1]
    with open_regular(path) as file:
        verify_record(path, file, record)
    raw = bytearray(path.read_bytes())
    raw[record.start + 2_000_000] ^= 4
    changed = tmp_path / "changed"
    changed.write_bytes(raw)
    with open_regular(changed) as file, pytest.raises(DamagedRecordError, match="wrong checksum"):
        verify_record(changed, file, record)


@pytest.mark.parametrize("where", ["length", "length checksum", "data", "data checksum"])
def test_stops_where_tensorflow_stops(tmp_path: Path, where: str):
    tf = pytest.importorskip("tensorflow")
    frames = [frame(bytes([number]) * (number + 5)) for number in range(6)]
    begin = sum(map(len, frames[:3]))
    place = begin + {"length": 1, "length checksum": 9, "data": 14, "data checksum": 12 + 8 + 1}[where]
    raw = bytearray(b"".join(frames))
    raw[place] ^= 0x10
    path = tmp_path / "x"
    path.write_bytes(raw)
    got: list[bytes | None] = []
    with pytest.raises(DamagedRecordError, match=f"record at byte {begin}") as caught:
        got.extend(record.data for record in read_records(path))
    assert caught.value.offset == begin
    theirs: list[bytes] = []
    with pytest.raises(tf.errors.DataLossError):
        theirs.extend(tf.compat.v1.io.tf_record_iterator(str(path)))
    assert got == theirs == [bytes([number]) * (number + 5) for number in range(3)]


def good_records(path: Path) -> tuple[list[Record], int | None]:
    """What can be read, and where the damage begins."""
    records: list[Record] = []
    try:
        records.extend(read_records(path))
    except DamagedRecordError as error:
        return records, error.offset
    return records, None


def test_cut_off_at_every_byte(tmp_path: Path):
    frames = [frame(b"abc"), frame(b""), frame(b"defghij")]
    whole, ends = b"".join(frames), [0, 19, 35, 58]
    path = tmp_path / "x"
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        records, damaged = good_records(path)
        assert damaged == (None if size in ends else max(end for end in ends if end <= size))
        assert len(records) == sum(end <= size for end in ends[1:])


def test_claimed_length_is_never_taken(tmp_path: Path):
    head = struct.pack("<Q", (1 << 63) + 5)
    path = tmp_path / "x"
    path.write_bytes(head + struct.pack("<I", masked(crc32c(head))) + b"abcd")
    with pytest.raises(DamagedRecordError, match=r"record at byte 0 has 9223372036854775813 bytes, 0 are there"):
        list(read_records(path))


def test_no_file_and_a_folder(tmp_path: Path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            list(read_records(path))


def test_source_verifies_the_record_it_loads_from(tmp_path: Path):
    tf = pytest.importorskip("tensorflow")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    proto = tf.make_tensor_proto(array).SerializeToString()
    path = tmp_path / "x"
    path.write_bytes(frame(b"first") + frame(b"__" + proto))
    source = RecordSource(path, 21, 2, 2 + len(proto), walk_tensor(b"__" + proto, 2, 2 + len(proto)))
    assert source.load().tolist() == array.tolist()
    raw = bytearray(path.read_bytes())
    raw[-6] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="record at byte 21 have a wrong checksum"):
        source.load()
    path.write_bytes(frame(b"first") + frame(b"short"))
    with pytest.raises(DataError, match="is another one now"):
        source.load()
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        source.load()


def test_fuzz(tmp_path: Path):
    rng = random.Random(2)
    whole = b"".join(frame(rng.randbytes(size)) for size in (3, 40, 0, 9))
    path = tmp_path / "x"
    for _ in range(600):
        raw = bytearray(whole)
        for _ in range(rng.choice((1, 2, 5))):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        path.write_bytes(raw[: rng.randrange(len(raw) + 1)])
        records, damaged = good_records(path)
        assert sum(16 + record.length for record in records) == (path.stat().st_size if damaged is None else damaged)

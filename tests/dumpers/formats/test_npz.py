"""npz files against NumPy's own, and zip tricks."""

from __future__ import annotations

import io
import pickle
import random
import re
import struct
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.kinds import identify
from dumpers.formats.npz import read_npz
from dumpers.formats.zip_members import shown_name

ARRAYS = {
    "weights": np.random.default_rng(3).normal(size=(40, 50)).astype(np.float32),
    "turned": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "big": np.arange(6, dtype=">i2").reshape(2, 3),
    "one": np.float64(2.5),
    "none": np.zeros((0, 4), np.int8),
    "flags": np.array([True, False]),
    "zeros": np.zeros(300_000, np.float32),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes(tmp_path: Path, save):
    path = tmp_path / "x.npz"
    save(path, **ARRAYS)
    assert identify(path).kind.name == "npz"
    dump = read_npz(path)
    assert [record.op for record in dump] == list(ARRAYS)
    assert dump.problems == ()
    for record in dump:
        right = np.asarray(ARRAYS[record.op])
        assert (record.shape, record.dtype) == (right.shape, right.dtype.newbyteorder("=").name)
        got = pickle.loads(pickle.dumps(record)).load()
        assert got.dtype.isnative
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, right)


def test_raw_bytes_need_a_type(tmp_path: Path):
    np.savez(tmp_path / "x.npz", half=np.array([1, -2]).astype(ml_dtypes.bfloat16))
    (record,) = read_npz(tmp_path / "x.npz")
    assert (record.dtype, record.source) == ("undefined", None)
    assert "two-byte data of unknown type" in record.note


def test_listing_does_not_inflate_the_members(tmp_path: Path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, zeros=np.zeros(60_000_000, np.uint8))
    tracemalloc.start()
    try:
        (record,) = read_npz(path)
        assert record.shape == (60_000_000,)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_python_objects_are_refused_and_the_rest_is_read(tmp_path: Path):
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return (open, (str(marker), "w"))

    np.savez(tmp_path / "x.npz", evil=np.array([Evil()], dtype=object), good=np.arange(3))
    dump = read_npz(tmp_path / "x.npz")
    assert [record.op for record in dump] == ["good"]
    assert "member evil.npy at byte 58: holds Python objects" in dump.problems[0].reason
    assert not marker.exists()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_names_that_lead_elsewhere_are_only_shown(tmp_path: Path):
    path = tmp_path / "in" / "x.npz"
    path.parent.mkdir()
    names = ["../../evil", "/etc/passwd", "a\x1b[31m\n", "dir/in", "back\\slash", "x" * 300]
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(f"{name}.npy", npy(np.array([number])))
        archive.writestr("readme.txt", "not an array")
    dump = read_npz(path)
    assert [record.op for record in dump] == [
        r"\x2e\x2e/\x2e\x2e/evil", r"\x2fetc/passwd", r"a\x1b[31m\n", "dir/in", r"back\\slash", "x" * 300,
    ]  # fmt: skip
    assert [record.load().tolist() for record in dump] == [[n] for n in range(6)]
    assert re.search(r"member readme.txt at byte \d+: is not an npy file", dump.problems[0].reason)
    assert [p.name for p in tmp_path.rglob("*")] == ["in", "x.npz"]
    assert shown_name("/" * 70_000 + "x").endswith("x")


def test_the_last_of_two_members_counts_as_it_does_for_numpy(tmp_path: Path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy(np.array([1])))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", npy(np.array([2])))
    dump = read_npz(path)
    assert [record.load().tolist() for record in dump] == [[2]] == [np.load(path)["a"].tolist()]
    assert "occurs twice" in dump.problems[0].reason


def patched(path: Path, target: Path, *, central: dict[int, bytes]) -> Path:
    """A copy with fields of the first member's entry in the directory overwritten."""
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    for offset, data in central.items():
        raw[at + offset : at + offset + len(data)] = data
    target.write_bytes(raw)
    return target


@pytest.mark.parametrize(
    ("central", "message"),
    [
        ({24: struct.pack("<I", 4_000_000_000)}, "claims to hold 4000000000 bytes"),
        ({20: struct.pack("<I", 4_000_000_000)}, "claims 4000000000 bytes at"),
        ({42: struct.pack("<I", 4_000_000_000)}, "outside the file"),
        ({42: struct.pack("<I", 3)}, "no member begins at byte 3"),
        ({10: struct.pack("<H", 14)}, "compression method 14"),
        ({8: struct.pack("<H", 1)}, "is encrypted"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_directory_entries_that_lie(tmp_path: Path, central: dict[int, bytes], message: str, save):
    save(tmp_path / "x.npz", a=np.arange(100))
    path = patched(tmp_path / "x.npz", tmp_path / "y.npz", central=central)
    dump = read_npz(path)
    assert len(dump) == 0
    assert message in dump.problems[0].reason


def test_a_bomb_of_a_kilobyte_is_refused_before_memory_is_taken(tmp_path: Path):
    path = tmp_path / "bomb.npz"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (10737418240,)}"
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", data + b"\0" * 900_000)
    assert path.stat().st_size < 2000
    tracemalloc.start()
    try:
        (problem,) = read_npz(path).problems
        assert "header claims 10737418240 bytes" in problem.reason
        patched(path, path, central={24: struct.pack("<I", 0xFFFFFFF0)})
        (problem,) = read_npz(path).problems
        assert "claims to hold 4294967280 bytes" in problem.reason
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_data_are_noticed(tmp_path: Path, save):
    path = tmp_path / "x.npz"
    save(path, a=np.random.default_rng(1).integers(0, 255, 4000).astype(np.uint8))
    raw = bytearray(path.read_bytes())
    raw[2000] ^= 0x10
    path.write_bytes(raw)
    (record,) = read_npz(path)
    with pytest.raises(DataError, match="damaged") as caught:
        record.load()
    assert f"{path}: member a.npy" in str(caught.value)


def test_compressed_data_that_end_early(tmp_path: Path):
    path = tmp_path / "x.npz"
    whole = npy(np.arange(1000))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", whole[:2000])
    patched(path, path, central={24: struct.pack("<I", len(whole)), 16: struct.pack("<I", zlib.crc32(whole))})
    (record,) = read_npz(path)
    with pytest.raises(DataError, match=f"ends after 2000 of {len(whole)} bytes"):
        record.load()


def test_files_that_are_no_npz(tmp_path: Path):
    for name, data in (("empty.npz", b""), ("text.npz", b"PK\x03\x04 no"), ("npy.npz", npy(np.arange(2)))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match="not a whole zip file"):
            read_npz(tmp_path / name)
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(tmp_path / "none.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_fuzz(tmp_path: Path, save):
    save(tmp_path / "x.npz", a=np.arange(30, dtype=np.int16), b=np.float32([1]))
    raw = (tmp_path / "x.npz").read_bytes()
    rng = random.Random(11)
    said: list[str] = []
    path = tmp_path / "f.npz"
    variants = [raw[:cut] for cut in range(0, len(raw), 5)]
    ends = time.monotonic() + 0.8
    count = 0
    while time.monotonic() < ends:
        changed = bytearray(variants.pop() if variants else raw)
        for _ in range(rng.choice((1, 1, 2, 5)) if changed else 0):
            changed[rng.randrange(len(changed))] = rng.choice((0, 255, rng.randrange(256)))
        path.write_bytes(changed)
        count += 1
        try:
            for record in read_npz(path):
                assert record.load().shape == record.shape
        except DataError as error:
            said.append(str(error))
    assert count > 20
    assert said
    assert not any("\n" in text for text in said)

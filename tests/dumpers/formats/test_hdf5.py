"""HDF5 files, written by h5py itself: the layout of the old PyTorch adapter, and what must not be followed."""

from __future__ import annotations

import pickle
import random
import time
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.hdf5 import read_hdf5
from dumpers.formats.kinds import identify

X = np.float32([[1, 2, 3], [4, 5, 6]])


def by_name(path: Path) -> dict:
    return {record.name: record for record in read_hdf5(path)}


def test_layout_of_the_old_adapter(tmp_path: Path):
    path = tmp_path / "npu.h5"
    with h5py.File(path, "w") as file:
        file["/Add/12/input/self"] = X
        file["/Add/12/input/other"] = X + 1
        file["/Add/12/input/alpha"] = np.int64(1)
        file["/Add/12/output/out"] = X * 2
        file["/batch_norm/9/output/result/result_0"] = X
        file["/batch_norm/9/output/result/result_1"] = X * 3
        file["/Add/12/input/self"].attrs["DataType"] = np.int32(10)
        file["/Add/12/input/self"].attrs["FormatType"] = np.int32(3)
        file["/Add/12/output/out"].attrs["FormatType"] = np.int32(2)
    assert identify(path).kind.name == "hdf5"
    dump = read_hdf5(path)
    assert [record.name for record in dump] == [
        "batch_norm/9:output:0", "batch_norm/9:output:1", "Add/12:input:0", "Add/12:input:1", "Add/12:input:2",
        "Add/12:output:0",
    ]  # fmt: skip
    assert [record.note.split(";")[0] for record in dump] == [
        "result/result_0", "result/result_1", "alpha", "other", "self", "out",
    ]  # fmt: skip
    by = {record.note.split(";")[0]: record for record in dump}
    assert by["self"].note == "self; was float16 in the run, saved as float32; NC1HWC0 on the device"
    assert by["self"].op_type == "Add"
    rights = {"self": X, "other": X + 1, "alpha": np.int64(1), "out": X * 2, "result/result_1": X * 3}
    for note, right in rights.items():
        got = pickle.loads(pickle.dumps(by[note])).load()
        np.testing.assert_array_equal(got, right, strict=True)
        assert not got.flags.writeable


def test_recorded_strides_and_names_of_digits(tmp_path: Path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name, strides in (("usual", (3, 1)), ("turned", (1, 2)), ("9" * 5000, (7,))):
            file[name] = X
            file[name].attrs["Stride"] = np.int64(strides)
    notes = {record.op: record.note for record in read_hdf5(path)}
    assert notes == {
        "usual": "",
        "turned": "had strides (1, 2) in the run, its values may stand in the order of storage",
        "9" * 5000: "",
    }


def test_other_shapes_of_trees(tmp_path: Path):
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        for name in (
            "/3/conv1/input_0", "/3/conv1/input_2", "/3/conv1/output_0", "/3/conv1/grad_output/0", "/10/fc/output",
            "/plain", "/a/b/weights", "/2/relu/grad/0", "/2/relu/output/0",
        ):  # fmt: skip
            file[name] = X
    dump = read_hdf5(path)
    assert [record.name for record in dump] == [
        "a/b/weights:output:0", "plain:output:0", "2/relu:output:0", "2/relu/grad:output:0", "3/conv1:input:0",
        "3/conv1:input:2", "3/conv1:output:0", "3/conv1/grad:output:0", "10/fc:output:0",
    ]  # fmt: skip
    assert len({record.name for record in dump}) == len(dump)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint16", "int64", "bool", "complex64", ">f4"]
)
@pytest.mark.parametrize(
    "options", [{}, {"chunks": (2, 2)}, {"chunks": (2, 2), "compression": "gzip", "shuffle": True}]
)
def test_storage_and_dtypes(tmp_path: Path, dtype: str, options: dict):
    array = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("a", data=array, **options)
    (record,) = read_hdf5(tmp_path / "x.h5")
    got = record.load()
    assert (record.dtype, record.shape) == (np.dtype(dtype).newbyteorder("=").name, (3, 4))
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, array)


def test_empty_and_scalar(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["none"] = np.zeros((0, 4))
        file["one"] = 2.5
        file["null"] = h5py.Empty("f4")
    found = by_name(tmp_path / "x.h5")
    assert found["none:output:0"].load().shape == (0, 4)
    assert found["one:output:0"].load() == 2.5
    assert found["null:output:0"].source is None


def test_what_has_no_numbers_is_listed_without_value(tmp_path: Path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["text"] = "hello"
        file["fixed"] = np.array([b"ab", b"c"])
        file["structure"] = np.zeros(3, [("a", "f4"), ("b", "i2")])
        file["lists"] = file.create_dataset("lists_", (2,), h5py.vlen_dtype(np.int32))
        file["reference"] = file["text"].ref
    dump = read_hdf5(path)
    assert {record.op: record.note for record in dump} == {
        "fixed": "no value: text", "lists": "no value: references or lists of varying length",
        "reference": "no value: references or lists of varying length",
        "structure": "no value: structure of 2 fields", "text": "no value: text",
    }  # fmt: skip
    assert all(record.source is None for record in dump)
    assert dump.problems == ()


def test_nothing_is_followed_out_of_the_file(tmp_path: Path):
    path = tmp_path / "in" / "x.h5"
    path.parent.mkdir()
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["secret"] = X
    (tmp_path / "raw.bin").write_bytes(X.tobytes())
    layout = h5py.VirtualLayout((2, 3), "f4")
    layout[:] = h5py.VirtualSource(str(other), "secret", (2, 3))
    with h5py.File(path, "w") as file:
        file["good"] = X
        file["same"] = file["good"]
        file["external"] = h5py.ExternalLink(str(other), "/secret")
        file["soft"] = h5py.SoftLink("/external")
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("outside", (2, 3), "f4", external=[(str(tmp_path / "raw.bin"), 0, X.nbytes)])
        file["loop"] = file["/"]
    dump = read_hdf5(path)
    assert [(record.op, record.source is None) for record in dump] == [
        ("good", False), ("outside", True), ("virtual", True),
    ]  # fmt: skip
    reasons = sorted(problem.reason for problem in dump.problems)
    assert [reason.split(":")[0] for reason in reasons] == ["external", "outside", "soft", "virtual"]
    assert "leads to another file" in reasons[0]
    assert "lie in another file" in reasons[1]
    with h5py.File(path, "a") as file:
        del file["good"], file["same"]
        file["good"] = h5py.ExternalLink(str(other), "/secret")
    with pytest.raises(DataError, match="no object of this file any more"):
        dump.tensor("good", "output", 0).load()


def test_bombs_and_claims(tmp_path: Path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        options = {"chunks": (1 << 9, 1 << 9), "compression": "gzip", "fillvalue": 1.0}
        file.create_dataset("bomb", (1 << 14, 1 << 14), "f8", **options)
        file.create_dataset("wide", (1 << 40, 1 << 20), "f8", chunks=(64, 64))
        file["good"] = X
    tracemalloc.start()
    try:
        dump = read_hdf5(path)
        assert [(record.op, record.source is None) for record in dump] == [
            ("bomb", True), ("good", False), ("wide", True),
        ]  # fmt: skip
        assert [("h5repack" in p.reason, "impossible" in p.reason) for p in dump.problems] == [
            (True, False), (False, True),
        ]  # fmt: skip
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


def test_files_that_are_no_hdf5_or_cut(tmp_path: Path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros(10_000)
    raw = path.read_bytes()
    for cut in (0, 4, 8, 100, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:cut])
        with pytest.raises(DataError, match="cannot be opened as HDF5") as caught:
            read_hdf5(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="No such file"):
        read_hdf5(tmp_path / "none.h5")


def test_mark_behind_a_block_of_the_user(tmp_path: Path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["w"] = X
    found = identify(path)
    assert (found.kind.name, found.why) == ("hdf5", "has the HDF5 mark at byte 1024")
    assert read_hdf5(path).records[0].load().tolist() == X.tolist()
    path.write_bytes(b"\x89PNG\r\n\x1a\n" * 200)
    assert identify(path) is None


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_fuzz(tmp_path: Path, version: str):
    with h5py.File(tmp_path / "x.h5", "w", libver=version) as file:
        file["/Add/1/input/self"] = X
        file["/Add/1/input/self"].attrs["DataType"] = np.int32(10)
        file.create_dataset("/Add/1/output/out", data=np.zeros((8, 8)), chunks=(4, 4), compression="gzip")
        file["text"] = "hello"
        file["soft"] = h5py.SoftLink("/text")
    raw = (tmp_path / "x.h5").read_bytes()
    used = [place for place, byte in enumerate(raw) if byte]
    rng = random.Random(13)
    said: list[str] = []
    path = tmp_path / "f.h5"
    ends = time.monotonic() + 0.8
    while time.monotonic() < ends:
        changed = bytearray(raw[: rng.randrange(len(raw))] if rng.random() < 0.1 else raw)
        for _ in range(rng.choice((1, 1, 2, 5))):
            where = rng.choice(used) + rng.choice((0, 0, 1))
            if where < len(changed):
                changed[where] = rng.choice((0, 255, rng.randrange(256)))
        path.write_bytes(changed)
        try:
            for record in read_hdf5(path):
                if record.source:
                    assert record.load().shape == record.shape
        except DataError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in text for text in said)

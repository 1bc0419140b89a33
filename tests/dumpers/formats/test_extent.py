"""Tensors opened in place hold the very bytes that loading gives, or are not opened."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.extent import open_tensor
from dumpers.formats.npy import NpySource, write_npy
from dumpers.formats.npz import read_npz
from dumpers.formats.raw import RawSource

ARRAYS = {
    "float32": np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5),
    "int64": np.arange(7),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 4), np.float16),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j, 3]),
    "column vector": np.asfortranarray(np.arange(5.0).reshape(5, 1)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_bytes_in_place_are_those_of_the_loaded_array(name: str, tmp_path: Path) -> None:
    source = NpySource(tmp_path / "x.npy")
    np.save(source.path, ARRAYS[name])
    loaded = source.load()
    with open_tensor(source) as found:
        assert (found.dtype, found.shape, found.count) == (loaded.dtype, loaded.shape, loaded.size)
        assert os.pread(found.fd, found.nbytes + 1, found.offset) == loaded.tobytes()


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype=">f4"), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([b"ab"])]
)
def test_what_is_not_plain_has_to_be_loaded(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert open_tensor(NpySource(tmp_path / "x.npy")) is None
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_declared_bfloat16(tmp_path: Path) -> None:
    values = np.array([1, -2.5], ml_dtypes.bfloat16)
    write_npy(tmp_path / "x.npy", values)
    with open_tensor(NpySource(tmp_path / "x.npy", "bfloat16")) as found:
        assert found.dtype == values.dtype
    with pytest.raises(DataError, match="two-byte data of unknown type"):
        open_tensor(NpySource(tmp_path / "x.npy"))


def test_short_npy_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(100))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="cut short"):
        open_tensor(NpySource(path))


def test_raw_bytes_at_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    values = np.arange(4, dtype=np.int16)
    path.write_bytes(b"head" + values.tobytes())
    with open_tensor(RawSource(path, 4, "int16", (2, 2))) as found:
        assert os.pread(found.fd, found.nbytes, found.offset) == values.tobytes()
        assert found.shape == (2, 2)
    with pytest.raises(DataError, match="ends after 8 of 10 bytes"):
        open_tensor(RawSource(path, 4, "int16", (5,)))
    with pytest.raises(DataError, match="ends after 0 of 2 bytes"):
        open_tensor(RawSource(path, 400, "int16", (1,)))
    with pytest.raises(DataError, match="cannot be read"):
        open_tensor(RawSource(tmp_path, 0, "int16", (1,)))


def test_encoded_elements_have_to_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(4))
    assert open_tensor(RawSource(tmp_path / "x.bin", 0, "int4", (8,))) is None


def test_members_of_an_archive_have_to_be_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    (record,) = read_npz(tmp_path / "x.npz")
    assert open_tensor(record.source) is None

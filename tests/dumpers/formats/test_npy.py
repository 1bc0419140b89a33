"""npy files: every encoding, every lie a header can tell."""

from __future__ import annotations

import contextlib
import io
import pickle
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dumpers.errors import DataError
from dumpers.formats.npy import NpySource, read_npy, read_npy_header, write_npy
from dumpers.formats.npy_dir import read_plain_dir
from dumpers.records import TensorRecord

DTYPES = ["float16", "float32", "float64", "int8", "int64", "uint8", "uint16", "bool", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (2, 3, 4)])
def test_numpy_reads_what_we_write_and_we_read_what_numpy_writes(tmp_path: Path, dtype: str, shape: tuple[int, ...]):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    write_npy(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    for name in ("a.npy", "b.npy"):
        got = read_npy(tmp_path / name)
        np.testing.assert_array_equal(got, array, strict=True)
        assert read_npy_header(tmp_path / name).dtype == dtype
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy", allow_pickle=False), array, strict=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)))
def test_round_trip_keeps_every_bit(tmp_path: Path, array: np.ndarray):
    write_npy(tmp_path / "x.npy", array)
    got = read_npy(tmp_path / "x.npy")
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.tobytes() == array.tobytes()
    assert not got.flags.writeable


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
def test_byte_order_and_memory_order(tmp_path: Path, order: str, endian: str):
    array = np.arange(24, dtype=f"{endian}f4").reshape(2, 3, 4, order=order)
    np.save(tmp_path / "x.npy", array)
    got = read_npy(tmp_path / "x.npy")
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_format_versions(tmp_path: Path, version: tuple[int, int]):
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, np.arange(5), version=version)
    assert read_npy(tmp_path / "x.npy").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_small_floats_are_raw_bytes_with_a_dtype_from_outside(tmp_path: Path, dtype: str):
    array = np.array([[1, -2.5, np.inf if dtype != "float8_e4m3fn" else 0, 0.125]]).astype(getattr(ml_dtypes, dtype))
    write_npy(tmp_path / "x.npy", array)
    got = read_npy(tmp_path / "x.npy", dtype)
    assert got.dtype == array.dtype
    assert got.tobytes() == array.tobytes()
    with pytest.raises(DataError, match="byte data of unknown type"):
        read_npy(tmp_path / "x.npy")


def test_bfloat16_labelled_float16_is_reinterpreted_only_on_request(tmp_path: Path):
    bits = np.array([1, -2.5]).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", bits.view(np.float16))
    assert read_npy(tmp_path / "x.npy", "bfloat16").astype(float).tolist() == [1, -2.5]
    assert read_npy(tmp_path / "x.npy").dtype == np.float16


def test_a_wrong_promise_is_an_error(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="not int32"):
        read_npy(tmp_path / "x.npy", "int32")
    with pytest.raises(DataError, match=r"has shape \(2, 3\), its index says \(3, 2\)"):
        NpySource(tmp_path / "x.npy", None, (3, 2)).load()


def test_source_is_lazy_and_survives_pickling(tmp_path: Path):
    source = NpySource(tmp_path / "later.npy")
    write_npy(tmp_path / "later.npy", np.arange(3))
    record = TensorRecord("op", "", "output", 0, "int64", (3,), pickle.loads(pickle.dumps(source)))
    assert record.load().tolist() == [0, 1, 2]


def test_python_objects_are_never_unpickled(tmp_path: Path):
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return (open, (str(marker), "w"))

    np.save(tmp_path / "evil.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="holds Python objects"):
        read_npy(tmp_path / "evil.npy")
    assert not marker.exists()
    with pytest.raises(ValueError, match="Python objects"):
        write_npy(tmp_path / "no.npy", np.array([object()]))
    assert not (tmp_path / "no.npy").exists()


def header(text: str, data: bytes = b"") -> bytes:
    raw = text.encode()
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an npy file"),
        (b"not an npy at all", "not an npy file"),
        (b"\x93NUMPY\x09\x00\x10\x00", "version 9.0"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "negative"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}"), "damaged"),
        (header("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", b"1234"), "order 0"),
        (header("{'descr': '<f4', 'shape': (1,)}", b"1234"), "lacks descr"),
        (header("__import__('os').system('true')"), "cannot be read"),
        (header("(" * 3000), "cannot be read"),
        (header("{'descr': '<q9', 'fortran_order': False, 'shape': (1,)}", b"1234"), "unknown npy type"),
        (header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "not that of a tensor"),
        (header("{'descr': [('a','<f4')], 'fortran_order': False, 'shape': (1,)}", b"1234"), "structured"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 16)}"), "impossible"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'descr': '<f8'}", b"12345678"), "twice"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", b"1234"), "more than these"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}", b"1234"), "damaged"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", b"1234"), "damaged"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (9" + "0" * 4000 + ",)}"), "impossible"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-9" + "0" * 4000 + ",)}"), "negative"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (9" + "0" * 9000 + ",)}"), "cannot be read"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 90 + ")}", b"1234"), "impossible"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 40 + ")}", b"1234"), "40 dimensions"),
        (header("{'descr': '<U999999999', 'fortran_order': False, 'shape': (1,)}"), "unknown npy type"),
        (header("{'descr': 'V99999999999', 'fortran_order': False, 'shape': (1,)}"), "unknown npy type"),
        (header("{'descr': '<U0', 'fortran_order': False, 'shape': (1,)}"), "not that of a tensor"),
        (header("{'descr': '<m8[ns]', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "not that of a tensor"),
        (header("{'descr': 'f4,f4', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "unknown npy type"),
        (header("{'descr': '(2,)f4', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "unknown npy type"),
        (header("{'descr': 'bfloat16', 'fortran_order': False, 'shape': (1,)}", b"12"), "unknown npy type"),
        (header("{'descr': '\\d', 'fortran_order': False, 'shape': (1,)}", b"12"), "cannot be read"),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "holds Python objects"),
        (header("-" * 60000 + "1"), "cannot be read"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 99, "claims a header of 4294967295 bytes"),
    ],
)
def test_lies_are_refused_with_the_file_named(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "bad.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_npy(path)
    assert str(path) in str(caught.value)


def test_text_has_no_numbers_but_keeps_its_bytes(tmp_path: Path):
    for array in (np.array(["a", "bc"]), np.array([b"ab", b"c"])):
        np.save(tmp_path / "x.npy", array)
        assert read_npy_header(tmp_path / "x.npy").dtype == "string"
        np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), array, strict=True)
        with pytest.raises(DataError, match="holds string, which is not float32"):
            read_npy(tmp_path / "x.npy", "float32")


def test_big_column_major_files_are_mapped(tmp_path: Path):
    array = np.asfortranarray(np.arange(5 << 20, dtype=np.float32).reshape(1 << 10, -1))
    np.save(tmp_path / "x.npy", array)
    tracemalloc.start()
    try:
        got = read_npy(tmp_path / "x.npy")
        assert tracemalloc.get_traced_memory()[1] < array.nbytes * 1.3  # the result, and no second copy
    finally:
        tracemalloc.stop()
    assert got.flags.c_contiguous
    assert not isinstance(got, np.memmap)
    np.testing.assert_array_equal(got, array)
    np.save(tmp_path / "big.npy", array.astype(">f4"))
    np.testing.assert_array_equal(read_npy(tmp_path / "big.npy"), array)


def test_other_files_of_the_folder_are_read(tmp_path: Path, shared_data: Path):
    for path in (shared_data / "field_cases" / "FC31").glob("*.npy"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    np.save(tmp_path / "good.npy", np.arange(3))
    dump = read_plain_dir(tmp_path, sorted(tmp_path.iterdir()))
    assert [record.load().tolist() for record in dump] == [[0, 1, 2]]
    assert [problem.path.name for problem in dump.problems] == [
        "cut_short.npy", "declares_40_gigabytes.npy", "declares_8_exabytes.npy", "header_length_4g.npy",
    ]  # fmt: skip


def test_old_python_wrote_long_integers(tmp_path: Path):
    (tmp_path / "x.npy").write_bytes(header("{'descr': '<i2', 'fortran_order': False, 'shape': (2L,)}", b"\1\0\2\0"))
    assert read_npy(tmp_path / "x.npy").tolist() == [1, 2]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 200), st.binary(min_size=1, max_size=4), st.integers(0, 152))
def test_damaged_files_give_an_array_or_a_data_error(tmp_path: Path, where: int, patch: bytes, keep: int):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6, dtype=np.float32))
    raw = bytearray(buffer.getvalue()[:keep] if keep < 140 else buffer.getvalue())
    raw[where : where + len(patch)] = patch
    (tmp_path / "x.npy").write_bytes(raw)
    with contextlib.suppress(DataError):
        read_npy(tmp_path / "x.npy")


def test_missing_file(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read"):
        read_npy(tmp_path / "none.npy")


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_npy(tmp_path / "x.npy", np.arange(2))

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space"):
        write_npy(tmp_path / "x.npy", np.arange(5))
    monkeypatch.undo()
    assert read_npy(tmp_path / "x.npy").tolist() == [0, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]


# field cases


def test_fc14_encodings(shared_data: Path):
    folder = shared_data / "field_cases" / "FC14"
    reference = read_npy(folder / "reference.npy")
    for name in ("big_endian", "fortran"):
        np.testing.assert_array_equal(read_npy(folder / f"{name}.npy"), reference, strict=True)
    assert reference.shape == (2, 3)
    values = read_npy(folder / "bf16_void.npy", "bfloat16").astype(np.float64)
    assert values.tolist() == [1, -2.5, 3.140625, 65536, 0.00099945068359375]
    with pytest.raises(DataError, match="two-byte data of unknown type"):
        read_npy(folder / "bf16_void.npy")


def test_fc31_claims_are_checked_before_memory_is_taken(shared_data: Path):
    tracemalloc.start()
    try:
        for path in sorted((shared_data / "field_cases" / "FC31").glob("*.npy")):
            with pytest.raises(DataError, match="claims") as caught:
                read_npy(path)
            assert path.name in str(caught.value)
            assert "the file ha" in str(caught.value) or "the file holds" in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


def test_fc12_shapes(shared_data: Path):
    folder = shared_data / "field_cases" / "FC12"
    assert read_npy(folder / "both_empty.left.npy").shape == (0, 4)
    assert read_npy(folder / "scalar.left.npy").shape == ()
    assert read_npy(folder / "scalar.right.npy").shape == (1,)
    assert read_npy(folder / "transposed.left.npy").shape == (2, 3)


def test_real_files(shared_data: Path):
    folder = shared_data / "npu_samples" / "npy"
    assert read_npy(folder / "2_3_input.npy").tolist() == [[1, 2, 3], [1, 2, 3]]
    assert read_npy_header(folder / "2_3_input.npy").dtype == "float32"
    with pytest.raises(DataError, match="holds Python objects"):
        read_npy(folder / "det1.npy")


def test_big_endian_data_labelled_float16_that_are_bfloat16(tmp_path: Path):
    values = np.array([1, 2, 3], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", values.view(np.float16).astype(">f2"))
    source = NpySource(tmp_path / "x.npy", "bfloat16")
    assert source.load().tolist() == [1, 2, 3]
    assert source.open() is None, "not in this machine's order, so it cannot be read in place"


def test_long_double_is_no_tensor(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros(3, np.longdouble))
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(DataError, match="not that of a tensor"):
            NpySource(tmp_path / "x.npy").load()

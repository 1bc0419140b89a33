"""Device dump files: what we write, what a device writes, and what is left of a damaged one."""

from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dumpers.errors import DataError
from dumpers.formats.dump_names import parse_converted_name
from dumpers.formats.layouts import load_original
from dumpers.formats.npu_dump import dump_file_name, parse_dump_name, read_npu_dump, write_npu_dump
from dumpers.formats.registry import read_dump
from dumpers.formats.schema import dump_data

DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool", "complex64"]
ARRAYS = hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
NAME = "MatMulV2.net_fc_MatMul.11.3.1706168000000002"


def write(path: Path, inputs: list, outputs: list) -> Path:
    write_npu_dump(path, op_name="net/fc/MatMul", inputs=inputs, outputs=outputs, dump_time_us=1706168000000002)
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ARRAYS, max_size=3), st.lists(ARRAYS, max_size=3))
def test_round_trip(tmp_path: Path, inputs: list, outputs: list):
    found = read_npu_dump(write(tmp_path / NAME, inputs, outputs))
    assert (found.op_name, found.dump_time, found.problems) == ("net/fc/MatMul", 1706168000000002, ())
    for io, arrays, records in (("input", inputs, found.inputs), ("output", outputs, found.outputs)):
        assert len(records) == len(arrays)
        for slot, (array, record) in enumerate(zip(arrays, records, strict=True)):
            got = record.load()
            assert (record.io, record.slot, record.dtype, record.shape) == (io, slot, array.dtype.name, array.shape)
            assert got.tobytes() == array.tobytes()
            assert got.shape == array.shape


def test_fields_of_the_name_and_types_of_ml_dtypes(tmp_path: Path):
    arrays = [np.array([1, -2.5]).astype(getattr(ml_dtypes, n)) for n in ("bfloat16", "float8_e5m2", "float8_e4m3fn")]
    found = read_npu_dump(write(tmp_path / NAME, [], arrays), step=4)
    for array, record in zip(arrays, found.outputs, strict=True):
        assert record.dtype == array.dtype.name
        assert record.load().tobytes() == array.tobytes()
        assert (record.op, record.op_type, record.step) == ("net/fc/MatMul", "MatMulV2", 4)
        assert (record.task_id, record.stream_id, record.timestamp_us) == (11, 3, 1706168000000002)
        assert record.format == "ND"


def test_payload_is_padded_as_on_a_device(tmp_path: Path):
    path = write(tmp_path / NAME, [np.arange(9, dtype=np.float32)], [np.float32(1), np.zeros((0, 4), np.int8)])
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = dump_data()
    header.ParseFromString(raw[8 : 8 + length])
    assert [t.size for t in header.input] == [96]  # 36 -> 64 + 32
    assert [t.size for t in header.output] == [64, 0]
    assert len(raw) == 8 + length + 96 + 64
    assert header.version == b"2.0"
    assert list(header.output[0].shape.dim) == []


def test_same_input_same_bytes_and_strided_or_big_endian_arrays(tmp_path: Path):
    base = np.arange(24, dtype=">f4").reshape(4, 6)
    a = write(tmp_path / "a", [base.T, base[:, ::2]], []).read_bytes()
    b = write(tmp_path / "b", [base.T.astype("<f4"), base[:, ::2].copy()], []).read_bytes()
    assert a == b
    assert np.array_equal(read_npu_dump(tmp_path / "a").inputs[0].load(), base.T)


def test_text_does_not_exist_on_the_device(tmp_path: Path):
    with pytest.raises(ValueError, match="no type"):
        write(tmp_path / "x", [np.array(["a"])], [])
    assert list(tmp_path.iterdir()) == []


def test_only_the_bytes_of_one_tensor_are_read_and_sources_pickle(tmp_path: Path):
    found = read_npu_dump(write(tmp_path / NAME, [np.zeros(1000)], [np.arange(3, dtype=np.int16)]))
    source = pickle.loads(pickle.dumps(found.outputs[0].source))
    assert source.load().tolist() == [0, 1, 2]
    assert source.offset > 8000
    (tmp_path / NAME).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        found.outputs[0].load()


def test_truncated_file_keeps_the_earlier_tensors(tmp_path: Path):
    path = write(tmp_path / NAME, [np.arange(10, dtype=np.float32)], [np.arange(5, dtype=np.float32), np.arange(3.0)])
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) - 64 - 64 + 12])  # the first output keeps 12 of its 20 bytes
    found = read_npu_dump(path)
    assert found.inputs[0].load().tolist() == list(range(10))
    assert [record.source for record in found.outputs] == [None, None]
    assert [problem.reason.split(":")[0] for problem in found.problems] == ["output 0", "output 1"]
    assert "cut off" in found.problems[0].reason
    assert found.problems[0].path == path
    with pytest.raises(DataError, match="has no value: cut off"):
        found.outputs[0].load()


def test_file_that_ends_inside_the_last_padding_is_whole(tmp_path: Path):
    path = write(tmp_path / NAME, [], [np.arange(5, dtype=np.float32)])
    path.write_bytes(path.read_bytes()[:-40])
    found = read_npu_dump(path)
    assert found.problems == ()
    assert found.outputs[0].load().tolist() == [0, 1, 2, 3, 4]
    assert "padding" in found.outputs[0].note


def test_file_cut_after_listing(tmp_path: Path):
    path = write(tmp_path / NAME, [], [np.arange(500, dtype=np.float32)])
    record = read_npu_dump(path).outputs[0]
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match="ends after"):
        record.load()


def dump(path: Path, build: object, payload: bytes = b"") -> Path:
    header = dump_data()
    build(header)
    raw = header.SerializeToString()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + payload)
    return path


def output(header: object, kind: int, shape: list[int], size: int, **more: int) -> None:
    tensor = header.output.add(data_type=kind, format=2, size=size, **more)
    tensor.shape.SetInParent()
    tensor.shape.dim.extend(shape)


@pytest.mark.parametrize(
    ("kind", "shape", "size", "text"),
    [
        (1, [2**63, 2**63], 64, "impossible"),
        (1, [100], 64, "needs 400 bytes, the header gives it 64"),
        (1, [4], 1 << 60, ""),
        (1, [1 << 40], 1 << 60, "cut off"),
    ],
)
def test_lying_headers(tmp_path: Path, kind: int, shape: list[int], size: int, text: str):
    found = read_npu_dump(dump(tmp_path / NAME, lambda h: output(h, kind, shape, size), b"\0" * 64))
    if text:
        assert text in found.problems[0].reason
        assert found.outputs[0].source is None
    else:
        assert found.outputs[0].load().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "dtype", "note"),
    [
        (13, "string", "no value"),
        (23, "resource", "no value"),
        (25, "dual", "not decoded"),
        (38, "float6_e2m3", "not decoded"),
        (42, "hifloat4_scale", "not decoded"),
        (99, "type_99", "not decoded"),
    ],
)
def test_types_without_values_are_listed(tmp_path: Path, kind: int, dtype: str, note: str):
    record = read_npu_dump(dump(tmp_path / NAME, lambda h: output(h, kind, [2], 64), b"\0" * 64)).outputs[0]
    assert (record.dtype, record.source, record.shape) == (dtype, None, (2,))
    assert note in record.note


@pytest.mark.parametrize(
    ("kind", "stored", "values", "note"),
    [
        (18, [255, 2], [-1, 2], "stored as qint8"),
        (28, [0xF1, 0x72], [1, -1, 2, 7], "stored as int4"),
        (30, [0b11100100], [0, 1, -2, -1], "stored as int2 (an old schema has this number for uint1)"),
        (31, [0b11100100], [0, 1, 2, 3], "stored as uint2"),
        (32, [0, 0x3C, 0, 0xC0], [1 - 2j], "stored as complex32"),
        (36, [127, 128, 0], [1, 2, 2.0**-127], "stored as float8_e8m0fnu"),
        (39, [0x9F], [-6, -0.5], "stored as float4_e2m1"),
    ],
)
def test_rare_types(tmp_path: Path, kind: int, stored: list[int], values: list, note: str):
    payload = bytes(stored).ljust(64, b"\xee")
    found = read_npu_dump(dump(tmp_path / NAME, lambda h: output(h, kind, [len(values)], 64), payload))
    record = found.outputs[0]
    assert (record.load().tolist(), record.note) == (values, note)


def test_number_of_an_old_schema_for_bits(tmp_path: Path):
    # 512 elements: 128 bytes of INT2 (padded 160), 64 bytes of bits (padded 96)
    for size, dtype in ((160, "int8"), (96, "uint8")):
        found = read_npu_dump(dump(tmp_path / NAME, lambda h, size=size: output(h, 30, [512], size), b"\1" * size))
        assert (found.outputs[0].dtype, found.outputs[0].shape, found.problems) == (dtype, (512,), ())


def test_size_zero_was_not_written(tmp_path: Path):
    def build(header: object) -> None:
        output(header, 1, [4], 0)
        output(header, 7, [2], 64)

    found = read_npu_dump(dump(tmp_path / NAME, build, np.array([5, 6], np.int32).tobytes() + b"\xee" * 56))
    assert "size 0" in found.outputs[0].note
    assert found.problems == ()
    assert found.outputs[1].load().tolist() == [5, 6]


def test_format_with_group_count(tmp_path: Path):
    def build(header: object) -> None:
        output(header, 1, [1], 64)
        header.output[0].format = 4 | 3 << 8
        output(header, 1, [1], 64, sub_format=5)

    found = read_npu_dump(dump(tmp_path / NAME, build, b"\0" * 128))
    assert found.outputs[0].format == "FRACTAL_Z"
    assert found.outputs[0].source.groups == 3
    assert found.outputs[1].source.groups == 5


@pytest.mark.parametrize(("count", "size", "shape"), [(64, 96, (512,)), (512, 96, (512,)), (2, 64, (16,))])
def test_packed_bits_count_bytes_or_bits_as_the_size_tells(tmp_path: Path, count: int, size: int, shape: tuple):
    found = read_npu_dump(dump(tmp_path / NAME, lambda h: output(h, 29, [count], size), b"\x01" * size))
    assert found.outputs[0].shape == shape
    assert found.outputs[0].load().sum() == shape[0] // 8


def test_attributes_buffers_and_unknown_fields(tmp_path: Path):
    def build(header: object) -> None:
        output(header, 7, [1], 64)
        header.attr.add(name=b"slice", value=b'{"threadMode":1}')
        header.buffer.add(buffer_type=0, size=32)
        header.space.add(type=0, size=16)

    path = dump(tmp_path / NAME, build)
    raw = path.read_bytes()
    extra = b"\xa2\x06\x03abc" + b"\xa9\x06" + b"\0" * 8  # fields 100 and 101, which no schema has
    head = raw[8:] + extra
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\x07\0\0\0" + b"\0" * 108)
    found = read_npu_dump(path)
    assert found.attrs == {"slice": '{"threadMode":1}'}
    assert [(b.name, b.size) for b in found.buffers] == [("l1buffer", 32), ("space", 16)]
    assert found.buffers[1].offset + 16 == path.stat().st_size
    assert found.outputs[0].load().tolist() == [7]


def test_very_old_form_has_the_bytes_inside(tmp_path: Path):
    header = dump_data()
    header.version = b"1.0"
    one = header.input.add(data_type=7, format=2, data=np.array([1, 2], np.int32).tobytes())
    one.shape.dim.extend([2])
    two = header.output.add(data_type=1, format=2, data=np.array([0.5, 1.5], np.float32).tobytes())
    two.shape.dim.extend([2])
    path = tmp_path / NAME
    path.write_bytes(header.SerializeToString())
    found = read_npu_dump(path)
    assert found.inputs[0].load().tolist() == [1, 2]
    assert found.outputs[0].load().tolist() == [0.5, 1.5]


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64, b"\x10" + b"\0" * 200, bytes(range(256)) * 4])
def test_files_that_are_no_dump(tmp_path: Path, content: bytes):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=NAME):
        read_npu_dump(tmp_path / NAME)


def test_nano_dump_is_named(tmp_path: Path):
    (tmp_path / NAME).write_bytes((16).to_bytes(8, "little") + b"\x5a\x5a\x5a\x5a" + b"\0" * 32)
    with pytest.raises(DataError, match="nano"):
        read_npu_dump(tmp_path / NAME)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 110), st.binary(min_size=1, max_size=4))
def test_damaged_bytes_never_crash_the_reader(tmp_path: Path, where: int, patch: bytes):
    path = write(tmp_path / NAME, [np.arange(6, dtype=np.float32)], [np.arange(2)])
    raw = bytearray(path.read_bytes())
    raw[where : where + len(patch)] = patch
    path.write_bytes(raw)
    try:
        found = read_npu_dump(path)
    except DataError:
        return
    for record in (*found.inputs, *found.outputs):
        if record.source:
            assert record.load().shape == record.shape


def test_file_name():
    name = dump_file_name("MatMulV2", "net/fc.1/MatMul", 11, 3, 1706168000000002)
    assert name == "MatMulV2.net_fc_1_MatMul.11.3.1706168000000002"
    assert parse_dump_name(name).op_name == "net_fc_1_MatMul"


# the derived samples, converted by the public program


def test_values_equal_those_of_the_public_converter(shared_data: Path):
    derived = shared_data / "npu_samples" / "derived"
    converted = {
        "dumps": "dumps_expected",
        "vae_compare/npu/20240125153144/0/hh_om_0/1/0": "vae_compare/expected_convert",
    }
    for dumps, expected in converted.items():
        right = {file.name: np.load(file) for file in (derived / expected).glob("*.[0-9].npy")}
        assert right
        for path in sorted((derived / dumps).iterdir()):
            found = read_npu_dump(path)
            assert found.problems == ()
            for record in (*found.inputs, *found.outputs):
                array = right.pop(f"{path.name}.{record.io}.{record.slot}.npy", None)
                if array is not None:
                    got = record.load()
                    assert got.shape == array.shape or (got.shape == () and array.shape == (1,))
                    wide = np.complex128 if array.dtype.kind == "c" else np.float64
                    np.testing.assert_array_equal(got.astype(wide).reshape(array.shape), array.astype(wide))
        assert not right, "converted files without a counterpart"


def test_odd_dtypes(shared_data: Path):
    path = shared_data / "npu_samples/derived/dumps/Custom.odd_dtypes.13.3.1706168000000004"
    found = read_npu_dump(path)
    values = [record.load().astype(complex if record.dtype == "complex64" else float) for record in found.inputs]
    expected = [0, 1, -2.5, 65536, float(ml_dtypes.bfloat16(1e-3)), np.inf, -np.inf, np.nan]
    np.testing.assert_array_equal(values[0], expected)
    assert values[2].tolist() == [-1, 2**40]
    assert values[4].tolist() == [1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]  # bytes B1 01
    low = [record.load().astype(float) for record in found.outputs]
    hif8 = [0, 1, 1.5, 2, 0.5, 4, 16, 256, np.inf, np.nan, -np.inf, 2**-22, 2**-16, -1]
    np.testing.assert_array_equal(low[0], hif8)
    np.testing.assert_array_equal(low[1], [0, 1, -1, 57344, np.inf, -np.inf, np.nan, 2**-16])
    np.testing.assert_array_equal(low[2], [0, 1, -1, 448, np.nan, np.nan, 2**-9, 2**-6])


def test_edge_shapes(shared_data: Path):
    found = read_npu_dump(shared_data / "npu_samples/derived/dumps/Identity.edge_shapes.14.3.1706168000000005")
    assert found.inputs[0].load().shape == (0, 4)
    assert found.inputs[1].load().shape == ()
    assert found.inputs[1].load() == np.float32(3.5)
    assert (found.outputs[0].dtype, found.outputs[0].shape) == ("int8", (8,))


def test_padding_never_appears(shared_data: Path):
    folder = shared_data / "npu_samples/derived/vae_compare/npu/20240125153144/0/hh_om_0/1/0"
    for path in folder.iterdir():
        found = read_npu_dump(path)
        for record in (*found.inputs, *found.outputs):
            assert b"\xee" * 16 not in record.load().tobytes()


def test_layouts_equal_those_of_the_public_converter(shared_data: Path):
    derived = shared_data / "npu_samples/derived"
    files = sorted((derived / "dumps_expected").glob("*x*.npy"))
    assert len(files) == 4
    for file in files:
        name = parse_converted_name(file.name)
        found = read_npu_dump(derived / "dumps" / file.name.split(f".{name.io}.")[0])
        record = (found.inputs if name.io == "input" else found.outputs)[name.slot]
        assert name.shape == np.load(file).shape
        np.testing.assert_array_equal(load_original(record), np.load(file))


def test_scaled_output_and_missing_op_of_the_second_run(shared_data: Path):
    derived = shared_data / "npu_samples/derived/vae_compare"
    first, second = read_dump(derived / "npu"), read_dump(derived / "npu_debug_1")
    assert [len({record.op for record in dump}) for dump in (first, second)] == [6, 5]
    assert {record.op for record in first} - {record.op for record in second} == {"random_normal"}
    scaled = second.tensor("random_normal_mul", "output", 0).load()
    right = first.tensor("random_normal_mul", "output", 0).load().astype(np.float32) * np.float32(1.5)
    np.testing.assert_array_equal(scaled, right.astype(scaled.dtype), strict=True)


def test_op_that_the_overflow_records_point_at(shared_data: Path):
    path = shared_data / "npu_samples/derived/dumps/TransData.trans_TransData_1170.327.8.1706168000000007"
    found = read_npu_dump(path)
    assert (found.outputs[0].task_id, found.outputs[0].stream_id, found.outputs[0].dtype) == (327, 8, "float16")
    assert np.isinf(found.outputs[0].load()).any()

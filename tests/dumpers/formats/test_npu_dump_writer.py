"""What is written reads back: types, layouts, sizes, buffers, names that are too long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dumpers.formats.dump_names import MAPPING_FILE, full_name, parse_dump_name, read_mapping
from dumpers.formats.enums import DUMP_NUMBER_OF, FORMAT_NUMBER_OF
from dumpers.formats.layouts import from_original, load_original
from dumpers.formats.lowfloat import decode, decoded_dtype, encode, stored_bytes
from dumpers.formats.npu_dump import (
    HeaderExtras,
    TensorSpec,
    buffer_blocks,
    dump_file_name,
    read_npu_dump,
    short_file_name,
    write_npu_dump,
)
from dumpers.formats.registry import read_dump

NAME = "Conv2D.net_conv.11.3.1706168000000002"
TIME = 1706168000000002
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def readable(dtype: str) -> bool:
    try:
        decoded_dtype(dtype)
    except ValueError:
        return False
    return True


ENCODINGS = sorted(dtype for dtype in DUMP_NUMBER_OF if readable(dtype))


def round_trip(path: Path, *specs: TensorSpec, extras: HeaderExtras | None = None) -> object:
    write_npu_dump(path, op_name="net/conv", inputs=[], outputs=specs, dump_time_us=TIME, extras=extras)
    found = read_npu_dump(path)
    assert found.problems == ()
    return found


@SLOW
@given(st.data())
def test_every_encoding_and_shape(tmp_path: Path, data: st.DataObject):
    dtype = data.draw(st.sampled_from(ENCODINGS))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=5))
    count = int(np.prod(shape, dtype=int))
    raw = data.draw(hnp.arrays(np.uint8, stored_bytes(dtype, count)))
    if dtype == "bool":
        raw &= 1
    values = decode(raw, dtype, count).reshape(shape)
    record = round_trip(tmp_path / NAME, TensorSpec(values, dtype)).outputs[0]
    assert (record.dtype, record.shape) == (decoded_dtype(dtype), tuple(shape))
    got = record.load()
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values, strict=True)


LAYOUTS = {
    "NC1HWC0": ("NCHW", "NHWC"),
    "FRACTAL_Z": ("NCHW", "HWCN"),
    "NDC1HWC0": ("NCDHW", "NDHWC"),
    "FRACTAL_NZ": ("ND",),
    "FRACTAL_ZZ": ("ND",),
    "NC1HWC0_C04": ("NCHW", "NHWC"),
    "FRACTAL_Z_3D": ("NCDHW", "DHWCN"),
    "C1HWNC0": ("NCHW", "HWCN"),
    "NHWC1C0": ("NHWC", "NCHW"),
    "C1HWNCoC0": ("HWCN", "NCHW"),
}
"""Layouts whose original shape and axes leave one reading; the recurrent ones need the number of gates besides."""


@SLOW
@given(st.data())
def test_layouts(tmp_path: Path, data: st.DataObject):
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    plain = data.draw(st.sampled_from(LAYOUTS[layout]))
    rank = data.draw(st.integers(2, 4)) if plain == "ND" else len(plain)
    shape = tuple(data.draw(st.lists(st.integers(1, 20), min_size=rank, max_size=rank)))
    dtype = np.dtype(data.draw(st.sampled_from(["float16", "float32", "int8"])))
    array = (np.arange(np.prod(shape)) % 120).astype(dtype).reshape(shape)
    stored = from_original(array, layout, original_format=plain)
    found = round_trip(tmp_path / NAME, TensorSpec(stored, format=layout, original_shape=shape))
    record = found.outputs[0]
    assert (record.format, record.shape) == (layout, stored.shape)
    assert record.original_shape == (shape if shape != stored.shape else None)
    from dataclasses import replace

    known = replace(record, source=replace(record.source, layout=plain))
    np.testing.assert_array_equal(load_original(known), array, strict=True)


def test_all_options_of_a_tensor(tmp_path: Path):
    array = np.arange(6, dtype=np.float32)
    found = round_trip(
        tmp_path / NAME,
        TensorSpec(array, format="FRACTAL_Z", original_shape=(2, 3), groups=3, address=0x40, size=24),
        TensorSpec(array, size=0),
        TensorSpec(array, size=100),
        extras=HeaderExtras({"b": "2", "a": "1"}, [b"one", b""], [b"workspace"], "dfx"),
    )
    first, second, third = found.outputs
    assert (first.format, first.original_shape, first.source.groups) == ("FRACTAL_Z", (2, 3), 3)
    assert [tensor.address for tensor in found.output_fields] == [0x40, 0, 0]
    assert [tensor.size for tensor in found.output_fields] == [24, 0, 100]
    assert (second.source, third.load().tolist()) == (None, array.tolist())
    assert (found.attrs, found.dfx_message) == ({"a": "1", "b": "2"}, "dfx")
    contents = [b"".join(buffer_blocks(found.path, buffer)) for buffer in found.buffers]
    assert contents == [b"one", b"", b"workspace"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TensorSpec(np.zeros(4), size=8), "32 bytes do not fit"),
        (TensorSpec(np.zeros(4), format="NCWH"), "no format NCWH"),
        (TensorSpec(np.zeros(4), "float128"), "no type for float128"),
        (TensorSpec(np.array(["a"])), "no type for"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, spec: TensorSpec, text: str):
    with pytest.raises(ValueError, match=text):
        round_trip(tmp_path / NAME, spec)
    assert list(tmp_path.iterdir()) == []


def test_formats_of_the_enum_come_back(tmp_path: Path):
    names = sorted(FORMAT_NUMBER_OF)
    specs = [TensorSpec(np.zeros(1, np.int8), format=name) for name in names]
    assert [record.format for record in round_trip(tmp_path / NAME, *specs).outputs] == names


LETTERS = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), min_size=1, max_size=12)


@SLOW
@given(st.lists(st.one_of(LETTERS, st.just("/"), st.just("."), st.just("ä" * 60), st.just('"'), st.just(","))))
def test_op_names_of_any_kind_come_back(tmp_path: Path, parts: list[str]):
    folder = tmp_path / "leaf"
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    op = "n" + "".join(parts)
    long = dump_file_name("Conv2D", op, 11, 3, TIME)
    name = short_file_name(folder, long)
    assert len(name.encode()) <= 255
    write_npu_dump(folder / name, op_name=op, inputs=[], outputs=[np.float32(1)], dump_time_us=TIME)
    (record,) = read_dump(folder)
    assert (record.op, record.op_type, record.task_id, record.timestamp_us) == (op, "Conv2D", 11, TIME)


def test_long_names(tmp_path: Path):
    names = [dump_file_name("Conv2D", f"{'scope/' * 60}conv_{number}", 1, 2, TIME) for number in range(3)]
    short = [short_file_name(tmp_path, name) for name in names]
    assert [short_file_name(tmp_path, name) for name in reversed(names)] == short[::-1]
    assert all(name.isdigit() for name in short)
    assert len(set(short)) == 3
    mapping = read_mapping(tmp_path)
    assert [full_name(name, mapping) for name in short] == names
    assert parse_dump_name(full_name(short[1], mapping)).op_name.endswith("conv_1")
    assert (tmp_path / MAPPING_FILE).read_text().splitlines() == sorted(
        f"{s},{n}" for s, n in zip(short, names, strict=True)
    )
    assert short_file_name(tmp_path, NAME) == NAME


def test_same_digits_of_two_names_are_kept_apart(tmp_path: Path):
    name = "Conv2D." + "x" * 300 + f".1.2.{TIME}"
    digits = short_file_name(tmp_path, name)
    (tmp_path / MAPPING_FILE).write_text(f"{digits},Another.name.1.2.3\n")
    assert short_file_name(tmp_path, name) == str(int(digits) + 1)
    assert read_mapping(tmp_path)[digits] == "Another.name.1.2.3"


def test_encode_rounds_as_the_reader_decodes(tmp_path: Path):
    values = np.array([0, 1, -1.5, 448, np.nan], np.float32)
    assert np.array_equal(
        decode(np.asarray(encode(values, "float8_e4m3fn")).view(np.uint8), "float8_e4m3fn", 5).astype(float),
        values,
        equal_nan=True,
    )
    record = round_trip(tmp_path / NAME, TensorSpec(values, "float8_e4m3fn")).outputs[0]
    np.testing.assert_array_equal(record.load().astype(np.float32), values)

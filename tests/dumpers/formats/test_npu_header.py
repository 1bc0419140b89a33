"""Every field of a dump header, the very old form, and headers that lie."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.npu_dump import buffer_blocks, buffer_file_name, read_npu_dump
from dumpers.formats.npu_header import MAX_HEADER_BYTES, OriginalOp, TensorFields, read_header
from dumpers.formats.schema import dump_data

NAME = "Conv2D.net_conv.11.3.1706168000000002"


def write(path: Path, header: object, payload: bytes = b"") -> Path:
    raw = header.SerializeToString()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + payload)
    return path


def full_header() -> object:
    header = dump_data()
    header.version, header.dump_time, header.op_name, header.dfx_message = b"2.0", 77, b"net/conv", b"dfx says"
    one = header.input.add(
        data_type=1, format=0, size=64, sub_format=2, address=0x1000, offset=3, arg_index=4, input_type=5
    )
    one.shape.dim.extend([2])
    one.original_shape.dim.extend([1, 2])
    two = header.output.add(data_type=2, format=3, size=64, sub_format=6, address=0x2000, offset=9)
    two.shape.dim.extend([4])
    two.dim_range.add(start=1, end=8)
    two.dim_range.add(start=0, end=2**63)
    two.original_op.name, two.original_op.output_index = b"net/conv/BiasAdd", 1
    two.original_op.data_type, two.original_op.format = 27, 1
    header.space.add(type=0, size=16, arg_index=8)
    header.buffer.add(buffer_type=0, size=8)
    header.attr.add(name=b"a", value=b"b")
    return header


def test_every_field_is_reachable(tmp_path: Path):
    payload = (
        np.arange(2, dtype=np.float32).tobytes().ljust(64, b"\xee")
        + np.arange(4, dtype=np.float16).tobytes().ljust(64, b"\xee")
        + b"L1BUFFER"
        + b"workspace bytes!"
    )
    found = read_npu_dump(write(tmp_path / NAME, full_header(), payload))
    assert (found.version, found.dump_time, found.op_name, found.dfx_message) == ("2.0", 77, "net/conv", "dfx says")
    assert found.attrs == {"a": "b"}
    assert found.input_fields == (
        TensorFields(1, "float32", "NCHW", 2, 2, (2,), (1, 2), 64, 0x1000, 3, arg_index=4, input_type=5),
    )
    original = OriginalOp("net/conv/BiasAdd", 1, "bfloat16", "NHWC")
    assert found.output_fields == (
        TensorFields(
            2,
            "float16",
            "NC1HWC0",
            6,
            6,
            (4,),
            (),
            64,
            0x2000,
            9,
            dim_range=((1, 8), (0, 2**63)),
            original_op=original,
        ),
    )
    assert found.inputs[0].load().tolist() == [0, 1]
    assert found.outputs[0].load().tolist() == [0, 1, 2, 3]
    assert found.problems == ()
    buffer, space = found.buffers
    assert b"".join(buffer_blocks(found.path, buffer)) == b"L1BUFFER"
    assert b"".join(buffer_blocks(found.path, space)) == b"workspace bytes!"
    assert (space.kind, space.arg_index, buffer.problem) == (0, 8, "")
    assert buffer_file_name(NAME, buffer) == f"{NAME}.l1buffer.0.bin"
    assert buffer_file_name(NAME, space) == f"{NAME}.space.0.bin"


def test_buffers_behind_the_end(tmp_path: Path):
    path = write(tmp_path / NAME, full_header(), b"\0" * 140)
    buffer, space = read_npu_dump(path).buffers
    assert b"".join(buffer_blocks(path, buffer)) == b"\0" * 8
    assert space.problem.startswith("cut off: needs 16 bytes at ")
    with pytest.raises(DataError, match=r"space 0: cut off"):
        list(buffer_blocks(path, space))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"ends 6 bytes before the end of l1buffer 0"):
        list(buffer_blocks(path, buffer))


def test_tensors_without_address_that_the_device_left_out(tmp_path: Path):
    header = dump_data()
    for address, size in ((16, 64), (0, 96), (32, 64)):
        header.output.add(data_type=7, format=2, size=size, address=address).shape.dim.extend([2])
    whole = np.array([1, 2], np.int32).tobytes().ljust(64, b"\xee") + np.array([3, 4], np.int32).tobytes().ljust(64)
    found = read_npu_dump(write(tmp_path / NAME, header, whole))
    assert [record.source and record.load().tolist() for record in found.outputs] == [[1, 2], None, [3, 4]]
    assert "no address" in found.outputs[1].note
    assert found.problems == ()
    # one byte less is no longer that case: the file is cut off, the earlier tensor stays
    found = read_npu_dump(write(tmp_path / NAME, header, whole[:-1]))
    assert [record.source is not None for record in found.outputs] == [True, True, False]
    assert [p.reason.split(":")[0] for p in found.problems] == ["output 2"]
    # where no tensor has an address the schema knew none
    for output in header.output:
        output.address = 0
    assert len(read_npu_dump(write(tmp_path / NAME, header, whole)).problems) == 1


def old_form(padding: int = 0) -> bytes:
    header = dump_data()
    header.version = b"1.0"
    header.op_name = b"old/op"
    one = header.input.add(data_type=7, format=2, data=np.array([1, 2], np.int32).tobytes())
    one.shape.dim.extend([2])
    two = header.output.add(data_type=1, format=2, data=np.array([0.5, 1.5], np.float32).tobytes() + b"\xee" * padding)
    two.shape.dim.extend([2])
    header.buffer.add(buffer_type=0, data=b"buffer")
    return header.SerializeToString()


def test_very_old_form(tmp_path: Path):
    path = tmp_path / NAME
    path.write_bytes(old_form())
    found = read_npu_dump(path)
    assert (found.op_name, found.version) == ("old/op", "1.0")
    assert found.inputs[0].load().tolist() == [1, 2]
    assert found.outputs[0].load().tolist() == [0.5, 1.5]
    assert b"".join(buffer_blocks(path, found.buffers[0])) == b"buffer"
    assert b"buffer" not in found.header  # tensor bytes stay on the disk


@pytest.mark.parametrize("cut", range(1, len(old_form())))
def test_very_old_form_cut_anywhere(tmp_path: Path, cut: int):
    path = tmp_path / NAME
    path.write_bytes(old_form()[:cut])
    try:
        found = read_npu_dump(path)
    except DataError:
        return
    for record in (*found.inputs, *found.outputs):
        assert record.source is None or record.load().shape == record.shape


def test_large_tensors_of_the_old_form_are_not_read(tmp_path: Path):
    path = tmp_path / NAME
    path.write_bytes(old_form(8 << 20))
    header = read_header(path)
    assert len(header.raw) < 200
    assert header.inline["output"][0].size == 8 + (8 << 20)


def test_header_length_beyond_reason(tmp_path: Path):
    path = tmp_path / NAME
    with open(path, "wb") as file:
        file.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
        file.truncate(MAX_HEADER_BYTES + 100)  # a sparse file: the claim fits into it
    with pytest.raises(DataError, match="more than any device writes"):
        read_npu_dump(path)


def test_long_headers_are_read_whole(tmp_path: Path):
    header = full_header()
    header.attr.add(name=b"long", value=b"x" * 50_000)
    found = read_npu_dump(write(tmp_path / NAME, header, b"\0" * 152))
    assert len(found.attrs["long"]) == 50_000
    assert found.problems == ()


def test_what_is_no_regular_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path, text in ((tmp_path / "pipe", "no regular file"), (tmp_path, "directory"), (tmp_path / "x", "No such")):
        with pytest.raises(DataError, match=text):
            read_npu_dump(path)


def test_unknown_numbers_are_listed(tmp_path: Path):
    header = dump_data()
    for number in (99, -1, 2**31 - 1):
        header.output.add(data_type=number, format=200, size=64).shape.dim.extend([2])
    header.output.add(data_type=1, format=2, size=64).shape.dim.extend([1])
    payload = b"\0" * 192 + np.float32(5).tobytes().ljust(64)
    found = read_npu_dump(write(tmp_path / NAME, header, payload))
    assert [record.dtype for record in found.outputs] == ["type_99", "type_-1", "type_2147483647", "float32"]
    assert all(record.source is None and "not decoded" in record.note for record in found.outputs[:3])
    assert found.outputs[0].format == "FORMAT_200"
    assert found.outputs[3].load().tolist() == [5]
    assert found.problems == ()

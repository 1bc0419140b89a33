"""Device dump files from strangers: damaged at every byte of the header, and made to use up memory."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.npu_dump import (
    HeaderExtras,
    TensorSpec,
    buffer_blocks,
    read_npu_dump,
    write_npu_dump,
)
from dumpers.formats.npu_statistics import read_statistics_file
from dumpers.formats.registry import read_dump
from dumpers.formats.schema import dump_data

TIME = 1670205069987340
NAME = f"Conv2D.net_conv_lxslice0.2.9.{TIME}.4.330.0.0"


def sample() -> bytes:
    header = dump_data()
    header.version, header.dump_time, header.op_name = b"2.0", TIME, b"net/conv"
    one = header.input.add(data_type=1, format=3, size=64, sub_format=2, address=1, offset=3, arg_index=4, input_type=5)
    one.shape.dim.extend([2, 3])
    one.original_shape.dim.extend([3, 2])
    two = header.output.add(data_type=29, format=2, size=64, address=2)
    two.shape.dim.extend([16])
    two.dim_range.add(start=1, end=8)
    two.original_op.name = b"net/conv"
    header.buffer.add(buffer_type=0, size=8)
    header.space.add(type=0, size=8)
    cut = {"threadMode": True, "slice_instance_num": 2, "output_tensor_slice": [[[{"lower": 0, "higher": 16}]]] * 2}
    header.attr.add(name=b"i", value=json.dumps(cut).encode())
    raw = header.SerializeToString()
    return len(raw).to_bytes(8, "little") + raw + bytes(range(64)) * 2 + b"\1" * 16


SAMPLE = sample()
HEADER_END = 8 + int.from_bytes(SAMPLE[:8], "little")


def use(path: Path) -> None:
    """Reads all there is; a DataError is an answer, anything else is a fault."""
    try:
        found = read_npu_dump(path)
        assert len(found.input_fields) == len(found.inputs)
        assert len(found.output_fields) == len(found.outputs)
    except DataError:
        return
    for record in (*found.inputs, *found.outputs):
        assert record.source is not None or record.note
        if record.source is not None:
            array = record.load()
            assert (array.shape, array.dtype.name) == (record.shape, record.dtype)
    for buffer in found.buffers:
        if not buffer.problem:
            assert sum(map(len, buffer_blocks(path, buffer))) == buffer.size
    for problem in found.problems:
        assert "\n" not in problem.reason


def test_cut_at_every_byte(tmp_path: Path):
    path = tmp_path / NAME
    for end in range(len(SAMPLE)):
        path.write_bytes(SAMPLE[:end])
        use(path)


def damaged() -> Iterator[bytes]:
    draw = random.Random(7)
    for _ in range(800):
        raw = bytearray(SAMPLE)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(HEADER_END)
            kind = draw.randrange(3)
            if kind == 0:
                raw[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                raw[at] = draw.choice([0, 0x7F, 0x80, 0xFF])
            else:
                raw[at:at] = draw.choice([b"\xff" * 9 + b"\x01", b"\x80" * 4, struct.pack("<Q", draw.getrandbits(64))])
        if draw.randrange(2):
            raw[:8] = (len(raw) - (len(SAMPLE) - HEADER_END) - 8).to_bytes(8, "little")
        yield bytes(raw)


def test_damaged_anywhere(tmp_path: Path):
    path = tmp_path / NAME
    for raw in damaged():
        path.write_bytes(raw)
        use(path)


def test_dims_of_every_size(tmp_path: Path):
    path = tmp_path / NAME
    for dims in ([2**64 - 1], [2**32, 2**32], [2**63, 2], [0, 2**63], [1] * 40, [2**56 // 8], [0] * 33, [2**31] * 8):
        for kind in (0, 1, 11, 13, 17, 28, 29, 30, 32, 33, 40, 99):
            header = dump_data()
            header.output.add(data_type=kind, format=2, size=2**64 - 1).shape.dim.extend(dims)
            raw = header.SerializeToString()
            path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * 200)
            use(path)


def test_the_rest_of_a_folder_is_still_read(tmp_path: Path):
    draw = random.Random(3)
    for number, raw in enumerate(damaged()):
        if number == 60:
            break
        (tmp_path / f"Conv2D.bad{number}.2.9.{TIME + number}").write_bytes(raw[: draw.randrange(len(raw))])
    write_npu_dump(tmp_path / f"Add.good.1.2.{TIME}", op_name="good", inputs=[], outputs=[np.arange(3)], dump_time_us=1)
    found = read_dump(tmp_path)
    assert found.tensor("good", "output", 0).load().tolist() == [0, 1, 2]
    assert len(found.problems) > 30


def test_damaged_statistics(tmp_path: Path):
    draw = random.Random(5)
    text = (
        b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count\n"
        b'Input,0,64,DT_FLOAT16,NC1HWC0,2x3x4,1.5,-2,0.25,24,0\nOutput,1,"64",FLOAT,ND,-,nan,inf,,1,1\n'
    )
    path = tmp_path / f"Add.a.1.2.{TIME}.csv"
    for number in range(len(text) + 300):
        raw = bytearray(text[:number] if number < len(text) else text)
        if number >= len(text):
            for _ in range(draw.randint(1, 5)):
                raw[draw.randrange(len(raw))] = draw.choice(b'\0\n\r",x-9\xff\xc3')
        path.write_bytes(raw)
        try:
            found = read_statistics_file(path)
        except DataError:
            continue
        assert all(record.source is None and record.statistics is not None for record in found.records)


MEASURE = """
import re, sys
from pathlib import Path
from dumpers.errors import DataError
from dumpers.formats.registry import read_dump, read_tensor
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        records = read_tensor(path)
    except DataError:
        records = []
    for record in records:
        if record.source is not None:
            record.load()
try:
    for record in read_dump(Path(sys.argv[1])):
        if record.source is not None:
            record.load()
except DataError:
    pass
peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss begins with the parent's
print(int(peak[1]) // 1024)
"""


def bombs() -> Iterator[bytes]:
    """Files of about a kibibyte whose claims would fill memory."""

    def current(raw: bytes, tail: int = 200) -> bytes:
        return len(raw).to_bytes(8, "little") + raw + b"\0" * tail

    for kind in (1, 17, 28, 29, 31, 40):
        for dims in ([2**40], [2**20, 2**20], [0, 2**50]):
            header = dump_data()
            header.output.add(data_type=kind, format=2, size=2**50).shape.dim.extend(dims)
            yield current(header.SerializeToString())
    yield current(b"\x1a\x00" * 450)  # hundreds of empty outputs
    yield current(b"\x1b" * 900)  # groups in groups
    yield current(b"\xfb\x06" * 450)  # the same with a number that no schema has
    yield (2**63).to_bytes(8, "little") + b"\0" * 900
    yield b"\x0a\xff\xff\xff\xff\x0f" + b"\0" * 900
    yield b"\x1a\x02\x2a\x00" * 220  # very old form, no bytes in it
    deep = HeaderExtras({"a": '{"threadMode":1,"slice_instance_num":1024,"output_tensor_slice":' + "[" * 700})
    header = dump_data()
    header.attr.add(name=b"a", value=deep.attrs["a"].encode())
    yield current(header.SerializeToString())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory(tmp_path: Path, project_root: Path):
    for number, raw in enumerate(bombs()):
        assert len(raw) < 1200
        (tmp_path / f"Conv2D.a_lxslice{number}.{number}.9.{TIME}").write_bytes(raw)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        cwd=project_root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert int(done.stdout) < 200, done.stdout


def test_more_tensors_than_any_op_has(tmp_path: Path):
    path = tmp_path / NAME
    for raw in (b"\x1a\x00" * 70_000, b"\x1a\x04\x2a\x02ab" * 70_000):
        path.write_bytes(len(raw).to_bytes(8, "little") + raw)
        with pytest.raises(DataError, match="more than any op"):
            read_npu_dump(path)
    path.write_bytes(b"\x1a\x04\x2a\x02ab" * 70_000)  # very old form
    with pytest.raises(DataError, match="is not a dump file"):
        read_npu_dump(path)


def test_hundreds_of_slices_that_overlap_are_told_in_time(tmp_path: Path):
    count = 200
    box = [[[{"lower": 0, "higher": 1}, {"lower": 0, "higher": 1}]]] * count
    cut = {
        "threadMode": True,
        "slice_instance_num": count,
        "output_tensor_slice": [*box[:-1], [[{"lower": 0, "higher": 1}, {"lower": count - 1, "higher": count}]]],
    }
    for index in range(count):
        write_npu_dump(
            tmp_path / f"Conv2D.a.1.2.{TIME + index}.4.1.{index}.0",
            op_name="",
            inputs=[],
            outputs=[TensorSpec(np.zeros((1, 1), np.int8))],
            dump_time_us=1,
            extras=HeaderExtras({"i": json.dumps(cut)}),
        )
    found = read_dump(tmp_path)
    assert len(found) == count
    assert "overlap" in found.problems[0].reason

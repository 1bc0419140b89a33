"""Errors about binary files say at which byte: the place of known damage, and an offset in every reader's message."""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path

import pytest

from dumpers.errors import DataError
from dumpers.formats.checkpoint import find_checkpoint, read_checkpoint
from dumpers.formats.damage import broken_at
from dumpers.formats.event_file import read_scalars
from dumpers.formats.ge_model import om_constants
from dumpers.formats.hdf5 import read_hdf5
from dumpers.formats.npu_dump import read_npu_dump
from dumpers.formats.npz import read_npz
from dumpers.formats.overflow import read_overflow
from dumpers.formats.registry import read_dump, read_graph, read_tensor
from dumpers.formats.schema import dump_data, tf_message
from dumpers.formats.tfdbg_event import read_tensor_event
from dumpers.formats.torch_file import read_torch_file


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (field(1, b"2.0") + b"\x1a\x7fshort", "at byte 5"),  # an output longer than the file
        (field(1, b"2.0") + field(3, b"\x08\x01" + b"\x1a\x05\x0a"), "at byte 9"),  # a shape longer than its output
        (field(1, b"2.0") + field(3, field(3, b"\x08" + b"\xff" * 11)), "at byte 9"),  # a number of twelve bytes
        (field(6, b"op") + b"\x07", "at byte 4"),  # wire type 7
        (field(6, b"op") + b"\x00\x00", "at byte 4"),  # field 0
        (field(3, field(3, field(1, b"\xff\xff"))), "before byte 8"),  # numbers in a packed list
    ],
)
def test_the_innermost_broken_field_is_named(raw: bytes, where: str):
    message = dump_data()
    with pytest.raises(Exception, match=r"."):
        message.ParseFromString(raw)
    assert broken_at(raw, len(raw), message) == where
    number = int(where.rsplit(maxsplit=1)[-1])
    assert broken_at(raw, len(raw), message, base=100) == where.replace(str(number), str(100 + number))


def test_nesting_and_number_of_fields_are_bounded(monkeypatch: pytest.MonkeyPatch):
    raw = b""
    for _ in range(3000):
        raw = b"\x0a" + varint(len(raw)) + raw  # an attribute value that is a list of lists ...
    where = broken_at(raw, len(raw), tf_message("GraphDef"))
    assert re.fullmatch(r"(at|before|behind) byte \d+", where)
    monkeypatch.setattr("dumpers.formats.damage._MOST_FIELDS", 10)
    assert broken_at(b"\x10\x01" * 50, 100, dump_data()) == "behind byte 20"


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


READERS = {
    "npu_dump": read_npu_dump,
    "npy": read_tensor,
    "npz": read_npz,
    "torch_pt": read_torch_file,
    "graph_pb": read_graph,
    "meta_graph": read_graph,
    "saved_model": read_graph,
    "om": om_constants,
    "overflow": read_overflow,
    "event_file": read_scalars,
    "hdf5": read_hdf5,
    "tfdbg": read_tensor,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_cut_file_says_where(samples: dict[str, Path], tmp_path: Path, kind: str):
    pattern = "*_DebugIdentity_*" if kind == "tfdbg" else "*"
    file = next(path for path in sorted(samples[kind].rglob(pattern)) if path.is_file() and path.suffix != ".json")
    raw = file.read_bytes()
    messages = []
    for size in sorted({3, 7, 11, len(raw) // 3, len(raw) // 2, len(raw) - 1}):
        cut = tmp_path / str(size) / file.name
        cut.parent.mkdir()
        cut.write_bytes(raw[:size])
        try:
            found = READERS[kind](cut)
            messages += [problem.reason for problem in getattr(found, "problems", ())]
        except DataError as error:
            messages.append(str(error).replace(str(cut), ""))
    assert messages or kind == "event_file"
    for message in messages:
        assert re.search(r"\bbyte \d|bytes at \d|bytes from \d", message), message


def test_shapes_that_no_file_can_hold_say_whose(tmp_path: Path):
    message = dump_data()
    tensor = message.output.add(data_type=1, format=2, size=64)
    tensor.shape.dim.extend([1 << 40, 1 << 40])
    header = message.SerializeToString()
    path = tmp_path / "Relu.a.3.1.1706168000000003"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    (problem,) = read_npu_dump(path).problems
    assert problem.reason == f"output 0: impossible shape {(1 << 40, 1 << 40)} (tensor at byte {8 + len(header)})"


@pytest.mark.parametrize("content", [b"1234", b"x" * 5000, b""])
def test_shapes_in_a_debugger_s_file_say_where(tmp_path: Path, content: bytes):
    event = tf_message("Event")
    value = event.summary.value.add(node_name=b"a:0:DebugIdentity")
    value.tensor.dtype, value.tensor.tensor_content = 1, content
    value.tensor.tensor_shape.dim.add(size=1 << 62)
    value.tensor.tensor_shape.dim.add(size=4)
    path = tmp_path / "a_0_DebugIdentity_1700000000000000"
    path.write_bytes(event.SerializeToString())
    with pytest.raises(DataError, match=r"a_0_DebugIdentity_\d+: impossible shape .*at byte \d+\)$") as caught:
        read_tensor_event(str(path))
    at = int(re.findall(r"byte (\d+)", str(caught.value))[0])
    tensor = value.tensor.SerializeToString()
    assert path.read_bytes()[at:].startswith(content if "content" in str(caught.value) else tensor)


@pytest.mark.parametrize("kind", ["checkpoint_v1", "checkpoint_v2"])
def test_a_cut_checkpoint_is_named_with_its_end(samples: dict[str, Path], tmp_path: Path, kind: str):
    shutil.copytree(samples[kind], tmp_path / "save")
    table = next(path for path in (tmp_path / "save").iterdir() if path.name in ("model.ckpt-7", "model.ckpt-7.index"))
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"model\.ckpt-7.*does not end as a table does at byte {table.stat().st_size}"):
        read_checkpoint(find_checkpoint(tmp_path / "save"))


def test_a_pipe_is_told_without_an_error_number(samples: dict[str, Path], tmp_path: Path):
    os.mkfifo(tmp_path / "index.csv")
    shutil.copy(next(samples["tf_npy"].glob("*.npy")), tmp_path)
    with pytest.raises(DataError, match="no regular file") as caught:
        read_dump(tmp_path)
    assert "Errno" not in str(caught.value)

"""Overflow records in both generations, status bits, and the op behind one."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.overflow import find_op, find_overflow_files, read_overflow, status_meaning
from dumpers.formats.registry import read_dump

NAME = "Opdebug.Node_OpDebug.33.9.1706168000000006"


def record(folder: Path, raw: bytes, name: str = NAME) -> Path:
    array = np.frombuffer(raw, np.uint8)
    write_npu_dump(folder / name, op_name="", inputs=[], outputs=[array], dump_time_us=0)
    return folder / name


def old(status: tuple[int, int, int]) -> bytes:
    raw = bytearray(2048)
    for at, task in ((0, 1), (128, 2), (256, 3)):
        struct.pack_into("<6Q", raw, at, 7, 8, task, 0, 0xABC, 0xDEF)
    struct.pack_into("<Q", raw, 512, status[0])
    struct.pack_into("<Q", raw, 768, status[1])
    struct.pack_into("<3Q", raw, 1024, 5, 6, status[2])
    return bytes(raw)


def test_old_record(tmp_path: Path):
    (found,) = read_overflow(record(tmp_path, old((0x0B00, 2 << 16, 0x28))))
    assert found.timestamp_us == 1706168000000006
    assert [(e.unit, e.task_id, e.stream_id, e.status) for e in found.events] == [
        ("DHA Atomic Add", 1, 8, (0x0B00,)),
        ("L2 Atomic Add", 2, 8, (2 << 16,)),
        ("AI Core", 3, 8, (0x28,)),
    ]
    assert [e.meanings for e in found.events] == [
        ("source NaN",), ("underflow",), ("integer sign inversion overflow", "floating-point overflow"),
    ]  # fmt: skip
    assert found.data["AI Core"] == {
        "model_id": 7, "stream_id": 8, "task_id": 3, "task_type": 0, "pc_start": "0xabc", "para_base": "0xdef",
        "kernel_code": "0x5", "block_idx": 6, "status": 0x28,
    }  # fmt: skip


def test_nothing_happened(tmp_path: Path):
    (found,) = read_overflow(record(tmp_path, old((0, 0, 0))))
    assert found.events == ()


def test_new_aicpu_record_with_context(tmp_path: Path):
    fields = struct.pack("<8Q", 1, 2, 3, 4, 5, 6, 7, 9)
    (found,) = read_overflow(record(tmp_path, struct.pack("<6I", 0x5A5A5A5A, 0, 1, 2, 0, 64) + fields))
    (event,) = found.events
    assert (event.unit, event.task_id, event.context_id, event.thread_id) == ("AICPU", 3, 5, 7)
    assert "not documented" in event.meanings[0]
    assert found.data["acc_list"]["data"]["cpu_id"] == 6


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"x" * 100, "no overflow record"),
        (struct.pack("<6I", 0x5A5A5A5A, 0, 1, 9, 0, 8) + b"\0" * 100, "unknown unit 9"),
        (struct.pack("<6I", 0x5A5A5A5A, 0, 1, 0, 0, 8) + b"\0" * 100, "8 bytes of fields instead of 88"),
        (struct.pack("<6I", 0x5A5A5A5A, 0, 1, 0, 0, 88) + b"\0" * 40, "cut off"),
    ],
)
def test_damaged_records(tmp_path: Path, raw: bytes, message: str):
    with pytest.raises(DataError, match=message):
        read_overflow(record(tmp_path, raw))


def test_dump_without_outputs(tmp_path: Path):
    write_npu_dump(tmp_path / NAME, op_name="", inputs=[np.arange(2)], outputs=[], dump_time_us=0)
    with pytest.raises(DataError, match="no outputs"):
        read_overflow(tmp_path / NAME)


@pytest.mark.parametrize(
    ("unit", "status", "meaning"),
    [
        ("AI Core", 0x8, ("integer sign inversion overflow",)),
        ("AI Core", 0x10, ("integer add, sub, mul or mac overflow",)),
        ("AIV", 0x20, ("floating-point overflow",)),
        ("AIC", 0x80, ("negative float converted to unsigned",)),
        ("AI Core", 0x100, ("overflow converting FP32 or int32 to FP16",)),
        ("AI Core", 0x400, ("cube accumulation overflow",)),
        ("AI Core", 0x21, ("floating-point overflow", "unknown bits 0x1")),
        ("DHA Atomic Add", 0xD00, ("both NaN",)),
        ("DHA Atomic Add", 0x100, ("unknown status 0x100",)),
        ("L2 Atomic Add", 5 << 16, ("both NaN",)),
        ("L2 Atomic Add", 0, ()),
    ],
)
def test_status_bits(unit: str, status: int, meaning: tuple[str, ...]):
    assert status_meaning(unit, status) == meaning


def test_files_in_order_of_time_and_the_op_behind(tmp_path: Path):
    record(tmp_path, old((0, 0, 0x20)), "Opdebug.Node_OpDebug.2.9.1706168000000009")
    record(tmp_path, old((0, 0, 0x20)), "Opdebug.Node_OpDebug.9.9.1706168000000001")
    record(tmp_path, old((0, 0, 0x20)), "123")
    (tmp_path / "mapping.csv").write_text("123,Opdebug.Node_OpDebug.1.9.1706168000000005\n")
    for time, task in ((3, 3), (2, 3), (1, 4)):
        write_npu_dump(
            tmp_path / f"Add.op_{time}.{task}.8.170616800000000{time}",
            op_name="", inputs=[np.arange(2)], outputs=[np.arange(2)], dump_time_us=0,
        )  # fmt: skip
    files = find_overflow_files(tmp_path)
    assert [file.name for file in files] == [
        "Opdebug.Node_OpDebug.9.9.1706168000000001", "123", "Opdebug.Node_OpDebug.2.9.1706168000000009",
    ]  # fmt: skip
    (found,) = read_overflow(files[0])
    assert [r.name for r in find_op(found.events[0], read_dump(tmp_path))] == ["op_2:input:0", "op_2:output:0"]


def test_samples(shared_data: Path):
    derived = shared_data / "npu_samples" / "derived"
    files = find_overflow_files(derived / "dumps")
    assert len(files) == 5
    dump = read_dump(derived / "dumps")
    for file in files:
        (found,) = read_overflow(file)
        expected = json.loads((derived / "dumps_expected" / f"{file.name}.output.0.json").read_text())
        assert json.dumps(found.data) == json.dumps(expected)
        (event,) = found.events
        assert {r.op for r in find_op(event, dump)} == {"trans_TransData_1170"}
        if event.unit != "SDMA":
            assert event.meanings == ("floating-point overflow",)

"""Overflow records in both generations, status bits, and the op behind one."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.overflow import (
    find_op,
    find_overflow_files,
    read_overflow,
    read_overflow_json,
    status_meaning,
)
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


RAW = {
    "old": old((0x0B00, 2 << 16, 0x28)),
    "quiet": old((0, 0, 0)),
    "AIV": struct.pack("<6I", 0x5A5A5A5A, 1, 1, 1, 0, 112)
    + struct.pack("<14Q", 1, 8, 3, 0, 5, 65535, *range(6), 32, 0),
    "AICPU": struct.pack("<6I", 0x5A5A5A5A, 0, 1, 2, 0, 64) + struct.pack("<8Q", 1, 2, 3, 4, 5, 6, 7, 9),
    "SDMA": struct.pack("<6I", 0x5A5A5A5A, 0, 1, 3, 0, 80) + struct.pack("<10Q", *range(9), (1 << 64) - 1),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
def test_json_gives_the_events_of_the_binary(tmp_path: Path, raw: bytes):
    (binary,) = read_overflow(record(tmp_path, raw))
    path = tmp_path / f"{NAME}.output.3.json"
    path.write_text("\ufeff" + json.dumps(binary.data, indent=4))
    (found,) = read_overflow_json(path)
    assert (found.events, found.data) == (binary.events, binary.data)
    assert (found.slot, found.timestamp_us) == (3, binary.timestamp_us)
    assert find_overflow_files(tmp_path) == [tmp_path / NAME]


def test_json_under_a_short_name(tmp_path: Path):
    (binary,) = read_overflow(record(tmp_path, old((0, 0, 0x20))))
    short = "0123456789abcdef0123456789abcdef"
    (tmp_path / f"{short}.json").write_text(json.dumps(binary.data))
    (tmp_path / "mapping.csv").write_text(f"{short}.json,{NAME}.output.0.json\n")
    (found,) = read_overflow_json(tmp_path / f"{short}.json")
    assert (found.timestamp_us, found.events) == (binary.timestamp_us, binary.events)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no overflow record"),
        ("[]", "holds a list"),
        ("{}", "has none of"),
        ('{"AI Core": 3}', "AI Core is no list of fields"),
        ('{"AI Core": {"model_id": true}}', "model_id is 'True'"),
        ('{"AI Core": {"model_id": -1}}', "model_id is '-1'"),
        ('{"AI Core": {"model_id": "0xg"}}', "invalid literal"),
        ('{"acc_list": 1}', "its unit is"),
        ('{"acc_list": {"acc_type": "AIX"}}', "its unit is 'AIX'"),
        ('{"acc_list": {"acc_type": "AIC"}}', "AIC is no list of fields"),
        ('{"acc_list": {"acc_type": "AIC", "data": {"model_id": 1e300}}}', "no number of 64 bits"),
        ("[" * 100_000, "is no overflow record"),
    ],
)
def test_json_that_is_no_record(tmp_path: Path, text: str, message: str):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_overflow_json(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fuzz(tmp_path: Path):
    rng = random.Random(9)
    said: list[str] = []
    (binary,) = read_overflow(record(tmp_path, RAW["AIV"]))
    texts = [json.dumps(binary.data).encode(), json.dumps(read_overflow(record(tmp_path, RAW["old"]))[0].data).encode()]
    for number in range(800):
        text = bytearray(texts[number % 2][: number if number < 600 else None])
        for _ in range(2 if text else 0):
            text[rng.randrange(len(text))] = rng.choice(b'0123456789-x"{}[],:e')
        (tmp_path / "x.json").write_bytes(text)
        try:
            read_overflow_json(tmp_path / "x.json")
        except DataError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in text for text in said)


def test_samples_as_json(shared_data: Path):
    """The converter's files give the events of the binaries; section 14 of the commands document."""
    derived = shared_data / "npu_samples" / "derived"
    files = sorted((derived / "dumps_expected").glob("Opdebug.*.json"))
    binaries = find_overflow_files(derived / "dumps")
    assert len(files) == len(binaries) == 5
    found = [read_overflow_json(file)[0] for file in files]
    assert [(f.events, f.timestamp_us) for f in found] == [
        (read_overflow(binary)[0].events, read_overflow(binary)[0].timestamp_us) for binary in binaries
    ]
    assert [(event.unit, event.task_id, event.stream_id) for f in found for event in f.events] == [
        (unit, 327, 8) for unit in ("AI Core", "AIV", "AIV", "SDMA", "AIC")
    ]
    assert [event.status[0] for f in found for event in f.events if event.unit != "SDMA"] == [32] * 4


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

"""Overflow detection of the emulated device: which ops are reported, read back by the reader of device files."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("dumpers.formats.overflow")
observe = pytest.importorskip("engine.observe")

from dumpers.capture.overflow import OverflowWriter, overflow_status  # noqa: E402
from dumpers.formats.npu_dump import read_npu_dump  # noqa: E402
from dumpers.formats.overflow import find_overflow_files, read_overflow  # noqa: E402

BIG = np.float32(3e38)


def run(kind, inputs, outputs, name="scope/op"):
    op = observe.DeviceOp(name, kind)
    return observe.OpRun(kind, name, list(inputs), list(outputs), 0, op, task_id=7, stream_id=3, timestamp_us=1234567)


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "status"),
    [
        ("Mul", [np.float32([BIG]), np.float32([10])], [np.float32([np.inf])], 0x20),
        ("Log", [np.float32([0])], [np.float32([-np.inf])], 0x20),
        ("Cast", [np.float32([70000])], [np.float16([np.inf])], 0x100),
        ("Cast", [np.float32([65504])], [np.float16([65504])], 0),
        ("Cast", [np.float32([-3])], [np.uint8([0])], 0x80),
        ("Cast", [np.float32([-0.5])], [np.uint8([0])], 0),
        ("Add", [np.int32([2**31 - 1]), np.int32([1])], [np.int32([-(2**31)])], 0x10),
        ("Mul", [np.int32([46340]), np.int32([46340])], [np.int32([2147395600])], 0),
        ("Relu", [np.float32([np.inf])], [np.float32([np.inf])], 0),  # handed on
        ("Sub", [np.float32([np.inf]), np.float32([np.inf])], [np.float32([np.nan])], 0),  # had it already
        ("Identity", [np.array([b"text"], object)], [np.array([b"text"], object)], 0),
        ("Mean", [np.zeros(0, np.float32)], [np.float32(np.nan)], 0x20),
    ],
)
def test_what_is_an_overflow(kind, inputs, outputs, status):
    assert overflow_status(run(kind, inputs, outputs)) == status


def test_record_and_data_lie_side_by_side(tmp_path):
    writer = OverflowWriter(tmp_path)
    graph = SimpleNamespace(name="ge_default_1", graph_id=5)
    hit = run("Mul", [np.float32([BIG]), np.float32([10])], [np.float32([np.inf])])
    assert writer.step_begin(graph, 2)
    writer.op_executed(run("Mul", [np.float32([1]), np.float32([2])], [np.float32([2])]))
    writer.op_executed(hit)
    writer.step_end(graph, 2)
    (time_folder,) = tmp_path.iterdir()
    folder = time_folder / "0" / "ge_default_1" / "5" / "2"
    (path,) = find_overflow_files(folder)
    (record,) = read_overflow(path)
    (event,) = record.events
    assert (event.unit, event.task_id, event.stream_id, event.status) == ("AIC", 7, 3, (0x20,))
    assert event.meanings == ("floating-point overflow",)
    content = read_npu_dump(folder / "Mul.scope_op.7.3.1234567")
    assert content.op_name == "scope/op"
    assert content.inputs[0].load().tobytes() == hit.inputs[0].tobytes()
    assert len(list(folder.iterdir())) == 2


def test_a_step_without_one_leaves_an_empty_newest_folder(tmp_path):
    writer = OverflowWriter(tmp_path)
    assert writer.step_begin(SimpleNamespace(name="g", graph_id=1), 0)
    writer.op_executed(run("Mul", [np.float32([1]), np.float32([2])], [np.float32([2])]))
    (folder,) = tmp_path.iterdir()
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    writer = OverflowWriter(tmp_path / "file" / "dump")
    for step in range(2):
        assert not writer.step_begin(SimpleNamespace(name="g", graph_id=1), step)
    assert len(caplog.records) == 1

"""Device files written by the emulated device, read back by our readers."""

from __future__ import annotations

import errno
import logging
import os

import numpy as np
import pytest

from dumpers.capture import npu as capture
from dumpers.capture.npu import INCOMPLETE_FILE, NpuDumpWriter, ge_graph
from dumpers.capture.steps import parse_steps
from dumpers.formats.dump_names import parse_dump_name, read_mapping
from dumpers.formats.ge_graph import read_ge_json, read_ge_text
from dumpers.formats.npu_dump import read_npu_dump
from engine.observe import DeviceGraph, DeviceOp, DevicePort, OpRun

F32 = DevicePort("float32", (2, 3))
LONG = "scope/" + "x" * 250


def make_graph(long_name: str = LONG) -> DeviceGraph:
    ops = (
        DeviceOp("data", "Data", output_ports=(F32,), has_task=False, id=0),
        DeviceOp(
            "a.b/matmula.b/bias",
            "MatMulV2",
            inputs=(("data", 0),),
            control_inputs=("data",),
            input_ports=(F32,),
            output_ports=(DevicePort("float32", (2, -1), origin=("a.b/bias", 0)),),
            attrs={"transpose_x1": False, "T": "float32", "shape": [2, 3], "_embedding_table": "users"},
            originals=("a.b/matmul", "a.b/bias"),
            original_types=("MatMul", "BiasAdd"),
            pass_name="MatMulBiasAddFusionPass",
            id=1,
        ),
        DeviceOp("trans_Cast_0", "Cast", inputs=(("data", 0),), input_ports=(F32,),
                 output_ports=(DevicePort("float16", None),), originals=(), id=2),
        DeviceOp(long_name, "Relu", inputs=(("data", 0),), input_ports=(F32,), output_ports=(F32,), id=3),
    )  # fmt: skip
    return DeviceGraph("ge_default_20240101000000_3", ops, 3, {"precision_mode": "must_keep_origin_dtype"})


def run_of(op: DeviceOp, number: int, *, inputs=None, outputs=None) -> OpRun:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    return OpRun(
        op.type,
        op.name,
        inputs or [values],
        outputs or [values + number],
        0,
        op,
        op.id,
        0,
        1_700_000_000_000_000 + number,
    )


def dump_step(writer: NpuDumpWriter, graph: DeviceGraph, step: int = 0) -> bool:
    wanted = writer.step_begin(graph, step)
    if wanted:
        for number, op in enumerate(op for op in graph.ops if op.has_task):
            writer.op_executed(run_of(op, number))
        writer.step_end(graph, step)
    return wanted


@pytest.fixture
def roots(tmp_path):
    return tmp_path / "debug_0" / "dump", tmp_path / "debug_0" / "graph"


def leaf(root):
    (folder,) = {path.parent for path in root.rglob("*") if path.is_file()}
    return folder


def test_layout_and_content(roots):
    graph, writer = make_graph(), NpuDumpWriter(*roots)
    assert dump_step(writer, graph, 4)
    folder = leaf(roots[0])
    parts = folder.relative_to(roots[0]).parts
    assert len(parts[0]) == 14
    assert parts[0].isdigit()
    assert parts[1:] == ("0", "ge_default_20240101000000_3", "3", "4")
    name = "MatMulV2.a_b_matmula_b_bias.1.0.1700000000000000"
    assert (folder / name).is_file()
    parsed = parse_dump_name(name)
    assert (parsed.op_type, parsed.task_id, parsed.stream_id) == ("MatMulV2", 1, 0)
    content = read_npu_dump(folder / name)
    assert content.op_name == "a.b/matmula.b/bias"
    np.testing.assert_array_equal(content.inputs[0].load(), np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(content.outputs[0].load(), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert not content.problems
    assert not list(folder.glob(INCOMPLETE_FILE))
    assert not [path for path in folder.iterdir() if path.suffix == ".part"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_too_long_names_have_an_alias(roots):
    dump_step(NpuDumpWriter(*roots), make_graph())
    folder = leaf(roots[0])
    ((short, full),) = read_mapping(folder).items()
    assert short.isdigit()
    assert full.startswith("Relu.scope_xxx")
    assert read_npu_dump(folder / short).op_name == LONG


def test_two_long_names_of_one_checksum(roots, monkeypatch):
    monkeypatch.setattr(capture.zlib, "crc32", lambda data: 7)
    writer, graph = NpuDumpWriter(*roots), make_graph()
    assert writer.step_begin(graph, 0)
    for number in range(2):
        writer.op_executed(run_of(graph.ops[3], number))
    assert sorted(read_mapping(leaf(roots[0]))) == ["7", "8"]


def test_the_graph_is_written_twice_and_reads_the_same(roots):
    writer, graph = NpuDumpWriter(*roots), make_graph()
    writer.graph_compiled(graph)
    writer.graph_compiled(graph)
    names = sorted(path.name for path in roots[1].iterdir())
    first = "ge_proto_00000000_graph_3_Build.txt"
    assert names == [first, first + ".json", first.replace("0_g", "1_g"), first.replace("0_g", "1_g") + ".json"]
    for read in (read_ge_text(roots[1] / first), read_ge_json(roots[1] / (first + ".json"))):
        assert read.name == graph.name
        assert read.attrs["precision_mode"] == "must_keep_origin_dtype"
        fused = read.ops["a.b/matmula.b/bias"]
        assert fused.originals == ("a.b/matmul", "a.b/bias")
        assert fused.original_types == ("MatMul", "BiasAdd")
        assert fused.pass_names == ("MatMulBiasAddFusionPass",)
        assert fused.control_inputs == ("data",)
        assert fused.attrs["_embedding_table"] == "users"
        assert fused.attrs["_kernelname"].startswith("te_fused_op_matmulv2")
        port = fused.output_ports[0]
        assert (port.dtype, port.shape, port.format) == ("float32", (2, -1), "ND")
        assert (port.attrs["_datadump_origin_name"], port.attrs.get("_datadump_origin_output_index", 0)) == (
            "a.b/bias",
            0,
        )
        assert read.ops["trans_Cast_0"].originals == ()
        assert read.ops["data"].attrs["_no_task"] is True
        assert read.ops[LONG].originals == (LONG,)


@pytest.mark.parametrize(("mode", "counts"), [("all", (1, 1)), ("input", (1, 0)), ("output", (0, 1))])
def test_modes(roots, mode, counts):
    dump_step(NpuDumpWriter(*roots, mode=mode), make_graph("short"))
    for path in leaf(roots[0]).iterdir():
        content = read_npu_dump(path)
        assert (len(content.inputs), len(content.outputs)) == counts


def test_steps_and_layers(roots):
    writer = NpuDumpWriter(*roots, steps=parse_steps("1|3"), layers=["a.b/bias", "trans_Cast_0"])
    assert [dump_step(writer, make_graph(), step) for step in range(5)] == [False, True, False, True, False]
    folders = sorted({path.parent for path in roots[0].rglob("*") if path.is_file()})
    assert [folder.name for folder in folders] == ["1", "3"]
    for folder in folders:
        assert sorted(path.name.split(".")[0] for path in folder.iterdir()) == ["Cast", "MatMulV2"]


def test_sessions_of_one_second_have_their_own_folders(roots):
    for _ in range(3):
        dump_step(NpuDumpWriter(*roots), make_graph())
    assert len(list(roots[0].iterdir())) == 3


def test_a_full_disk_stops_nothing(roots, monkeypatch, caplog):
    real, calls = capture.write_npu_dump, []

    def full(path, **content):
        calls.append(path)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, **content)

    monkeypatch.setattr(capture, "write_npu_dump", full)
    writer = NpuDumpWriter(*roots)
    with caplog.at_level(logging.WARNING):
        assert dump_step(writer, make_graph("short"))
        assert dump_step(writer, make_graph("short"), 1)
    assert len(calls) == 6
    assert len(caplog.records) == 1
    assert "training goes on" in caplog.text
    assert "No space left" in caplog.text
    for folder in {path.parent for path in roots[0].rglob("*") if path.is_file()}:
        assert (folder / INCOMPLETE_FILE).is_file()


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    writer = NpuDumpWriter(tmp_path / "file" / "dump", tmp_path / "file" / "graph")
    writer.graph_compiled(make_graph())
    assert not writer.step_begin(make_graph(), 0)
    writer.step_end(make_graph(), 0)
    assert len(caplog.records) == 1


def test_a_step_that_ends_early_stays_marked(roots):
    writer, graph = NpuDumpWriter(*roots), make_graph()
    writer.step_begin(graph, 0)
    writer.op_executed(run_of(graph.ops[1], 0))
    writer.step_end(graph, 0)
    assert (leaf(roots[0]) / INCOMPLETE_FILE).is_file()


def test_texts_have_no_bytes_on_a_device(roots):
    graph, writer = make_graph("short"), NpuDumpWriter(*roots)
    writer.step_begin(graph, 0)
    writer.op_executed(run_of(graph.ops[3], 0, inputs=[np.array([b"a", b"bc"], object)]))
    (path,) = leaf(roots[0]).glob("Relu*")
    content = read_npu_dump(path)
    assert [record.shape for record in content.inputs] == [(0,)]
    assert len(content.outputs) == 1


def test_graphs_are_converted_without_loss():
    graph = ge_graph(make_graph())
    assert [op.name for op in graph] == [op.name for op in make_graph().ops]
    assert graph.consumers["data"] == (("a.b/matmula.b/bias", 0, 0), ("trans_Cast_0", 0, 0), (LONG, 0, 0))

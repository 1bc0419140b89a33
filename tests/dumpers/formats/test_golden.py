"""Files made by our own writers, kept in ``tests/data/formats``: the bytes must not change, and read back the same.

``python tests/dumpers/formats/test_golden.py`` (from the project's root) writes them anew after a wanted change.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.formats.fusion import read_fusion_result
from dumpers.formats.ge_graph import write_ge_json, write_ge_text
from dumpers.formats.npu_dump import dump_file_name, write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.formats.overflow import find_overflow_files, read_overflow
from dumpers.formats.registry import read_dump, read_graph
from dumpers.graph import Graph, Op, Port, Source

DATA = Path(__file__).resolve().parents[2] / "data" / "formats"
LEAF = "npu/20240125153144/0/ge_default_20240125153144_1/1/0"
TIME = 1706168000000000

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
W = np.array([[1, 0], [0, 1], [1, np.nan]], np.float32)
B = np.array([0.5, -0.5], np.float32)
Y = np.array([[4.5, np.nan], [10.5, np.nan]], np.float32)
HALF = np.array([1, -2.5, 65504, np.inf]).astype(ml_dtypes.bfloat16)


def graph() -> Graph:
    def port(*shape: int, **attrs: str | int) -> Port:
        return Port("float32", shape, "ND", attrs)

    origin = {"_datadump_origin_name": "net/fc/BiasAdd", "_datadump_origin_output_index": 0}
    ops = (
        Op("x", "Data", output_ports=(port(2, 3),), id=0),
        Op("net/fc/kernel", "Const", output_ports=(port(3, 2),), id=1),
        Op("net/fc/bias", "Const", output_ports=(port(2),), id=2),
        Op(
            "net/fc/MatMulnet/fc/BiasAdd",
            "MatMulV2",
            inputs=(Source("x", 0), Source("net/fc/kernel", 0), Source("net/fc/bias", 0), Source("", 0)),
            control_inputs=("init",),
            input_ports=(port(2, 3), port(3, 2), port(2), Port("undefined", None, "FORMAT_RESERVED")),
            output_ports=(port(2, 2, **origin),),
            attrs={
                "_datadump_original_op_names": ("net/fc/MatMul", "net/fc/BiasAdd"),
                "_datadump_original_op_types": ("MatMul", "BiasAdd"),
                "pass_name": "MatMulBiasAddFusionPass",
                "transpose_x1": False,
                "T": "float32",
                "scale": 0.5,
            },
            id=3,
            stream_id=1,
        ),
        Op(
            "trans_Cast_0",
            "Cast",
            inputs=(Source("net/fc/MatMulnet/fc/BiasAdd", 0),),
            input_ports=(port(2, 2),),
            output_ports=(Port("bfloat16", (2, 2), "ND"),),
            attrs={"_datadump_original_op_names": (), "SrcT": "float32", "DstT": "bfloat16"},
            id=4,
            stream_id=1,
        ),
    )
    attrs = {"_session_graph_id": "0_1", "precision_mode": "must_keep_origin_dtype"}
    return Graph("ge_default_20240125153144_1", {op.name: op for op in ops}, "ge", None, attrs)


def build(root: Path) -> None:
    leaf = root / LEAF
    leaf.mkdir(parents=True)
    op = "net/fc/MatMulnet/fc/BiasAdd"
    write_npu_dump(
        leaf / dump_file_name("MatMulV2", op, 3, 1, TIME + 3),
        op_name=op,
        inputs=[X, W, B],
        outputs=[Y],
        dump_time_us=TIME,
    )
    write_npu_dump(
        leaf / dump_file_name("Cast", "trans_Cast_0", 4, 1, TIME + 4),
        op_name="trans_Cast_0",
        inputs=[np.float32(3.5), np.zeros((0, 4), np.int64)],
        outputs=[HALF, np.array([True, False])],
        dump_time_us=TIME,
    )
    record = struct.pack("<6I", 0x5A5A5A5A, 0, 1, 1, 0, 88) + struct.pack(
        "<11Q", 1, 1, 3, 0, 65535, 65535, 16, 32, 7, 3, 32
    )
    write_npu_dump(
        leaf / f"Opdebug.Node_OpDebug.9.1.{TIME + 9}",
        op_name="",
        inputs=[],
        outputs=[np.frombuffer(record.ljust(512, b"\0"), np.uint8)],
        dump_time_us=TIME,
    )
    write_ge_text(graph(), root / "ge_proto_00000001_graph_1_Build.txt")
    write_ge_json(graph(), root / "ge_proto_00000001_graph_1_Build.txt.json")
    reference = root / "tf_dump"
    reference.mkdir()
    write_npy(reference / f"net_fc_BiasAdd.0.{TIME + 3}.npy", Y)
    write_npy(reference / f"half.0.{TIME + 4}.npy", HALF)
    (reference / "index.csv").write_text(
        "file,op,output,op_type,step,timestamp_us,dtype,shape,note\n"
        f"net_fc_BiasAdd.0.{TIME + 3}.npy,net/fc/BiasAdd,0,BiasAdd,0,{TIME + 3},float32,2x2,\n"
        f"half.0.{TIME + 4}.npy,half,0,Cast,0,{TIME + 4},bfloat16,4,\n"
        f",net/fc/kernel,0,VarHandleOp,0,{TIME},resource,,\n"
    )
    rules = {"MatMulBiasAddFusionPass": {"effect_times": "1", "match_times": "2"}}
    report = json.dumps({"session_and_graph_id": "0_1", "graph_fusion": rules}, indent=4)
    (root / "fusion_result.json").write_text(report + report.replace("0_1", "0_11"))


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".md"
    }


def test_writers_still_write_the_same_bytes(tmp_path: Path):
    build(tmp_path / "new")
    new, kept = files(tmp_path / "new"), files(DATA)
    assert list(new) == list(kept)
    for name, content in new.items():
        assert content == kept[name], name


def test_device_dump():
    dump = read_dump(DATA / "npu", graph=read_graph(DATA / "ge_proto_00000001_graph_1_Build.txt"))
    assert dump.problems == ()
    assert [(r.name, r.dtype, r.shape, r.step) for r in dump] == [
        ("net/fc/MatMulnet/fc/BiasAdd:input:0", "float32", (2, 3), 0),
        ("net/fc/MatMulnet/fc/BiasAdd:input:1", "float32", (3, 2), 0),
        ("net/fc/MatMulnet/fc/BiasAdd:input:2", "float32", (2,), 0),
        ("net/fc/MatMulnet/fc/BiasAdd:output:0", "float32", (2, 2), 0),
        ("trans_Cast_0:input:0", "float32", (), 0),
        ("trans_Cast_0:input:1", "int64", (0, 4), 0),
        ("trans_Cast_0:output:0", "bfloat16", (4,), 0),
        ("trans_Cast_0:output:1", "bool", (2,), 0),
    ]
    fused = dump.tensor("net/fc/MatMulnet/fc/BiasAdd", "output", 0).load()
    np.testing.assert_array_equal(fused, np.array([[4.5, np.nan], [10.5, np.nan]], np.float32))
    assert dump.tensor("trans_Cast_0", "output", 0).load().astype(float).tolist() == [1, -2.5, 65536, np.inf]


@pytest.mark.parametrize("name", ["ge_proto_00000001_graph_1_Build.txt", "ge_proto_00000001_graph_1_Build.txt.json"])
def test_graph(name: str):
    found, right = read_graph(DATA / name), graph()
    assert found.ops == right.ops
    assert (found.name, found.attrs) == (right.name, right.attrs)


def test_reference_dump():
    dump = read_dump(DATA / "tf_dump")
    assert [(r.op, r.dtype, r.shape) for r in dump] == [
        ("net/fc/kernel", "resource", None),
        ("net/fc/BiasAdd", "float32", (2, 2)),
        ("half", "bfloat16", (4,)),
    ]
    assert dump.tensor("half", "output", 0).load().tobytes() == HALF.tobytes()


def test_overflow_record():
    (file,) = find_overflow_files(DATA / LEAF)
    (record,) = read_overflow(file)
    assert record.events[0].meanings == ("floating-point overflow",)
    assert (record.events[0].task_id, record.events[0].stream_id) == (3, 1)


def test_fusion_report():
    assert [(r.graph_id, r.graph_fusion) for r in read_fusion_result(DATA / "fusion_result.json")] == [
        ("0_1", {"MatMulBiasAddFusionPass": 1}),
        ("0_11", {"MatMulBiasAddFusionPass": 1}),
    ]


if __name__ == "__main__":
    import shutil

    readme = (DATA / "README.md").read_bytes()
    shutil.rmtree(DATA)
    build(DATA)
    (DATA / "README.md").write_bytes(readme)
    sys.stdout.write(f"wrote {DATA}\n")

"""One door for all formats: folders and files of every kind, good and bad."""

from __future__ import annotations

import os
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.ge_graph import write_ge_json, write_ge_text
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.formats.registry import read_dump, read_graph, read_tensor
from dumpers.graph import Graph, Op, Port

TIME = 1706168000000000


def dump(folder: Path, name: str, op_name: str = "", value: float = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    array = np.full((2, 3), value, np.float32)
    write_npu_dump(folder / name, op_name=op_name, inputs=[array], outputs=[array + 1], dump_time_us=TIME)


def graph(*ops: Op) -> Graph:
    return Graph("g", {op.name: op for op in ops}, "ge")


# device dump files


def test_device_folder_names_steps_and_order(tmp_path: Path):
    leaf = tmp_path / "dump/20240125153144/0/ge_default_1/6/2"
    dump(leaf, f"Mul.b_Mul.2.0.{TIME + 2}", "b/Mul")
    dump(leaf, f"Add.a_Add.1.0.{TIME + 1}")
    (leaf / "readme.txt").write_text("x")
    (leaf / f"Opdebug.Node_OpDebug.3.0.{TIME}").write_bytes(b"")
    (leaf / f"Add.a_Add.1.0.{TIME + 1}.csv").write_text("Input/Output,Index")
    for start in (leaf, tmp_path, tmp_path / "dump"):
        found = read_dump(start)
        assert [record.name for record in found] == [
            "a_Add:input:0",
            "a_Add:output:0",
            "b/Mul:input:0",
            "b/Mul:output:0",
        ]
        assert {record.step for record in found} == {2}
        assert found.path == leaf
        assert sorted(path.name for path in found.ignored) == [f"Opdebug.Node_OpDebug.3.0.{TIME}", "readme.txt"]


def test_full_names_come_from_the_graph(tmp_path: Path):
    dump(tmp_path, f"Add.a_b.1.0.{TIME}")
    dump(tmp_path, f"Mul.a_b.2.0.{TIME + 1}")
    dump(tmp_path, f"Relu.c_d.3.0.{TIME + 2}")
    dump(tmp_path, f"Relu.unknown_op.4.0.{TIME + 3}")
    known = graph(Op("a/b", "Add"), Op("a_b", "Mul"), Op("c/d", "Relu"), Op("c.d", "Relu"))
    names = [record.op for record in read_dump(tmp_path, graph=known) if record.io == "output"]
    assert names == ["a/b", "a_b", "c_d", "unknown_op"]


def test_original_shape_from_the_graph(tmp_path: Path):
    dump(tmp_path, f"Add.a.1.0.{TIME}")
    port = Port("float32", (2, 3), "FRACTAL_NZ", {"origin_shape": (3, 2), "origin_format": "NHWC"})
    found = read_dump(tmp_path, graph=graph(Op("a", "Add", output_ports=(port,))))
    record = found.tensor("a", "output", 0)
    assert record.original_shape == (3, 2)
    assert record.source.layout == "NHWC"


def test_one_leaf_of_several_and_the_others_are_named(tmp_path: Path):
    for leaf, count in (("0/g/1/0", 2), ("0/g/1/1", 2), ("0/h/1/0", 1), ("1/g/1/0", 2)):
        for index in range(count):
            dump(tmp_path / "20240102000000" / leaf, f"Add.a{index}.1.0.{TIME}")
    dump(tmp_path / "20240101000000/0/g/1/0", f"Add.old.1.0.{TIME}")
    found = read_dump(tmp_path)
    assert found.path.relative_to(tmp_path).as_posix() == "20240102000000/0/g/1/0"
    assert len(found.ignored) == 4


def test_mapping_restores_long_names_and_leaves_the_files_alone(tmp_path: Path):
    dump(tmp_path, "12345", "")
    dump(tmp_path, "99999", "")
    (tmp_path / "mapping.csv").write_text(f"12345,Add.very_long.1.0.{TIME}\n")
    found = read_dump(tmp_path)
    assert [record.name for record in found] == ["very_long:input:0", "very_long:output:0"]
    assert found.records[0].path == tmp_path / "12345"
    assert [problem.path.name for problem in found.problems] == ["99999"]
    assert sorted(os.listdir(tmp_path)) == ["12345", "99999", "mapping.csv"]


def test_damaged_file_spoils_only_itself(tmp_path: Path):
    dump(tmp_path, f"Add.good.1.0.{TIME}")
    (tmp_path / f"Add.bad.2.0.{TIME}").write_bytes(b"\xff" * 100)
    dump(tmp_path, f"Add.short.3.0.{TIME + 1}")
    path = tmp_path / f"Add.short.3.0.{TIME + 1}"
    path.write_bytes(path.read_bytes()[:-90])
    found = read_dump(tmp_path)
    assert [record.name for record in found if record.source] == ["good:input:0", "good:output:0", "short:input:0"]
    assert [problem.path.name.split(".")[1] for problem in found.problems] == ["bad", "short"]


# npy folders


def save(path: Path, value: float = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_npy(path, np.full(3, value, np.float32))


def test_converted_names_of_both_layouts(tmp_path: Path):
    save(tmp_path / f"A.a_b.7.{TIME + 1}.output.10.npy")
    save(tmp_path / f"A.a_b.7.{TIME + 1}.output.2.npy")
    save(tmp_path / f"B.c_lxslice0.7.3.{TIME}.3.0.0.0.input.0.npy")
    (tmp_path / "readme.txt").write_text("x")
    (tmp_path / f"A.bad.7.{TIME}.output.0.npy").write_bytes(b"no")
    save(tmp_path / ("0" * 32 + ".npy"))
    (tmp_path / "mapping.csv").write_text("0" * 32 + f".npy,A.long.1.{TIME + 5}.input.1.npy\n")
    found = read_dump(tmp_path, graph=graph(Op("a/b", "A")))
    assert [(r.name, r.stream_id) for r in found] == [
        ("c_lxslice0:input:0", 3), ("a/b:output:2", None), ("a/b:output:10", None), ("long:input:1", None),
    ]  # fmt: skip
    assert [path.name for path in found.ignored] == ["readme.txt"]
    assert [problem.path.name for problem in found.problems] == [f"A.bad.7.{TIME}.output.0.npy"]


def test_reference_names_and_subfolders(tmp_path: Path):
    save(tmp_path / f"net_fc.1_add.0.{TIME}.npy", 1)
    save(tmp_path / f"net_fc.1_add.0.{TIME + 5}.npy", 2)
    save(tmp_path / f"more/x.3.{TIME + 1}.npy")
    save(tmp_path / "other.npy")
    found = read_dump(tmp_path)
    assert [(r.op, r.slot, r.io, r.device) for r in found] == [
        ("net_fc.1_add", 0, "output", "tf"), ("x", 3, "output", "tf"), ("net_fc.1_add", 0, "output", "tf"),
    ]  # fmt: skip
    assert found.tensor("net_fc.1_add", "output", 0).load().tolist() == [2, 2, 2], "the greatest time stamp is the last"
    assert [path.name for path in found.ignored] == ["other.npy"]
    device = graph(Op("fused", "A", attrs={"_datadump_original_op_names": ("net/fc.1/add",)}))
    named = read_dump(tmp_path, graph=device)
    assert named.records[0].op == "net/fc.1/add"
    assert named.graph is None


INDEX = "file,op,output,op_type,step,timestamp_us,dtype,shape,note\n"


def test_index_gives_full_names_and_what_has_no_file(tmp_path: Path):
    save(tmp_path / f"tower_out.0.{TIME}.npy", 2)
    save(tmp_path / f"tower_out-1.0.{TIME}.npy", 3)
    save(tmp_path / f"unlisted.0.{TIME + 9}.npy")
    write_npy(tmp_path / "half.npy", np.array([1, -2.5]).astype(ml_dtypes.bfloat16))
    (tmp_path / "index.csv").write_text(
        INDEX
        + f"tower_out.0.{TIME}.npy,tower/out,0,Add,3,{TIME},float32,3,\n"
        + f"tower_out-1.0.{TIME}.npy,tower_out,0,Add,3,{TIME + 1},float32,(3),\n"
        + f'half.npy,"with, comma",1,Cast,3,{TIME + 2},bfloat16,2,\n'
        + f",var,0,VarHandleOp,3,{TIME + 3},resource,,\n"
        + f",words,0,Const,3,{TIME + 4},string,2x4,kept as text\n"
        + f"../evil.npy,evil,0,A,3,{TIME},float32,3,\n"
        + f"gone.npy,gone,0,A,3,{TIME},float32,3,\n"
        + ",,x,,,,,,\n"
    )
    found = read_dump(tmp_path)
    assert [(r.op, r.slot, r.dtype, r.shape, r.step) for r in found] == [
        ("tower/out", 0, "float32", (3,), 3),
        ("tower_out", 0, "float32", (3,), 3),
        ("with, comma", 1, "bfloat16", (2,), 3),
        ("var", 0, "resource", None, 3),
        ("words", 0, "string", (2, 4), 3),
        ("unlisted", 0, "float32", (3,), None),
    ]
    assert [found.tensor(op, "output", 0).load()[0] for op in ("tower/out", "tower_out")] == [2, 3]
    assert found.tensor("with, comma", "output", 1).load().astype(float).tolist() == [1, -2.5]
    assert "no value" in found.tensor("var", "output", 0).note
    assert [problem.reason.split()[1] for problem in found.problems] == ["7", "8", "9"]
    assert found.ignored == ()


def test_raw_two_byte_data_get_their_dtype_from_the_graph(tmp_path: Path):
    bits = np.array([1, -2.5]).astype(ml_dtypes.bfloat16)
    write_npy(tmp_path / f"half.0.{TIME}.npy", bits)
    np.save(tmp_path / f"mislabelled.0.{TIME}.npy", bits.view(np.float16))
    unknown = read_dump(tmp_path).tensor("half", "output", 0)
    assert (unknown.dtype, unknown.source, unknown.note) == ("undefined", None, "two-byte data of unknown type")
    with pytest.raises(DataError, match="two-byte data of unknown type"):
        unknown.load()
    ops = {n: Op(n, "Cast", attrs={"DstT": "bfloat16", "SrcT": "float32"}) for n in ("half", "mislabelled")}
    for record in read_dump(tmp_path, graph=Graph("g", ops, "tf")):
        assert record.dtype == "bfloat16"
        assert record.load().astype(float).tolist() == [1, -2.5]


def test_plain_arrays(tmp_path: Path):
    save(tmp_path / "b.npy")
    save(tmp_path / "deep/a.npy")
    found = read_dump(tmp_path)
    assert sorted(record.op for record in found) == ["b", "deep/a"]


# what is wrong


def test_bad_folders(tmp_path: Path):
    with pytest.raises(DataError, match="no such folder"):
        read_dump(tmp_path / "none")
    (tmp_path / "empty/deep").mkdir(parents=True)
    with pytest.raises(DataError, match="is empty"):
        read_dump(tmp_path / "empty")
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(DataError, match="is a file"):
        read_dump(tmp_path / "x.txt")
    with pytest.raises(DataError, match=r"no dump files \(found x.txt\)"):
        read_dump(tmp_path)


# single files


def test_one_tensor_file_of_each_kind(tmp_path: Path):
    dump(tmp_path, f"Add.a_b.1.2.{TIME}", "a/b", 4)
    records = read_tensor(tmp_path / f"Add.a_b.1.2.{TIME}")
    assert [(r.name, r.load()[0, 0]) for r in records] == [("a/b:input:0", 4), ("a/b:output:0", 5)]
    save(tmp_path / f"Add.a_b.1.{TIME}.input.3.npy")
    (record,) = read_tensor(tmp_path / f"Add.a_b.1.{TIME}.input.3.npy")
    assert (record.name, record.task_id, record.device) == ("a_b:input:3", 1, "npu")
    save(tmp_path / f"a_b.2.{TIME}.npy")
    (record,) = read_tensor(tmp_path / f"a_b.2.{TIME}.npy")
    assert (record.name, record.timestamp_us, record.device) == ("a_b:output:2", TIME, "tf")
    write_npy(tmp_path / "h.npy", np.array([1.5]).astype(ml_dtypes.bfloat16))
    (record,) = read_tensor(tmp_path / "h.npy", dtype="bfloat16")
    assert record.load().astype(float).tolist() == [1.5]
    (record,) = read_tensor(tmp_path / "h.npy")
    assert record.source is None


@pytest.mark.parametrize(
    ("name", "message"), [("none", "check the path"), (".", "is a folder"), ("t", "not a dump file")]
)
def test_bad_tensor_files(tmp_path: Path, name: str, message: str):
    (tmp_path / "t").write_bytes(b"12345678901234567890")
    with pytest.raises(DataError, match=message):
        read_tensor(tmp_path / name)


def test_file_whose_only_tensor_is_cut_off(tmp_path: Path):
    path = tmp_path / f"Add.a.1.2.{TIME}"
    write_npu_dump(path, op_name="", inputs=[], outputs=[np.arange(100)], dump_time_us=0)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="cut off"):
        read_tensor(path)


def test_graphs_of_each_kind(tmp_path: Path):
    known = graph(Op("a", "Add"), Op("b", "Mul"))
    write_ge_text(known, tmp_path / "g.txt")
    write_ge_json(known, tmp_path / "g.json")
    (tmp_path / "t.pbtxt").write_text('node { name: "a" op: "Add" }')
    from dumpers.formats.schema import tf_message

    message = tf_message("GraphDef")
    message.node.add(name=b"a", op=b"Add")
    (tmp_path / "t.pb").write_bytes(message.SerializeToString())
    meta = tf_message("MetaGraphDef")
    meta.graph_def.CopyFrom(message)
    (tmp_path / "t.meta").write_bytes(meta.SerializeToString())
    kinds = {path.name: (read_graph(path).kind, len(read_graph(path))) for path in sorted(tmp_path.iterdir())}
    assert kinds == {
        "g.json": ("ge", 2), "g.txt": ("ge", 2), "t.meta": ("tf", 1), "t.pb": ("tf", 1), "t.pbtxt": ("tf", 1),
    }  # fmt: skip
    (tmp_path / "empty").write_bytes(b"")
    for name, message_text in (("none", "check the path"), (".", "is a folder"), ("empty", "is empty")):
        with pytest.raises(DataError, match=message_text):
            read_graph(tmp_path / name)


# speed, loosely: the aim is a second or two for 20 000 files


@pytest.mark.parametrize("kind", ["npy", "npu"])
def test_listing_is_fast(tmp_path: Path, kind: str):
    count = 1500
    for index in range(count):
        if kind == "npy":
            os.link(tmp_path / f"op_0.0.{TIME}.npy", tmp_path / f"op_{index}.0.{TIME}.npy") if index else save(
                tmp_path / f"op_0.0.{TIME}.npy"
            )
        else:
            os.link(tmp_path / f"Add.op_0.1.0.{TIME}", tmp_path / f"Add.op_{index}.1.0.{TIME}") if index else dump(
                tmp_path, f"Add.op_0.1.0.{TIME}"
            )
    start = time.process_time()
    found = read_dump(tmp_path)
    assert len(found) == count * (1 if kind == "npy" else 2)
    assert (time.process_time() - start) / count < 0.0005


# field cases and samples


def test_fc13(shared_data: Path):
    found = read_dump(shared_data / "field_cases/FC13/npu")
    assert [(r.timestamp_us % 1000, r.name, r.stream_id) for r in found] == [
        (100, "conv1_Conv2D:output:0", 12),
        (200, "relu1:output:0", None),
        (250, "fc2_MatMul:input:0", 8),
        (250, "fc2_MatMul:output:0", 8),
        (300, "fc1_MatMul_lxslice0:output:0", None),
        (400, "prob:output:0", 12),
        (400, "prob:output:2", 12),
        (400, "prob:output:10", 12),
    ]
    assert [path.name for path in found.ignored] == ["readme.txt"]
    first = next(r for r in found if np.isnan(r.load()).any())
    assert first.name == "fc2_MatMul:output:0"


def test_fc31_other_files_of_the_folder_go_on(shared_data: Path, tmp_path: Path):
    for path in (shared_data / "field_cases/FC31").iterdir():
        os.symlink(path, tmp_path / path.name)
    save(tmp_path / "good.npy")
    found = read_dump(tmp_path)
    assert [record.op for record in found] == ["good"]
    assert len(found.problems) == 4


def test_vae_sample(shared_data: Path):
    derived = shared_data / "npu_samples/derived"
    device = read_graph(derived / "vae_compare/hh_om_graph.json")
    found = read_dump(derived / "vae_compare/npu", graph=device)
    assert (len(found), len(found.by_op), {r.step for r in found}) == (12, 6, {0})
    assert "recognition/w_mean/MatMuladd" in found.by_op
    assert set(found.by_op) <= set(device.ops)
    reference = read_dump(derived / "vae_compare/tf_dump", graph=device)
    assert "recognition/w_mean/add" in reference.by_op
    assert len(reference) == 7
    converted = read_dump(derived / "vae_compare/expected_convert", graph=device)
    for record in converted:
        other = found.tensor(record.op, record.io, record.slot)
        assert record.load().reshape(-1).tobytes() == other.load().reshape(-1).tobytes()


def test_the_mark_of_an_unfinished_step_is_a_problem(tmp_path: Path):
    dump(tmp_path, f"Add.a_Add.1.0.{TIME}")
    for text, said in (("Disk full,\nstep cut off.\n", "Disk full, step cut off."), ("", "not written to its end")):
        (tmp_path / "dump_incomplete.txt").write_text(text)
        found = read_dump(tmp_path)
        assert [(p.path.name, p.reason.startswith("dump is incomplete: ")) for p in found.problems] == [
            ("dump_incomplete.txt", True)
        ]
        assert said in found.problems[0].reason
        assert found.ignored == ()
        assert len(found.records) == 2

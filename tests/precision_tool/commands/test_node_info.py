"""``ni``: the panel of one op, its picture, its dumped tensors."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.ge_graph import write_ge_json, write_ge_text
from dumpers.graph import Graph, Op, Port, Source
from precision_tool.render import plain_lines

FUSED = "dense/MatMuldense/BiasAdd"


def lines_of(result) -> list[str]:
    return list(result.blocks[-1].lines)


def test_lines_come_in_the_documented_order(data, ask) -> None:
    result = ask(f"ni {FUSED}", data.root)
    (panel,) = result.blocks
    assert panel.title == "(debug_0) ge_default_1"
    heads = [line.split(":")[0] for line in panel.lines if not line.startswith(" ")]
    assert heads == [
        "Op(Type/Name)",
        "ID",
        "KernelName",
        "KernelLibName",
        "GraphName",
        "PassName",
        "OriginalOp",
        "Input",
        "Output",
        "NpuDumpInput",
        "NpuDumpOutput",
        "TfDumpOutput",
    ]
    text = "\n".join(panel.lines)
    assert f"Op(Type/Name): [MatMulV2] {FUSED}\nID: 3\nKernelName: te_matmul_1__kernel0\n" in text
    assert "OriginalOp: dense/MatMul, dense/BiasAdd" in text
    assert " -[1][float32][ND][3, 2] [] [] [3, 2] w:0" in text
    assert " -[0][float32][ND][4, 2] [] [] [4, 2] [dense/Relu]" in text


def test_statistics_are_those_of_the_tensors(data, ask) -> None:
    result = ask("ni dense/Relu", data.root)
    device, reference = data.values["dense/Relu"] * np.float32(1.5), data.values["dense/Relu"]
    (op,) = result.data["ops"]
    dumped = {tensor["tensor"]: tensor for tensor in op["npu_dump"]}
    assert dumped["dense/Relu:output:0"]["mean"] == pytest.approx(device.mean(dtype=np.float64))
    assert dumped["dense/Relu:input:0"]["min"] == data.values["dense/BiasAdd"].min()
    assert op["tf_dump"][0]["max"] == reference.max()
    assert f"[Max: {device.max():.6g}]" in "\n".join(lines_of(result))


def test_statistics_dumps_have_the_line_from_their_columns(data, ask) -> None:
    file = data.file("Relu")
    file.unlink()
    file.with_name(file.name + ".csv").write_text(
        "Input/Output,Index,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
        "Negative Inf Count,Positive Inf Count\nOutput,0,DT_FLOAT16,ND,4x2,7.5,-1,0.25,8,1,0,0\n"
    )
    result = ask("ni dense/Relu", data.root)
    lines = lines_of(result)
    line = lines[lines.index("NpuDumpOutput:") + 2]
    figures = "[Shape: (4, 2)] [Dtype: float16] [Max: 7.5] [Min: -1] [Mean: 0.25] [NaN: 1]"
    assert line.startswith(f"  {figures} [statistics only (Relu")
    (tensor,) = result.data["ops"][0]["npu_dump"]
    assert (tensor["count"], tensor["nan"], tensor["max"]) == (8, 1, 7.5)
    found = ask("nan", data.root)
    origin = found.data["dumps"][0]["origin"]
    assert (origin["op"], origin["index"], origin["kind"]) == ("dense/Relu", None, "nan")
    assert "element and value not known" in origin["explanation"][1]


def test_reference_of_a_fused_op_is_the_last_member(data, ask) -> None:
    (op,) = ask(f"ni {FUSED}", data.root).data["ops"]
    assert [Path(tensor["file"]).name for tensor in op["tf_dump"]] == ["dense_BiasAdd.0.1700000000000102.npy"]


def test_id_zero_is_printed(data, ask) -> None:
    assert "ID: 0" in lines_of(ask("ni x", data.root))


def test_control_edges_have_no_descriptor(data, ask) -> None:
    assert " -[1][][][] b:-1" in lines_of(ask("ni to_int", data.root))


def test_attributes_on_demand(data, ask) -> None:
    assert "  transpose_x1: False" in lines_of(ask(f"ni {FUSED} -a", data.root))
    assert "  transpose_x1: False" not in lines_of(ask(f"ni {FUSED}", data.root))


def test_part_of_a_name_lists_and_shows_all(data, ask) -> None:
    result = ask("ni dense", data.root)
    assert result.blocks[0].title == "Possible Operators"
    assert result.blocks[0].lines == (f"[MatMulV2] {FUSED}", "[Relu] dense/Relu")
    assert len(result.blocks) == 3


def test_flattened_name_is_found(data, ask) -> None:
    assert [op["name"] for op in ask("ni dense_Relu", data.root).data["ops"]] == ["dense/Relu"]


def test_two_runs_stand_side_by_side(two_runs, ask) -> None:
    result = ask("ni dense/Relu", two_runs.root)
    assert [op["run"] for op in result.data["ops"]] == ["debug_0", "debug_1"]
    means = [op["npu_dump"][-1]["mean"] for op in result.data["ops"]]
    assert means[0] == pytest.approx(1.5 * means[1])


def test_unknown_op_offers_the_nearest(data, ask) -> None:
    with pytest.raises(UsageError, match=r"no op named dense/Rulez .*did you mean dense/Relu"):
        ask("ni dense/Rulez", data.root)


@pytest.mark.parametrize("line", ["ni", "ni x -s -1", "ni x -g nothing"])
def test_wrong_use(line: str, data, ask) -> None:
    with pytest.raises(UsageError):
        ask(line, data.root)


def test_graph_by_file_and_by_name(data, ask, tmp_path) -> None:
    assert ask(f"ni dense/Relu -g {data.graph()}", data.root).data["ops"][0]["run"] == "graph"
    assert ask("ni dense/Relu -g ge_default_1", data.root).data["ops"][0]["run"] == "debug_0"
    with pytest.raises(DataError, match="no graph there"):
        ask("ni x", tmp_path / "empty")


def test_picture_of_the_neighbourhood(data, ask, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = ask(f"ni {FUSED} -s 1", data.root)
    (file,) = result.files
    assert file == data.data / "temp/op_graph/debug_0.ge_default_1.MatMulV2.dense_MatMuldense_BiasAdd.1.gv"
    assert file.read_text().count('label="') == 5 + 4  # x, w, b, the op, relu; and an edge to each
    assert "dot -Tsvg" in result.notes[0]


def test_newest_build_of_a_name_wins_whatever_its_prefix(data, ask) -> None:
    folder = data.graph().parent
    newer = Graph("ge_default_1", {"only": Op("only", "Relu", id=1)}, "ge")
    write_ge_text(newer, folder / "ge_proto_00000009_graph_1_Build.txt")
    write_ge_text(Graph("other", {"early": Op("early", "Relu")}, "ge"), folder / "ge_proto_00000010_RunBegin.txt")
    assert ask("ls", data.root).data["runs"]["debug_0"]["types"] == {"Relu": 1}


def test_json_beside_an_empty_text_is_read(tmp_path, ask) -> None:
    folder = tmp_path / "precision_data/npu/debug_0/graph"
    folder.mkdir(parents=True)
    (folder / "ge_proto_0_Build.txt").touch()
    write_ge_json(Graph("g", {"a": Op("a", "Relu")}, "ge"), folder / "ge_proto_0_Build.txt.json")
    assert ask("ls", tmp_path).data["runs"]["debug_0"]["types"] == {"Relu": 1}


def test_sub_graph_and_its_caller_show_each_other(tmp_path, ask) -> None:
    port = Port("float32", (2,), "ND")
    main = [
        Op("x", "Data", output_ports=(port,)),
        Op("call", "PartitionedCall", (Source("x", 0),), (), (port,), (port,), {"subgraph_name": ("sub",)}),
    ]
    sub = [
        Op("in", "Data", (Source("", 0),), (), (port,), (port,), {"_parent_node_index": 0}),
        Op("relu", "Relu", (Source("in", 0),), (), (port,), (port,)),
        Op("sub_Node_Output", "NetOutput", (Source("relu", 0),), (), (port,)),
    ]
    text = b""
    for name, ops in (("main", main), ("sub", sub)):
        write_ge_text(Graph(name, {op.name: op for op in ops}, "ge"), tmp_path / "part.txt")
        text += (tmp_path / "part.txt").read_bytes()
    (tmp_path / "ge_proto_00000001_AfterInfershape.txt").write_bytes(text)
    ask_about = f"-g {tmp_path / 'ge_proto_00000001_AfterInfershape.txt'}"
    inner = lines_of(ask(f"ni in {ask_about}", tmp_path))
    assert any(line.startswith(" -[0][float32]") and line.endswith(" x:0 (input 0 of call)") for line in inner)
    assert " -[0] from relu:0 in sub (f)" in lines_of(ask(f"ni call {ask_about}", tmp_path))


def test_a_pass_that_was_undone_says_so(tmp_path, ask) -> None:
    op = Op("a", "Add", attrs={"pass_name": "EltwisePass", "fusion_failed": 2})
    write_ge_text(Graph("g", {"a": op}, "ge"), tmp_path / "g.txt")
    assert "PassName: EltwisePass (undone by the compiler: fusion_failed)" in lines_of(
        ask(f"ni a -g {tmp_path / 'g.txt'}", tmp_path)
    )


HOSTILE = ["grads[/red]", "w[bold]", "[@click=app.quit]go[/]", "x\x1b[2J", "right\u202eleft", "two\nlines", "層/卷积"]


def test_hostile_names_stay_one_row_each(tmp_path, ask) -> None:
    folder = tmp_path / "precision_data/npu/debug_0/graph"
    folder.mkdir(parents=True)
    ops = {name: Op(name, "Relu", id=i) for i, name in enumerate(HOSTILE)}
    write_ge_text(Graph("g[b]", ops, "ge"), folder / "ge_proto_1_Build.txt")
    lines = plain_lines(ask("ls -t Relu", tmp_path))
    assert len(lines) == 3 + len(HOSTILE)
    assert lines[3:] == [
        "[Relu][] grads[/red]",
        "[Relu][] w[bold]",
        "[Relu][] [@click=app.quit]go[/]",
        "[Relu][] x\\x1b[2J",
        "[Relu][] right\\u202eleft",
        "[Relu][] two\\nlines",
        "[Relu][] 層/卷积",
    ]


def test_real_sample(shared_data, tmp_path, ask) -> None:
    base = tmp_path / "precision_data"
    samples = shared_data / "npu_samples/derived"
    (base / "npu/debug_0/graph").mkdir(parents=True)
    shutil.copy(samples / "ge_proto_00000000_Build.txt", base / "npu/debug_0/graph")
    shutil.copytree(samples / "vae_compare/npu", base / "npu/debug_0/dump")
    shutil.copytree(samples / "vae_compare/tf_dump", base / "tf/dump")
    result = ask("ni recognition/w_mean/MatMuladd", tmp_path)
    (op,) = result.data["ops"]
    assert op["id"] == 35
    assert len(op["inputs"]) == 4
    assert op["kernel"] == "te_fused_op_mat_mul_add_b3ec4a92b8991bbf_2d722d672a9d6cb9_0__kernel0"
    (reference,) = op["tf_dump"]
    assert Path(reference["file"]).name.startswith("add.0.")
    assert reference["shape"] == [100, 20]
    (output,) = op["npu_dump"]
    right = np.load(next((samples / "vae_compare/expected_convert").glob("MatMulV2.recognition_w_mean*")))
    assert output["shape"] == [100, 20]  # without the layout's padding, which would pull the mean to zero
    assert "FRACTAL_NZ" in output["layout"]
    if right.shape == (100, 20):
        assert output["mean"] == pytest.approx(right.mean(dtype=np.float64), rel=1e-6, abs=0)

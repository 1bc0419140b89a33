"""``vc``, ``vcs``, ``verdict``, ``nan``, ``replay`` on a device whose relu is wrong by a factor of 1.5."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.ge_graph import write_ge_text
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.graph import Graph, Op
from precision_tool.render import plain_data
from precision_tool.result import Table

FUSED = "dense/MatMuldense/BiasAdd"


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_device_against_reference_uses_original_names(data, ask) -> None:
    result = ask("vc", data.root)
    (file,) = result.files
    assert file.parent.parent == data.data / "temp/vector_compare"
    assert file.name == f"result_{file.parent.name}.csv"
    rows = {row["TensorIndex"]: row for row in rows_of(file)}
    assert rows[f"{FUSED}:output:0"]["GroundTruth"] == "dense/MatMul,dense/BiasAdd"
    assert float(rows[f"{FUSED}:output:0"]["RelativeEuclideanDistance"]) < 1e-6
    assert float(rows["dense/Relu:output:0"]["CosineSimilarity"]) == 1.0
    assert float(rows["dense/Relu:output:0"]["RelativeEuclideanDistance"]) == pytest.approx(0.5, abs=1e-5)
    assert result.exit_code == 1  # the cast to integers behind it falls below 0.98
    json.dumps(plain_data(result.data), allow_nan=False)


def test_all_tensors_are_in_a_table_for_the_tui(data, ask) -> None:
    result = ask("vc", data.root)
    (table,) = [block for block in result.blocks if isinstance(block, Table) and block.paged]
    assert len(table.rows) == result.data["comparisons"][0]["rows"]
    assert {"Op", "OpType", "Tensor", "CosineSimilarity"} <= set(table.columns)


def test_two_runs_when_there_is_no_reference(two_runs, ask) -> None:
    result = ask("vc", two_runs.root)
    (comparison,) = result.data["comparisons"]
    assert comparison["left"] == str(two_runs.leaf("debug_0"))
    assert comparison["right"] == str(two_runs.leaf("debug_1"))
    assert comparison["judged"] == comparison["rows"]


def test_two_device_dumps_need_no_graph(two_runs, ask) -> None:
    for run in ("debug_0", "debug_1"):
        shutil.rmtree(two_runs.graph(run).parent)
    result = ask(f"vc -lt {two_runs.leaf('debug_0')} -rt {two_runs.leaf('debug_1')}", two_runs.root)
    assert result.data["comparisons"][0]["judged"] == 8
    assert result.exit_code == 1


def test_a_run_against_itself_is_clean(data, ask) -> None:
    result = ask(f"vc -lt {data.leaf()} -rt {data.leaf()}", data.root)
    assert result.exit_code == 0
    assert result.data["comparisons"][0]["differing"] == 0


def test_directories_may_be_given_by_a_parent(two_runs, ask) -> None:
    top = two_runs.data / "npu"
    result = ask(f"vc -lt {top / 'debug_0' / 'dump'} -rt {top / 'debug_1' / 'dump'}", two_runs.root)
    assert result.data["comparisons"][0]["left"] == str(two_runs.leaf("debug_0"))


def test_given_graph_serves_a_dump_far_from_it(data, ask, tmp_path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(data.leaf(), moved)
    result = ask(f"vc -lt {moved} -rt {data.reference} -g {data.graph()}", data.root)
    rows = {row["TensorIndex"]: row for row in rows_of(result.files[0])}
    assert rows[f"{FUSED}:output:0"]["GroundTruth"] == "dense/MatMul,dense/BiasAdd"


def test_of_several_steps_the_last_is_compared(data, ask) -> None:
    for step in ("9", "10"):
        shutil.copytree(data.leaf(), data.leaf().parent / step)
    result = ask("vc", data.root)
    assert result.data["comparisons"][0]["left"].endswith("/10")
    assert sum("earlier step" in note for note in result.notes) == 2


def test_truncated_dump_spoils_itself_and_wins_the_exit_code(data, ask) -> None:
    file = data.file("Cast")
    file.write_bytes(file.read_bytes()[:-40])
    result = ask("vc", data.root)
    assert result.exit_code == 3
    assert any(file.name in note for note in result.notes)
    assert result.data["comparisons"][0]["judged"] >= 4


@pytest.mark.parametrize("line", ["vc", "verdict", "nan"])
def test_an_unfinished_step_is_said_and_wins_the_exit_code(line: str, data, ask) -> None:
    (data.leaf() / "dump_incomplete.txt").write_text("the disk was full\n")
    result = ask(line, data.root)
    assert result.exit_code == 3
    assert [problem.endswith("dump is incomplete: the disk was full") for problem in result.problems] == [True]
    assert any("dump is incomplete: the disk was full" in note for note in result.notes)


def test_no_folder_is_left_for_a_result_that_could_not_be_written(data, ask, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "result.csv")

    monkeypatch.setattr("compare.table.write_csv", full)
    with pytest.raises(OSError, match="No space left"):
        ask("vc", data.root)
    assert list((data.root / "precision_data/temp/vector_compare").iterdir()) == []


def test_one_side_only(data, ask) -> None:
    shutil.rmtree(data.reference)
    with pytest.raises(DataError, match=r"tf.dump: empty.*tf_dump"):
        ask("vc", data.root)
    with pytest.raises(DataError, match="tf_dump"):
        ask("verdict", data.root)


def test_graph_of_another_model(data, ask) -> None:
    foreign = data.root / "foreign.txt"
    write_ge_text(Graph("ge_default_1", {"a": Op("a", "Relu"), "c": Op("c", "Add")}, "ge"), foreign)
    with pytest.raises(DataError, match="belongs to another model"):
        ask(f"vc -lt {data.leaf()} -rt {data.reference} -g {foreign}", data.root)


def test_empty_directory(data, ask, tmp_path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="nothing: empty"):
        ask(f"vc -lt {tmp_path / 'nothing'} -rt {data.reference}", data.root)


def test_results_of_one_second_do_not_collide(data, ask) -> None:
    files = {ask("vc", data.root).files[0] for _ in range(3)}
    assert len(files) == 3


# -------------------------------------------------------------------------------------------------------------- vcs


def test_summary_reads_the_newest_comparison(data, ask) -> None:
    ask("vc", data.root)
    newest = ask("vc", data.root).files[0]
    result = ask("vcs", data.root)
    assert [file["file"] for file in result.data["files"]] == [str(newest)]
    assert result.exit_code == 1
    assert [op["name"] for op in result.data["files"][0]["suspects"]] == ["to_int"]
    panel = result.blocks[0]
    assert panel.title == "[5] to_int"
    assert panel.lines[0] == "Left: to_int"
    assert panel.lines[3].startswith("Output:\t - [0]0.903696")
    assert "(distance 1.118" in panel.lines[3]


def test_limit_and_threshold(data, ask) -> None:
    file = ask("vc", data.root).files[0]
    everything = ask(f"vcs -f {file} -c 1.0 -l 20", data.root).data["files"][0]
    assert everything["found"] >= 2  # 1.000000 <= 1.0 counts
    assert len(ask(f"vcs -f {file} -c 1.0 -l 1", data.root).data["files"][0]["listed"]) == 1
    assert ask(f"vcs -f {file} -c 0.5", data.root).exit_code == 0


@pytest.mark.parametrize("options", ["-c 1.5", "-c nan", "-l -1"])
def test_senseless_options(options: str, data, ask) -> None:
    with pytest.raises(UsageError):
        ask(f"vcs {options}", data.root)


def test_every_row_on_demand(data, ask) -> None:
    ask("vc", data.root)
    assert "All tensors" in [block.title for block in ask("vcs --all", data.root).blocks]


@pytest.mark.parametrize(
    ("name", "options", "listed"),
    [
        ("result_20240125160000.csv", "", [35]),
        ("result_20240125160000.csv", "-c 1.0 -l 20", [27, 30, 31, 33, 34, 35]),
        ("result_20240125160100.csv", "", []),
    ],
)
def test_real_samples(name: str, options: str, listed: list[int], shared_data, tmp_path, ask) -> None:
    file = shared_data / "npu_samples/derived/vae_compare" / name
    (summary,) = ask(f"vcs -f {file} {options}", tmp_path).data["files"]
    assert [op["index"] for op in summary["listed"]] == listed
    if listed == [35]:
        (op,) = summary["listed"]
        assert op["left"] == ["recognition/w_mean/MatMuladd"]
        assert op["right"] == ["recognition/w_mean/add", "recognition/w_mean/MatMul", "add"]
        assert (op["inputs"], op["outputs"]) == ({}, {"0": 0.932868})


# ---------------------------------------------------------------------------------------------------------- verdict


def test_verdict_names_the_op_and_not_what_follows(data, ask) -> None:
    result = ask("verdict", data.root)
    assert (result.data["verdict"], result.data["op"]) == ("operator", "dense/Relu")
    assert result.exit_code == 1
    assert [s["op"] for s in result.data["suspects"]] == ["dense/Relu"]
    assert result.blocks[0].lines[0] == result.title
    json.dumps(plain_data(result.data), allow_nan=False)


def test_verdict_on_given_directories(two_runs, ask) -> None:
    left, right = two_runs.leaf("debug_0"), two_runs.leaf("debug_1")
    assert ask(f"verdict {left} {right}", two_runs.root).data["op"] == "dense/Relu"
    swapped = ask(f"verdict {right} {left}", two_runs.root).data
    assert (swapped["op"], swapped["side"]) == ("dense/Relu", "right")


def test_verdict_on_a_clean_pair(two_runs, ask) -> None:
    right = two_runs.leaf("debug_1")
    result = ask(f"verdict {right} {right}", two_runs.root)
    assert result.data["verdict"] in ("fine", "rounding")
    assert result.exit_code == 0


def test_one_side_is_examined_alone(data, ask) -> None:
    result = ask(f"verdict {data.leaf()}", data.root)
    assert result.data["op"] == "dense/Relu"


# -------------------------------------------------------------------------------------------------------------- nan


def test_no_nan(data, ask) -> None:
    result = ask("nan", data.root)
    assert (result.exit_code, result.data["dumps"][0]["origin"]) == (0, None)


def test_nan_is_traced_to_the_op_that_made_it(data, ask) -> None:
    right = data.values["dense/BiasAdd"]
    relu = np.maximum(right, 0)
    relu[1, 1] = np.nan
    write_npu_dump(data.file("Relu"), op_name="dense/Relu", inputs=[right], outputs=[relu], dump_time_us=2)
    data.file("Cast").unlink()
    result = ask("nan", data.root)
    origin = result.data["dumps"][0]["origin"]
    assert (origin["op"], origin["kind"], origin["index"]) == ("dense/Relu", "nan", [1, 1])
    assert origin["inputs_clean"] is True
    assert result.exit_code == 1


def test_nan_in_a_given_directory_of_npy(tmp_path, ask) -> None:
    write_npy(tmp_path / "a.0.1700000000000001.npy", np.array([1.0, np.inf], np.float32))
    result = ask(f"nan {tmp_path}", tmp_path)
    assert result.exit_code == 1
    assert result.data["dumps"][0]["origin"]["kind"] == "inf"


def test_field_case_13(shared_data, tmp_path, ask) -> None:
    result = ask(f"nan {shared_data / 'field_cases/FC13/npu'}", tmp_path)
    (found,) = result.data["dumps"]
    assert found["origin"]["tensor"] == "fc2_MatMul:output:0"
    assert found["origin"]["timestamp_us"] == 1700000000000250
    assert found["origin"]["inputs_clean"] is True
    assert any("readme.txt" in note for note in result.notes)
    names = [finding["tensor"] for finding in found["findings"]]
    assert names[:2] == ["fc2_MatMul:output:0", "fc1_MatMul_lxslice0:output:0"]


# ----------------------------------------------------------------------------------------------------------- replay


def test_replay_of_the_wrong_op(data, ask) -> None:
    result = ask("replay dense/Relu", data.root)
    assert result.exit_code == 1
    (output,) = result.data["outputs"]
    wrong = np.abs(data.values["dense/Relu"] * np.float32(1.5) - data.values["dense/Relu"])
    assert output["faulty"] is True
    assert output["local_error"] == pytest.approx(wrong.max(), rel=1e-6, abs=0)
    assert output["differing"] == np.count_nonzero(wrong)
    worst = result.data["worst"][0]
    assert tuple(json.loads(worst["Index"])) == np.unravel_index(wrong.argmax(), wrong.shape)


def test_replay_of_a_carrier(data, ask) -> None:
    result = ask(f"replay {FUSED}", data.root)
    assert result.exit_code == 0
    assert result.data["outputs"][0]["faulty"] is False
    x, w, b = (data.values[name].astype(np.float64) for name in ("x", "w", "b"))
    error = np.abs(x @ w + b - data.values["dense/BiasAdd"])
    assert result.data["outputs"][0]["local_error"] == pytest.approx(error.max(), rel=1e-6, abs=0)


def test_replay_without_dumped_inputs_takes_the_producers(data, ask) -> None:
    v = data.values
    write_npu_dump(data.file("Relu"), op_name="dense/Relu", inputs=[], outputs=[v["dense/Relu"]], dump_time_us=2)
    result = ask("replay dense/Relu", data.root)
    assert result.data["assumed_inputs"] is True
    assert any("producers" in note for note in result.notes)


def test_replay_without_the_data_is_3(data, ask) -> None:
    data.file("Relu").unlink()
    assert ask("replay dense/Relu", data.root).exit_code == 3


def test_replay_needs_an_op_a_graph_and_a_dump(data, ask, tmp_path) -> None:
    with pytest.raises(UsageError, match="did you mean dense/Relu"):
        ask("replay dense/Rel", data.root)
    shutil.rmtree(data.graph().parent)
    with pytest.raises(DataError, match="-g FILE"):
        ask("replay dense/Relu", data.root)
    with pytest.raises(DataError, match="no dump"):
        ask("replay x", tmp_path / "empty")


@pytest.mark.parametrize("sample", ["msprobe", "tfdbg", "tf_record", "saved_model"])
def test_a_folder_that_is_one_dump_with_all_below_it(sample: str, ask, tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "data/samples" / sample
    result = ask(f"vc -lt {folder} -rt {folder}", tmp_path)
    assert result.exit_code == 0
    assert result.data["comparisons"][0]["compared_bytes"] > 0


def test_a_file_that_is_no_dump_is_not_said_to_be_missing(ask, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(DataError, match=r"a\.bin: a file that is no dump of its own; give its folder"):
        ask(f"nan {tmp_path}/a.bin", tmp_path)


def test_a_map_pairs_ops_and_coverage_is_told(tmp_path, ask) -> None:
    values = np.arange(6, dtype=np.float32)
    for side, name in (("a", "model_fc"), ("b", "net_fc")):
        (tmp_path / side).mkdir()
        write_npy(tmp_path / side / f"{name}.0.1700000000000000.npy", values)
        write_npy(tmp_path / side / f"{side}_only.0.1700000000000001.npy", values[:2])
    (tmp_path / "names.csv").write_text("re:model_(.*),net_\\1\nunused,net_x\n")
    line = f"vc -lt {tmp_path / 'a'} -rt {tmp_path / 'b'}"
    assert ask(line, tmp_path).data["comparisons"][0]["judged"] == 0
    result = ask(f"{line} --map {tmp_path / 'names.csv'}", tmp_path)
    (data,) = result.data["comparisons"]
    assert data["judged"] == 1
    assert data["coverage"] == {side: {"bytes": 32, "paired": 24, "compared": 24} for side in ("left", "right")}
    assert {(row["side"], row["op"]) for row in data["unpaired"]} == {("left", "a_only"), ("right", "b_only")}
    assert all(row["reason"] and row["bytes"] == 8 for row in data["unpaired"])
    assert "map: names.csv line 2: no op on the left is called unused" in result.notes
    assert "left: 32 bytes, 24 bytes (75.0 %) paired, 24 bytes (75.0 %) compared" in result.notes
    json.dumps(plain_data(result.data), allow_nan=False)
    with pytest.raises(DataError, match=r"none\.csv: cannot be read"):
        ask(f"{line} --map {tmp_path / 'none.csv'}", tmp_path)


def test_a_renamed_scope_is_proposed_and_the_proposal_can_be_given(tmp_path, ask) -> None:
    for side, scope in (("a", "model"), ("b", "net_1")):
        (tmp_path / side).mkdir()
        for number in range(4):
            values = np.arange(6, dtype=np.float32) + number
            write_npy(tmp_path / side / f"{scope}_fc{number}_MatMul.0.170000000000000{number}.npy", values)
    line = f"vc -lt {tmp_path / 'a'} -rt {tmp_path / 'b'}"
    result = ask(line, tmp_path)
    (data,) = result.data["comparisons"]
    assert data["judged"] == 0
    (suggestion,) = data["suggestions"]
    assert suggestion["map"] == {"re:model_(.+)": "net_1_\\1"}
    assert any(isinstance(block, Table) and block.title.startswith("Proposals") for block in result.blocks)
    (data,) = ask(f"{line} --map {data['suggested_map']}", tmp_path).data["comparisons"]
    assert (data["judged"], data["differing"], data["suggestions"], data["suggested_map"]) == (4, 0, [], None)
    assert ask("vcs", tmp_path).exit_code == 0  # the file with proposals is no result file

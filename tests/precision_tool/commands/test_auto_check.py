"""``ac``: the six checks, each with data that are there and data that are not."""

from __future__ import annotations

import shutil

import pytest

from dumpers.formats.ge_graph import write_ge_text
from dumpers.graph import Graph, Op, Port, Source

CHECKS = ["summary", "fusion", "overflow", "cast", "graph_similarity"]


def test_nothing_there_is_notes_not_errors(tmp_path, ask) -> None:
    result = ask("ac", tmp_path)
    assert list(result.data) == CHECKS
    assert all("not_checked" in answer for answer in result.data.values())
    assert len(result.notes) == len(CHECKS)
    assert (result.exit_code, list(result.blocks)) == (3, [])


def test_with_c_the_dumps_are_compared_first(data, ask) -> None:
    result = ask("ac -c", data.root)
    assert list(result.data) == ["vector_compare", *CHECKS]
    assert result.exit_code == 1
    assert result.files
    assert "not_checked" not in ask("ac", data.root).data["summary"]


def test_casts_from_float_to_int(data, ask) -> None:
    result = ask("ac", data.root)
    assert result.data["cast"] == {"float32_to_int32": ["to_int"]}
    assert "[Cast][DT_FLOAT -> DT_INT32] to_int" in [line for block in result.blocks for line in block.lines]


def test_equal_graphs_are_wholly_alike(two_runs, ask) -> None:
    likeness = ask("ac", two_runs.root).data["graph_similarity"]
    assert likeness == {"alike": 5, "compared": 5, "different": []}  # the cast is not counted on either side


def test_graphs_differ_by_dtype_and_format_not_by_shape(two_runs, ask) -> None:
    def graph(dtype: str, layout: str, shape: tuple[int, ...], extra: str) -> Graph:
        ops = [Op("a", "Data", output_ports=(Port("float32", shape, "ND"),))]
        ops.append(
            Op("b", "Relu", (Source("a", 0),), (), (Port(dtype, shape, layout),), (Port("float32", shape, "ND"),))
        )
        return Graph("g", {op.name: op for op in [*ops, Op(extra, "Add")]}, "ge", attrs={"_session_graph_id": "0_1"})

    write_ge_text(graph("float32", "ND", (2,), "left"), two_runs.graph("debug_0"))
    write_ge_text(graph("float16", "ND", (2,), "right"), two_runs.graph("debug_1"))
    result = ask("ac", two_runs.root)
    assert result.data["graph_similarity"] == {"alike": 1, "compared": 2, "different": ["b"]}
    assert any("left: only in debug_0" in note for note in result.notes)
    assert any("right: only in debug_1" in note for note in result.notes)
    write_ge_text(graph("float32", "ND", (3,), "left"), two_runs.graph("debug_1"))
    assert ask("ac", two_runs.root).data["graph_similarity"]["different"] == []
    write_ge_text(graph("float32", "NHWC", (2,), "left"), two_runs.graph("debug_1"))
    assert ask("ac", two_runs.root).data["graph_similarity"]["different"] == ["b"]


def test_real_fusion_report(shared_data, tmp_path, ask) -> None:
    place = tmp_path / "precision_data/fusion"
    place.mkdir(parents=True)
    shutil.copy(shared_data / "npu_samples/vae_om/fusion_result.json", place)
    result = ask("ac", tmp_path)
    (graph,) = result.data["fusion"]["graphs"]
    assert (len(graph["graph_fusion"]), len(graph["ub_fusion"])) == (4, 3)
    assert [block.title for block in result.blocks] == ["Graph Fusion [GraphID: 0_0]", "UB Fusion [GraphID: 0_0]"]
    assert result.blocks[0].columns == ("Fusion Name", "Effect times")


def test_damaged_fusion_report_is_a_note(tmp_path, ask) -> None:
    place = tmp_path / "precision_data/fusion"
    place.mkdir(parents=True)
    (place / "fusion_result.json").write_text("{")
    assert "fusion_result.json" in ask("ac", tmp_path).data["fusion"]["not_checked"]


@pytest.mark.parametrize(("limit", "shown"), [(1, 1), (3, 3), (9, 5), (0, 0)])
def test_real_overflow_records(limit: int, shown: int, shared_data, tmp_path, ask) -> None:
    place = tmp_path / "precision_data/overflow/dump/20240125153320/0/g/1/0"
    shutil.copytree(shared_data / "npu_samples/derived/dumps", place)
    result = ask(f"ac -l {limit}", tmp_path)
    overflow = result.data["overflow"]
    assert overflow["total"] == 5
    assert len(overflow["records"]) == shown
    if shown:
        (event,) = overflow["records"][0]["events"]
        assert event["op"] == "trans_TransData_1170"
        assert event["status"] == [32]
        assert event["meanings"] == ["floating-point overflow"]
        assert result.exit_code == 1

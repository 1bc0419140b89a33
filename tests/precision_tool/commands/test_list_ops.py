"""``ls``: types, filters, dump files."""

from __future__ import annotations

import shutil

import pytest

from dumpers.errors import DataError


def test_types_in_order_of_first_appearance(data, ask) -> None:
    (table,) = ask("ls", data.root).blocks
    assert table.title == "debug_0"
    assert table.columns == ("OpType", "Count")
    assert table.rows == (("Data", 1), ("Const", 2), ("MatMulV2", 1), ("Relu", 1), ("Cast", 1))


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ("-t MatMul", ["dense/MatMuldense/BiasAdd"]),
        ("op -t MatMul", ["dense/MatMuldense/BiasAdd"]),
        ("-n dense", ["dense/MatMuldense/BiasAdd", "dense/Relu"]),
        ("-n dense -t Relu", ["dense/Relu"]),
        ("-f BiasAddFusion", ["dense/MatMuldense/BiasAdd"]),
        ("-k te_matmul", ["dense/MatMuldense/BiasAdd"]),
        ("-t matmul", []),
    ],
)
def test_all_filters_must_hold_and_case_matters(filters: str, names: list[str], data, ask) -> None:
    result = ask(f"ls {filters}", data.root)
    assert [op["name"] for op in result.data["runs"]["debug_0"]["ops"]] == names
    assert bool(result.notes) is not bool(names)


def test_line_has_type_pass_and_name(data, ask) -> None:
    (panel,) = ask("ls -t MatMul", data.root).blocks
    assert panel.lines == ("[MatMulV2][MatMulBiasAddFusionPass] dense/MatMuldense/BiasAdd",)


def test_runs_are_listed_apart_debug_0_first(two_runs, ask) -> None:
    assert [block.title for block in ask("ls", two_runs.root).blocks] == ["debug_0", "debug_1"]


def test_dump_files_of_the_newest_time(data, ask) -> None:
    older = data.leaf().parents[4] / "9_old"
    shutil.copytree(data.leaf().parents[3], older)
    (table,) = ask("ls dump", data.root).blocks
    assert table.columns == ("Type", "Name", "Task", "Stream", "Time", "File")
    assert [row[:5] for row in table.rows] == [
        ("MatMulV2", "dense/MatMuldense/BiasAdd", 1, 0, 1700000000000001),
        ("Relu", "dense/Relu", 2, 0, 1700000000000002),
        ("Cast", "to_int", 3, 0, 1700000000000003),
    ]
    assert all(row[5].startswith("20240101000000/") for row in table.rows)


def test_dump_files_can_be_filtered(data, ask) -> None:
    (table,) = ask("ls dump -t Relu -n dense", data.root).blocks
    assert [row[1] for row in table.rows] == ["dense/Relu"]


def test_nothing_to_list_is_an_error_that_helps(tmp_path, ask) -> None:
    with pytest.raises(DataError, match="ge_proto_"):
        ask("ls", tmp_path)
    with pytest.raises(DataError, match="no dump"):
        ask("ls dump", tmp_path)


def test_real_sample_graph(shared_data, tmp_path, ask) -> None:
    graph = tmp_path / "precision_data" / "npu" / "debug_0" / "graph"
    graph.mkdir(parents=True)
    shutil.copy(shared_data / "npu_samples/derived/ge_proto_00000000_Build.txt", graph)
    types = ask("ls", tmp_path).data["runs"]["debug_0"]["types"]
    assert len(types) == 17
    assert (types["Const"], types["TransData"]) == (17, 7)
    ops = ask("ls -f Tbe", tmp_path).data["runs"]["debug_0"]["ops"]
    assert sorted(op["type"] for op in ops) == ["Conv2DBackpropInputD", "MatMulV2", "MatMulV2"]


def test_a_damaged_graph_spoils_itself_only(data, ask) -> None:
    """The other graph and the dump are still shown; the answer names the file, and says that data were unreadable."""
    folder = data.root / "precision_data/npu/debug_0/graph"
    whole = ask("ls", data.root).blocks[0].rows
    bad = folder / "ge_proto_00000077_graph_9_Build.txt"
    bad.write_text('graph {\n  op {\n    name: "a"')
    for line in ("ls", "ls dump", "ni dense/Relu", "nan"):
        result = ask(line, data.root)
        assert result.exit_code == 3, line
        assert [text for text in result.problems if bad.name in text] == list(result.problems), line
        assert next(iter(result.problems)) in result.notes
    assert ask("ls", data.root).blocks[0].rows == whole


def test_of_damaged_graphs_alone_the_error_is_told(data, ask) -> None:
    for path in (data.root / "precision_data/npu/debug_0/graph").rglob("ge_proto_*"):
        path.write_text('graph {\n  op {\n    name: "a"')
    with pytest.raises(DataError, match=r"ge_proto_.*cut off"):
        ask("ls", data.root)
    listed = ask("ls dump", data.root)
    assert listed.exit_code == 3
    assert len(listed.blocks[0].rows) == 3

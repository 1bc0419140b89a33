"""workbench: finding graphs, dumps and steps; reading each only once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dumpers.errors import DataError, UsageError
from dumpers.graph import Op
from dumpers.settings import Settings
from precision_tool.workbench import Workbench, did_you_mean, graph_files, leaf_directories, settings_for, unknown_op


@pytest.fixture
def workbench(data) -> Workbench:  # type: ignore[no-untyped-def]
    return Workbench(Settings(root_dir=data.root))


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["ge_proto_00000001_Build.txt"], ["ge_proto_00000001_Build.txt"]),
        (["ge_proto_2_Build.txt", "ge_proto_10_Build.txt"], ["ge_proto_10_Build.txt"]),
        (
            ["ge_proto_00000094_graph_1_Build.txt", "ge_proto_00000090_graph_2_Build.txt"],
            ["ge_proto_00000090_graph_2_Build.txt", "ge_proto_00000094_graph_1_Build.txt"],
        ),
        (["ge_proto_3_graph_1_PreRunAfterBuild.txt"], ["ge_proto_3_graph_1_PreRunAfterBuild.txt"]),
        (["ge_proto_3_PreRunBegin.txt", "ge_proto_x_Build.txt", "notes.txt", "ge_onnx_1_Build.pbtxt"], []),
    ],
)
def test_build_graphs_are_found_by_number(names: list[str], chosen: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("graph {}")
    assert [path.name for path in graph_files(tmp_path)] == chosen


def test_graphs_of_several_processes(tmp_path: Path) -> None:
    """Newer compilers write into a folder a process; numbers of two processes say nothing about each other."""
    for time, (folder, name) in enumerate(
        [
            ("pid_7_deviceid_0", "ge_proto_00000050_graph_1_Build.txt"),
            ("pid_9_deviceid_0", "ge_proto_00000003_graph_1_Build.txt"),
            ("pid_9_deviceid_0", "ge_proto_00000002_graph_1_Build.txt"),
            ("pid_9_deviceid_0", "ge_proto_00000002_graph_2_Build.txt"),
            ("pid_9_deviceid_0", "ge_proto_00000001_PreRunBegin.txt"),
            ("other", "ge_proto_00000099_graph_1_Build.txt"),
        ]
    ):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("graph {}")
        os.utime(path, (1_700_000_000 + time, 1_700_000_000 + time))
    chosen = [path.relative_to(tmp_path).as_posix() for path in graph_files(tmp_path)]
    assert chosen == [
        "pid_9_deviceid_0/ge_proto_00000002_graph_2_Build.txt",
        "pid_9_deviceid_0/ge_proto_00000003_graph_1_Build.txt",
    ]


def test_no_folder_has_no_graphs(tmp_path: Path) -> None:
    assert graph_files(tmp_path / "missing") == []


def test_steps_sort_by_number(data, workbench: Workbench) -> None:
    for step in ("2", "10"):
        shutil.copytree(data.leaf(), data.leaf().parent / step)
    latest, earlier = workbench.latest_leaves()
    assert [leaf.name for leaf in latest] == ["10"]
    assert sorted(leaf.name for leaf in earlier) == ["0", "2"]


def test_newest_time_is_a_number(data, workbench: Workbench) -> None:
    top = data.data / "npu/debug_0/dump"
    shutil.copytree(top / "20240101000000", top / "9_old")
    shutil.copytree(top / "20240101000000", top / "20250101000000")
    assert [leaf.parts[-5] for leaf in workbench.npu_leaves()] == ["20250101000000"]


def test_links_are_followed_and_rings_end(data) -> None:
    top = data.data / "npu/debug_0/dump/20240101000000"
    os.symlink(top, top / "0" / "ring")
    os.symlink(data.leaf(), top / "7")
    assert len(list(leaf_directories(top))) == 1  # the link leads to a directory that was seen already


def test_a_dump_is_read_once_until_it_changes(data, workbench: Workbench) -> None:
    first = workbench.read_dump(data.leaf())
    assert workbench.read_dump(data.leaf()) is first
    data.file("Cast").unlink()
    assert len(workbench.read_dump(data.leaf())) == len(first) - 2


def test_graph_beside_a_dump_gives_full_names(data, workbench: Workbench) -> None:
    graph = workbench.graph_beside(data.leaf())
    assert graph is not None
    assert graph.name == "ge_default_1"
    assert "dense/Relu" in workbench.read_dump(data.leaf()).by_op


def test_foreign_place_has_no_graph(tmp_path: Path) -> None:
    assert Workbench(Settings(root_dir=tmp_path)).graph_beside(tmp_path) is None


def test_missing_things_are_data_errors(workbench: Workbench, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        workbench.read_dump(tmp_path / "missing")
    with pytest.raises(DataError, match="no such graph file"):
        workbench.read_graphs(tmp_path / "missing")
    with pytest.raises(DataError, match="--root"):
        settings_for(str(tmp_path / "missing"))


def test_root_comes_from_the_option_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOT_DIR", str(tmp_path / "env"))
    assert settings_for(None).root_dir == tmp_path / "env"
    assert settings_for(str(tmp_path)).data_root == tmp_path / "precision_data"


def test_nearest_name() -> None:
    assert did_you_mean("dense/Rel", ["dense/Relu", "x"]) == "did you mean dense/Relu?"
    assert did_you_mean("block1", ["block2", "block3"]) == "did you mean block3 or block2?"
    assert did_you_mean("zzz", ["dense/Relu"]) == ""
    assert isinstance(unknown_op("zzz", [], "here"), UsageError)


def test_an_original_op_leads_to_the_one_it_was_fused_into() -> None:
    originals = {"_datadump_original_op_names": ["dense/MatMul", "dense/BiasAdd"]}
    ops = [Op("dense/MatMuldense/BiasAdd", "MatMulV2", attrs=originals), Op("x", "Data")]
    assert "it became part of dense/MatMuldense/BiasAdd" in str(unknown_op("dense/BiasAdd", ops, "here"))
    assert "did you mean dense/MatMuldense/BiasAdd?" in str(unknown_op("dense/BiasAd", ops, "here"))


def test_beside_a_damaged_graph_only_the_name_counts(workbench: Workbench, data) -> None:  # type: ignore[no-untyped-def]
    """The graph that is left may belong to something else, so it is not taken for want of another."""
    graphs = data.root / "precision_data/npu/debug_0/graph"
    (good,) = graph_files(graphs)
    stray = data.root / "precision_data/npu/debug_0/dump/20240101000000/0/another/1/0"
    stray.mkdir(parents=True)
    assert workbench.graph_beside(stray) is not None
    (graphs / "ge_proto_00000077_other_Build.txt").write_text("graph {")
    assert workbench.graph_beside(stray) is None
    assert [good.name not in line and "other_Build" in line for line in workbench.take_damaged()] == [True]
    assert workbench.take_damaged() == ()

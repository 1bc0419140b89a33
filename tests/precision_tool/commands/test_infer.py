"""``infer`` and ``npu_dump``: the two commands of old scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dumpers.errors import DataError, UsageError


@pytest.fixture
def result_tree(shared_data: Path, tmp_path: Path) -> Path:
    """As msquickcmp leaves it: ``model``, ``dump_data/{npu,tf}`` and a result csv."""
    vae = shared_data / "npu_samples/derived/vae_compare"
    root = tmp_path / "msquickcmp/20240125153000"
    for folder in ("model", "dump_data/npu"):
        (root / folder).mkdir(parents=True)
    os.symlink(vae / "hh_om_graph.json", root / "model/hh.json")
    os.symlink(vae / "npu/20240125153144", root / "dump_data/npu/20240125153144")
    os.symlink(vae / "tf_dump", root / "dump_data/tf")
    os.symlink(vae / "result_20240125160000.csv", root / "result_20240125160000.csv")
    return tmp_path / "msquickcmp"


def test_a_result_tree(result_tree: Path, tmp_path: Path, ask) -> None:
    result = ask(f"infer {result_tree}", tmp_path)
    data = tmp_path / "precision_data"
    assert result.exit_code == 0
    graphs = sorted(path.name for path in (data / "npu/debug_0/graph").iterdir())
    assert graphs == ["ge_proto_0_Build.txt", "ge_proto_0_Build.txt.json"]
    assert not (data / "npu/debug_0/graph/ge_proto_0_Build.txt.json").is_symlink()
    assert (data / "npu/debug_0/graph/ge_proto_0_Build.txt").stat().st_size == 0
    assert len(list((data / "npu/debug_0/dump").rglob("*.*.*.*"))) == 6
    assert (data / "temp/vector_compare/0/result_20240125160000.csv").is_file()
    assert ask("vc", tmp_path).exit_code == 1
    assert "index" not in result.notes
    with pytest.raises(DataError, match="exists already"):
        ask(f"infer {result_tree}", tmp_path)


def test_several_models_are_numbered(result_tree: Path, shared_data: Path, tmp_path: Path, ask) -> None:
    os.symlink(shared_data / "npu_samples/ge_json/model.json", result_tree / "20240125153000/model/other.json")
    ask(f"infer {result_tree}", tmp_path)
    names = {op["name"] for op in ask("ls -n a", tmp_path).data["runs"]["debug_0"]["ops"]}
    assert "recognition/w_mean/MatMuladd" in names
    assert any("Slice" in name or "trans_" in name for name in names - {"recognition/w_mean/MatMuladd"})
    assert len(list((tmp_path / "precision_data/npu/debug_0/graph").glob("*.json"))) == 2


def test_a_compiled_model(shared_data: Path, tmp_path: Path, ask) -> None:
    result = ask(f"infer {shared_data}/npu_samples/vae_om/hh_om.om", tmp_path)
    assert "hh_om_0" in result.title
    types = ask("ls", tmp_path).data["runs"]["debug_0"]["types"]
    assert (types["Const"], types["TransData"], len(types)) == (17, 7, 17)


def test_nothing_to_import(tmp_path: Path, ask) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="import takes any other tree"):
        ask(f"infer {tmp_path}/empty", tmp_path)
    assert not (tmp_path / "precision_data").exists()
    with pytest.raises(DataError, match="check the path"):
        ask(f"infer {tmp_path}/none", tmp_path)
    with pytest.raises(UsageError, match="no path"):
        ask("infer", tmp_path)


def test_npu_dump_switches_the_dump_on_for_the_child_only(tmp_path: Path, ask) -> None:
    program = "import os; print(os.environ.get('PRECISION_TOOL_DUMP'))"
    result = ask(f'npu_dump "{sys.executable} -c \\"{program}\\""', tmp_path)
    assert result.data["stdout"] == "True\n"
    assert any("deprecated" in note and "session_dump_config" in note for note in result.notes)
    assert "PRECISION_TOOL_DUMP" not in os.environ
    assert ask("npu_dump 'exit 3'", tmp_path).exit_code == 3
    with pytest.raises(UsageError, match="no shell command"):
        ask("npu_dump", tmp_path)

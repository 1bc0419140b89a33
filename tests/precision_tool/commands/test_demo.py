"""``demo``: what it promises around the training; the whole job on a small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dumpers.errors import UsageError
from precision_tool.commands.demo import DEFAULT_FAULT, cosine_of, new_folder, threshold_line
from precision_tool.result import Table

SMALL = ("--batch", "64", "--users", "3000", "--items", "3000")


def demo(*words: str, cwd: Path, root: Path) -> tuple[int, dict, str]:  # type: ignore[type-arg]
    done = subprocess.run(
        [sys.executable, str(root / "cli.py"), "demo", "--json", *SMALL, *words],
        cwd=cwd,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONPATH": str(cwd)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_folder_asked_for_must_not_hold_data(tmp_path: Path) -> None:
    (tmp_path / "precision_data").mkdir()
    with pytest.raises(UsageError, match="exists and demo touches no data"):
        new_folder(str(tmp_path))
    assert new_folder(str(tmp_path / "new")) == tmp_path / "new"


def test_default_folders_are_new_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = {new_folder(None) for _ in range(3)}
    assert len(folders) == 3
    assert {folder.parent.name for folder in folders} == {"precision_demo"}


def test_words_about_the_threshold() -> None:
    assert "sees nothing of the fault: the cosine of g is 0.995000." in threshold_line([], "g", 0.995)
    assert "lists 2 other op(s), first a" in threshold_line(["a", "b"], "g", 0.995)
    assert "lists g as number 2 of 2" in threshold_line(["a", "g"], "g", 0.5)
    assert "nothing is wrong" in threshold_line([], None, None)
    assert "undefined" in threshold_line([], "g", None)


def test_cosine_is_that_of_the_worst_output() -> None:
    rows = (("g", "input:0", 0.1), ("g", "output:0", 0.9), ("g", "output:1", 0.8), ("h", "output:0", 0.2))
    table = Table("All tensors", ("Op", "Tensor", "CosineSimilarity"), rows, paged=True)
    assert cosine_of("g", [table]) == 0.8
    assert cosine_of(None, [table]) is None


def test_default_fault_is_named(tmp_path: Path, project_root: Path) -> None:
    code, document, stderr = demo(cwd=tmp_path, root=project_root)
    result = document["result"]
    assert DEFAULT_FAULT == "wrong_row@item_table:share=0.005"
    assert (code, document["exit_code"], document["ok"]) == (1, 1, True)
    assert (result["verdict"], result["op"], result["table"]) == (
        "table_lookup",
        "item_table_lookup/gather",
        "item_table",
    )
    assert result["keys"]
    assert len(result["losses"]["golden"]) == len(result["losses"]["npu"]) == 1
    assert result["op"] not in result["below_threshold"]
    place = tmp_path / result["data"]
    assert place.parent.parent == tmp_path / "precision_demo"
    assert (place / "tf/dump/index.csv").is_file()
    assert (place / "npu/debug_0/dump").is_dir()
    assert [Path(file).suffix for file in document["files"]] == [".csv"]
    assert not (tmp_path / "precision_data").exists()
    # TensorFlow's log stays off both streams even when the caller's environment asks for all of it... it may ask.
    assert "Traceback" not in stderr


def test_without_a_fault_nothing_is_accused(tmp_path: Path, project_root: Path) -> None:
    code, document, _ = demo("--fault", "none", "--numerics", "fp32", "--out", "mine", cwd=tmp_path, root=project_root)
    assert (code, document["result"]["op"]) == (0, None)
    assert document["result"]["verdict"] in ("fine", "rounding")
    assert document["result"]["data"] == "mine/precision_data"


@pytest.mark.parametrize("fault", ["wrong@item_table", "scale@no/such/op", "missing_module:fault"])
def test_wrong_fault_is_usage(fault: str, tmp_path: Path, project_root: Path) -> None:
    code, document, stderr = demo("--fault", fault, cwd=tmp_path, root=project_root)
    assert (code, document["ok"]) == (2, False)
    assert "\n" not in document["error"]
    assert "Traceback" not in stderr


def test_fault_of_a_module_the_project_has_never_seen(tmp_path: Path, project_root: Path) -> None:
    (tmp_path / "strange_fault.py").write_text(
        "def twist(op):\n"
        "    if op.type == 'Relu' and op.outputs[0].ndim == 2:\n"
        "        out = op.outputs[0].copy(); out[:, ::7] *= 0.5\n"
        "        return [out]\n"
    )
    code, document, _ = demo("--fault", "strange_fault:twist", cwd=tmp_path, root=project_root)
    assert (code, document["result"]["verdict"]) == (1, "operator")
    assert document["result"]["op_type"] in ("Relu", "MatMulV2")

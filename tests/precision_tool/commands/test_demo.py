"""``demo``: what it promises around the training; the whole job on a small model."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from dumpers.errors import UsageError
from dumpers.settings import Settings
from precision_tool.commands.base import silent
from precision_tool.commands.demo import (
    DEFAULT_FAULT,
    Case,
    _report,
    cosine_of,
    idle_fault_line,
    new_folder,
    threshold_line,
)
from precision_tool.experiment import Outcome, interrupts_held
from precision_tool.result import Result, Table

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
    assert len(result["losses"]["golden"]) == len(result["losses"]["npu"]) == 3
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


def test_a_fault_that_changed_nothing_is_said(tmp_path: Path, project_root: Path) -> None:
    # Momentum is zero before the first update, so rows set to zero are what they were.
    fault = "zero_rows@LazyAdam_0/update_user_table/user_table/momentum_rows"
    code, document, _ = demo("--fault", fault, cwd=tmp_path, root=project_root)
    assert (code, document["result"]["fault_changed"]) == (0, False)
    assert "changed no bit" in idle_fault_line(fault)


def test_the_text_of_a_fault_that_changed_nothing_comes_first(monkeypatch, tmp_path: Path) -> None:
    report = types.SimpleNamespace(losses=[1.0], notes=())
    judged = Result(title="fine", data={"op": None}, exit_code=0)
    monkeypatch.setattr("dumpers.tf_dump.extract", lambda workspace: None)
    monkeypatch.setattr("precision_tool.commands.vector_compare.default_plan", lambda *_: None)
    monkeypatch.setattr(
        "precision_tool.commands.vector_compare.compare_plan", lambda *_: Result(title="", data={"comparisons": []})
    )
    monkeypatch.setattr("precision_tool.commands.verdict.default_sides", lambda *_: None)
    monkeypatch.setattr("precision_tool.commands.verdict.judge_sides", lambda *_: judged)
    args = argparse.Namespace(model="m", numerics="mix", fault="scale@x")
    for changed, expected in ((False, True), (True, False), (None, False)):
        case = Case(args, Settings(root_dir=tmp_path), Outcome(report, report, changed))
        result = _report(case, silent)
        assert (result.blocks[0].title == "Fault") == expected
        assert result.data["fault_changed"] is changed


def test_a_misspelt_fault_leaves_no_folder(tmp_path: Path, project_root: Path) -> None:
    code, document, _ = demo("--fault", "scal@loss", cwd=tmp_path, root=project_root)
    assert (code, document["exit_code"]) == (2, 2)
    assert "did you mean 'scale'; there are" in document["error"].replace("?", "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be created"):
        new_folder(str(tmp_path / "file" / "out"))


def test_interrupts_wait_for_an_import_that_would_swallow_them() -> None:
    reached = []

    def load() -> None:
        with interrupts_held():
            with contextlib.suppress(KeyboardInterrupt):  # what the import does
                signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        load()
    assert reached

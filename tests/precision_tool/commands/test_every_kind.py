"""``info`` and ``import`` take every kind of file: in the batch front and in the shell, on the committed samples."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

import cli
from precision_tool import shell
from precision_tool.workbench import Workbench, settings_for

SIDE = {"npz": "tf", "torch_pt": "tf", "msprobe": "tf", "npy": "tf", "hdf5": "npu"}
"""Kinds whose files do not tell the side."""

KINDS = sorted(folder.name for folder in (Path(__file__).parents[2] / "data" / "samples").iterdir() if folder.is_dir())


def batch(*words: str) -> tuple[int, dict]:
    """Runs the batch front in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["--json", *words])
    assert "Traceback" not in err.getvalue()
    return code, json.loads(out.getvalue())


def typed(line: str, root: Path) -> str:
    """Types a line into the shell and returns what it printed."""
    out = io.StringIO()
    console = shell.PrecisionShell(Workbench(settings_for(str(root))), stdin=io.StringIO(), stdout=out)
    console.onecmd_plus_hooks(line)
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_info(samples, tmp_path: Path, kind: str) -> None:
    code, answer = batch("info", str(samples[kind]))
    assert code == 0, answer
    (found,) = answer["result"]["paths"]
    assert sum(found["census"].values()) >= 1
    assert "not recognised" not in found["census"]
    files = sorted(path for path in samples[kind].rglob("*") if path.is_file())
    code, answer = batch("info", *map(str, files))
    assert code == 0, answer.get("error")
    assert all(path["kind"] for path in answer["result"]["paths"])
    shown = typed(f"info '{samples[kind]}'", tmp_path)
    assert f"{len(files)} files by kind" in shown


@pytest.mark.parametrize("kind", KINDS)
def test_import(samples, tmp_path: Path, kind: str) -> None:
    side = ["--as", SIDE[kind]] if kind in SIDE else []
    code, answer = batch("--root", str(tmp_path), "import", str(samples[kind]), *side)
    assert code == 0, answer
    placed = answer["result"]["placed"]
    assert placed
    data = tmp_path / "precision_data"
    assert all(Path(item["to"]).is_relative_to(data) for item in placed)
    assert all(not path.is_symlink() or path.exists() for path in data.rglob("*"))
    refused = [item["reason"] for item in answer["result"]["not_placed"]]
    expected = {"overflow": ["decoded already"], "fusion_result": ["import one of them"] * 2}.get(kind, [])
    assert len(refused) == len(expected)
    assert all(part in reason for part, reason in zip(expected, refused, strict=True))
    elsewhere = tmp_path / "shell"
    elsewhere.mkdir()
    line = f"import '{samples[kind]}' {' '.join(side)}"
    shown = typed(line, elsewhere)
    assert "linked" in shown
    assert "there already" in typed(line, elsewhere)
    assert sorted(p.relative_to(elsewhere) for p in elsewhere.rglob("*")) == sorted(
        p.relative_to(tmp_path) for p in [data, *data.rglob("*")]
    )

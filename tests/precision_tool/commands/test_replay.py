"""``replay --export`` as every front runs it; what ``replay`` itself answers is in ``test_compare``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from tests.precision_tool.conftest import FUSED


def run(script, *flags):
    """Runs an exported script with nothing of ours in reach."""
    done = subprocess.run(
        [sys.executable, "-I", *flags, str(script)],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def exported(data, ask, tmp_path):
    """The wrong relu, and what the command said."""
    result = ask(f"replay dense/Relu --export {tmp_path / 'out'}", data.root)
    return result, *result.files


def test_answer_names_the_files_and_the_script_finds_the_fault(exported, data):
    result, script, tensors = exported
    assert result.exit_code == 1
    facts = json.loads(json.dumps(result.data))["export"]
    assert set(facts) == {"script", "data", "rows_kept", "cut", "why", "bytes"}
    assert (facts["script"], facts["data"]) == (str(script), str(tensors))
    assert facts["bytes"] == script.stat().st_size + tensors.stat().st_size
    assert facts["cut"] is False
    assert facts["rows_kept"] is None
    answer = run(script)
    assert answer.returncode == 1
    wrong = np.abs(data.values["dense/Relu"] * np.float32(1.5) - data.values["dense/Relu"])
    place = [int(k) for k in np.unravel_index(wrong.argmax(), wrong.shape)]
    assert f"at {place} " in answer.stdout
    assert f"{np.count_nonzero(wrong)} of 8 elements here beyond" in answer.stdout
    assert '"output_dtypes"' not in answer.stdout


def test_carrier_is_exported_too_and_its_script_finds_nothing(data, ask, tmp_path):
    result = ask(f"replay {FUSED} --export {tmp_path / 'out'}", data.root)
    assert result.exit_code == 0
    answer = run(result.files[0])
    assert answer.returncode == 0
    assert "no fault" in answer.stdout


def test_files_are_replaced_only_when_told(exported, data, ask, tmp_path):
    _, script, tensors = exported
    content = tensors.read_bytes()
    for path in (script, tensors):
        path.write_text("mine")
        with pytest.raises(UsageError, match="--overwrite"):
            ask(f"replay dense/Relu --export {tmp_path / 'out'}", data.root)
        assert path.read_text() == "mine"
    ask(f"replay dense/Relu --export {tmp_path / 'out'} --overwrite", data.root)
    assert tensors.read_bytes() == content
    with pytest.raises(UsageError, match="goes with --export"):
        ask("replay dense/Relu --overwrite", data.root)


def test_folder_that_cannot_be_written(data, ask, tmp_path):
    (tmp_path / "file").write_text("mine")
    for name in ("file", "file/below"):
        with pytest.raises(UsageError, match="cannot be written"):
            ask(f"replay dense/Relu --export {tmp_path / name}", data.root)
    assert (tmp_path / "file").read_text() == "mine"


def test_op_without_its_data_leaves_nothing(data, ask, tmp_path):
    data.file("Relu").unlink()
    with pytest.raises(DataError, match="not exported"):
        ask(f"replay dense/Relu --export {tmp_path / 'out'}", data.root)
    assert not (tmp_path / "out").exists()


def test_hostile_name_stays_in_the_folder(hostile, ask, tmp_path):
    result = ask(f"replay '{hostile.relu}' --export {tmp_path / 'out'}", hostile.root)
    assert {path.parent for path in result.files} == {tmp_path / "out"}
    answer = run(result.files[0])
    assert answer.returncode == 1
    assert answer.stdout.isascii()
    assert "\x1b" not in answer.stdout


@pytest.mark.parametrize("damage", ["missing", "empty", "half", "foreign", "members"])
def test_script_with_damaged_data_says_so_in_one_line(damage, exported):
    _, script, tensors = exported
    content = tensors.read_bytes()
    if damage == "missing":
        tensors.unlink()
    elif damage == "members":
        with np.load(tensors, allow_pickle=False) as whole:
            parts = {name: whole[name] for name in whole.files if name != "output_0"}
        np.savez(tensors, **parts)
    else:
        tensors.write_bytes({"empty": b"", "half": content[: len(content) // 2], "foreign": b"text"}[damage])
    answer = run(script)
    assert answer.returncode == 3
    assert answer.stderr.count("\n") == 1
    assert str(tensors) in answer.stderr


def test_script_without_numpy_says_so_in_one_line(exported):
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(exported[1])], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert done.stderr == "No module named 'numpy'\n"


def test_pickled_member_is_not_loaded(exported, tmp_path):
    class Mine:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    _, script, tensors = exported
    with np.load(tensors, allow_pickle=False) as whole:
        parts = {name: whole[name] for name in whole.files}
    parts["input_0"] = np.array([Mine()], dtype=object)
    np.savez(tensors, **parts)
    assert run(script).returncode == 3
    assert not (tmp_path / "made").exists()

"""What ``make test-hosts`` relies on: the names lead to the kit, a wrong dump is noticed, a missing Python is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from precision_tool.kit import kit_files
from precision_tool.kit_folder import write_kit
from tests.hosts import read_dumps, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def test_the_tests_of_a_host_meet_the_modules_of_the_kit(tmp_path):
    write_kit(tmp_path, kit_files())
    program = (
        "import dumpers.capture.session as session, dumpers.errors\n"
        "from dumpers.capture import steps\n"
        "import precision_tool._capture.capture as capture, precision_tool._capture.errors as errors\n"
        "assert (session, steps) == (capture.session, capture.steps)\n"
        "assert dumpers.errors.UsageError is errors.UsageError\n"
        "try:\n    import dumpers.formats\nexcept ImportError:\n    print('workbench only')\n"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE / "shim"), str(tmp_path)]))
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "workbench only\n"), done.stderr


@pytest.fixture
def dumped(tmp_path):
    """A step recorded here, with the right values beside it."""
    base, test = tmp_path / "base", ROOT / "tests" / "dumpers" / "capture" / "test_host_dumps.py"
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={base}",
        "-o",
        "tmp_path_retention_policy=all",
        str(test),
        "-k",
        "every_type",
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}  # of this run of pytest
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return tmp_path / "base"


def test_a_good_dump_is_good_and_every_damage_is_noticed(dumped):
    tally = read_dumps.open_all(dumped)
    assert tally.wrong == []
    assert tally.records == 1
    assert tally.compared > 80
    assert tally.tensors >= tally.compared

    (expected,) = dumped.rglob(read_dumps.EXPECTED)
    with np.load(expected) as file:
        values = dict(file)
    index = values["names"].tolist().index("same/float32_2:0")
    changed = values[f"v{index}"].copy()
    changed.view(np.uint32)[1, 1] ^= 1
    np.savez(expected, **{**values, f"v{index}": changed})
    (line,) = read_dumps.open_all(dumped).wrong
    assert "same/float32_2:0: 1 of 24 bytes differ" in line

    names = values["names"].copy()
    names[index] = "absent:0"
    np.savez(expected, **{**values, "names": names})
    (line,) = read_dumps.open_all(dumped).wrong
    assert "absent:0: recorded 0 times" in line

    np.savez(expected, **values)
    files = [path for path in dumped.rglob("run_*/**/*") if path.is_file()]
    victim = max((path for path in files if path.name not in ("record.json", "graph.pb")), key=os.path.getsize)
    os.truncate(victim, victim.stat().st_size // 2)
    assert any(str(victim) in line for line in read_dumps.open_all(dumped).wrong)


def test_a_python_that_is_missing_is_said_in_one_line(tmp_path):
    well, said = run.check(run.Host("py34", 4), tmp_path, tmp_path, set(), tmp_path)
    assert well
    assert said == ["SKIPPED: no Python 3.4 on PATH or under pyenv, nothing was tested on it"]


def test_an_environment_is_built_anew_only_when_its_requirements_change(tmp_path, monkeypatch):
    done = []

    def call(words, **_):
        done.append([str(word) for word in words])
        if "venv" in done[-1]:
            inside = Path(done[-1][-1]) / "bin" / "python"
            inside.parent.mkdir(parents=True)
            inside.touch()
        return ""

    monkeypatch.setattr(run, "call", call)
    monkeypatch.setattr(run, "HERE", tmp_path)
    (tmp_path / "requirements-py37.txt").write_text("six==1.17.0\n")
    host = run.Host("py37", 7)
    python = run.environment(host, "/usr/bin/python3.7", tmp_path / "made")
    steps = len(done)
    assert steps > 2
    assert run.environment(host, "/usr/bin/python3.7", tmp_path / "made") == python
    assert len(done) == steps
    (tmp_path / "requirements-py37.txt").write_text("six==1.16.0\n")
    run.environment(host, "/usr/bin/python3.7", tmp_path / "made")
    assert len(done) == 2 * steps


def test_which_tests_are_of_the_workbench(tmp_path):
    placed = run.placed_modules(list(kit_files()))
    assert {"dumpers.capture.session", "dumpers.errors", "precision_tool.tf_config", "dumpers"} <= placed
    assert "engine.observe" in run.workbench_needs(ROOT / "tests/dumpers/capture/test_npu.py", placed)
    for name in ("test_session_values.py", "test_steps.py", "test_host_dumps.py"):
        assert run.workbench_needs(ROOT / "tests/dumpers/capture" / name, placed) == []
    (tmp_path / "test_x.py").write_text("from dumpers.capture import steps, npu\nimport numpy, dumpers.graph\n")
    assert run.workbench_needs(tmp_path / "test_x.py", placed) == ["dumpers.capture.npu", "dumpers.graph"]


@pytest.mark.parametrize("host", run.HOSTS, ids=lambda host: host.name)
def test_every_requirement_is_pinned(host):
    lines = host.requirements.read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), lines
    pinned = {line.split("==")[0].lower() for line in lines}
    assert {"tensorflow", "numpy", "protobuf", "pytest"} <= pinned

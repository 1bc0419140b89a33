"""A job that is killed leaves records that are whole, or known as cut off; the next one records on beside them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
if not hasattr(os, "fork"):
    pytest.skip("the processes are forked", allow_module_level=True)

HERE = Path(__file__).parent
_SPEC = importlib.util.spec_from_file_location("kill_writer", str(HERE / "kill_writer.py"))
kill_writer = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(kill_writer)


def run_script(name, *arguments):
    """What it printed."""
    path = os.pathsep.join(p for p in [str(Path(kill_writer.pack.__file__).parents[2]), *sys.path] if p)
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", OPENBLAS_NUM_THREADS="1", PYTHONPATH=path)
    command = [sys.executable, str(HERE / name), *map(str, arguments)]
    run = subprocess.run(  # noqa: UP022 - Python 3.7
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    return run.stdout.decode()


def check_folder(folder, truth_of, manifests, kept):
    """Holds every record against the truth of its step; returns how many are whole, and the folders that are not."""
    records = manifests(folder)
    for record in records:
        where = str(record["path"])
        assert record["complete"] is True, where
        assert kept(record) == kept.of(truth_of(record["step"])), where
        assert not [path for path in record["path"].rglob("*") if path.name.startswith(".")], where
    known = {record["path"] for record in records}
    return len(records), [path for path in folder.iterdir() if path not in known]


def check_reader(folder, whole, cut, truth_of, extracts=True):
    """The workbench reads what is whole as it is, refuses the rest in words, and extracts the last whole step."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a training host, where the workbench does not run
        return
    from dumpers.errors import DataError
    from dumpers.formats.tf_record import read_tf_record
    from dumpers.tf_dump import extract, recorded_runs
    from dumpers.workspace import Workspace

    for path in cut:
        with pytest.raises(DataError, match="was cut off"):
            read_tf_record(path)
    runs = recorded_runs(folder)
    assert len(runs) == whole + len(cut)
    for path in runs:
        if path in cut:
            continue
        dump = read_tf_record(path)
        assert not dump.problems
        truth = truth_of(dump.records[0].step)
        read = {f"{record.op}:{record.slot}": record for record in dump}
        assert set(read) == set(truth)
        for name, value in truth.items():
            if isinstance(value, np.ndarray):
                assert np.asarray(read[name].load(), value.dtype).tobytes() == value.tobytes(), (path, name)
    if not extracts:
        return
    workspace = Workspace(folder.parent / (folder.name + "_data"))
    workspace.tf_debug.parent.mkdir(parents=True)
    os.rename(str(folder), str(workspace.tf_debug))
    report = extract(workspace)
    assert report.record.name == next(path.name for path in runs if path not in cut)
    every = extract(workspace, all_runs=True)
    passed = [note for note in every.notes if note.startswith("passed over")]
    assert len(passed) == len(cut)
    assert all("cut off" in note for note in passed)


@pytest.mark.parametrize("keep", ["pack", "npy", "stats", "shapes"])
def test_a_writer_killed_at_every_moment_of_two_records(tmp_path, manifests, kept, keep):
    def truth_of(step):
        return kill_writer.truth_of(step, keep)

    moments = int(run_script("kill_writer.py", tmp_path, keep))
    assert moments >= 50
    counts = []
    for moment in range(moments):
        folder = tmp_path / str(moment)
        whole, cut = check_folder(folder, truth_of, manifests, kept)
        assert kill_writer.RESUMED in [record["step"] for record in manifests(folder)]
        check_reader(folder, whole, cut, truth_of, extracts=moment % 5 == 0)
        counts.append((whole, len(cut)))
    # Which moments meet which states is up to two threads; the resumed record is always whole.
    assert any(whole == 1 for whole, _ in counts)
    assert any(whole > 1 for whole, _ in counts)
    assert any(cut for _, cut in counts)
    assert check_folder(tmp_path / "whole", truth_of, manifests, kept) == (kill_writer.STEPS, [])


def test_a_job_killed_while_it_trains(tmp_path, manifests, kept):
    run_script("kill_training.py", tmp_path, 50)
    ways = ["session_pack", "session_npy", "session_stats"]
    if int(tf.__version__.split(".")[0]) > 1:
        ways.append("function_pack")
    unfinished = 0
    for way in ways:
        truth = {record["step"]: kept.values(record) for record in manifests(tmp_path / ("whole_" + way))}
        assert len(truth[0]) > 20
        whole, cut = check_folder(tmp_path / way, truth.__getitem__, manifests, kept)
        assert whole >= 2
        check_reader(tmp_path / way, whole, cut, truth.__getitem__)
        unfinished += len(cut)
    assert unfinished

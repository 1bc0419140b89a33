"""Damaged and hostile files through every reader: one line or a clean result, in bounded time and memory.

The cases are the same each time (seed 0). ``python tests/fuzz.py --seconds 600`` goes on from there by hand.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from dumpers.formats.registry import read_dump
from tests.fuzzing import mutations
from tests.fuzzing.campaign import run
from tests.fuzzing.hostile_arrays import PWNED
from tests.fuzzing.openers import OPENERS

GROUPS = {
    "device": "npu_dump npu_old_names npu_ffts npu_low_precision npu_layouts npu_hashed npu_statistics overflow",
    "arrays": "converted npy npz tf_npy tf_record hdf5 torch_pt msprobe",
    "tensorflow": "tfdbg tfdbg_v2 checkpoint_v1 checkpoint_v2 checkpoint_object event_file",
    "graphs": "graph_pb graph_pbtxt meta_graph saved_model ge_text ge_json om fusion_result fusion_switch result_csv",
}
COUNT = 40
"""Random cases for each file."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the kernel's memory counters")
@pytest.mark.parametrize("group", GROUPS)
def test_no_damaged_file_breaks_a_reader(group):
    PWNED.unlink(missing_ok=True)
    outcome = run(GROUPS[group].split(), seed=0, count=COUNT)
    assert outcome.findings == []
    assert outcome.cases > 1000
    assert not PWNED.exists(), "something in a file was executed"


def test_every_sample_is_fuzzed(samples):
    assert set(samples) == set(OPENERS) == {kind for kinds in GROUPS.values() for kind in kinds.split()}


@pytest.mark.parametrize("kind", ["npu_dump", "npu_layouts", "npu_low_precision", "converted", "tf_npy", "npy"])
def test_the_rest_of_the_folder_is_still_read(samples, tmp_path, kind):
    good = read_dump(samples[kind])
    for number, file in enumerate(sorted(path for path in samples[kind].rglob("*") if path.is_file())):
        if file.suffix == ".csv":
            continue
        folder = tmp_path / str(number)
        shutil.copytree(samples[kind], folder)
        victim = folder / file.relative_to(samples[kind])
        victim.write_bytes(victim.read_bytes()[:7])
        if len({record.path for record in good}) == 1:
            shutil.copy(file, victim.with_name(twin_of(victim.name)))
        dump = read_dump(folder)
        assert [problem.path.name for problem in dump.problems] == [victim.name]
        lost = {record.name for record in good if record.path == file}
        kept = {record.name: record.load().tobytes() for record in dump if record.source is not None}
        for record in good:
            if record.name not in lost:
                assert kept[record.name] == record.load().tobytes()
        assert kept


def twin_of(name: str) -> str:
    """Another name of the same kind."""
    return f"Twin{name}"


def test_reading_goes_on_behind_a_loop_a_dangling_link_and_a_pipe(samples, tmp_path):
    from tests.fuzzing.hostile_basics import odd_files

    shutil.copytree(samples["npu_dump"], tmp_path / "dump")
    leaf = next((tmp_path / "dump").rglob("MatMulV2.*")).parent
    (leaf / "again").symlink_to(tmp_path / "dump")
    for number, (name, put) in enumerate(odd_files(leaf / "Relu.odd.99.1.1706168000000099")):
        victim = leaf / f"Relu.odd_{number}.99.1.1706168000000099"
        put_at = dict(odd_files(victim))[name]
        put_at()
        assert put is not put_at
    names = {record.name for record in read_dump(tmp_path / "dump") if record.source is not None}
    assert names == {record.name for record in read_dump(samples["npu_dump"])}


def test_damage_below_a_checksum_has_right_checksums(samples):
    """Otherwise the readers would stop at the checksum and nothing below it were ever tried."""
    import random

    from dumpers.formats.sstable import Table

    raw = next(samples["checkpoint_v2"].glob("*.index")).read_bytes()
    assert Table is not None
    damaged = [mutations.below_checksums(Path("x"), raw, b"other", random.Random(seed)) for seed in range(20)]
    assert all(content is not None and len(content) == len(raw) for content in damaged)
    assert len(set(damaged)) > 10


def test_the_harness_sees_broken_rules(tmp_path):
    import time

    from dumpers.errors import DataError
    from tests.fuzzing import openers, worker

    def broken() -> None:
        raise ValueError("odd")

    assert worker._reason(lambda: None) == ""
    assert worker._reason(broken).startswith("ValueError: odd: test_fuzz.py")
    with pytest.raises(openers.Broken, match="names no file"):
        openers.check_error(DataError("is damaged"), tmp_path)
    openers.check_error(DataError(f"{tmp_path}: a\nb"), tmp_path)
    before = worker.signal.signal(worker.signal.SIGALRM, worker._time_up)
    try:
        worker.CASE_SECONDS, seconds = 0.05, worker.CASE_SECONDS
        assert "took more than" in worker._reason(lambda: time.sleep(2))
    finally:
        worker.CASE_SECONDS = seconds
        worker.signal.signal(worker.signal.SIGALRM, before)


def test_a_worker_that_dies_is_a_finding():
    outcome = run(["no such kind"], seed=0, count=1)
    assert len(outcome.findings) == 1
    assert "ended with 1" in outcome.findings[0]

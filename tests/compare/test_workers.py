"""Threads, processes and units: the same bytes whoever compares."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from compare.outcomes import bare, dressed
from compare.pairing import pair_dumps
from compare.schedule import run_units
from compare.sweep import SweepOptions, compare_dumps, compare_unit
from compare.table import csv_text
from compare.units import Unit, Wanted, units_of
from compare.workers import WorkerCrew
from dumpers.errors import DataError
from tests.compare.dump_files import two_sides, write_side


@pytest.fixture
def sides(tmp_path):
    return two_sides(tmp_path, 40)


def test_same_bytes_for_any_number_of_threads_and_workers(sides, monkeypatch):
    whole = csv_text(compare_dumps(*sides, threads=1))
    monkeypatch.setattr("compare.units.BATCH_PAIRS", 3)
    assert {csv_text(compare_dumps(*sides, threads=n)) for n in (1, 2, 8)} == {whole}
    for workers in (1, 3):
        calls = []
        note = partial(lambda calls, *state: calls.append(state), calls)
        found = compare_dumps(*sides, progress=note, options=SweepOptions(workers))
        assert csv_text(found) == whole
        assert calls == sorted(calls)
        assert calls[-1] == (40, 40)


def test_a_worker_loads_nothing_of_the_program_that_started_it(sides, tmp_path, project_root):
    """A training script with TensorFlow in it, without any guard, compares with workers."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nsys.modules['tensorflow'] = None\nprint('started')\n"
        "from compare.sweep import SweepOptions, compare_dumps\nfrom dumpers.formats.registry import read_dump\n"
        f"sides = [read_dump(__import__('pathlib').Path({str(tmp_path)!r}) / s) for s in ('left', 'right')]\n"
        "print(len(compare_dumps(*sides, options=SweepOptions(workers=2))))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(project_root)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "started\n40\n", done.stderr
    program = "import sys, compare.worker; print([m for m in ('tensorflow', 'pandas', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=project_root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_worker_that_is_killed_is_one_line_and_leaves_no_process(sides, monkeypatch):
    from compare import workers

    real, started = workers._start, []

    def start():
        worker = real()
        started.append(worker)
        worker.process.send_signal(signal.SIGKILL)
        return worker

    monkeypatch.setattr(workers, "_start", start)
    with pytest.raises(DataError, match=r"a worker process ended \(signal 9\).*fewer --workers"):
        compare_dumps(*sides, options=SweepOptions(workers=2))
    assert all(worker.process.returncode is not None for worker in started)


def test_a_bug_in_a_worker_shows_its_traceback(sides):
    (unit,) = units_of([(0, pair_dumps(*sides).pairs[0])], Wanted())
    broken = Unit((0,), ("no pair",), 1, 1)
    with pytest.raises(RuntimeError, match="AttributeError"):
        run_units([broken], WorkerCrew(1), compare_unit, memory_bytes=1, finished=lambda *_: None, beat=lambda: None)
    rows = []
    run_units(
        [unit],
        WorkerCrew(1),
        compare_unit,
        memory_bytes=1,
        finished=lambda unit, found: rows.extend(found),
        beat=lambda: None,
    )
    assert rows == compare_unit(unit)


def test_an_error_in_a_thread_reaches_the_caller(sides, monkeypatch):
    def fail(pair, wanted):
        raise MemoryError

    monkeypatch.setattr("compare.sweep.compare_pair", fail)
    monkeypatch.setattr("compare.units.SMALL_BYTES", 0)
    before = threading.active_count()
    with pytest.raises(MemoryError):
        compare_dumps(*sides, threads=3)
    assert threading.active_count() == before


def test_units_hold_every_pair_once_and_batch_the_small_ones(sides):
    pairs = pair_dumps(*sides).pairs
    units = list(units_of(enumerate(pairs), Wanted()))
    assert sorted(number for unit in units for number in unit.numbers) == list(range(len(pairs)))
    assert all(pairs[number] is pair for unit in units for number, pair in zip(unit.numbers, unit.pairs, strict=True))
    (large,) = [unit for unit in units if not unit.small]
    assert large.pairs[0].op == "op7"
    assert len(units) == 2
    assert all(dressed(pair, bare(row)) == row for pair, row in zip(pairs, compare_dumps(*sides).rows, strict=False))


def test_the_largest_come_first_and_the_bound_holds():
    units = [Unit((n,), ("p",), size, size) for n, size in enumerate([3, 300, 20, 500, 40, 1000])]
    order, lock, now, peaks = [], threading.Lock(), [0], []

    def work(unit):
        with lock:
            order.append(unit.size)
            now[0] += unit.memory
            peaks.append((now[0], unit.memory))
        time.sleep(0.01)
        with lock:
            now[0] -= unit.memory
        return [unit.size]

    from compare.crew import ThreadCrew

    found = {}
    crew = ThreadCrew(3, work)
    crew.inline = False
    run_units(
        units,
        crew,
        work,
        memory_bytes=550,
        finished=lambda unit, rows: found.update({unit.numbers[0]: rows}),
        beat=lambda: None,
    )
    assert found == {0: [3], 1: [300], 2: [20], 3: [500], 4: [40], 5: [1000]}
    assert order[:2] == [1000, 500]
    assert all(total <= 550 or total == own for total, own in peaks)


def test_a_missing_file_is_unreadable(tmp_path):
    left = write_side(tmp_path / "left", [np.zeros(400_000, np.float32)])
    Path(left.records[0].source.path).unlink()
    (row,) = compare_dumps(left, left).rows
    assert row.unreadable

from __future__ import annotations

import csv
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from compare.sweep import compare_dumps
from compare.table import csv_text
from dumpers.errors import DataError
from dumpers.records import Problem, TensorRecord


@pytest.fixture
def two_dumps(make):
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=int(n)).astype(np.float32) for n in rng.integers(1, 3000, 150)]
    left = make.dump(*(make.record(f"op{i}:output:0", a, timestamp_us=i) for i, a in enumerate(arrays)))
    right = make.dump(
        *(make.record(f"op{i}:output:0", a + np.float32(1e-3), timestamp_us=-i) for i, a in enumerate(arrays))
    )
    return left, right


def test_same_bytes_for_any_number_of_threads_and_any_memory(two_dumps):
    texts = {csv_text(compare_dumps(*two_dumps, threads=n, memory_bytes=m)) for n, m in ((1, 1), (2, 10**9), (7, 9000))}
    assert len(texts) == 1


def test_rows_are_in_order_of_execution_of_the_left(two_dumps):
    assert [row.op for row in compare_dumps(*two_dumps)] == [f"op{i}" for i in range(150)]


def test_progress_ends_at_the_number_of_pairs(two_dumps):
    calls = []
    compare_dumps(*two_dumps, threads=2, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (150, 150)


def test_a_damaged_file_spoils_its_own_row(make):
    good = np.float32([1, 2])
    left = make.dump(make.record("a:output:0", "a.bin is cut short"), make.record("b:output:0", good))
    right = make.dump(
        make.record("a:output:0", good),
        make.record("b:output:0", good),
        problems=(Problem(Path("c.bin"), "not a dump"),),
    )
    table = compare_dumps(left, right)
    bad, fine = table.rows
    assert (bad.unreadable, bad.reason, bad.figures) == (True, "unreadable: a.bin is cut short", None)
    assert fine.figures.equal
    assert table.unreadable == 2
    assert "NaN" in csv_text(table).splitlines()[1]


def test_tensors_without_value_are_not_judged_and_no_error(make):
    one = make.dump(make.record("r:output:0", None, dtype="resource"), make.record("a:output:0", np.float32([1])))
    table = compare_dumps(one, one)
    (row,) = table.not_judged
    assert (row.op, row.reason, row.unreadable, table.unreadable) == ("r", "no value: resource", False, 0)


def test_an_empty_side_is_an_error(make):
    with pytest.raises(DataError, match=r"no tensors in the right dump /dump"):
        compare_dumps(make.dump(make.record("a:output:0", np.float32([1]))), make.dump())


def test_flat_data_are_compared_and_transposed_ones_are_not(make):
    data = np.arange(6, dtype=np.float32)
    left = make.dump(make.record("flat:output:0", data), make.record("turned:output:0", data.reshape(2, 3)))
    right = make.dump(
        make.record("flat:output:0", data.reshape(2, 3)), make.record("turned:output:0", data.reshape(3, 2))
    )
    flat, turned = compare_dumps(left, right).rows
    assert flat.figures.cosine == 1.0
    assert "shapes differ (same element count): [6] against [2,3]" in flat.note
    assert turned.figures.cosine is None
    assert not turned.judged


def test_private_layout_is_undone_with_the_reference_shape(make):
    data = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    padded = np.full((2, 16, 4, 5), 238, np.float32)
    padded[:, :3] = data
    stored = padded.reshape(2, 1, 16, 4, 5).transpose(0, 1, 3, 4, 2).copy()
    graph = make.graph(make.op("conv", "Conv2D"))
    for shape in (data.shape, None):
        left = make.dump(make.record("conv:output:0", stored, format="NC1HWC0", original_shape=shape))
        (row,) = compare_dumps(left, make.dump(make.record("conv:output:0", data, device="tf")), graph).rows
        assert row.figures.equal
        assert row.shape == (2, 3, 4, 5)


def test_shape_is_flat_against_a_reference_and_full_between_devices(make):
    data = np.zeros((2, 3), np.float32)
    graph = make.graph(make.op("a", "Relu"))
    left = make.dump(make.record("a:output:0", data))
    assert compare_dumps(left, make.dump(make.record("a:output:0", data, device="tf")), graph).rows[0].shape == (6,)
    assert compare_dumps(left, left).rows[0].shape == (2, 3)


@dataclass
class Watch:
    """How many loads ran at the same time."""

    now: int = 0
    peak: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class SlowSource:
    watch: Watch
    path: Path = Path("slow")

    def load(self):
        with self.watch.lock:
            self.watch.now += 1
            self.watch.peak = max(self.watch.peak, self.watch.now)
        time.sleep(0.003)
        with self.watch.lock:
            self.watch.now -= 1
        return np.zeros(1000, np.float32)


def slow_dump(make, watch, count=30):
    records = [
        TensorRecord(f"op{i}", "", "output", 0, "float32", (1000,), SlowSource(watch), timestamp_us=i)
        for i in range(count)
    ]
    return make.dump(*records)


@pytest.mark.parametrize(("pairs_in_memory", "peak"), [(0, 1), (1, 1), (2, 2)])
def test_memory_in_flight_is_bounded(make, monkeypatch, pairs_in_memory, peak):
    monkeypatch.setattr("compare.units.SMALL_BYTES", 0)
    watch = Watch()
    dump = slow_dump(make, watch)
    compare_dumps(dump, dump, threads=6, memory_bytes=pairs_in_memory * 8000)
    assert watch.peak == peak


def test_an_interrupt_ends_the_work_and_reaches_the_caller(make, monkeypatch):
    monkeypatch.setattr("compare.units.SMALL_BYTES", 0)
    watch = Watch()

    def stop(done, total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        compare_dumps(slow_dump(make, watch, 500), slow_dump(make, watch, 500), threads=2, progress=stop)
    assert threading.active_count() == before


@pytest.fixture
def vae(shared_data):
    return shared_data / "npu_samples" / "derived" / "vae_compare"


def cells(table):
    return list(csv.reader(csv_text(table).splitlines()))


def differences(ours, theirs, skip):
    found = []
    for mine, real in zip(ours, theirs, strict=True):
        for name, a, b in zip(theirs[0], mine, real, strict=True):
            if a != b and name not in skip and not _close(a, b):
                found.append((mine[0], name, a, b))
    return found


def _close(a, b):
    """The users' program sums in float32, so the last printed digits of long sums are its own."""
    try:
        return abs(float(a) - float(b)) <= 1e-5 * max(abs(float(a)), abs(float(b)))
    except ValueError:
        return False


def test_real_network_against_its_reference_cell_by_cell(vae):
    from dumpers.formats.registry import read_dump, read_graph

    left = read_dump(vae / "npu/20240125153144/0/hh_om_0/1/0")
    table = compare_dumps(left, read_dump(vae / "tf_dump"), read_graph(vae / "hh_om_graph.json"))
    theirs = list(csv.reader((vae / "result_20240125160000.csv").open(newline="")))
    assert differences(cells(table), theirs, {"CompareFailReason"}) == []
    assert [row.op for row in table.below(0.98)] == ["recognition/w_mean/MatMuladd"]


def test_two_real_device_dumps_cell_by_cell(vae):
    from dumpers.formats.registry import read_dump

    left = read_dump(vae / "npu/20240125153144/0/hh_om_0/1/0")
    table = compare_dumps(left, read_dump(vae / "npu_debug_1/20240124110000/0/hh_om_0/1/0"))
    theirs = list(csv.reader((vae / "result_20240125160100.csv").open(newline="")))
    # A scalar has no cosine here, and the device's padding is cut off where the original shape is known.
    assert differences(cells(table), theirs, {"CompareFailReason"}) == [
        ("2", "CosineSimilarity", "NaN", "1.000000"),
        ("4", "Shape", "[100,20]", "[2,7,16,16]"),
        ("5", "Shape", "[100,20]", "[2,7,16,16]"),
    ]
    scaled = next(row for row in table if row.tensor == "random_normal_mul:output:0")
    assert scaled.figures.relative_distance == pytest.approx(0.333338, abs=1e-6)
    assert "scaled by 1.5" in scaled.figures.pattern

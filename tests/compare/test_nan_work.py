"""Scanning a dump on disk: threads, pieces, damage, and what cannot be read in place."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compare import nan_work
from compare.nan_scan import scan_record, scan_records
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.formats.npz import read_npz
from dumpers.formats.registry import read_dump

NAN, INF = np.nan, np.inf


@pytest.fixture
def pieces(monkeypatch):
    """Cuts tensors small, so that a test's tensor has many pieces."""
    monkeypatch.setattr(nan_work, "PIECE", 1 << 18)
    monkeypatch.setattr(nan_work, "SMALL", 1 << 12)


def write_many(folder: Path) -> dict[str, np.ndarray]:
    """Tensors of many sizes and types; some bad, some at the edges of pieces."""
    random = np.random.default_rng(5)
    arrays = {}
    for number in range(40):
        dtype = [np.float32, np.float16, np.float64, np.complex64, np.int32][number % 5]
        size = int(np.exp(random.uniform(0, np.log(400_000))))
        values = (random.random(size) * 100).astype(dtype)
        if number % 3 == 0 and dtype is not np.int32:
            values[random.integers(size, size=3)] = [NAN, INF, -INF]
            values[-1] = -INF
        arrays[f"{number:02d}"] = values
        write_npy(folder / f"{number:02d}.npy", values)
    return arrays


def truth_of(array: np.ndarray) -> tuple:
    if array.dtype.kind not in "fc":
        return (0, 0, 0, None)
    bad = np.flatnonzero(~np.isfinite(array))
    nan = int(np.isnan(array).sum())
    plus = int(((array.real == INF) & ~np.isnan(array)).sum())
    return (nan, plus, bad.size - nan - plus, (int(bad[0]),) if bad.size else None)


def test_any_number_of_threads_compiled_or_not_finds_what_is_there(tmp_path, pieces):
    arrays = write_many(tmp_path)
    records = read_dump(tmp_path).records
    runs = [scan_records(records, threads=n, compiled=c) for n in (1, 2, 8) for c in (False, True)]
    for run in runs:
        assert run == runs[0]
    for finding in runs[0]:
        counts = (finding.nan, finding.positive_inf, finding.negative_inf, finding.index)
        assert counts == truth_of(arrays[finding.record.op]), finding.record.op
    assert sum(finding.bad for finding in runs[0]) > 8


@pytest.mark.parametrize("compiled", [False, True])
def test_a_huge_tensor_is_cut_into_pieces_and_its_first_bad_element_found(tmp_path, pieces, compiled):
    values = np.zeros((1000, 333), np.float32)
    for place in ((999, 332), (500, 7), (500, 8)):
        values[place] = INF
    write_npy(tmp_path / "a.npy", values)
    told = []
    found = scan_records(read_dump(tmp_path).records, lambda *state: told.append(state), threads=3, compiled=compiled)
    assert (found[0].index, found[0].positive_inf, found[0].shape) == ((500, 7), 3, (1000, 333))
    assert told[-1] == (6, 6)
    assert all(0 <= done <= total == 6 for done, total in told)


def test_progress_is_told_in_the_calling_thread_only(tmp_path, pieces):
    write_many(tmp_path)
    callers = []
    for threads in (1, 2):
        scan_records(
            read_dump(tmp_path).records, lambda *_: callers.append(threading.current_thread()), threads=threads
        )
    assert set(callers) == {threading.main_thread()}


@pytest.mark.parametrize("compiled", [False, True])
def test_what_cannot_be_read_in_place_is_loaded(tmp_path, compiled):
    values = np.zeros((50, 70), np.float32)
    values[49, 3] = NAN
    np.save(tmp_path / "big.npy", values.astype(">f4"))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(values))
    np.savez_compressed(tmp_path / "z.npz", z=values)
    records = [*read_dump(tmp_path).records, *read_npz(tmp_path / "z.npz")]
    found = scan_records(records, compiled=compiled)
    assert [(f.index, f.nan) for f in found] == [((49, 3), 1)] * 3


@pytest.mark.parametrize("compiled", [False, True])
def test_no_dimension_no_elements_and_small_types(tmp_path, compiled):
    write_npy(tmp_path / "clean.npy", np.float32(3).reshape(()))
    write_npy(tmp_path / "empty.npy", np.zeros((3, 0, 2), np.float16))
    write_npy(tmp_path / "scalar.npy", np.float64(-INF).reshape(()))
    eight = np.zeros((3, 3), ml_dtypes.float8_e4m3fn)
    eight[2, 1] = NAN
    brain = np.zeros(9, ml_dtypes.bfloat16)
    brain[8] = INF
    names = ["Op.eight.1.0.1700000000000001", "Op.brain.2.0.1700000000000002"]
    for name, array in zip(names, (eight, brain), strict=True):
        (tmp_path / "d").mkdir(exist_ok=True)
        write_npu_dump(tmp_path / "d" / name, op_name="", inputs=[], outputs=[array], dump_time_us=1)
    by_op = {f.record.op: f for f in scan_records(read_dump(tmp_path / "d").records, compiled=compiled)}
    assert (by_op["eight"].index, by_op["eight"].kind) == ((2, 1), "nan")
    assert (by_op["brain"].index, by_op["brain"].kind) == ((8,), "inf")
    for file in (tmp_path / "d").iterdir():
        file.unlink()
    by_op = {f.record.op: f for f in scan_records(read_dump(tmp_path).records, compiled=compiled)}
    assert (by_op["scalar"].index, by_op["scalar"].kind, by_op["scalar"].shape) == ((), "-inf", ())
    assert not by_op["empty"].bad
    assert not by_op["clean"].bad
    assert by_op["scalar"].describe() == "scalar:output:0 has -inf at [] (0 NaN, 0 Inf, 1 -Inf of 1)"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_was_cut_after_listing_is_named_and_the_rest_is_read(tmp_path, threads, compiled):
    for name in ("a", "b", "c"):
        write_npy(tmp_path / f"{name}.npy", np.full(100_000, NAN, np.float32))
    records = read_dump(tmp_path).records
    with open(tmp_path / "b.npy", "r+b") as file:
        file.truncate(1000)
    (tmp_path / "c.npy").unlink()
    found = scan_records(records, threads=threads, compiled=compiled)
    assert [f.known for f in found] == [True, False, False]
    assert found[0].nan == 100_000
    assert all(str(f.record.path) in f.problem for f in found[1:])


def test_a_file_that_shrinks_under_the_reader_is_damage_and_no_answer(tmp_path):
    path = tmp_path / "a.npy"
    write_npy(path, np.zeros(100_000, np.float32))
    record = read_dump(tmp_path).records[0]

    class Shrinking:
        """Opens the tensor, and only then is the file cut."""

        def __init__(self, source):
            self.path, self.load, self._source = source.path, source.load, source

        def open(self):
            found = self._source.open()
            with open(path, "r+b") as file:
                file.truncate(1000)
            return found

    for compiled in (False, True):
        write_npy(path, np.zeros(100_000, np.float32))
        finding = scan_records([replace(record, source=Shrinking(record.source))], compiled=compiled)[0]
        assert "became shorter" in finding.problem
        assert not finding.bad


def test_a_claim_far_beyond_the_file_takes_no_memory(tmp_path, make):
    write_npy(tmp_path / "a.npy", np.float32([1, NAN]))
    record = read_dump(tmp_path).records[0]
    assert scan_record(replace(record, shape=(1 << 60,))).index == (1,)
    lying = replace(make.record("m:output:0", np.float32([NAN])), shape=(1 << 60,))
    assert scan_record(lying).index == (0,)


def test_a_bug_in_a_thread_is_raised_and_not_swallowed(make):
    class Broken:
        path = Path("/nowhere")

        def load(self):
            raise RuntimeError("boom")

    good = make.record("a:output:0", np.float32([1]))
    with pytest.raises(RuntimeError, match="boom"):
        scan_records([replace(good, source=Broken())] * 3, threads=2)


def test_padding_of_a_private_layout_is_no_part_of_the_tensor(tmp_path):
    from dumpers.formats.layouts import from_original
    from dumpers.formats.npu_dump_writer import TensorSpec

    original = np.arange(2 * 5 * 3 * 3, dtype=np.float32).reshape(2, 5, 3, 3)
    stored = np.ascontiguousarray(from_original(original, "NC1HWC0", original_format="NCHW"))
    padding = stored.copy()
    padding[..., 5:] = NAN  # channels 5 to 15 do not exist
    bad = padding.copy()
    bad[1, 0, 2, 1, 4] = INF
    for number, (name, array) in enumerate({"padded": padding, "bad": bad}.items()):
        spec = TensorSpec(array, format="NC1HWC0", original_shape=original.shape)
        path = tmp_path / f"Conv2D.{name}.{number}.0.{1700000000000000 + number}"
        write_npu_dump(path, op_name="", inputs=[], outputs=[spec], dump_time_us=1)
    found = {f.record.op: f for f in scan_records(read_dump(tmp_path).records)}
    count = 2 * 3 * 3 * (stored.shape[-1] - 5)
    assert (found["padded"].bad, found["padded"].padding) == (False, count)
    assert (found["bad"].index, found["bad"].kind, found["bad"].nan) == ((1, 4, 2, 1), "inf", 0)
    assert (found["bad"].shape, found["bad"].padding) == (original.shape, count)


def test_a_small_dump_is_read_without_loading_the_compiler(tmp_path):
    write_npy(tmp_path / "a.npy", np.float32([1, NAN]))
    program = (
        "import sys; from pathlib import Path\n"
        "from compare.nan_scan import scan_records; from dumpers.formats.registry import read_dump\n"
        f"found = scan_records(read_dump(Path({str(tmp_path)!r})).records, threads=2)\n"
        "print(found[0].index, 'numba' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["(1,)", "False"]

"""Records without values against each other and against whole tensors."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from compare.exports import row_data
from compare.figures import COLUMNS
from compare.limits import Limits
from compare.metrics import compare_arrays
from compare.outcomes import decode, encode
from compare.pairs import Pair, Step
from compare.result_file import read_csv
from compare.summary_pairs import has_summaries
from compare.sweep import SweepOptions, compare_dumps, compare_pair
from compare.table import write_csv
from compare.tolerance import required_tolerance
from dumpers.formats.npy import NpySource
from dumpers.formats.summary import summary_of
from dumpers.records import Dump, RecordedStatistics, TensorRecord

RNG = np.random.default_rng(11)
VECTOR = RNG.standard_normal((40, 50)).astype(np.float32)


class Held:
    """Values in memory, as the source of a record."""

    def __init__(self, array):
        self.array = array
        self.path = Path("held.npy")

    def load(self):
        return self.array.copy()


def record(array, mode, op="op", **more):
    """A record of an array: whole, or a summary."""
    dtype = array.dtype.name
    if mode == "full":
        return TensorRecord(op, "MatMul", "output", 0, dtype, array.shape, Held(array), **more)
    found = summary_of(array, dtype, mode)
    note = f"statistics only ({mode})"
    known = {"note": note, "statistics": found.statistics, "summary": found}
    return TensorRecord(op, "MatMul", "output", 0, dtype, array.shape, None, **known, **more)


def row_of(left, right, *modes):
    sides = record(left, modes[0]), record(right, modes[-1])
    pair = Pair(0, "op", "MatMul", ("op",), ("op",), *sides)
    assert has_summaries(pair)
    row = compare_pair(pair)
    assert decode(pair, encode(row)) == row  # what workers send back and journals keep
    row_data(row, COLUMNS)
    return row


def said(row):
    return "; ".join(row.messages())


@pytest.mark.parametrize("modes", [("hash", "hash"), ("sketch", "sketch"), ("full", "hash"), ("sketch", "full")])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "complex64", "bool"])
def test_equal_tensors_are_equal(modes, dtype):
    array = (VECTOR * 100).astype(getattr(ml_dtypes, dtype, dtype))
    row = row_of(array, array.copy(), *modes)
    assert (row.judged, row.figures.verdict, row.below(0.98)) == (True, "equal", False)
    assert said(row).startswith("equal by hash")
    assert (required_tolerance(row.figures).atol, Limits().broken(row)) == (0.0, ())


@pytest.mark.parametrize("modes", [("hash", "hash"), ("full", "hash")])
def test_hashes_tell_one_changed_bit_and_no_more(modes):
    other = VECTOR.copy()
    other.view(np.uint32)[3, 4] ^= 1
    row = row_of(other, VECTOR, *modes)
    assert (row.judged, row.figures.verdict, row.figures.differing) == (True, "different", None)
    assert said(row) == "hashes differ; by how much is not known"
    assert all(row.figures.column(name) is None for name in COLUMNS)
    assert not row.below(0.98)


def test_permuted_tensors_are_called_so():
    mixed = RNG.permutation(VECTOR.reshape(-1)).reshape(VECTOR.shape)
    assert said(row_of(mixed, VECTOR, "hash", "hash")) == "hashes differ; the same elements in another order"
    assert "the same elements in another order" in said(row_of(mixed, VECTOR, "sketch", "sketch"))
    assert "the same elements by hash, in any order" in said(row_of(mixed, VECTOR, "sketch", "hash"))
    assert "in other shapes" in said(row_of(VECTOR.reshape(50, 40), VECTOR, "hash", "hash"))


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.3, 5.0])
@pytest.mark.parametrize("modes", [("sketch", "sketch"), ("full", "sketch")])
def test_estimates_are_near_the_figures_and_marked(size, modes):
    other = (VECTOR + size * RNG.standard_normal(VECTOR.shape)).astype(np.float32)
    row, exact = row_of(other, VECTOR, *modes), compare_arrays(other, VECTOR)
    found = row.figures
    assert found.relative_distance == pytest.approx(exact.relative_distance, rel=0.45)
    assert found.root_mean_square_error == pytest.approx(exact.root_mean_square_error, rel=0.45)
    assert 1 - found.cosine == pytest.approx(1 - exact.cosine, rel=1.1)
    assert said(row).startswith("estimated from sketches: CosineSimilarity RelativeEuclideanDistance")
    assert (found.differing, found.verdict, row.judged, found.max_abs_error) == (None, "different", True, None)
    assert required_tolerance(found).atol is None
    assert row.below(0.98) == (exact.cosine < 0.98)


def test_a_scalar_has_all_figures_from_its_statistics():
    for mode in ("stats", "sketch"):
        row = row_of(np.float32(5.0).reshape(()), np.float32(7.0).reshape(()), mode, mode)
        assert (row.figures.max_abs_error, row.figures.reasons["CosineSimilarity"]) == (2.0, "scalar")
        assert row.below(0.98)
    ids = row_of(np.array([2**63 + 5], np.uint64), np.array([2**63 + 4], np.uint64), "stats", "stats")
    assert (ids.figures.max_abs_exact, ids.figures.differing) == (None, 1)


def test_zeros_on_one_side_and_on_both():
    zeros, ones = np.zeros(500, np.float32), np.ones(500, np.float32)
    assert row_of(zeros, -zeros, "stats", "stats").figures.verdict == "equal"
    dead = row_of(zeros, ones, "sketch", "sketch")
    assert (dead.below(0.5), dead.figures.reasons["CosineSimilarity"]) == (True, "left is zero")
    assert dead.figures.relative_distance == 1.0
    gone = row_of(ones, zeros, "sketch", "sketch")
    assert gone.figures.reasons["RelativeEuclideanDistance"] == "right is zero"
    assert gone.below(0.5)


@pytest.mark.parametrize("modes", [("stats", "stats"), ("sketch", "sketch"), ("full", "stats")])
def test_nan_of_one_side_is_suspicious_at_any_threshold(modes):
    bad = VECTOR.copy()
    bad[0, :3] = np.nan, np.inf, np.nan
    row = row_of(bad, VECTOR, *modes)
    assert row.below(-1.0)
    assert "at least 2 non-finite mismatch(es); where is not known" in said(row)
    assert "NaN 2 left 0 right; infinite 1 left 0 right" in said(row)
    assert Limits().broken(row)


def test_statistics_alone_are_no_verdict():
    row = row_of(VECTOR * np.float32(1.5), VECTOR, "stats", "stats")
    assert (row.judged, row.figures) == (False, None)
    assert row.reason.startswith("no value: statistics only (stats); min ")
    assert "relative distance at least 0.5" in row.reason
    same = row_of(VECTOR[::-1].copy(), VECTOR, "stats", "stats")
    assert (same.judged, "agree, which proves nothing" in same.reason) == (False, True)


def test_statistics_of_a_device_against_a_whole_tensor():
    """Printed figures of an NPU statistics dump."""
    device = TensorRecord(
        "op", "MatMul", "output", 0, "float32", VECTOR.shape, None, note="statistics only (x.csv)",
        statistics=RecordedStatistics(count=VECTOR.size, nan=1, pos_inf=0, neg_inf=0, min=-3.0, max=9.0, mean=0.1),
    )  # fmt: skip
    row = compare_pair(Pair(0, "op", "MatMul", ("op",), ("op",), device, record(VECTOR, "full")))
    assert row.below(0.0)
    assert row.figures.nan_left == 1
    bare = TensorRecord("op", "", "output", 0, "float32", None, None, statistics=RecordedStatistics(max=9.0))
    row = compare_pair(Pair(0, "op", "MatMul", ("op",), ("op",), bare, record(VECTOR, "full")))
    assert (row.judged, "max 9 against" in row.reason) == (False, True)


def test_what_cannot_be_held_against_each_other_is_said():
    assert "have nothing in common" in row_of(VECTOR, VECTOR, "hash", "stats").reason
    half = VECTOR.astype(ml_dtypes.bfloat16)
    assert "hashes of bfloat16 and float32" in row_of(half, VECTOR, "hash", "hash").reason
    assert "shapes differ: [39,50] against [40,50]" in row_of(VECTOR[1:], VECTOR, "sketch", "sketch").reason
    assert not row_of(np.array([b"a", b"b"]), np.array([b"a", b"c"]), "stats", "stats").judged
    sides = record(VECTOR, "sketch"), record(VECTOR, "full")
    turned = Pair(0, "op", "", ("op",), ("op",), *sides, steps=(Step("left", "turn", (1, 0), "transposed"),))
    assert "transposed, which a summary does not allow" in compare_pair(turned).reason


def test_sketches_of_another_dtype_are_compared_by_value():
    half = VECTOR.astype(ml_dtypes.bfloat16)
    row = row_of(half, VECTOR, "sketch", "sketch")
    exact = compare_arrays(half, VECTOR)
    assert row.figures.relative_distance == pytest.approx(exact.relative_distance, rel=0.45)


def test_a_damaged_whole_tensor_spoils_its_own_row(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00")
    whole = TensorRecord("op", "", "output", 0, "float32", (2,), NpySource(tmp_path / "a.npy", None, (2,)))
    row = compare_pair(Pair(0, "op", "", ("op",), ("op",), record(VECTOR, "sketch"), whole))
    assert row.unreadable


def dump(folder, mode, arrays):
    return Dump(Path(folder), tuple(record(a, mode, f"op{i}", timestamp_us=i) for i, a in enumerate(arrays)))


def test_a_whole_sweep_and_its_result_file(tmp_path):
    arrays = [VECTOR, np.float32(3).reshape(()), np.arange(9)]
    others = [VECTOR + np.float32(1), np.float32(3).reshape(()), np.arange(9)]
    found = compare_dumps(dump("l", "sketch", others), dump("r", "sketch", arrays), options=SweepOptions())
    assert [row.figures.verdict for row in found] == ["different", "equal", "equal"]
    assert [row.op for row in found.below(0.98)] == ["op0"]
    assert [row.op for row in found.ranked()] == ["op0"]
    write_csv(found, tmp_path / "result_1.csv")
    rows = read_csv(tmp_path / "result_1.csv").rows
    assert "estimated from sketches" in rows[0].reason
    assert [row.below(0.98) for row in rows] == [True, False, False]


FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(
    left=arrays_of.arrays(np.float32, 7, elements=FLOATS),
    right=arrays_of.arrays(np.float32, 7, elements=FLOATS),
    modes=st.sampled_from([("sketch", "sketch"), ("hash", "full"), ("stats", "full"), ("full", "sketch")]),
)
def test_no_pair_is_called_equal_that_is_not(left, right, modes):
    for other in (right, left):
        row, exact = row_of(left, other, *modes), compare_arrays(left, other)
        if row.figures is not None:
            # Other bits of the same value (-0, NaN) may be called different, never the other way round.
            assert exact.equal or not row.figures.equal
            assert not row.figures.non_finite_mismatches or exact.non_finite_mismatches
            assert row.figures.cosine is None or -1 <= row.figures.cosine <= 1

from __future__ import annotations

import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from compare.blocks import BLOCK
from compare.metrics import COLUMNS, compare_arrays, statistics

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_every_undefined_figure_has_a_reason_and_every_other_is_finite():
    pairs = [([0, 0], [0, 0]), ([1, 2], [0, 0]), ([5], [7]), ([NAN, 1], [2, 3]), ([NAN, INF], [1, 1]), ([], [])]
    for left, right in pairs:
        figures = compare_arrays(np.float32(left), np.float32(right))
        for name in COLUMNS:
            value = figures.column(name)
            assert (value is None) == bool(figures.reasons.get(name)), (left, right, name)
            assert not isinstance(value, float) or math.isfinite(value)


def test_non_finite_elements_are_counted_and_left_out():
    figures = compare_arrays(np.float32([1, NAN, 3, INF, NAN, -INF]), np.float32([1, NAN, 4, INF, 2, INF]))
    assert (figures.nan_left, figures.nan_right, figures.inf_left, figures.inf_right) == (2, 1, 2, 2)
    assert (figures.finite, figures.non_finite_mismatches, figures.mismatch_index, figures.differing) == (2, 2, 4, 3)
    assert (figures.max_abs_error, figures.max_abs_index) == (1.0, 2)


def test_a_place_beyond_the_first_block_is_right():
    left = np.zeros((3, BLOCK), np.float32)
    left[0, 0] = 1
    right = left.copy()
    right[2, 7] = 5
    left[1, 3] = right[1, 3] = NAN
    left[2, 2] = INF
    figures = compare_arrays(left, right)
    assert np.unravel_index(figures.max_abs_index, left.shape) == (2, 7)
    assert np.unravel_index(figures.mismatch_index, left.shape) == (2, 2)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, np.float16])
def test_small_floats_are_compared_at_their_exact_values(dtype):
    left, right = np.array([1, -2.5, 3, 0], dtype), np.array([1, -2.5, 3.5, 0], dtype)
    figures = compare_arrays(left, right)
    assert (figures.differing, figures.max_abs_error, figures.max_abs_index) == (1, 0.5, 2)


def test_wide_integers_of_different_signedness_are_exact():
    figures = compare_arrays(np.array([2**63 + 5, 7], np.uint64), np.array([-1, 7], np.int64))
    assert (figures.differing, figures.max_abs_exact) == (1, 2**63 + 6)
    extreme = compare_arrays(np.array([2**63 - 1, 0]), np.array([-(2**63), 0]))
    assert extreme.max_abs_exact == 2**64 - 1


def test_unsigned_ids_in_the_upper_half_are_exact():
    figures = compare_arrays(np.array([2**64 - 1, 5], np.uint64), np.array([1, 5], np.uint64))
    assert (figures.differing, figures.max_abs_exact) == (1, 2**64 - 2)


def test_mean_and_deviation_over_many_blocks():
    left = np.random.default_rng(2).normal(size=5 * BLOCK + 17) * 0.01 + np.arange(5 * BLOCK + 17) / BLOCK + 1e6
    figures = compare_arrays(left, left + 1)
    assert figures.left_mean == pytest.approx(left.mean(), rel=1e-14, abs=0)
    assert figures.left_deviation == pytest.approx(left.std(), rel=1e-9, abs=0)
    assert statistics(left).deviation == pytest.approx(left.std(), rel=1e-9, abs=0)


def test_complex_counts_elements_and_keeps_the_imaginary_part():
    left = np.array([1 + 1j, 2, complex(0, NAN)], np.complex64)
    right = np.array([1 - 1j, 2, complex(0, NAN)], np.complex64)
    figures = compare_arrays(left, right)
    assert (figures.elements, figures.finite, figures.differing, figures.nan_left, figures.nan_right) == (3, 2, 1, 1, 1)
    assert figures.max_abs_error == 2.0
    assert figures.max_abs_index == 0
    assert figures.cosine == pytest.approx(4 / 6)


def test_strings_are_compared_by_bytes():
    figures = compare_arrays(np.array([b"a", b"b"], object), np.array([b"a", b"c"], object))
    assert (figures.differing, figures.cosine) == (1, None)
    assert "strings" in figures.reasons["CosineSimilarity"]
    assert not compare_arrays(np.array([b"a"], object), np.float32([1])).comparable


def test_scaled_and_shifted_data_are_named():
    base = np.random.default_rng(0).normal(size=1000)
    assert compare_arrays(base * 1.5, base).pattern == "scaled by 1.5 (left = 1.5 x right)"
    assert compare_arrays(base, base * -3).pattern == "scaled by -3 (right = -3 x left)"
    assert compare_arrays(base + 2, base).pattern == "shifted by 2 (left = right + 2)"
    assert compare_arrays(base, np.roll(base, 1)).pattern == ""
    assert compare_arrays(base, base * (1 + 1e-6)).pattern == ""


def test_fortran_order_and_strides_do_not_matter():
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(200, 300)), rng.normal(size=(200, 300))
    plain = compare_arrays(left, right)
    assert compare_arrays(np.asfortranarray(left), right) == plain
    assert compare_arrays(np.repeat(left, 2, axis=1)[:, ::2], right) == plain


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_without_relative_errors_the_other_figures_are_the_same(dtype):
    rng = np.random.default_rng(2)
    left, right = (rng.standard_normal(5001) * 100).astype(dtype), (rng.standard_normal(5001) * 100).astype(dtype)
    if dtype.startswith("float"):
        left[7], right[2050] = np.nan, np.inf
    whole, plain = compare_arrays(left, right), compare_arrays(left, right, with_relative=False)
    left_out = ("AccumulatedRelativeError", "MaxRelativeError", "MeanRelativeError")
    assert [plain.column(name) for name in left_out] == [None] * 3
    assert [plain.reasons[name] for name in left_out] == ["not asked for"] * 3
    assert plain.differing_at_zero is None
    for name in set(COLUMNS) - set(left_out) - {"StandardDeviation"}:
        assert plain.column(name) == pytest.approx(whole.column(name), rel=1e-13, abs=0), name
    assert (plain.differing, plain.max_abs_index, plain.mismatch_index) == (
        whole.differing,
        whole.max_abs_index,
        whole.mismatch_index,
    )


def test_without_divergence_there_is_no_second_pass():
    figures = compare_arrays(np.float32([1, 2]), np.float32([1, 3]), with_divergence=False)
    assert (figures.divergence, figures.reasons["KullbackLeiblerDivergence"]) == (None, "not asked for")


def test_scalars_are_judged_by_distance():
    near, far = (compare_arrays(np.float32(2.0), np.float32(right)) for right in (2.001, 3.0))
    assert (near.cosine, near.reasons["CosineSimilarity"]) == (None, "scalar")
    assert (near.below(0.98), far.below(0.98)) == (False, True)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-100, 1.0, 1e100, 1e200, 8e307])
def test_float64_of_any_size(scale):
    left, right = np.array([1.0, 2, -2]) * scale, np.array([1.0, -2, -2]) * scale
    figures = compare_arrays(left, right)
    assert figures.cosine == pytest.approx(1 / 9, rel=1e-3 if scale < 1e-300 else 1e-14, abs=0)
    assert figures.relative_distance == pytest.approx(4 / 3, rel=1e-3 if scale < 1e-300 else 1e-14, abs=0)
    if scale < 8e307:
        assert figures.max_abs_error == pytest.approx(4 * scale, rel=1e-3, abs=0)
    else:
        assert figures.reasons["MaxAbsoluteError"] == "beyond the range of float64"


FLOATS = hnp.arrays(np.float32, st.integers(2, 40), elements=st.floats(width=32, allow_nan=True, allow_infinity=True))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_against_exact_sums(data):
    left = data.draw(FLOATS)
    right = data.draw(hnp.arrays(np.float32, left.size, elements=st.floats(width=32)))
    figures, swapped = compare_arrays(left, right), compare_arrays(right, left)
    assert figures.cosine == swapped.cosine
    keep = np.isfinite(left) & np.isfinite(right)
    x, y = left[keep].astype(np.float64), right[keep].astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    assert figures.differing == np.count_nonzero(~same)
    assert figures.non_finite_mismatches == np.count_nonzero(~same & ~keep)
    if figures.cosine is not None:
        exact = math.fsum(x * y) / math.sqrt(math.fsum(x * x) * math.fsum(y * y))
        assert abs(figures.cosine) <= 1
        assert figures.cosine == pytest.approx(exact, abs=1e-12)
    if x.size:
        assert figures.max_abs_error == np.abs(x - y).max()
        assert figures.mean_abs_error == pytest.approx(math.fsum(np.abs(x - y)) / x.size, rel=1e-12, abs=0)
        assert figures.divergence >= 0
    if figures.relative_distance is not None:
        assert figures.relative_distance == pytest.approx(
            math.sqrt(math.fsum((x - y) ** 2) / math.fsum(y * y)), rel=1e-9, abs=0
        )


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats()))
def test_an_array_equals_itself(array):
    figures = compare_arrays(array, array.copy())
    assert figures.equal
    assert not figures.below(1.0)
    assert figures.cosine in (None, 1.0)
    assert figures.max_abs_error in (None, 0.0)


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.int64, st.integers(1, 30)), st.data())
def test_integers_against_python(left, data):
    right = data.draw(hnp.arrays(np.int64, left.size))
    figures = compare_arrays(left, right)
    gaps = [abs(a - b) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert figures.differing == sum(gap > 0 for gap in gaps)
    assert (figures.max_abs_exact or figures.max_abs_error) == max(gaps)


def test_statistics():
    found = statistics(np.float32([1, NAN, -3, INF, -INF, INF]))
    assert (found.count, found.nan, found.positive_inf, found.negative_inf, found.inf) == (6, 1, 2, 1, 3)
    assert (found.minimum, found.maximum, found.mean, found.first_non_finite) == (-3, 1, -1, 1)
    ids = statistics(np.array([2**60 + 1, -(2**60) - 1]))
    assert (ids.minimum, ids.maximum, ids.finite) == (-(2**60) - 1, 2**60 + 1, True)
    assert statistics(np.zeros((0, 4), np.float32)).mean is None
    assert statistics(np.array([b"x"], object)).minimum is None
    assert statistics(np.array([1j, complex(0, NAN)])).nan == 1

"""What blocks of a sweep tell each other: greatest errors that tie, thresholds, integers on both sides of 2**52."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from compare.metrics import compare_arrays
from compare.onepass.decode import code_of, table_of, to_single
from compare.onepass.drive import STEP

ZERO = np.finfo(np.float64).eps


def brute(x: np.ndarray, y: np.ndarray) -> tuple[float, int, float, float]:
    """Greatest difference, its first place, greatest and summed relative error, in float64."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    distance = np.abs(a - b)
    above = np.abs(b) > ZERO
    ratio = distance[above] / np.abs(b[above])
    return float(distance.max()), int(distance.argmax()), float(ratio.max()), math.fsum(ratio)


def check(x: np.ndarray, y: np.ndarray) -> None:
    found = compare_arrays(x, y, with_divergence=False)
    top, at, ratio, total = brute(x, y)
    assert (found.max_abs_error, found.max_abs_index, found.max_relative_error) == (top, at, ratio)
    assert found.accumulated_relative_error == pytest.approx(total, rel=1e-12, abs=0)
    zeros = np.abs(y.astype(np.float64)) <= ZERO
    assert found.differing_at_zero == np.count_nonzero((x != y) & zeros)
    assert found.differing == np.count_nonzero(x != y)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.uint16])
@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_few_bits_have_many_equal_errors(dtype: type, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = 50 if np.dtype(dtype).kind in "iu" else 1
    values = np.abs(rng.standard_normal(5 * STEP + 3)) * scale
    x, y = values.astype(dtype), (values * (1 + 0.01 * rng.standard_normal(values.size))).astype(dtype)
    check(x, y)


def test_a_quotient_greater_by_one_unit_in_the_last_place_is_found() -> None:
    rng = np.random.default_rng(1)
    y = rng.uniform(1, 2, 4 * STEP).astype(np.float32)
    x = (y * np.float32(1.25)).astype(np.float32)
    ratios = np.abs(x.astype(np.float64) - y) / y
    order = np.argsort(ratios, kind="stable")  # nearly all quotients are the same in float32, none in float64
    assert np.unique(ratios.astype(np.float32)).size < 10
    for arranged in (order, order[::-1], rng.permutation(order)):
        check(x[arranged], y[arranged])
        check(-x[arranged], -y[arranged])


@pytest.mark.parametrize("step", [1, -1])
def test_quotients_next_to_each_other_in_float64(step: int) -> None:
    """With y = 1 and x near 2**-30 the quotients 1 - x are neighbours in float64; in float32 all of them are 1."""
    x = np.repeat((2.0**-30 * (1 + np.arange(6) * 2.0**-23)).astype(np.float32)[::step], STEP)
    y = np.ones(x.size, np.float32)
    assert np.unique(np.abs(x - y)).size == 1
    assert set(np.abs(np.diff(1 - x.astype(np.float64)))) == {0.0, 2.0**-53}
    x[0], y[0] = 100, 1000  # the greatest difference is another one, or it would show where to look
    check(x, y)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_references_at_the_threshold_beside_blocks_that_have_none(dtype: type) -> None:
    rng = np.random.default_rng(2)
    y = rng.standard_normal(6 * STEP).astype(dtype)
    y[STEP : STEP + 40] = 0
    y[3 * STEP] = ZERO  # not above it
    y[3 * STEP + 1] = 2 * ZERO
    x = (y.astype(np.float32) * np.float32(1.01)).astype(dtype)
    x[STEP + 7] = -3
    x[3 * STEP] = 0
    check(x, y)
    check(y, x)


def test_every_float16_is_decoded() -> None:
    raw = np.arange(1 << 16, dtype=np.uint16)
    dtype = np.dtype(np.float16)
    out = np.empty(raw.size, np.float32)
    to_single(code_of(dtype), table_of(dtype), raw.view(np.uint8), raw.size, out)
    assert np.array_equal(out, raw.view(np.float16).astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(raw.view(np.float16)))


@pytest.mark.parametrize("left", [np.int64, np.uint64])
@pytest.mark.parametrize("right", [np.int64, np.uint64, np.int32])
@pytest.mark.parametrize("first", [0, 1])
def test_integers_on_both_sides_of_what_float64_holds(left: type, right: type, first: int) -> None:
    rng = np.random.default_rng(3)
    sizes = [30, 53, 62, 51, 52, 10][first:]
    x = np.concatenate([rng.integers(0, 1 << size, STEP, dtype=np.int64) for size in sizes])
    y = x + rng.integers(0, 3, x.size)
    y[5] = x[5] + (1 << 20)
    y[2 * STEP + 1] = x[2 * STEP + 1] // 2
    if left is np.int64:
        x[::3] *= -1
    x, y = x.astype(left), (y & 0x7FFFFFFF if right is np.int32 else y).astype(right)
    found = compare_arrays(x, y, with_divergence=False)
    distances = [abs(int(a) - int(b)) for a, b in zip(x, y, strict=True)]
    greatest = max(distances)
    assert found.max_abs_index == distances.index(greatest)
    assert found.max_abs_error == float(greatest)
    assert found.max_abs_exact == (greatest if greatest > 2**53 else None)
    assert found.differing == sum(distance != 0 for distance in distances)
    assert found.mean_abs_error == pytest.approx(math.fsum(distances) / len(distances), rel=1e-12, abs=0)
    dot = sum(int(a) * int(b) for a, b in zip(x, y, strict=True))
    squares = [sum(int(a) ** 2 for a in side) for side in (x, y)]
    assert found.cosine == pytest.approx(dot / math.sqrt(squares[0]) / math.sqrt(squares[1]), rel=1e-12, abs=0)
    ratios = [distance / abs(int(b)) for distance, b in zip(distances, y, strict=True) if b]
    assert found.max_relative_error == pytest.approx(max(ratios), rel=1e-15, abs=0)


def test_the_greatest_small_difference_after_none() -> None:
    """A first block of equal ids leaves nothing behind that a later one could be held against."""
    x = np.arange(3 * STEP, dtype=np.int64)
    y = x.copy()
    y[2 * STEP + 9] += (1 << 51) + 1
    found = compare_arrays(x, y, with_divergence=False)
    assert (found.max_abs_error, found.max_abs_index, found.differing) == (2.0**51 + 1, 2 * STEP + 9, 1)

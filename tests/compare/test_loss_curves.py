"""Two curves, one run a side: what honest noise may do, and what it may not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compare.loss_curves import LossKind, batch_noise, compare_curves
from dumpers.errors import DataError
from dumpers.formats.loss_curve import LossCurve, read_loss_curve

CLEAN = Path(__file__).parents[1] / "data" / "recorded" / "clean_losses.csv"
"""200 steps of ``demo --fault none`` with eight seeds in both arithmetics."""


def curve(values, first=0, name="a"):
    values = np.asarray(values, np.float64)
    return LossCurve(Path(f"{name}.csv"), "loss", np.arange(first, first + len(values)), values)


def trained(seed, steps=400, noise=0.02):
    random = np.random.default_rng(seed)
    return 0.4 + 0.3 * np.exp(-np.arange(steps) / 80) + random.normal(0, noise, steps)


def drifted(values, seed, size=1e-3):
    """The same batches, a rounding error that wanders off: nothing at step 0, no side preferred."""
    random = np.random.default_rng(seed)
    grown = np.minimum(np.arange(len(values)) / 50, 1) * size
    return values * (1 + grown * random.normal(0, 1, len(values)))


def test_equal_curves_are_identical():
    found = compare_curves(curve(trained(1)), curve(trained(1)))
    assert found.kind is LossKind.IDENTICAL
    assert (found.first_differing, found.first_beyond, found.largest) == (None, None, 0.0)


def test_the_batch_noise_is_the_one_put_in():
    for noise in (0.001, 0.02, 1.0):
        assert batch_noise(trained(3, steps=20_000, noise=noise)) == pytest.approx(noise, rel=0.03)


def test_honest_noise_is_called_otherwise_no_more_often_than_stated():
    alarms = sum(
        compare_curves(curve(drifted(trained(seed), seed + 10_000)), curve(trained(seed))).kind is not LossKind.NOISE
        for seed in range(300)
    )
    assert alarms <= 300 * 0.02 + 3 * np.sqrt(300 * 0.02)  # 0.01 for the steps, 0.01 for the mean


def test_independent_noise_of_full_size_keeps_the_level_of_the_steps():
    """The limit takes sigma for the difference; of other batches it is sqrt(2) sigma, and that is said."""
    base = 0.4 + 0.3 * np.exp(-np.arange(400) / 80)
    shapes = [np.random.default_rng(seed).normal(0, 0.02, (2, 400)) for seed in range(200)]
    alarms = 0
    for shared, own in shapes:  # the difference has exactly the size of the batch noise
        right = base + shared
        left = right + own
        left[0] = right[0]
        alarms += compare_curves(curve(left), curve(right)).kind is not LossKind.NOISE
    assert alarms <= 200 * 0.02 + 3 * np.sqrt(200 * 0.02) + 4  # sigma is estimated: some percent off


def test_another_first_step_is_different_however_small_the_noise_makes_it():
    left = trained(5)
    left[0] *= 1.003
    found = compare_curves(curve(left), curve(trained(5)))
    assert found.kind is LossKind.DIFFERENT
    assert found.first_beyond == 0
    assert "weights are still equal" in found.reason


@pytest.mark.parametrize("step", [1, 77, 399])
def test_a_jump_is_found_at_its_step_and_convicts_nobody(step):
    left = drifted(trained(6), 7)
    left[step] += 0.3
    found = compare_curves(curve(left), curve(trained(6)))
    assert found.kind is LossKind.UNCLEAR
    assert found.first_beyond == step
    assert f"step {step} has " in found.reason


@pytest.mark.parametrize(("left_first", "right_first"), [(2, 2), (100, 100), (0, 1), (1, 0)])
def test_a_first_common_step_that_is_not_the_first_of_both_trainings_is_unclear(left_first, right_first):
    left, right = trained(5)[left_first:], trained(5)[right_first:]
    left[max(right_first - left_first, 0)] += 0.3
    found = compare_curves(curve(left, left_first), curve(right, right_first))
    assert (found.kind, found.first_beyond) == (LossKind.UNCLEAR, max(left_first, right_first))
    assert "training went on before it" in found.reason


@pytest.mark.parametrize("first", [0, 1])
def test_trainings_count_from_0_or_from_1(first):
    left = trained(5)
    left[0] += 0.3
    assert compare_curves(curve(left, first), curve(trained(5), first)).kind is LossKind.DIFFERENT


def test_a_nan_and_a_shift_decide_though_a_step_before_them_is_unclear():
    left = trained(12)
    left[20] += 0.3
    left[50] = np.inf
    found = compare_curves(curve(left), curve(trained(12)))
    assert (found.kind, found.first_beyond) == (LossKind.DIFFERENT, 20)
    assert "step 50" in found.reason
    left = trained(12) + 0.01
    left[0], left[20] = trained(12)[0], left[20] + 0.3
    found = compare_curves(curve(left), curve(trained(12)))
    assert (found.kind, found.first_beyond) == (LossKind.DIFFERENT, 20)
    assert "higher" in found.reason


@pytest.mark.parametrize("numerics", ["fp32", "mix"])
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("steps", [5, 10, 20, 50, 100, 200])
def test_honest_devices_that_drift_apart_are_never_called_different(numerics, seed, steps):
    left, right = (read_loss_curve(CLEAN, name=f"{side}_{numerics}_{seed}") for side in ("npu", "golden"))
    found = compare_curves(*(curve(one.values[:steps]) for one in (left, right)))
    assert found.kind in (LossKind.NOISE, LossKind.UNCLEAR)
    assert (found.kind is LossKind.NOISE) == (found.first_beyond is None)


def test_the_clean_pairs_do_drift_apart():
    """Else the test above would show nothing."""
    kinds = [
        compare_curves(*(read_loss_curve(CLEAN, name=f"{side}_fp32_{seed}") for side in ("npu", "golden"))).kind
        for seed in range(1, 9)
    ]
    assert kinds.count(LossKind.UNCLEAR) >= 6


def test_a_shift_below_the_noise_of_a_step_shows_in_the_mean():
    left = trained(8)
    left[100:] += 0.01  # half of the batch noise
    found = compare_curves(curve(left), curve(trained(8)))
    assert found.kind is LossKind.DIFFERENT
    assert found.first_beyond == 100
    assert "higher" in found.reason


def test_a_shift_within_rounding_is_noise_though_it_is_real():
    right = trained(9)
    found = compare_curves(curve(right * (1 + 2.0**-12)), curve(right))
    assert found.p_value < 0.001
    assert found.kind is LossKind.NOISE
    assert compare_curves(curve(right * (1 + 2.0**-12)), curve(right), rounding=0.0).kind is LossKind.DIFFERENT


def test_nan_is_a_difference_at_its_step_and_stands_in_the_finding_where_both_have_it():
    left = trained(10)
    left[50:] = np.nan
    found = compare_curves(curve(left), curve(trained(10)))
    assert (found.kind, found.first_beyond, found.not_finite) == (LossKind.DIFFERENT, 50, {"left": 50})
    both = compare_curves(curve(left), curve(left))
    assert (both.kind, both.not_finite) == (LossKind.IDENTICAL, {"left": 50, "right": 50})
    infinite = left.copy()
    infinite[50:] = np.inf
    assert compare_curves(curve(left), curve(infinite)).first_beyond == 50


def test_only_common_steps_count_and_none_is_an_error():
    found = compare_curves(curve(trained(11)[5:], first=5), curve(trained(11)))
    assert (found.kind, found.steps) == (LossKind.IDENTICAL, 395)
    with pytest.raises(DataError, match="no step in common"):
        compare_curves(curve([1, 2]), curve([1, 2], first=5))


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.4], [np.nan], [1e308, -1e308, 1e308], [0.0] * 9])
def test_short_and_extreme_curves(values):
    assert compare_curves(curve(values), curve(values)).kind is LossKind.IDENTICAL
    other = [value + 1e308 if np.isfinite(value) else 1.0 for value in values]
    assert compare_curves(curve(other), curve(values)).kind is LossKind.DIFFERENT

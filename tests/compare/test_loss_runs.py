"""The permutation test of several runs: its level by simulation, its power, its p-value by brute force."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from compare.loss_curves import LossKind
from compare.loss_runs import compare_runs, smallest_p
from dumpers.errors import DataError, UsageError
from dumpers.formats.loss_curve import LossCurve

ROUNDING = 2.0**-10


def curve(values):
    return LossCurve(Path("run.csv"), "loss", np.arange(len(values)), np.asarray(values, np.float64))


def runs(seed, count, *, shift=0.0, since=0, steps=120):
    """Runs with heavy tails whose steps hang together: what a test for normal numbers would stumble over."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        noise = np.cumsum(random.standard_t(3, steps)) * 0.002 + random.standard_t(3, steps) * 0.01
        values = 0.4 + 0.3 * np.exp(-np.arange(steps) / 30) + noise
        values[since:] += shift
        found.append(curve(values))
    return found


@pytest.mark.parametrize(("left", "right", "level"), [(4, 4, 0.05), (5, 3, 0.05), (9, 9, 0.05), (4, 4, 0.2)])
def test_false_alarms_are_at_most_the_level(left, right, level):
    rounds = 120 if left + right > 10 else 400
    alarms = 0
    for seed in range(rounds):
        everyone = runs(seed, left + right)
        found = compare_runs(everyone[:left], everyone[left:], rounding=0.0, level=level)
        alarms += found.kind is LossKind.DIFFERENT
    assert alarms <= rounds * level + 3 * np.sqrt(rounds * level * (1 - level))


def test_a_shift_is_found_and_not_before_it_is_there():
    found = [
        compare_runs(runs(seed, 5, shift=0.2, since=60), runs(seed + 500, 5), rounding=ROUNDING) for seed in range(40)
    ]
    different = [one for one in found if one.kind is LossKind.DIFFERENT]
    assert len(different) >= 38
    early = [one for one in different if one.first_beyond is not None and one.last_of_stretch < 60]
    assert len(early) <= 40 * 0.05 + 3 * np.sqrt(40 * 0.05)
    assert all(one.first_beyond <= 70 for one in different)


def test_the_p_value_is_that_of_all_deals():
    left, right = runs(3, 4, shift=0.03, steps=1), runs(4, 4, steps=1)
    values = np.array([run.values[0] for run in (*left, *right)])
    given = abs(values[:4].mean() - values[4:].mean())
    deals = [set(chosen) for chosen in combinations(range(8), 4)]
    others = [abs(values[list(one)].mean() - values[[k for k in range(8) if k not in one]].mean()) for one in deals]
    expected = np.mean([other >= given * (1 - 1e-9) for other in others])
    found = compare_runs(left, right, rounding=0.0)
    assert found.p_value == pytest.approx(expected)
    assert found.deals == 70


def test_two_exact_sides_that_differ():
    found = compare_runs([curve([0.5, 0.4])] * 4, [curve([0.5, 0.3])] * 4, rounding=ROUNDING)
    assert (found.kind, found.p_value, found.first_beyond) == (LossKind.DIFFERENT, pytest.approx(2 / 70), 1)
    small = compare_runs([curve([0.5, 0.3 * (1 + 2.0**-12)])] * 4, [curve([0.5, 0.3])] * 4, rounding=ROUNDING)
    assert small.kind is LossKind.NOISE
    assert "real" in small.reason
    assert compare_runs([curve([0.5])] * 4, [curve([0.5])] * 4, rounding=0.0).kind is LossKind.IDENTICAL


def test_too_few_runs_are_said_so():
    with pytest.raises(UsageError, match=r"below 0\.1"):
        compare_runs(runs(1, 3), runs(2, 3), rounding=0.0)
    assert compare_runs(runs(1, 3), runs(2, 3), rounding=0.0, level=0.1).deals == 20
    assert smallest_p(4, 4) == pytest.approx(2 / 70)
    assert smallest_p(1, 19) == pytest.approx(1 / 20)


def test_nan_on_one_side_only_differs_and_one_on_both_does_not():
    broken = curve(np.where(np.arange(120) < 30, 0.5, np.nan))
    found = compare_runs([*runs(1, 4), broken], runs(2, 5), rounding=0.0)
    assert (found.kind, found.first_beyond, found.not_finite) == (LossKind.DIFFERENT, 30, (("left", 4, 30),))
    both = compare_runs([*runs(1, 4), broken], [*runs(2, 4), broken], rounding=0.0)
    assert both.not_finite == (("left", 4, 30), ("right", 4, 30))
    assert both.p_value is not None
    with pytest.raises(DataError, match="nothing is left"):
        compare_runs([*runs(1, 4), curve([np.nan] * 120)], [*runs(2, 4), broken], rounding=0.0)

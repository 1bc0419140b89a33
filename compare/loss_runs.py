"""Several runs a side: a permutation test of whether the sides differ, and from which step on.

If nothing but chance tells the sides apart, every way to deal the runs onto them is equally likely. The curve is cut
into stretches of steps (64 at most), and the whole of it is one more. The statistic is the largest ``|mean left - mean
right|`` over the stretches, each in units of the standard deviation of all runs there. Its p-value is the share of
deals whose statistic is no smaller: all of them where there are at most 20,000, else the given one and 9,999 drawn
ones. The probability of a false alarm is thus at most the level, whatever the noise looks like (no normality; steps may
hang together). A stretch by itself differs where it is beyond the same distribution of the largest (Westfall and Young
1993), so the first of them holds the level too. Runs must be independent: other seeds, not copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np

from compare.loss_curves import LossKind, first_not_finite
from dumpers.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.loss_curve import LossCurve

LEVEL: Final = 0.05
"""Three runs a side cannot reach it (20 deals, two of them as extreme as any); four can."""

_STRETCHES: Final = 64
_ALL_DEALS: Final = 20_000
_DRAWN: Final = 9_999
_TINY: Final = 1e-9


@dataclass(frozen=True)
class RunsFinding:
    """What is said of several runs a side.

    Attributes:
        kind: The answer.
        reason: Why, in one sentence.
        steps: Number of steps that all runs have.
        p_value: Of the permutation test; None where values that are not finite have answered.
        deals: Ways to deal the runs that were looked at.
        first_beyond: First step of the first stretch that differs by itself.
        last_of_stretch: Last step of that stretch.
        mean: Mean of the left runs minus that of the right ones; None without a finite step.
        left_spread: Standard deviation of the means of the left runs.
        right_spread: The same of the right ones.
        not_finite: Runs with a NaN or infinity: side, number in its list, first step.
    """

    kind: LossKind
    reason: str
    steps: int
    p_value: float | None
    deals: int
    first_beyond: int | None
    last_of_stretch: int | None
    mean: float | None
    left_spread: float | None
    right_spread: float | None
    not_finite: tuple[tuple[str, int, int], ...]


def smallest_p(left: int, right: int) -> float:
    """Returns the smallest p-value that so many runs can give: both deals that swap equal sides are as extreme."""
    deals = comb(left + right, left)
    return max((2 if left == right else 1) / deals, 1 / (_DRAWN + 1) if deals > _ALL_DEALS else 0.0)


def compare_runs(
    left: Sequence[LossCurve], right: Sequence[LossCurve], *, rounding: float, level: float = LEVEL
) -> RunsFinding:
    """Tests whether two sets of runs differ by more than chance, and by more than ``rounding`` of the loss.

    Args:
        left: Runs under test.
        right: Runs of the reference.
        rounding: What rounding may do, relative to the loss: a real but smaller shift is no finding.
        level: Probability of a false alarm, within (0, 1).

    Raises:
        UsageError: so few runs cannot reach the level.
        DataError: no step is in all runs.
    """
    if smallest_p(len(left), len(right)) > level:
        least = smallest_p(len(left), len(right))
        raise UsageError(
            f"loss: {len(left)} and {len(right)} runs cannot give a p-value below {least:.3g}, so no test at the level "
            f"{level:g}; give more runs (4 a side reach 0.05), or a --level they reach"
        )
    steps = reduce(np.intersect1d, [run.steps for run in (*left, *right)])
    if not len(steps):
        raise DataError(f"{left[0].path}: no step is in all {len(left) + len(right)} runs; compare the same steps")
    values = np.array([run.values[np.searchsorted(run.steps, steps)] for run in (*left, *right)])
    broken = tuple(
        (side, number, step)
        for side, runs in (("left", left), ("right", right))
        for number, run in enumerate(runs)
        if (step := first_not_finite(run)) is not None
    )
    finite = np.isfinite(values).all(axis=0)
    kept, count = values[:, finite], len(left)
    if (values == values[0]).all():
        what = f"all runs have the same value at all {len(steps)} common steps"
        return RunsFinding(LossKind.IDENTICAL, what, len(steps), None, 0, None, None, 0.0, 0.0, 0.0, broken)
    if {side for side, _, _ in broken} in ({"left"}, {"right"}):
        side, number, step = min(broken, key=lambda one: one[2])
        what = f"run {number + 1} of the {side} side is not finite at step {step}, and no run of the other side ever is"
        return RunsFinding(LossKind.DIFFERENT, what, len(steps), None, 0, step, step, *_means(kept, count), broken)
    if not finite.any():
        raise DataError(f"{left[0].path}: at every common step a run is not finite; nothing is left to test")
    return _tested(steps[finite], kept, count, (rounding, level), broken)


def _means(values: NDArray[np.float64], left: int) -> tuple[float | None, float | None, float | None]:
    if not values.shape[1]:
        return None, None, None
    means = values.mean(axis=1)
    spreads = [float(part.std(ddof=1)) if len(part) > 1 else None for part in (means[:left], means[left:])]
    return float(means[:left].mean() - means[left:].mean()), spreads[0], spreads[1]


def _tested(
    steps: NDArray[np.int64],
    values: NDArray[np.float64],
    left: int,
    how: tuple[float, float],
    broken: tuple[tuple[str, int, int], ...],
) -> RunsFinding:
    rounding, level = how
    stretches = np.array_split(np.arange(len(steps)), min(_STRETCHES, len(steps)))
    means = np.stack([values[:, places].mean(axis=1) for places in stretches] + [values.mean(axis=1)], axis=1)
    deals = _deals(len(values), left)
    largest, observed = _statistics(means, deals, left)
    p_value = float(np.mean(largest >= observed.max() * (1 - _TINY)))
    shift = np.abs(means[:left].mean(axis=0) - means[left:].mean(axis=0))
    real = np.array([np.mean(largest >= one * (1 - _TINY)) <= level for one in observed])
    counts = real & (shift > rounding * np.abs(means).mean(axis=0))
    first = next((places for places, differs in zip(stretches, counts[:-1], strict=True) if differs), None)
    if counts.any():
        kind, what = LossKind.DIFFERENT, f"the sides differ by more than chance (p = {p_value:.3g}, level {level:g})"
    elif real.any():
        kind = LossKind.NOISE
        what = f"a shift that is real (p = {p_value:.3g}) but within {rounding:.3g} of the loss, as rounding makes it"
    else:
        kind, what = LossKind.NOISE, f"chance explains the difference (p = {p_value:.3g}, level {level:g})"
    ends: tuple[int | None, int | None] = (
        (None, None) if first is None else (int(steps[first[0]]), int(steps[first[-1]]))
    )
    return RunsFinding(kind, what, len(steps), p_value, len(deals), *ends, *_means(values, left), broken)


def _deals(runs: int, left: int) -> NDArray[np.float64]:
    """Returns who is on the left, float64 [deals, runs] of 0 and 1; the given deal is the first."""
    if comb(runs, left) <= _ALL_DEALS:
        chosen = np.array(list(combinations(range(runs), left)))
    else:
        random = np.random.default_rng(0)
        drawn = np.argsort(random.random((_DRAWN, runs)), axis=1)[:, :left]
        chosen = np.concatenate([np.arange(left)[None], drawn])
    deals = np.zeros((len(chosen), runs))
    np.put_along_axis(deals, chosen, 1.0, axis=1)
    return deals


def _statistics(
    means: NDArray[np.float64], deals: NDArray[np.float64], left: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the largest statistic of each deal, and the given deal's of each stretch."""
    centred = means - means.mean(axis=0)
    spread = centred.std(axis=0)
    scaled = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > _TINY * np.abs(means).max(axis=0))
    right = len(means) - left
    statistics = np.abs(deals @ scaled) * (1 / left + 1 / right)  # centred: the right sum is minus the left one
    return statistics.max(axis=1), statistics[0]

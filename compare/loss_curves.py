"""Two loss curves: identical, honest noise, different, or unclear, and from which step on.

One run a side. Devices that round differently have other weights after one step, and training makes the difference
grow: clean pairs of the demo are 2e-7 apart at first and up to 0.018 later, with leaps of 260 times in one step. A
single late step therefore convicts nobody. What does:

* **the first step of the training** (its number is 0 or 1, in both curves): both sides have the same weights there, so
  only rounding counts, ``rounding * |loss|``;
* **a value that is not finite** on one side;
* **the mean**: the mean difference of 16 stretches of the curve, their signs flipped in all 65,536 ways (an exact test
  under "no side lies higher"), is beyond the level, and the mean is beyond ``rounding`` of the mean loss. Runs that
  drift apart cross again and again; several runs a side tell a bias more finely, see :mod:`compare.loss_runs`.

Any other step beyond ``rounding * |loss| + z * sigma`` makes the pair *unclear*: a fault, or rounding that grew. Sigma
is the noise from batch to batch of the right curve, the median of ``|v[k] - 2 v[k+1] + v[k+2]|`` over 0.6745 sqrt(6)
(the second difference takes the trend away, and has six variances of one step), and z the normal quantile of
``level / (2 N)``, so that all N steps together hold the level (Bonferroni).

A value that is not finite differs from every other; curves that have the same ones are told apart by the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.loss_curve import LossCurve

RULE_OF_THUMB: Final = 0.001
"""Users call an absolute difference above it suspicious; it knows neither the size of a loss nor its noise."""

ROUNDING: Final = 2.0**-10
"""What half precision may do to a loss, relative: one unit in the last place of its ten bits."""

LEVEL: Final = 0.01

_START: Final = 1  # highest number of a training's first step: some count from 0, some from 1

_STRETCHES: Final = 16
_FEWEST: Final = 8  # stretches; fewer cannot reach 0.01 whatever they say
_TINY: Final = 1e-12


class LossKind(StrEnum):
    """What two curves are to each other."""

    IDENTICAL = "identical"
    NOISE = "noise"
    UNCLEAR = "unclear"
    DIFFERENT = "different"


@dataclass(frozen=True, eq=False)
class CommonSteps:
    """Two curves where both have a value.

    Attributes:
        steps: int64 [N], ascending.
        left: float64 [N].
        right: float64 [N].
        left_only: Number of steps without a partner.
        right_only: The same.
    """

    steps: NDArray[np.int64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    left_only: int
    right_only: int

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Where both values are finite, bool [N]."""
        return np.asarray(np.isfinite(self.left) & np.isfinite(self.right))

    @property
    def equal(self) -> NDArray[np.bool_]:
        """Where both are the same number, or both NaN, bool [N]."""
        return np.asarray((self.left == self.right) | (np.isnan(self.left) & np.isnan(self.right)))


@dataclass(frozen=True)
class LossFinding:
    """What is said of one curve a side.

    Attributes:
        kind: The answer.
        reason: Why, in one sentence.
        steps: Number of steps that both have.
        first_differing: First step whose values are not the same number; None where all are.
        first_beyond: First step whose difference rounding and the noise of the batches do not explain, None where
            there is none.
        largest: Largest absolute difference of finite values.
        largest_step: Where.
        mean: Mean of left minus right over finite steps; None where there is none.
        p_value: Of the mean; None where too few steps can be tested.
        sigma: Noise from batch to batch of the right curve; None below three steps.
        above_rule: Steps whose difference is above :data:`RULE_OF_THUMB`.
        not_finite: ``left``/``right`` -> first step that is not finite.
    """

    kind: LossKind
    reason: str
    steps: int
    first_differing: int | None
    first_beyond: int | None
    largest: float
    largest_step: int | None
    mean: float | None
    p_value: float | None
    sigma: float | None
    above_rule: int
    not_finite: dict[str, int]


def common_steps(left: LossCurve, right: LossCurve) -> CommonSteps:
    """Returns the steps of both curves.

    Raises:
        DataError: they have none.
    """
    steps, at_left, at_right = np.intersect1d(left.steps, right.steps, assume_unique=True, return_indices=True)
    if not len(steps):
        ranges = [f"{curve.path} has steps {curve.steps[0]} to {curve.steps[-1]}" for curve in (left, right)]
        raise DataError(f"{', '.join(ranges)}: no step in common; compare the same steps of both runs")
    return CommonSteps(
        steps, left.values[at_left], right.values[at_right], len(left) - len(steps), len(right) - len(steps)
    )


def first_not_finite(curve: LossCurve) -> int | None:
    """Returns the first step whose value is NaN or infinite."""
    bad = np.flatnonzero(~np.isfinite(curve.values))
    return int(curve.steps[bad[0]]) if len(bad) else None


def batch_noise(values: NDArray[np.float64]) -> float | None:
    """Returns the standard deviation from step to step without the trend; None for fewer than three values."""
    if len(values) < 3:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # of losses near the largest number
        second = np.abs(values[:-2] - 2 * values[1:-1] + values[2:])
    return float(np.median(second) / (NormalDist().inv_cdf(0.75) * np.sqrt(6.0)))


def compare_curves(
    left: LossCurve, right: LossCurve, *, rounding: float = ROUNDING, level: float = LEVEL
) -> LossFinding:
    """Compares one run a side.

    Args:
        left: Under test.
        right: The reference.
        rounding: What rounding may do, relative to the loss, >= 0.
        level: Probability of calling honest noise different by its mean, and of calling it unclear by a step, each
            within (0, 1).

    Raises:
        DataError: the curves have no step in common.
    """
    both = common_steps(left, right)
    with np.errstate(over="ignore", invalid="ignore"):  # a loss near the largest number is different all the same
        return _compared(both, (left, right), rounding, level)


def _compared(both: CommonSteps, curves: tuple[LossCurve, LossCurve], rounding: float, level: float) -> LossFinding:
    finite = both.finite
    a, b = both.left[finite], both.right[finite]
    difference = a - b
    sigma = batch_noise(b)
    beyond = np.zeros(len(finite), dtype=bool)
    beyond[finite] = np.abs(difference) > _limits(both, finite, sigma, (rounding, level))
    beyond |= ~finite & ~both.equal
    mean, p_value = _mean_test(difference)
    shift = _Shift(mean, p_value, level, rounding * _size(a, b))
    kind, reason = _answer(both, beyond, shift, started=_from_the_start(curves))
    first_beyond = _first(both, beyond)
    if kind is LossKind.DIFFERENT and first_beyond is None:
        shifted = np.zeros(len(finite), dtype=bool)
        shifted[finite] = np.abs(difference) > rounding * np.maximum(np.abs(a), np.abs(b))
        first_beyond = _first(both, shifted)
    worst = int(np.argmax(np.abs(difference))) if len(difference) else None
    ends = {side: first_not_finite(curve) for side, curve in zip(("left", "right"), curves, strict=True)}
    return LossFinding(
        kind,
        reason,
        len(both.steps),
        _first(both, ~both.equal),
        first_beyond,
        0.0 if worst is None else float(np.abs(difference[worst])),
        None if worst is None else int(both.steps[finite][worst]),
        mean,
        p_value,
        sigma,
        int(np.count_nonzero(np.abs(difference) > RULE_OF_THUMB)),
        {side: step for side, step in ends.items() if step is not None},
    )


def _size(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return max(float(np.abs(a).mean()), float(np.abs(b).mean())) if len(a) else 0.0


def _first(both: CommonSteps, where: NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(where)
    return int(both.steps[places[0]]) if len(places) else None


def _limits(
    both: CommonSteps, finite: NDArray[np.bool_], sigma: float | None, how: tuple[float, float]
) -> NDArray[np.float64]:
    rounding, level = how
    limits = rounding * np.maximum(np.abs(both.left[finite]), np.abs(both.right[finite]))
    if sigma is not None:
        later = np.flatnonzero(finite) > 0
        limits[later] += NormalDist().inv_cdf(1 - level / (2 * len(limits))) * sigma
    return np.asarray(limits)


def _mean_test(difference: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Returns the mean, and its p-value by flipping the signs of stretches; None below eight stretches of a step."""
    if not len(difference):
        return None, None
    mean = float(difference.mean())
    if len(difference) < _FEWEST:
        return mean, None
    sums = np.array([part.sum() for part in np.array_split(difference, min(_STRETCHES, len(difference)))])
    signs = np.array(list(product((1.0, -1.0), repeat=len(sums))))
    flipped = np.abs(signs @ sums)
    return mean, float(np.mean(flipped >= abs(sums.sum()) * (1 - _TINY)))


@dataclass(frozen=True)
class _Shift:
    """The test of the mean, and what it takes to count."""

    mean: float | None
    p_value: float | None
    level: float
    margin: float

    def found(self) -> str:
        """Returns what it says, empty for nothing."""
        if self.p_value is None or self.mean is None or self.p_value > self.level or abs(self.mean) <= self.margin:
            return ""
        side = "higher" if self.mean > 0 else "lower"
        return f"the left curve lies {side} by {abs(self.mean):.3g} in the mean (p = {self.p_value:.2g})"


def _from_the_start(curves: tuple[LossCurve, LossCurve]) -> bool:
    """Whether the first step of both is the first of a training, where the weights are still equal."""
    first = {int(curve.steps[0]) for curve in curves}
    return len(first) == 1 and first.pop() <= _START


def _answer(both: CommonSteps, beyond: NDArray[np.bool_], shift: _Shift, *, started: bool) -> tuple[LossKind, str]:
    if both.equal.all():
        return LossKind.IDENTICAL, f"all {len(both.steps)} common steps have the same value"
    if not beyond.any():
        if shift.found():
            return LossKind.DIFFERENT, shift.found()
        return LossKind.NOISE, "every difference is one that rounding and the noise of the batches explain"
    place = int(np.flatnonzero(beyond)[0])
    if started and place == 0 and both.finite[0]:
        return LossKind.DIFFERENT, f"{_values(both, 0)}: beyond rounding, and the weights are still equal there"
    broken = np.flatnonzero(~both.finite & ~both.equal)
    if len(broken):
        return LossKind.DIFFERENT, f"{_values(both, int(broken[0]))}: one side is not finite"
    if shift.found():
        return LossKind.DIFFERENT, shift.found()
    if place == 0:
        why = "a fault, or training went on before it with other rounding on each side"
    else:
        why = "a fault, or rounding that grew through the weights"
    return LossKind.UNCLEAR, f"{_values(both, place)}: {why}"


def _values(both: CommonSteps, place: int) -> str:
    return f"step {both.steps[place]} has {both.left[place]:.9g} against {both.right[place]:.9g}"

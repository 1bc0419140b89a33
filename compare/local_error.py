"""What an op wrote against what it should have written: error, bound and their ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.bounds import FORMATS, RATIO_LIMIT, Array, Real

if TYPE_CHECKING:
    from compare.evaluation import Replay


@dataclass(frozen=True)
class LocalError:
    """How far one output of an op is from the exact result for the op's own inputs.

    Attributes:
        slot: Output number.
        max_error: Greatest difference among the elements that are finite on both sides.
        ratio: Greatest error/bound over all elements; infinite where nothing may differ (bound 0) or where one side is
            not finite without reason; 0 where nothing differs; None (as ``max_error``) without a judgement.
        bound: Bound at that element, None if nothing differs.
        index: That element, None if nothing differs.
        got, expected: Its value as dumped and as it should be.
        differing: Elements beyond :data:`compare.bounds.RATIO_LIMIT` times their bound.
        non_finite: Elements that are NaN or infinite on one side only, or infinite with another sign.
        unjudged: Elements that cannot be judged (infinite bound).
        count: Elements.
        reason: Why there is no judgement, empty if there is one.
    """

    slot: int
    max_error: float | None = 0.0
    ratio: float | None = 0.0
    bound: float | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None
    differing: int = 0
    non_finite: int = 0
    unjudged: int = 0
    count: int = 0
    reason: str = ""

    @property
    def faulty(self) -> bool:
        """Whether rounding does not explain the error."""
        return self.ratio is not None and self.ratio > RATIO_LIMIT


def unjudged(slot: int, got: Array | None, reason: str) -> LocalError:
    """Returns the entry of an output that is not judged, with the reason."""
    return LocalError(slot, max_error=None, ratio=None, count=0 if got is None else got.size, reason=reason)


def judge(slot: int, got: Array, exact: Array, bound: Real, flushed: tuple[Array, Real] | None = None) -> LocalError:
    """Compares one output.

    Args:
        slot: Output number, copied to the result.
        got: As dumped.
        exact: Right values.
        bound: Allowed error per element.
        flushed: Right values with subnormal inputs taken as zero, and their bound, which are as good.
    """
    if got.shape != exact.shape:
        return unjudged(slot, got, f"shape {got.shape} instead of {exact.shape}")
    if got.dtype.kind in "cOSU":
        return unjudged(slot, got, f"values of dtype {got.dtype.name} are not judged")
    with np.errstate(all="ignore"):
        error, wrong, ratio = _judged(got, exact, bound)
        if flushed is not None:
            # Each element by whichever of both explains it better.
            found = _judged(got, *flushed)
            better = found[2] < ratio
            error, wrong, ratio = (
                np.where(better, new, old) for new, old in zip(found, (error, wrong, ratio), strict=True)
            )
    return _summary(slot, got, exact, np.asarray(bound), (error, wrong, ratio))


def _judged(got: Array, exact: Array, bound: Real) -> tuple[Real, Array, Real]:
    """Error, whether it is wrong beyond any bound, and the ratio, for each element."""
    error, wrong = _errors(got, exact, bound)
    ratio = np.where(error > 0, error / bound, 0.0)
    return error, wrong, np.where(wrong & ~np.isinf(bound), np.inf, np.where(np.isnan(ratio), 0.0, ratio))


def _summary(slot: int, got: Array, exact: Array, bound: Real, found: tuple[Real, Array, Real]) -> LocalError:
    error, wrong, ratio = found
    open_ended = int(np.isinf(bound).sum())
    if not got.size or not (ratio > 0).any():
        return LocalError(slot, count=got.size, unjudged=open_ended)
    worst = np.flatnonzero(ratio.reshape(-1) == ratio.max())
    # Among equals (infinite ratios) the largest error, a non-finite element first.
    weight = np.where(wrong, np.inf, error).reshape(-1)[worst]
    place = np.unravel_index(int(worst[int(np.argmax(weight))]), got.shape)
    index = tuple(int(k) for k in place)
    return LocalError(
        slot=slot,
        max_error=float(error.max()),
        ratio=float(ratio.max()),
        bound=float(bound[index]),
        index=index,
        got=float(got[index]),
        expected=float(exact[index]),
        differing=int((ratio > RATIO_LIMIT).sum()),
        non_finite=int((wrong & ~np.isinf(bound)).sum()),
        unjudged=open_ended,
        count=got.size,
    )


def _errors(got: Array, exact: Array, bound: Real) -> tuple[Real, Array]:
    """Absolute error where both are finite (0 elsewhere), and where they are not both finite without a right to it."""
    form = FORMATS.get(got.dtype.name)
    if form is None or exact.dtype.kind in "iub":
        same = got == exact
        # Neighbours beyond 2^53 are equal as float64; they differ all the same.
        distance = np.abs(got.astype(np.float64) - exact.astype(np.float64))
        return np.where(same, 0.0, np.maximum(distance, np.where(distance > 0, distance, 1.0))), np.zeros(
            got.shape, dtype=bool
        )
    have, want = got.astype(np.float64), exact.astype(np.float64)
    both = np.isfinite(have) & np.isfinite(want)
    # 16-bit floats saturate on some devices: the largest number in place of infinity.
    if form.name == "float16":
        saturated = np.isfinite(have) & (np.abs(want) > form.largest)
        want = np.where(saturated, np.copysign(form.largest, want), want)
        both = both | saturated
    # Rounding to nearest overflows from half a unit beyond the largest number on; the bound may bring it there.
    over = np.abs(want) + np.where(np.isinf(bound), 0.0, bound) >= form.largest
    overflow = np.isinf(have) & over & (np.sign(have) == np.sign(want))
    fine = both | (np.isnan(have) & np.isnan(want)) | overflow
    error = np.where(both, np.abs(have - want), 0.0)
    return np.where(math.isfinite(form.largest) & np.isfinite(error), error, np.inf), ~fine


def local_error_ratios(got: Array, replay: Replay, slot: int) -> Real:
    """Returns the ratio of error to bound of each element of one output, as :func:`judge` takes it."""
    with np.errstate(all="ignore"):
        ratio = _judged(got, replay.exact[slot], replay.bound[slot])[2]
        if replay.flushed:
            ratio = np.minimum(ratio, _judged(got, replay.flushed[slot], replay.flushed_bound[slot])[2])
    return ratio

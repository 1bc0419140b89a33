"""Scale, shift, or both: the least-squares line between two sides, said only where every element is near it.

With d = left - right and r the residual of a fit, a line explains a difference when

* there is no mismatch of NaN or infinity, and rms(d) >= 1e-4 rms(right): below that rounding makes as much;
* rms(r) <= 0.01 rms(d): next to nothing of the difference is left;
* rms(r) <= 0.05 of the spread of what was fitted: left really follows right, element by element. Two noises, one of
  them 1000 higher, leave a small part of the distance, but all of the spread;
* |r| <= 0.1 |d| (beside the rounding of the element type) for 95 % of the elements: a few large ones do not speak for
  all; and where |r| > 0.02 |d|, |r| <= 8 rms(r) and |r| <= 0.1 rms(d): no element stands apart.

The first of scale, shift, both that holds within rounding is said; else the nearer of scale and shift; else both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import absolute_difference
from compare.onepass import difference as kernels

if TYPE_CHECKING:
    from compare.difference.measure import Measured
    from compare.difference.pair import Pair

_LEAST_DISTANCE = 1e-4
_OF_DISTANCE = 0.01
_OF_SPREAD = 0.05
_FAR_SHARE = 0.05
_STEPS = 2
_LEAST_FOR_ONE, _LEAST_FOR_BOTH = 3, 5
_EXACT = 2.0**53


@dataclass(frozen=True)
class _Moments:
    """Means and mean products of two sides, in a unit that keeps squares in range."""

    n: int
    left_mean: float
    right_mean: float
    left_spread: float
    right_spread: float
    covariance: float
    distance: float

    @property
    def left_square(self) -> float:
        return self.left_spread + self.left_mean**2

    @property
    def right_square(self) -> float:
        return self.right_spread + self.right_mean**2

    @property
    def product(self) -> float:
        return self.covariance + self.left_mean * self.right_mean


@dataclass(frozen=True)
class _Line:
    """left = factor * right + shift; or, with ``turned``, right = factor * left."""

    factor: float
    shift: float
    residual: float = 0.0
    turned: bool = False

    def text(self, near: str) -> str:
        """Says the line; ``near`` is how far elements are from it."""
        parts = [f"scaled by {self.factor:.6g}"] if self.factor != 1 else []
        parts += [f"shifted by {self.shift:.6g}"] if self.shift else []
        target, source = ("right", "left") if self.turned else ("left", "right")
        right = f"{self.factor:.6g} x {source}" if self.factor != 1 else source
        right += f" {'-' if self.shift < 0 else '+'} {abs(self.shift):.6g}" if self.shift else ""
        return f"{' and '.join(parts)} ({target} = {right}{near})"

    def rounded(self, steps: float) -> _Line | None:
        """Returns the line with short numbers in place of the fitted ones where those are within rounding of them."""
        factor, shift = _short(self.factor, steps), _short(self.shift, steps)
        if factor is None or shift is None:
            return None
        return _Line(factor, shift, self.residual, self.turned)


def _short(value: float, steps: float) -> float | None:
    for figures in (2, 4, 6):
        short = float(f"{value:.{figures}g}")
        if abs(value - short) <= max(1e-9, steps) * abs(value):
            return short
    return None


def fitted(pair: Pair, found: Measured) -> str:
    """Returns the scale or shift that explains the difference, empty if none does."""
    if pair.integers:
        shifted = _integer_shift(pair, found)
        if shifted or max(abs(side.low) + abs(side.high) for side in (found.left, found.right)) >= _EXACT:
            return shifted
    if found.mismatches or found.numbers < _LEAST_FOR_ONE or found.centre is None:
        return ""
    exponent = _unit(found)
    moments = _moments(pair, found, exponent)
    if not _usable(moments):
        return ""
    values = np.unique(pair.numbers(pair.b[pair.sample])).size
    lines = _lines(moments, exponent, pair.complex, values)
    near = [line for line in lines if line.residual <= 2 * _OF_DISTANCE * math.sqrt(moments.distance)]
    return _nearest(pair, found, near, moments, exponent)


def _nearest(pair: Pair, found: Measured, lines: list[_Line], moments: _Moments, exponent: int) -> str:
    holding: list[tuple[_Line, str]] = []
    for line in lines:
        # Short numbers are what is said; they are taken where they too hold within rounding.
        short = line.rounded(4 * found.epsilon)
        for one in (short, line) if short is not None else (line,):
            near = _near(pair, found, one, moments, exponent)
            if near == "":
                return one.text("")
            if near is not None and one is line:
                holding.append((line, near))
    # A mean far from zero lets scale and shift pass for each other: the nearer one is said, both only without them.
    simple = [item for item in holding if item[0].factor == 1 or not item[0].shift]
    if not holding:
        return ""
    line, near = min(simple or holding, key=lambda item: item[0].residual)
    return line.text(near)


def _integer_shift(pair: Pair, found: Measured) -> str:
    """Integers all apart by the same number, exactly."""
    if found.differing < _LEAST_FOR_ONE or found.differing < pair.size:
        return ""
    shift = int(pair.a[0:1].astype(object)[0]) - int(pair.b[0:1].astype(object)[0])
    for _, one, two in pair.blocks():
        if (absolute_difference(one, two) != abs(shift)).any() or ((one < two) if shift > 0 else (one > two)).any():
            return ""
    return f"shifted by {shift} (left = right {'-' if shift < 0 else '+'} {abs(shift)})"


def _unit(found: Measured) -> int:
    """Exponent of two to take out where squares leave the range of float64."""
    squares = found.moments[2:]
    largest = max(abs(value) for side in (found.left, found.right) for value in (side.low, side.high))
    safe = np.isfinite(squares).all() and 1e-140 < float(squares[3]) + largest * largest < 1e140
    return 0 if safe or not largest or math.isinf(largest) else max(math.frexp(largest)[1], -1022)


def _moments(pair: Pair, found: Measured, exponent: int) -> _Moments:
    sums, (centre_x, centre_y) = found.moments, found.centre or (0.0, 0.0)
    if exponent:
        scale = math.ldexp(1.0, -exponent)
        centre_x, centre_y, sums = centre_x * scale, centre_y * scale, np.zeros(6)
        for _, one, two in pair.blocks():
            x, y = pair.numbers(one), pair.numbers(two)
            keep = np.isfinite(x) & np.isfinite(y)
            kernels.moment_scan(x[keep], y[keep], centre_x, centre_y, scale, sums)
    n = found.numbers
    u, v, uu, vv, uv, dd = (float(value) / n for value in sums)
    return _Moments(n, centre_x + u, centre_y + v, max(0.0, uu - u * u), max(0.0, vv - v * v), uv - u * v, dd)


def _usable(moments: _Moments) -> bool:
    squares = (moments.left_square, moments.right_square, moments.distance, moments.product)
    return (
        all(math.isfinite(value) for value in squares)
        and min(moments.left_spread, moments.right_spread) > 0
        and math.sqrt(moments.distance) >= _LEAST_DISTANCE * math.sqrt(moments.right_square)
    )


def _lines(moments: _Moments, exponent: int, parts: bool, values: int) -> list[_Line]:
    """The three hypotheses in their order.

    The parts of complex numbers have no common shift, and scale with shift fits any two distinct values to any others:
    ``values`` of the reference, at least, are to be different.
    """
    lines = [_scale(moments)]
    if not parts:
        lines.append(_shift(moments, exponent))
        if values >= _LEAST_FOR_BOTH:
            lines.append(_both(moments, exponent))
    return lines


def _scale(moments: _Moments) -> _Line:
    m = moments
    factor = m.product / m.left_square
    if abs(factor) >= 1:
        return _Line(factor, 0.0, math.sqrt(max(0.0, m.right_square - factor * m.product)), turned=True)
    factor = m.product / m.right_square
    return _Line(factor, 0.0, math.sqrt(max(0.0, m.left_square - factor * m.product)))


def _shift(moments: _Moments, exponent: int) -> _Line:
    rest = max(0.0, moments.left_spread + moments.right_spread - 2 * moments.covariance)
    return _Line(1.0, math.ldexp(moments.left_mean - moments.right_mean, exponent), math.sqrt(rest))


def _both(moments: _Moments, exponent: int) -> _Line:
    m = moments
    factor = m.covariance / m.right_spread
    shift = math.ldexp(m.left_mean - factor * m.right_mean, exponent)
    return _Line(factor, shift, math.sqrt(max(0.0, m.left_spread - factor * m.covariance)))


def _near(pair: Pair, found: Measured, line: _Line, moments: _Moments, exponent: int) -> str | None:
    """Measures the residual of all elements: None if the line does not hold, else what to say of its residual."""
    result, scale = np.zeros(5), math.ldexp(1.0, -exponent)
    for _, one, two in pair.blocks():
        x, y = pair.numbers(one) * scale, pair.numbers(two) * scale
        if line.turned:
            x, y = y, x
        kernels.residual_scan(x, y, line.factor, line.shift * scale, _STEPS * found.epsilon, result)
    distance = math.sqrt(moments.distance)
    residual = math.sqrt(result[0] / moments.n)
    spread = math.sqrt(moments.right_spread if line.turned else moments.left_spread)
    if not (residual <= _OF_DISTANCE * distance and residual <= _OF_SPREAD * spread):
        return None
    apart = min(8 * residual, 0.1 * distance)
    if result[2] > _FAR_SHARE * moments.n or result[4] > apart:
        return None
    return f", within {math.ldexp(result[1], exponent):.2g}" if result[3] else ""

"""What rounding may explain: a-priori error bounds of sums, products and elementary functions.

Two tools. :func:`sum_error` bounds an accumulation of many terms in any order a device may choose; :class:`Bounded`
carries a value with its error through a short formula (running error analysis: N. J. Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., SIAM 2002, section 3.3). Worst cases like ``K u sum|t|`` would hide faults as small as
inputs rounded to bfloat16, so accumulations use the probabilistic bound described at :func:`sum_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Real: TypeAlias = NDArray[np.float64]

RATIO_LIMIT = 2.0
"""An op whose error/bound ratio is above this is not explained by rounding. Honest runs stay at or below 1 (tests run
200 re-orderings per family); the factor 2 is room for devices that were never measured."""

FAILURE_PROBABILITY = 1e-9
"""Chance that an honest tensor exceeds an accumulation bound, under the model of :func:`sum_error`."""

ROUNDING_SPREAD = 0.5
"""Standard deviation of one relative rounding error in units of u. A rounding error is uniform over half a unit in the
last place; over logarithmically distributed significands that gives ``u sqrt(0.541 / 3) = 0.425 u``. Rounded up."""

LIBM_ULPS = 4.0
"""How far an elementary function (exp, log ...) of any mathematical library may be off, in units in the last place."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        u: Unit roundoff, half the distance from 1 to the next number.
        smallest: Smallest positive subnormal.
        normal: Smallest positive normal number.
        largest: Largest finite number.
    """

    name: str
    u: float
    smallest: float
    normal: float
    largest: float


FORMATS: dict[str, Format] = {
    "float64": Format("float64", 2.0**-53, 5e-324, 2.0**-1022, float(np.finfo(np.float64).max)),
    "float32": Format("float32", 2.0**-24, 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)),
    "float16": Format("float16", 2.0**-11, 2.0**-24, 2.0**-14, 65504.0),
    "bfloat16": Format("bfloat16", 2.0**-8, 2.0**-133, 2.0**-126, float.fromhex("0x1.fep127")),
}
"""Formats an op's float output may have; anything else (complex, float8) is not replayed."""


def rounding(value: Real, form: Format) -> Real:
    """Bounds one correct rounding of ``value``: ``u |value|``, at least half the smallest subnormal."""
    return np.maximum(form.u * np.abs(value), form.smallest / 2)


def confidence(elements: int) -> float:
    """Factor lambda such that none of ``elements`` sub-Gaussian errors exceeds lambda standard deviations.

    From ``P(|e| > lambda sigma) <= 2 exp(-lambda^2 / 2)`` (Hoeffding) and a union bound over the elements, with
    :data:`FAILURE_PROBABILITY` for the whole tensor: 6.5 for one element, 8.4 for a million.
    """
    return math.sqrt(2.0 * math.log(2.0 * max(elements, 1) / FAILURE_PROBABILITY))


@dataclass(frozen=True)
class Accumulation:
    """What :func:`sum_error` must know of ``K`` terms ``t`` per output element; arrays have the output's shape.

    Attributes:
        count: Number of terms that are not zero; adding a zero rounds nothing.
        magnitude: ``sum |t|``.
        squares: ``sum t^2``.
        total: ``sum t``.
        walk: ``sum_i s_i^2`` over the partial sums s_i in the order of the data and in its reverse (the larger).
        products: Whether the terms themselves were rounded once before they were added.
        uniform: Where the terms have too few different values for their rounding errors to be independent.
    """

    count: Real
    magnitude: Real
    squares: Real
    total: Real
    walk: Real
    products: bool
    uniform: NDArray[np.bool_]


def sum_error(terms: Accumulation, u: float) -> Real:
    """Bounds the error of a sum of K terms accumulated with unit roundoff ``u`` in any data-independent order.

    Every addition makes the error ``delta_i s_i``, s_i the partial sum after it. For independent delta_i of mean zero
    and spread ``c u`` the sum of them has the spread ``c u sqrt(sum s_i^2)``, and (N. J. Higham, T. Mary, A New
    Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41 (2019); their Theorem 2.4 with s_i kept
    instead of bounded by sum|t|) with the factor lambda of :func:`confidence`

        ``|error| <= lambda c u sqrt(W)``,  ``W = max(walk, K/3 s^2 + K/6 sum t^2)  (+ sum t^2 for rounded products)``.

    The second value is the mean of ``sum s_i^2`` over random permutations: s_i has mean ``i/K s`` and variance
    ``i (K-i) / K^2 sum t^2`` at most. ``walk`` covers orders with structure (sorted batches). Blocked, lane-wise and
    pairwise orders have smaller partial sums, fused multiply-add rounds less. Keeping s_i is what makes the bound
    sqrt(K) tighter than ``lambda sqrt(K) u sum|t|`` for terms of mixed sign.

    The deterministic ``K u sum|t|`` (``K-1`` without products) is used where it is smaller (few terms) and where
    errors repeat themselves because the terms do (``uniform``).
    """
    additions = np.maximum(terms.count - 1.0, 0.0)
    worst = (additions + (1.0 if terms.products else 0.0)) * u * terms.magnitude * (1.0 + u * terms.count)
    shuffled = terms.count / 3.0 * terms.total**2 + terms.count / 6.0 * terms.squares
    variance = np.maximum(terms.walk, shuffled) + (terms.squares if terms.products else 0.0)
    likely = confidence(terms.total.size) * ROUNDING_SPREAD * u * np.sqrt(variance)
    result: Real = np.where(terms.uniform, worst, np.minimum(worst, likely))
    return result


def few_values(values: Array) -> bool:
    """Whether a tensor has too few different magnitudes for rounding errors in sums of it to be independent."""
    flat = np.abs(values.reshape(-1))
    sample = flat[:: max(1, flat.size // 4096)]
    return bool(np.unique(sample[sample != 0]).size < 32)


def accumulation(terms: Real, *, products: bool = False) -> Accumulation:
    """Describes sums over the last axis of ``terms``."""
    count = np.count_nonzero(terms, axis=-1).astype(np.float64)
    size = np.abs(terms)
    partial = np.cumsum(terms, axis=-1)
    total = partial[..., -1] if terms.shape[-1] else np.zeros(terms.shape[:-1])
    backward = total[..., None] - partial
    walk = np.maximum(np.sum(partial**2, axis=-1), np.sum(backward**2, axis=-1))
    high = size.max(axis=-1, initial=0.0)
    low = np.where(size > 0, size, np.inf).min(axis=-1, initial=np.inf)
    uniform = np.logical_or(high <= low * (1 + 1e-6), few_values(terms))
    return Accumulation(
        count, size.sum(axis=-1), np.sum(terms**2, axis=-1), np.asarray(total), walk, products, np.asarray(uniform)
    )


@dataclass(frozen=True)
class Bounded:
    """A float64 value and a bound on the error with which a device may hold it.

    Every operation adds its own rounding: ``ulps`` units ``u`` of the result. 2 (one unit in the last place) in
    float32 leaves room for other roundings and contractions; 1 in 16-bit formats, where conversions are exact.

    Attributes:
        u: Unit roundoff of the arithmetic.
        ulps: Roundings counted per basic operation.
    """

    value: Real
    error: Real
    u: float
    ulps: float = 2.0

    __array_ufunc__ = None  # numpy scalars and arrays leave arithmetic with us to the methods below

    def __add__(self, other: Operand) -> Bounded:
        b = self._lift(other)
        return self._made(self.value + b.value, self.error + b.error)

    def __sub__(self, other: Operand) -> Bounded:
        return self + (-self._lift(other))

    def __mul__(self, other: Operand) -> Bounded:
        b = self._lift(other)
        spread = np.abs(self.value) * b.error + np.abs(b.value) * self.error + self.error * b.error
        return self._made(self.value * b.value, spread + _underflow(self.u))

    def __truediv__(self, other: Operand) -> Bounded:
        b = self._lift(other)
        value = self.value / b.value
        room = np.abs(b.value) - b.error
        spread = np.where(room > 0, (self.error + np.abs(value) * b.error) / np.where(room > 0, room, 1.0), np.inf)
        return self._made(value, spread + _underflow(self.u), 2.0)

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.error, self.u, self.ulps)

    def __radd__(self, other: Operand) -> Bounded:
        return self + other

    def __rmul__(self, other: Operand) -> Bounded:
        return self * other

    def __rsub__(self, other: Operand) -> Bounded:
        return self._lift(other) - self

    def __rtruediv__(self, other: Operand) -> Bounded:
        return self._lift(other) / self

    def widened(self, ulps: float) -> Bounded:
        """The same with ``ulps`` units in the last place more error."""
        return Bounded(self.value, self.error + 2.0 * ulps * self.u * np.abs(self.value), self.u, self.ulps)

    def function(self, value: Real, slope: Real, ulps: float = LIBM_ULPS) -> Bounded:
        """A function of this: its value, and how much it can change over the error (``slope`` bounds |f'| there)."""
        spread = np.where(self.error > 0, slope * self.error, 0.0)
        return Bounded(value, spread + 2.0 * ulps * self.u * np.abs(value), self.u, self.ulps)

    def _lift(self, other: Operand) -> Bounded:
        if isinstance(other, Bounded):
            return other
        value = np.asarray(other, dtype=np.float64)
        return Bounded(value, np.zeros_like(value), self.u, self.ulps)

    def _made(self, value: Real, spread: Real, factor: float = 1.0) -> Bounded:
        return Bounded(value, spread + factor * self.ulps * self.u * np.abs(value), self.u, self.ulps)


def _underflow(u: float) -> float:
    """Absolute error of a product or quotient that falls among the subnormals: half the smallest of them."""
    return next((form.smallest / 2 for form in FORMATS.values() if form.u == u), 0.0)


Operand: TypeAlias = Bounded | Array | float

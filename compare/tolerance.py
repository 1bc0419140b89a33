"""The smallest tolerance with which an output would pass: absolute alone, and relative alone.

As ``allclose`` has it, an element passes with ``|left - right| <= atol + rtol * |right|``. With rtol = 0 the smallest
atol is the greatest difference; with atol = 0 the smallest rtol is the greatest ``|left - right| / |right|``, which
does not exist where an element differs whose reference is zero. A reference of at most 2.2e-16 counts as zero, as in
all relative figures. Complex numbers are taken part by part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from compare.figures import Figures

_EPS: Final = 2.220446049250313e-16


@dataclass(frozen=True)
class Tolerance:
    """What would let an output pass.

    Attributes:
        atol: Smallest absolute tolerance with rtol = 0; None if none does.
        rtol: Smallest relative tolerance with atol = 0; None if none does.
        atol_reason, rtol_reason: Why there is none.
    """

    atol: float | None = None
    rtol: float | None = None
    atol_reason: str = ""
    rtol_reason: str = ""

    @property
    def text(self) -> str:
        """Why a tolerance is missing, for a message; empty if both exist or the reason is the row's own."""
        reasons = {"atol": self.atol_reason, "rtol": self.rtol_reason}
        if self.atol_reason == self.rtol_reason:
            return ""
        return "; ".join(f"no {name}: {reason}" for name, reason in reasons.items() if reason)


def required_tolerance(figures: Figures) -> Tolerance:
    """Returns the tolerances that a comparison needs, never smaller than what the data need."""
    if figures.differing is None:
        reason = figures.estimated or next(iter(figures.reasons.values()), "not comparable")
        return Tolerance(None, None, reason, reason)
    if figures.differing == 0:
        return Tolerance(0.0, 0.0)
    if figures.details is not None:
        exact, why = figures.details.tolerance, figures.details.reasons
        whole = why.get("tolerance", "")
        return Tolerance(exact.atol, exact.rtol, why.get("tolerance.atol", whole), why.get("tolerance.rtol", whole))
    if figures.non_finite_mismatches:
        reason = f"{figures.non_finite_mismatches} elements are not finite on one side: no tolerance passes"
        return Tolerance(None, None, reason, reason)
    atol, atol_reason = _absolute(figures)
    rtol, rtol_reason = _relative(figures)
    return Tolerance(atol, rtol, atol_reason, rtol_reason)


def _absolute(figures: Figures) -> tuple[float | None, str]:
    if figures.max_abs_exact is not None:
        value = float(figures.max_abs_exact)
        return (value if value >= figures.max_abs_exact else math.nextafter(value, math.inf)), ""
    return figures.max_abs_error, figures.reasons.get("MaxAbsoluteError", "")


def _relative(figures: Figures) -> tuple[float | None, str]:
    value, at_zero = figures.max_relative_error, figures.differing_at_zero
    if at_zero:
        return None, f"{at_zero} elements differ where the reference is zero: no relative tolerance passes"
    if value is None:
        return None, figures.reasons.get("MaxRelativeError", "undefined")
    if at_zero is None:
        return None, "not known whether elements differ where the reference is zero"
    # max_relative_error is |left/right - 1|: the quotient is rounded once, and so is the difference.
    return value + (1 + value) * _EPS, ""


def rounded_up(value: float | None, digits: int = 3) -> float | None:
    """Returns the next number of so many significant digits that is not below a tolerance, so that it still passes."""
    if value is None or value == 0 or not math.isfinite(value):
        return value
    text = f"{value:.{digits - 1}e}"
    rounded = float(text)
    if rounded < value:
        unit = 10.0 ** (int(text.split("e")[1]) - digits + 1)
        rounded = float(f"{rounded + unit:.{digits - 1}e}")
    return rounded

"""Which explanation is said: the first that holds for all elements, the more particular ones before the looser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.difference.elementwise import elementwise
from compare.difference.fit import fitted
from compare.difference.places import reordered, rolled, shuffled, swapped
from compare.difference.region import Region, find_region, region_text
from compare.difference.rows import rearranged

if TYPE_CHECKING:
    from compare.difference.measure import Measured, Side
    from compare.difference.pair import Pair

_ROUNDING_ULP = 2
"""Elements that are no further apart are not told as a region: that is rounding, and it may be anywhere."""


def explain(pair: Pair, found: Measured) -> tuple[str, list[str]]:
    """Returns the explanation of a numeric pair that differs, empty if there is none; and what was not looked for."""
    text = _constant(pair, found) or elementwise(pair, found)
    if text:
        return text, []
    if found.multiset[0] == found.multiset[1]:
        text, skipped = _permuted(pair, found)
    else:
        text, skipped = _changed(pair, found)
    return text, skipped


def explain_verbatim(pair: Pair) -> tuple[str, Region]:
    """Returns where text or raw data differ."""
    region = find_region(pair)
    return region_text(pair, region), region


def _constant(pair: Pair, found: Measured) -> str:
    """One value everywhere on a side; but for zero and NaN, only where most elements differ from it."""
    if pair.size < 2 or pair.complex:
        return _complex_zero(found) if pair.complex else ""
    left, right = found.left, found.right
    most = 2 * found.differing > pair.size
    if left.constant and right.constant:
        return f"both constant: left {_value(left)}, right {_value(right)}"
    for name, side in (("left", left), ("right", right)):
        if side.nan == pair.size:
            return f"{name} all NaN"
        if side.constant and side.low == 0:
            return f"{name} all zero"
        if side.constant and most:
            return f"{name} constant ({_value(side)} everywhere)"
    return ""


def _complex_zero(found: Measured) -> str:
    zero = [name for name, s in (("left", found.left), ("right", found.right)) if s.constant and s.low == 0]
    return f"{zero[0]} all zero" if len(zero) == 1 else ""


def _value(side: Side) -> str:
    return f"{side.low + 0.0:.6g}"


def _permuted(pair: Pair, found: Measured) -> tuple[str, list[str]]:
    text = swapped(pair, found) or reordered(pair)
    if text:
        return text, []
    text, skipped = rearranged(pair, found.first, permuted=True)
    text = text or rolled(pair, found, cyclic=True)
    if text:
        return text, skipped
    text, more = shuffled(pair)
    return text, skipped + more


def _changed(pair: Pair, found: Measured) -> tuple[str, list[str]]:
    region = find_region(pair) if 2 * found.differing <= pair.size else None
    if region is not None and region.filling:
        text = region_text(pair, region)
        if text:
            return text, []
    text, skipped = rearranged(pair, found.first, permuted=False)
    text = text or fitted(pair, found) or rolled(pair, found, cyclic=False)
    if text or region is None or not _worth_telling(found):
        return text, skipped
    return region_text(pair, region), skipped


def _worth_telling(found: Measured) -> bool:
    return bool(found.mismatches) or found.max_ulp is None or found.max_ulp > _ROUNDING_ULP

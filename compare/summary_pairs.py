"""Pairs of which one side at least has no values but a summary or statistics: what can be said without tensors.

A whole tensor is summarised by the capture's own function and held against the other side's summary. What is found:

* Equal, where hashes say so (``EQUAL_BY_HASH``) or where both sides are zero. A tensor of one element has all figures.
* Estimates from two sketches: cosine, relative distance, root mean square error. ``Figures.estimated`` says so, and
  with it the row's CompareFailReason; every other column is undefined.
* NaN and infinities that the counts of one side have alone; a pair with such is suspicious at any threshold.
* Of statistics alone no figure follows. Such a row is not judged; its reason has what differs, and the distance that
  the two norms imply at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compare.figures import BOTH_ZERO, COLUMNS, EQUAL_BY_HASH, FIELDS, LEFT_ZERO, RIGHT_ZERO, Figures, shape_text
from compare.outcomes import row_of
from dumpers.dtypes import numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.relayout import original
from dumpers.formats.summary import Summary, summary_of

if TYPE_CHECKING:
    from compare.pairs import Pair
    from compare.table import ComparisonRow
    from dumpers.records import RecordedStatistics, TensorRecord

_SKETCH_ERROR: Final = "the distance is right within about 13 % (one standard deviation)"
_ALIKE: Final = 1e-9
"""Relative difference of two statistics that is not told: sums in other orders, or printed digits."""

_TOLD: Final = ("min", "max", "mean", "l1", "l2", "zero_share")


@dataclass(frozen=True)
class _Known:
    """What is known of one side.

    Attributes:
        dtype, shape: None for a shape that the file does not tell.
        statistics: Its figures.
        summary: None for figures of other programs, which may be rounded.
    """

    dtype: str
    shape: tuple[int, ...] | None
    statistics: RecordedStatistics
    summary: Summary | None

    @property
    def count(self) -> int | None:
        """Number of elements."""
        if self.statistics.count is None and self.shape is not None:
            return math.prod(self.shape)
        return self.statistics.count


def has_summaries(pair: Pair) -> bool:
    """Tells whether a pair without values on a side can be compared by what is kept of it."""
    sides = (pair.left, pair.right)
    return any(record.source is None for record in sides) and all(
        record.source is not None or record.statistics is not None for record in sides
    )


def compare_summaries(pair: Pair) -> ComparisonRow:
    """Compares such a pair.

    Raises:
        DataError: the file of a whole side is damaged.
    """
    if pair.steps:
        reason = f"no value: {_kept(pair)}; {pair.steps[0].why}, which a summary does not allow"
        return row_of(pair, shape=pair.left.shape, reason=reason)
    (left, note), (right, other) = _known(pair.left, pair.right), _known(pair.right, pair.left)
    notes = [text for text in (note, other) if text]
    if left.count != right.count and None not in (left.count, right.count):
        shapes = " against ".join("?" if side.shape is None else shape_text(side.shape) for side in (left, right))
        reason = f"shapes differ: {shapes} ({left.count} against {right.count} elements)"
        return row_of(pair, shape=left.shape, reason=reason, note="; ".join(notes))
    found = _figures(left, right)
    if isinstance(found, str):
        return row_of(pair, shape=left.shape, reason=f"no value: {_kept(pair)}; {found}", note="; ".join(notes))
    return row_of(pair, shape=left.shape, figures=found, note="; ".join(notes))


def _kept(pair: Pair) -> str:
    """What a pair has instead of values, for a reason."""
    notes = [record.note.removeprefix("no value: ") for record in (pair.left, pair.right) if record.source is None]
    return " against ".join(dict.fromkeys(notes)) or "statistics only"


def _known(record: TensorRecord, partner: TensorRecord) -> tuple[_Known, str]:
    """Returns what is known of a side; a whole tensor is summarised as its partner was."""
    if record.source is None:
        if record.statistics is None:
            raise DataError(f"{record.name} has neither values nor statistics")
        return _Known(record.dtype, record.shape, record.statistics, record.summary), ""
    array, note = original(record)
    mode = partner.summary.mode if partner.summary is not None else "stats"
    try:
        summary = summary_of(array, record.dtype, mode)
    except ValueError as error:
        raise DataError(f"{record.path}: {error}") from error
    return _Known(summary.dtype, summary.shape, summary.statistics, summary), note


def _figures(left: _Known, right: _Known) -> Figures | str:
    """Returns figures, or why there are none."""
    if left.summary is not None and right.summary is not None:
        found = _of_summaries(left, right, left.summary, right.summary)
        if found is not None:
            return found
    return _of_statistics(left, right)


# ------------------------------------------------------------------------------------------------- hashes, sketches


def _of_summaries(left: _Known, right: _Known, one: Summary, two: Summary) -> Figures | str | None:
    """What two summaries of our own tell; None if nothing beyond their statistics."""
    if one.count == 1 and (single := _of_one_element(one, two)) is not None:
        return single
    if _all_zero(one) and _all_zero(two):
        return Figures(
            **_heading(left, right), differing=0, finite=one.count, reasons=dict.fromkeys(COLUMNS, BOTH_ZERO)
        )
    same_elements = bool(one.order_free) and one.dtype == two.dtype and one.order_free == two.order_free
    if one.positional and two.positional:
        return _of_hashes(left, right, one, two, same_elements=same_elements)
    if one.projection is not None and two.projection is not None:
        if same_elements and one.projection == two.projection:
            return _equal(left, right, f"{EQUAL_BY_HASH} of the elements in any order, and by projection")
        return _estimated(left, right, one, two, same_elements=same_elements)
    if one.order_free and two.order_free and one.dtype == two.dtype:
        if not same_elements:
            return _different(left, right, "hashes differ; by how much is not known")
        return "the same elements by hash, in any order"
    return None if {one.mode, two.mode} != {"hash", "stats"} else "a hash and statistics have nothing in common"


def _of_hashes(left: _Known, right: _Known, one: Summary, two: Summary, *, same_elements: bool) -> Figures | str:
    if one.dtype != two.dtype:
        return f"hashes of {one.dtype} and {two.dtype} cannot be held against each other"
    if one.positional == two.positional:
        return _equal(left, right, EQUAL_BY_HASH)
    if same_elements:
        where = "in another order" if one.shape == two.shape else "in other shapes"
        return _different(left, right, f"hashes differ; the same elements {where}")
    return _different(left, right, "hashes differ; by how much is not known")


def _of_one_element(one: Summary, two: Summary) -> Figures | None:
    """The minimum of one element is the element, so that a loss has all its figures."""
    from compare.metrics import compare_arrays

    if one.statistics.min is None or two.statistics.min is None or "complex" in one.dtype + two.dtype:
        return None
    try:
        ends = [np.array(s.statistics.min).astype(numpy_dtype(s.dtype)).reshape(s.shape) for s in (one, two)]
    except ValueError:
        return None
    return compare_arrays(ends[0], ends[1]) if one.shape == two.shape else None


def _all_zero(side: Summary) -> bool:
    return side.count > 0 and bool(side.statistics.finite) and side.statistics.min == side.statistics.max == 0


def _estimated(left: _Known, right: _Known, one: Summary, two: Summary, *, same_elements: bool) -> Figures | None:
    """Figures from two projections: |P x - P y| estimates |x - y|, and with both norms the cosine."""
    x, y = one.statistics.l2, two.statistics.l2
    if x is None or y is None or one.projection is None or two.projection is None:
        return None
    distance = math.dist(one.projection, two.projection)
    distance = min(max(distance, abs(x - y)), x + y)  # what the norms, which are exact, allow
    width = 2 if one.dtype.startswith("complex") else 1
    figures = {
        "CosineSimilarity": _cosine(x, y, distance) if one.count > 1 else None,
        "RelativeEuclideanDistance": distance / y if y else None,
        "RootMeanSquareError": distance / math.sqrt(width * one.count),
    }
    reasons = dict.fromkeys(COLUMNS, "not in a sketch")
    reasons["CosineSimilarity"] = "scalar" if one.count == 1 else RIGHT_ZERO if y == 0 else LEFT_ZERO
    reasons["RelativeEuclideanDistance"] = RIGHT_ZERO
    known = [name for name, value in figures.items() if value is not None and math.isfinite(value)]
    for name in known:
        reasons.pop(name)
    text = f"estimated from sketches: {' '.join(known)} ({_SKETCH_ERROR})"
    text += "; the same elements in another order" if same_elements else ""
    fields = {FIELDS[name]: figures[name] for name in known}
    return _different(left, right, text, reasons=reasons, finite=_finite(one, two), figures=fields)


def _cosine(x: float, y: float, distance: float) -> float | None:
    """The cosine of two vectors of known norms and distance; their scale is taken out, so that no square overflows."""
    scale = max(x, y)
    if not x or not y:
        return None
    x, y, distance = x / scale, y / scale, distance / scale
    return min(1.0, max(-1.0, (x * x + y * y - distance * distance) / (2 * x * y))) if x * y else None


def _finite(one: Summary, two: Summary) -> int:
    bad = [(s.statistics.nan or 0) + (s.statistics.pos_inf or 0) + (s.statistics.neg_inf or 0) for s in (one, two)]
    return one.count - max(bad)


# --------------------------------------------------------------------------------------------------------- statistics


def _of_statistics(left: _Known, right: _Known) -> Figures | str:
    if _mismatches(left.statistics, right.statistics):
        return _different(left, right, "from statistics, which elements is not known", reasons=None)
    return _statistics_text(left.statistics, right.statistics)


def _mismatches(left: RecordedStatistics, right: RecordedStatistics) -> int:
    """Elements that are not finite on one side only, or otherwise so there: at least so many."""
    pairs = ((left.nan, right.nan), (left.pos_inf, right.pos_inf), (left.neg_inf, right.neg_inf))
    return max(abs(x - y) if x is not None and y is not None else 0 for x, y in pairs)


def _statistics_text(left: RecordedStatistics, right: RecordedStatistics) -> str:
    """What differs in two sets of statistics, in one line."""
    told, agree = [], []
    for name in _TOLD:
        x, y = getattr(left, name), getattr(right, name)
        if x is None or y is None:
            continue
        if _alike(x, y):
            agree.append(name)
        else:
            told.append(f"{name} {x:.6g} against {y:.6g}")
    if not told:
        return f"{', '.join(agree)} agree, which proves nothing" if agree else "no figure that both have"
    if left.l2 is not None and right.l2:
        told.append(f"relative distance at least {abs(left.l2 - right.l2) / right.l2:.3g}")
    return ", ".join(told)


def _alike(x: float, y: float) -> bool:
    return x == y or (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=_ALIKE, abs_tol=0)


# ------------------------------------------------------------------------------------------------------------ figures


def _heading(left: _Known, right: _Known) -> dict[str, Any]:
    """Fields of Figures that both sides tell; counts of NaN as far as they are known."""
    shape = left.shape if left.shape is not None else right.shape or ()
    known = {"left": left.statistics, "right": right.statistics}
    counts: dict[str, Any] = {f"nan_{side}": found.nan or 0 for side, found in known.items()}
    counts |= {f"inf_{side}": (found.pos_inf or 0) + (found.neg_inf or 0) for side, found in known.items()}
    return {
        "left_shape": shape,
        "right_shape": right.shape if right.shape is not None else shape,
        "left_dtype": left.dtype,
        "right_dtype": right.dtype,
        "elements": left.count or 0,
        **counts,
    }


def _equal(left: _Known, right: _Known, reason: str) -> Figures:
    return Figures(**_heading(left, right), differing=0, reasons=dict.fromkeys(COLUMNS, reason))


def _different(
    left: _Known,
    right: _Known,
    text: str,
    *,
    reasons: dict[str, str] | None = None,
    finite: int = 0,
    figures: dict[str, Any] | None = None,
) -> Figures:
    """Returns figures of a pair that differs in an unknown number of elements."""
    return Figures(
        **_heading(left, right),
        finite=finite,
        non_finite_mismatches=_mismatches(left.statistics, right.statistics),
        reasons=dict.fromkeys(COLUMNS, text) if reasons is None else reasons,
        estimated=text,
        **(figures or {}),
    )

"""What the tensor debug modes of Debugger V2 put into a trace: values, counts, shapes or nothing.

Layout of the vectors (float64), as TensorFlow documents them with ``DebugNumericSummaryV2``; the first number is always
the debugger's own tensor id. ``FULL_HEALTH`` has the rank in front of the count, which that text leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from dumpers.errors import DataError
from dumpers.formats.raw import element_count
from dumpers.formats.tf_tensor import value_dtype
from dumpers.records import RecordedStatistics

MODES: Final = MappingProxyType(
    {
        0: "UNSPECIFIED",
        1: "NO_TENSOR",
        2: "CURT_HEALTH",
        3: "CONCISE_HEALTH",
        4: "FULL_HEALTH",
        5: "SHAPE",
        6: "FULL_NUMERICS",
        7: "FULL_TENSOR",
        8: "REDUCE_INF_NAN_THREE_SLOTS",
    }
)
FULL_TENSOR: Final = 7
_SHAPE_SLOTS: Final = 6


class Summary(NamedTuple):
    """What a trace tells instead of the values."""

    dtype: str = "undefined"
    shape: tuple[int, ...] | None = None
    statistics: RecordedStatistics | None = None
    note: str = ""


def mode_name(mode: int) -> str:
    """Returns the name of a tensor debug mode."""
    return MODES.get(mode, f"mode {mode}")


def summary_of(mode: int, values: Sequence[float]) -> Summary:
    """Decodes the numbers of a trace.

    Args:
        mode: Tensor debug mode.
        values: The numbers, none if the mode wrote none for this tensor.

    Raises:
        DataError: they are not what the mode writes.
    """
    note = f"statistics only ({mode_name(mode)})"
    if not values:
        reason = "only that it ran" if mode == 1 else "nothing for a tensor of this type"
        return Summary(note=f"no value: {mode_name(mode)} records {reason}")
    reader = {2: _curt, 3: _concise, 4: _full, 5: _shape, 8: _three}.get(mode)
    if reader is None:
        return Summary(note=f"no value: {mode_name(mode)} is not decoded")
    length = {2: 2, 3: 5, 4: 11, 5: 10, 8: 3}[mode]
    if len(values) != length:
        raise DataError(f"{len(values)} numbers for {mode_name(mode)}, which has {length}")
    found = reader(values)
    return found._replace(note="; ".join(filter(None, (note, found.note))))


def _curt(values: Sequence[float]) -> Summary:
    if values[1] == 0:
        return Summary(statistics=RecordedStatistics(nan=0, pos_inf=0, neg_inf=0))
    return Summary(statistics=RecordedStatistics(), note="holds NaN or infinity")


def _concise(values: Sequence[float]) -> Summary:
    count, low, high, nan = map(_whole, values[1:])
    return Summary(statistics=RecordedStatistics(count=count, nan=nan, pos_inf=high, neg_inf=low))


def _full(values: Sequence[float]) -> Summary:
    number, rank, count, low, high, nan, *finite = map(_whole, values[2:])
    if sum((low, high, nan, *finite)) != count:
        raise DataError(f"counts of FULL_HEALTH do not add up to {count}")
    shape = {0: (), 1: (count,)}.get(rank)
    statistics = RecordedStatistics(count=count, nan=nan, pos_inf=high, neg_inf=low)
    signs = f"{finite[0]} negative, {finite[1]} zero, {finite[2]} positive"
    return Summary(value_dtype(number), shape, statistics, signs if shape is not None else f"rank {rank}, {signs}")


def _shape(values: Sequence[float]) -> Summary:
    number, rank, count, *slots = map(_whole, values[1:])
    statistics = RecordedStatistics(count=count)
    if rank > _SHAPE_SLOTS:
        return Summary(value_dtype(number), None, statistics, f"rank {rank}, last dimensions {tuple(slots)}")
    shape = tuple(slots[:rank])
    if element_count(shape) != count:
        raise DataError(f"shape {shape} has not the {count} elements that SHAPE tells")
    return Summary(value_dtype(number), shape, statistics)


def _three(values: Sequence[float]) -> Summary:
    """Each slot is 0, or what it looks for: -inf, inf, NaN."""
    low, high, nan = (None if value else 0 for value in (values[0], values[1], values[2]))
    held = [name for name, count in (("-inf", low), ("inf", high), ("NaN", nan)) if count is None]
    statistics = RecordedStatistics(nan=nan, pos_inf=high, neg_inf=low)
    return Summary(statistics=statistics, note=f"holds {', '.join(held)}" if held else "")


def _whole(value: float) -> int:
    if not math.isfinite(value) or value != int(value) or not 0 <= value < 1 << 63:
        raise DataError(f"{value} where a count should be")
    return int(value)

"""Figures that a file states, shown where a tensor has no values."""

from __future__ import annotations

from dumpers.records import RecordedStatistics, TensorRecord
from precision_tool.tensor_text import record_data, record_line


def record(**figures: float) -> TensorRecord:
    statistics = RecordedStatistics(**figures)
    return TensorRecord("a", "", "output", 0, "float16", (2, 2), None, note="statistics only", statistics=statistics)


def test_line_from_recorded_figures():
    full = record(count=4, nan=1, pos_inf=2, neg_inf=0, min=-1, max=7, mean=4)
    assert record_line(full) == (
        "[Shape: (2, 2)] [Dtype: float16] [Max: 7] [Min: -1] [Mean: 4] [NaN: 1] [Inf: 2] [statistics only]"
    )
    data = record_data(full)
    assert (data["nan"], data["inf"], data["max"], data["reason"]) == (1, 2, 7, "statistics only")


def test_figures_that_are_not_there():
    assert record_line(record(count=3)) == (
        "[Shape: (2, 2)] [Dtype: float16] [Max: -] [Min: -] [Mean: -] [statistics only]"
    )
    assert record_data(record(count=3))["inf"] is None

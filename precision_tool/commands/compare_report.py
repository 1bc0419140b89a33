"""A comparison of two dumps as tables, notes and JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_tool.result import Block, Table

if TYPE_CHECKING:
    from compare.limits import Limits
    from compare.table import Comparison, ComparisonRow
    from dumpers.records import Dump

SHOWN = 10
"""Rows shown by themselves: those below the threshold, else the worst ones."""

COLUMNS = (
    *("Index", "OpType", "Op", "GroundTruth", "Tensor", "Shape", "CosineSimilarity", "MaxAbsoluteError"),
    *("RelativeEuclideanDistance", "Differing", "RequiredAtol", "RequiredRtol", "Reason"),
)


def over_limits(comparison: Comparison, limits: Limits) -> tuple[ComparisonRow, ...]:
    """Returns the outputs that break a limit, in order of execution."""
    return tuple(row for row in comparison.rows if row.io == "output" and limits.broken(row))


def report_tables(comparison: Comparison, limits: Limits) -> list[Block]:
    """Returns the outputs over a limit (else those that differ most), and all rows for a front that can scroll."""
    from compare.limits import COSINE

    below = over_limits(comparison, limits)
    what = f"below {COSINE}" if limits.path is None else "over a limit"
    blocks: list[Block] = []
    if below:
        more = f" (the first {SHOWN} of {len(below)})" if len(below) > SHOWN else ""
        rows = tuple(_cells(row, comparison.metrics) for row in below[:SHOWN])
        blocks.append(Table(f"Outputs {what}{more}", COLUMNS, rows, dict.fromkeys(range(len(rows)), "bad")))
    elif ranked := [row for row in comparison.ranked() if row.judged]:
        rows = tuple(_cells(row, comparison.metrics) for row in ranked[:SHOWN])
        blocks.append(Table(f"Largest differences (nothing is {what})", COLUMNS, rows))
    marks = {i: mark for i, row in enumerate(comparison.rows) if (mark := _mark(row, limits))}
    blocks.append(
        Table(
            "All tensors", COLUMNS, tuple(_cells(row, comparison.metrics) for row in comparison.rows), marks, paged=True
        )
    )
    return blocks


def _mark(row: ComparisonRow, limits: Limits) -> str:
    if not row.judged:
        return "warn"
    return "bad" if limits.broken(row) else ""


def _cells(row: ComparisonRow, metrics: Sequence[str]) -> tuple[str | int | float | None, ...]:
    from compare.tolerance import required_tolerance, rounded_up

    figures = row.figures
    names = (
        row.index,
        row.op_type,
        row.op,
        ",".join(row.right_names) or "*",
        f"{row.io}:{row.slot}" if row.io else None,
    )
    shape = None if row.shape is None else str(list(row.shape))
    if figures is None:
        return (*names, shape, None, None, None, None, None, None, "; ".join(row.messages(metrics)))
    errors = (figures.cosine, figures.max_abs_error, figures.relative_distance, figures.differing)
    tolerance = required_tolerance(figures)
    reason = "; ".join(filter(None, [*row.messages(metrics), tolerance.text]))
    return (*names, shape, *errors, rounded_up(tolerance.atol), rounded_up(tolerance.rtol), reason)


def notes_of(comparison: Comparison, sides: Sequence[Dump]) -> list[str]:
    """Returns what was left out of a comparison, and how much was compared."""
    notes = [f"{problem.path}: {problem.reason}" for problem in comparison.problems]
    notes += [f"{path}: ignored, no dump file" for side in sides for path in side.ignored]
    judged, rows, damaged = len(comparison.judged), len(comparison.rows), comparison.unreadable
    if comparison.left_out:
        notes.append(f"{comparison.left_out} rows are not asked for (--ops, --since)")
    notes.append(f"{judged} of {rows} tensors compared, {rows - judged} not (see the reasons), {damaged} unreadable")
    return notes


def report_data(comparison: Comparison, target: Path, limits: Limits) -> dict[str, Any]:
    """Returns a comparison as JSON data."""
    metrics = comparison.metrics
    return {
        "left": str(comparison.left),
        "right": str(comparison.right),
        "csv": str(target),
        "rows": len(comparison.rows),
        "judged": len(comparison.judged),
        "compared_bytes": comparison.compared_bytes,
        "left_out": comparison.left_out,
        "limits": limits.as_dict(),
        "below": [_row_data(row, metrics) for row in over_limits(comparison, limits)],
        "differing": sum(1 for row in comparison.judged if row.figures and row.figures.differs),
        "not_judged": [_row_data(row, metrics) for row in comparison.not_judged],
        "problems": [{"path": str(p.path), "reason": p.reason} for p in comparison.problems],
    }


def _row_data(row: ComparisonRow, metrics: Sequence[str]) -> dict[str, Any]:
    from compare.outcomes import encoded
    from compare.tolerance import required_tolerance

    figures = {name: row.figures.column(name) for name in metrics} if row.figures else {}
    data: dict[str, Any] = {"index": row.index, "op": row.op, "op_type": row.op_type, "tensor": row.tensor}
    data["figures"] = figures
    if row.figures is not None:
        tolerance = required_tolerance(row.figures)
        data["explanation"] = row.figures.explanation
        data["details"] = encoded(row.figures.details)
        data["required"] = {"atol": tolerance.atol, "rtol": tolerance.rtol, "reason": tolerance.text}
    return data | {"reason": "; ".join(row.messages(metrics))}

"""What ``ckpt`` says of the variables: tables, and plain data for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from precision_tool.result import Block, Cell, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compare.checkpoints import CheckpointDiff
    from compare.variable_row import VariableRow
    from dumpers.records import TensorRecord

    Slots = Mapping[str, Sequence[VariableRow]]

COLUMNS = (
    *("Variable", "Verdict", "Left", "Right", "CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance"),
    *("Differing", "Slots", "Reason"),
)
SUSPECT_COLUMNS = (
    *("Variable", "TimesTypical", "RelativeEuclideanDistance", "CosineSimilarity", "Differing", "Slots", "Reason"),
)


def heading(diff: CheckpointDiff) -> str:
    """How many variables got which verdict."""
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(diff.counts.items()))
    return f"{counted} (of {len(diff.rows)} variables)"


def tables(diff: CheckpointDiff, threshold: float, limit: int) -> list[Block]:
    """Returns what to show; every row once among the first tables, and all rows in one that can be scrolled."""
    lost = [row for row in diff.rows if row.verdict == "unreadable"]
    missing = [row for row in diff.rows if row.verdict.startswith("missing")]
    other = [row for row in diff.rows if row.verdict in ("shapes differ", "dtypes differ", "not comparable")]
    flagged = [row for row in diff.rows if row.flagged and row not in other]
    ranked = [row for row in diff.rows if row.cosine is not None and row not in other and not row.flagged]
    plain = [row for row in diff.rows if row.verdict in ("equal", "skipped") and row.cosine is None]
    groups = (
        ("Unreadable", lost),
        ("Missing on the other side", missing),
        ("Not of one type or shape", other),
        ("Different, without a cosine that says so", flagged),
        ("By cosine, the lowest first", ranked),
        ("Equal, without a cosine", plain),
    )
    blocks: list[Block] = []
    for title, rows in groups:
        blocks += _table(title, rows, diff.slots, threshold, limit)
    blocks += _suspects(diff, threshold, limit)
    cells = tuple(_cells(row, diff.slots) for row in diff.rows)
    blocks.append(Table("All variables", COLUMNS, cells, _marks(diff.rows, threshold), paged=True))
    return blocks


def _table(title: str, rows: Sequence[VariableRow], slots: Slots, threshold: float, limit: int) -> list[Block]:
    if not rows or limit == 0:
        return []
    shown = rows[:limit]
    cells = tuple(_cells(row, slots) for row in shown)
    return [Table(title + more(limit, len(rows)), COLUMNS, cells, _marks(shown, threshold))]


def more(limit: int, total: int) -> str:
    """What a title says of rows that are not shown."""
    return f" (the first {limit} of {total})" if total > limit else ""


def _suspects(diff: CheckpointDiff, threshold: float, limit: int) -> list[Block]:
    found = diff.suspects
    if not found or limit == 0:
        return []
    shown = found[:limit]
    rows = tuple(
        (
            row.name,
            times,
            row.distance,
            row.cosine,
            row.figures.differing if row.figures else None,
            _slot_text(row, diff.slots),
            _reason(row),
        )
        for row, times in shown
    )
    title = "By suspicion: distance as a multiple of what is typical of its kind" + more(limit, len(found))
    return [Table(title, SUSPECT_COLUMNS, rows, _marks([row for row, _ in shown], threshold))]


def _marks(rows: Sequence[VariableRow], threshold: float) -> dict[int, str]:
    return {index: mark for index, row in enumerate(rows) if (mark := _mark(row, threshold))}


def _mark(row: VariableRow, threshold: float) -> str:
    if row.flagged or row.below(threshold) or row.verdict in ("unreadable", "shapes differ"):
        return "bad"
    return "" if row.verdict in ("equal", "values differ", "skipped") else "warn"


def _cells(row: VariableRow, slots: Slots) -> tuple[Cell, ...]:
    figures = row.figures
    names = (row.name, row.verdict, spec(row.left), spec(row.right))
    last = (_slot_text(row, slots), _reason(row))
    if figures is None:
        return (*names, None, None, None, None, *last)
    return (*names, figures.cosine, figures.max_abs_error, figures.relative_distance, figures.differing, *last)


def _reason(row: VariableRow) -> str:
    return "; ".join(filter(None, (row.reason, row.note)))


def _slot_text(row: VariableRow, slots: Slots) -> str:
    """The slots of a variable with what is known of them; of a slot, whose it is."""
    if row.slot_of:
        return f"slot {row.slot} of {row.slot_of}"
    told = []
    for slot in slots.get(row.name, ()):
        worth = slot.verdict if slot.cosine is None or slot.verdict == "equal" else f"{slot.cosine:.6f}"
        told.append(f"{slot.slot} {worth}")
    return ", ".join(told)


def spec(record: TensorRecord | None) -> str | None:
    """Dtype and shape of a side."""
    if record is None:
        return None
    return record.dtype if record.shape is None else f"{record.dtype}{list(record.shape)}"


def problem_lines(diff: CheckpointDiff) -> list[str]:
    """Damage met in the indexes."""
    return [f"{problem.path}: {problem.reason}" for problem in diff.problems]


def problems(diff: CheckpointDiff) -> list[str]:
    """What could not be read, each once: damage found while listing is in its variable's row too."""
    lines = dict.fromkeys(problem_lines(diff))
    rows = [row for row in diff.rows if row.verdict == "unreadable"]
    known = {line.split(": ", 2)[1] for line in lines if line.count(": ") >= 2}
    return [*lines, *(f"{row.name}: {row.reason}" for row in rows if row.name not in known)]


def data(diff: CheckpointDiff, threshold: float) -> dict[str, Any]:
    """The variables for ``--json``."""
    return {
        "counts": dict(diff.counts),
        "below": [row.name for row in diff.below(threshold)],
        "flagged": [row.name for row in diff.rows if row.flagged],
        "missing_on_the_right": [row.name for row in diff.rows if row.verdict == "missing on the right"],
        "missing_on_the_left": [row.name for row in diff.rows if row.verdict == "missing on the left"],
        "unreadable": [row.name for row in diff.rows if row.verdict == "unreadable"],
        "suspects": [{"name": row.name, "times_typical": times} for row, times in diff.suspects],
        "rows": [_row_data(row, diff.slots) for row in diff.rows],
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in diff.problems],
    }


def _row_data(row: VariableRow, slots: Slots) -> dict[str, Any]:
    figures = row.figures
    return {
        "name": row.name,
        "verdict": row.verdict,
        "left": _record_data(row.left),
        "right": _record_data(row.right),
        "cosine": row.cosine,
        "max_abs_error": figures.max_abs_error if figures else None,
        "relative_distance": row.distance,
        "elements": figures.elements if figures else None,
        "differing": figures.differing if figures else None,
        "nan": [figures.nan_left, figures.nan_right] if figures else None,
        "inf": [figures.inf_left, figures.inf_right] if figures else None,
        "slot": row.slot or None,
        "slot_of": row.slot_of or None,
        "slots": [slot.name for slot in slots.get(row.name, ())],
        "reason": row.reason,
        "note": row.note,
    }


def _record_data(record: TensorRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    shape = None if record.shape is None else list(record.shape)
    return {"name": record.op, "dtype": record.dtype, "shape": shape, "note": record.note}

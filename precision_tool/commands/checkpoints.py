"""``ckpt``: what differs between two checkpoints."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_tool.result import Block, ExitCode, Result, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compare.checkpoints import CheckpointDiff, VariableRow
    from dumpers.formats.checkpoint_files import CheckpointFiles
    from dumpers.records import TensorRecord
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

COLUMNS = (
    *("Variable", "Verdict", "Left", "Right", "CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance"),
    *("Differing", "Reason"),
)


class CompareCheckpoints:
    """Compare two checkpoints variable by variable, the lowest cosine first.

    A is under test, B is the reference; each is the prefix of a checkpoint (model.ckpt-100), one of its files, or the
    folder that it lies in: then the one that the folder's state file names, else the one with the highest step. Version
    1 and 2, saved by name or from objects; TensorFlow is not needed. Integers and strings are compared exactly.
    Exit code 1 when anything differs or is missing on one side, 3 when anything could not be read.
    """

    name = "ckpt"
    aliases: tuple[str, ...] = ("ckpt_compare",)
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds both checkpoints, threshold and limit."""
        parser.add_argument("left", metavar="A", help="checkpoint under test")
        parser.add_argument("right", metavar="B", help="checkpoint of the reference")
        parser.add_argument("-c", "--cos_sim", type=float, default=0.98, help="threshold of the cosine (0.98)")
        parser.add_argument("-l", "--limit", type=int, default=20, help="variables to show in each table (20)")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Compares; exit code 1 when anything differs, 3 when anything could not be read."""
        from compare.checkpoints import compare_checkpoints
        from dumpers.formats.checkpoint import locate_checkpoint, read_checkpoint

        _check_options(args.cos_sim, args.limit)
        files = (locate_checkpoint(Path(args.left)), locate_checkpoint(Path(args.right)))
        progress("reading the indexes", 0, 0)
        sides = [read_checkpoint(found) for found in files]
        diff = compare_checkpoints(*sides, progress=partial(progress, "comparing"))
        return _result(diff, files, args.cos_sim, args.limit)


def _check_options(threshold: float, limit: int) -> None:
    from dumpers.errors import UsageError

    if not -1 <= threshold <= 1:
        raise UsageError(f"ckpt: -c {threshold:g}: a cosine is between -1 and 1")
    if limit < 0:
        raise UsageError(f"ckpt: -l {limit}: the number of variables cannot be negative")


def exit_code_of(diff: CheckpointDiff) -> ExitCode:
    """Returns the exit code: unreadable data win over a difference."""
    if diff.unreadable:
        return ExitCode.DATA
    return ExitCode.FOUND if diff.different else ExitCode.CLEAN


def _result(diff: CheckpointDiff, files: Sequence[CheckpointFiles], threshold: float, limit: int) -> Result:
    total = len(diff.rows)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(diff.counts.items()))
    return Result(
        title=f"{diff.left} against {diff.right}: {counted} (of {total} variables)",
        blocks=_tables(diff, threshold, limit),
        notes=[*(note for found in files for note in found.notes), *_problem_lines(diff)],
        data=_data(diff, files, threshold),
        exit_code=exit_code_of(diff),
        problems=_problems(diff),
    )


def _tables(diff: CheckpointDiff, threshold: float, limit: int) -> list[Block]:
    lost = [row for row in diff.rows if row.verdict == "unreadable"]
    missing = [row for row in diff.rows if row.verdict.startswith("missing")]
    other = [row for row in diff.rows if row.verdict in ("shapes differ", "dtypes differ", "not comparable")]
    flagged = [row for row in diff.rows if row.flagged and row not in other]
    ranked = [row for row in diff.rows if row.cosine is not None and row not in other and not row.flagged]
    plain = [row for row in diff.rows if row.verdict in ("equal", "skipped") and row.cosine is None]
    blocks: list[Block] = [
        *_table("Unreadable", lost, threshold, limit),
        *_table("Missing on the other side", missing, threshold, limit),
        *_table("Not of one type or shape", other, threshold, limit),
        *_table("Different, without a cosine that says so", flagged, threshold, limit),
        *_table("By cosine, the lowest first", ranked, threshold, limit),
        *_table("Equal, without a cosine", plain, threshold, limit),
    ]
    rows = tuple(_cells(row) for row in diff.rows)
    blocks.append(Table("All variables", COLUMNS, rows, _marks(diff.rows, threshold), paged=True))
    return blocks


def _table(title: str, rows: Sequence[VariableRow], threshold: float, limit: int) -> list[Block]:
    if not rows or limit == 0:
        return []
    more = f" (the first {limit} of {len(rows)})" if len(rows) > limit else ""
    shown = rows[:limit]
    return [Table(title + more, COLUMNS, tuple(_cells(row) for row in shown), _marks(shown, threshold))]


def _marks(rows: Sequence[VariableRow], threshold: float) -> dict[int, str]:
    return {index: mark for index, row in enumerate(rows) if (mark := _mark(row, threshold))}


def _mark(row: VariableRow, threshold: float) -> str:
    if row.flagged or row.below(threshold) or row.verdict in ("unreadable", "shapes differ"):
        return "bad"
    return "" if row.verdict in ("equal", "values differ", "skipped") else "warn"


def _cells(row: VariableRow) -> tuple[str | int | float | None, ...]:
    figures = row.figures
    names = (row.name, row.verdict, _spec(row.left), _spec(row.right))
    reason = "; ".join(filter(None, (row.reason, row.note)))
    if figures is None:
        return (*names, None, None, None, None, reason)
    return (*names, figures.cosine, figures.max_abs_error, figures.relative_distance, figures.differing, reason)


def _spec(record: TensorRecord | None) -> str | None:
    if record is None:
        return None
    return record.dtype if record.shape is None else f"{record.dtype}{list(record.shape)}"


def _problem_lines(diff: CheckpointDiff) -> list[str]:
    return [f"{problem.path}: {problem.reason}" for problem in diff.problems]


def _problems(diff: CheckpointDiff) -> list[str]:
    """What could not be read, each once: damage found while listing is in its variable's row too."""
    lines = dict.fromkeys(_problem_lines(diff))
    rows = [row for row in diff.rows if row.verdict == "unreadable"]
    known = {line.split(": ", 2)[1] for line in lines if line.count(": ") >= 2}
    return [*lines, *(f"{row.name}: {row.reason}" for row in rows if row.name not in known)]


def _data(diff: CheckpointDiff, files: Sequence[CheckpointFiles], threshold: float) -> dict[str, Any]:
    return {
        "left": _side(files[0]),
        "right": _side(files[1]),
        "threshold": threshold,
        "counts": dict(diff.counts),
        "below": [row.name for row in diff.below(threshold)],
        "flagged": [row.name for row in diff.rows if row.flagged],
        "missing_on_the_right": [row.name for row in diff.rows if row.verdict == "missing on the right"],
        "missing_on_the_left": [row.name for row in diff.rows if row.verdict == "missing on the left"],
        "unreadable": [row.name for row in diff.rows if row.verdict == "unreadable"],
        "rows": [_row_data(row) for row in diff.rows],
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in diff.problems],
    }


def _side(found: CheckpointFiles) -> dict[str, Any]:
    return {
        "prefix": str(found.prefix),
        "version": found.version,
        "notes": list(found.notes),
        "checkpoints": [path.name for path in found.all],
    }


def _row_data(row: VariableRow) -> dict[str, Any]:
    figures = row.figures
    return {
        "name": row.name,
        "verdict": row.verdict,
        "left": _record_data(row.left),
        "right": _record_data(row.right),
        "cosine": row.cosine,
        "max_abs_error": figures.max_abs_error if figures else None,
        "relative_distance": figures.relative_distance if figures else None,
        "elements": figures.elements if figures else None,
        "differing": figures.differing if figures else None,
        "nan": [figures.nan_left, figures.nan_right] if figures else None,
        "inf": [figures.inf_left, figures.inf_right] if figures else None,
        "reason": row.reason,
        "note": row.note,
    }


def _record_data(record: TensorRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    shape = None if record.shape is None else list(record.shape)
    return {"name": record.op, "dtype": record.dtype, "shape": shape, "note": record.note}

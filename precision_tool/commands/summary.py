"""``vcs``: what the result files of a comparison say."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from dumpers.workspace import newest
from precision_tool.commands.result_rows import rows_table
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from compare.result_file import ResultFile, ResultRow
    from compare.summary import OpSummary, Summary, Value
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SHOWN = 20
"""Ops listed of those that nobody could judge; the total is always said."""


class CompareSummary:
    """Summarise comparison results: the first ops whose output is below the threshold.

    FILE is a result file or a directory; without one the newest comparison is read. An op with a bad output and good
    inputs is a suspect; one whose input is bad already is a consequence; a cosine exactly at the threshold is listed as
    such and is no suspect. What could not be judged is listed with the reason.
    """

    name = "vcs"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds file, threshold and limit."""
        parser.add_argument("-f", "--file", default=None, help="result file, or directory with result_<time>.csv")
        parser.add_argument("-c", "--cos_sim", type=float, default=0.98, help="threshold of the cosine (0.98)")
        parser.add_argument("-l", "--limit", type=int, default=3, help="ops to show (3)")
        parser.add_argument("-a", "--all", action="store_true", help="list every tensor of the file too")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Summarises; exit code 1 when an output is below the threshold or not finite on one side only."""
        check_options(args.cos_sim, args.limit)
        place = _place(args.file, workbench)
        return summarise_path(place, threshold=args.cos_sim, limit=args.limit, every_row=args.all)


def _place(asked: str | None, workbench: Workbench) -> Path:
    if asked is not None:
        return Path(asked)
    folder = workbench.workspace.vector_compare
    found = newest(folder)
    if found is None:
        raise DataError(f"{folder}: no comparison there yet; run vc first, or give a file with -f")
    return found


def check_options(threshold: float, limit: int) -> None:
    """Refuses what cannot be meant.

    Raises:
        UsageError: the threshold is no cosine or the limit is negative.
    """
    if math.isnan(threshold) or not -1 <= threshold <= 1:
        raise UsageError(f"vcs: -c {threshold:g}: a cosine is between -1 and 1")
    if limit < 0:
        raise UsageError(f"vcs: -l {limit}: the number of ops cannot be negative")


def summarise_path(path: Path, *, threshold: float, limit: int, every_row: bool = False) -> Result:
    """Returns the summary of a result file, or of all result files in a directory.

    Args:
        path: File or directory.
        threshold: A cosine at or below it is listed.
        limit: Ops to show.
        every_row: Whether a table of all rows comes after the summary.

    Raises:
        DataError: there is no result file, or one cannot be read.
    """
    from compare.result_file import read_csv, result_files

    files = [FileSummary.of(read_csv(file), threshold, limit) for file in result_files(path)]
    blocks: list[Block] = []
    notes: list[str] = []
    left = limit
    for file in files:
        notes += file.notes()
        blocks += [op_panel(op, threshold) for op in file.summary.listed[:left]]
        left -= min(left, len(file.summary.listed))
    for file in files:
        blocks += file.lists()
        if every_row:
            blocks.append(replace(rows_table(file.file, threshold), paged=False))
    wrong = any(file.wrong for file in files)
    total = sum(file.summary.found for file in files)
    return Result(
        title=f"{total} ops with an output at or below {threshold:g}"
        if total
        else f"no output at or below {threshold:g}",
        blocks=blocks,
        notes=notes,
        data={"threshold": threshold, "files": [file.as_dict() for file in files]},
        exit_code=ExitCode.FOUND if wrong else ExitCode.CLEAN,
    )


@dataclass(frozen=True)
class FileSummary:
    """One result file and what it says.

    Attributes:
        mismatches: Tensors where one side alone has a NaN or infinity, whatever their cosine.
    """

    file: ResultFile
    summary: Summary
    mismatches: tuple[ResultRow, ...]

    @classmethod
    def of(cls, file: ResultFile, threshold: float, limit: int) -> FileSummary:
        """Summarises one file."""
        from compare.summary import summarise

        mismatches = tuple(row for row in file.rows if _is_mismatch(row))
        return cls(file, summarise(file.rows, threshold=threshold, limit=limit), mismatches)

    @property
    def wrong(self) -> bool:
        """Whether something is wrong: an output strictly below the threshold, or a non-finite mismatch."""
        return bool(self.summary.suspects or self.summary.consequences or self.mismatches)

    def notes(self) -> list[str]:
        """Lines of talk about the file."""
        found = f"Find {self.summary.found} ops less then {self.summary.threshold:g} in {self.file.path}"
        missing = sum(1 for op in self.summary.ops if not _dumped(op))
        without = [f"{missing} ops of the file have no dump"] if missing else []
        problems = [f"{self.file.path}: {problem}" for problem in self.file.problems]
        return [found, *self.summary.warnings(), *without, *problems]

    def lists(self) -> list[Block]:
        """Tables of what the threshold cannot tell."""
        rows = [(op.index, op.name, op.reason or "no output has a cosine") for op in self.summary.undetermined]
        blocks = _list("Not compared", rows)
        partners = [(op.index, op.name, op.reason or "no partner") for op in self.summary.no_partner if _dumped(op)]
        blocks += _list("No partner", partners)
        mismatches = [(row.index, f"{row.op}:{row.io}:{row.slot}", row.reason) for row in self.mismatches]
        # The limit cuts the panels; an independent suspect behind many consequences must not be lost with them.
        shown = {op.name for op in self.summary.listed}
        cut = [(op.index, op.name, op.standing) for op in self.summary.suspects if op.name not in shown]
        return _list("Further suspects", cut) + _list("Not finite on one side", mismatches) + blocks

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON data."""
        summary = self.summary
        return {
            "file": str(self.file.path),
            "found": summary.found,
            "listed": [op_data(op) for op in summary.listed],
            "suspects": [op_data(op) for op in summary.suspects],
            "consequences": [op.name for op in summary.consequences],
            "at_threshold": [op.name for op in summary.at_threshold],
            "undetermined": [{"name": op.name, "index": op.index, "reason": op.reason} for op in summary.undetermined],
            "no_partner": [op.name for op in summary.no_partner],
            "non_finite_mismatches": [f"{row.op}:{row.io}:{row.slot}" for row in self.mismatches],
            "not_judged_rows": summary.unjudged_rows,
            "warnings": summary.warnings(),
            "problems": list(self.file.problems),
        }


def _dumped(op: OpSummary) -> bool:
    return bool(op.inputs or op.outputs)


def _is_mismatch(row: ResultRow) -> bool:
    from compare.figures import NON_FINITE_MISMATCH

    return NON_FINITE_MISMATCH in row.reason or row.cosine_text in ("nan", "inf", "-inf")


def _list(title: str, rows: Sequence[tuple[int | None, str, str]]) -> list[Block]:
    if not rows:
        return []
    more = f" (the first {SHOWN} of {len(rows)})" if len(rows) > SHOWN else ""
    return [Table(title + more, ("Index", "Op", "Reason"), tuple(rows[:SHOWN]))]


def op_panel(op: OpSummary, threshold: float) -> Panel:
    """Returns the panel of one listed op, ``[index] name``."""
    lines = [f"Left: {','.join(op.left_names) or '*'}", f"Right: {','.join(op.right_names) or '*'}"]
    lines.append(f"Input:{_values(op.inputs)}")
    lines.append(f"Output:{_values(op.outputs)}")
    lines.append(f"Standing: {op.standing}" + _hint(op, threshold))
    return Panel(f"[{op.index}] {op.name}", tuple(lines))


def _values(values: Mapping[int, Value]) -> str:
    return "".join(f"\t - [{slot}]{value.text}{_distance(value)}" for slot, value in values.items())


def _distance(value: Value) -> str:
    """The relative distance beside a cosine, which is blind to a factor."""
    distance = value.row.figures.get("RelativeEuclideanDistance")
    return "" if distance is None else f" (distance {distance:.6g})"


def _hint(op: OpSummary, threshold: float) -> str:
    if op.standing == "suspect":
        return (
            f" (inputs are not below {threshold:g}, so look at this op)"
            if op.inputs
            else " (its inputs are not in the file)"
        )
    return " (an input is bad already: look at its producer)" if op.standing == "consequence" else ""


def op_data(op: OpSummary) -> dict[str, Any]:
    """Returns one op as JSON data."""
    return {
        "index": op.index,
        "name": op.name,
        "standing": str(op.standing),
        "left": list(op.left_names),
        "right": list(op.right_names),
        "inputs": {str(slot): _value_data(value) for slot, value in op.inputs.items()},
        "outputs": {str(slot): _value_data(value) for slot, value in op.outputs.items()},
    }


def _value_data(value: Value) -> float | str:
    return value.text if value.number is None else value.number

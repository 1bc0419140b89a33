"""``ac``: all checks at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from precision_tool.commands.compare_options import add_options, given, options_of
from precision_tool.commands.pairing_report import add_map_option, map_of
from precision_tool.commands.summary import summarise_path
from precision_tool.commands.vector_compare import Plan, compare_plan, default_plan
from precision_tool.result import Block, ExitCode, Result

if TYPE_CHECKING:
    from pathlib import Path

    from compare.name_map import NameMap
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SUMMARY_LIMIT = 3
THRESHOLD = 0.98


class AutoCheck:
    """Run all checks: comparison summary, fusions, overflows, casts, and how alike the graphs of two runs are.

    With -c the dumps are compared first. What is not there to be checked is a note, not an error.
    """

    name = "ac"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options."""
        parser.add_argument("-c", "--vector_compare", action="store_true", help="compare the dumps first (as vc)")
        add_map_option(parser)
        parser.add_argument("-l", "--limit", type=int, default=3, help="overflow records to show (3)")
        add_options(parser)

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Checks; exit code 1 when one of the checks found something, 3 when there was nothing to check at all."""
        from precision_tool import checks

        options = options_of(args)
        if given(args) and not args.vector_compare:
            raise UsageError(f"ac: {given(args)[0]} is for a comparison; add -c")
        report = _Report()
        if args.vector_compare:
            names = map_of(args)
            report.add("vector_compare", lambda: compare_plan(_plan(workbench, names), workbench, progress, options))
        report.add("summary", lambda: _summary(workbench))
        report.add("fusion", lambda: checks.fusion(workbench.workspace))
        report.add("overflow", lambda: checks.overflow(workbench.workspace, args.limit))
        report.add("cast", lambda: checks.casts(workbench))
        report.add("graph_similarity", lambda: checks.similarity(workbench))
        return Result(
            title="Automatic check",
            blocks=report.blocks,
            notes=report.notes,
            data=report.data,
            files=report.files,
            exit_code=report.exit_code if report.checked else ExitCode.DATA,
            problems=report.problems,
        )


def _plan(workbench: Workbench, names: NameMap | None) -> Plan:
    return replace(default_plan(None, workbench), names=names)


def _summary(workbench: Workbench) -> Result:
    from dumpers.workspace import newest

    folder = newest(workbench.workspace.vector_compare)
    if folder is None:
        raise DataError(f"{workbench.workspace.vector_compare}: no comparison there yet; ac -c or vc makes one")
    return summarise_path(folder, threshold=THRESHOLD, limit=SUMMARY_LIMIT)


@dataclass
class _Report:
    """Collects what the checks answer."""

    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    exit_code: int = ExitCode.CLEAN
    problems: list[str] = field(default_factory=list)
    checked: int = 0

    def add(self, name: str, check: Callable[[], Result]) -> None:
        """Runs one check; data that are not there make it a note."""
        try:
            result = check()
        except DataError as error:
            self.notes.append(f"{name}: {error}")
            self.data[name] = {"not_checked": str(error)}
            self.problems.append(f"{name}: {error}")
            return
        self.checked += 1
        self.blocks += result.blocks
        self.notes += [f"{name}: {note}" for note in (result.title, *result.notes)]
        self.data[name] = dict(result.data)
        self.files += result.files
        self.problems += result.problems
        self.exit_code = max(self.exit_code, result.exit_code)

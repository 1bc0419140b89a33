"""``info``: what a file or folder is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import UsageError
from precision_tool.result import Block, ExitCode, Result

if TYPE_CHECKING:
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


class Info:
    """Say what a file or folder is: its kind, header, shapes, layouts and statistics, its graph or its facts.

    Takes whatever the device, TensorFlow or another tool left behind. Figures are over the values in the framework's
    layout, without the device's padding. Exit code 3 when a path is not recognised, or damaged.
    """

    name = "info"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths."""
        parser.add_argument("paths", nargs="*", metavar="PATH", help="file or folder")
        parser.add_argument("--no-values", action="store_true", help="headers only, read no tensor")
        parser.add_argument("--dtype", default=None, metavar="NAME", help="what raw npy data are, for example bfloat16")
        parser.add_argument("--limit", type=int, default=20, metavar="N", help="lines of a list, 0 for all (20)")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Describes every path; exit code 3 when one was not recognised or is damaged."""
        from precision_tool.path_facts import Options, describe, progress_of

        if not args.paths:
            raise UsageError("info: no path given; info PATH says what a file or folder is")
        if args.limit < 0:
            raise UsageError(f"info: --limit {args.limit} is negative; 0 shows all")
        options = Options(limit=args.limit, values=not args.no_values, dtype=args.dtype)
        blocks: list[Block] = []
        notes: list[str] = []
        problems: list[str] = []
        data: list[dict[str, Any]] = []
        titles: list[str] = []
        for path in args.paths:
            found = describe(Path(path), options, progress_of(progress))
            titles.append(found.title)
            blocks += found.blocks
            notes += [*found.notes, *found.problems]
            problems += found.problems
            data.append(found.data)
        failed = problems or not titles
        return Result(
            title=titles[0] if len(titles) == 1 else f"{len(titles)} paths",
            blocks=blocks,
            notes=notes,
            data={"paths": data},
            exit_code=ExitCode.DATA if failed else ExitCode.CLEAN,
            problems=problems,
        )

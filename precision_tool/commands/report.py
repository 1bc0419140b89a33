"""``report``: a verdict as one HTML file to keep, to send or to print."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import UsageError
from precision_tool.commands.verdict import Sides, default_sides, exit_code_of, given_sides, problems_of
from precision_tool.result import ExitCode, Panel, Result

if TYPE_CHECKING:
    from compare.verdict import Verdict as Finding
    from dumpers.graph import Graph
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.html_report import SideFacts, Story
    from precision_tool.workbench import Workbench

_LAST_MOMENT_US = 253_402_300_800_000_000
"""The year 10000; a file that tells a later one does not tell the time."""


class Report:
    """Write the verdict on two dumps into one HTML file: evidence, suspects, charts by depth, what was not judged.

    Takes the same paths as verdict, and the same defaults; --from takes the document that verdict --json printed. The
    file needs no network and runs no script. Exit code as of verdict.
    """

    name = "report"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths."""
        parser.add_argument("left", nargs="?", metavar="LEFT", help="directory under test")
        parser.add_argument("right", nargs="?", metavar="RIGHT", help="directory of the reference")
        parser.add_argument("-g", "--graph", default=None, help="graph file of LEFT")
        parser.add_argument(
            "-o", "--out", default=None, metavar="FILE", help="file to write (a new one in temp/report)"
        )
        parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
        parser.add_argument(
            "--from", dest="file", default=None, metavar="FILE", help="document of verdict --json instead of dumps"
        )

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Judges, or reads a saved verdict, and writes the file; exit code as of verdict."""
        from precision_tool.html_report import document

        if args.file is not None and (args.left or args.graph):
            raise UsageError("report: --from takes a saved verdict instead of dumps; leave LEFT, RIGHT and -g out")
        asked = Path(args.out) if args.out else None
        if asked is not None:
            _check_target(asked, (), overwrite=args.overwrite)
        if args.file is not None:
            story, problems = _saved(args.file)
        else:
            sides = given_sides(args, workbench) if args.left else default_sides(args.graph, workbench)
            if asked is not None:
                _check_target(asked, [side.path for side in _dumps(sides)], overwrite=args.overwrite)
            story, problems = _judged(sides, progress), problems_of(sides)
        text = document(story).encode("utf-8")
        target = asked or _new_target(workbench.workspace.report)
        _write(text, target, overwrite=args.overwrite)
        return _result(story, problems, target)


def _result(story: Story, problems: Sequence[str], target: Path) -> Result:
    verdict = story.verdict
    ops = sum(map(len, story.measured.values()))
    lines = [str(target), f"{ops} ops by their ratio, {len(story.carried)} outputs by their difference"]
    return Result(
        title=verdict.lines()[0],
        blocks=[Panel("Report", tuple(lines))],
        notes=story.notes,
        data={**verdict.as_dict(), "report": str(target)},
        files=[target],
        exit_code=ExitCode.DATA if problems else exit_code_of(verdict),
        problems=problems,
    )


# ----------------------------------------------------------------------------------------------------------- story


def _saved(file: str) -> tuple[Story, list[str]]:
    from precision_tool.html_report import Story
    from precision_tool.saved_verdict import read_saved_verdict

    verdict, error = read_saved_verdict(Path(file))
    problems = [error] if error else []
    return Story(verdict, source=file, versions=dict(_versions()[:1]), notes=problems), problems


def _judged(sides: Sides, progress: Progress) -> Story:
    from compare.judge import judge
    from compare.measured import Watch
    from precision_tool.html_report import Story

    watch = Watch()
    verdict = judge(
        sides.left,
        sides.right,
        left_graph=sides.left_graph,
        right_graph=sides.right_graph,
        progress=progress,
        watch=watch,
    )
    return Story(
        verdict,
        sides=[_facts(name, dump) for name, dump in zip(("left", "right"), _dumps(sides), strict=False)],
        versions=dict(_versions()),
        notes=[*sides.notes, *problems_of(sides)],
        measured={side: watch.of(side) for side in watch.sides},
        unmeasured=watch.unmeasured,
        carried=watch.carried(progress=partial(progress, "compare")),
        graph=_graph(sides, verdict),
    )


def _dumps(sides: Sides) -> list[Dump]:
    return [dump for dump in (sides.left, sides.right) if dump is not None]


def _graph(sides: Sides, verdict: Finding) -> Graph | None:
    if verdict.side == "left":
        return sides.left_graph or sides.left.graph
    return sides.right_graph or (sides.right.graph if sides.right is not None else None)


def _facts(name: str, dump: Dump) -> SideFacts:
    from precision_tool.html_report import SideFacts

    moments = [r.timestamp_us for r in dump if r.timestamp_us and 0 < r.timestamp_us < _LAST_MOMENT_US]
    written = ""
    if moments:
        first, last = (_moment(moment) for moment in (min(moments), max(moments)))
        written = f"{first} UTC" if first == last else f"{first} to {last} UTC"
    return SideFacts(name, str(dump.path), len(dump), written)


def _moment(moment_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment_us // 1_000_000))


def _versions() -> list[tuple[str, str]]:
    """What judged: the programs whose version could change a figure."""
    import platform
    from importlib import metadata

    import numpy as np

    try:
        own = metadata.version("precision-tool")
    except metadata.PackageNotFoundError:
        own = "(not installed)"
    return [("PrecisionTool", own), ("Python", platform.python_version()), ("NumPy", np.__version__)]


# ------------------------------------------------------------------------------------------------------------ file


def _check_target(path: Path, dumps: Sequence[Path], *, overwrite: bool) -> None:
    """Checks the file to write before anything is judged.

    Raises:
        UsageError: it cannot be written there, or would take the place of something.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--out {path}: no file can be made there; give a name in a folder that exists")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--out {path}: the folder cannot be written; give another one")
    if os.path.lexists(path) and not overwrite:
        raise UsageError(f"--out {path}: exists; give another name, or --overwrite")
    whole = path.resolve()
    inside = next((dump for dump in dumps if dump.resolve() in (whole, *whole.parents)), None)
    if inside is not None:
        raise UsageError(f"--out {path}: lies in the dump {inside}, which would read it; give another folder")


def _new_target(folder: Path) -> Path:
    """Returns ``report_<YYYYmmddHHMMSS>.html`` in a folder that is made; the next free second if that one is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = time.time()
    while True:
        path = folder / f"report_{time.strftime('%Y%m%d%H%M%S', time.localtime(moment))}.html"
        if not os.path.lexists(path):
            return path
        moment += 1


def _write(text: bytes, target: Path, *, overwrite: bool) -> None:
    from dumpers.formats.atomic import atomic_file

    if os.path.lexists(target) and not overwrite:  # made by somebody while this was judging
        raise UsageError(f"{target}: exists; give another name with --out, or --overwrite")
    with atomic_file(target) as out:
        out.write(text)

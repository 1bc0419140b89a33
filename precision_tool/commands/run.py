"""``run``: a shell command."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from typing import TYPE_CHECKING

from dumpers.errors import UsageError
from precision_tool.result import Panel, Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SHELL = "/bin/sh"


class Run:
    """Run a shell command.

    The rest of the line goes to the shell as it stands; the exit code is that of the shell command.
    """

    name = "run"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes the rest of the line."""
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="the shell command")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Runs it. One word is a whole command line; several were split by the user's own shell and stay words."""
        if not args.words:
            raise UsageError("run: no shell command given; for example: run ls -l")
        line = args.words[0] if len(args.words) == 1 else shlex.join(args.words)
        return run_line(line, lend_terminal=workbench.lends_terminal)


def run_line(line: str, *, lend_terminal: bool, environment: Mapping[str, str] | None = None) -> Result:
    """Runs a shell line.

    Args:
        line: What the shell gets.
        lend_terminal: Whether the command writes to our own terminal; otherwise its output is caught.
        environment: Of the command; our own if None.
    """
    done = subprocess.run(
        [SHELL, "-c", line],
        check=False,
        capture_output=not lend_terminal,
        text=True,
        errors="backslashreplace",
        env=environment,
    )
    exit_code = 128 - done.returncode if done.returncode < 0 else done.returncode
    ended = f"{line}: exit code {exit_code}"
    if lend_terminal:
        return Result(title="", notes=[ended] if exit_code else [], data={"line": line}, exit_code=exit_code)
    return Result(
        title=ended,
        blocks=[Panel("", tuple(done.stdout.splitlines()))],
        notes=done.stderr.splitlines(),
        data={"line": line, "stdout": done.stdout, "stderr": done.stderr},
        exit_code=exit_code,
    )

"""``npu_dump``: run a training command with the device's dump switched on. Deprecated, kept for old scripts."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dumpers.errors import UsageError
from precision_tool.commands.run import run_line
from precision_tool.result import Result

if TYPE_CHECKING:
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SWITCH: Final = "PRECISION_TOOL_DUMP"
ADVICE: Final = (
    "npu_dump is deprecated: say what to dump in the training script, "
    'tf_config.session_dump_config(config, action="dump")'
)


class NpuDump:
    """Run a training command with PRECISION_TOOL_DUMP=True in its environment. Deprecated.

    The rest of the line goes to the shell; the exit code is that of the command. What to use instead:
    precision_tool.tf_config.session_dump_config(config, action="dump") in the training script.
    """

    name = "npu_dump"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes the shell command."""
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="shell command that trains")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Runs it; the environment of this program stays as it is."""
        if not args.words:
            raise UsageError(f"npu_dump: no shell command given; {ADVICE}")
        line = args.words[0] if len(args.words) == 1 else shlex.join(args.words)
        done = run_line(line, lend_terminal=workbench.lends_terminal, environment={**os.environ, SWITCH: "True"})
        return replace(done, notes=[ADVICE, *done.notes])

"""``tf_dump``: the raw record of the reference run -> one npy a tensor."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from dumpers.errors import DataError
from precision_tool.commands.run import run_line
from precision_tool.result import Result, Table

if TYPE_CHECKING:
    from dumpers.tf_dump import ExtractReport
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


class TfDump:
    """Extract the reference tensors: the last recorded step of tf/tf_debug goes to tf/dump, one npy a tensor.

    Reads our own records and the directories of TensorFlow's debugger. When nothing was recorded yet and a shell
    command is given (the training with sess_dump in it), it is run first. With --all-runs every recorded run is
    extracted, not only the last training step.
    """

    name = "tf_dump"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes the shell command, and whether all runs are wanted."""
        parser.add_argument(
            "--all-runs", action="store_true", help="extract every recorded run; the index has the steps"
        )
        parser.add_argument("--rank", type=int, default=None, metavar="N", help="of a job with several (the lowest)")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="shell command that records")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Extracts."""
        from dumpers.tf_dump import extract

        notes = self._record(args.words, workbench)
        return _report(extract(workbench.workspace, all_runs=args.all_runs, rank=args.rank), notes)

    def _record(self, words: list[str], workbench: Workbench) -> list[str]:
        if workbench.last_reference_run() is not None or not words:
            return []
        line = words[0] if len(words) == 1 else shlex.join(words)
        done = run_line(line, lend_terminal=workbench.lends_terminal)
        if workbench.last_reference_run() is None:
            place = workbench.workspace.tf_debug
            raise DataError(
                f"{place}: still empty after {line!r} (exit code {done.exit_code}); does it call sess_dump?"
            )
        return [f"{line}: exit code {done.exit_code}"]


def _report(done: ExtractReport, notes: list[str]) -> Result:
    skipped = tuple((name, reason) for name, reason in done.skipped)
    blocks = [Table("Without a value", ("Tensor", "Reason"), skipped)] if skipped else []
    tensors, folder = len(done.files) - 1, done.files[-1].parent
    of_what = f"{len(done.steps)} steps ({_span(done.steps)})" if done.steps else f"step {done.step}"
    return Result(
        title=f"{tensors} tensors of {of_what} from {done.record}",
        blocks=blocks,
        notes=[*notes, *done.notes, f"wrote {len(done.files)} files to {folder}"],
        data={
            "record": str(done.record),
            "step": done.step,
            "steps": list(done.steps),
            "tensors": tensors,
            "directory": str(folder),
            "skipped": [{"tensor": name, "reason": reason} for name, reason in skipped],
        },
        files=done.files[-1:],
    )


def _span(steps: tuple[int, ...]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"

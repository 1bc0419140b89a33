"""``dump --guard``: proves that recording changes no bit of a job, or names what moved and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import UsageError

if TYPE_CHECKING:
    from precision_tool.commands.base import Progress
    from precision_tool.result import Result

MOST_RUNS = 3


def are_ladders(words: Sequence[str]) -> bool:
    """Whether what a user names are folders of ladders rather than a script and its arguments."""
    return bool(words) and Path(words[0]).is_dir()


def compare(words: Sequence[str]) -> Result:
    """Compares ladders: of the plain run, of the recorded one and, if there is one, of a second plain run.

    Raises:
        UsageError: it is one folder, or more than three.
        DataError: a folder has no ladders, or they prove nothing.
    """
    from precision_tool.guard import compare_ladders, guard_result

    if not 2 <= len(words) <= MOST_RUNS:
        raise UsageError("dump --guard: give the ladders of a plain run and of a recorded one, or a script")
    return guard_result(compare_ladders(*map(Path, words)))


def run(words: Sequence[str], environment: Mapping[str, str], progress: Progress) -> Result:
    """Runs a script without recording and with it, and compares.

    Args:
        words: Command line with the interpreter.
        environment: Of the script; its settings say what is recorded.
        progress: Told of each run.

    Raises:
        DataError: a run failed, or proved nothing.
    """
    from precision_tool.guard import guard_result
    from precision_tool.guard_run import run_guard

    begun = 0

    def say(line: str) -> None:
        nonlocal begun
        progress(line, begun, MOST_RUNS)
        begun += 1

    guard = run_guard(words, environment, None, say)
    progress("the guard", MOST_RUNS, MOST_RUNS)
    return guard_result(guard)

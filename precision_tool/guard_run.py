"""Runs a script with and without recording and compares the ladders that the guard's hooks write."""

from __future__ import annotations

import contextlib
import shlex
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dumpers.errors import DataError
from precision_tool.guard import Guard, compare_ladders
from precision_tool.job import run_job
from precision_tool.ladders import NO_HOOK, open_ladders

_LINES = 5
_LONGEST = 300
_PLAIN, _RECORDED, _AGAIN = "plain", "recorded", "again"
_WORDS = {_PLAIN: "without recording", _RECORDED: "with recording", _AGAIN: "without recording once more"}


def run_guard(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None,
    say: Callable[[str], None],
) -> Guard:
    """Runs a script without recording, with it, and, if these differ, without it once more.

    Each run has a ``ROOT_DIR`` of its own in a temporary folder that is removed at the end, so the user's records stay.

    Args:
        words: Command line: the interpreter, the script and its arguments; it runs in the current folder.
        environment: Its environment, as of :func:`precision_tool.job.job_environment`; settings such as
            ``TF_DUMP_STEP`` say what is recorded.
        folder: Where the temporary folder goes; the system's place if None.
        say: Told of each run before it begins.

    Raises:
        DataError: the interpreter cannot be started, a run failed, wrote no ladder, or recorded nothing.
    """
    script = shlex.join(words[1:])
    with tempfile.TemporaryDirectory(prefix="precision_guard_", dir=folder) as place:
        root = Path(place)

        def run(side: str) -> Path:
            say(f"running {script} {_WORDS[side]}")
            return _run_side(side, words, environment, root / side)

        plain, recorded = run(_PLAIN), run(_RECORDED)
        guard = compare_ladders(plain, recorded)
        if guard.proved:
            return guard
        say("the two runs differ; a second run without recording tells whether the job repeats itself")
        return compare_ladders(plain, recorded, run(_AGAIN))


def _run_side(side: str, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> Path:
    """Runs once and returns the folder of the ladders."""
    script = shlex.join(words[1:])
    ladders = folder / "ladders"
    ladders.mkdir(parents=True)
    settings = {name: value for name, value in environment.items() if not name.startswith("TF_DUMP_GUARD")}
    settings.update(TF_DUMP_GUARD=str(ladders), TF_DUMP_GUARD_PLAIN="" if side == _RECORDED else "True")
    settings["ROOT_DIR"] = str(folder)
    ended = run_job(words, settings, lend_terminal=False)
    if ended.exit_code:
        last = " | ".join(line.strip()[:_LONGEST] for line in [line for line in ended.tail if line.strip()][-_LINES:])
        said = f"; its last lines: {last}" if last else ""
        raise DataError(f"the run {_WORDS[side]} of {script} {_how(ended.exit_code)}{said}")
    try:
        open_ladders(ladders)
    except DataError as error:
        if any(ladders.iterdir()):
            raise
        raise DataError(f"{script}: {NO_HOOK}") from error
    return ladders


def _how(code: int) -> str:
    """How a run ended: a shell adds 128 to the number of a signal."""
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"

"""Runs a script with and without recording and compares the ladders that the guard's hooks write."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import precision_tool
from dumpers.errors import DataError, UsageError
from precision_tool.guard import Guard, compare_ladders
from precision_tool.ladders import NO_HOOK, open_ladders

_KEPT_BYTES = 4096
_KEPT_LINES = 5
_LONGEST = 300
_GRACE_SECONDS = 10.0
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
        environment: Its environment; settings such as ``TF_DUMP_STEP`` say what is recorded.
        folder: Where the temporary folder goes; the system's place if None.
        say: Told of each run before it begins.

    Raises:
        UsageError: the interpreter cannot be started.
        DataError: a run failed, wrote no ladder, or recorded nothing.
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
    # Behind what the user has there, so that a package of this name that the job brings along wins.
    ours = str(Path(precision_tool.__file__).resolve().parent.parent)
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, (settings.get("PYTHONPATH", ""), ours)))
    try:
        child = subprocess.Popen(
            words, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise UsageError(f"dump --guard: {words[0]} cannot be started: {error.strerror or error}") from error
    with _ending(child):
        tail = _Tail(child.stderr)
        code = child.wait()
        last = tail.lines()
    if code:
        raise DataError(f"the run {_WORDS[side]} of {script} {_ended(code)}; its last lines: {' | '.join(last)}")
    try:
        open_ladders(ladders)
    except DataError as error:
        if any(ladders.iterdir()):
            raise
        raise DataError(f"{script}: {NO_HOOK}") from error
    return ladders


@contextlib.contextmanager
def _ending(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leaves no child behind when we are interrupted; what it did is thrown away anyway."""
    try:
        yield
    except BaseException:
        child.terminate()
        try:
            child.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
    finally:
        if child.stderr is not None:
            child.stderr.close()


class _Tail:
    """Reads a stream to its end in a thread and keeps the last of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def lines(self) -> list[str]:
        """The last lines, after the child has ended."""
        self._thread.join(_GRACE_SECONDS)  # a grandchild may hold the stream open
        text = self._kept.decode("utf-8", "backslashreplace")
        return [line.strip()[:_LONGEST] for line in text.splitlines() if line.strip()][-_KEPT_LINES:]

    def _read(self) -> None:
        stream = self._stream
        if stream is None:
            return
        with contextlib.suppress(ValueError, OSError):  # closed from outside
            while data := stream.read1(1 << 16):  # type: ignore[attr-defined]  # a pipe is a BufferedReader
                self._kept = (self._kept + data)[-_KEPT_BYTES:]


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"

"""The user's own training script as a child process, in an environment that makes its hooks record."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dumpers.errors import DataError, UsageError

_PATIENCE_S: Final = 30.0
"""What a script that is told to stop gets to write what it still has."""

_POLL_S: Final = 0.1
_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class JobEnd:
    """How a script ended.

    Attributes:
        exit_code: As a shell tells it: 128 and the signal's number for one that a signal ended.
        tail: The last lines that it wrote, where they were caught.
        stopped: Whether it was ended here since what was waited for had happened.
    """

    exit_code: int
    tail: tuple[str, ...] = ()
    stopped: bool = False


def script_words(words: Sequence[str], *, module: str | None = None, python: str | None = None) -> list[str]:
    """Returns the command line of a script, or of a module, and its arguments.

    Args:
        words: Script and arguments; arguments alone where there is a module.
        module: As behind ``python -m``.
        python: The interpreter; the one that runs this if None.

    Raises:
        UsageError: there is no script, or it is no file.
    """
    run = [python or sys.executable]
    if module is not None:
        return [*run, "-m", module, *words]
    if not words:
        raise UsageError("give the training script, for example: dump train.py --batch 64")
    if not Path(words[0]).is_file():
        raise UsageError(f"{words[0]}: no such script; options of dump stand in front of it")
    return [*run, *words]


def shown_words(words: Sequence[str]) -> str:
    """Returns what a user typed of a command line: all but the interpreter."""
    return shlex.join(words[1:])


def job_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns our environment with settings, in which the script finds this package, behind whatever it has itself."""
    root = str(Path(__file__).resolve().parent.parent)
    path = [part for part in (os.environ.get("PYTHONPATH"), root) if part]
    return {**os.environ, **settings, "PYTHONPATH": os.pathsep.join(path)}


def run_job(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    lend_terminal: bool,
    until: Callable[[], bool] | None = None,
) -> JobEnd:
    """Runs a script to its end, or until something has happened.

    An interrupt goes on to the script, which has half a minute to write what it still has.

    Args:
        words: Command line.
        environment: Of the child.
        lend_terminal: Whether it writes to our own terminal; its output is caught otherwise.
        until: Asked again and again; the script is ended when it says so.

    Raises:
        DataError: the interpreter cannot be started.
    """
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                list(words),
                env=dict(environment),
                stdin=None if lend_terminal else subprocess.DEVNULL,
                stdout=None if lend_terminal else output,
                stderr=None if lend_terminal else subprocess.STDOUT,
                # In our own group the terminal's Ctrl-C reaches it by itself; else it is passed on.
                start_new_session=not lend_terminal,
            )
        except OSError as error:
            raise DataError(f"{words[0]}: cannot be started: {error.strerror or error}") from error
        try:
            stopped = _wait(child, until)
        except KeyboardInterrupt:
            if not lend_terminal:
                _signal(child, signal.SIGINT, group=True)
            _end(child, group=not lend_terminal, patience_s=_PATIENCE_S)
            raise
        except BaseException:
            _end(child, group=not lend_terminal, patience_s=0)
            raise
        if stopped:
            _signal(child, signal.SIGTERM, group=not lend_terminal)
            _end(child, group=not lend_terminal, patience_s=5)
        code = child.returncode
        return JobEnd(128 - code if code < 0 else code, () if lend_terminal else _tail(output), stopped)


def _wait(child: subprocess.Popen[bytes], until: Callable[[], bool] | None) -> bool:
    """Waits for the end; True where ``until`` came first."""
    if until is None:
        child.wait()
        return False
    while child.poll() is None:
        if until():
            return True
        time.sleep(_POLL_S)
    return False


def _end(child: subprocess.Popen[bytes], *, group: bool, patience_s: float) -> None:
    try:
        child.wait(patience_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _signal(child, signal.SIGKILL, group=group)
        child.wait()
    if group:  # whatever the script has started itself
        _signal(child, signal.SIGKILL, group=True)


def _signal(child: subprocess.Popen[bytes], number: signal.Signals, *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


def _tail(output: IO[bytes]) -> tuple[str, ...]:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    text = output.read().decode("utf-8", "backslashreplace")
    return tuple(text.splitlines()[-_TAIL_LINES:])

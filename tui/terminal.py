"""The terminal: is there one to draw on, and keeping everybody else's writing off it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TextIO

_REPLAYED_BYTES = 65536


def missing_terminal(environ: Mapping[str, str] | None = None) -> str | None:
    """Returns why the workbench cannot draw here, as one line that names the way that works; None where it can."""
    env = os.environ if environ is None else environ
    reason = _no_terminal(env)
    if reason is None:
        return None
    return (
        f"tui: {reason}; use the batch command instead: python cli.py COMMAND (vc, vcs, ni, verdict ...; -h lists all)"
    )


def _no_terminal(env: Mapping[str, str]) -> str | None:
    streams = (
        ("standard input", sys.__stdin__),
        ("standard output", sys.__stdout__),
        ("standard error", sys.__stderr__),
    )
    for name, stream in streams:
        if not _is_terminal(stream):
            return f"{name} is no terminal"
    term = env.get("TERM", "")
    if term in ("", "dumb"):
        return "TERM is not set" if not term else "the terminal cannot move its cursor (TERM=dumb)"
    return None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):  # closed, or not backed by a descriptor
        return False


class Others:
    """What everybody else wrote to the standard descriptors while the screen was ours."""

    def __init__(self) -> None:
        self.text = b""

    def replay(self) -> None:
        """Writes it to standard error: after a crash it tells why."""
        os.write(2, self.text)


@contextmanager
def own_screen() -> Iterator[Others]:
    """Keeps the terminal for the workbench alone, on POSIX systems.

    TensorFlow's C++ code and programs started by commands write to descriptors 1 and 2, which would tear the picture,
    and read 0, which would steal keys. They get a temporary file and an empty input; Textual gets duplicates.
    """
    others = Others()
    stdin, stdout, stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    if os.name != "posix" or stdin is None or stdout is None or stderr is None:
        yield others
        return
    streams = stdin, stdout, stderr
    for stream in (stdout, stderr):
        stream.flush()
    saved = [os.dup(number) for number in range(3)]
    with ExitStack() as stack:
        caught = stack.enter_context(tempfile.TemporaryFile())
        empty = stack.enter_context(open(os.devnull, "rb"))
        files = [stack.enter_context(os.fdopen(os.dup(0), "r"))]
        files += [stack.enter_context(os.fdopen(os.dup(number), "w", encoding="utf-8")) for number in (1, 2)]
        stack.callback(_put_back, saved, streams)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = files  # type: ignore[misc]
        for source, number in ((empty, 0), (caught, 1), (caught, 2)):
            os.dup2(source.fileno(), number)
        yield others
        for stream in (stdout, stderr):
            stream.flush()
        caught.seek(max(0, caught.seek(0, os.SEEK_END) - _REPLAYED_BYTES))
        others.text = caught.read()


def _put_back(descriptors: Sequence[int], streams: tuple[TextIO, TextIO, TextIO]) -> None:
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc, assignment]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)

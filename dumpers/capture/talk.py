"""What the capture side says while a training script runs: single lines on stderr.

A training script owns stdout, and its logging set-up is its own business, so neither is touched.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Set


def say(line: str) -> None:
    """Writes one line to stderr, marked as ours; where that is closed or lies on a full disk nobody can be told."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write("[precision_tool] {}\n".format(" ".join(line.split())))
        sys.stderr.flush()


class SayOnce:
    """Says each thing once, however many threads and steps meet it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: Set[str] = set()

    def __call__(self, topic: str, line: str) -> bool:
        """Says ``line`` unless something about ``topic`` was said before. Returns whether it was said."""
        with self._lock:
            if topic in self._said:
                return False
            self._said.add(topic)
        say(line)
        return True

    def fault(self, start: str, error: BaseException) -> str:
        """Says once that something of ours broke, and returns what.

        Args:
            start: What could not be done, and where.
            error: Why.
        """
        text = fault_text(error)
        end = "training goes on. This is a fault of precision_tool: please report it."
        self("fault", "{}: {}; {}".format(start, text, end))
        return text


def fault_text(error: BaseException) -> str:
    """What broke, in one line."""
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split())[:300]).rstrip(": ")

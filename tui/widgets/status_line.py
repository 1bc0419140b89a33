"""StatusLine: progress of what runs, the last error or note. One line, no markup."""

from __future__ import annotations

import time

from rich.text import Text
from textual.widgets import Static

from precision_tool.render import visible
from tui.literal import fit, literal, width_of

BAR = 20
ERROR_SECONDS = 3.0
"""How long progress leaves an error on screen."""


class StatusLine(Static):
    """One line of talk; an error is led by ``error:``, so that it needs no colour."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._line = ""
        self._error_until = 0.0

    @property
    def line(self) -> str:
        """What is said."""
        return self._line

    def say(self, line: str) -> None:
        """Shows a note."""
        self._show(line)

    def error(self, line: str) -> None:
        """Shows an error."""
        self._show(f"error: {line}", error=True)
        self._error_until = time.monotonic() + ERROR_SECONDS

    def progress(self, title: str, what: str, done: int, total: int) -> None:
        """Shows how far something got; a total of 0 is not known."""
        if time.monotonic() < self._error_until:
            return
        if total > 0:
            filled = min(BAR, BAR * done // total)
            bar = "[" + "#" * filled + "." * (BAR - filled) + "]"
            self._show(f"{bar} {done}/{total} {what}  ({title}; Esc cancels)")
        else:
            self._show(f"{what} {done or ''} ({title}; Esc cancels)")

    def render(self) -> Text:
        """The line, cut in the middle where it is too long."""
        line = visible(self._line)
        return literal(line if width_of(line) <= self.size.width else fit(line, self.size.width))

    def _show(self, line: str, *, error: bool = False) -> None:
        self._line = line
        self._error_until = 0.0
        self.set_class(error, "-error")
        self.refresh()

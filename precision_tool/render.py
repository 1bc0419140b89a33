"""Result -> terminal, plain text or JSON. The only module that prints.

stdout is data, stderr is talk. Colour and boxes only on a terminal that can show them: a pipe, ``NO_COLOR``, a dumb
terminal or an encoding without box characters get plain lines. Names are never taken for markup, and what a terminal
would obey (control characters, direction overrides) is shown as a visible escape.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from precision_tool.result import Cell, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from rich.panel import Panel as RichPanel
    from rich.table import Table as RichTable

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_STYLES = {"bad": "red", "good": "green", "warn": "yellow"}
_MARKS = {"bad": "! ", "warn": "? "}
_REDRAW_SECONDS = 0.1
_SHOWN_PROBLEMS = 5
_SHOWN_FILES = 20


def visible(text: str, *, keep_tabs: bool = False) -> str:
    """Returns the text on one line, every character that a terminal would obey made visible (ESC as backslash x1b).

    Args:
        text: Any text; a name from a file may hold anything.
        keep_tabs: Whether a tab stays, for lines that are laid out with tabs.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible_character(c) if not (keep_tabs and c == "\t") else c for c in text)


def _visible_character(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that the locale could not decode
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cell_text(cell: Cell) -> str:
    """Returns one table cell as text: None as ``-``, a float with six digits, control characters visible."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return visible(str(cell))


# ---------------------------------------------------------------------------------------------------------- output


def is_plain(stream: TextIO) -> bool:
    """Tells whether the stream gets plain lines: no terminal, no colour wanted, or no way to show boxes."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return True
    try:
        "\u2500\u2502\u256d".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def show(result: Result, *, out: TextIO | None = None, err: TextIO | None = None) -> None:
    """Prints a result: blocks to ``out``, notes and the files written to ``err``."""
    out, err = out or sys.stdout, err or sys.stderr
    if is_plain(out):
        for line in plain_lines(result):
            _write_line(out, line)
    else:
        _show_rich(result, out)
    out.flush()
    for note in result.notes:
        say(note, err=err)
    for path in result.files[:_SHOWN_FILES]:
        say(f"wrote {path}", err=err)
    if len(result.files) > _SHOWN_FILES:
        say(f"wrote {len(result.files) - _SHOWN_FILES} more files", err=err)


def say(line: str, *, err: TextIO | None = None) -> None:
    """Prints one line of talk."""
    stream = err or sys.stderr
    _write_line(stream, visible(line))
    stream.flush()


def show_text(text: str, *, out: TextIO | None = None) -> None:
    """Prints text of our own (help) as it is."""
    stream = out or sys.stdout
    for line in text.rstrip("\n").split("\n"):
        _write_line(stream, line)
    stream.flush()


def plain_lines(result: Result) -> list[str]:
    """Returns the result as lines without any escape code."""
    lines = [visible(result.title)] if result.title else []
    for block in result.blocks:
        lines += [""] if lines else []
        lines.extend(_plain_table(block) if isinstance(block, Table) else _plain_panel(block))
    return lines


def _plain_panel(panel: Panel) -> list[str]:
    title = [f"== {visible(panel.title)} =="] if panel.title else []
    return title + [visible(line, keep_tabs=True) for line in panel.lines]


def _plain_table(table: Table) -> list[str]:
    if table.paged:
        return [_paged_line(table)]
    rows = [tuple(cell_text(cell) for cell in row) for row in table.rows]
    columns = [visible(column) for column in table.columns]
    widths = [max([len(name), *(len(row[i]) for row in rows)]) for i, name in enumerate(columns)]
    indent = "  " if table.marks else ""
    lines = [f"== {visible(table.title)} =="] if table.title else []
    lines.append(indent + _padded(columns, widths))
    lines.append(indent + "  ".join("-" * width for width in widths))
    for index, row in enumerate(rows):
        lines.append((_MARKS.get(table.marks.get(index, ""), "  ") if table.marks else "") + _padded(row, widths))
    return lines


def _paged_line(table: Table) -> str:
    return f"{visible(table.title)}: {len(table.rows)} rows, not shown here (the tui shows them)"


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _write_line(stream: TextIO, line: str) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _show_rich(result: Result, out: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, markup=False, highlight=False, emoji=False)
    if result.title:
        console.print(Text(visible(result.title), style="bold", overflow="fold"))
    for block in result.blocks:
        if isinstance(block, Table) and block.paged:
            console.print(Text(_paged_line(block)))
            continue
        console.print(_rich_table(block) if isinstance(block, Table) else _rich_panel(block))


def _rich_table(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(visible(table.title)) if table.title else None, box=box.ROUNDED, title_justify="left")
    for column in table.columns:
        drawn.add_column(Text(visible(column)), overflow="fold")
    for index, row in enumerate(table.rows):
        style = _STYLES.get(table.marks.get(index, ""), "")
        drawn.add_row(*(Text(cell_text(cell), style=style, overflow="fold") for cell in row))
    return drawn


def _rich_panel(panel: Panel) -> RichPanel:
    from rich.panel import Panel as RichPanel
    from rich.text import Text

    body = Text("\n").join(Text(visible(line, keep_tabs=True), overflow="fold") for line in panel.lines)
    return RichPanel(body, title=Text(visible(panel.title)) if panel.title else None, title_align="left", expand=False)


# ------------------------------------------------------------------------------------------------------------ JSON


def json_document(command: str, result: Result) -> str:
    """Returns the one JSON document of ``--json``."""
    return _document(command, result.exit_code, result.data, result.files, _error_of(result))


def _error_of(result: Result) -> str | None:
    """Returns why an answer is not to be relied upon, None for one that is."""
    if result.exit_code in (ExitCode.CLEAN, ExitCode.FOUND):
        return None
    shown = "; ".join(result.problems[:_SHOWN_PROBLEMS]) or result.title
    more = len(result.problems) - _SHOWN_PROBLEMS
    return f"{shown}; {more} more" if more > 0 else shown


def json_error(command: str, exit_code: int, message: str) -> str:
    """Returns the JSON document of a call that failed."""
    return _document(command, exit_code, {}, (), message)


def print_json(document: str, *, out: TextIO | None = None) -> None:
    """Prints a JSON document (ASCII only, so any locale can take it)."""
    stream = out or sys.stdout
    stream.write(document + "\n")
    stream.flush()


def _document(command: str, exit_code: int, data: object, files: Sequence[Path], error: str | None) -> str:
    document: dict[str, object] = {
        "command": command,
        "ok": exit_code in (ExitCode.CLEAN, ExitCode.FOUND),
        "exit_code": int(exit_code),
        "result": plain_data(data),
        "files": [str(path) for path in files],
    }
    if error is not None:
        document["error"] = error
    return json.dumps(document, allow_nan=False, indent=2)


def plain_data(value: object) -> object:
    """Returns the value in JSON's own types. A number that is not finite becomes text (``"nan"``, ``"-inf"``)."""
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item) for item in value]
    if isinstance(value, (str, bool, int)) or value is None:
        return value if isinstance(value, bool) or not isinstance(value, int) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, without importing NumPy for it
        return plain_data(value.tolist())
    raise TypeError(f"{type(value).__name__} does not belong into a result")


# -------------------------------------------------------------------------------------------------------- progress


class ProgressLine:
    """Draws progress as one line of stderr that is overwritten; nothing where stderr is no terminal."""

    def __init__(self, err: TextIO | None = None) -> None:
        self._err = err or sys.stderr
        self._active = self._err.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = 0
        self._last = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Draws, at most ten times a second; the last state always."""
        now = time.monotonic()
        if not self._active or (done < total and now - self._last < _REDRAW_SECONDS):
            return
        self._last = now
        line = visible(f"{what} {done}/{total}" if total else what)[:79]
        if self._write("\r" + line.encode("ascii", "backslashreplace").decode().ljust(self._drawn)):
            self._drawn = len(line)

    def clear(self) -> None:
        """Takes the line away before something else is printed."""
        if self._drawn:
            self._write("\r" + " " * self._drawn + "\r")
            self._drawn = 0

    def _write(self, text: str) -> bool:
        """Writes to the terminal; one that is gone ends the drawing, never the work."""
        try:
            self._err.write(text)
            self._err.flush()
        except (OSError, ValueError):
            self._active, self._drawn = False, 0
        return self._active

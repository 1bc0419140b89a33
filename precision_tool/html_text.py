"""HTML and SVG by hand: text that cannot become markup, elements that are always closed, tables that say what they cut.

Names come from foreign files and may hold anything: markup, control characters, marks that turn the direction of
writing, ten thousand characters. Nothing reaches a page but through :func:`safe` or :func:`element`.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from precision_tool.render import visible

Value = str | int | float | bool | None

MAX_CHARACTERS = 20_000
"""Of one text; a longer one is cut and says how long it was."""

TABLE_ROWS = 500
TABLE_CHARACTERS = 500_000
"""Of the rows of one table, so that hostile names cannot blow the page up."""


def safe(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Returns any text as HTML text or attribute value: escaped, on one line, what a browser would obey visible.

    Args:
        text: Anything.
        limit: Characters to keep; the cut is marked and counted.
    """
    kept = text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
    return html.escape("".join(map(_without_noncharacter, visible(kept))), quote=True)


def short(text: str, limit: int = 48) -> str:
    """Returns a name with its middle left out where it is long, not yet escaped: both ends of a name tell ops apart."""
    if len(text) > 2 * limit:
        text = text[:limit] + text[-limit:]
    shown = visible(text)
    if len(shown) <= limit:
        return shown
    head = (limit - 3) // 2
    return f"{shown[:head]}...{shown[-(limit - 3 - head) :]}"


def number(value: float | None) -> str:
    """Returns a number with all its digits, as JSON has it; what JSON cannot say in words."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    return repr(value)


def element(name: str, content: str = "", **attributes: Value) -> str:
    """Returns one element.

    Args:
        name: Of the element.
        content: Markup made here, or text that went through :func:`safe`.
        attributes: ``stroke_width`` becomes ``stroke-width``, ``class_`` becomes ``class``; None leaves one out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(text, len(text))}"'  # a path of many points is long and whole
        for key, text in ((key, _attribute(value)) for key, value in attributes.items() if value is not None)
    )
    return f"<{name}{given}>{content}</{name}>"


@dataclass(frozen=True)
class Cut:
    """A table as HTML.

    Attributes:
        markup: The table, and a line below it where rows are missing.
        shown: Number of rows in it.
    """

    markup: str
    shown: int


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    *,
    limit: int = TABLE_ROWS,
    bad: frozenset[int] = frozenset(),
    more: str = "",
) -> Cut:
    """Returns a table of the first rows, and how many there are beyond them.

    Args:
        caption: Says what it lists.
        columns: Headings.
        rows: Cells; a float has all its digits, a name is a name.
        limit: Rows to show at most.
        bad: Numbers of rows that are marked.
        more: Where the rest of the rows can be had.
    """
    head = element("tr", "".join(element("th", safe(column), scope="col") for column in columns))
    lines: list[str] = []
    size = 0
    for index, row in enumerate(rows[:limit]):
        line = element("tr", "".join(map(_cell, row)), class_="bad" if index in bad else None)
        size += len(line)
        if lines and size > TABLE_CHARACTERS:
            break
        lines.append(line)
    markup = element("table", element("caption", safe(caption)) + element("thead", head) + _body(lines))
    left_out = len(rows) - len(lines)
    note = ""
    if left_out:
        told = f"{len(lines)} of {len(rows)} rows are shown, {left_out} are left out.{' ' if more else ''}{more}"
        note = element("p", safe(told), class_="cut")
    return Cut(element("div", markup, class_="wide") + note, len(lines))


def _body(lines: Sequence[str]) -> str:
    return element("tbody", "\n".join(["", *lines, ""]) if lines else "")


def _cell(value: Value) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return element("td", safe(number(value) if isinstance(value, float) else str(value)), class_="n")
    return element("td", "-" if value is None else safe(str(value)))


def _attribute(value: Value) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _without_noncharacter(character: str) -> str:
    """Shows what neither HTML nor XML may hold: the code points that Unicode promises never to use."""
    code = ord(character)
    if code < 0xFDD0 or unicodedata.category(character) != "Cn" or not (code & 0xFFFE == 0xFFFE or code < 0xFDF0):
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

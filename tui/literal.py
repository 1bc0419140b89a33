"""Text in cells: names from files in a column of fixed width, both their ends kept, wide characters counted as two.

What a terminal would obey is made visible before, by ``precision_tool.render.visible``; what Textual would take for
markup never gets there, since the widgets hand over ``rich.text.Text`` and segments only.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from precision_tool.render import visible

ELLIPSIS = "…"


TAB = 4


def literal(lines: str | Sequence[str], style: str = "") -> Text:
    """Returns lines as Text that shows every character as it is: no markup, controls as escapes, tabs as blanks."""
    if isinstance(lines, str):
        lines = (lines,)
    shown = (visible(line, keep_tabs=True).expandtabs(TAB) for line in lines)
    return Text("\n".join(shown), style=style, overflow="fold", no_wrap=False)


def width_of(text: str) -> int:
    """Returns the number of terminal cells that ``text`` takes; a wide character takes two."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Returns ``text`` in exactly ``width`` cells: padded, or cut in the middle, where names differ least.

    Args:
        text: Text without control characters.
        width: Cells to fill; 0 or more.
        right: Pad on the left, for numbers.
    """
    length = width_of(text)
    if length > width:
        text = _cut_middle(text, width)
        length = width_of(text)
    padding = " " * (width - length)
    return padding + text if right else text + padding


def _cut_middle(text: str, width: int) -> str:
    if width <= 1:
        return ELLIPSIS[:width]
    head = width // 2
    tail = width - 1 - head
    return set_cell_size(text, head) + ELLIPSIS + _last_cells(text, tail)


def _last_cells(text: str, cells: int) -> str:
    """Returns the end of ``text`` in exactly ``cells`` cells; a wide character that would be halved becomes a blank."""
    taken = 0
    start = len(text)
    while start > 0:
        step = cell_len(text[start - 1])
        if taken + step > cells:
            break
        taken += step
        start -= 1
    return " " * (cells - taken) + text[start:]

"""Panels and small tables of a Result as text, for places that scroll as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from precision_tool.render import cell_text
from precision_tool.result import Block, Panel, Result, Table
from tui.literal import fit, literal
from tui.widgets.result_table import SIGNS
from tui.widgets.table_view import GAP, TableView, header

LONGEST_TABLE = 1000
"""Rows of a table that are written out as text; longer ones belong into a ResultTable."""

_SHOWN_FILES = 20


class BlockText(Static):
    """One panel or table as text with a titled frame; wraps panels, fits tables to the width."""

    def __init__(self, block: Block) -> None:
        super().__init__(markup=False, classes="block" if block.title else "block -bare")
        self.block = block
        if block.title:
            self.border_title = literal(block.title)

    def render(self) -> Text:
        """Lays the block out for the present width."""
        if isinstance(self.block, Panel):
            return literal(self.block.lines)
        return table_text(self.block, max(self.size.width, 20))


class BlockList(VerticalScroll):
    """Blocks below each other, scrolled together."""

    def __init__(self, blocks: Sequence[Block] = (), *, id: str | None = None) -> None:  # noqa: A002  as all widgets
        super().__init__(*map(BlockText, blocks), id=id)

    async def show(self, blocks: Sequence[Block]) -> None:
        """Replaces the blocks."""
        await self.remove_children()
        await self.mount_all(map(BlockText, blocks))
        self.scroll_home(animate=False)


def notes_of(result: Result) -> list[Block]:
    """Returns the talk of a result as lines without a frame, nothing where there is none."""
    more = len(result.files) - _SHOWN_FILES
    wrote = [f"wrote {path}" for path in result.files[:_SHOWN_FILES]]
    wrote += [f"wrote {more} more files"] if more > 0 else []
    notes = (*(f"note: {note}" for note in result.notes), *wrote)
    return [Panel("", notes)] if notes else []


def table_text(table: Table, width: int) -> Text:
    """Returns a table as lines of at most ``width`` cells, as far as its numbers allow; a sign stands for each mark."""
    view = TableView(table)
    prefix = 2 if table.marks else 0
    widths = view.widths(width - prefix)
    gap = " " * GAP

    def line(cells: Sequence[str]) -> str:
        return gap.join(
            fit(cell, widths[column], right=view.is_numeric(column)) for column, cell in enumerate(cells)
        ).rstrip()

    text = Text(no_wrap=True)
    text.append(" " * prefix + line([header(name) for name in table.columns]), style="bold")
    for index, row in enumerate(table.rows[:LONGEST_TABLE]):
        sign = SIGNS.get(table.marks.get(index, ""), " ") + " " if table.marks else ""
        text.append("\n" + sign + line([cell_text(cell) for cell in row]))
    if len(table.rows) > LONGEST_TABLE:
        text.append(f"\n({len(table.rows) - LONGEST_TABLE} more rows)")
    return text

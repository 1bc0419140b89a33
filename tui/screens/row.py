"""RowScreen: one row of a table with nothing cut, over the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from precision_tool.render import cell_text, visible
from precision_tool.result import Cell, Panel
from tui.widgets.blocks import BlockList


class RowScreen(ModalScreen[None]):
    """Shows each column of a row in full, long names wrapped.

    Args:
        title: Title of the frame.
        cells: Column names and cells.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,v,enter", "dismiss", "Close", key_display="Esc")]

    def __init__(self, title: str, cells: Sequence[tuple[str, Cell]]) -> None:
        super().__init__()
        width = max((len(visible(name)) for name, _ in cells), default=0)
        lines = tuple(f"{visible(name):<{width}}  {cell_text(cell)}" for name, cell in cells)
        self._panel = Panel(title, lines)

    def compose(self) -> ComposeResult:
        """The row, one column a line."""
        yield BlockList([self._panel])

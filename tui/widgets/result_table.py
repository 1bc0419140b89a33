"""ResultTable: shows a Table of any length. Draws only the lines on screen, so 20 000 rows open as fast as 20."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from precision_tool.render import cell_text
from precision_tool.result import Cell, Table
from tui.literal import fit
from tui.widgets.table_view import GAP, OP_COLUMNS, TYPE_COLUMNS, Sort, TableView, column_named, header

SIGNS = {"bad": "✗", "warn": "!", "good": "✓"}
"""The sign of a mark: colour alone would tell nothing without colour."""

POINTER = "›"
ARROWS = ("▲", "▼")
PREFIX = 3
"""Cells in front of a row: the pointer of the cursor, the sign, a blank."""


class ResultTable(ScrollView, can_focus=True):
    """A table with a row cursor and a chosen column.

    Args:
        table: The rows to show.
        id: Textual id.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "move_page(-1)", "Page up", show=False),
        Binding("pagedown", "move_page(1)", "Page down", show=False),
        Binding("home,g", "move_to(0)", "First row", show=False),
        Binding("end,G", "move_to(-1)", "Last row", show=False),
        Binding("left", "column(-1)", "Column left", show=False),
        Binding("right", "column(1)", "Column right", show=False),
        Binding("b", "jump_bad(1)", "Bad"),
        Binding("B", "jump_bad(-1)", "Bad row before", show=False),
        Binding("enter", "open", "Open"),
        Binding("s", "sort", "Sort"),
        Binding("c", "copy_name", "Copy"),
        Binding("C", "copy_cell", "Copy cell", show=False),
        Binding("v", "view", "Row in full", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "result-table--header",
        "result-table--column",
        "result-table--cursor",
        "result-table--bad",
        "result-table--warn",
        "result-table--good",
        "result-table--empty",
    }

    class Highlighted(Message):
        """The cursor stands on another row, or on none."""

        def __init__(self, table: ResultTable) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> ResultTable:
            """The table that sent it."""
            return self.table

    class Opened(Highlighted):
        """Enter or a double click on a row."""

    class Viewed(Highlighted):
        """The whole row is asked for, long names in full."""

    class Copied(Message):
        """A text went to the clipboard, as it is in the file."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, table: Table, *, id: str | None = None) -> None:  # noqa: A002  as all widgets
        super().__init__(id=id)
        self.view = TableView(table)
        self._position = 0
        self._column = 0
        self._name_column = column_named(table, OP_COLUMNS)
        self._type_column = column_named(table, TYPE_COLUMNS)
        self._widths: tuple[int, ...] = ()

    @property
    def table(self) -> Table:
        """The rows shown."""
        return self.view.table

    @property
    def row(self) -> int | None:
        """Index in the table of the row under the cursor, None where nothing is shown."""
        order = self.view.order
        return order[self._position] if self._position < len(order) else None

    @property
    def position(self) -> int:
        """Where the cursor stands among the rows shown, from 0."""
        return self._position

    @property
    def column(self) -> int:
        """The chosen column: what ``s`` sorts by and ``C`` copies."""
        return self._column

    @property
    def op_name(self) -> str | None:
        """The original name of the op under the cursor, None where the table names none."""
        return self._text_at(self._name_column)

    @property
    def op_type(self) -> str | None:
        """The op type in the row under the cursor, None where the table tells none."""
        return self._text_at(self._type_column)

    @property
    def names_ops(self) -> bool:
        """True where a column of the table names ops."""
        return self._name_column is not None

    @property
    def op_names(self) -> tuple[str, ...]:
        """The ops that the table names, each once, in order."""
        if self._name_column is None:
            return ()
        cells = (row[self._name_column] for row in self.table.rows)
        return tuple(dict.fromkeys(cell for cell in cells if isinstance(cell, str) and cell))

    def filter(self, needle: str) -> None:
        """Shows the rows that hold every word of ``needle``, whatever their case; '' shows all."""
        with self._same_row():
            self.view.filter(needle)

    def sort_by(self, sort: Sort | None) -> None:
        """Puts the rows in another order; the cursor stays on its row. None is the order of the table."""
        with self._same_row():
            self.view.sort_by(sort)

    # --- keys and mouse

    def action_move(self, rows: int) -> None:
        """Moves the cursor by some rows."""
        self._go_to(self._position + rows)

    def action_move_page(self, pages: int) -> None:
        """Moves the cursor by screens full of rows."""
        self._go_to(self._position + pages * max(1, self.size.height - 2))

    def action_move_to(self, position: int) -> None:
        """Moves the cursor to the first (0) or last (-1) row shown."""
        self._go_to(position if position >= 0 else len(self.view.order) + position)

    def action_jump_bad(self, step: int) -> None:
        """Moves the cursor to the next (1) or the previous (-1) row that is marked bad."""
        order, marks = self.view.order, self.table.marks
        ahead = range(self._position + 1, len(order)) if step > 0 else range(self._position - 1, -1, -1)
        position = next((index for index in ahead if marks.get(order[index]) == "bad"), None)
        if position is not None:
            self._go_to(position)

    def action_column(self, step: int) -> None:
        """Chooses the next column and brings it on screen."""
        column = self._column + step
        while 0 <= column < len(self._widths) and not self._widths[column]:
            column += step
        if 0 <= column < len(self._widths):
            self._column = column
        self._show_column()
        self.refresh()

    def action_sort(self) -> None:
        """Sorts by the chosen column: up, then down, then the order of the table again."""
        current = self.view.sort
        if current is None or current.column != self._column:
            self.sort_by(Sort(self._column))
        elif not current.descending:
            self.sort_by(Sort(self._column, descending=True))
        else:
            self.sort_by(None)

    def action_open(self) -> None:
        """Opens the op under the cursor."""
        if self.row is not None:
            self.post_message(self.Opened(self))

    def action_view(self) -> None:
        """Shows the row under the cursor with nothing cut."""
        if self.row is not None:
            self.post_message(self.Viewed(self))

    def action_copy_name(self) -> None:
        """Copies the name of the op, or the chosen cell where the table names no op."""
        name = self.op_name
        if name is None:
            self.action_copy_cell()
        else:
            self._copy(name)

    def action_copy_cell(self) -> None:
        """Copies the chosen cell: the original text, not the escaped and shortened one."""
        if self.row is not None and self.table.columns:
            cell = self.table.rows[self.row][self._column]
            self._copy(cell if isinstance(cell, str) else cell_text(cell))

    def on_click(self, event: events.Click) -> None:
        """A click on the header sorts, one on a row moves the cursor, two open the op."""
        column = self._column_at(event.x + self.scroll_offset.x)
        if column is not None:
            self._column = column
        if event.y == 0:
            self.action_sort()
            return
        position = event.y - 1 + self.scroll_offset.y
        if position < len(self.view.order):
            self._go_to(position)
            if event.chain == 2:
                self.action_open()

    def on_mount(self) -> None:
        """Tells the screen which row the cursor starts on."""
        super().on_mount()  # type: ignore[no-untyped-call]
        self._lay_out()
        self.post_message(self.Highlighted(self))

    def on_resize(self) -> None:
        """Shares the width among the columns again and keeps the cursor on screen."""
        self._lay_out()
        self._show_position()

    # --- drawing

    def render_line(self, y: int) -> Strip:
        """Draws one line of the screen: the header, a row, or nothing."""
        width = self.size.width
        base = self.rich_style
        if y == 0:
            segments = self._header()
        else:
            position = y - 1 + self.scroll_offset.y
            if position >= len(self.view.order):
                return self._blank(y, width, base)
            segments = self._row(position)
        style = segments[-1].style or base
        return Strip(segments).crop_extend(self.scroll_offset.x, self.scroll_offset.x + width, style)

    def _blank(self, y: int, width: int, base: Style) -> Strip:
        if y != 1:
            return Strip.blank(width, base)
        text = "no row holds the filter's words" if self.view.needle else "no rows"
        style = self.get_component_rich_style("result-table--empty")
        return Strip([Segment(fit(" " * PREFIX + text, width), style)])

    def _header(self) -> list[Segment]:
        plain = self.get_component_rich_style("result-table--header")
        chosen = plain + Style(underline=True)
        segments = [Segment(" " * PREFIX, plain)]
        sort = self.view.sort
        for column, name in enumerate(self.table.columns):
            if not self._widths[column]:
                continue
            text = fit(header(name), self._widths[column], right=self.view.is_numeric(column))
            segments.append(Segment(text, chosen if column == self._column and self.has_focus else plain))
            arrow = " " if sort is None or sort.column != column else ARROWS[sort.descending]
            segments.append(Segment(fit(arrow, GAP), plain))
        return segments

    def _row(self, position: int) -> list[Segment]:
        row = self.view.order[position]
        mark = self.table.marks.get(row, "")
        under_cursor = position == self._position
        sign_style = self._style(mark, under_cursor=under_cursor)
        style = self._style("" if mark == "good" else mark, under_cursor=under_cursor)
        pointer = POINTER if under_cursor else " "
        segments = [Segment(pointer + SIGNS.get(mark, " ") + " ", sign_style)]
        for column, cell in enumerate(self.table.rows[row]):
            if not self._widths[column]:
                continue
            text = fit(cell_text(cell), self._widths[column], right=self.view.is_numeric(column))
            chosen = under_cursor and column == self._column and self.has_focus
            segments.append(Segment(text, style + Style(underline=True) if chosen else style))
            segments.append(Segment(" " * GAP, style))
        return segments

    def _style(self, mark: str, *, under_cursor: bool) -> Style:
        names = [f"result-table--{mark}"] if mark in SIGNS else []
        style = self.get_component_rich_style(*names, partial=True) if names else Style()
        if under_cursor:
            style += self.get_component_rich_style("result-table--cursor", partial=True)
        return self.rich_style + style

    # --- state

    @contextmanager
    def _same_row(self) -> Iterator[None]:
        """Keeps the cursor on its row while the rows are arranged anew."""
        before = self.row
        yield
        position = None if before is None else self.view.position_of(before)
        self._position = 0 if position is None else position
        self._lay_out()
        self._show_position()
        self.refresh()
        if self.row != before:
            self.post_message(self.Highlighted(self))

    def _lay_out(self) -> None:
        self._widths = self.view.widths(self.scrollable_content_region.width - PREFIX)
        if self._widths and not self._widths[self._column]:
            self._column = next(column for column, width in enumerate(self._widths) if width)
        total = self._start_of(len(self._widths)) - (GAP if any(self._widths) else 0)
        self.virtual_size = Size(total, len(self.view.order) + 1)
        self.refresh()

    def _go_to(self, position: int) -> None:
        last = len(self.view.order) - 1
        position = min(max(position, 0), max(last, 0))
        if position == self._position:
            return
        self._position = position
        self._show_position()
        self.refresh()
        self.post_message(self.Highlighted(self))

    def _show_position(self) -> None:
        lines = max(1, self.size.height - 1)  # the header takes one
        top = self.scroll_offset.y
        if self._position < top:
            self.scroll_to(y=self._position, animate=False, immediate=True)
        elif self._position >= top + lines:
            self.scroll_to(y=self._position - lines + 1, animate=False, immediate=True)

    def _show_column(self) -> None:
        start = self._start_of(self._column)
        end = start + self._widths[self._column] if self._widths else start
        left = self.scroll_offset.x
        if self._column == 0:
            self.scroll_to(x=0, animate=False, immediate=True)
        elif start < left:
            self.scroll_to(x=start, animate=False, immediate=True)
        elif end > left + self.size.width:
            self.scroll_to(x=end - self.size.width, animate=False, immediate=True)

    def _start_of(self, column: int) -> int:
        return PREFIX + sum(width + GAP for width in self._widths[:column] if width)

    def _column_at(self, x: int) -> int | None:
        for column, width in enumerate(self._widths):
            start = self._start_of(column)
            if width and start <= x < start + width + GAP:
                return column
        return None

    def _text_at(self, column: int | None) -> str | None:
        row = self.row
        if row is None or column is None:
            return None
        cell = self.table.rows[row][column]
        return cell if isinstance(cell, str) and cell else None

    def _copy(self, text: str) -> None:
        self.app.copy_to_clipboard(text)
        self.post_message(self.Copied(text))


def row_in_full(table: Table, row: int) -> tuple[tuple[str, Cell], ...]:
    """Returns a row as column name and cell, for a view that cuts nothing."""
    return tuple(zip(table.columns, table.rows[row], strict=True))

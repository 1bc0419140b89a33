"""Which rows of a Table are shown, in which order, and how wide each column is. No widget: plain values in and out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from precision_tool.render import cell_text, visible
from precision_tool.result import Cell, Table
from tui.literal import width_of

GAP = 2
"""Cells between two columns: blank, in the header also the arrow of the sort."""

NARROWEST = 8
NARROWEST_OP = 20
"""Text columns, the one of the op's name, are not squeezed below this many cells."""

DISPENSABLE = (
    "groundtruth",
    "shape",
    "differing",
    "requiredatol",
    "requiredrtol",
    "stream",
    "task",
    "optype",
    "type",
    "reason",
    "note",
)
"""Columns that leave a narrow screen, the first one first. ``v`` shows them."""

OP_COLUMNS = ("op", "op name", "npudump", "leftop", "left", "name")
"""Column names that hold the name of an op which ``ni`` knows, the best first."""


TYPE_COLUMNS = ("optype", "op type", "type")
"""Column names that hold an op type."""


SHORT = {
    "CosineSimilarity": "Cosine",
    "MaxAbsoluteError": "MaxAbsErr",
    "RelativeEuclideanDistance": "RelDist",
    "GroundTruth": "Reference",
    "Differing": "Differ",
    "RequiredAtol": "Atol",
    "RequiredRtol": "Rtol",
}
"""Headers that are wider than what stands under them. ``v`` shows a row with the full ones."""


def header(column: str) -> str:
    """Returns what stands above a column."""
    return SHORT.get(column, visible(column))


def column_named(table: Table, wanted: Sequence[str]) -> int | None:
    """Returns the first column with one of the names, whatever its case; None where the table has none of them."""
    lowered = [name.lower() for name in table.columns]
    return next((lowered.index(name) for name in wanted if name in lowered), None)


@dataclass(frozen=True)
class Sort:
    """An order of rows: by one column, up or down."""

    column: int
    descending: bool = False


class TableView:
    """A filtered and sorted view on a Table.

    Attributes:
        table: The rows.
        order: Indices of the rows shown, in the order to show.
        sort: The order asked for, None for the table's own.
        needle: The filter asked for, '' for none.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.order: Sequence[int] = range(len(table.rows))
        self.sort: Sort | None = None
        self.needle = ""
        self._op_column = column_named(table, OP_COLUMNS)
        self._numeric = tuple(_is_numeric(table, column) for column in range(len(table.columns)))
        self._natural = tuple(self._natural_width(column) for column in range(len(table.columns)))
        self._haystack: list[str] | None = None

    def is_numeric(self, column: int) -> bool:
        """True where a column holds numbers and missing values only; it is aligned to the right and never cut."""
        return self._numeric[column]

    def filter(self, needle: str) -> None:
        """Shows the rows that hold every word of ``needle``, whatever their case; '' shows every row."""
        self.needle = needle
        self._arrange()

    def sort_by(self, sort: Sort | None) -> None:
        """Shows the rows in another order; None is the table's own."""
        self.sort = sort
        self._arrange()

    def _arrange(self) -> None:
        rows = self._matching()
        self.order = rows if self.sort is None else self._sorted(rows, self.sort)

    def widths(self, available: int) -> tuple[int, ...]:
        """Returns the cells of each column so that all fit into ``available`` where that is possible; 0 hides a column.

        Numbers keep their width. Text columns share what is left: a long name is cut, a short one takes no more than it
        needs. Where even the narrowest form does not fit, the columns that say least leave, one after the other.
        """
        shown = dict.fromkeys(range(len(self._natural)))
        least = {column: self._least_width(column) for column in shown}
        for name in DISPENSABLE:
            if len(shown) < 2 or _total(least[column] for column in shown) <= available:
                break
            hidden = column_named(self.table, (name,))
            if hidden is not None:
                shown.pop(hidden, None)
        room = available - _total(least[column] for column in shown)
        wanted = {column: self._natural[column] - least[column] for column in shown}
        extra = self._extra(wanted, max(room, 0))
        return tuple(least[column] + extra[column] if column in shown else 0 for column in least)

    def position_of(self, row: int) -> int | None:
        """Returns where a row of the table is shown, None where the filter hides it."""
        if isinstance(self.order, range):
            return row if row in self.order else None
        try:
            return self.order.index(row)
        except ValueError:
            return None

    def _natural_width(self, column: int) -> int:
        longest = max((width_of(cell_text(row[column])) for row in self.table.rows), default=0)
        return max(longest, width_of(header(self.table.columns[column])))

    def _extra(self, wanted: Mapping[int, int], room: int) -> dict[int, int]:
        """Gives the name of the op up to two thirds of the room before the others get their shares."""
        op = self._op_column
        if op is None or op not in wanted:
            return _share(wanted, room)
        first = min(wanted[op], room * 2 // 3)
        extra = _share({**wanted, op: wanted[op] - first}, room - first)
        return {**extra, op: extra[op] + first}

    def _least_width(self, column: int) -> int:
        if self._numeric[column]:
            return self._natural[column]
        floor = NARROWEST_OP if column == self._op_column else NARROWEST
        return min(self._natural[column], floor)

    def _matching(self) -> Sequence[int]:
        words = self.needle.lower().split()
        if not words:
            return range(len(self.table.rows))
        if self._haystack is None:
            self._haystack = ["\n".join(map(cell_text, row)).lower() for row in self.table.rows]
        return [index for index, text in enumerate(self._haystack) if all(word in text for word in words)]

    def _sorted(self, rows: Sequence[int], sort: Sort) -> list[int]:
        """Sorts; rows without a value come last in both directions, for no value is neither small nor large."""
        cells = self.table.rows
        known = [row for row in rows if not _is_missing(cells[row][sort.column])]
        missing = [row for row in rows if _is_missing(cells[row][sort.column])]
        known.sort(key=lambda row: _order_key(cells[row][sort.column]), reverse=sort.descending)
        return known + missing


def _is_missing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _order_key(cell: Cell) -> tuple[int, float, str]:
    if isinstance(cell, (int, float)):
        return (0, cell, "")
    return (1, 0.0, str(cell).lower())


def _is_numeric(table: Table, column: int) -> bool:
    seen = False
    for row in table.rows:
        cell = row[column]
        if cell is None:
            continue
        if isinstance(cell, (bool, str)):
            return False
        seen = True
    return seen


def _total(widths: Iterable[int]) -> int:
    """Returns the cells of columns with the gaps between them."""
    each = list(widths)
    return sum(each) + GAP * max(0, len(each) - 1)


def _share(wanted: Mapping[int, int], room: int) -> dict[int, int]:
    """Shares ``room`` cells: who wants less than an even share gets all of it, the others get even shares."""
    given: dict[int, int] = {}
    left = len(wanted)
    for column, want in sorted(wanted.items(), key=lambda item: item[1]):
        given[column] = min(want, room // left)
        room -= given[column]
        left -= 1
    return given

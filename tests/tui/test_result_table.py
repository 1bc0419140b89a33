"""The table at twenty thousand rows, with wide characters, at several sizes (field case FC25)."""

from __future__ import annotations

from collections import Counter

import pytest
from rich.cells import cell_len
from textual.app import App

from precision_tool.result import Table
from tui.widgets.result_table import SIGNS, ResultTable
from tui.widgets.table_view import GAP, Sort, TableView

ROWS = 20_000
LONG = "tower/" * 49 + "MatMul"
WIDE = "塔/矩阵乘法/表格_" * 3 + "终"


def big_table() -> Table:
    """Twenty thousand rows, one name of 300 characters, one of wide characters."""
    names = [f"model/tower_{i % 97}/dense_{i}/MatMul" for i in range(ROWS)]
    names[5], names[7] = LONG, WIDE
    rows = tuple(
        (i, "MatMulV2", name, 1 - (i * 7919 % ROWS) / 1e6, float(i * 31 % 1009), "") for i, name in enumerate(names)
    )
    return Table("all", ("Index", "OpType", "Op", "Cosine", "MaxAbsError", "Note"), rows, {9: "bad", 10: "warn"})


class Alone(App[None]):
    """Nothing but the table."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.shown = ResultTable(table)
        self.highlighted: list[int | None] = []

    def compose(self):
        """The table."""
        yield self.shown

    def on_mount(self):
        """With the keyboard."""
        self.shown.focus()

    def on_result_table_highlighted(self, event):
        """Notes each row told."""
        self.highlighted.append(event.table.row)


@pytest.fixture(scope="module")
def big():
    return big_table()


def lines(app):
    return [strip.text for strip in app.screen._compositor.render_strips()]


@pytest.fixture
def drawn(monkeypatch):
    """Counts rows that are drawn and times that all rows are put in order: what makes a large table slow."""
    found = Counter()

    def counted(kind, name):
        plain = getattr(kind, name)

        def call(self, *given):
            found[name] += 1
            return plain(self, *given)

        monkeypatch.setattr(kind, name, call)

    counted(ResultTable, "_row")
    counted(TableView, "_arrange")
    return found


SCREENS = 4 * 40
"""Rows that one action may draw, on a screen of 40 lines."""


async def test_of_twenty_thousand_rows_only_those_on_screen_are_drawn(big, drawn):
    app = Alone(big)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "model/tower_0/dense_0/MatMul" in "\n".join(lines(app))
        assert app.shown.virtual_size.height == ROWS + 1
        assert 30 < drawn["_row"] <= SCREENS


async def test_keys_filter_and_sort_draw_a_screen_and_order_once(big, drawn):
    app = Alone(big)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for key, orders in (("down", 0), ("pagedown", 0), ("end", 0), ("home", 0), ("s", 1)):
            drawn.clear()
            await pilot.press(key)
            await pilot.pause()
            assert 0 < drawn["_row"] <= SCREENS, key
            assert drawn["_arrange"] == orders, key
        drawn.clear()
        app.shown.filter("dense_19999 matmul")
        await pilot.pause()
        assert drawn["_arrange"] == 1
        assert len(app.shown.view.order) == 1


async def test_the_cursor_stays_on_its_tensor_and_on_screen(big):
    app = Alone(big)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*["down"] * 9)
        for sort in (Sort(3), Sort(3, descending=True), Sort(4), None):
            app.shown.sort_by(sort)
            await pilot.pause()
            assert app.shown.row == 9
            name = f" {big.rows[9][2]} "
            assert sum(name in line and line.startswith("›") for line in lines(app)) == 1
        app.shown.filter("dense_9/")
        assert app.shown.row == 9
        app.shown.filter("")
        assert app.shown.row == 9


async def test_a_filtered_out_row_gives_the_cursor_to_the_first_left(big):
    app = Alone(big)
    async with app.run_test() as pilot:
        await pilot.pause()
        app.shown.filter("dense_77/")
        await pilot.pause()
        assert app.shown.row == 77
        assert app.highlighted[-1] == 77


@pytest.mark.parametrize("width", [80, 200])
async def test_columns_stay_straight_at_any_width_and_after_a_resize(big, width):
    app = Alone(big)
    async with app.run_test(size=(120, 20)) as pilot:
        await pilot.resize_terminal(width, 20)
        await pilot.pause()
        shown = lines(app)
        assert all(cell_len(line) == width for line in shown)
        cosine = app.shown._start_of(3) + app.shown._widths[3]
        for line in shown[1:15]:
            cells = [char for char in line for _ in range(cell_len(char))]
            assert cells[cosine - 1].isdigit()
            assert "".join(cells[cosine : cosine + GAP]).isspace()


async def test_a_long_name_is_cut_in_the_middle(big):
    app = Alone(big)
    async with app.run_test(size=(120, 20)) as pilot:
        await pilot.pause()
        line = lines(app)[6]
        assert "tower/tower/" in line
        assert "…" in line
        assert "/MatMul " in line
        assert app.shown.table.rows[5][2] == LONG


async def test_marks_have_signs(big):
    app = Alone(big)
    async with app.run_test(size=(120, 20)) as pilot:
        await pilot.pause()
        assert lines(app)[10][1] == SIGNS["bad"]
        assert lines(app)[11][1] == SIGNS["warn"]
        assert lines(app)[9][1] == " "


async def test_the_last_row_can_be_reached_and_seen(big):
    app = Alone(big)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("end")
        assert app.shown.row == ROWS - 1
        assert "19999" in lines(app)[-1]
        await pilot.press("down", "pagedown")
        assert app.shown.row == ROWS - 1
        await pilot.press("home", "up")
        assert app.shown.row == 0
        assert "dense_0/" in lines(app)[1]


async def test_mouse_moves_sorts_and_opens(big):
    app = Alone(big)
    opened = []
    app.on_result_table_opened = lambda event: opened.append(event.table.op_name)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.click(ResultTable, offset=(20, 4))
        assert app.shown.row == 3
        await pilot.click(ResultTable, offset=(app.shown._start_of(3) + 1, 0))
        assert app.shown.view.sort == Sort(3)
        assert app.shown.row == 3


async def test_too_many_numbers_scroll_sideways_with_the_chosen_column():
    columns = tuple(f"figure_{i}" for i in range(20))
    table = Table("t", columns, tuple(tuple(float(r * 20 + c) for c in range(20)) for r in range(3)))
    app = Alone(table)
    async with app.run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        assert "figure_19" not in lines(app)[0]
        await pilot.press(*["right"] * 19)
        await pilot.pause()
        assert "figure_19" in lines(app)[0]
        assert app.shown.column == 19
        await pilot.press(*["left"] * 25)
        await pilot.pause()
        assert app.shown.column == 0
        assert lines(app)[0].startswith("   figure_0")


@pytest.mark.parametrize("table", [Table("t", ("Op",), ()), Table("t", (), ())])
async def test_an_empty_table_takes_every_key(table):
    app = Alone(table)
    async with app.run_test() as pilot:
        await pilot.press("down", "end", "home", "right", "s", "c", "C", "v", "enter", "pagedown")
        assert "no rows" in lines(app)[1]
        assert app.shown.row is None

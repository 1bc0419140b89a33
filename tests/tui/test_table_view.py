"""Filter, order and widths of rows, without any widget."""

from __future__ import annotations

import math

import pytest

from precision_tool.result import Table
from tui.widgets.table_view import GAP, OP_COLUMNS, TYPE_COLUMNS, Sort, TableView, column_named


def table(*rows, columns=("Op", "Cosine")):
    return Table("t", columns, rows)


def test_all_rows_in_the_order_of_the_table():
    view = TableView(table(("b", 1.0), ("a", 2.0)))
    assert list(view.order) == [0, 1]


def test_sorts_numbers_as_numbers():
    view = TableView(table(("a", 10), ("b", 9.5), ("c", -1)))
    view.sort_by(Sort(1))
    assert list(view.order) == [2, 1, 0]


@pytest.mark.parametrize("descending", [False, True])
def test_rows_without_a_value_come_last_both_ways(descending):
    view = TableView(table(("a", None), ("b", 0.5), ("c", math.nan), ("d", -3.0)))
    view.sort_by(Sort(1, descending=descending))
    assert list(view.order) == ([1, 3, 0, 2] if descending else [3, 1, 0, 2])


def test_infinities_are_values():
    view = TableView(table(("a", math.inf), ("b", 0.5), ("c", -math.inf)))
    view.sort_by(Sort(1))
    assert list(view.order) == [2, 1, 0]


def test_equal_rows_keep_the_order_of_the_table():
    view = TableView(table(("a", 1.0), ("b", 1.0), ("c", 1.0)))
    view.sort_by(Sort(1))
    assert list(view.order) == [0, 1, 2]


def test_no_sort_is_the_order_of_the_table_again():
    view = TableView(table(("b", 1.0), ("a", 2.0)))
    view.sort_by(Sort(0))
    assert list(view.order) == [1, 0]
    view.sort_by(None)
    assert list(view.order) == [0, 1]


def test_filter_wants_every_word_in_any_case_and_column():
    view = TableView(table(("dense/MatMul", 0.5), ("dense/Add", 0.25), ("out/MatMul", 0.25)))
    view.filter("MATMUL dense")
    assert list(view.order) == [0]
    view.filter("0.25 matmul")
    assert list(view.order) == [2]
    view.filter("  ")
    assert list(view.order) == [0, 1, 2]


def test_filter_finds_what_is_shown_of_control_characters():
    view = TableView(table(("x\x1b[2J", 1.0), ("y", 1.0)))
    view.filter(r"\x1b")
    assert list(view.order) == [0]


def test_filter_keeps_the_sort():
    view = TableView(table(("a1", 3.0), ("b1", 1.0), ("a2", 2.0)))
    view.sort_by(Sort(1))
    view.filter("a")
    assert list(view.order) == [2, 0]


def test_position_of_a_hidden_row_is_none():
    view = TableView(table(("a", 1.0), ("b", 1.0)))
    assert view.position_of(1) == 1
    view.filter("a")
    assert view.position_of(1) is None
    assert view.position_of(0) == 0


def test_numbers_are_never_cut_and_names_share_the_rest():
    view = TableView(table(("n" * 300, 0.123456, "short"), columns=("Op", "Cosine", "Note")))
    widths = view.widths(60)
    assert widths[1] == len("0.123456")
    assert widths[2] == len("short")
    assert sum(widths) + 2 * GAP == 60


def test_a_wide_screen_shows_everything():
    view = TableView(table(("n" * 300, 0.5)))
    assert view.widths(500) == (300, len("Cosine"))


def test_wide_characters_count_two_cells():
    assert TableView(table(("表格", 0.5))).widths(100)[0] == 4


def test_a_table_without_rows_or_columns():
    assert TableView(Table("t", ("a", "b"), ())).widths(10) == (1, 1)
    assert TableView(Table("t", (), ())).widths(10) == ()


@pytest.mark.parametrize(
    ("columns", "op", "op_type"),
    [
        (("Index", "OpType", "NPUDump", "GroundTruth"), 2, 1),
        (("Index", "Op type", "Op", "Name"), 2, 1),
        (("Type", "Name", "File"), 1, 0),
        (("OpType", "Count"), None, 0),
        (("Index", "Data"), None, None),
    ],
)
def test_columns_are_found_by_name(columns, op, op_type):
    empty = Table("t", columns, ())
    assert column_named(empty, OP_COLUMNS) == op
    assert column_named(empty, TYPE_COLUMNS) == op_type


def test_a_narrow_screen_loses_the_columns_that_say_least():
    columns = ("Index", "OpType", "Op", "GroundTruth", "Tensor", "Shape", "CosineSimilarity", "MaxAbsoluteError",
               "RelativeEuclideanDistance", "Reason")  # fmt: skip
    row = (12, "MatMulV2", "a/long/scope/MatMul", "a/long/scope/MatMul", "output:0", "[1, 2]", 0.123456, 1.23456e-07,
           1.23456e-07, "a reason of some length")  # fmt: skip
    view = TableView(Table("t", columns, (row,)))
    narrow = view.widths(75)
    shown = [name for name, width in zip(columns, narrow, strict=True) if width]
    assert shown == [
        "Index", "Op", "Tensor", "CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance"
    ]  # fmt: skip
    assert sum(narrow) + GAP * (len(shown) - 1) <= 75
    assert narrow[2] == len("a/long/scope/MatMul")
    assert all(view.widths(200))


def test_room_is_shared_evenly_among_those_that_want_it():
    view = TableView(table(("a" * 40, "b" * 40, "c" * 10), columns=("X", "Y", "Z")))
    assert view.widths(60 + 2 * GAP) == (25, 25, 10)

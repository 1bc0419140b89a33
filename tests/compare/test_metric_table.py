"""The users' own program, measured on fourteen pairs: our columns print the same, or the page on metrics says why."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compare.metrics import COLUMNS, compare_arrays
from compare.table import format_figure

# x, y, dtype and what the program printed, column by column.
MEASURED = [
    (
        *("1 2 3 4", "1 2 3 5", "float32"),
        "0.993999 1.000000 0.200000 0.160128 0.010310 (2.500;1.118),(2.750;1.479) 0.250000 0.500000 0.200000 0.050000",
    ),
    (
        *("1 2 3 4", "1 0 3 4", "float32"),
        "0.930949 2.000000 0.000000 0.392232 2.434700 (2.500;1.118),(2.000;1.581) 0.500000 1.000000 0.000000 0.000000",
    ),
    (*("1 nan 3 4", "1 2 3 4", "float32"), "nan nan nan nan nan (nan;nan),(2.500;1.118) nan nan nan nan"),
    (
        *("1 2 3 4", "1 nan 3 4", "float32"),
        "nan nan 0.000000 nan nan (2.500;1.118),(nan;nan) nan nan 0.000000 0.000000",
    ),
    (
        *("1 2 3 4", "1 inf 3 4", "float32"),
        "nan inf 1.000000 nan nan (2.500;1.118),(inf;nan) inf inf 1.000000 0.250000",
    ),
    (
        *("0 0", "0 0", "float32"),
        "1.0 0.000000 0.000000 0.000000 0.000000 (0.000;0.000),(0.000;0.000) 0.000000 0.000000 0.000000 0.000000",
    ),
    (
        *("0 0", "1 2", "float32"),
        "NaN 2.000000 2.000000 1.000000 7.278046 (0.000;0.000),(1.500;0.500) 1.500000 1.581139 1.000000 1.000000",
    ),
    (
        *("1 2", "0 0", "float32"),
        "NaN 2.000000 0.000000 0.000000 0.693145 (1.500;0.500),(0.000;0.000) 1.500000 1.581139 0.000000 0.000000",
    ),
    (
        *("5", "7", "float32"),
        "1.000000 2.000000 0.285714 0.285714 0.000000 (5.000;0.000),(7.000;0.000) 2.000000 2.000000 0.285714 0.285714",
    ),
    (
        *("1 2 3", "-1 -2 -3", "float32"),
        "-1.000000 6.000000 6.000000 2.000000 10.628255 (2.000;0.816),(-2.000;0.816) 4.000000 4.320494 2.000000 "
        "2.000000",
    ),
    (
        *("1.5 3 4.5", "1 2 3", "float32"),
        "1.000000 1.500000 1.500000 0.500000 0.000000 (3.000;1.225),(2.000;0.816) 1.000000 1.080123 0.500000 0.500000",
    ),
    (
        *("1 2 3", "1 2 4", "int64"),
        "0.991460 1.000000 0.250000 0.218218 0.017372 (2.000;0.816),(2.333;1.247) 0.333333 0.577350 0.250000 0.083333",
    ),
    (*("T F T", "T T T", "bool"), "0.816497 NaN NaN NaN NaN NaN NaN NaN NaN NaN"),
    (*("shape [0]", "shape [0]", "float32"), "1.0 NaN 0.000000 0.000000 NaN (nan;nan),(nan;nan) nan nan NaN nan"),
]


def stored(text, dtype):
    if text == "shape [0]":
        return np.zeros(0, dtype)
    return np.array([word == "T" if dtype == "bool" else float(word) for word in text.split()]).astype(dtype)


def pair_name(x, y):
    return f"`{x}` against `{y}`"


@pytest.fixture(scope="module")
def deviations(project_root):
    """The page's table: (pair, column) -> (the users' program, here)."""
    page = (project_root / "docs/reference/metrics.md").read_text(encoding="utf-8")
    section = page.split("## Where the columns differ from the old program")[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    found = {}
    for pair, columns, old, here, why in lines[2:]:
        assert len(why) > 20, "a reason is a sentence"
        for column in columns.split():
            assert (pair, column) not in found, "listed twice"
            found[pair, column] = (old, here)
    return found


@pytest.mark.parametrize(("x", "y", "dtype", "old"), MEASURED, ids=[f"{row[0]}-{row[1]}" for row in MEASURED])
def test_each_column_prints_what_the_program_printed_or_the_page_says_why(x, y, dtype, old, deviations):
    figures = compare_arrays(stored(x, dtype), stored(y, dtype))
    assert len(old.split()) == len(COLUMNS)
    for column, printed in zip(COLUMNS, old.split(), strict=True):
        value = figures.column(column)
        here = format_figure(value) if value is not None else f"undefined: {figures.reasons[column]}"
        # The program's NaN is our undefined figure: the reason stands beside it on both sides.
        agrees = here == printed or (printed == "NaN" and value is None)
        listed = deviations.get((pair_name(x, y), column))
        assert listed == (None if agrees else (printed, here)), column


def test_the_page_lists_nothing_else(deviations):
    known = {pair_name(x, y) for x, y, _, _ in MEASURED}
    assert {pair for pair, _ in deviations} <= known
    assert {column for _, column in deviations} <= set(COLUMNS)


def test_no_row_was_left_out(shared_data):
    """The rows above are those of the document the figures were published in."""
    document = shared_data.parent / "spec" / "commands.md"
    if not document.is_file():
        pytest.skip("the document with the measured figures is not here")
    table = document.read_text(encoding="utf-8").split("| x | y | result |")[1].split("Good values")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:3] != "|--"]
    published = [row for row in rows if len(row) == 3]
    assert len(published) == len(MEASURED)
    for (x, y, result), (our_x, our_y, _, printed) in zip(published, MEASURED, strict=True):
        assert (plain(x), plain(y)) == (our_x, our_y)
        if not re.match("all nan|0.816497, all others NaN", result):
            assert result.split(" + ")[0].split() == printed.split()


def plain(text):
    return text.replace(" (shape [1])", "").replace(" int64", "").replace(" bool", "")

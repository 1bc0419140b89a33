"""Names on screen: literal, one line, in exactly the cells they get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from precision_tool.render import visible
from tui.literal import fit, literal


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 6, "abcdef"),
        ("abcdefgh", 5, "ab…gh"),
        ("abcdefgh", 1, "…"),
        ("abcdefgh", 0, ""),
        ("表格表格表格", 7, "表 … 格"),
    ],
)
def test_fit_keeps_both_ends(text, width, shown):
    assert fit(text, width) == shown


def test_fit_pads_numbers_on_the_left():
    assert fit("0.98", 7, right=True) == "   0.98"


@given(st.text(max_size=60), st.integers(0, 30), st.booleans())
def test_fit_takes_exactly_its_cells_whatever_the_name(text, width, right):
    assert cell_len(fit(visible(text), width, right=right)) == width


def test_markup_and_controls_stay_what_they_are(odd_names):
    for name in odd_names:
        text = literal(name)
        assert text.spans == []
        assert text.plain == visible(name)
        assert text.plain.isprintable()


def test_lines_stay_lines_and_tabs_become_blanks():
    assert literal(["a\tb", "c\nd"]).plain == "a   b\nc\\nd"

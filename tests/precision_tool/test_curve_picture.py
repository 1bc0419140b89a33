"""The picture of two curves: every value in its place, in ASCII."""

from __future__ import annotations

import numpy as np
import pytest

from precision_tool.curve_picture import HEIGHT, WIDTH, draw_curves


def canvas(lines):
    return [line.split("|", 1)[1] for line in lines if "|" in line]


def test_corners():
    rows = canvas(draw_curves([1.0, 0.0], [0.0, 0.0], (5, 6)))
    assert len(rows) == HEIGHT
    assert rows[0] == "o"
    assert rows[-1] == "x*"
    assert all(row == "" for row in rows[1:-1])


@pytest.mark.parametrize("count", [1, 3, WIDTH, WIDTH + 1, 1000])
def test_any_length_fits(count):
    lines = draw_curves(np.linspace(1, 0, count).tolist(), np.linspace(0, 1, count).tolist(), (0, count - 1))
    assert all(line.isascii() for line in lines)
    assert max(map(len, canvas(lines))) == min(count, WIDTH)


def test_values_that_are_not_finite_stand_at_the_top():
    rows = canvas(draw_curves([0.5, float("nan"), 0.5], [0.5, 0.4, float("inf")], (0, 2)))
    assert rows[0] == "*!!"
    assert draw_curves([float("nan")], [float("nan")], (0, 0)) == ["no finite value to draw"]


def test_extremes_do_not_overflow():
    assert canvas(draw_curves([1.7e308, -1.7e308], [0.0, 0.0], (0, 1)))[0].startswith("o")

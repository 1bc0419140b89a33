"""Figures at the ends of what float64 holds."""

from __future__ import annotations

import numpy as np
import pytest

from compare.metrics import compare_arrays


@pytest.mark.parametrize(("left", "right"), [(-1000, 1000), (1000, -1000), (-1070, 1020)])
def test_a_factor_beyond_float64_is_not_named(left: int, right: int) -> None:
    values = np.array([1.0, 2, 3, -5])
    figures = compare_arrays(values * 2.0**left, values * 2.0**right)
    assert figures.pattern == ""
    assert figures.cosine == 1


def test_a_factor_that_float64_holds_is_named() -> None:
    values = np.array([1.0, 2, 3, -5])
    assert compare_arrays(values * 2.0**400, values * 2.0**-400).pattern.startswith("scaled by 6.66801e+240")


@pytest.mark.parametrize("units", [1, 3])
def test_a_subnormal_difference_beside_huge_values(units: int) -> None:
    figures = compare_arrays(np.array([1e308, units * 5e-324]), np.array([1e308, 0.0]))
    assert (figures.max_abs_error, figures.max_abs_index, figures.differing) == (units * 5e-324, 1, 1)


def test_a_difference_beyond_float64_beside_a_subnormal_one() -> None:
    figures = compare_arrays(np.array([1.5e308, 5e-324]), np.array([-1.5e308, 0.0]))
    assert figures.max_abs_error is None
    assert figures.max_abs_index == 0
    assert figures.mean_abs_error == 1.5e308

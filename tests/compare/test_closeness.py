from __future__ import annotations

import warnings

import numpy as np
import pytest

from compare.closeness import close_figures

NAN, INF = np.nan, np.inf


def test_figures_lists_and_limit():
    left, right = np.float32([1, 2, 3, 4]), np.float32([1, 2.5, 3, 5])
    found = close_figures(left, right, atol=1e-3, rtol=1e-3, limit=1)
    assert (found.count, found.errors, found.error_share, found.all_close) == (4, 2, 0.5, False)
    assert [(e.index, e.left, e.right, e.difference) for e in found.error_items] == [(1, 2.0, 2.5, 0.5)]
    assert [e.index for e in found.top_items] == [0]
    assert found.cosine == pytest.approx(0.9945, abs=1e-3)


def test_nan_and_infinities_are_errors_unless_the_infinities_are_equal():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = close_figures(np.float32([NAN, INF, 1, INF, 1]), np.float32([NAN, INF, INF, -INF, 1]))
    assert (found.errors, found.non_finite_errors) == (3, 3)
    assert [e.index for e in found.error_items] == [0, 2, 3]


def test_agrees_with_numpy_on_finite_data():
    rng = np.random.default_rng(3)
    right = rng.normal(size=100_000).astype(np.float32)
    left = right * (1 + rng.normal(size=right.size).astype(np.float32) * 1e-3)
    found = close_figures(left, right, atol=1e-5, rtol=1e-3, limit=7)
    close = np.abs(left.astype(float) - right) <= 1e-5 + 1e-3 * np.abs(right.astype(float))
    assert found.errors == np.count_nonzero(~close)
    assert [e.index for e in found.error_items] == np.flatnonzero(~close)[:7].tolist()


def test_nothing_is_padded():
    found = close_figures(np.zeros(6), np.zeros(5))
    assert (found.comparable, found.all_close, found.count, found.error_share) == (False, False, 0, None)
    assert "6 against 5 elements" in found.reason


def test_equal_counts_are_compared_flat_and_it_is_said():
    found = close_figures(np.arange(6.0), np.arange(6.0).reshape(2, 3))
    assert (found.all_close, found.count) == (True, 6)
    assert "shapes differ" in found.reason


def test_empty_strings_and_wide_integers():
    assert close_figures(np.zeros((0, 2)), np.zeros((0, 2))).all_close
    words = close_figures(np.array([b"a", b"b"], object), np.array([b"a", b"x"], object))
    assert (words.errors, words.all_close) == (1, False)
    ids = close_figures(np.array([2**62 + 1]), np.array([2**62]), atol=0.5, rtol=0)
    assert (ids.errors, ids.error_items[0].difference) == (1, 1)

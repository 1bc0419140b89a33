"""``bench compare``: what it reports hangs together, its parts do what they say. How fast anything is, is no test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compare.metrics import compare_arrays
from dumpers.formats.registry import read_dump
from precision_tool.bench import compare
from precision_tool.commands.base import silent
from precision_tool.dispatch import parse_words
from precision_tool.render import json_document
from precision_tool.workbench import Workbench


@pytest.fixture(scope="module")
def data():
    answer = parse_words(["bench", "compare", "--small", "--seed", "3"]).run(Workbench(), silent)
    document = json.loads(json_document("bench", answer))
    assert document["ok"]
    return document["result"]


def test_rows_and_setup(data):
    assert {"python", "numpy", "numba", "processors", "load_at_start", "threads", "rounds"} <= set(data["setup"])
    assert data["setup"]["tensors"] == [compare.SMALL.large[0], compare.SMALL.small[0]]
    for row in data["rows"]:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])


def test_summary_follows_from_the_rows(data):
    rows, summary = {row["case"]: row for row in data["rows"]}, data["summary"]
    assert summary["ratio_to_limit"] == rows["large, read limit"]["ratio"]
    assert summary["gb_per_s"] / summary["read_limit_gb_per_s"] == pytest.approx(summary["ratio_to_limit"])
    assert summary["ratio_to_numpy"] == rows["large, NumPy script"]["ratio"]
    small = rows["small, NumPy script"]
    assert summary["small_ratio_to_numpy"] == small["ratio"]
    assert summary["pairs_per_s_small"] == pytest.approx(compare.SMALL.small[0] / small["seconds"])
    if summary["peak_rss_mb"] is not None:
        assert 20 < summary["peak_anonymous_mb"] < summary["peak_rss_mb"] < 1500


@pytest.fixture
def pair(tmp_path):
    compare.write_pair(tmp_path, compare.SMALL.large, 1)
    return tmp_path


def test_every_element_of_the_floats_differs_and_few_ids_do(pair):
    left, right = read_dump(pair / "left"), read_dump(pair / "right")
    assert {record.dtype for record in left} == {"float32", "float16", "float64", "int64"}
    for one, two in zip(left, right, strict=True):
        x, y = one.load(), two.load()
        if one.dtype == "int64":
            assert 0 < np.count_nonzero(x != y) <= x.size // 1000 + 1
        elif one.dtype != "float16":
            assert np.count_nonzero(x != y) > 0.99 * x.size


def test_the_script_is_what_it_claims(pair):
    left, right = read_dump(pair / "left"), read_dump(pair / "right")
    for one, two in list(zip(left, right, strict=True))[:6]:
        figures = compare_arrays(one.load(), two.load())
        script = compare.naive_script(str(one.path), str(two.path))
        ours = (
            figures.cosine,
            figures.max_abs_error,
            figures.accumulated_relative_error,
            figures.relative_distance,
            figures.left_mean,
            figures.left_deviation,
            figures.right_mean,
            figures.right_deviation,
            figures.mean_abs_error,
            figures.root_mean_square_error,
            figures.max_relative_error,
            figures.mean_relative_error,
        )
        assert script == pytest.approx(ours, rel=1e-2, abs=1e-5)


def test_divergence_is_left_out_unless_asked_for(pair):
    left, right = read_dump(pair / "left"), read_dump(pair / "right")
    for asked in (False, True):
        rows = compare.compare_all(left, right, 2, divergence=asked).rows
        assert len(rows) == compare.SMALL.large[0]
        assert all((row.figures.divergence is not None) == asked for row in rows)

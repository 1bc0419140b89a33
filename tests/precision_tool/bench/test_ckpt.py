"""``bench ckpt``: what it reports hangs together, and its parts do what they say. How fast anything is, is no test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from precision_tool.bench import ckpt
from precision_tool.commands.base import silent
from precision_tool.dispatch import parse_words
from precision_tool.render import json_document
from precision_tool.workbench import Workbench

tf = pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def data():
    answer = parse_words(["bench", "ckpt", "--small", "--seed", "5"]).run(Workbench(), silent)
    document = json.loads(json_document("bench", answer))
    assert document["ok"]
    return document["result"]


def test_rows_and_setup(data):
    assert data["bench"] == "ckpt"
    assert {"python", "numpy", "numba", "crc32c", "tensorflow", "load_at_start", "threads"} <= set(data["setup"])
    assert (data["setup"]["seed"], data["setup"]["variables"]) == (5, 24)
    for row in data["rows"]:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])
        assert row["amount"] == 2 * 4 * sum(count for _, count in ckpt.names_of(ckpt.SMALL))


def test_summary_follows_from_the_rows(data):
    rows, summary = {(row["case"], row["baseline"]): row for row in data["rows"]}, data["summary"]
    limit = rows["all different", "only reading"]
    assert summary["gb_per_s"] == limit["per_s"] / 1e9
    assert summary["gb_per_s"] / summary["read_limit_gb_per_s"] == pytest.approx(summary["ratio_to_limit"])
    assert summary["ratio_to_guide_script"] == rows["all different", "guide's script"]["ratio"]
    assert summary["process_ratio_to_guide_script"] == rows["whole process", "guide's script"]["ratio"]
    assert summary["half_equal_ratio_to_limit"] == rows["half equal", "only reading"]["ratio"]
    assert summary["peak_rss_mb"] is None or 30 < summary["peak_rss_mb"] < 1000


def test_the_checkpoints_are_what_they_are_said_to_be(tmp_path):
    ckpt.write_checkpoints(tmp_path, ckpt.SMALL, 1)
    left, every, half = (tf.train.load_checkpoint(str(tmp_path / side)) for side in ckpt.SIDES)
    names = [name for name, _ in ckpt.names_of(ckpt.SMALL)]
    assert sorted(left.get_variable_to_shape_map()) == sorted(names)
    assert not any(np.array_equal(left.get_tensor(name), every.get_tensor(name)) for name in names)
    equal = [np.array_equal(left.get_tensor(name), half.get_tensor(name)) for name in names]
    assert sum(equal) == len(names) / 2
    paths = [tmp_path / side for side in ckpt.SIDES]
    assert dict(ckpt.diff_of(paths[0], paths[1], 2).counts) == {"values differ": len(names)}
    assert dict(ckpt.diff_of(paths[0], paths[2], 2, trust_index=True).counts) == {"values differ": 12, "equal": 12}
    assert ckpt.read_only(paths[:2], 2) == 2 * 4 * sum(count for _, count in ckpt.names_of(ckpt.SMALL))

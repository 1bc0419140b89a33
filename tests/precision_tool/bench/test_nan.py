"""``bench nan``: what it reports hangs together, and its parts do what they say. How fast anything is, is no test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dumpers.formats.registry import read_dump
from precision_tool.bench import nan
from precision_tool.bench.measure import bytes_read
from precision_tool.commands.base import silent
from precision_tool.dispatch import parse_words
from precision_tool.render import json_document
from precision_tool.workbench import Workbench


@pytest.fixture(scope="module")
def data():
    answer = parse_words(["bench", "nan", "--small", "--seed", "4"]).run(Workbench(), silent)
    document = json.loads(json_document("bench", answer))
    assert document["ok"]
    return document["result"]


def test_rows_and_setup(data):
    assert data["bench"] == "nan"
    assert {"python", "numpy", "numba", "processors", "load_at_start", "threads", "rounds"} <= set(data["setup"])
    assert (data["setup"]["seed"], data["setup"]["files"]) == (4, nan.SMALL.files)
    assert len({row["amount"] for row in data["rows"]}) == 1
    for row in data["rows"]:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])


def test_summary_follows_from_the_rows(data):
    rows, summary = {row["case"]: row for row in data["rows"]}, data["summary"]
    limit = rows["scan, read limit"]
    assert summary["gb_per_s"] == limit["per_s"] / 1e9
    assert summary["ratio_to_limit"] == limit["ratio"]
    assert summary["gb_per_s"] / summary["read_limit_gb_per_s"] == pytest.approx(summary["ratio_to_limit"])
    assert summary["ratio_to_guide_script"] == rows["scan, guide's script"]["ratio"]
    assert summary["command_ratio_to_guide_script"] == rows["listing and scan"]["ratio"]
    assert summary["peak_rss_mb"] is None or 30 < summary["peak_rss_mb"] < 1000


@pytest.fixture
def dump(tmp_path):
    nan.write_dump(tmp_path, nan.SMALL, 1)
    return tmp_path


def test_the_dump_has_both_types_and_sizes_within_the_bounds(dump):
    records = read_dump(dump).records
    assert len(records) == nan.SMALL.files
    assert {record.dtype for record in records} == {"float16", "float32"}
    for record in records:
        size = record.load().nbytes
        assert nan.SMALL.smallest - 4 <= size <= nan.SMALL.largest


def test_all_sides_see_the_same_bad_tensors(dump):
    record = read_dump(dump).records[5]
    array = record.load().copy()
    array[-1] = np.inf
    np.save(record.path, array)
    found = read_dump(dump)
    assert nan.guide_script([str(r.path) for r in found]) == [str(record.path)]
    assert nan.scan_of(found, 2) == nan.scan_of(found, 1) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_the_read_limit_reads_every_byte_of_every_file_once(dump, threads):
    paths = sorted(str(path) for path in dump.iterdir())
    nan.read_only(paths, threads)  # what is imported on the first call is not counted
    read = bytes_read(lambda: nan.read_only(paths, threads))
    if read is None:
        pytest.skip("the system does not count the bytes that a process reads")
    size = sum(path.stat().st_size for path in dump.iterdir())
    assert size <= read < size + 4096

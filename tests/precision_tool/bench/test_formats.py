"""``bench formats``: what it reports hangs together. How fast anything is, is never a test."""

from __future__ import annotations

import json

import pytest

from dumpers.errors import UsageError
from precision_tool.bench import formats
from precision_tool.bench.measure import Row, bytes_read, interleaved
from precision_tool.commands.base import silent
from precision_tool.dispatch import parse_words
from precision_tool.render import json_document
from precision_tool.workbench import Workbench

LAYOUTS = ("NC1HWC0", "FRACTAL_NZ", "NDC1HWC0", "FRACTAL_Z")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "figures.json"
    call = parse_words(["bench", "formats", "--small", "--seed", "3", "--out", str(out)])
    return call.run(Workbench(), silent), out


def test_document_has_rows_and_summary(result):
    answer, out = result
    document = json.loads(json_document("bench", answer))
    assert document["ok"]
    data = document["result"]
    assert data["bench"] == "formats"
    assert data["setup"]["seed"] == 3
    assert data["setup"]["small"] is True
    assert data["setup"]["threads"] == 1
    assert {"python", "numpy", "tensorflow", "processors", "rounds"} <= set(data["setup"])
    assert json.loads(out.read_text()) == data
    assert answer.files == [out]


def test_every_layout_is_measured_in_both_types(result):
    rows = [row for row in result[0].data["rows"] if row["measure"] == "layout"]
    assert {(row["layout"], row["dtype"]) for row in rows} == {(n, t) for n in LAYOUTS for t in formats.DTYPES}
    for row in rows:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])
        assert row["per_s"] == pytest.approx(row["amount"] / row["seconds"])
        assert row["amount"] == (1 << 20 if row["dtype"] == "float16" else 1 << 21)


def test_summary_follows_from_the_rows(result):
    data = result[0].data
    rows, summary = data["rows"], data["summary"]
    for layout in LAYOUTS:
        ratios = {row["ratio"]: row for row in rows if row.get("layout") == layout}
        worst = ratios[min(ratios)]
        assert summary[layout] == {"gb_per_s": worst["per_s"] / 1e9, "ratio_to_copy": worst["ratio"]}
    few, many = (row for row in rows if row["measure"] == "list")
    assert (few["amount"], many["amount"]) == formats.SMALL.files
    assert summary["list_files_per_s"] == many["per_s"]
    growth = (many["seconds"] / many["amount"]) / (few["seconds"] / few["amount"])
    assert summary["list_time_per_file_growth"] == pytest.approx(growth)
    tfdbg = [row for row in rows if row["measure"] == "tfdbg"]
    assert summary["tfdbg_ratio"] == min(row["baseline_seconds"] / row["seconds"] for row in tfdbg)
    worst = min(tfdbg, key=lambda row: row["ratio"])
    assert summary["tfdbg_highest_ratio"] == worst["baseline_seconds"] / worst["plain_read_seconds"]
    assert set(summary["read_ratio"]) == {"npy", "npz", "checkpoint"}


def test_counts_are_those_of_the_files(result):
    rows = result[0].data["rows"]
    for row in (row for row in rows if row["measure"] == "list"):
        assert row["records"] == 3 * row["amount"]
        assert row["problems"] == 0
        assert row["bytes_per_file"] > 3 * 4096
    # One tensor for each constant and sum, and the fed one: what TensorFlow's own reader counted too.
    counts = [row["amount"] for row in rows if row["measure"] == "tfdbg"]
    assert counts == [2 * (formats.SMALL.tensors // 2) + 1] * 2


def test_listing_reads_headers_only(result):
    for row in (row for row in result[0].data["rows"] if row["measure"] == "list"):
        if row["bytes_read_per_file"] is None:
            pytest.skip("the system does not count the bytes that a process reads")
        assert row["bytes_read_per_file"] < row["bytes_per_file"] / 2


def test_tables_show_every_row(result):
    table = result[0].blocks[0]
    assert len(table.rows) == len(result[0].data["rows"])
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_without_a_name_it_lists_the_benches():
    answer = parse_words(["bench"]).run(Workbench(), silent)
    assert "formats" in answer.data["benches"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "speed"], "no such bench; there is compare, "),
        (["bench", "formats", "--seed", "-1"], "a seed is 0 or more"),
        (["bench", "formats", "--out", "/nowhere/at/all.json"], "a folder that exists"),
    ],
)
def test_wrong_use_is_said_before_anything_is_measured(words, message):
    with pytest.raises(UsageError, match=message):
        parse_words(words).run(Workbench(), silent)


def test_rounds_take_turns_and_the_first_does_not_count():
    calls = []
    medians = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert set(medians) == {"a", "b"}
    assert all(seconds >= 0 for seconds in medians.values())


def test_bytes_read_counts_what_an_action_reads(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    read = bytes_read(path.read_bytes)
    if read is None:
        pytest.skip("the system does not count the bytes that a process reads")
    assert 100_000 <= read < 120_000


def test_a_row_without_a_baseline_has_no_ratio():
    row = Row("list", "ten files", 10, "files", 2.0)
    assert row.ratio is None
    assert row.as_dict()["per_s"] == 5.0

"""Summaries in a record: read back as written, and refused when they make no sense."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpers.capture.summaries import summarise
from dumpers.formats.summary import Summary, read_summary, summary_of
from dumpers.formats.tf_record import read_tf_record
from precision_tool.tensor_facts import tensor_data
from precision_tool.tensor_text import record_data, record_line

ARRAY = np.array([[1.5, -2, np.nan], [0, np.inf, 4]], np.float32)


def entry(op: str, array: np.ndarray, mode: str, **more: object) -> dict:
    summary = {**summarise(array, array.dtype.name, mode), **more}
    return {
        "op": op, "output": 0, "op_type": "Add", "dtype": summary["dtype"], "shape": list(array.shape), "file": None,
        "timestamp_us": 5, "note": "", "summary": summary,
    }  # fmt: skip


def write_record(folder: Path, *entries: dict) -> Path:
    folder.mkdir()
    manifest = {"format": 1, "step": 0, "complete": True, "start_us": 1, "graph": None, "feeds": {}, "tensors": entries}
    (folder / "record.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("mode", ["stats", "sketch"])
def test_a_record_of_summaries_shows_figures(tmp_path, mode):
    dump = read_tf_record(write_record(tmp_path / "run_1_1", entry("a/b", ARRAY, mode)))
    assert dump.problems == ()
    record = dump.records[0]
    assert (record.source, record.note) == (None, f"statistics only ({mode})")
    found = record.statistics
    assert (found.count, found.nan, found.pos_inf, found.neg_inf) == (6, 1, 1, 0)
    assert (found.min, found.max, found.mean, found.l1, found.zero_share) == (-2.0, 4.0, 0.875, 7.5, 1 / 6)
    assert found.finite is False
    assert record_line(record).startswith("[Shape: (2, 3)] [Dtype: float32] [Max: 4] [Min: -2] [Mean: 0.875] [L2:")
    assert record_data(record)["nan"] == 1
    assert tensor_data(record, values=True)["statistics"]["zero_share"] == 1 / 6
    assert (record.summary.projection is None) == (mode == "stats")


def test_nan_is_found_in_a_record_of_summaries(tmp_path):
    from compare.nan_scan import scan_records

    dump = read_tf_record(write_record(tmp_path / "run_1_1", entry("a", ARRAY, "stats"), entry("b", ARRAY, "hash")))
    bad, unknown = scan_records(dump.records)
    assert (bad.kind, bad.nan, bad.positive_inf, bad.recorded) == ("nan", 1, 1, True)
    assert not unknown.known  # a hash says nothing of NaN


@pytest.mark.parametrize("mode", ["stats", "sketch", "hash"])
@pytest.mark.parametrize(
    "array",
    [
        ARRAY,
        np.zeros((0, 4), np.float64),
        np.array(7, np.int64),
        np.array([2**64 - 1, 0], np.uint64),
        np.array([True, False]),
        np.array([b"a", b"bc"]),
        np.array([1 + 2j], np.complex128),
        np.arange(9).astype(ml_dtypes.bfloat16),
        np.arange(9).astype(ml_dtypes.float8_e4m3fn),
        np.full(3, 1.7e308),
    ],
)
def test_what_the_capture_writes_is_read(array, mode):
    text = json.dumps(summarise(array, array.dtype.name, mode), allow_nan=False)
    found = read_summary(json.loads(text))
    assert found == summary_of(array, array.dtype.name, mode)
    assert (found.count, found.shape, found.mode) == (array.size, array.shape, mode)
    if array.dtype == np.uint64 and mode != "hash":
        assert found.statistics.max == 2**64 - 1


def damaged(**changes: object) -> dict:
    return {**summarise(ARRAY, "float32", "sketch"), **changes}


BAD = {
    "no object": [],
    "version": damaged(version=2),
    "version of another type": damaged(version=True),
    "mode": damaged(mode="full"),
    "mode of another type": damaged(mode=["stats"]),
    "dtype": damaged(dtype="a\nb"),
    "count": damaged(count=7),
    "negative count": damaged(count=-6),
    "count as a float": damaged(count=6.0),
    "count as a flag": damaged(count=True, shape=[]),
    "shape": damaged(shape="23"),
    "shape of floats": damaged(shape=[2.0, 3]),
    "endless shape": damaged(shape=[1] * 1000 + [6]),
    "huge shape": damaged(shape=[2**70, 0]),
    "counts": damaged(nan=5),
    "not finite": damaged(mean=float("nan")),
    "infinite": damaged(max=float("inf")),
    "text": damaged(l2="1.0"),
    "thousands of digits": damaged(min=10**4000),
    "share": damaged(zero_share=1.5),
    "exponents": damaged(exponents=[1]),
    "exponents that do not add up": damaged(exponents={"of": 9, "zero": 1, "subnormal": 0, "first": 0, "counts": [1]}),
    "counts without a first": damaged(exponents={"of": 1, "zero": 0, "subnormal": 0, "first": None, "counts": [1]}),
    "far exponent": damaged(exponents={"of": 1, "zero": 0, "subnormal": 0, "first": 10**9, "counts": [1]}),
    "projection": damaged(projection="AAAA"),
    "long projection": damaged(projection="A" * 10**6),
    "projection of another type": damaged(projection=[0.0] * 32),
    "projection that is not finite": damaged(
        projection=base64.b64encode(struct.pack("<32d", *[float("nan")] * 32)).decode()
    ),
    "no base64": damaged(projection="!" * 344),
    "hash": damaged(order_free="xyz"),
    "hash of another length": damaged(order_free="0" * 32),
    "hash as a number": damaged(order_free=5),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_summary_is_a_problem_and_spoils_nothing_else(tmp_path, name):
    with pytest.raises(ValueError, match=r"^(is|has) "):
        read_summary(BAD[name])
    bad, good = entry("bad", ARRAY, "stats"), entry("good", ARRAY, "stats")
    bad["summary"] = BAD[name]
    dump = read_tf_record(write_record(tmp_path / "run_1_1", bad, good))
    assert len(dump.problems) == 1
    assert "tensor 0 has a summary that" in dump.problems[0].reason
    assert len(dump.problems[0].reason) < 200
    assert {record.op: record.statistics is None for record in dump} == {"bad": True, "good": False}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


def outcome(value: object) -> Summary | str | None:
    try:
        return read_summary(value)
    except ValueError as error:
        return str(error)


@given(key=st.sampled_from(sorted(damaged(positional=None))), value=JSON)
def test_any_json_in_any_field_is_read_or_refused(key, value):
    found = outcome(damaged(**{key: value}))
    assert isinstance(found, Summary) or "\n" not in found


@given(value=JSON)
def test_any_json_as_a_summary_is_read_or_refused(value):
    assert outcome(value) if value is not None else read_summary(value) is None

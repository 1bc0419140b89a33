"""Result files of both column generations, and files that only look like them."""

from __future__ import annotations

import csv
import io
import random
import time
from pathlib import Path

import pytest

from compare.figures import COLUMNS
from compare.result_file import read_csv
from dumpers.errors import DataError

OLD = ["Index", "LeftOp", "RightOp", "TensorIndex", *COLUMNS[:6]]
SIDES = ["Index", "OpType", "NPUDump", "DataType", "Address", "GroundTruth", "DataType", "TensorIndex", "Shape"]
NEW = [*SIDES, *COLUMNS, "CompareFailReason"]
FIGURES = ["0.999000", "1.5", "2", "0.01", "0", "(1.000;0.500),(1.000;0.500)", "1", "1", "1", "1"]


def save(path: Path, header: list[str], *rows: list[str], start: str = "", end: str = "\r\n") -> Path:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator=end).writerows([header, *rows])
    path.write_bytes((start + buffer.getvalue()).encode())
    return path


def new_row(**cells: str) -> list[str]:
    row = ["3", "MatMul", "fc/MatMul", "float16", "NaN", "fc/MatMul,add", "float32", "fc/MatMul:output:0", "[2,3]"]
    row += [*FIGURES, ""]
    for name, cell in cells.items():
        row[NEW.index(name)] = cell
    return row


@pytest.mark.parametrize("start", ["", "\ufeff", "\r\n\r\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("reason", [True, False])
def test_old_generation(tmp_path: Path, start: str, end: str, reason: bool):
    header = OLD + ["CompareFailReason"] * reason
    rows = [
        ["0", "Data_0", "x", "Data_0:output:0", "1.000000", "0", "0", "0", "0", "(0;0),(0;0)"] + ["none"] * reason,
        ["2", "fused", "a/b c/d", "fused:input:1", "nan", "NaN", "", "0.5", "inf", "NaN"] + [""] * reason,
        ["3", "TransData_3", "*", "NaN", *["NaN"] * 6] + ["no dump"] * reason,
    ]
    found = read_csv(save(tmp_path / "r.csv", header, *rows, start=start, end=end))
    first, second, third = found.rows
    assert found.problems == ()
    assert (first.index, first.left_names, first.right_names, first.cosine) == (0, ("Data_0",), ("x",), 1.0)
    assert (first.op, first.io, first.slot, first.op_type) == ("Data_0", "output", 0, "")
    assert second.right_names == ("a/b", "c/d")
    assert (second.cosine, second.cosine_text, second.below(0.98)) == (None, "nan", True)
    assert (third.op, third.right_names, third.slot) == ("", (), None)
    assert [row.reason for row in found.rows] == (["none", "", "no dump"] if reason else ["", "", ""])


@pytest.mark.parametrize("addresses", [1, 2])
def test_new_generation_of_20_and_21_columns(tmp_path: Path, addresses: int):
    header, row = list(NEW), new_row(CompareFailReason='a "quoted", part')
    if addresses == 2:
        header.insert(7, "Address")
        row.insert(7, "0x10")
    assert len(header) == 19 + addresses
    (got,) = read_csv(save(tmp_path / "r.csv", header, row)).rows
    assert (got.op_type, got.left_names, got.right_names) == ("MatMul", ("fc/MatMul",), ("fc/MatMul", "add"))
    assert (got.left_dtype, got.right_dtype, got.shape) == ("float16", "float32", "[2,3]")
    assert got.texts == dict(zip(COLUMNS, FIGURES, strict=True))
    assert got.figures["StandardDeviation"] is None
    assert got.figures["MaxAbsoluteError"] == 1.5
    assert (got.reason, got.extra, got.sequence, got.overflow) == ('a "quoted", part', {}, None, "")


def test_optional_and_appended_columns(tmp_path: Path):
    header = ["Index", "OpSequence", *SIDES[1:], "OverFlow", *COLUMNS, "MyMetric", "CompareFailReason", "IsNpuOps"]
    row = ["3", "17", *new_row()[1:9], "YES", *FIGURES, "0.25", "", "True"]
    (got,) = read_csv(save(tmp_path / "r.csv", header, row)).rows
    assert (got.sequence, got.overflow, got.extra) == (17, "YES", {"MyMetric": "0.25", "IsNpuOps": "True"})
    assert got.cosine == 0.999


def test_only_the_metrics_that_were_asked_for(tmp_path: Path):
    header = [*SIDES, "RelativeEuclideanDistance", "MyMetric", "CompareFailReason"]
    bad, good = ([*new_row()[:9], figure, "1", ""] for figure in ("0.9", "0.001"))
    found = read_csv(save(tmp_path / "r.csv", header, bad, good)).rows
    assert [(row.cosine, row.cosine_text, row.below(0.98)) for row in found] == [(None, "", True), (None, "", False)]
    found = read_csv(
        save(tmp_path / "s.csv", [*SIDES, "MyMetric", "CompareFailReason"], [*new_row()[:9], "1", ""])
    ).rows
    assert found[0].below(0.98) is None


def test_without_reason_column(tmp_path: Path):
    (row,) = read_csv(save(tmp_path / "r.csv", NEW[:-1], new_row()[:-1])).rows
    assert (row.reason, row.cosine) == ("", 0.999)


@pytest.mark.parametrize("guard", ["'", " ", "  "])
@pytest.mark.parametrize("name", ["=cmd|x", "+a", "-Tpng", "@y", "%z"])
def test_formula_guards_come_off(tmp_path: Path, guard: str, name: str):
    row = new_row(NPUDump=guard + name, TensorIndex=f"{guard}{name}:output:0", CosineSimilarity="-0.5")
    (got,) = read_csv(save(tmp_path / "r.csv", NEW, row)).rows
    assert (got.left_names, got.op, got.cosine) == ((name,), name, -0.5)


def test_names_with_odd_characters_stay_in_one_row(tmp_path: Path):
    names = ["a:b", "x\x0by", "x\u2028y", "x\x1cy", "line\nbreak", "'quoted'"]
    rows = [new_row(NPUDump=name, TensorIndex=f"{name}:output:2") for name in names]
    found = read_csv(save(tmp_path / "r.csv", NEW, *rows))
    assert [row.op for row in found.rows] == names
    assert {row.slot for row in found.rows} == {2}


def test_rows_that_are_cut_short_are_told(tmp_path: Path):
    found = read_csv(save(tmp_path / "r.csv", NEW, new_row(), new_row()[:5], new_row()[:12]))
    assert len(found.rows) == 2
    assert found.problems == ("line 3 has 5 cells, 10 are needed",)
    assert found.rows[1].reason == ""


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (["Index", "OpSequence", "OpType", "NPUDump", "GroundTruth", "TensorIndex", "NPUDumpPath", "GroundTruthPath"],
         "pairing table"),
        (["NPU Name", "Bench Name", "NPU Tensor Dtype"], "no column Index, TensorIndex; it is .* msprobe"),
        (["Index", "TensorIndex", "CosineSimilarity"], "no column NPUDump, GroundTruth"),
        (["Index", "LeftOp", "TensorIndex", "CosineSimilarity"], "no column RightOp"),
        (["Index", "NPUDump", "GroundTruth", "TensorIndex", "Other"], "no column CosineSimilarity"),
        (["a", "b"], "no column Index, TensorIndex"),
    ],
)  # fmt: skip
def test_files_that_only_look_like_it(tmp_path: Path, header: list[str], message: str):
    path = save(tmp_path / "r.csv", header, ["1"] * len(header))
    with pytest.raises(DataError, match=message) as caught:
        read_csv(path)
    assert str(path) in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path):
    path = tmp_path / "r.csv"
    for data in (",".join(NEW).encode("utf-16"), b"Index\0,\0", b"PK\3\4\0\0"):
        path.write_bytes(data)
        with pytest.raises(DataError, match="binary"):
            read_csv(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_csv(path)
    with pytest.raises(DataError, match="cannot read"):
        read_csv(tmp_path / "none.csv")


def test_samples(shared_data: Path):
    derived = shared_data / "npu_samples" / "derived" / "vae_compare"
    first = read_csv(derived / "result_20240125160000.csv")
    second = read_csv(derived / "result_20240125160100.csv")
    assert (len(first.rows), len(second.rows)) == (52, 10)
    assert first.problems == second.problems == ()
    below = [(row.index, row.op, row.io, row.slot, row.cosine) for row in first.rows if (row.cosine or 1) < 0.98]
    assert below == [(35, "recognition/w_mean/MatMuladd", "output", 0, 0.932868)]
    (culprit,) = (row for row in first.rows if row.cosine == 0.932868)
    assert culprit.right_names == ("recognition/w_mean/add", "recognition/w_mean/MatMul", "add")
    assert (culprit.figures["MaxAbsoluteError"], culprit.figures["RelativeEuclideanDistance"]) == (2.246132, 0.385028)
    assert {row.shape for row in first.rows} >= {"[2000]", "[100,20]"}
    scaled = next(r for r in second.rows if r.op == "random_normal_mul" and r.io == "output")
    assert (scaled.index, scaled.cosine, scaled.figures["RelativeEuclideanDistance"]) == (2, 1.0, 0.333338)
    assert any(row.right_names == () and row.cosine_text == "NaN" for row in second.rows)
    with pytest.raises(DataError, match="no column Index, TensorIndex"):
        read_csv(shared_data / "npu_samples" / "other_csv" / "compare_result_20230703104808.csv")
    cases = [read_csv(path).rows for path in sorted((shared_data / "field_cases" / "FC11").glob("*.csv"))]
    assert [(r.op, r.io, r.slot, r.cosine) for r in cases[0]] == [(r.op, r.io, r.slot, r.cosine) for r in cases[1]]


def test_fuzz(tmp_path: Path):
    raw = save(tmp_path / "r.csv", NEW, new_row(), new_row(CompareFailReason='x,"y"')).read_bytes()
    rng = random.Random(4)
    said: list[str] = []
    ends = time.monotonic() + 0.8
    cuts = list(range(len(raw)))
    while time.monotonic() < ends:
        changed = bytearray(raw[: cuts.pop()] if cuts else raw)
        for _ in range(rng.choice((0, 1, 3, 9)) if changed else 0):
            changed[rng.randrange(len(changed))] = rng.choice(b'",\r\n\0x9:NaN\xff')
        (tmp_path / "r.csv").write_bytes(changed)
        try:
            read_csv(tmp_path / "r.csv")
        except DataError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in text for text in said)

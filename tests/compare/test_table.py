from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from compare.metrics import compare_arrays
from compare.table import Comparison, ComparisonRow, csv_text, format_figure, read_csv, write_csv

GOLDEN = (
    b"Index,OpType,NPUDump,DataType,Address,GroundTruth,DataType,TensorIndex,Shape,CosineSimilarity,MaxAbsoluteError,"
    b"AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,StandardDeviation,MeanAbsoluteError,"
    b"RootMeanSquareError,MaxRelativeError,MeanRelativeError,CompareFailReason\r\n"
    b'0,MatMulV2,fc/MatMuladd,float16,NaN,"fc/MatMul,add",float32,fc/MatMuladd:output:0,"[2,2]",0.993999,1.000000,'
    b'0.200000,0.160128,0.010310,"(2.500;1.118),(2.750;1.479)",0.250000,0.500000,0.200000,0.050000,'
    b"1 of 4 elements differ\r\n"
    b"1,Cast,trans_Cast_0,NaN,NaN,*,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,"
    b'"[trans_Cast_0] no dump file for op ""trans_Cast_0"" (type Cast)"\r\n'
    b"2,Sub,'=cmd|x\\n,float16,NaN,'@y,float32,'=cmd|x\\n:output:0,[1],NaN,2.000000,0.285714,0.285714,0.000000,"
    b'"(5.000;0.000),(7.000;0.000)",2.000000,2.000000,0.285714,0.285714,'
    b'"1 of 1 elements differ,CosineSimilarity undefined: scalar"\r\n'
)


@pytest.fixture
def rows(make):
    left, right = np.float16([[1, 2], [3, 4]]), np.float32([[1, 2], [3, 5]])
    one, two = np.float16([5]), np.float32([7])
    return (
        ComparisonRow(
            0,
            "fc/MatMuladd",
            "MatMulV2",
            ("fc/MatMuladd",),
            ("fc/MatMul", "add"),
            "output",
            0,
            make.record("fc/MatMuladd:output:0", left),
            make.record("add:output:0", right, device="tf"),
            compare_arrays(left, right),
            (2, 2),
        ),
        ComparisonRow(
            1,
            "trans_Cast_0",
            "Cast",
            ("trans_Cast_0",),
            (),
            reason='[trans_Cast_0] no dump file for op "trans_Cast_0" (type Cast)',
        ),
        ComparisonRow(
            2,
            "=cmd|x\n",
            "Sub",
            ("=cmd|x\n",),
            ("@y",),
            "output",
            0,
            make.record("x:output:0", one),
            make.record("y:output:0", two, device="tf"),
            compare_arrays(one, two),
            (1,),
        ),
    )


def comparison(rows, **fields):
    return Comparison(Path("left"), Path("right"), tuple(rows), **fields)


def test_golden_bytes(rows, tmp_path):
    path = tmp_path / "result_1.csv"
    write_csv(comparison(rows), path)
    assert path.read_bytes() == GOLDEN
    assert [p.name for p in tmp_path.iterdir()] == ["result_1.csv"]


@pytest.mark.parametrize(
    ("left_npy", "right_npy", "columns"), [(False, True, 20), (False, False, 21), (True, True, 19)]
)
def test_columns_depend_on_the_kinds_of_data_only(rows, left_npy, right_npy, columns):
    text = csv_text(comparison(rows, left_npy=left_npy, right_npy=right_npy))
    lines = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(line) for line in lines} == {columns}
    header = lines[0]
    # How users' scripts find their way: by position relative to the two names, the last column is the reason.
    left, right = header.index("NPUDump"), header.index("GroundTruth")
    assert (header[left + 1], header[right + 1]) == ("DataType", "DataType")
    assert (header[left + 2] == "Address", header[right + 2] == "Address") == (not left_npy, not right_npy)
    assert (lines[1][left], lines[1][right]) == ("fc/MatMuladd", "fc/MatMul,add")
    assert (lines[1][left + 1], lines[1][right + 1], header[-1]) == ("float16", "float32", "CompareFailReason")


def test_pandas_reads_it(rows, tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "result_1.csv"
    write_csv(comparison(rows), path)
    frame = pandas.read_csv(path)
    assert frame.CosineSimilarity.tolist()[0] == 0.993999
    assert frame[frame.CosineSimilarity < 0.98].empty
    assert frame["DataType.1"].tolist()[0] == "float32"


def test_our_reader_reads_it_and_removes_the_guard(rows, tmp_path):
    path = tmp_path / "result_1.csv"
    write_csv(comparison(rows), path)
    first, second, third = read_csv(path).rows
    assert (first.op, first.io, first.slot, first.cosine, first.shape) == (
        "fc/MatMuladd",
        "output",
        0,
        0.993999,
        "[2,2]",
    )
    assert (second.op, second.right_names, second.cosine) == ("", (), None)
    assert (third.left_names, third.right_names) == (("=cmd|x\\n",), ("@y",))


def test_what_the_columns_cannot_say_is_in_the_reason():
    left, right = np.float32([1, np.nan, 3, np.inf]), np.float32([2, np.nan, 6, 1])
    row = ComparisonRow(0, "a", "", ("a",), ("a",), "output", 0, figures=compare_arrays(left, right))
    text = ",".join(row.messages())
    for fact in ("1 non-finite mismatch(es); the first at element 3", "NaN 1 left 1 right", "infinite 1 left 0 right"):
        assert fact in text
    assert "3 of 4 elements differ" in text
    assert "scaled by 2" in text
    equal = ComparisonRow(0, "a", "", ("a",), ("a",), "output", 0, figures=compare_arrays(left, left))
    assert equal.messages() == ["NaN 1 left 1 right; infinite 1 left 1 right; figures are over the other elements"]


def test_near_one_does_not_look_equal():
    left = np.ones(1000, np.float32)
    right = left.copy()
    right[0] = 1.0001
    row = ComparisonRow(0, "a", "", ("a",), ("a",), "output", 0, figures=compare_arrays(left, right))
    assert format_figure(row.figures.cosine) == "1.000000"
    assert row.messages() == ["1 of 1000 elements differ"]


def test_format_of_figures():
    assert [format_figure(v) for v in (None, 0.0, -0.1, 1e200, "(1;2)")] == [
        "NaN",
        "0.000000",
        "-0.100000",
        "1.000000e+200",
        "(1;2)",
    ]


def test_ranking_and_thresholds(make):
    def row(name, left, right, io="output"):
        figures = compare_arrays(np.asarray(left), np.asarray(right))
        return ComparisonRow(0, name, "", (name,), (name,), io, 0, figures=figures)

    base = np.arange(1.0, 9)
    rows = [
        row("equal", base, base),
        row("rounding", base * (1 + 1e-7 * base), base),
        row("doubled", base, base * 2),
        row("ids", [2**53 + 1, 2], [2**53, 2]),
        row("nan", [np.nan, 1.0], [1.0, 1.0]),
        row("dead", base * 0, base),
        row("shapes", base, base.reshape(2, 4)[:, :3]),
        row("opposite input", -base, base, "input"),
    ]
    table = comparison(rows)
    order = [r.op for r in table.ranked()]
    assert order == ["nan", "ids", "dead", "opposite input", "doubled", "rounding", "shapes"]
    assert [r.op for r in table.below(0.98)] == ["nan", "dead"]
    assert [r.op for r in table.not_judged] == ["shapes"]

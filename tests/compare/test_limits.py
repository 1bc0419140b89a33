"""Selections, limits, tolerances and the files they go into, each against something simpler."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.exports import write_comparison
from compare.figures import COLUMNS, FIELDS
from compare.limits import Limits, read_limits
from compare.metrics import compare_arrays
from compare.result_file import read_csv
from compare.second_look import with_details
from compare.selection import Selection
from compare.sweep import SweepOptions, compare_dumps
from compare.table import csv_text, write_csv
from compare.tolerance import required_tolerance, rounded_up
from dumpers.dtypes import numpy_dtype
from dumpers.errors import UsageError


def chain(make):
    """a -> b -> c -> d; the right one has an op more."""
    arrays = {"net/a": [1.0, 2.0], "net/b": [1.0, 0.0], "loss/c": [5.0, 7.0], "loss/d": [0.0, 1.0]}
    left = [
        make.record(f"{name}:output:0", np.float32(v), timestamp_us=i, op_type=name[-1].upper())
        for i, (name, v) in enumerate(arrays.items())
    ]
    right = [make.record(f"{name}:output:0", np.float32(v) * 2) for name, v in arrays.items()]
    return make.dump(*left), make.dump(*right, make.record("net/extra:output:0", np.float32([1])))


def ops(comparison):
    return [row.op for row in comparison]


@pytest.mark.parametrize(
    ("selection", "expected", "left_out"),
    [
        (Selection(re.compile("^net/")), ["net/a", "net/b", "net/extra"], 2),
        (Selection(re.compile("c$|d$")), ["loss/c", "loss/d"], 3),
        (Selection(since="loss/c"), ["loss/c", "loss/d", "net/extra"], 2),
        (Selection(re.compile("d"), "net/b"), ["loss/d"], 4),
    ],
)
def test_only_what_is_asked_for_is_compared_and_the_rest_is_counted(make, selection, expected, left_out):
    sides = chain(make)
    found = compare_dumps(*sides, options=SweepOptions(selection=selection))
    assert (ops(found), found.left_out) == (expected, left_out)
    whole = {row.op: row for row in compare_dumps(*sides)}
    assert all(row == whole[row.op] for row in found)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(re.compile("gradient")), r"--ops gradient: fits none of the 5 rows"),
        (Selection(since="loss/x"), r"--since loss/x: no such op.*did you mean loss/[cd]"),
        (Selection(since="quite another"), r"no such op in the comparison; ls lists"),
    ],
)
def test_a_selection_of_nothing_is_said(make, selection, message):
    with pytest.raises(UsageError, match=message):
        compare_dumps(*chain(make), options=SweepOptions(selection=selection))


def test_chosen_metrics_are_the_columns_and_have_the_same_cells(make, tmp_path):
    sides, metrics = chain(make), ("CosineSimilarity", "MeanAbsoluteError")
    write_csv(compare_dumps(*sides), tmp_path / "all.csv")
    chosen = compare_dumps(*sides, options=SweepOptions(metrics=metrics))
    write_csv(chosen, tmp_path / "some.csv")
    one, other = ([*csv.DictReader((tmp_path / f"{name}.csv").open(newline=""))] for name in ("all", "some"))
    assert [name for name in other[0] if name in COLUMNS] == list(metrics)
    for whole, part in zip(one, other, strict=True):
        assert {k: v for k, v in part.items() if k != "CompareFailReason"}.items() <= whole.items()
        assert "not asked for" not in part["CompareFailReason"]
    assert chosen.rows[0].figures.reasons["KullbackLeiblerDivergence"] == "not asked for"
    assert len(read_csv(tmp_path / "some.csv").rows) == len(chosen)


# ----------------------------------------------------------------------------------------------------------- limits

FILE = """
[default]
cosine = 0.9
relative_distance = 0.6
[dtype.int32]
differing = 0
[op_type.Softmax]
max_abs_error = 1e-3
relative_distance = inf
"""


def write_limits(tmp_path: Path, text: str) -> Limits:
    (tmp_path / "limits.toml").write_text(text, encoding="utf-8")
    return read_limits(tmp_path / "limits.toml")


def test_the_narrowest_limit_holds(tmp_path):
    limits = write_limits(tmp_path, FILE)
    assert limits.of("float32", "Relu") == {"cosine": 0.9, "relative_distance": 0.6}
    assert limits.of("int32", "Relu") == {"cosine": 0.9, "relative_distance": 0.6, "differing": 0}
    assert limits.of("float16", "Softmax") == {"cosine": 0.9, "relative_distance": math.inf, "max_abs_error": 1e-3}
    assert Limits().of("float32", "") == {"cosine": 0.98}
    assert write_limits(tmp_path, "").of("int8", "X") == {"cosine": 0.98}


def test_limits_are_held_against_the_figures(make, tmp_path):
    limits = write_limits(tmp_path, FILE)
    x = np.float32([1, 2, 3])
    cases = {
        "Relu": (x, x * 2, ()),
        "Tanh": (x * 2, x, ("relative_distance 1 above 0.6",)),
        "Softmax": (x * 2, x, ("max_abs_error 3 above 0.001",)),
        "Id": (np.int32([1, 2]), np.int32([1, 3]), ("differing 1 above 0",)),
        "Id2": (np.int32([1, 2]), np.int32([1, 2]), ()),
        "Neg": (-x, x, ("cosine -1.000000 below 0.9", "relative_distance 2 above 0.6")),
        "Nan": (np.float32([np.nan, 2, 3]), x, ("1 elements are not finite on one side only",)),
        "Zero": (x * 0, x, ("no cosine (left is zero) and 3 elements differ", "relative_distance 1 above 0.6")),
        "Scalar": (x[:1], x[:1] * 2, ("relative_distance 0.5 of a scalar above 0.447214",)),
        "Shape": (x, x[:2], ()),
    }
    left = make.dump(*(make.record(f"{k}:output:0", v[0], op_type=k) for k, v in cases.items()))
    right = make.dump(*(make.record(f"{k}:output:0", v[1]) for k, v in cases.items()))
    rows = {row.op: row for row in compare_dumps(left, right)}
    assert {name: limits.broken(rows[name]) for name in cases} == {name: case[2] for name, case in cases.items()}
    assert {name: bool(Limits().broken(row)) for name, row in rows.items()} == {
        name: row.below(0.98) for name, row in rows.items()
    }
    assert limits.unused(rows.values()) == []
    unused = write_limits(tmp_path, "[op_type.Sofmax]\ncosine = 1\n[dtype.float16]\ncosine = 1\n").unused(rows.values())
    assert [line.split(": ")[1] for line in unused] == [
        "nothing compared is subject to [op_type.Sofmax]",
        "nothing compared is subject to [dtype.float16]",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine = 0.9", "unknown table or key 'cosine'; put figures below"),
        ("[defaults]\ncosine = 0.9", "unknown table or key 'defaults'; did you mean default"),
        ("[default]\ncosin = 0.9", r"\[default\]: figure 'cosin'; did you mean cosine"),
        ("[dtype.float32]\nmax_error = 1", "did you mean max_abs_error"),
        ("[dtype.float3]\ncosine = 1", r"\[dtype.float3\]: no element type"),
        ("[dtype.'<f4']\ncosine = 1", "no element type"),
        ("[default]\ncosine = 1.2", "cosine = 1.2: a cosine is between -1 and 1"),
        ("[default]\nmax_abs_error = -1", "never negative"),
        ("[default]\nmax_abs_error = nan", "has to be a number"),
        ("[default]\nmax_abs_error = true", "has to be a number"),
        ("[default]\nmax_abs_error = '1'", "has to be a number"),
        ("default = 1", "default is a value; it has to be a table"),
        ("[dtype]\nfloat32 = 1", "dtype.float32 is a value"),
        ("[default", "no TOML"),
        ("x = " + "[" * 5000, "no TOML"),
        ("\udcff", "no TOML"),
        ("#" * 1_100_000, "larger than 1 MB"),
    ],
)
def test_a_file_that_means_nothing_is_one_line(tmp_path, text, message):
    (tmp_path / "limits.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=message):
        read_limits(tmp_path / "limits.toml")


def test_files_that_are_none(tmp_path):
    for path, message in ((tmp_path / "no", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UsageError, match=message):
            read_limits(path)


# ------------------------------------------------------------------------------------------------------- tolerances

NUMBERS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1e-20, 1.0, 3.0])


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_tolerances_are_the_smallest_that_pass(pairs):
    left, right = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    figures = compare_arrays(left, right)
    x, y = left.astype(np.float64), right.astype(np.float64)
    at_zero = int(np.count_nonzero((np.abs(y) <= 2.220446049250313e-16) & (x != y)))
    assert figures.differing_at_zero == at_zero
    found = required_tolerance(figures)
    assert found.atol == np.abs(x - y).max()
    if figures.differing == 0:
        assert (found.atol, found.rtol) == (0, 0)
    elif at_zero:
        assert found.rtol is None
        assert f"{at_zero} elements differ where the reference is zero" in found.rtol_reason
    else:
        big = np.abs(y) > 2.220446049250313e-16
        ratio = (np.abs(x - y)[big] / np.abs(y)[big]).max()
        assert ratio <= found.rtol <= ratio + (1 + ratio) * 1e-15
        assert np.all(np.abs(x - y) <= rounded_up(found.rtol) * np.abs(y))
    assert np.all(np.abs(x - y) <= rounded_up(found.atol))


def test_where_no_tolerance_exists_there_is_a_reason():
    nan, x = np.float32([np.nan, 1]), np.float32([1, 1])
    for left, right, reason in (
        (nan, x, "1 elements are not finite on one side"),
        (x, x[:1], "shapes differ"),
        (np.array(["a", "b"]), np.array(["a", "c"]), "strings have no figures"),
    ):
        found = required_tolerance(compare_arrays(left, right))
        assert (found.atol, found.rtol) == (None, None)
        assert reason in found.atol_reason
    assert required_tolerance(compare_arrays(nan, nan)).atol == 0
    unknown = required_tolerance(replace(compare_arrays(x, x * 2), differing_at_zero=None))
    assert (unknown.atol, unknown.rtol) == (1, None)
    assert "not known" in unknown.rtol_reason
    wide = compare_arrays(np.array([2**63 - 1]), np.array([-(2**63)]))
    assert required_tolerance(wide).atol >= 2**64 - 1


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_the_second_look_agrees(pairs):
    left, right = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    figures = compare_arrays(left, right)
    first, second = required_tolerance(figures), required_tolerance(with_details(figures, left, right))
    assert first.atol == second.atol
    if first.rtol is not None:
        assert first.rtol >= second.rtol >= first.rtol * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint64", "int64", "complex64"])
def test_differences_where_the_reference_is_zero_are_counted_in_every_type(dtype):
    kind = numpy_dtype(dtype)
    left, right = np.arange(70_000) % 7, np.arange(70_000) % 5 * (np.arange(70_000) % 3)
    figures = compare_arrays(left.astype(kind), right.astype(kind))
    assert figures.differing_at_zero == np.count_nonzero((right == 0) & (left != 0))
    assert compare_arrays(left.astype(kind) + 1, left.astype(kind)).differing_at_zero == 10_000
    tiny = np.array([-(2**63), 5]) if dtype == "int64" else np.array([1, 5]).astype(kind)
    assert compare_arrays(tiny + np.ones(2, kind), tiny).differing_at_zero == 0


@settings(deadline=None)  # the first call compiles
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 6))
def test_rounding_up_never_goes_below(value, digits):
    value = abs(value)
    rounded = rounded_up(value, digits)
    assert value <= rounded
    assert rounded <= value * (1 + 10.0 ** (1 - digits)) or value < 1e-300 or math.isinf(rounded)
    assert float(f"{rounded:.{digits - 1}e}") == rounded


# ---------------------------------------------------------------------------------------------------------- exports


def variety(make):
    x = np.float32([1, 2, 3, 0])
    sides = []
    for factor in (2, 1):
        sides.append(
            make.dump(
                make.record("a:output:0", x * np.float32(factor), op_type="Mul"),
                make.record("=b\n\u5c42:output:0", np.float32([np.nan, 1]) * np.float32(factor)),
                make.record("c:input:0", np.array([2**63 - 1, -1]) if factor == 2 else np.array([-(2**63), -1])),
                make.record("d:output:0", np.ones((2, factor), np.float32)),
                make.record("e:output:0", "cut short" if factor == 2 else x),
                make.record(f"only{factor}:output:0", x),
            )
        )
    return compare_dumps(*sides)


def test_json_has_every_row_with_full_figures(make, tmp_path):
    comparison = variety(make)
    write_comparison(comparison, tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    data = json.loads(text, parse_constant=pytest.fail)
    assert len(data["rows"]) == len(comparison)
    for row, item in zip(comparison, data["rows"], strict=True):
        assert (item["op"], item["tensor"], item["reason"]) == (row.op, row.tensor, row.reason)
        for column in COLUMNS:
            expected = row.figures.column(column) if row.figures else None
            if column != "StandardDeviation":
                assert item[FIELDS[column]] == expected
        if row.figures is not None:
            assert item["reasons"] == row.figures.reasons
            assert item["required_atol"] == required_tolerance(row.figures).atol
    assert data["rows"][2]["max_abs_exact"] == 2**64 - 1 or any(
        item["max_abs_exact"] == 2**64 - 1 for item in data["rows"]
    )
    write_comparison(comparison, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == text


def test_parquet_has_typed_columns_and_the_same_figures(make, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    comparison = variety(make)
    write_comparison(comparison, tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert types["cosine"] == types["required_rtol"] == types["left_mean"] == "double"
    assert types["differing"] == types["slot"] == "int64"
    assert types["shape"].startswith("list<")
    assert types["unreadable"] == "bool"
    write_comparison(comparison, tmp_path / "r.json")
    for one, other in zip(table.to_pylist(), json.loads((tmp_path / "r.json").read_text())["rows"], strict=True):
        for name, value in other.items():
            if types[name] in ("int64", "double", "bool"):
                assert one[name] == value, name
    exact = [row["max_abs_exact"] for row in table.to_pylist()]
    assert str(2**64 - 1) in exact


def test_csv_is_the_result_file_and_other_names_are_refused(make, tmp_path):
    comparison = variety(make)
    write_comparison(comparison, tmp_path / "r.csv")
    assert (tmp_path / "r.csv").read_bytes().decode() == csv_text(comparison)
    for name in ("r", "r.txt", "r.csv.gz"):
        with pytest.raises(UsageError, match=r"has to end in .csv, .parquet or .json"):
            write_comparison(comparison, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv"]


def test_an_empty_comparison_can_be_written(make, tmp_path):
    empty = replace(variety(make), rows=())
    write_comparison(empty, tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == []


def test_a_limit_that_is_broken_stands_in_the_result_file(make, tmp_path):
    from precision_tool.commands.vector_compare import _judged_by

    limits = write_limits(tmp_path, "[default]\nrelative_distance = 0.1\n")
    judged = _judged_by(variety(make), limits)
    write_csv(judged, tmp_path / "r.csv")
    by_tensor = {row.op: row for row in read_csv(tmp_path / "r.csv").rows if row.op}
    assert by_tensor["a"].below(0.5) is True
    assert "over the limit: relative_distance 1 above 0.1" in by_tensor["a"].reason

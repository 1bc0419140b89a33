from __future__ import annotations

import pytest

from compare.result_file import read_csv, result_files
from compare.summary import Standing, summarise
from dumpers.errors import DataError

HEADER = "Index,OpType,NPUDump,DataType,GroundTruth,DataType,TensorIndex,Shape,CosineSimilarity"
HEADER += ",MaxAbsoluteError,RelativeEuclideanDistance,CompareFailReason\n"


def rows_of(tmp_path, *lines, header=HEADER):
    path = tmp_path / "result_1.csv"
    path.write_text(header + "".join(line + "\n" for line in lines))
    return read_csv(path)


def line(index, op, tensor, cosine, right="r", distance="0.0", reason=""):
    return f'{index},T,"{op}",f,"{right}",f,"{tensor}",[2],{cosine},0.0,{distance},{reason}'


def test_ops_sort_by_number_and_gaps_stay_in_place(tmp_path):
    file = rows_of(
        tmp_path,
        line(10, "b", "b:output:3", 0.5),
        line(10, "b", "b:output:11", 0.6),
        line(2, "a", "a:output:0", 0.7),
    )
    summary = summarise(file.rows)
    assert [op.index for op in summary.ops] == [2, 10]
    assert {slot: v.number for slot, v in summary.ops[1].outputs.items()} == {3: 0.5, 11: 0.6}


def test_names_with_colons_and_commas_inside_lists(tmp_path):
    file = rows_of(tmp_path, line(0, "x:y,z", "scope:x:y:output:2", 0.5, right="o1,o2"))
    (row,) = file.rows
    assert (row.op, row.io, row.slot) == ("scope:x:y", "output", 2)
    assert (row.left_names, row.right_names) == (("x:y", "z"), ("o1", "o2"))


def test_old_generation_separates_names_by_blanks(tmp_path):
    file = rows_of(tmp_path, "0,a b,c d,a:output:0,0.5", header="Index,LeftOp,RightOp,TensorIndex,CosineSimilarity\n")
    assert (file.rows[0].left_names, file.rows[0].right_names) == (("a", "b"), ("c", "d"))


def test_suspects_consequences_and_the_threshold_itself(tmp_path):
    file = rows_of(
        tmp_path,
        line(1, "good", "good:output:0", 0.99),
        line(2, "at", "at:input:0", 1.0),
        line(2, "at", "at:output:0", 0.98),
        line(3, "bad", "bad:input:0", 0.98),
        line(3, "bad", "bad:output:0", 0.97),
        line(4, "after", "after:input:0", 0.97),
        line(4, "after", "after:output:0", 0.5),
        line(5, "unknown", "unknown:output:0", "NaN", distance="NaN"),
        line(6, "alone", "NaN", "NaN", right="*", distance="NaN"),
        line(7, "undumped", "NaN", "NaN", distance="NaN"),
    )
    standing = {op.name: op.standing for op in summarise(file.rows).ops}
    assert standing == {
        "good": Standing.GOOD,
        "at": Standing.AT_THRESHOLD,
        "bad": Standing.SUSPECT,
        "after": Standing.CONSEQUENCE,
        "unknown": Standing.UNDETERMINED,
        "alone": Standing.NO_PARTNER,
        "undumped": Standing.NO_DATA,
    }


def test_limit_cuts_the_list_and_not_the_suspects(tmp_path):
    file = rows_of(tmp_path, *(line(i, f"op{i}", f"op{i}:output:0", 0.1) for i in range(5)))
    summary = summarise(file.rows, limit=2)
    assert ([op.name for op in summary.listed], summary.found, len(summary.suspects)) == (["op0", "op1"], 5, 5)


def test_a_scalar_and_a_one_sided_zero_are_judged_without_a_cosine(tmp_path):
    file = rows_of(
        tmp_path,
        line(0, "near", "near:output:0", "NaN", distance="0.000001", reason="CosineSimilarity undefined: scalar"),
        line(1, "far", "far:output:0", "NaN", distance="0.5", reason="CosineSimilarity undefined: scalar"),
        line(2, "dead", "dead:output:0", "NaN", distance="1.0", reason="CosineSimilarity undefined: left is zero"),
        line(3, "zeros", "zeros:output:0", "NaN", distance="NaN", reason="x undefined: both sides are zero"),
        line(4, "nan", "nan:output:0", "1.0", reason="1 non-finite mismatch(es); the first at element 3"),
    )
    summary = summarise(file.rows)
    assert [op.name for op in summary.suspects] == ["far", "dead", "nan"]
    assert summary.unjudged_rows == 0


def test_lower_case_nan_is_no_value_and_listed(tmp_path):
    summary = summarise(rows_of(tmp_path, line(0, "a", "a:output:0", "nan", distance="nan")).rows)
    assert [op.name for op in summary.undetermined] == ["a"]
    assert summary.ops[0].outputs[0].text == "nan"
    assert "a" in summary.warnings()[0]


def test_short_lines_are_told_and_the_rest_is_read(tmp_path):
    file = rows_of(tmp_path, "1,x", line(2, "a", "a:output:0", 0.5))
    assert len(file.rows) == 1
    assert "line 2 has 2 cells" in file.problems[0]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "Index,TensorIndex,CosineSimilarity\n"])
def test_other_files_are_refused_with_what_is_missing(tmp_path, text):
    path = tmp_path / "result_1.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"result_1\.csv"):
        read_csv(path)


def test_result_files_sort_by_number_in_sub_folders_too(tmp_path):
    for name in ("a/result_9.csv", "b/result_100.csv", "b/result_9.csv", "b/other.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [p.relative_to(tmp_path).as_posix() for p in result_files(tmp_path)] == [
        "a/result_9.csv",
        "b/result_9.csv",
        "b/result_100.csv",
    ]
    with pytest.raises(DataError, match="run vc first"):
        result_files(tmp_path / "missing" if (tmp_path / "missing").mkdir() is None else tmp_path)
    with pytest.raises(DataError, match="no such file"):
        result_files(tmp_path / "nowhere")


def test_acceptance_facts_of_the_sample_network(shared_data):
    folder = shared_data / "npu_samples" / "derived" / "vae_compare"
    rows = read_csv(folder / "result_20240125160000.csv").rows
    (op,) = summarise(rows).listed
    assert (op.index, op.name, op.left_names) == (35, "recognition/w_mean/MatMuladd", ("recognition/w_mean/MatMuladd",))
    assert op.right_names == ("recognition/w_mean/add", "recognition/w_mean/MatMul", "add")
    assert (op.inputs, {slot: v.number for slot, v in op.outputs.items()}) == ({}, {0: 0.932868})
    listed = summarise(rows, threshold=1.0, limit=20).listed
    assert [op.index for op in listed] == [27, 30, 31, 33, 34, 35]
    assert summarise(read_csv(folder / "result_20240125160100.csv").rows).listed == ()


def test_a_file_of_another_tool_is_rejected(shared_data):
    (path,) = (shared_data / "npu_samples" / "other_csv").glob("*.csv")
    with pytest.raises(DataError, match="no column Index, TensorIndex"):
        read_csv(path)

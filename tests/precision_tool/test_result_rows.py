"""``vcs --all``: every row of a result file, with what could not be judged marked as such."""

from __future__ import annotations

from compare.result_file import read_csv
from precision_tool.commands.result_rows import COLUMNS, rows_table
from precision_tool.dispatch import parse_line
from precision_tool.result import Table
from precision_tool.workbench import Workbench

HEADER = (
    "Index,OpType,NPUDump,DataType,GroundTruth,DataType,TensorIndex,Shape,CosineSimilarity,MaxAbsoluteError,"
    "AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,StandardDeviation,MeanAbsoluteError,"
    "RootMeanSquareError,MaxRelativeError,MeanRelativeError,CompareFailReason"
)
FILL = "0,(0;0),0,0,0,0"
ROWS = (
    f'0,MatMulV2,a/MatMul,float32,"a/MatMul,a/Add",float32,a/MatMul:output:0,"[2,3]",0.999,0.5,0,0.25,{FILL},',
    f"1,Relu,a/Relu,float32,a/Relu,float32,a/Relu:output:0,[6],0.5,2.0,0,0.75,{FILL},6 of 6 elements differ",
    f"2,Cast,c,NaN,*,NaN,NaN,NaN,NaN,NaN,NaN,NaN,{','.join(['NaN'] * 6)},no dump",
)


def write(path):
    path.write_text("\r\n".join((HEADER, *ROWS)) + "\r\n")
    return path


def test_all_rows_with_their_marks(tmp_path):
    table = rows_table(read_csv(write(tmp_path / "result_20240101000000.csv")), 0.98)
    assert table.columns == COLUMNS
    assert table.paged
    assert table.marks == {1: "bad", 2: "warn"}
    assert table.rows[0] == (0, "MatMulV2", "a/MatMul", "a/MatMul,a/Add", "output:0", "[2,3]", 0.999, 0.5, 0.25, "")
    assert table.rows[1][6:] == (0.5, 2.0, 0.75, "6 of 6 elements differ")
    assert table.rows[2][2:4] == ("c", "*")
    assert table.rows[2][4] is None
    assert table.rows[2][6:] == (None, None, None, "no dump")


def test_the_threshold_decides_what_is_bad(tmp_path):
    file = read_csv(write(tmp_path / "result_20240101000000.csv"))
    assert rows_table(file, 0.4).marks == {2: "warn"}
    assert rows_table(file, 1.0).marks == {0: "bad", 1: "bad", 2: "warn"}


def test_only_on_request(tmp_path):
    path = write(tmp_path / "result_20240101000000.csv")
    for line, wanted in ((f"vcs -f {path}", 0), (f"vcs -f {path} --all", 1), (f"vcs -f {path} -a", 1)):
        result = parse_line(line).run(Workbench())
        assert sum(isinstance(b, Table) and b.title == "All tensors" for b in result.blocks) == wanted

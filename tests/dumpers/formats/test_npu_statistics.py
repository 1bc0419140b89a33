"""Statistics dumps: figures without values, in folders of their own and beside tensors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npu_statistics import read_statistics, read_statistics_file
from dumpers.formats.registry import read_dump
from dumpers.records import RecordedStatistics

COLUMNS = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,"
    "Count,Nan Count,Negative Inf Count,Positive Inf Count"
)
TIME = 1706168000000000
NAME = f"MatMulV2.net_fc_MatMul.11.3.{TIME}.csv"


def write(path: Path, *rows: str, columns: str = COLUMNS) -> Path:
    path.write_text("\n".join((columns, *rows)) + "\n")
    return path


def test_all_columns(tmp_path: Path):
    path = write(
        tmp_path / NAME,
        "Input,0,64,DT_FLOAT16,FORMAT_NC1HWC0,2x3x4,1.5,-2,0.25,24,0,0,0",
        "Output,0,96,FLOAT,ND,-,nan,nan,nan,1,1,0,0",
        "Output,1,96,BOOL,ND,2,True,False,,2,,,",
        "Output,2,96,DT_SOMETHING,ND,-,,,,,,,",
    )
    first, second, third, last = read_statistics(path)
    assert (first.op, first.op_type, first.io, first.slot) == ("net_fc_MatMul", "MatMulV2", "input", 0)
    assert (first.task_id, first.stream_id, first.timestamp_us) == (11, 3, TIME)
    assert (first.dtype, first.format, first.shape, first.source) == ("float16", "NC1HWC0", (2, 3, 4), None)
    assert first.statistics == RecordedStatistics(24, 0, 0, 0, -2, 1.5, 0.25)
    assert first.note == f"statistics only ({NAME})"
    assert (second.dtype, second.shape, second.statistics.nan) == ("float32", (), 1)
    assert math.isnan(second.statistics.max)
    assert third.statistics == RecordedStatistics(count=2, min=0, max=1)
    assert (last.dtype, last.shape, last.statistics) == ("dt_something", None, RecordedStatistics())
    with pytest.raises(DataError, match="statistics only"):
        first.load()


def test_older_files_stop_earlier_and_columns_may_move(tmp_path: Path):
    path = write(tmp_path / NAME, "5,Input,0,-5,int32", columns="Max Value,Input/Output,Index,Min Value,Data Type")
    (record,) = read_statistics(path)
    assert (record.dtype, record.shape, record.format) == ("int32", None, "")
    assert record.statistics == RecordedStatistics(min=-5, max=5)
    assert record.statistics.finite is None


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("Inout,0,1,FLOAT,ND,2,1,1,1,1,0,0,0", "line 2: Input/Output says 'Inout'"),
        ("Input,,1,FLOAT,ND,2,1,1,1,1,0,0,0", "has no Index"),
        ("Input,-1,1,FLOAT,ND,2,1,1,1,1,0,0,0", "Index is '-1'"),
        ("Input,0,1,FLOAT,ND,2xx3,1,1,1,1,0,0,0", "Shape is '2xx3'"),
        ("Input,0,1,FLOAT,ND,99999999999x99999999999,1,1,1,1,0,0,0", "impossible shape"),
        ("Input,0,1,FLOAT,ND,2,one,1,1,1,0,0,0", "Max Value is 'one'"),
        ("Input,0,1,FLOAT,ND,2,1,1,1,1,many,0,0", "Nan Count is 'many'"),
    ],
)
def test_a_bad_line_does_not_spoil_the_others(tmp_path: Path, row: str, text: str):
    good = "Output,0,1,FLOAT,ND,2,1,1,1,2,0,0,0"
    found = read_statistics_file(write(tmp_path / NAME, row, good))
    assert [record.name for record in found.records] == ["net_fc_MatMul:output:0"]
    assert text in found.problems[0].reason
    with pytest.raises(DataError, match="line 2"):
        read_statistics(write(tmp_path / NAME, row))


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "\x00\x01", '"' + "x" * 200_000])
def test_what_is_no_statistics_file(tmp_path: Path, content: str):
    (tmp_path / NAME).write_text(content)
    with pytest.raises(DataError, match=NAME):
        read_statistics(tmp_path / NAME)


def tensor(folder: Path, name: str, array: np.ndarray) -> None:
    write_npu_dump(folder / name, op_name="", inputs=[], outputs=[array], dump_time_us=TIME)


def test_mixed_folder(tmp_path: Path):
    row = "Output,0,96,FLOAT,ND,2,7,1,4,2,0,0,0"
    tensor(tmp_path, f"Add.a.1.0.{TIME}", np.float32([1, 7]))  # same time: together
    write(tmp_path / f"Add.a.1.0.{TIME}.csv", row)
    tensor(tmp_path, f"Add.b.2.0.{TIME + 1}", np.float32([1, 7]))  # once each, other time: together
    write(tmp_path / f"Add.b.2.0.{TIME + 2}.csv", row)
    tensor(tmp_path, f"Add.c.3.0.{TIME + 3}", np.float32([1, 7]))  # two runs: not certain, so it stands alone
    tensor(tmp_path, f"Add.c.3.0.{TIME + 5}", np.float32([1, 7]))
    write(tmp_path / f"Add.c.3.0.{TIME + 4}.csv", row)
    write(tmp_path / f"Add.d.4.0.{TIME + 6}.csv", row, "Input,x,,,,,,,,,,,")
    found = read_dump(tmp_path)
    state = [(r.op, r.timestamp_us - TIME, r.source is not None, r.statistics is not None) for r in found]
    assert state == [
        ("a", 0, True, True),
        ("b", 1, True, True),
        ("c", 3, True, False),
        ("c", 4, False, True),
        ("c", 5, True, False),
        ("d", 6, False, True),
    ]
    assert found.records[0].statistics == RecordedStatistics(2, 0, 0, 0, 1, 7, 4)
    assert [problem.path.name for problem in found.problems] == [f"Add.d.4.0.{TIME + 6}.csv"]
    assert found.ignored == ()


def test_folder_of_statistics_only(tmp_path: Path):
    leaf = tmp_path / "20240125153144/0/graph/1/0"
    leaf.mkdir(parents=True)
    write(leaf / NAME, "Output,0,96,FLOAT,ND,2,7,1,4,2,0,0,0")
    found = read_dump(tmp_path)
    assert [(record.name, record.step) for record in found] == [("net_fc_MatMul:output:0", 0)]

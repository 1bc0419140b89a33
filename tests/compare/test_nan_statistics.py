"""NaN and infinities that only recorded statistics tell of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compare.nan_origin import search_nan
from compare.nan_scan import scan_record
from dumpers.formats.npu_dir import read_npu_dir
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npu_statistics import read_statistics

COLUMNS = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,"
    "Count,Nan Count,Negative Inf Count,Positive Inf Count"
)
TIME = 1706168000000000
NAME = f"MatMulV2.net_fc_MatMul.11.3.{TIME}.csv"


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join((COLUMNS, *rows)) + "\n")
    return path


def tensor(folder: Path, name: str, array: np.ndarray) -> None:
    write_npu_dump(folder / name, op_name="", inputs=[], outputs=[array], dump_time_us=TIME)


@pytest.mark.parametrize(
    ("figures", "kind", "text"),
    [
        ("7,-1,4,4,1,0,2", "nan", "has nan (1 NaN, 2 Inf, 0 -Inf; from statistics, element and value not known)"),
        ("7,-1,4,4,0,3,0", "-inf", "has -inf (0 NaN, 0 Inf, 3 -Inf;"),
        ("inf,-1,4,4,,,", "inf", "has inf (number not known; from statistics"),
        ("7,-1,4,4,0,0,0", "", "is finite"),
    ],
)
def test_nan_scan(tmp_path: Path, figures: str, kind: str, text: str):
    finding = scan_record(read_statistics(write(tmp_path / NAME, f"Output,0,96,FLOAT,ND,2x2,{figures}"))[0])
    assert (finding.kind, finding.bad, finding.index) == (kind, bool(kind), None)
    assert text in finding.describe()


def test_without_counts_nothing_is_claimed(tmp_path: Path):
    finding = scan_record(read_statistics(write(tmp_path / NAME, "Output,0,96,FLOAT,ND,2x2,7,-1,4,4,,,"))[0])
    assert not finding.known
    assert "statistics only" in finding.problem


def test_nan_search_begins_where_statistics_tell(tmp_path: Path):
    tensor(tmp_path, f"Relu.a.1.0.{TIME}", np.float32([1, 7]))
    write(
        tmp_path / f"Log.b.2.0.{TIME + 1}.csv",
        "Input,0,96,FLOAT,ND,2,7,1,4,2,0,0,0",
        "Output,0,96,FLOAT,ND,2,7,1,4,2,1,0,0",
    )
    tensor(tmp_path, f"Add.c.3.0.{TIME + 2}", np.float32([np.nan, 7]))
    dump = read_npu_dir(tmp_path, sorted(path.name for path in tmp_path.iterdir()))
    origin = search_nan(dump).origin
    assert (origin.op, origin.cause, origin.index, origin.finding.recorded) == ("b", "operator", (), True)
    assert origin.explanation[0] == "b [Log]: nan somewhere in output 0"
    assert "element and value not known" in origin.explanation[1]
    assert [finding.record.op for finding in origin.consequences] == ["c"]

"""``nan`` on dumps that lie on disk: what it prints, what its JSON holds, its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dumpers.errors import UsageError
from dumpers.formats.npy import write_npy
from precision_tool.render import json_document
from precision_tool.result import Panel, Table

TIME = 1_706_168_000_000_000
NAN, INF = np.float32(np.nan), np.float32(np.inf)


@pytest.fixture
def folder(tmp_path):
    """A chain of five ops: the second makes an infinity, the others pass it on; the clock ties in the middle."""
    values = [[1, 2], [1, -INF], [1, NAN], [1, NAN], [1, NAN]]
    for number, (value, time) in enumerate(zip(values, (0, 1, 2, 2, 3), strict=True)):
        write_npy(tmp_path / f"op{number}.0.{TIME + time}.npy", np.array(value, np.float32))
    return tmp_path


def tables(result):
    return {block.title: block for block in result.blocks if isinstance(block, Table)}


def test_the_first_bad_tensor_and_what_follows(folder, ask):
    result = ask(f"nan {folder}", folder)
    assert result.exit_code == 1
    origin = result.data["dumps"][0]["origin"]
    expected = {"op": "op1", "io": "output", "slot": 0, "kind": "-inf", "index": [1], "shape": [2]}
    assert {key: origin[key] for key in expected} == expected
    assert (origin["nan"], origin["inf"], origin["minus_inf"]) == (0, 0, 1)
    (panel,) = [block for block in result.blocks if isinstance(block, Panel)]
    assert "op1:output:0 has -inf at [1] (0 NaN, 0 Inf, 1 -Inf of 2)" in panel.lines
    assert [row[0] for row in tables(result)["Consequences"].rows] == ["op2", "op3", "op4"]


def test_all_lists_every_bad_tensor_in_order_with_its_part(folder, ask):
    result = ask(f"nan {folder} --all", folder)
    table = tables(result)["Not finite"]
    assert [(row[0], row[-1]) for row in table.rows] == [
        ("op1", "origin"),
        ("op2", "follows"),
        ("op3", "follows"),
        ("op4", "follows"),
    ]
    assert table.marks == {0: "bad"}


def test_limit_bounds_the_lists_and_json_has_everything(folder, ask):
    result = ask(f"nan {folder} --all --limit 2", folder)
    assert len(tables(result)["Not finite (the first 2 of 4)"].rows) == 2
    document = json.loads(json_document("nan", result))
    assert [found["op"] for found in document["result"]["dumps"][0]["findings"]] == ["op1", "op2", "op3", "op4"]
    assert len(tables(ask(f"nan {folder} --limit 1", folder))["Consequences (the first 1 of 3)"].rows) == 1


def test_the_answer_does_not_depend_on_the_threads(folder, ask):
    answers = {json_document("nan", ask(f"nan {folder} --all --threads {n}", folder)) for n in (1, 2, 8)}
    assert len(answers) == 1


@pytest.mark.parametrize("option", ["--limit 0", "--threads 0", "--threads -2"])
def test_wrong_numbers_are_usage(folder, ask, option):
    with pytest.raises(UsageError, match="a number from 1 on"):
        ask(f"nan {folder} {option}", folder)


def test_a_clean_dump_is_0_a_damaged_one_3_whatever_was_found(tmp_path, ask):
    write_npy(tmp_path / f"a.0.{TIME}.npy", np.zeros((), np.float32))
    write_npy(tmp_path / f"b.0.{TIME}.npy", np.zeros((0, 4), np.float32))
    clean = ask(f"nan {tmp_path} --all", tmp_path)
    assert (clean.exit_code, tables(clean)["Not finite"].rows) == (0, ())
    write_npy(tmp_path / f"c.0.{TIME}.npy", np.array([NAN] * 100))
    assert ask(f"nan {tmp_path}", tmp_path).exit_code == 1
    path = tmp_path / f"d.0.{TIME}.npy"
    path.write_bytes((tmp_path / f"c.0.{TIME}.npy").read_bytes()[:-7])
    result = ask(f"nan {tmp_path}", tmp_path)
    assert result.exit_code == 3
    assert result.data["dumps"][0]["origin"]["op"] == "c"
    assert str(path) in result.problems[0]


def test_ops_that_are_left_out_are_no_finding(tmp_path, ask):
    write_npy(tmp_path / f"mask.0.{TIME}.npy", np.array([0, -INF]))
    result = ask(f"nan {tmp_path} -x mask --all", tmp_path)
    assert (result.exit_code, result.data["dumps"][0]["findings"]) == (0, [])

"""``ckpt`` through every way to start it: exit codes, JSON, what it says of the files it chose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from precision_tool.render import plain_data
from precision_tool.result import Table
from tests.table_files import entry, write_bundle

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def cases(shared_data):
    return shared_data / "field_cases"


@pytest.fixture
def pair(tmp_path):
    """Two checkpoints: ``w`` equal, ``v`` turned round."""
    for name, sign in (("left", -1), ("right", 1)):
        w, v = np.float32([1, 2, 3]).tobytes(), (np.float32([1, 2, 3, 4]) * sign).tobytes()
        write_bundle(tmp_path / f"{name}-7", {"w": entry(1, (3,), w, 0), "v": entry(1, (4,), v, 12)}, w + v)
    return tmp_path / "left-7", tmp_path / "right-7"


def start(*words):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_difference_is_exit_code_1(pair, ask, tmp_path):
    result = ask(f"ckpt {pair[0]} {pair[1]}", tmp_path)
    assert result.exit_code == 1
    assert result.data["below"] == ["v"]
    assert result.data["counts"] == {"values differ": 1, "equal": 1}
    (table,) = [block for block in result.blocks if isinstance(block, Table) and block.title.startswith("By cosine")]
    assert [row[0] for row in table.rows] == ["v", "w"]
    assert table.marks == {0: "bad"}
    json.dumps(plain_data(result.data), allow_nan=False)


def test_equal_is_exit_code_0(pair, ask, tmp_path):
    result = ask(f"ckpt {pair[0]}.index {pair[0]}.data-00000-of-00001", tmp_path)
    assert result.exit_code == 0
    assert "2 equal (of 2 variables)" in result.title


def test_unreadable_wins(pair, ask, tmp_path):
    data = Path(f"{pair[0]}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:11] + b"\xff" + data.read_bytes()[12:])
    result = ask(f"ckpt {pair[0]} {pair[1]}", tmp_path)
    assert result.exit_code == 3
    assert result.data["unreadable"] == ["w"]
    assert result.data["below"] == ["v"]
    assert len(result.problems) == 1
    assert "w at byte 0" in result.problems[0]


def test_threshold_and_limit(pair, ask, tmp_path):
    result = ask(f"ckpt {pair[0]} {pair[1]} -c -1 -l 1", tmp_path)
    assert result.data["below"] == []
    (table,) = [block for block in result.blocks if isinstance(block, Table) and block.title.startswith("By cosine")]
    assert table.title == "By cosine, the lowest first (the first 1 of 2)"
    for wrong in ("-c 2", "-c nan", "-l -1"):
        with pytest.raises(UsageError, match="ckpt: -"):
            ask(f"ckpt {pair[0]} {pair[1]} {wrong}", tmp_path)


@pytest.mark.parametrize("line", ["ckpt", "ckpt only_one", "ckpt a b c"])
def test_two_checkpoints_are_needed(line, ask, tmp_path):
    with pytest.raises(UsageError):
        ask(line, tmp_path)


def test_a_path_that_is_not_there(pair, ask, tmp_path):
    with pytest.raises(DataError, match=r"left-8\.index: no such file \(there are left-7, right-7\)"):
        ask(f"ckpt {pair[0].with_name('left-8')} {pair[1]}", tmp_path)


# --------------------------------------------------------------------------------------------- as a program of its own


def answer(*words):
    done = start(*words, "--json")
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_field_case_21_through_the_program(cases):
    code, document = answer(ROOT / "cli.py", "ckpt", cases / "FC21/left/model-1", cases / "FC21/right/model-1")
    assert (code, document["ok"], document["command"]) == (1, True, "ckpt")
    result = document["result"]
    verdicts = {row["name"]: row["verdict"] for row in result["rows"]}
    assert verdicts["w"] == verdicts["empty/table"] == "equal"
    assert result["missing_on_the_right"] == ["only_left"]
    assert result["missing_on_the_left"] == ["only_right"]
    assert {row["name"]: row["differing"] for row in result["rows"] if row["verdict"] == "values differ"} == {
        "ids": 1,
        "flag": 1,
        "global_step": 1,
        "vocab/words": 1,
    }
    assert result["below"] == []


def test_field_case_20_through_the_program(cases):
    code, document = answer(ROOT / "cli.py", "ckpt", cases / "FC20/abnormal", cases / "FC20/normal")
    assert code == 1
    assert document["result"]["below"] == ["head/kernel", "emb/w", "tower/kernel"]
    assert sorted(document["result"]["flagged"]) == ["emb/m", "head/bias"]


def test_field_case_22_through_the_program(cases):
    folder = cases / "FC22/copied_run"
    code, document = answer(ROOT / "cli.py", "ckpt", folder, folder / "model.ckpt-100")
    assert code == 0
    left = document["result"]["left"]
    assert left["prefix"] == str(folder / "model.ckpt-100")
    assert left["checkpoints"] == ["model.ckpt-9", "model.ckpt-10", "model.ckpt-100"]
    assert "/srv/train/old_run/model.ckpt-100" in left["notes"][0]
    said = start(ROOT / "cli.py", "ckpt", folder, folder).stderr
    assert "names /srv/train/old_run/model.ckpt-100, outside its folder" in said


@pytest.mark.parametrize(
    ("case", "named", "equal"),
    [
        ("cut_data", "model-7.data-00000-of-00001: z", ["a", "b"]),
        ("flipped_byte", "model-7.data-00000-of-00001: b", ["a", "z"]),
        ("cut_index", "model-7.index", []),
        ("no_data", "model-7.data-00000-of-00001", []),
    ],
)
def test_field_case_23_through_the_program(cases, case, named, equal):
    code, document = answer(ROOT / "cli.py", "ckpt", cases / "FC23" / case, cases / "FC23/good")
    assert (code, document["ok"], document["exit_code"]) == (3, False, 3)
    assert named in document["error"]
    rows = document["result"].get("rows", [])
    assert sorted(row["name"] for row in rows if row["verdict"] == "equal") == equal


def test_the_documented_script(pair):
    done = start(ROOT / "precision_tool" / "ckpt_compare.py", *pair)
    assert done.returncode == 1
    assert "By cosine, the lowest first" in done.stdout
    assert done.stderr == ""
    code, document = answer(ROOT / "precision_tool" / "ckpt_compare.py", *pair)
    assert (code, document["command"], document["result"]["below"]) == (1, "ckpt", ["v"])
    missing = start(ROOT / "precision_tool" / "ckpt_compare.py", pair[0])
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("error: ckpt: ")


def test_no_tensorflow_is_loaded(pair):
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import cli; "
        f"code = cli.main(['ckpt', {str(pair[0])!r}, {str(pair[1])!r}]); "
        "heavy = {'tensorflow', 'pandas', 'numba', 'textual'} & set(sys.modules); sys.exit(10 if heavy else code)"
    )
    assert start("-c", program).returncode == 1

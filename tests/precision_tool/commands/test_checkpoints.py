"""``ckpt`` through every way to start it: exit codes, JSON, what it says of the files it chose."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from precision_tool.render import plain_data
from precision_tool.result import Table
from tests.sparse_files import write_table
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
        "heavy = {'tensorflow', 'pandas', 'textual'} & set(sys.modules); sys.exit(10 if heavy else code)"
    )
    assert start("-c", program).returncode == 1


# ----------------------------------------------------------------------------------------------- names, tables, files


@pytest.fixture
def models(tmp_path, pair):
    """The two checkpoints with embedding tables beside them; key 3 differs, 1 is only left, 9 only right."""
    for prefix, keys, change in ((pair[0], [1, 2, 3], 1.0), (pair[1], [3, 2, 9], 0.0)):
        rows = np.float32([[key, 2, 3 + (change if key == 3 else 0)] for key in keys])
        write_table(
            prefix.with_name(f"sparse-{prefix.name}") / "user", keys, embedding=rows, LazyAdam_momentum=np.abs(rows * 0)
        )
    return pair


def test_tables_beside_a_checkpoint_are_compared_by_key(models, ask, tmp_path):
    result = ask(f"ckpt {models[0]} {models[1]} --csv {tmp_path / 'rows.csv'}", tmp_path)
    assert result.exit_code == 1
    assert "1 values differ (of 1 embedding tables)" in result.title
    (table,) = result.data["tables"]
    assert (table["name"], table["keys"], table["shared"]) == ("user", [3, 3], 2)
    assert table["missing_on_the_right"] == {"count": 1, "smallest": [1]}
    assert table["missing_on_the_left"] == {"count": 1, "smallest": [9]}
    rows, slot = table["columns"]
    assert (rows["rows_differing"], rows["differing"], [key["key"] for key in rows["worst"]]) == (1, 1, [3])
    assert (slot["name"], slot["verdict"], slot["reason"]) == ("LazyAdam_momentum", "equal", "both sides are zero")
    titles = [block.title for block in result.blocks]
    assert "Embedding tables, the worst first" in titles
    assert "Worst keys of user" in titles
    json.dumps(plain_data(result.data), allow_nan=False)
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["Variable"] for row in written] == ["v", "w", "user/embedding", "user/LazyAdam_momentum"]
    assert written[0]["CosineSimilarity"] == "-1.0"
    assert written[2]["Left"] == "float32[3, 3]"
    assert written[2]["Keys"] == "2"
    assert written[3]["SlotOf"] == "user/embedding"
    assert result.files == [tmp_path / "rows.csv"]


def test_trees_by_themselves(models, ask, tmp_path):
    trees = [path.with_name(f"sparse-{path.name}") for path in models]
    result = ask(f"ckpt {trees[0]} {trees[1]}", tmp_path)
    assert result.exit_code == 1
    assert "rows" not in result.data
    assert result.data["one_sided"] == []
    assert ask(f"ckpt {trees[0]} {models[1]}", tmp_path).data["one_sided"] == []
    assert ask(f"ckpt {trees[0] / 'user'} {trees[0] / 'user'}", tmp_path).exit_code == 0
    os.truncate(trees[0] / "user/embedding/slice.data", 5)
    broken = ask(f"ckpt {trees[0]} {trees[1]}", tmp_path)
    assert broken.exit_code == 3
    assert len(broken.problems) == 1
    assert "5 bytes do not fit 3 keys" in broken.problems[0]


def test_a_part_that_only_one_side_has(models, ask, tmp_path):
    shutil.rmtree(models[1].with_name(f"sparse-{models[1].name}"))
    result = ask(f"ckpt {models[0]}.index {models[0]}.index", tmp_path)
    assert result.exit_code == 0
    result = ask(f"ckpt {models[0]} {models[1]}", tmp_path)
    assert result.data["one_sided"] == [
        f"the embedding tables of {models[0].with_name(f'sparse-{models[0].name}')} are missing on the right"
    ]
    with pytest.raises(DataError, match="nothing to compare"):
        ask(f"ckpt {models[0].with_name(f'sparse-{models[0].name}')} {models[1]}", tmp_path)


def test_a_folder_with_tables_only(models, ask, tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    for step in (9, 10):
        shutil.copytree(models[0].with_name("sparse-left-7"), folder / f"sparse-model-{step}")
    result = ask(f"ckpt {folder} {folder / 'model-9'}", tmp_path)
    assert result.exit_code == 0
    assert result.data["left"]["sparse"] == str(folder / "sparse-model-10")
    assert result.data["right"]["sparse"] == str(folder / "sparse-model-9")


def test_names_that_look_like_formulas_do_not_become_any(tmp_path, ask):
    raw = np.float32([1, 2, 3]).tobytes()
    for name in ("left", "right"):
        names = ["=cmd()", "-w", "plain", "a,b"]
        write_bundle(tmp_path / f"{name}-1", {n: entry(1, (3,), raw, 12 * at) for at, n in enumerate(names)}, raw * 4)
    ask(f"ckpt {tmp_path / 'left-1'} {tmp_path / 'right-1'} --csv {tmp_path / 'x.csv'}", tmp_path)
    with open(tmp_path / "x.csv", newline="", encoding="utf-8") as file:
        assert {row["Variable"] for row in csv.DictReader(file)} == {"'=cmd()", "'-w", "plain", "a,b"}


def test_options_are_checked_before_anything_is_read(pair, ask, tmp_path):
    for wrong, said in (("--strip /", "an empty scope"), ("--csv /nowhere/at/all.csv", "a folder that exists")):
        with pytest.raises(UsageError, match=said):
            ask(f"ckpt {pair[0]} {pair[1]} {wrong}", tmp_path)


def test_scopes_and_trust(pair, ask, tmp_path):
    raw = np.float32([1, 2, 3]).tobytes()
    write_bundle(tmp_path / "scoped-1", {"npu/w": entry(1, (3,), raw, 0)}, raw)
    write_bundle(tmp_path / "bare-1", {"w": entry(1, (3,), raw, 0)}, raw)
    line = f"ckpt {tmp_path / 'scoped-1'} {tmp_path / 'bare-1'}"
    result = ask(line, tmp_path)
    assert result.exit_code == 1
    assert "1 names would meet without the scope npu: --strip npu" in result.notes
    assert ask(f"{line} --strip npu", tmp_path).exit_code == 0
    trusted = ask(f"{line} --strip npu/ --trust-index", tmp_path)
    assert trusted.data["rows"][0]["reason"] == "equal by the checksums of both indexes; not read"


def test_the_console_script_is_this_function():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["ckpt_compare"] == "precision_tool.ckpt_compare:main"
    from precision_tool.ckpt_compare import main

    assert callable(main)


def test_the_users_map_pairs_variables(ask, tmp_path):
    raw = np.float32([1, 2, 3]).tobytes()
    write_bundle(tmp_path / "old-1", {"a/w": entry(1, (3,), raw, 0), "a/b": entry(1, (3,), raw, 0)}, raw)
    write_bundle(tmp_path / "new-1", {"x/kernel": entry(1, (3,), raw, 0), "x/bias": entry(1, (3,), raw, 0)}, raw)
    (tmp_path / "map.csv").write_text("a/w,x/kernel\na/b,x/bias\nnobody,x/else\n")
    line = f"ckpt {tmp_path / 'old-1'} {tmp_path / 'new-1'}"
    assert ask(line, tmp_path).data["counts"] == {"missing on the right": 2, "missing on the left": 2}
    result = ask(f"{line} --map {tmp_path / 'map.csv'}", tmp_path)
    assert (result.exit_code, result.data["counts"]) == (0, {"equal": 2})
    assert {row["note"] for row in result.data["rows"]} == {
        "paired with x/kernel by the map",
        "paired with x/bias by the map",
    }
    assert any("nobody" in note for note in result.notes)
    with pytest.raises(DataError):
        ask(f"{line} --map {tmp_path / 'nothing.csv'}", tmp_path)

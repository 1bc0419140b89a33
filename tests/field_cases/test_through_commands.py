"""Field cases FC06-FC12, FC14 and FC20-FC23 through the commands a user types: every sentence of "Right"."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.npy import read_npy
from dumpers.settings import Settings
from precision_tool import dispatch
from precision_tool.result import Result, Table
from precision_tool.workbench import Workbench

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cases(shared_data):
    return shared_data / "field_cases"


@pytest.fixture(scope="module")
def expected(cases):
    return json.loads((cases / "expected.json").read_text())


@pytest.fixture(autouse=True)
def _no_warning_on_screen():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def ask(tmp_path):
    """Runs one line as every front does."""

    def run(line: str) -> Result:
        return dispatch.parse_line(line).run(Workbench(Settings(root_dir=tmp_path)))

    return run


@pytest.fixture
def folders(cases, tmp_path):
    """Lays the pairs of a case out as two dumps, one tensor a file."""

    def lay(case: str) -> tuple[Path, Path]:
        sides = (tmp_path / case / "left", tmp_path / case / "right")
        for side in sides:
            side.mkdir(parents=True)
            for number, file in enumerate(sorted((cases / case).glob(f"*.{side.name}.npy"))):
                shutil.copy(file, side / f"{file.name.split('.')[0]}.0.{1_700_000_000_000_000 + number}.npy")
        return sides

    return lay


@pytest.fixture
def compared(folders, ask):
    """The result of ``vc`` on a case, its result file's rows by op, and the file."""

    def run(case: str) -> tuple[Result, dict[str, dict[str, str]], Path]:
        left, right = folders(case)
        result = ask(f"vc -lt {left} -rt {right}")
        (file,) = result.files
        with file.open(newline="") as text:
            rows = {row["NPUDump"]: row for row in csv.DictReader(text)}
        return result, rows, file

    return run


def table_of(result, beginning):
    (found,) = [b for b in result.blocks if isinstance(b, Table) and b.title.startswith(beginning)]
    return found


def program(*words):
    """The command line as a process of its own; nothing of NumPy's and no traceback may reach the screen."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "Warning" not in done.stderr
    assert "Traceback" not in done.stderr
    return done


# ---------------------------------------------------------------------------------------------------------- comparing


def test_fc06_cosines_and_what_is_below(compared, ask, expected):
    result, rows, file = compared("FC06")
    assert result.exit_code == 1
    assert {name: row["CosineSimilarity"] for name, row in rows.items()} == {
        name: f"{figures['cosine_of_jointly_finite']:.6f}" for name, figures in expected["FC06"].items()
    }
    below = {row["op"]: row["figures"]["CosineSimilarity"] for row in result.data["comparisons"][0]["below"]}
    assert below.keys() == {"f32_tiny", "f64_huge"}
    assert below["f32_tiny"] == pytest.approx(0.9780084888, abs=1e-10)
    assert rows["f32_near_one"]["CompareFailReason"].startswith("8190 of 8192 elements differ")
    assert rows["f16_two"]["CompareFailReason"] == ""
    (summary,) = ask(f"vcs -f {file} -l 20").data["files"]
    assert [op["name"] for op in summary["suspects"]] == ["f32_tiny", "f64_huge"]


def test_fc07_a_dead_side_is_a_suspect_and_two_zeros_are_not(compared, ask):
    result, rows, file = compared("FC07")
    assert result.data["comparisons"][0]["differing"] == 1
    for name in ("both_zero", "negative_zero"):
        assert rows[name]["CosineSimilarity"] == "NaN"
        assert "both sides are zero" in rows[name]["CompareFailReason"]
        assert "differ" not in rows[name]["CompareFailReason"]
    dead = rows["left_zero_only"]
    assert (dead["CosineSimilarity"], dead["MaxAbsoluteError"]) == ("NaN", "0.001000")
    assert dead["RelativeEuclideanDistance"] == "1.000000"
    assert "CosineSimilarity undefined: left is zero" in dead["CompareFailReason"]
    assert rows["subnormal_equal"]["CosineSimilarity"] == "1.000000"
    for threshold in ("0.98", "0", "-1"):  # no threshold drops it
        (summary,) = ask(f"vcs -f {file} -c {threshold} -l 20").data["files"]
        assert [op["name"] for op in summary["suspects"]] == ["left_zero_only"]
        assert summary["undetermined"] == []


def test_fc08_mismatches_are_found_and_equal_ones_counted(compared, ask):
    result, rows, file = compared("FC08")
    assert result.exit_code == 1
    mismatches = ["inf_sign", "inf_vs_saturated", "nan_left_only", "nan_vs_inf"]
    comparison = result.data["comparisons"][0]
    assert comparison["differing"] == 4
    assert [row["op"] for row in comparison["below"]] == mismatches
    for name in mismatches:
        assert "1 non-finite mismatch(es)" in rows[name]["CompareFailReason"]
        assert rows[name]["CosineSimilarity"] == "1.000000"  # over the rest: it must not decide
    assert "equal element for element" in rows["all_nan"]["CompareFailReason"]
    counts = {"nan_same_place": "NaN 1 left 1 right", "inf_same": "infinite 1 left 1 right", "all_nan": "NaN 8 left 8"}
    for name, said in counts.items():
        assert said in rows[name]["CompareFailReason"]
        assert "differ" not in rows[name]["CompareFailReason"]
    assert (rows["all_nan"]["CosineSimilarity"], rows["nan_same_place"]["CosineSimilarity"]) == ("NaN", "1.000000")
    (summary,) = ask(f"vcs -f {file} -l 20").data["files"]
    assert [op["name"] for op in summary["suspects"]] == mismatches
    assert summary["non_finite_mismatches"] == [f"{name}:output:0" for name in mismatches]
    assert (summary["undetermined"], summary["warnings"]) == ([], [])  # all_nan is equal, so it was judged


def test_fc08_a_mismatch_stands_before_every_finite_difference(folders):
    left, right = folders("FC08")
    for side, sign in ((left, 1), (right, -1)):
        np.save(side / "a_turned_round.0.1600000000000000.npy", np.float32([1, 2, 3]) * sign)
    from compare.sweep import compare_dumps
    from dumpers.formats.registry import read_dump

    ranked = [row.op for row in compare_dumps(read_dump(left), read_dump(right)).ranked()]
    assert sorted(ranked[:4]) == ["inf_sign", "inf_vs_saturated", "nan_left_only", "nan_vs_inf"]
    assert ranked[4:] == ["a_turned_round"]


def test_fc09_ids_differ_exactly(compared, cases, ask):
    result, rows, _ = compared("FC09")
    assert result.data["comparisons"][0]["differing"] == 5
    wanted = {
        "above_2p24": ("1 of 4", "1.000000"),
        "above_2p53": ("1 of 3", "1.000000"),
        "hash_ids": ("1 of 2", "10.000000"),
        "uint8_wrap": ("2 of 3", "255.000000"),
        "bool": ("1 of 3", "1.000000"),
    }
    for name, (said, greatest) in wanted.items():
        assert rows[name]["CompareFailReason"].startswith(f"{said} elements differ")
        assert rows[name]["MaxAbsoluteError"] == greatest
    assert (rows["same"]["CompareFailReason"], rows["same"]["MaxAbsoluteError"]) == ("", "0.000000")
    for name in ("above_2p24", "above_2p53", "hash_ids"):
        assert rows[name]["CosineSimilarity"] == "1.000000"
        shown = ask(f"cp {cases / 'FC09' / f'{name}.left.npy'} {cases / 'FC09' / f'{name}.right.npy'}").data
        assert (shown["verdict"], shown["differing"]) == ("different", 1)


def test_fc10_the_distance_and_the_factor_are_said(compared):
    result, rows, _ = compared("FC10")
    assert "scaled by 2 (right = 2 x left)" in rows["doubled"]["CompareFailReason"]
    assert "shifted by -1" in rows["offset"]["CompareFailReason"]
    assert rows["doubled"]["CosineSimilarity"] == "1.000000"
    assert rows["doubled"]["RelativeEuclideanDistance"] == "0.500000"
    assert (rows["offset"]["MaxAbsoluteError"], rows["offset"]["RelativeEuclideanDistance"]) == ("1.000000", "0.009901")
    assert float(rows["rounding_only"]["RelativeEuclideanDistance"]) == pytest.approx(9.6e-7, abs=1e-6)
    assert result.data["comparisons"][0]["differing"] == 3
    assert result.data["comparisons"][0]["below"] == []
    ranking = table_of(result, "Largest differences")
    assert [row[2] for row in ranking.rows] == ["doubled", "offset", "rounding_only"]


@pytest.mark.parametrize("number", [0, 1])
def test_fc11_the_culprit_comes_first_on_screen(cases, number):
    done = program("vcs", "-f", cases / f"FC11/result_2024010100000{number}.csv", "-c", "0.98", "-l", "20")
    assert done.returncode == 1
    places = [done.stdout.index(name) for name in ("[9] MatMul_9", "[10] Relu_10", "[11] Split_11", "[13] Sum_13")]
    assert places == sorted(places)
    assert "0.806927" in done.stdout
    assert "Standing: suspect" in done.stdout[places[0] : places[1]]
    assert "Standing: consequence" in done.stdout[places[1] : places[2]]
    assert "MaskedFill_3" in done.stdout.partition("Not compared")[2]
    assert "may be the cause: MaskedFill_3" in done.stderr
    assert "1 ops of the file have no dump" in done.stderr


def test_fc11_what_each_op_is(cases, ask):
    for number in (0, 1):
        (found,) = ask(f"vcs -f {cases / f'FC11/result_2024010100000{number}.csv'} -c 0.98 -l 20").data["files"]
        assert found["consequences"] == ["Relu_10", "Split_11"]
        assert found["at_threshold"] == ["GatherV2_12"]
        assert [op["name"] for op in found["undetermined"]] == ["MaskedFill_3"]
        assert [name if isinstance(name, str) else name["name"] for name in found["no_partner"]] == [
            "trans_TransData_2"
        ]
        indices = [op["index"] for op in found["listed"]]
        assert indices == sorted(indices)
        second = next(op for op in found["suspects"] if op["name"] == "Sum_13")
        assert (second["inputs"], second["outputs"]) == ({"0": 0.98}, {"0": -0.1})


def test_fc12_shapes_and_nothing(folders, compared):
    left, right = folders("FC12")
    done = program("vc", "-lt", left, "-rt", right)
    assert done.returncode == 0
    shutil.rmtree(left.parent)
    result, rows, _ = compared("FC12")
    plain = ("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance")
    assert rows["both_empty"]["CompareFailReason"] == "both sides are empty"
    for name in ("one_empty", "prefix", "transposed"):
        assert [rows[name][column] for column in plain] == ["NaN"] * 3
        assert rows[name]["CompareFailReason"].startswith("shapes differ")
        assert "0.909" not in rows[name]["CompareFailReason"]
    assert "same element count" in rows["transposed"]["CompareFailReason"]
    for name in ("flattened", "scalar"):
        assert "shapes differ (same element count)" in rows[name]["CompareFailReason"]
        assert "the data are equal element for element" in rows[name]["CompareFailReason"]
    not_judged = {row["op"] for row in result.data["comparisons"][0]["not_judged"]}
    assert not_judged == {"one_empty", "prefix", "transposed"}


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [
        ("both_empty", 0, "equal"),
        ("one_empty", 1, "shapes differ"),
        ("prefix", 1, "shapes differ"),
        ("transposed", 1, "different"),
        ("flattened", 1, "equal"),
        ("scalar", 1, "equal"),
    ],
)
def test_fc12_two_files_alone(cases, ask, name, code, verdict):
    result = ask(f"cp {cases / f'FC12/{name}.left.npy'} {cases / f'FC12/{name}.right.npy'}")
    assert (result.exit_code, result.data["verdict"]) == (code, verdict)
    assert result.data["reason"].startswith("" if name == "both_empty" else "shapes differ")
    if name in ("flattened", "scalar"):
        assert "equal element for element" in result.data["reason"]
    if name in ("one_empty", "prefix"):
        assert set(result.data["figures"].values()) == {None}


# ---------------------------------------------------------------------------------------------------------- encodings


def test_fc14_the_same_numbers_in_other_encodings(cases, ask, expected):
    folder = cases / "FC14"
    for name in ("big_endian", "fortran"):
        shown = ask(f"cp {folder / f'{name}.npy'} {folder / 'reference.npy'} -al 0 -rl 0")
        assert (shown.exit_code, shown.data["verdict"], shown.data["differing"]) == (0, "equal", 0)
        assert (shown.data["left"]["shape"], shown.data["left"]["mean"]) == ([2, 3], 2.5)
    (unknown,) = ask(f"pt {folder / 'bf16_void.npy'}").data["tensors"]
    assert unknown["reason"] == "two-byte data of unknown type"
    with pytest.raises(DataError, match="two-byte data of unknown type"):
        ask(f"cp {folder / 'bf16_void.npy'} {folder / 'bf16_void.npy'}")
    assert read_npy(folder / "bf16_void.npy", "bfloat16").astype(float).tolist() == expected["FC14"]["bf16_void"]


def test_fc14_a_record_that_says_bfloat16_is_compared_exactly(cases, ask, tmp_path):
    """The index of a recorded step tells the type; NumPy's file alone does not."""
    for side in ("left", "right"):
        folder = tmp_path / side
        folder.mkdir()
        raw = np.load(cases / "FC14/bf16_void.npy")
        if side == "right":
            raw = raw.copy()
            raw[1:2] = np.array([0xC030], "<u2").view(raw.dtype)  # -2.75
        np.save(folder / "cast.0.1700000000000000.npy", raw)
        line = "cast.0.1700000000000000.npy,cast,0,Cast,0,1700000000000000,bfloat16,5,\n"
        (folder / "index.csv").write_text("file,op,output,op_type,step,timestamp_us,dtype,shape,note\n" + line)
    result = ask(f"vc -lt {tmp_path / 'left'} -rt {tmp_path / 'right'}")
    with result.files[0].open(newline="") as text:
        (row,) = csv.DictReader(text)
    assert row["MaxAbsoluteError"] == "0.250000"
    assert row["CompareFailReason"].startswith("1 of 5 elements differ")


# -------------------------------------------------------------------------------------------------------- checkpoints


def test_fc20_the_order_on_screen(cases, ask):
    result = ask(f"ckpt {cases / 'FC20/abnormal/model-200'} {cases / 'FC20/normal/model-200'}")
    assert result.exit_code == 1
    rows = {row["name"]: row for row in result.data["rows"]}
    order = [row["name"] for row in result.data["rows"]]
    assert set(order[:2]) == set(result.data["flagged"]) == {"emb/m", "head/bias"}
    assert order[2:7] == ["head/kernel", "emb/w", "tower/kernel", "dense/kernel", "dense/bias"]
    cosines = [round(rows[name]["cosine"], 6) for name in order[2:7]]
    assert cosines == [-1, 0.574627, 0.937115, 0.999807, 1]
    assert result.data["below"] == ["head/kernel", "emb/w", "tower/kernel"]
    assert (rows["emb/v"]["verdict"], rows["emb/v"]["cosine"], rows["emb/v"]["reason"]) == (
        "equal",
        None,
        "both sides are zero",
    )
    assert rows["emb/m"]["nan"] == [1, 0]
    by_cosine = table_of(result, "By cosine")
    shown = [row[0] for row in by_cosine.rows]
    assert shown == [name for name in order if name in shown]
    assert shown[:3] == ["head/kernel", "emb/w", "tower/kernel"]


def test_fc21_every_kind_of_variable(cases, ask):
    result = ask(f"ckpt {cases / 'FC21/left/model-1'} {cases / 'FC21/right/model-1'}")
    assert result.exit_code == 1
    rows = {row["name"]: row for row in result.data["rows"]}
    said = {name: (row["verdict"], row["differing"], row["elements"]) for name, row in rows.items()}
    assert said["w"] == ("equal", 0, 4)
    assert said["ids"] == ("values differ", 1, 3)
    assert said["flag"] == ("values differ", 1, 2)
    assert said["vocab/words"] == ("values differ", 1, 2)
    assert said["empty/table"] == ("equal", 0, 0)
    assert said["global_step"] == ("values differ", 1, 1)
    assert rows["global_step"]["max_abs_error"] == 5
    assert rows["ids"]["max_abs_error"] == 1
    assert (rows["recast"]["verdict"], rows["recast"]["differing"]) == ("dtypes differ", 0)
    assert (rows["reshaped"]["verdict"], rows["reshaped"]["cosine"]) == ("shapes differ", None)
    assert (result.data["missing_on_the_right"], result.data["missing_on_the_left"]) == (["only_left"], ["only_right"])
    assert [row[0] for row in table_of(result, "Missing on the other side").rows] == ["only_left", "only_right"]
    graph = rows["_CHECKPOINTABLE_OBJECT_GRAPH"]
    assert graph["verdict"] in ("equal", "skipped")
    assert (graph["cosine"], graph["max_abs_error"]) == (None, None)
    assert result.data["unreadable"] == []


def test_fc22_the_foreign_path_is_not_opened_even_if_it_exists(cases, tmp_path):
    """A copied run whose state file names a folder that is still there, with other weights."""
    run, old = tmp_path / "copied", tmp_path / "old_run"
    shutil.copytree(cases / "FC22/copied_run", run)
    old.mkdir()
    for part in ("index", "data-00000-of-00001"):
        shutil.copy(run / f"model.ckpt-9.{part}", old / f"model.ckpt-100.{part}")
    state = (run / "checkpoint").read_text().replace("/srv/train/old_run", str(old))
    assert str(old) in state
    (run / "checkpoint").write_text(state)
    watch = (
        "import sys; opened = []; "
        "hook = lambda event, args: opened.append(str(args[0])) if event in ('open', 'os.listdir') else None; "
        "sys.addaudithook(hook); "
        f"sys.path.insert(0, {str(ROOT)!r}); import cli; "
        f"code = cli.main(['ckpt', {str(run)!r}, {str(run / 'model.ckpt-100')!r}, '--json']); "
        f"sys.exit(50 if any(path.startswith({str(old)!r}) for path in opened) else code)"
    )
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    left = json.loads(done.stdout)["result"]["left"]
    assert left["prefix"] == str(run / "model.ckpt-100")
    assert left["checkpoints"] == ["model.ckpt-9", "model.ckpt-10", "model.ckpt-100"]
    assert str(old / "model.ckpt-100") in " ".join(left["notes"])


@pytest.mark.parametrize(
    ("case", "lost", "said"),
    [
        ("cut_data", {"z"}, "data file"),
        ("flipped_byte", {"b"}, "checksum"),
        ("no_data", {"a", "b", "z"}, "model-7.data-00000-of-00001"),
        ("cut_index", None, "model-7.index"),
    ],
)
def test_fc23_damage_on_either_side(cases, case, lost, said):
    pair = (cases / "FC23" / case / "model-7", cases / "FC23/good/model-7")
    for left, right in itertools.permutations(pair):
        done = program("ckpt", left, right, "--json")
        assert done.returncode == 3
        document = json.loads(done.stdout)
        assert said in document["error"]
        if lost is not None:
            result = document["result"]
            assert set(result["unreadable"]) == lost
            assert {row["name"] for row in result["rows"] if row["verdict"] == "equal"} == set("abz") - lost
    plain = program("ckpt", *pair)
    assert plain.returncode == 3
    assert said in plain.stdout + plain.stderr

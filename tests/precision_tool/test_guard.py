"""The observer guard on ladders written by hand: what moved, why, and what a damaged ladder gives."""

from __future__ import annotations

import copy
import json
import random

import pytest

from dumpers.errors import DataError
from precision_tool.guard import compare_ladders, guard_result
from precision_tool.guard_causes import Cause
from precision_tool.ladders import open_ladders
from precision_tool.render import json_document, plain_lines
from precision_tool.result import ExitCode

HEADER = {
    "at": "header", "format": 1, "kind": "session", "run": "a", "python": "3.11.7", "tensorflow": "2.15.1",
    "numpy": "1.26.4", "environment": {"TF_DUMP_STEP": "1"}, "hash_randomization": True, "processors": 2, "seed": 2022,
    "unseeded": [], "unseeded_ops": 0, "ordering": [], "rewriting": {"on": False}, "jit": "DEFAULT",
    "threads": {"intra": 1, "inter": 1}, "devices": ["/job:localhost/replica:0/task:0/device:CPU:0"],
    "reference_variables": False, "unread": [],
}  # fmt: skip


def mark(value):
    return ["float32", [2], 8, f"{value:032x}"]


def make(recorded):
    """Four steps with a fed value, a fetched one and a variable; step 1 is recorded."""
    lines = [copy.deepcopy(HEADER), {"at": "start", "variables": {"w": mark(1), "late": None}}]
    for step in range(4):
        lines.append(
            {
                "at": step,
                "recorded": recorded and step == 1,
                "fed": {"x:0": mark(10 + step)},
                "fetched": {"loss:0": mark(20 + step)},
                "variables": {"w": mark(30 + step), "late": mark(40)},
            }
        )
    lines[2]["graph"] = "g"
    return [*lines, {"at": "settled", "step": 3, "variables": {"w": mark(33)}}, {"at": "end", "steps": 4}]


@pytest.fixture
def write(tmp_path):
    def write(name, lines, file="ladder_0.jsonl"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path / name

    return write


@pytest.fixture
def sides(write):
    """The ladders of both sides and of a second plain run, each with a change."""

    def sides(recorded=None, plain=None, again=None):
        folders = []
        for name, change in (("plain", plain), ("recorded", recorded), ("again", again or plain)):
            lines = make(recorded=name == "recorded")
            if change is not None:
                lines = change(lines) or lines
            folders.append(write(name, lines))
        return folders

    return sides


def names(guard):
    return [name for name, _, _ in guard.difference.moved]


def changed(step, kind, name, value=99):
    def change(lines):
        lines[2 + step][kind][name] = mark(value)

    return change


def test_agreeing_ladders_prove_it_with_numbers(sides):
    guard = compare_ladders(*sides()[:2])
    assert guard.proved
    assert vars(guard.tally) == {
        "steps": 4, "recorded": 1, "fed": 4, "fetched": 4, "variables": 11, "bytes": 8 * (4 + 4 + 8 + 2),
    }  # fmt: skip
    result = guard_result(guard)
    assert result.exit_code == ExitCode.CLEAN
    assert result.data["proved"] is True
    assert json.loads(json.dumps(json_document("dump", result), allow_nan=False))


def test_the_first_step_and_all_that_moved_there_are_named(sides):
    def change(lines):
        changed(2, "fetched", "loss:0")(lines)
        changed(2, "variables", "w")(lines)
        changed(3, "variables", "late")(lines)

    guard = compare_ladders(*sides(change))
    assert guard.cause is Cause.HOOK
    assert (guard.difference.step, guard.difference.ladder) == (2, "ladder_0")
    assert names(guard) == [("fetched", "loss:0"), ("variable", "w")]
    assert guard.tally.steps == 2
    result = guard_result(guard)
    assert result.exit_code == ExitCode.FOUND
    assert [moved["name"] for moved in result.data["moved"]] == ["loss:0", "w"]
    assert result.data["moved"][0]["second"] == {"dtype": "float32", "shape": [2], "size": 8, "hash": f"{99:032x}"}
    assert json.loads(json.dumps(json_document("dump", result), allow_nan=False))


@pytest.mark.parametrize(
    ("header", "step", "kind", "name", "cause"),
    [
        ({"rewriting": {"on": True}}, 1, "fetched", "loss:0", Cause.REWRITING),
        ({"rewriting": {"on": True}}, 2, "variables", "w", Cause.REWRITING),
        ({"rewriting": {"on": True}}, 0, "fetched", "loss:0", Cause.HOOK),
        ({"jit": "ON_1"}, 1, "fetched", "loss:0", Cause.COMPILER),
        ({"environment": {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}}, 1, "fetched", "loss:0", Cause.COMPILER),
        ({}, 1, "fetched", "loss:0", Cause.HOOK),
        ({}, 0, "fed", "x:0", Cause.INPUT),
        ({}, 1, "fed", "x:0", Cause.INPUT),
        ({}, 2, "fed", "x:0", Cause.HOOK),
    ],
)
def test_causes(sides, header, step, kind, name, cause):
    def everywhere(lines):
        lines[0].update(header)

    def change(lines):
        everywhere(lines)
        changed(step, kind, name)(lines)

    guard = compare_ladders(*sides(change, everywhere))
    assert guard.cause is cause
    assert guard.difference.step == step
    assert guard.reason.evidence
    assert guard.reason.advice


def test_without_a_second_plain_run_the_hook_is_not_accused(sides):
    guard = compare_ladders(*sides(changed(1, "fetched", "loss:0"))[:2])
    assert guard.cause is Cause.UNDECIDED
    assert "third folder" in guard.reason.advice[0]


def test_a_job_that_does_not_repeat_itself_is_found_before_all_else(sides):
    def change(lines):
        lines[0].update(unseeded=["draw"], unseeded_ops=1, rewriting={"on": True}, threads={"intra": 0, "inter": 2})

    def recorded(lines):
        change(lines)
        changed(1, "fetched", "loss:0")(lines)

    def again(lines):
        change(lines)
        changed(3, "variables", "w")(lines)

    guard = compare_ladders(*sides(recorded, change, again))
    assert guard.cause is Cause.JOB
    assert (guard.difference.step, names(guard)) == (3, [("variable", "w")])
    evidence = " ".join(guard.reason.evidence)
    assert "draw" in evidence
    assert "inter 2, intra all processors" in evidence


def test_other_settings_and_other_graphs_come_before_rewriting(sides):
    def other(lines):
        lines[0].update(tensorflow="2.21.0", rewriting={"on": True})
        changed(1, "fetched", "loss:0")(lines)

    guard = compare_ladders(*sides(other))
    assert guard.cause is Cause.SETTINGS
    assert "tensorflow: 2.15.1 on the plain side, 2.21.0 on the recorded one" in guard.reason.evidence

    def graph(lines):
        lines[2]["graph"] = "h"
        changed(1, "fetched", "loss:0")(lines)

    assert compare_ladders(*sides(graph)).cause is Cause.GRAPH

    def added(lines):
        lines[3].update(graph="h", added=2)
        changed(1, "fetched", "loss:0")(lines)

    guard = compare_ladders(*sides(added))
    assert guard.cause is Cause.HOOK
    assert "2 ops came into the graph" in " ".join(guard.reason.evidence)


def test_start_values_that_differ_are_inputs(sides):
    def change(lines):
        lines[1]["variables"]["w"] = mark(2)

    guard = compare_ladders(*sides(change))
    assert (guard.cause, guard.difference.at) == (Cause.INPUT, "start")
    assert "variables start from differs: w" in " ".join(guard.reason.evidence)


def test_a_value_on_one_side_only_and_an_initialised_one_have_moved(sides):
    def change(lines):
        del lines[4]["fetched"]["loss:0"]
        lines[4]["fetched"]["loss_1:0"] = mark(22)
        lines[4]["variables"]["late"] = None

    guard = compare_ladders(*sides(change))
    assert names(guard) == [("fetched", "loss:0"), ("variable", "late"), ("fetched", "loss_1:0")]


@pytest.mark.parametrize("shorter", ["plain", "recorded"])
def test_a_run_that_ends_earlier(sides, shorter):
    def change(lines):
        return [*lines[:4], lines[-1]]

    folders = sides(**{shorter: change}, again=lambda lines: change(lines) if shorter == "plain" else None)
    guard = compare_ladders(*folders)
    assert not guard.proved
    assert guard.difference.step == 2
    assert "ends before step 2" in guard.difference.facts[0]


def test_a_run_that_was_cut_off_is_compared_as_far_as_it_goes(sides):
    guard = compare_ladders(*sides(lambda lines: lines[:5])[:2])
    assert guard.proved
    assert guard.tally.steps == 3
    assert "recorded run has no end" in guard.notes[0]


def test_the_earliest_of_several_ladders(sides, write):
    def rank(step, recorded):
        lines = make(recorded)
        if recorded:
            changed(step, "fetched", "loss:0")(lines)
        return lines

    for side in ("plain", "recorded", "again"):
        for number, step in ((0, 3), (1, 1)):
            write(side, rank(step, side == "recorded"), f"rank_{number}_0.jsonl")
    folders = sides()
    for folder in folders:
        (folder / "ladder_0.jsonl").unlink()
    guard = compare_ladders(*folders)
    assert (guard.difference.ladder, guard.difference.step) == ("rank_1_0", 1)


@pytest.mark.parametrize("missing", ["plain", "recorded"])
def test_a_ladder_on_one_side_only(sides, write, missing):
    folders = sides()
    for folder in folders:
        if folder.name not in (missing, "again" if missing == "plain" else ""):
            write(folder.name, make(folder.name == "recorded"), "ladder_1.jsonl")
    guard = compare_ladders(*folders)
    assert not guard.proved
    assert guard.difference.ladder == "ladder_1"
    assert f"the {missing} run has none" in guard.difference.facts[0]
    assert json.loads(json.dumps(json_document("dump", guard_result(guard)), allow_nan=False))


def test_what_proves_nothing_is_refused(sides, tmp_path):
    plain, recorded, _ = sides()
    with pytest.raises(DataError, match=r"step 1 of a plain run was recorded; run it with TF_DUMP_GUARD_PLAIN"):
        compare_ladders(recorded, recorded)
    with pytest.raises(DataError, match="no step of it was recorded"):
        compare_ladders(plain, plain)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="sess_dump"):
        compare_ladders(plain, tmp_path / "empty")
    with pytest.raises(DataError, match="cannot be read"):
        compare_ladders(plain, tmp_path / "nowhere")
    plain, recorded, _ = sides(plain=lambda lines: lines[:2], recorded=lambda lines: lines[:2])
    with pytest.raises(DataError, match="no step ended"):
        compare_ladders(plain, recorded)


def test_ladders_of_two_runs_in_one_folder_are_refused(sides, write):
    plain, recorded, _ = sides()
    other = make(False)
    other[0]["run"] = "b"
    write("plain", other, "ladder_1.jsonl")
    with pytest.raises(DataError, match="several runs"):
        compare_ladders(plain, recorded)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no object"),
        (b'{"at":-1}', "no number in 'at'"),
        (b'{"at":true}', "no number"),
        (b'{"at":5,"count":1e9}', "no number in 'count'"),
        (b'{"at":' + b"9" * 5000 + b"}", "no JSON"),
        (b'{"at":5,"fed":[]}', "no object"),
        (b'{"at":5,"fed":{"x":["float32",[-1],4,"00000000000000000000000000000000"]}}', "no fingerprint"),
        (b'{"at":5,"fed":{"x":["float32",[1],4,"0"]}}', "no fingerprint"),
        (b'{"at":5,"fed":{"x\\u001b[2J\\n":7}}', "no fingerprint"),
        (b'{"at":5,"graph":7}', "no hash"),
        (b"\xff\xfe", "no JSON"),
        (b'{"at":"end"}', "behind the end"),
    ],
)
def test_garbage_is_one_line(sides, line, match):
    plain, recorded, _ = sides()
    path = plain / "ladder_0.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:6]) + (kept[-1] if b"end" in line else b"") + line + b"\n" + b"".join(kept[6:]))
    with pytest.raises(DataError, match=match) as caught:
        compare_ladders(plain, recorded)
    assert str(caught.value).isprintable()
    assert "ladder_0.jsonl: line 7" in str(caught.value) or "end" in match


def test_too_long_a_line_is_not_read_whole(sides, monkeypatch):
    monkeypatch.setattr("precision_tool.ladders.MAX_LINE_BYTES", 1000)
    plain, recorded, _ = sides()
    with (plain / "ladder_0.jsonl").open("ab") as stream:
        stream.write(b'{"at":4,"fed":{' + b" " * 2000 + b"}}\n")
    with pytest.raises(DataError, match="bytes at most"):
        compare_ladders(plain, recorded)


def test_damage_anywhere_never_ends_in_a_traceback(sides):
    plain, recorded, again = sides(changed(1, "fetched", "loss:0"))
    path = recorded / "ladder_0.jsonl"
    whole = path.read_bytes()
    draw = random.Random(3)
    refused = 0
    for turn in range(600):
        data = bytearray(whole)
        if turn % 3 == 0:
            del data[draw.randrange(len(data)) :]
        else:
            for _ in range(turn % 3):
                data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        try:
            shown = "".join(plain_lines(guard_result(compare_ladders(plain, recorded, again))))
        except DataError as error:
            shown = str(error)
            refused += 1
        assert shown.replace("\t", "").isprintable()
    assert 200 < refused < 600


def test_ladders_are_ordered_by_number_then_rank(write):
    for file in (
        "ladder_10.jsonl",
        "rank_2_0.jsonl",
        "rank_10_0.jsonl",
        "rank_0_1.jsonl",
        "other.jsonl",
        "ladder_x.jsonl",
    ):
        write("folder", make(False), file)
    folder = write("folder", make(False), "ladder_2.jsonl")
    found = [ladder.name for ladder in open_ladders(folder)]
    assert found == ["rank_2_0", "rank_10_0", "rank_0_1", "ladder_2", "ladder_10"]

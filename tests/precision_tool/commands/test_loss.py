"""``loss`` as every front runs it: its answer, its exit codes, its document."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dumpers.errors import UsageError
from dumpers.formats.npy import write_npy
from precision_tool.render import json_document, plain_lines


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(1)
    base = 0.4 + 0.3 * np.exp(-np.arange(200) / 40) + random.normal(0, 0.02, 200)
    wrong, broken, late = base.copy(), base.copy(), base.copy()
    wrong += 0.2
    late[120:140] += 0.2
    broken[150:] = np.nan
    noisy = base * (1 + 1e-5 * np.minimum(np.arange(200), 10) * random.normal(0, 1, 200))
    for name, values in {"a": base, "wrong": wrong, "broken": broken, "late": late, "noisy": noisy}.items():
        lines = [f"{step},{value!r}" for step, value in enumerate(values.tolist())]
        (tmp_path / f"{name}.csv").write_text("step,loss\n" + "\n".join(lines) + "\n")
    for side, shift in (("l", 0.0), ("r", 0.0), ("s", 0.3)):
        for run in range(4):
            values = base + random.normal(0, 0.02, 200) + shift
            (tmp_path / f"{side}{run}.csv").write_text("\n".join(map(repr, values.tolist())))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "code", "step"),
    [
        ("a", "identical", 0, None),
        ("noisy", "noise", 0, None),
        ("wrong", "different", 1, 0),
        ("late", "unclear", 1, 120),
        ("broken", "different", 1, 150),
    ],
)
def test_kinds_and_exit_codes(folder, ask, name, kind, code, step):
    result = ask(f"loss {folder}/{name}.csv {folder}/a.csv", folder)
    assert result.exit_code == code
    document = json.loads(json_document("loss", result))
    assert document["ok"] is True
    assert (document["result"]["kind"], document["result"]["first_unexplained_step"]) == (kind, step)
    assert document["result"]["rule_of_thumb"]["limit"] == 0.001
    text = "\n".join(plain_lines(result))
    assert "rule of thumb" in text
    assert "o left, x right" in text
    assert ("ask verdict" in "".join(result.notes)) == (kind == "unclear")


def test_a_nan_of_both_sides_is_a_finding_though_the_curves_are_identical(folder, ask):
    result = ask(f"loss {folder}/broken.csv {folder}/broken.csv", folder)
    assert (result.exit_code, result.data["kind"]) == (1, "identical")
    assert "not finite" in result.title


@pytest.mark.parametrize(("side", "kind", "code"), [("l", "noise", 0), ("s", "different", 1)])
def test_several_runs_a_side(folder, ask, side, kind, code):
    more = " ".join(f"-lt {folder}/{side}{k}.csv -rt {folder}/r{k}.csv" for k in (1, 2, 3))
    result = ask(f"loss {folder}/{side}0.csv {folder}/r0.csv {more}", folder)
    assert (result.data["kind"], result.exit_code) == (kind, code)
    assert result.data["test"] == "permutation of runs, 70 deals"
    assert result.data["level"] == 0.05
    json_document("loss", result)


def test_the_document_of_demo_holds_both_sides(folder, ask):
    path = folder / "demo.json"
    path.write_text(json.dumps({"command": "demo", "result": {"losses": {"golden": [0.7, 0.6], "npu": [0.7, "nan"]}}}))
    result = ask(f"loss {path}", folder)
    assert (result.exit_code, result.data["first_unexplained_step"]) == (1, 1)
    assert [result.data[side][0]["name"] for side in ("left", "right")] == ["result.losses.npu", "result.losses.golden"]
    assert ask(f"loss {path} {path} --tag golden", folder).data["kind"] == "identical"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("a.csv", "no curves are called losses.npu"),
        ("a.csv --tag loss", "give B as well"),
        ("a.csv --left-tag loss --right-tag loss", "compared with itself"),
        ("a.csv a.csv --tag loss --left-tag loss", "both sides"),
        ("a.csv a.csv --level 0", "between 0 and 1"),
        ("a.csv a.csv --rounding nan", "from 0 on"),
        ("l0.csv r0.csv -rt r1.csv", "cannot give a p-value"),
    ],
)
def test_wrong_usage_is_one_line(folder, ask, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=message):
        ask(f"loss {words}", folder)


def test_a_damaged_event_file_is_compared_as_far_as_it_goes_with_exit_code_3(folder, ask):
    import tensorflow as tf

    events = folder / "events"
    with tf.summary.create_file_writer(str(events)).as_default():
        for step in range(5):
            tf.summary.scalar("loss", 0.5, step)
    (path,) = events.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    result = ask(f"loss {events} {events}", folder)
    assert (result.exit_code, result.data["kind"], result.data["compared_steps"]) == (3, "identical", 4)
    assert json.loads(json_document("loss", result))["error"]


def test_a_binary_file_is_one_line(folder, ask):
    from dumpers.errors import PrecisionToolError

    write_npy(folder / "x.npy", np.zeros(3))
    with pytest.raises(PrecisionToolError):
        ask(f"loss {folder}/x.npy {folder}/a.csv", folder)

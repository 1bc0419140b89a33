"""``bench faults``: what it counts hangs together, its classes are real, and the same seed gives the same figures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from compare.verdict import Kind, Suspect, Verdict
from engine.npu.faults import KINDS
from precision_tool.bench import fault_several, faults
from precision_tool.bench.fault_classes import CLASSES, GROUPS, group_of
from precision_tool.bench.fault_sides import Case
from precision_tool.bench.fault_trials import Outcome, spread
from precision_tool.commands.base import silent
from precision_tool.dispatch import parse_words
from precision_tool.render import json_document
from precision_tool.workbench import Workbench


def small(seed):
    answer = parse_words(["bench", "faults", "--small", "--seed", str(seed)]).run(Workbench(), silent)
    return json.loads(json_document("bench", answer))["result"]


@pytest.fixture(scope="module")
def data():
    return small(4)


def timeless(summary):
    return {key: value for key, value in summary.items() if not key.startswith("seconds")}


def test_small_trials_are_found_and_clean_pairs_are_not_accused(data):
    summary = data["summary"]
    assert (summary["faults"], summary["clean_pairs"]) == (len(faults.SMALL_CLASSES), 2)
    assert (summary["top1"], summary["kind"], summary["false_accusations"]) == (1.0, 1.0, 0)
    assert set(summary["by_class"]) == set(faults.SMALL_CLASSES)
    assert summary["misses"] == {}
    several = summary["several"]
    assert (several["graphs"], several["listed"], several["precision"], several["misses"]) == (1, 1.0, 1.0, {})
    assert 2 <= several["faults"] <= 5


def test_the_same_seed_gives_the_same_figures(data):
    assert timeless(small(4)["summary"]) == timeless(data["summary"])


def test_there_are_thirty_classes_and_each_is_a_kind_of_the_device_or_a_change():
    assert len({c.name for c in CLASSES}) == len(CLASSES) >= 30
    for chosen in CLASSES:
        if chosen.group:
            assert chosen.kind in KINDS
            assert chosen.group in GROUPS
        else:
            assert chosen.answers
    assert set(KINDS) <= {c.kind for c in CLASSES}


@pytest.mark.parametrize(
    ("op_type", "group"),
    [
        ("ApplyAdamD", "update"),
        ("ScatterSub", "update"),
        ("GatherV2", "gather"),
        ("MatMulV2", "product"),
        ("Exp", "elementwise"),
    ],
)
def test_groups_of_operators(op_type, group):
    assert group_of(op_type) == group


def test_trials_are_dealt_evenly_and_each_class_meets_several_models():
    cases = [Case(name, True) for name in "abcdef"]
    batches = spread(range(30), cases, 6, seed=3, clean=2)
    sizes = [len(batch.wanted) for batch in batches]
    assert sum(sizes) == 180
    assert max(sizes) - min(sizes) <= 6
    assert all(sum(k in batch.wanted for batch in batches) == 6 for k in range(30))


NOBODY = dict.fromkeys(faults.RULES, False)
OUTCOME = Outcome("a", "m", "f", "op", ("operator",), "operator", "op", True, True, NOBODY, 1.0)


def test_the_summary_counts_hits_misses_and_accusations():
    missed = replace(OUTCOME, named="other", first=False, among_three=True, verdict="fusion", reason="because")
    clean = replace(OUTCOME, fault_class="clean", answers=("fine", "rounding"), verdict="fine", named="")
    accused = replace(clean, verdict="operator", named="x", first=False, rivals=dict.fromkeys(faults.RULES, True))
    found = faults.summary([OUTCOME, OUTCOME, OUTCOME, missed, clean, accused])
    assert (found["faults"], found["top1"], found["top3"], found["kind"]) == (4, 0.75, 1.0, 0.75)
    assert (found["clean_pairs"], found["false_accusations"]) == (2, 1)
    assert found["rivals"]["allclose"] == {"top1": 0.0, "false_accusations": 1}
    assert len(found["misses"]) == 2
    assert "because" in found["misses"]["0"]


def test_several_faults_are_counted_by_suspect():
    suspects = tuple(
        Suspect(op, "Add", side) for op, side in [("a", "left"), ("b", "right"), ("x", "left"), ("a", "left")]
    )
    one = fault_several.scored("m", ["scale@a:factor=2", "nan@b", "bias@c"], Verdict(Kind.OPERATOR, suspects=suspects))
    assert (one.listed, one.missed, one.innocent) == (1, ("b", "c"), ("x",))
    found = fault_several.summary([one, fault_several.Several("m", ("a", "b"), (), ())])
    assert (found["graphs"], found["faults"], found["listed"], found["precision"]) == (2, 5, 0.6, 0.75)
    assert list(found["misses"]) == ["0"]


@pytest.mark.parametrize(
    ("hits", "count", "interval"),
    [(0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605))],
)
def test_intervals_against_published_ones(hits, count, interval):
    """R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3; the first two follow by hand."""
    assert faults.wilson(hits, count) == pytest.approx(interval, abs=5e-5)
    assert faults.wilson(0, 0) == []

"""The first bad tensor in order of execution, from dumps on disk whose clocks tie or go backward."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import networkx
import numpy as np
import pytest

from compare.nan_order import execution_order_of
from compare.nan_origin import search_nan
from dumpers.formats.npu_dump import dump_file_name, write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.formats.registry import read_dump

NAN, INF = np.float32(np.nan), np.float32(np.inf)
TIME = 1_706_168_000_000_000


def f32(*values):
    return np.array(values, np.float32)


def dump_op(folder: Path, kind: str, name: str, time: int, inputs=(), outputs=(), task: int = 1) -> None:
    path = folder / dump_file_name(kind, name, task, 0, TIME + time)
    write_npu_dump(path, op_name=name, inputs=list(inputs), outputs=list(outputs), dump_time_us=TIME + time)


def names(findings):
    return [finding.record.name for finding in findings]


@pytest.fixture
def chain(make):
    """``z`` feeds ``log``, that feeds ``y`` (not dumped), that feeds ``a``: by name the order is wrong."""
    return make.graph(
        make.op("z/x", "Data"),
        make.op("z/log", "Log", ["z/x:0"]),
        make.op("y/cast", "Cast", ["z/log:0"]),
        make.op("a/mul", "Mul", ["y/cast:0", "z/x:0"]),
    )


@pytest.mark.parametrize("times", [*itertools.permutations((0, 1, 2)), (0, 0, 0), (5, 5, 0)])
def test_any_clock_gives_the_graphs_order(tmp_path, chain, times):
    values = {"z/x": f32(0, 1), "z/log": f32(-INF, 0), "a/mul": f32(NAN, 0)}
    for (op, value), time in zip(values.items(), times, strict=True):
        kind = chain.ops[op].type
        reads = [] if kind == "Data" else [f32(0, 1)] if kind == "Log" else [f32(-INF, 0), f32(0, 1)]
        dump_op(tmp_path, kind, op, time, reads, [value])
    search = search_nan(read_dump(tmp_path, graph=chain), chain)
    assert names(search.findings) == ["z/log:output:0", "a/mul:input:0", "a/mul:output:0"]
    origin = search.origin
    assert (origin.op, origin.io, origin.index, origin.kind) == ("z/log", "output", (0,), "-inf")
    assert [(v.tensor, v.value, v.minimum, v.maximum) for v in origin.inputs] == [("z/log:input:0", "0.0", 0, 1)]


def test_without_a_graph_ties_are_broken_the_same_way_every_time(tmp_path):
    for name in ("b", "a", "c"):
        dump_op(tmp_path, "Log", name, 0, [f32(0)], [f32(-INF)])
    assert names(search_nan(read_dump(tmp_path)).findings) == ["a:output:0", "b:output:0", "c:output:0"]


def test_what_the_graph_leaves_open_goes_by_time(tmp_path, make):
    graph = make.graph(*(make.op(name, "Log", []) for name in "abcd"))
    for name, time in {"a": 30, "b": 10, "c": 20, "d": 10, "stranger": 15}.items():
        dump_op(tmp_path, "Log", name, time, [], [f32(NAN)])
    found = names(search_nan(read_dump(tmp_path), graph).findings)
    assert [name.split(":")[0] for name in found] == ["b", "d", "stranger", "c", "a"]


def test_on_random_graphs_with_random_clocks_the_earliest_that_waits_for_nobody_comes_next(make):
    for seed in range(200):
        rng = random.Random(seed)
        ops = [
            make.op(f"op{n}", "Add", [f"op{m}:0" for m in rng.sample(range(n), min(n, rng.randrange(3)))])
            for n in rng.sample(range(15), 15)
        ]
        graph = make.graph(*ops)
        dumped = rng.sample([op.name for op in ops], 9)
        moments = {name: (rng.randrange(4), place) for place, name in enumerate(dumped)}
        reach, place = networkx.transitive_closure_dag(graph.networkx), [op.name for op in ops].index
        left, expected = set(dumped), []
        while left:  # the earliest of those that wait for nobody who was dumped
            free = [name for name in left if not any(reach.has_edge(other, name) for other in left)]
            expected.append(min(free, key=lambda name: (moments[name][0], place(name))))
            left.remove(expected[-1])
        assert execution_order_of(moments, graph) == expected


def test_a_loop_does_not_stop_the_search(make):
    graph = make.graph(
        make.op("enter", "Enter"),
        make.op("merge", "Merge", ["enter:0", "next:0"]),
        make.op("body", "Log", ["merge:0"]),
        make.op("next", "NextIteration", ["body:0"]),
        kind="tf",
    )
    moments = {"body": (1, 0), "next": (0, 1), "merge": (2, 2)}
    assert execution_order_of(moments, graph) == ["merge", "body", "next"]


def test_of_several_runs_of_an_op_the_first_bad_one_counts(tmp_path):
    for run, (read, written) in enumerate([(1, 0), (0, -INF), (2, 0.5)]):
        dump_op(tmp_path, "Log", "loop/log", 10 * run, [f32(read)], [f32(written)], task=run)
    origin = search_nan(read_dump(tmp_path)).origin
    assert (origin.op, origin.kind, origin.run, origin.runs) == ("loop/log", "-inf", 2, 3)
    assert [(v.value, v.clean) for v in origin.inputs] == [("0.0", True)]
    assert any("ran 3 times" in line and "run 2" in line for line in origin.explanation)


def test_overwritten_memory_shows_what_the_producer_wrote(tmp_path, make):
    graph = make.graph(make.op("a", "Relu"), make.op("b", "Relu", ["a:0"]))
    dump_op(tmp_path, "Relu", "a", 5, [], [f32(1, 2.5)])
    dump_op(tmp_path, "Relu", "b", 5, [f32(1, NAN)], [f32(1, NAN)])
    origin = search_nan(read_dump(tmp_path, graph=graph), graph).origin
    assert (origin.op, origin.io, origin.index, origin.cause) == ("b", "input", (1,), "overwritten")
    assert (origin.written.tensor, origin.written.value) == ("a:output:0", "2.5")
    assert "its producer wrote a:output:0 there: 2.5 (all of it: 1 to 2.5)" in origin.explanation


def test_inputs_are_shown_by_element_where_shapes_broadcast_and_by_range_everywhere(tmp_path, make):
    graph = make.graph(
        make.op("x", "Data"), make.op("w", "Data"), make.op("i", "Data"), make.op("op", "Div", ["x:0", "w:0", "i:0"])
    )
    x = np.arange(12, dtype=np.float64).reshape(3, 4)
    w = np.array([[1.0, 2.0, 0.0, 4.0]], np.float16)
    ids = np.array([2**60 + 1, -5])
    out = np.zeros((3, 4), np.float32)
    out[1, 2] = INF
    for op, value in {"x": x, "w": w, "i": ids}.items():
        dump_op(tmp_path, "Data", op, 0, [], [value])
    dump_op(tmp_path, "Div", "op", 1, [], [out])
    inputs = search_nan(read_dump(tmp_path, graph=graph), graph).origin.inputs
    assert [(v.tensor, v.value, v.minimum, v.maximum) for v in inputs] == [
        ("x:output:0", "6.0", 0, 11),
        ("w:output:0", "0.0", 0, 4),
        ("i:output:0", None, -5, 2**60 + 1),
    ]
    assert inputs[0].describe() == "x:output:0 there: 6.0 (all of it: 0 to 11)"


def test_a_bad_input_says_how_much_of_it_is_bad(tmp_path):
    write_npy(tmp_path / f"Mul.a.1.{TIME}.input.0.npy", f32(INF, NAN, 3))
    write_npy(tmp_path / f"Mul.a.1.{TIME}.input.1.npy", np.array([1 + 1j], np.complex64))
    write_npy(tmp_path / f"Mul.a.1.{TIME}.output.0.npy", f32(INF, NAN, 3))
    origin = search_nan(read_dump(tmp_path)).origin
    assert (origin.io, origin.cause, origin.finding.nan, origin.finding.positive_inf) == ("input", "outside", 1, 1)
    assert "a:input:0 has inf at [0] (1 NaN, 1 Inf, 0 -Inf of 3)" in origin.explanation


def test_what_is_not_known_of_the_inputs_is_not_claimed(tmp_path, make):
    write_npy(tmp_path / f"alone.0.{TIME}.npy", f32(NAN))
    assert any("nothing is known of its inputs" in line for line in search_nan(read_dump(tmp_path)).origin.explanation)
    graph = make.graph(make.op("x", "Data"), make.op("y", "Data"), make.op("op", "Div", ["x:0", "y:0"]))
    known = make.record("x:output:0", f32(1))
    bad = make.record("op:output:0", f32(INF), timestamp_us=1)
    assert any(
        "the others are not known" in line for line in search_nan(make.dump(known, bad), graph).origin.explanation
    )
    lines = search_nan(make.dump(bad), graph).origin.explanation
    assert any("nothing is known of its inputs" in line for line in lines)
    other = make.record("y:output:0", f32(0))
    lines = search_nan(make.dump(known, other, bad), graph).origin.explanation
    assert any("its inputs are finite, so the op made it" in line for line in lines)

"""Verdicts where no op is above its bound, and on input that is odd rather than wrong."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from compare import isolation
from compare.isolation import examine
from compare.judge import judge
from compare.verdict import Kind

X = np.random.default_rng(5).normal(size=(20, 6)).astype(np.float32)


class Side:
    """Records of one side, added op by op; ``read`` maps an input of an op to the tensor it reads."""

    def __init__(self, make, device="npu", step=0):
        self.make, self.device, self.step = make, device, step
        self.records, self.ops, self.time = [], {}, 0

    def op(self, name, kind, inputs, outputs, **attrs):
        """``inputs`` maps ``op:slot`` to the value read, ``None`` for one that is not dumped."""
        self.time += 10
        common = {"op_type": kind, "timestamp_us": self.time, "step": self.step, "device": self.device}
        for index, value in enumerate(inputs.values()):
            if value is not None:
                self.records.append(self.make.record(f"{name}:input:{index}", value, **common))
        for slot, value in enumerate(outputs):
            self.records.append(self.make.record(f"{name}:output:{slot}", value, **common))
        self.ops[name] = self.make.op(name, kind, tuple(inputs), **attrs)
        return self

    def dump(self):
        return self.make.dump(*self.records, path=f"/{self.device}")

    def graph(self, *more, kind="ge"):
        return self.make.graph(*(self.make.op(n, k, ()) for n, k in more), *self.ops.values(), kind=kind)


def verdict_of(left, right, *, both=True, **options):
    right_graph = right.graph() if both else None
    return judge(left.dump(), right.dump(), left_graph=left.graph(), right_graph=right_graph, **options)


def sides(make, **options):
    return Side(make, **options), Side(make, **options)


@pytest.mark.parametrize(
    ("read", "wrote", "kind"),
    [(0.0, 0.5, Kind.OPERATOR), (0.01, 0.5, Kind.UNKNOWN), (0.0, 1e-6, Kind.ROUNDING), (1e-5, 1e-6, Kind.ROUNDING)],
)
def test_an_op_without_kernel(make, read, wrote, kind):
    left, right = sides(make)
    left.op("odd", "Strange", {"x:0": X * np.float32(1 + read)}, [X * np.float32(1 + wrote)])
    right.op("odd", "Strange", {"x:0": X}, [X])
    verdict = verdict_of(left, right)
    assert verdict.kind is kind
    if not kind.clean:
        assert verdict.op == "odd"
        assert "odd" in verdict.evidence[0]["text"]


def test_carriers_that_could_be_judged_are_not_unknown(make):
    left, right = sides(make)
    for side, x in ((left, X * np.float32(1.3)), (right, X)):
        side.op("double", "Add", {"x:0": x, "x:1": x}, [x + x])
    assert verdict_of(left, right).kind is Kind.ROUNDING


def test_one_name_for_two_meanings_is_not_comparable(make):
    left, right = sides(make)
    left.op("both", "Add", {"x:0": X, "y:0": X}, [X + X])
    right.op("both", "Mul", {"x:0": X, "y:0": X}, [X * X])
    verdict = verdict_of(left, right)
    assert (verdict.kind, verdict.op) == (Kind.NOT_COMPARABLE, "both")


def test_a_wrong_reference_without_graph_is_named_as_the_wrong_side(make):
    left, right = sides(make)
    left.op("sum", "Add", {"x:0": X, "y:0": X}, [X + X])
    right.op("sum", "Add", {"x:0": X, "y:0": X}, [X * np.float32(3)])
    verdict = verdict_of(left, right, both=False)
    assert (verdict.kind, verdict.op, verdict.side) == (Kind.OPERATOR, "sum", "right")
    assert "reference side" in verdict.lines()[0]


@pytest.mark.parametrize(
    ("original", "kind"), [("IteratorGetNext", Kind.DATA), ("RandomStandardNormal", Kind.RANDOMNESS)]
)
def test_batches_and_random_numbers_come_before_ops(make, original, kind):
    left, right = sides(make)
    left.op("source", "FrameworkOp", {}, [X], original_type=original).op("odd", "Strange", {"source:0": X}, [X])
    right.op("source", "FrameworkOp", {}, [X + 1], original_type=original).op(
        "odd", "Strange", {"source:0": X + 1}, [X]
    )
    verdict = verdict_of(left, right)
    assert (verdict.kind, verdict.op) == (kind, "source")


def test_weights_count_only_until_the_step_changes_them(make):
    left, right = sides(make)
    for side, step in ((left, 0.01), (right, -0.01)):
        side.op("w/assign", "Assign", {"w:0": X, "new:0": X + np.float32(step)}, [X + np.float32(step)])
        side.op("w/after", "ReadVariableOp", {"w:0": None}, [X + np.float32(step)])
    graphs = [side.graph(("w", "Variable")) for side in (left, right)]
    verdict = judge(left.dump(), right.dump(), left_graph=graphs[0], right_graph=graphs[1])
    assert verdict.kind is not Kind.CHECKPOINT


@pytest.mark.parametrize(("rows", "kind"), [(2, Kind.TABLE_LOOKUP), (20, Kind.CHECKPOINT)])
def test_a_lookup_that_could_not_be_run_again(make, rows, kind):
    left, right = sides(make)
    other = X.copy()
    other[:rows] += 1
    for side, value in ((left, other), (right, X)):
        side.op("keys", "Identity", {"k:0": np.arange(20)}, [np.arange(20)])
        side.op(
            "lookup", "GatherV2", {"t:0": None, "keys:0": None, "axis:0": None}, [value], _embedding_table="user_table"
        )
    more = (("t", "Variable"), ("axis", "Const"))
    verdict = judge(left.dump(), right.dump(), left_graph=left.graph(*more), right_graph=right.graph(*more))
    assert (verdict.kind, verdict.op) == (kind, "lookup")
    assert verdict.table == ("user_table" if kind is Kind.TABLE_LOOKUP else None)


def test_nan_in_a_feed_of_both_sides_is_the_input_and_of_one_side_the_data(make):
    bad = X.copy()
    bad[3, 2] = np.nan

    def side(x):
        made = Side(make)
        made.op("double", "Add", {"x:0": x, "x:1": x}, [x + x])
        return made.dump(), made.graph(("x", "Data"))

    for other, kind in ((bad, Kind.NAN_INPUT), (X, Kind.DATA)):
        (left, left_graph), (right, right_graph) = side(bad), side(other)
        assert judge(left, right, left_graph=left_graph, right_graph=right_graph).kind is kind


def test_a_reference_feed_is_found_where_a_device_read_it(make):
    left = Side(make, device="tf").op("x", "Placeholder", {}, [X])
    right = Side(make).op("use", "Identity", {"x:0": X + 1}, [X + 1])
    graph = make.graph(make.op("x", "Placeholder", ()), kind="tf")
    verdict = judge(left.dump(), right.dump(), left_graph=graph, right_graph=right.graph(("x", "Data")))
    assert (verdict.kind, verdict.op) == (Kind.DATA, "x")


def test_an_op_of_a_loop_is_judged_by_its_last_run_alone(make):
    side = Side(make)
    for turn in range(3):
        x = X + np.float32(turn)
        side.op("step", "Identity", {"loop:0": x}, [x])
        side.op("use", "Add", {"step:0": x, "step:1": x}, [x + x])
    side.op("step", "Identity", {"loop:0": X + 9}, [X + 9])  # the turn that ends the loop; nobody reads it
    exam = examine(side.dump(), side.graph())
    assert (exam.overwrites, exam.sources(2.0)) == ((), ())


def test_outputs_of_a_loop_are_taken_from_before_the_reader(make):
    side = Side(make)
    for turn in range(2):
        x = X + np.float32(turn)
        side.op("step", "Identity", {}, [x]).op("use", "Neg", {"step:0": None}, [-x])
    side.op("step", "Identity", {}, [X + 9])
    exam = examine(side.dump(), side.graph())
    assert [(c.op.name, c.ratio) for c in exam.checks if c.ratio is not None] == [("use", 0.0)]


def test_both_an_overwrite_and_an_earlier_fault_are_told(make):
    left, right = sides(make)
    left.op("first", "Neg", {"x:0": X}, [X]).op("second", "Neg", {"first:0": X + 1}, [-X - 1])
    right.op("first", "Neg", {"x:0": X}, [-X]).op("second", "Neg", {"first:0": -X}, [X])
    verdict = verdict_of(left, right)
    assert (verdict.kind, verdict.op) == (Kind.OPERATOR, "first")
    assert any(row.get("producer") == "first" for row in verdict.evidence)


def test_odd_tensors_and_graphs_are_no_finding(make):
    left, right = sides(make)
    large = np.full(3, 2**31 - 1, np.int32)
    with np.errstate(over="ignore"):
        wrapped = large + large
    for side in (left, right):
        side.op("wrap", "Add", {"a:0": large, "a:1": large}, [wrapped])
        side.op("empty", "Neg", {"e:0": X[:0]}, [X[:0]])
        side.op("caf\udce9/neg", "Neg", {"missing:3": X}, [-X])
        side.op("round", "Neg", {"trip:0": X}, [-X]).op("trip", "Neg", {"round:0": -X}, [X])
    verdict = verdict_of(left, right)
    assert verdict.kind is Kind.FINE
    json.dumps(verdict.as_dict())


def test_an_interrupt_leaves_the_waiting_ops_alone(make, monkeypatch):
    side = Side(make)
    for k in range(60):
        side.op(f"n{k}", "Neg", {"x:0": X}, [-X])
    begun, lock = [], threading.Lock()

    def slow(op, inputs, outputs):
        with lock:
            begun.append(op.name)
        time.sleep(0.005)
        return []

    def interrupt(done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(isolation, "local_error", slow)
    with pytest.raises(KeyboardInterrupt):
        examine(side.dump(), side.graph(), threads=2, progress=interrupt)
    assert len(begun) < 20


def test_private_layouts_are_undone_or_left_alone_but_never_taken_as_they_are(make):
    plain = np.random.default_rng(1).normal(size=(20, 18)).astype(np.float32)
    stored = np.zeros((2, 2, 16, 16), np.float32)  # FRACTAL_NZ: [N/16, M/16, 16, 16]
    for i, j in np.ndindex(plain.shape):
        stored[j // 16, i // 16, i % 16, j % 16] = plain[i, j]
    total = plain.sum(axis=1)
    for shape, judged in ((plain.shape, True), (None, False)):
        side = Side(make).op("sum", "ReduceSum", {"x:0": None, "axes:0": np.int32([1])}, [total])
        record = make.record("sum:input:0", stored, format="FRACTAL_NZ", original_shape=shape, timestamp_us=10)
        side.records.append(record)
        (check,) = examine(side.dump(), side.graph()).checks
        assert (check.ratio is not None) == judged
        assert judged or "original shape" in check.reason
        assert not judged or check.ratio <= 1
    right = Side(make, device="tf").op("sum", "Sum", {}, [total]).op("x", "Identity", {}, [plain])
    left = Side(make).op("x", "Identity", {}, [])
    left.records.append(make.record("x:output:0", stored, format="FRACTAL_NZ", original_shape=plain.shape))
    assert judge(left.dump(), right.dump()).kind is Kind.FINE

"""Verdicts on a small network whose every tensor is made here with NumPy: two sides, one planted fault at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compare.judge import judge
from compare.verdict import Kind

TABLE_ROWS, UNIQUE, WIDTH, HIDDEN = 300, 64, 8, 16


class Network:
    """keys -> lookup -> restore -> MatMul+BiasAdd+Relu (fused on the device) -> ReduceMean, float32.

    ``touch`` maps an op to a function of its output; ``read`` maps (consumer, slot) to a function of what it reads.
    """

    def __init__(self, make, *, seed=0, fused=True, touch=None, read=None, noise=0.0, step=3):
        self.make, self.fused, self.step = make, fused, step
        self.touch, self.read, self.noise = touch or {}, read or {}, noise
        random = np.random.default_rng(seed)
        self.table = random.normal(size=(TABLE_ROWS, WIDTH)).astype(np.float32)
        self.keys = random.permutation(10_000)[:UNIQUE].astype(np.int64)
        self.rows = random.permutation(TABLE_ROWS)[:UNIQUE].astype(np.int64)
        self.restore = random.integers(0, UNIQUE, 128)
        self.weight = random.normal(size=(WIDTH, HIDDEN)).astype(np.float32)
        self.bias = random.normal(size=HIDDEN).astype(np.float32)
        self.records, self.time = [], 0

    def emit(self, op, kind, inputs, outputs, *, device):
        self.time += 10
        common = {"op_type": kind, "timestamp_us": self.time, "step": self.step, "device": device}
        if device == "npu":
            self.records += [self.make.record(f"{op}:input:{i}", a, **common) for i, a in enumerate(inputs)]
        self.records += [self.make.record(f"{op}:output:{i}", a, **common) for i, a in enumerate(outputs)]

    def op(self, name, kind, inputs, function, *, device="npu"):
        seen = [self.read.get((name, i), lambda a: a)(np.array(a)) for i, a in enumerate(inputs)]
        out = self.touch.get(name, lambda a: a)(np.asarray(function(*seen)))
        self.emit(name, kind, seen, [out], device=device)
        return out

    def run(self, device):
        axis = np.int32(0)
        if device == "tf":  # The reference has outputs only, those of constants and reads too.
            constants = {"axis": axis, "where": self.restore, "w": self.weight, "b": self.bias}
            for name, value in constants.items():
                self.emit(name, "Const", [], [np.asarray(value)], device=device)
        table = self.op("table/read", "ReadVariableOp", [self.table], lambda v: v, device=device)
        unique = self.op("unique", "FrameworkOp", [self.keys], lambda k: k, device=device)
        indices = self.op("indices", "FrameworkOp", [unique], lambda _: self.rows, device=device)
        found = self.op("lookup", "GatherV2", [table, indices, axis], lambda t, i, _: t[i], device=device)
        back = self.op("restore", "GatherV2", [found, self.restore, axis], lambda t, i, _: t[i], device=device)
        if self.fused and device == "npu":
            out = self.op("fcmatfcbiasfcrelu", "MatMulV2", [back, self.weight, self.bias], self._dense)
        else:
            product = self.op("fc/mat", "MatMulV2", [back, self.weight], self._product, device=device)
            sum_ = self.op("fc/bias", "BiasAdd", [product, self.bias], np.add, device=device)
            out = self.op("fc/relu", "Relu", [sum_], lambda x: np.maximum(x, np.float32(0)), device=device)
        self.op(
            "loss", "ReduceMean", [out.reshape(-1), np.int32([0])], lambda x, _: x.mean(dtype=np.float32), device=device
        )
        return self.make.dump(*self.records, path=f"/{device}")

    def _product(self, a, b):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        return (exact * (1 + self.noise)).astype(np.float32)

    def _dense(self, a, b, c):
        return np.maximum(self._product(a, b) + c, np.float32(0))

    def graph(self):
        make = self.make
        ops = [
            make.op("ids", "Data", (), originals=("ids",)),
            make.op("axis", "Const", ()),
            make.op("table", "Variable", ()),
            make.op("table/read", "ReadVariableOp", ("table:0",)),
            make.op("unique", "FrameworkOp", ("ids:0",), original_type="PyFunc"),
            make.op("indices", "FrameworkOp", ("unique:0",), original_type="PyFunc"),
            make.op(
                "lookup",
                "GatherV2",
                ("table/read:0", "indices:0", "axis:0"),
                _embedding_table="user_table",
                _embedding_keys="unique:0",
            ),
            make.op("restore", "GatherV2", ("lookup:0", "where:0", "axis:0")),
            make.op("where", "Const", ()),
            make.op("w", "Const", ()),
            make.op("b", "Const", ()),
        ]
        if self.fused:
            fused = make.op(
                "fcmatfcbiasfcrelu",
                "MatMulV2",
                ("restore:0", "w:0", "b:0"),
                ({"_datadump_origin_name": "fc/relu", "_datadump_origin_output_index": 0},),
                originals=("fc/mat", "fc/bias", "fc/relu"),
                _datadump_original_op_types=("MatMul", "BiasAdd", "Relu"),
                pass_name="MatMulBiasAddReluFusionPass",
            )
            ops.append(fused)
        else:
            ops += [
                make.op("fc/mat", "MatMulV2", ("restore:0", "w:0")),
                make.op("fc/bias", "BiasAdd", ("fc/mat:0", "b:0")),
                make.op("fc/relu", "Relu", ("fc/bias:0",)),
            ]
        ops += [make.op("axes", "Const", ()), make.op("loss", "ReduceMean", (ops[-1].name + ":0", "axes:0"))]
        return make.graph(*ops)


@pytest.fixture
def verdict_of(make):
    def run(*, right=None, left_graph=True, **options):
        device = Network(make, **options)
        golden = right or Network(make, seed=options.get("seed", 0))
        graph = device.graph() if left_graph else None
        return judge(device.run("npu"), golden.run("tf"), left_graph=graph)

    return run


def test_equal_sides_are_fine(verdict_of):
    verdict = verdict_of(fused=False)
    assert (verdict.kind, verdict.op, verdict.suspects, verdict.step) == (Kind.FINE, None, (), 3)
    assert verdict.compared_bytes > TABLE_ROWS * WIDTH * 4


def test_the_share_of_bytes_that_were_run_again(verdict_of):
    verdict = verdict_of(fused=False)
    table, keys, rest = TABLE_ROWS * WIDTH * 4, 2 * UNIQUE * 8, UNIQUE * WIDTH * 4 + 128 * (WIDTH + 3 * HIDDEN) * 4 + 4
    assert verdict.replayed == (table + rest, table + keys + rest)  # two host ops write the keys and the rows
    share = (table + rest) / (table + keys + rest)
    assert verdict.as_dict()["coverage"]["replayed_share"] == round(share, 6)
    assert f"{100 * share:.4g} % of the bytes" in verdict.lines()[-1]
    assert verdict_of(left_graph=False).replayed_share is None


def test_a_last_bit_is_rounding_and_carriers_are_not_accused(verdict_of):
    verdict = verdict_of(noise=2.0**-24)
    assert (verdict.kind, verdict.suspects) == (Kind.ROUNDING, ())


def scaled(factor):
    return lambda a: (a * np.float32(factor)).astype(a.dtype)


@pytest.mark.parametrize("factor", [1.5, 0.5, 1.0001])
def test_a_scaled_output_names_its_operator_and_nothing_behind_it(verdict_of, factor):
    verdict = verdict_of(fused=False, touch={"fc/mat": scaled(factor)})
    assert (verdict.kind, verdict.op, verdict.op_type) == (Kind.OPERATOR, "fc/mat", "MatMulV2")
    assert [s.op for s in verdict.suspects] == ["fc/mat"]
    assert verdict.confidence > 0.9


def test_the_users_rule_is_quoted(verdict_of):
    verdict = verdict_of(fused=False, touch={"fc/mat": scaled(1.5)})
    assert any(row.get("seen_by_threshold") is False for row in verdict.evidence)


def test_two_sources_are_both_listed_in_order(verdict_of):
    verdict = verdict_of(fused=False, touch={"fc/relu": scaled(1.5), "restore": scaled(1.5)})
    assert [s.op for s in verdict.suspects] == ["restore", "fc/relu"]
    assert verdict.op == "restore"


def test_a_nan_is_an_infinite_ratio_and_json_has_no_infinity(verdict_of):
    def poison(a):
        a = a.copy()
        a.reshape(-1)[5] = np.nan
        return a

    verdict = verdict_of(fused=False, touch={"fc/bias": poison})
    assert (verdict.kind, verdict.op) == (Kind.OPERATOR, "fc/bias")
    suspect = verdict.as_dict()["suspects"][0]
    assert suspect["ratio"] is None
    assert "NaN" in suspect["note"]


def wrong_rows(*positions):
    def touch(a):
        a = a.copy()
        for position in positions:
            a[position] = a[(position + 7) % len(a)]
        return a

    return touch


def test_rows_of_other_keys_name_table_and_keys(verdict_of, make):
    network = Network(make)
    verdict = verdict_of(touch={"lookup": wrong_rows(3, 40)})
    assert (verdict.kind, verdict.op, verdict.table) == (Kind.TABLE_LOOKUP, "lookup", "user_table")
    assert verdict.keys == (int(network.keys[3]), int(network.keys[40]))
    assert verdict.keys_total == 2


def test_zero_rows_of_a_table_are_a_lookup_but_of_another_gather_an_operator(verdict_of, make):
    def zero(a):
        a = a.copy()
        a[[2, 9]] = 0
        return a

    network = Network(make)
    verdict = verdict_of(touch={"lookup": zero})
    assert (verdict.kind, verdict.keys) == (Kind.TABLE_LOOKUP, (int(network.keys[2]), int(network.keys[9])))
    verdict = verdict_of(touch={"restore": zero})
    assert (verdict.kind, verdict.op, verdict.table) == (Kind.OPERATOR, "restore", None)


def older(a, size=0.05, rows=(3, 40)):
    a = a.copy()
    a[list(rows)] += np.random.default_rng(9).normal(scale=size, size=(len(rows), a.shape[1])).astype(a.dtype)
    return a


def test_older_values_of_a_few_rows_are_the_lookups(verdict_of, make):
    network = Network(make)
    verdict = verdict_of(touch={"lookup": older})
    assert (verdict.kind, verdict.keys) == (Kind.TABLE_LOOKUP, (int(network.keys[3]), int(network.keys[40])))
    assert "hold older values of their keys" in verdict.evidence[1]["text"]


NOT_OLDER = {
    "most rows": lambda a: older(a, rows=range(UNIQUE)),
    "a factor": lambda a: np.where(np.arange(UNIQUE)[:, None] == 3, a * np.float32(1.1), a),
    "a summand": lambda a: np.where(np.arange(UNIQUE)[:, None] == 3, a + np.float32(0.5), a),
    "another sign": lambda a: np.where(np.arange(UNIQUE)[:, None] == 3, -a, a),
    "one number": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 9, a * np.float32(1.1), a),
    "not finite": lambda a: np.where(np.arange(UNIQUE)[:, None] == 3, np.float32(np.nan), a),
}


@pytest.mark.parametrize("what", NOT_OLDER)
def test_other_wrong_rows_are_no_older_values(verdict_of, what):
    assert verdict_of(touch={"lookup": NOT_OLDER[what]}).kind is Kind.OPERATOR


def test_a_plain_variable_is_a_table_whose_row_numbers_are_the_keys(make):
    network, device = Network(make), Network(make, touch={"lookup": wrong_rows(3, 40)})
    graph = device.graph()
    plain = replace(graph.ops["lookup"], attrs={})
    graph = replace(graph, ops={**graph.ops, "lookup": plain})
    verdict = judge(device.run("npu"), network.run("tf"), left_graph=graph)
    assert (verdict.kind, verdict.table) == (Kind.TABLE_LOOKUP, "table")
    assert verdict.keys == (int(network.rows[3]), int(network.rows[40]))


def test_a_lookup_whose_values_are_wrong_is_an_operator(verdict_of):
    def tail(a):
        a = a.copy()
        a.reshape(-1)[-3 * WIDTH :] = 0
        return a

    assert verdict_of(touch={"lookup": scaled(1.5)}).kind is Kind.OPERATOR
    assert verdict_of(touch={"lookup": tail}).kind is Kind.OPERATOR


def test_a_lost_member_of_a_fusion_is_named(verdict_of, make):
    network = Network(make)
    lost = {"fcmatfcbiasfcrelu": lambda a: a}
    device = Network(make, touch=lost)
    device._dense = lambda a, b, c: np.maximum(device._product(a, b), np.float32(0))
    verdict = judge(device.run("npu"), network.run("tf"), left_graph=device.graph())
    assert (verdict.kind, verdict.op) == (Kind.FUSION, "fcmatfcbiasfcrelu")
    assert verdict.suspects[0].member == "fc/bias"
    assert "MatMulBiasAddReluFusionPass" in verdict.next[0]


def test_a_fused_op_with_wrong_arithmetic_is_an_operator(verdict_of):
    verdict = verdict_of(touch={"fcmatfcbiasfcrelu": scaled(1.5)})
    assert (verdict.kind, verdict.op) == (Kind.OPERATOR, "fcmatfcbiasfcrelu")


def stamp(a):
    a = a.copy()
    a.reshape(-1)[10:14] = 7
    return a


def test_what_changes_between_writer_and_reader_blames_the_producer(verdict_of):
    verdict = verdict_of(fused=False, read={("restore", 0): stamp})
    assert (verdict.kind, verdict.op) == (Kind.MEMORY_OVERWRITTEN, "lookup")
    assert [(row["consumer"], row["input"], row["differing"]) for row in verdict.evidence] == [("restore", 0, 4)]


def test_an_op_that_errs_before_a_tensor_is_overwritten_is_first_and_both_are_suspects(verdict_of):
    earlier = verdict_of(fused=False, touch={"lookup": scaled(1.5)}, read={("fc/bias", 0): stamp})
    assert (earlier.kind, earlier.op) == (Kind.OPERATOR, "lookup")
    assert [suspect.op for suspect in earlier.suspects] == ["lookup", "fc/mat"]
    later = verdict_of(fused=False, touch={"fc/relu": scaled(1.5)}, read={("restore", 0): stamp})
    assert (later.kind, later.op) == (Kind.MEMORY_OVERWRITTEN, "lookup")
    assert [suspect.op for suspect in later.suspects] == ["lookup", "fc/relu"]


def test_other_feeds_come_before_any_accusation(verdict_of, make):
    other = Network(make)
    other.keys = other.keys.copy()
    other.keys[0] += 1
    dump = other.run("tf")
    feed = make.record("ids:output:0", other.keys, device="tf")
    device = Network(make, touch={"fcmatfcbiasfcrelu": scaled(2)})
    right = replace(dump, records=(feed, *dump.records))
    verdict = judge(device.run("npu"), right, left_graph=device.graph())
    assert (verdict.kind, verdict.op) == (Kind.DATA, "ids")
    assert verdict.evidence[0]["differing"] == 1


def test_other_weights_are_a_checkpoint(verdict_of, make):
    other = Network(make)
    other.table = other.table + np.float32(0.1)
    verdict = verdict_of(right=other, step=0)
    assert (verdict.kind, verdict.op) == (Kind.CHECKPOINT, "table/read")


def in_place(make, weight, updated=False):
    """A device that reads its variable in place, as the input of the product; ``updated``: it assigns it before."""
    x, w, right_w = np.ones((2, 3), np.float32), weight, np.ones((3, 2), np.float32)
    ops = [make.op("x", "Data"), make.op("w", "VariableV2"), make.op("new", "Const")]
    ops.append(make.op("set", "Assign", ("w:0", "new:0")))
    ops.append(make.op("mat", "MatMulV2", ("x:0", "w:0")))
    records = []
    if updated:
        tensors = {"input:0": right_w, "input:1": w, "output:0": w}
        records = [make.record(f"set:{k}", v, op_type="Assign", step=0, timestamp_us=1) for k, v in tensors.items()]
    tensors = {"input:0": x, "input:1": w, "output:0": x @ w}
    records += [make.record(f"mat:{k}", v, op_type="MatMulV2", step=0, timestamp_us=2) for k, v in tensors.items()]
    known = {"x": x, "w": right_w, "mat": x @ right_w}
    reference = make.dump(*(make.record(f"{k}:output:0", v, device="tf", step=0) for k, v in known.items()))
    return judge(make.dump(*records), reference, left_graph=make.graph(*ops))


def test_a_variable_that_a_device_reads_in_place_is_held_against_the_reference(make):
    verdict = in_place(make, np.full((3, 2), 1.5, np.float32))
    assert (verdict.kind, verdict.op, verdict.tensor) == (Kind.CHECKPOINT, "mat", "mat:input:1")
    assert in_place(make, np.ones((3, 2), np.float32)).kind is Kind.FINE


def test_a_variable_that_the_step_has_set_itself_is_no_checkpoint(make):
    assert in_place(make, np.full((3, 2), 1.5, np.float32), updated=True).kind is not Kind.CHECKPOINT


def test_later_weights_differ_by_rounding_but_not_altogether(verdict_of, make):
    other = Network(make)
    other.table = other.table + np.float32(0.1)
    verdict = verdict_of(right=other, step=3)
    assert (verdict.kind, verdict.op) == (Kind.ROUNDING, None)
    assert verdict.evidence[1]["relative_distance"] == pytest.approx(0.1, rel=0.1, abs=0)
    assert verdict_of(right=other, step=None).kind is Kind.UNKNOWN
    other.table = other.table[::-1].copy()
    assert verdict_of(right=other, step=3).kind is Kind.CHECKPOINT
    assert verdict_of(right=other, step=500).kind is Kind.UNKNOWN


OUTPUT_FAULTS = {
    "fc/mat": lambda a: (a * np.float32(1.5)).astype(a.dtype),
    "fc/relu": lambda a: np.where(np.arange(a.size).reshape(a.shape) < a.size - 9, a, 0).astype(a.dtype),
    "loss": lambda a: np.asarray(a + 1, a.dtype),
    "restore": lambda a: np.roll(a, 1, axis=0),
}


@pytest.mark.parametrize("op", OUTPUT_FAULTS)
def test_outputs_alone_are_enough_and_it_is_said(make, op):
    device, golden = Network(make, fused=False, touch={op: OUTPUT_FAULTS[op]}), Network(make)
    dump = device.run("npu")
    dump = replace(dump, records=tuple(r for r in dump if r.io == "output"))
    reference = golden.run("tf")
    axes = make.record("axes:output:0", np.int32([0]), op_type="Const", device="tf")
    reference = replace(reference, records=(axes, *reference.records))
    verdict = judge(dump, reference, left_graph=device.graph())
    assert (verdict.kind, verdict.op, [s.op for s in verdict.suspects]) == (Kind.OPERATOR, op, [op])
    assert any("outputs only" in row["text"] for row in verdict.evidence)


def test_a_whole_dump_says_nothing_of_assumed_inputs(verdict_of):
    assert not any("outputs only" in row["text"] for row in verdict_of(noise=2.0**-24).evidence)


def test_ops_that_hold_no_tensor_are_no_gap(verdict_of):
    skipped = {s.tensor for s in verdict_of().skipped}
    assert not skipped & {"ids", "axis", "table", "where", "w", "b", "axes"}
    assert "unique" in skipped


@pytest.mark.parametrize(("mine", "kind"), [(np.int32([0]), Kind.ROUNDING), (np.float32([0.5]), Kind.UNKNOWN)])
def test_whole_constants_of_another_version_are_no_finding_but_others_are(make, mine, kind):
    x = np.ones((2, 3), np.float32)
    graph = make.graph(make.op("x", "Data"), make.op("axis", "Const"), make.op("out", "Relu", ("x:0",)))
    sides = []
    for constant in (mine, np.asarray(mine[0] + 1)):
        records = [make.record("axis:output:0", constant, op_type="Const", device="tf")]
        records += [make.record(f"out:{k}", x, op_type="Relu", device="tf") for k in ("input:0", "output:0")]
        sides.append(make.dump(*records))
    assert judge(*sides, left_graph=graph, right_graph=graph).kind is kind


def test_a_host_op_with_equal_inputs_and_other_output_is_found(verdict_of):
    verdict = verdict_of(touch={"indices": lambda a: (a + 1) % TABLE_ROWS})
    assert (verdict.kind, verdict.op) == (Kind.OPERATOR, "indices")
    assert verdict.confidence < 1


def test_the_reference_can_be_the_wrong_side(make):
    golden = Network(make, fused=False, touch={"fc/mat": scaled(1.5)})
    device = Network(make)
    verdict = judge(
        device.run("npu"), golden.run("tf"), left_graph=device.graph(), right_graph=Network(make, fused=False).graph()
    )
    assert (verdict.kind, verdict.op, verdict.side) == (Kind.OPERATOR, "fc/mat", "right")
    assert "reference side" in verdict.lines()[0]


def test_a_nan_that_everybody_passes_on_correctly_is_still_a_finding(verdict_of, make):
    def network():
        made = Network(make, fused=False)
        made.table = made.table.copy()
        made.table[made.rows[0], 2] = np.nan
        return made

    device = network()
    verdict = judge(device.run("npu"), network().run("tf"), left_graph=device.graph())
    assert verdict.kind is Kind.NAN_INPUT


def bfloat16(a):
    """Rounds float32 to the nearest bfloat16, ties to even."""
    bits = a.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def test_many_ops_with_one_signature_are_a_precision_mode(make):
    random = np.random.default_rng(2)
    records, ops, source = [], [make.op("x", "Data", ())], "x:0"
    x = random.normal(size=(64, 64)).astype(np.float32)
    for k in range(4):
        w = random.normal(size=(64, 64)).astype(np.float32)
        y = (bfloat16(x).astype(np.float64) @ bfloat16(w).astype(np.float64)).astype(np.float32)
        ops += [make.op(f"w{k}", "Const", ()), make.op(f"m{k}", "MatMulV2", (source, f"w{k}:0"))]
        for tensor, value in (("input:0", x), ("input:1", w), ("output:0", y)):
            records.append(make.record(f"m{k}:{tensor}", value, op_type="MatMulV2", timestamp_us=k + 1))
        source, x = f"m{k}:0", y
    verdict = judge(make.dump(*records), left_graph=make.graph(*ops))
    assert verdict.kind is Kind.PRECISION_MODE
    assert verdict.evidence[0]["arithmetic"] == "bfloat16"


def test_without_a_graph_equal_inputs_and_unequal_output_decide(verdict_of, make):
    device = Network(make, fused=False, touch={"fc/mat": scaled(1.5)})
    twin = Network(make, fused=False)
    verdict = judge(device.run("npu"), twin.run("npu"))
    assert (verdict.kind, verdict.op) == (Kind.OPERATOR, "fc/mat")
    assert verdict.confidence < 1
    assert "graph" in verdict.next[0]


def test_nothing_in_common_is_not_comparable(make):
    left = make.dump(make.record("a:output:0", np.ones(3, np.float32)))
    right = make.dump(make.record("b:output:0", np.ones(3, np.float32)))
    verdict = judge(left, right)
    assert verdict.kind is Kind.NOT_COMPARABLE
    assert not verdict.kind.clean


def test_the_answer_does_not_depend_on_the_number_of_threads(make):
    def run(threads):
        device = Network(make, touch={"lookup": wrong_rows(3), "fcmatfcbiasfcrelu": scaled(1.1)})
        return judge(device.run("npu"), Network(make).run("tf"), left_graph=device.graph(), threads=threads).as_dict()

    assert run(1) == run(4)


def test_a_damaged_tensor_is_listed_and_the_rest_judged(make):
    device = Network(make, fused=False, touch={"fc/relu": scaled(2)})
    dump = device.run("npu")
    broken = tuple(
        replace(r, source=replace(r.source, array="cut short")) if r.op == "fc/mat" and r.io == "output" else r
        for r in dump
    )
    verdict = judge(replace(dump, records=broken), Network(make).run("tf"), left_graph=device.graph())
    assert (verdict.kind, verdict.op) == (Kind.OPERATOR, "fc/relu")
    assert any("cut short" in s.reason for s in verdict.skipped)

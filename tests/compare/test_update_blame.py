"""Optimizer faults, each made here with NumPy in float32, and what the verdict says of them."""

from __future__ import annotations

import numpy as np
import pytest

from compare.judge import judge
from compare.verdict import Kind

F = np.float32
SHAPE = (40, 6)
ADAM = ("var", "m", "v", "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")


def adam(p, corrected=True):
    rate = p["lr"] * np.sqrt(F(1) - p["beta2_power"]) / (F(1) - p["beta1_power"]) if corrected else p["lr"]
    m = p["m"] + (p["grad"] - p["m"]) * (F(1) - p["beta1"])
    v = p["v"] + (p["grad"] * p["grad"] - p["v"]) * (F(1) - p["beta2"])
    return [p["var"] - rate * m / (np.sqrt(v) + p["epsilon"]), m, v]


def adam_inputs(seed=0):
    random = np.random.default_rng(seed)
    scalars = {
        "beta1_power": 0.9**3,
        "beta2_power": 0.999**3,
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
    }
    values = {"var": random.normal(size=SHAPE), "m": 0.01 * random.normal(size=SHAPE)}
    values |= {"v": 1e-4 * random.random(SHAPE), "grad": 0.01 * random.normal(size=SHAPE)} | scalars | {"epsilon": 1e-8}
    return {name: np.asarray(values[name], F) for name in ADAM}


@pytest.fixture
def verdict_of(make):
    """Judges one update op alone: ``kind``, its inputs by name, what it wrote."""

    def run(kind, inputs, outputs):
        sources = ["weights:0", *(f"{name}:0" for name in list(inputs)[1:])]
        ports = tuple({} for _ in outputs)
        ops = [make.op("weights", "Variable"), *(make.op(name, "Const") for name in list(inputs)[1:])]
        graph = make.graph(*ops, make.op("update", kind, sources, ports))
        records = [make.record(f"update:input:{k}", np.array(x), op_type=kind) for k, x in enumerate(inputs.values())]
        records += [make.record(f"update:output:{k}", x, op_type=kind) for k, x in enumerate(outputs)]
        return judge(make.dump(*records), left_graph=graph)

    return run


def told(verdict):
    assert (verdict.kind, verdict.op) == (Kind.OPTIMIZER, "update")
    return " ".join(str(row["text"]) for row in verdict.evidence)


def test_a_right_update_is_fine(verdict_of):
    inputs = adam_inputs()
    assert verdict_of("ApplyAdamD", inputs, adam(inputs)).kind is Kind.FINE


def test_adam_without_bias_correction(verdict_of):
    inputs = adam_inputs()
    assert "without the bias correction" in told(verdict_of("ApplyAdamD", inputs, adam(inputs, corrected=False)))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("epsilon", 1e-3, "epsilon 0.001 in place of 1e-08"),
        ("lr", 0.02, "lr 0.02 in place of 0.01"),
        ("beta1", 0.5, "beta1 0.5 in place of 0.9"),
        ("beta2", 0.99, "beta2 0.99 in place of 0.999"),
    ],
)
def test_another_setting_is_named_with_both_values(verdict_of, name, value, text):
    inputs = adam_inputs()
    assert text in told(verdict_of("ApplyAdamD", inputs, adam(inputs | {name: F(value)})))


def test_a_gradient_that_was_summed_over_the_world_and_not_divided(verdict_of):
    inputs = adam_inputs()
    outputs = adam(inputs | {"grad": inputs["grad"] * F(8)})
    assert "the gradient times 8" in told(verdict_of("ApplyAdamD", inputs, outputs))


def test_an_update_that_was_skipped_altogether_and_in_some_rows(verdict_of):
    inputs = adam_inputs()
    assert "was skipped" in told(verdict_of("ApplyAdamD", inputs, [inputs[n].copy() for n in ("var", "m", "v")]))
    outputs = adam(inputs)
    for new, name in zip(outputs, ("var", "m", "v"), strict=True):
        new[[3, 17]] = inputs[name][[3, 17]]
    verdict = verdict_of("ApplyAdamD", inputs, outputs)
    assert "left 2 of 40 rows as they were" in told(verdict)
    assert (verdict.table, verdict.keys) == ("weights", (3, 17))


def sparse_descent(duplicates):
    random = np.random.default_rng(1)
    indices = np.array([4, 9, 4, 30, 9, 4] if duplicates else [4, 9, 30], np.int64)
    updates = random.normal(size=(len(indices), SHAPE[1])).astype(F)
    return {"var": random.normal(size=SHAPE).astype(F), "indices": indices, "updates": updates}


def test_the_last_of_several_gradients_of_a_row_wins(verdict_of):
    inputs = sparse_descent(duplicates=True)
    wrong = inputs["var"].copy()
    for row in (4, 9, 30):
        last = np.flatnonzero(inputs["indices"] == row)[-1]
        wrong[row] = inputs["var"][row] - inputs["updates"][last]
    verdict = verdict_of("ScatterSub", inputs, [wrong])
    assert "kept the last only: 3 of 6 were lost" in told(verdict)
    assert verdict.keys == (4, 9)


def test_a_scatter_that_left_a_row_out(verdict_of):
    inputs = sparse_descent(duplicates=False)
    wrong = inputs["var"].copy()
    wrong[[4, 30]] -= inputs["updates"][[0, 2]]
    assert "left 1 of 40 rows" in told(verdict_of("ScatterSub", inputs, [wrong]))


def adagrad_rows(var, accum, lr, grad, indices):
    var, accum = var.copy(), accum.copy()
    for position, row in enumerate(indices):
        accum[row] += grad[position] * grad[position]
        var[row] -= lr * grad[position] / np.sqrt(accum[row])
    return [var, accum]


def adagrad_inputs():
    random = np.random.default_rng(2)
    indices = np.array([5, 7, 5, 11, 20], np.int64)
    return {
        "var": random.normal(size=SHAPE).astype(F),
        "accum": random.random(SHAPE).astype(F),
        "lr": F(0.05),
        "grad": random.normal(size=(5, SHAPE[1])).astype(F),
        "indices": indices,
    }


def test_a_sparse_rule_with_another_rate_and_repeated_rows(verdict_of):
    inputs = adagrad_inputs()
    assert verdict_of("SparseApplyAdagrad", inputs, adagrad_rows(**inputs)).kind is Kind.FINE
    outputs = adagrad_rows(**inputs | {"lr": F(0.1)})
    assert "lr 0.1 in place of 0.05" in told(verdict_of("SparseApplyAdagrad", inputs, outputs))


def test_what_nothing_explains_is_still_the_optimizers(verdict_of):
    inputs = adam_inputs()
    outputs = adam(inputs)
    outputs[0][7, 3] *= F(1.5)
    text = told(verdict_of("ApplyAdamD", inputs, outputs))
    assert "in place of" not in text
    assert "skipped" not in text


def test_nan_in_the_written_variable_ends_in_a_verdict(verdict_of):
    inputs = adam_inputs()
    outputs = adam(inputs)
    outputs[0][2, 2] = np.nan
    told(verdict_of("ApplyAdamD", inputs, outputs))


def test_an_assignment_of_something_else_than_a_variable_is_an_operator(make):
    sources = [make.op("x", "Data"), make.op("i", "Const"), make.op("u", "Const"), make.op("relu", "Relu", ("x:0",))]
    graph = make.graph(*sources, make.op("s", "ScatterNdAdd", ("relu:0", "i:0", "u:0")))
    inputs = [np.zeros(4, F), np.array([[1]]), np.ones(1, F)]
    records = [make.record(f"s:input:{k}", x, op_type="ScatterNdAdd") for k, x in enumerate(inputs)]
    records.append(make.record("s:output:0", np.array([0, 2, 0, 0], F), op_type="ScatterNdAdd"))
    assert judge(make.dump(*records), left_graph=graph).kind is Kind.OPERATOR

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from engine.lookup import sparse_lookup
from engine.optimizers.lazy_adam import DenseGradientError, LazyAdam
from engine.table import Constant, TableConfig, create_table

BOTH = pytest.mark.parametrize("use_resource", [True, False])


class Reference:
    """LazyAdam in float64, one row at a time."""

    def __init__(self, rows, *, lr, beta1=0.9, beta2=0.999, eps=1e-8):
        self.w = rows.astype(np.float64)
        self.m, self.v = np.zeros_like(self.w), np.zeros_like(self.w)
        self.lr, self.beta1, self.beta2, self.eps, self.t = lr, beta1, beta2, eps, 0

    def step(self, rows, grads):
        self.t += 1
        rate = self.lr * np.sqrt(1 - self.beta2**self.t) / (1 - self.beta1**self.t)
        for row in dict.fromkeys(rows):
            g = sum(np.asarray(grad, np.float64) for r, grad in zip(rows, grads, strict=True) if r == row)
            self.m[row] = self.beta1 * self.m[row] + (1 - self.beta1) * g
            self.v[row] = self.beta2 * self.v[row] + (1 - self.beta2) * g * g
            self.w[row] -= rate * self.m[row] / (np.sqrt(np.abs(self.v[row])) + self.eps)


class Trainer:
    """A variable whose gradient a test feeds as slices."""

    def __init__(self, rows, dim, *, use_resource, lr, initial=0.0):
        self.graph = tf.Graph()
        with self.graph.as_default():
            config = TableConfig("user_table", dim, rows, Constant(initial))
            self.variable = create_table(config, use_resource=use_resource).variable
            self.rows = tf.compat.v1.placeholder(tf.int64, [None])
            self.grads = tf.compat.v1.placeholder(tf.float32, [None, dim])
            self.optimizer = LazyAdam(lr)
            slices = tf.IndexedSlices(self.grads, self.rows, [rows, dim])
            self.train = self.optimizer.apply_gradients([(slices, self.variable)])
            slots = [self.optimizer.get_slot(self.variable, name) for name in ("momentum", "velocity")]
            self.state = [self.variable, *slots]
            self.session = tf.compat.v1.Session()
            self.session.run(tf.compat.v1.global_variables_initializer())

    def step(self, rows, grads):
        self.session.run(self.train, {self.rows: rows, self.grads: grads})
        return self.session.run(self.state)


@BOTH
def test_fc27_repeated_ids(shared_data, use_resource):
    case = json.loads((shared_data / "field_cases" / "FC27" / "input.json").read_text())
    trainer = Trainer(5, case["dim"], use_resource=use_resource, lr=float(case["optimizer"]["lr"]))
    states = []
    for step in case["steps"]:
        states.append(trainer.step(step["ids"], np.array(step["grads"], dtype=np.float32)))
    w1, w2, w3 = (state[0] for state in states)
    np.testing.assert_allclose(w1[1], [-0.0999999368, 0.0999999684], rtol=1e-6)
    np.testing.assert_allclose(w1[3], [-0.0999999921, 0], rtol=1e-6)
    np.testing.assert_allclose(w2[1], [-0.1965181120, 0.0947368117], rtol=1e-6)
    np.testing.assert_allclose(w3[3], [-0.1575219797, 0], rtol=1e-6)
    np.testing.assert_allclose(states[2][1][3], [0.36, 0], rtol=1e-6)
    np.testing.assert_allclose(states[2][2][3], [0.015984, 0], rtol=1e-6)
    for one, other in zip(states[0], states[1], strict=True):
        assert one[3].tobytes() == other[3].tobytes(), "row 3 is not in the second batch"
    for one, other in zip(states[1], states[2], strict=True):
        assert one[1].tobytes() == other[1].tobytes(), "row 1 is not in the third batch"
    for state in states:
        assert not any(part[[0, 2, 4]].any() for part in state)


@BOTH
def test_twenty_steps_equal_a_float64_reference(use_resource):
    draw = np.random.default_rng(3)
    trainer = Trainer(12, 5, use_resource=use_resource, lr=0.05, initial=0.3)
    reference = Reference(np.full((12, 5), np.float32(0.3)), lr=0.05)
    for _ in range(20):
        rows = draw.integers(0, 12, 9)
        grads = draw.normal(size=(9, 5)).astype(np.float32)
        before = trainer.session.run(trainer.state)
        state = trainer.step(rows, grads)
        reference.step(rows.tolist(), grads)
        for got, want in zip(state, (reference.w, reference.m, reference.v), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        untouched = np.setdiff1d(np.arange(12), rows)
        assert all((one[untouched] == other[untouched]).all() for one, other in zip(before, state, strict=True))


def test_names_of_slots_and_counting_per_graph():
    for _ in range(2):
        with tf.Graph().as_default():
            table = create_table(TableConfig("user_table", 2, 4))
            ids = tf.constant([1, 2], tf.int64)
            loss = tf.reduce_sum(sparse_lookup(table, ids))
            gradient = tf.gradients(loss, table.variable)[0]
            first, second = LazyAdam(0.1), LazyAdam(0.1)
            for optimizer in (first, second):
                optimizer.apply_gradients([(gradient, table.variable)])
            names = {
                first.get_slot(table.variable, "momentum").op.name,
                second.get_slot(table.variable, "velocity").op.name,
            }
            assert names == {"user_table/LazyAdam_0/momentum", "user_table/LazyAdam_1/velocity"}


def test_one_lookup_needs_no_second_merge_and_two_do():
    with tf.Graph().as_default() as graph:
        table = create_table(TableConfig("t", 2, 8, Constant(0.0)))
        ids = tf.constant([1, 2, 1], tf.int64)
        one = tf.reduce_sum(sparse_lookup(table, ids))
        LazyAdam(0.1).apply_gradients([(tf.gradients(one, table.variable)[0], table.variable)])
        assert "Unique" not in {op.type for op in graph.get_operations()}
        two = one + tf.reduce_sum(sparse_lookup(table, tf.constant([2, 5], tf.int64)))
        optimizer = LazyAdam(0.1)
        train = optimizer.apply_gradients([(tf.gradients(two, table.variable)[0], table.variable)])
        assert "Unique" in {op.type for op in graph.get_operations()}
        velocity = optimizer.get_slot(table.variable, "velocity")
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train)
            state = session.run(velocity)
    by_key = {int(key): state[row, 0] for row, key in enumerate(table.keys.keys())}
    # Key 2 has gradient 1 from each lookup: (1+1)^2, not 1 + 1.
    np.testing.assert_allclose([by_key[1], by_key[2], by_key[5]], np.array([4, 4, 1]) * 0.001, rtol=1e-6)


@BOTH
def test_a_dense_gradient_is_refused(use_resource):
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("w", [2], use_resource=use_resource)
        with pytest.raises(DenseGradientError, match="'w:0'"):
            LazyAdam(0.1).apply_gradients([(tf.constant([1.0, 2.0]), variable)])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("learning_rate", 1),
        ("learning_rate", 10.5),
        ("learning_rate", float("nan")),
        ("beta1", 0.0),
        ("beta1", 1.0),
        ("beta2", 1.5),
        ("epsilon", 0.0),
        ("epsilon", True),
        ("name", ""),
    ],
)
def test_arguments_are_checked(argument, value):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=argument):
        LazyAdam(**{"learning_rate": 0.1, argument: value})

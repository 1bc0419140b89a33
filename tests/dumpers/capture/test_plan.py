"""Order of execution, nesting in loops and branches, and which tensors share memory."""

from __future__ import annotations

import numpy as np
import pytest

from dumpers.capture.aliasing import live_tensors, private
from dumpers.capture.plan import How, in_order, is_step, make_plan
from dumpers.capture.steps import executed

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


def test_live_tensors_are_those_that_change_in_place(config):
    """Independent truth: fetched together with the update, exactly these show the value after it (or may)."""
    graph = tf.Graph()
    with graph.as_default():
        v = tf1.get_variable("v", initializer=np.ones([4, 2], "f4"), use_resource=False)
        tensors = [
            tf.identity(v, name="same"),
            tf.reshape(v, [8], name="flat"),
            tf.expand_dims(tf.stop_gradient(v), 0, name="wide"),
            tf.add(v, 1.0, name="fresh"),
            tf.matmul(v, v, transpose_b=True, name="product"),
            tf.gather(v, [0], name="rows"),
        ]
        with tf.control_dependencies(tensors):
            update = tf1.assign_add(v, tf.ones([4, 2]), name="update")
    order = in_order(graph, executed([update.op]))
    live = live_tensors(order)
    with tf1.Session(graph=graph, config=config()) as session:
        session.run(v.initializer)
        pure = session.run(tensors)
        pure = [value.copy() for value in pure]
        together = session.run([tensors, update])[0]
    changed = {
        t.name
        for t, a, b in zip(tensors, pure, together)  # noqa: B905
        if not np.array_equal(a, b)
    }
    assert {"flat:0", "wide:0"} <= changed
    assert changed <= live
    assert not live & {"fresh:0", "product:0", "rows:0"}


def test_private_copies_only_what_is_shared():
    base = np.arange(6.0)
    alone = np.arange(6.0)
    assert private(alone, [base]) is alone
    copy = private(base[2:], [alone, base])
    base[:] = -1
    assert copy.tolist() == [2, 3, 4, 5]


def test_order_is_topological_even_against_the_order_of_creation():
    graph = tf.Graph()
    with graph.as_default():
        first = tf.constant(1.0, name="first")
        second = tf.constant(2.0, name="second")
        first.op._add_control_input(second.op)
        total = tf.add(first, second, name="total")
    assert [op.name for op in in_order(graph, executed([total.op]))] == ["second", "first", "total"]


def test_a_run_that_trains_nothing_gets_no_plan(click_model):
    model = click_model(True)
    assert not make_plan(model.graph, [model.loss.op], [], can_watch=True).training
    assert not make_plan(model.graph, [model.init], [], can_watch=True).training
    assert make_plan(model.graph, [model.train], [], can_watch=True).training


def test_inference_counts_in_a_graph_that_cannot_train():
    graph = tf.Graph()
    with graph.as_default():
        v = tf1.get_variable("v", initializer=1.0)
        out = tf.add(v, 1.0)
        queue = tf1.FIFOQueue(3, [tf.float32])
        enqueue = queue.enqueue(1.0)
        init = tf1.global_variables_initializer()
    assert is_step(graph, [out.op])
    assert not is_step(graph, [init])
    assert not is_step(graph, [enqueue])
    with graph.as_default():
        tf1.train.GradientDescentOptimizer(0.1).minimize(v * v)
    assert not is_step(graph, [out.op])


def test_ways(click_model):
    graph = click_model(False)
    plan = make_plan(graph.graph, [graph.train], [graph.ids, graph.label], can_watch=True)
    way = {taken.name: taken.how for taken in plan.tensors}
    assert way["ids:0"] is How.FED
    assert way["table:0"] is How.WATCH
    assert way["table/read:0"] is How.FETCH
    assert "table/read:0" in plan.copied
    assert "net/hidden:0" not in plan.copied
    without = make_plan(graph.graph, [graph.train], [graph.ids, graph.label], can_watch=False)
    assert not without.watched()
    assert {t.name: t.how for t in without.tensors}["table:0"] is How.BEFORE
    moments = [taken.moment for taken in plan.tensors]
    assert moments == sorted(moments)

"""Which runs count as steps."""

from __future__ import annotations

import pytest
import tensorflow as tf

from dumpers.capture.steps import executed, is_training_run, parse_steps, variable_of, written_variables
from dumpers.errors import UsageError

v1 = tf.compat.v1


@pytest.mark.parametrize(
    ("text", "wanted", "last"),
    [
        ("0", {0}, 0),
        ("0|3-5|10", {0, 3, 4, 5, 10}, 10),
        (" 2 | 4 ", {2, 4}, 4),
        ("", set(range(20)), None),
        ("|".join(map(str, range(100))), set(range(20)), 99),
    ],
)
def test_steps(text, wanted, last):
    steps = parse_steps(text)
    assert {step for step in range(20) if step in steps} == wanted
    assert steps.last == last


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a", "'a' is neither"),
        ("1|", "'' is neither"),
        ("-1", "'-1' is neither"),
        ("5-3", "backwards"),
        ("1-2-3", "'1-2-3' is neither"),
        ("1.5", "neither"),
        ("²", "neither"),
        ("|".join(["1"] * 101), "at most 100"),
    ],
)
def test_bad_steps(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_steps(text)


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("optimizer", ["AdamOptimizer", "GradientDescentOptimizer", "FtrlOptimizer"])
def test_a_training_graph(resource, optimizer):
    graph = tf.Graph()
    with graph.as_default():
        w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=resource)
        copy = v1.get_variable("copy", initializer=lambda: w.initial_value * 2.0, use_resource=resource)
        loss = tf.reduce_sum(tf.square(w)) + tf.reduce_sum(copy)
        step = v1.train.get_or_create_global_step()
        train = getattr(v1.train, optimizer)(0.1).minimize(loss, global_step=step)
        mean, mean_update = v1.metrics.mean(loss)
        init = v1.global_variables_initializer()
        local = v1.local_variables_initializer()
        count = v1.assign_add(step, 1)
        saver = v1.train.Saver()
    save, restore = saver.saver_def.save_tensor_name, saver.saver_def.restore_op_name
    runs = {
        "train": ([train], True),
        "train and loss": ([loss.op, train], True),
        "init": ([init, local], False),
        "loss": ([loss.op], False),
        "metric": ([mean_update.op, mean.op], False),
        "count": ([count.op], False),
        "save": ([graph.get_tensor_by_name(save).op], False),
        "restore": ([graph.get_operation_by_name(restore)], False),
    }
    assert {name: is_training_run(graph, ops) for name, (ops, _) in runs.items()} == {
        name: expected for name, (_, expected) in runs.items()
    }


def lookup(table, rows, resource):
    if resource:
        gathered = tf.raw_ops.ResourceGather(resource=table.handle, indices=rows, dtype=tf.float32)
    else:
        gathered = tf.gather(table, rows)
    gathered.op._set_attr("_embedding_table", v1.AttrValue(s=b"table"))
    return gathered


@pytest.mark.parametrize("resource", [True, False])
def test_tables_count_though_not_trainable(resource):
    graph = tf.Graph()
    with graph.as_default():
        table = v1.get_variable("table", [5, 2], trainable=False, use_resource=resource)
        v1.get_variable("dense", [2], use_resource=resource)
        rows = tf.constant([1, 2])
        embedding = lookup(table, rows, resource)
        learn = v1.scatter_update(table, rows, embedding * 0.9)
        fill = v1.scatter_update(table, rows, tf.zeros([2, 2]))
    assert is_training_run(graph, [learn.op])
    assert not is_training_run(graph, [fill.op])
    assert not is_training_run(graph, [embedding.op])


@pytest.mark.parametrize("resource", [True, False])
def test_any_variable_counts_where_none_is_trainable(resource):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=1.0, trainable=False, use_resource=resource)
        up, reset = v1.assign_add(v, 1.0), v1.assign(v, 0.0)
        double = v1.assign(v, v * 2.0)
    assert is_training_run(graph, [up.op])
    assert is_training_run(graph, [double.op])
    assert not is_training_run(graph, [reset.op])


@pytest.mark.parametrize("resource", [True, False])
def test_written_variables(resource):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=[1.0], use_resource=resource)
        update = v1.assign_add(v, [1.0])
        read = v.value()
    writer = update.op if not resource else next(op for op in graph.get_operations() if "AssignAdd" in op.type)
    assert [op.name for op in written_variables(writer)] == ["v"]
    assert written_variables(read.op) == []
    assert variable_of(writer.inputs[0]).name == "v"


def test_executed_stops_at_feeds():
    graph = tf.Graph()
    with graph.as_default():
        a = tf.constant(1.0, name="a")
        b = tf.add(a, 1.0, name="b")
        c = tf.multiply(b, 2.0, name="c")
    assert {op.name for op in executed([c.op])} == {"a", "b", "b/y", "c", "c/y"}
    assert {op.name for op in executed([c.op], {"b:0"})} == {"c", "c/y"}

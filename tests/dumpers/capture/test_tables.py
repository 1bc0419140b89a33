"""Tables as recommendation models have them: partitioned, and of two million rows."""

from __future__ import annotations

import numpy as np
import pytest

from dumpers.capture.session import flush, record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1
ROWS = 2000000


@pytest.mark.parametrize("use_resource", [True, False])
def test_partitioned_variables(tmp_path, config, manifests, values, use_resource):
    graph = tf.Graph()
    start = np.random.RandomState(2).uniform(-1, 1, [10, 4]).astype("f4")

    def initial(shape, dtype=None, partition_info=None):
        first = partition_info.var_offset[0]
        return tf.constant(start[first : first + int(shape[0])], dtype)

    with graph.as_default():
        ids = tf1.placeholder(tf.int64, [None], name="ids")
        table = tf1.get_variable(
            "table",
            shape=[10, 4],
            dtype=tf.float32,
            initializer=initial,
            partitioner=tf1.fixed_size_partitioner(3),
            use_resource=use_resource,
        )
        rows = tf1.nn.embedding_lookup(table, ids, partition_strategy="div")
        loss = tf.reduce_sum(tf.square(rows), name="loss")
        train = tf1.train.AdagradOptimizer(0.5).minimize(loss)
        init = tf1.global_variables_initializer()
        parts = list(table)
    feeds = {ids: np.array([0, 3, 9, 3])}

    def weights(session):
        with session:
            session.run(init)
            losses = [session.run([loss, train], feeds)[0].tobytes() for _ in range(3)]
            return losses, [part.tobytes() for part in session.run(parts)]

    plain = weights(tf1.Session(graph=graph, config=config()))
    assert weights(record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps(""))) == plain
    record = manifests(tmp_path)[0]
    found = values(record)
    # Ten rows in three parts: four, three, three; the record has them as they were before the update.
    bounds = [0, 4, 7, 10]
    for number, part in enumerate(parts):
        if use_resource:
            reads = [n for n in found if n.startswith(part.op.name + "/Read") or n == part.op.name + "/read:0"]
        else:
            reads = [part.op.name + ":0"]
        for name in reads:
            assert np.array_equal(found[name], start[bounds[number] : bounds[number + 1]]), name
    names = {t["op"] for t in record["tensors"]}
    assert {part.op.name for part in parts} <= names
    missing = [t for t in record["tensors"] if not t["file"] and t["dtype"] not in ("resource", "variant")]
    assert missing == []


def peak_kib():
    """Most memory that this process had since the last reset, as the kernel counts it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_table_of_two_million_rows(tmp_path, config, manifests, use_resource):
    """64 MB: recorded once, as the lookup saw it, in bounded memory."""
    graph = tf.Graph()
    with graph.as_default():
        ids = tf1.placeholder(tf.int64, [None], name="ids")
        ramp = tf.reshape(tf.range(ROWS * 8, dtype=tf.int32), [ROWS, 8])
        table = tf1.get_variable("table", initializer=tf.cast(ramp, tf.float32), use_resource=use_resource)
        rows = tf.gather(table, ids, name="rows")
        loss = tf.reduce_sum(rows, name="loss")
        top = tf.reduce_max(table, name="top")
        with tf1.control_dependencies([top]):
            train = tf1.train.GradientDescentOptimizer(1.0).minimize(loss)
        init = tf1.global_variables_initializer()
    wanted = np.array([1, ROWS - 1, 12345])
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(init)
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pytest.skip("the kernel does not count peaks")
        before = peak_kib()
        session.run([loss, top, train], {ids: wanted})
        flush(session)
        peak = peak_kib() - before
        after = session.run(rows, {ids: wanted})
    (record,) = manifests(tmp_path)
    entries = [t for t in record["tensors"] if t["shape"] == [ROWS, 8] and t["file"]]
    expected = np.arange(ROWS * 8, dtype=np.int32).astype("f4").reshape(ROWS, 8)
    changed = expected.copy()
    changed[wanted] -= 1
    assert np.array_equal(after, changed[wanted])
    seen = {}
    for entry in entries:
        value = record["value"](entry)
        seen[entry["op_type"]] = "before" if np.array_equal(value, expected) else "other"
        assert seen[entry["op_type"]] == "before" or np.array_equal(value, changed), entry["op"]
    assert len(entries) == len({(t["op"], t["output"]) for t in entries})
    if use_resource:
        assert seen == {"ReadVariableOp": "before"}
    else:
        assert (seen["VariableV2"], seen["Identity"], seen["ScatterSub"]) == ("before", "before", "other")
    found = record["value"](next(t for t in record["tensors"] if (t["op"], t["output"]) == ("rows", 0)))
    assert np.array_equal(found, expected[wanted])
    # 431 MiB were measured with three such tensors: the values, and copies by TensorFlow and its debugger.
    assert peak >> 10 < (256 if use_resource else 640), peak

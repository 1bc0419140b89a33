"""``PrecisionTfSession``: what it saves can be restored by TensorFlow, and nothing of the training changes."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


@pytest.fixture
def session_class(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOT_DIR", str(tmp_path))
    return importlib.import_module("precision_tool.tf_session").PrecisionTfSession


def saved(tmp_path):
    return tmp_path / "precision_data" / "tf" / "checkpoints"


def build(use_resource):
    """Dropout draws numbers, one variable is partitioned, one local; the optimizer has slots."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(3)
        x = tf1.placeholder(tf.float32, [None, 6], name="in/x")
        tf1.local_variables_initializer()
        with tf1.variable_scope("net", use_resource=use_resource, partitioner=tf1.fixed_size_partitioner(2)):
            table = tf1.get_variable("table", [6, 4], initializer=tf1.random_uniform_initializer(-1, 1))
        start = np.float32([[0.1], [0.2], [0.3], [0.4]])
        weight = tf1.get_variable("weight", initializer=start, use_resource=use_resource)
        hidden = tf1.nn.dropout(tf.matmul(x, tf.convert_to_tensor(table)), rate=0.5)
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, weight)), name="loss")
        step = tf1.train.get_or_create_global_step()
        train = tf1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        counter = tf1.get_variable(
            "seen", initializer=0, collections=["local_variables"], trainable=False, use_resource=use_resource
        )
        count = tf1.assign_add(counter, 1)
        init = [tf1.global_variables_initializer(), tf1.local_variables_initializer()]
    return graph, x, loss, train, count, init


def batch(number):
    return np.random.RandomState(number).uniform(size=(5, 6)).astype(np.float32)


def train(session, parts, steps):
    _, x, loss, step, count, init = parts
    session.run(init)
    losses = [session.run([loss, step, count], {x: batch(n)})[0].tobytes() for n in range(steps)]
    variables = session.graph.get_collection("variables") + session.graph.get_collection("local_variables")
    return losses, {v.op.name: session.run(v) for v in variables}


@pytest.mark.parametrize("use_resource", [True, False])
def test_everything_is_saved_and_nothing_changes(tmp_path, session_class, use_resource):
    parts = build(use_resource)
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf1.Session(graph=parts[0], config=config) as session:
        plain_losses, plain = train(session, parts, 4)
    parts = build(use_resource)
    before = [op.name for op in parts[0].get_operations()]
    parts[0].finalize()
    with session_class(graph=parts[0], config=config) as session:
        assert isinstance(session, tf1.Session)
        losses, variables = train(session, parts, 4)
        assert [op.name for op in parts[0].get_operations()] == before
    assert losses == plain_losses
    assert {name: value.tobytes() for name, value in variables.items()} == {
        name: value.tobytes() for name, value in plain.items()
    }
    folder = saved(tmp_path)
    assert sorted(os.listdir(str(folder))) == [
        "checkpoint", "ckpt.data-00000-of-00001", "ckpt.index", "ckpt.meta", "input",
    ]  # fmt: skip
    assert np.load(str(folder / "input" / "in_x_0.npy")).tobytes() == batch(3).tobytes()
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "ckpt")

    # TensorFlow's own saver restores it into the graph of the .meta file, the partitioned variable too.
    graph = tf.Graph()
    with graph.as_default(), tf1.Session() as session:
        tf1.train.import_meta_graph(str(folder / "ckpt.meta"))
        everything = graph.get_collection("variables") + graph.get_collection("local_variables")
        tf1.train.Saver(everything).restore(session, str(folder / "ckpt"))
        restored = {v.op.name: session.run(v).tobytes() for v in everything}
        assert len(graph.get_collection("train_op")) == 1
    assert restored == {name: value.tobytes() for name, value in variables.items()}


def test_every_kind_of_key_is_saved(tmp_path, session_class):
    graph = tf.Graph()
    with graph.as_default():
        a = tf1.placeholder(tf.float32, [2], name="a")
        text = tf1.placeholder(tf.string, [None], name="text")
        sparse = tf1.sparse_placeholder(tf.float32, name="sparse")
        long = tf1.placeholder(tf.int64, [], name="n" * 300)
        whole = tf.cast(long + tf.size(text, out_type=tf.int64), tf.float32)
        total = tf.reduce_sum(a) + tf1.sparse_reduce_sum(sparse) + whole
        with session_class() as session:
            value = tf1.SparseTensorValue([[0, 1]], np.float32([5.0]), [1, 2])
            found = session.run(total, {"a:0": [1, 2], text: ["x", "yz"], sparse: value, long: 7})
    assert found == 17.0
    folder = saved(tmp_path) / "input"
    assert np.load(str(folder / "a_0.npy")).dtype == np.float32
    assert np.load(str(folder / "text_0.npy")).tolist() == [b"x", b"yz"]
    assert np.load(str(folder / "sparse_values_0.npy")).tolist() == [5.0]
    assert len(os.listdir(str(folder))) == 6
    assert not (saved(tmp_path) / "ckpt.index").exists()  # no variables


def test_some_variables_without_a_value(tmp_path, session_class):
    with tf.Graph().as_default():
        one = tf1.get_variable("one", initializer=1.0)
        tf1.get_variable("two", initializer=2.0)
        with session_class() as session:
            session.run(one.initializer)
    assert [name for name, _ in tf.train.list_variables(str(saved(tmp_path) / "ckpt"))] == ["one"]


def test_runs_inside_a_run_pass_through(tmp_path, session_class, monkeypatch):
    """A feed that asks the session for its value is a run inside a run: only the outer one is saved."""
    with tf.Graph().as_default():
        v = tf1.get_variable("v", initializer=1.0, use_resource=True)
        inner = tf1.placeholder(tf.float32, [], name="inner")
        outer = tf1.placeholder(tf.float32, [], name="outer")
        tripled, doubled = inner * 3.0, outer * 2.0 * v
        with session_class() as session:
            session.run(v.initializer)

            class Asks:
                def __array__(self, dtype=None, copy=None):
                    return np.asarray(session.run(tripled, {inner: 2.0}), dtype)

            assert session.run(doubled, {outer: Asks()}) == 12.0
    folder = saved(tmp_path) / "input"
    assert os.listdir(str(folder)) == ["outer_0.npy"]
    assert np.load(str(folder / "outer_0.npy")) == 6.0


def test_a_disk_that_refuses_is_said_once(tmp_path, session_class, capsys):
    (tmp_path / "precision_data").mkdir()
    (tmp_path / "precision_data" / "tf").write_text("a file where a folder belongs")
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        v = tf1.get_variable("v", initializer=1.0)
        with session_class() as session:
            session.run(v.initializer)
            for _ in range(3):
                assert session.run(v * x, {x: 2.0}) == 2.0
    told = [line for line in capsys.readouterr().err.splitlines() if "could not be saved" in line]
    assert len(told) == 1
    assert "training goes on" in told[0]


def test_the_errors_are_those_of_the_session(session_class):
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [2], name="x")
        with session_class() as session:
            for feeds, kind in (({}, tf.errors.InvalidArgumentError), ({x: [1, 2, 3]}, ValueError)):
                with pytest.raises(kind):
                    session.run(x + 1.0, feeds)
            with pytest.raises(TypeError):
                session.run(x + 1.0, {object(): 1})
            assert session.run(x + 1.0, {x: [1, 2]}).tolist() == [2.0, 3.0]

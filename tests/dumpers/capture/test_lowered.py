"""Loops and branches of TensorFlow 2's kind in a graph: ``While`` and ``If`` ops whose bodies are functions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


@pytest.fixture(autouse=True)
def control_flow_v2():
    """Branches and loops as functions; the process gets its setting back."""
    enabled = tf1.control_flow_v2_enabled()
    tf1.enable_control_flow_v2()
    yield
    if not enabled:
        tf1.disable_control_flow_v2()


def recurrent_model(use_resource=True):
    """A recurrent net with a branch in its loop and one behind it, trained through both."""
    graph, calls = tf.Graph(), []
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [3, 4], name="x")
        limit = tf1.placeholder(tf.int32, [], name="limit")
        seen = tf1.py_func(lambda value: (calls.append(1), value)[1], [x], tf.float32)
        seen.set_shape([3, 4])
        start = np.random.RandomState(3).uniform(-0.5, 0.5, [4, 4]).astype("f4")
        w = tf1.get_variable("w", initializer=start, use_resource=use_resource)
        copy = tf.identity(w, name="copy")

        def body(i, state):
            product = tf.matmul(state, copy, name="product")
            even = tf.equal(tf.math.floormod(i, 2), 0)
            kept = tf1.cond(even, lambda: tf.multiply(product, 1.25, name="up"), lambda: product - 0.125, name="branch")
            return i + 1, kept

        _, last = tf1.while_loop(lambda i, _: i < limit, body, [tf.constant(0), x], name="loop")
        sure = tf1.cond(
            last[0, 0] > 1e6, lambda: tf.negative(last, name="no"), lambda: tf.abs(last, name="yes"), name="if"
        )
        loss = tf.reduce_mean(tf.square(sure - 1.0), name="loss") + 0.0 * tf.reduce_sum(seen)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf1.global_variables_initializer()
    random = np.random.RandomState(5)
    batches = [{x: random.uniform(-1, 1, [3, 4]).astype("f4"), limit: 11} for _ in range(3)]
    return SimpleNamespace(
        graph=graph, loss=loss, train=train, init=init, w=w, start=start, x=x, batches=batches, calls=calls
    )


def turns_of(manifest, end):
    """Values and notes of the one tensor whose op's name ends so, in order of time."""
    found = [t for t in manifest["tensors"] if t["op"].endswith(end) and t["output"] == 0]
    assert len({t["op"] for t in found}) == 1
    return [(manifest["value"](t) if t["file"] else None, t["note"]) for t in found]


def only(manifest, pattern):
    """The one op of the record whose name has these parts in this order; TensorFlow adds numbers to some of them."""
    first, last = pattern.split("*")
    ops = {t["op"] for t in manifest["tensors"] if t["op_type"] != "Const"}
    names = {op for op in ops if op.startswith(first) and op[len(first) :].startswith(last)}
    assert len(names) == 1, names
    return names.pop()


@pytest.mark.parametrize("use_resource", [True, False])
def test_bodies_are_recorded_turn_by_turn(tmp_path, config, manifests, use_resource):
    model = recurrent_model(use_resource)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        session.run([model.loss, model.train], model.batches[0])
    (record,) = manifests(tmp_path)
    assert record["complete"]
    state = model.batches[0][model.x]
    products, ups = [], []
    for turn in range(11):
        products.append(state @ model.start)
        ups.append(products[-1] * np.float32(1.25))
        state = ups[-1] if turn % 2 == 0 else products[-1] - np.float32(0.125)
    kept = [*range(7), 10]
    found = turns_of(record, only(record, "loop/body/*product"))
    assert [note for _, note in found] == [f"turn {turn}; kept 8 of 11" for turn in kept]
    for (value, _), turn in zip(found, kept):  # noqa: B905
        np.testing.assert_allclose(value, products[turn], rtol=1e-4, atol=0)
    branch = turns_of(record, only(record, "loop/body/*branch/then/up"))
    assert [note for _, note in branch] == [f"turn {turn}; kept 6 of 6" for turn in range(6)]
    for (value, _), turn in zip(branch, range(0, 11, 2)):  # noqa: B905
        np.testing.assert_allclose(value, ups[turn], rtol=1e-4, atol=0)
    ((taken, note),) = turns_of(record, only(record, "if/else/*yes"))
    np.testing.assert_allclose(taken, np.abs(state), rtol=1e-4, atol=0)
    assert note == ""
    assert turns_of(record, only(record, "if/then/*no")) == [(None, "no value: did not run or was not initialised")]
    order = [t["op"] for t in record["tensors"]]
    times = [t["timestamp_us"] for t in record["tensors"]]
    assert times == sorted(times)
    assert order.index("x") < order.index(only(record, "loop/body/*product")) < order.index("loop")
    assert order.index("loop") < order.index(only(record, "if/else/*yes")) < order.index("loss")
    assert any(name.startswith("gradients/loop_grad") and "/body/" in name for name in order)


def test_looking_for_the_bodies_runs_nothing(tmp_path, config):
    model = recurrent_model()
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0-1")) as session:
        session.run(model.init)
        for batch in model.batches:
            session.run([model.loss, model.train], batch)
    assert len(model.calls) == len(model.batches)


@pytest.mark.parametrize("use_resource", [True, False])
def test_losses_and_weights_are_those_of_the_plain_session(tmp_path, config, use_resource):
    model = recurrent_model(use_resource)

    def results(session):
        with session:
            session.run(model.init)
            losses = [session.run([model.loss, model.train], batch)[0].tobytes() for batch in model.batches]
            return losses, session.run(model.w).tobytes()

    plain = results(tf1.Session(graph=model.graph, config=config()))
    assert results(record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps(""))) == plain


def test_an_error_in_a_body_and_a_wrong_feed_are_those_of_the_plain_session(tmp_path, config, manifests):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")

        def body(value):
            return tf1.check_numerics(tf1.log(value, name="log"), "log in a loop", name="checked")

        out = tf1.while_loop(lambda value: value < 1e9, body, [x], name="loop")

    def errors(session):
        caught = []
        with session:
            for value in (10.0, "text"):
                with pytest.raises(Exception) as error:
                    session.run(out, {x: value})
                caught.append((type(error.value), str(error.value).split("[[")[0]))
        return caught

    plain = errors(tf1.Session(graph=graph, config=config()))
    assert errors(record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps(""))) == plain
    record = manifests(tmp_path)[0]
    assert not record["complete"]
    values = [value for value, _ in turns_of(record, only(record, "loop/body/*log"))]
    assert np.isnan(values[-1])
    np.testing.assert_allclose(values[0], np.log(10.0), rtol=1e-6, atol=0)


def test_bodies_that_run_as_a_whole_are_listed(tmp_path, config, manifests, monkeypatch):
    from dumpers.capture import recorder

    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        out = tf1.while_loop(lambda v: v < 5.0, lambda v: tf.add(v, 1.0, name="inc"), [x], name="loop")
    monkeypatch.setattr(recorder, "watch_room", lambda count, size: False)
    monkeypatch.setattr(recorder.Recorder, "_local", lambda self: False)
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("0")) as session:
        assert session.run(out, {x: 3.0}) == 5.0
    (record,) = manifests(tmp_path)
    ((value, note),) = turns_of(record, only(record, "loop/body/*inc"))
    assert value is None
    assert note == "in a function that TensorFlow runs as a whole: not recorded"

"""The quick way to fetch: the caller gets what ``Session.run`` gives, of the same types, with the same errors."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from dumpers.capture import fast_fetch
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1
# TensorFlow 1 counts steps in a reference variable, whose values only its debugger can copy; that goes through run.
QUICK = not tf.__version__.startswith("1.")
Pair = collections.namedtuple("Pair", "loss rest")


@pytest.fixture
def calls(monkeypatch):
    """Counts the quick fetches, so that no test passes by the slow way."""
    found = []
    plain = fast_fetch.FastFetch.run

    def run(self, fetches, feeds):
        found.append(fetches)
        return plain(self, fetches, feeds)

    monkeypatch.setattr(fast_fetch.FastFetch, "run", run)
    return found


def same(one, two):
    if isinstance(one, (list, tuple)):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return type(one) is type(two) and list(one) == list(two) and all(same(one[k], two[k]) for k in one)
    if isinstance(one, np.ndarray):
        alike = type(two) is np.ndarray and one.dtype == two.dtype and one.flags.writeable == two.flags.writeable
        return alike and one.tobytes() == two.tobytes()
    return type(one) is type(two) and one == two


def test_results_have_the_structure_and_types_of_a_plain_run(tmp_path, click_model, config, calls):
    model = click_model(True)
    graph = model.graph
    logits = graph.get_tensor_by_name("net/logits:0")
    fetches = [
        model.train,
        [model.loss, model.train],
        {"loss": model.loss, "all": (logits, model.train)},
        Pair(model.loss, [logits, logits, "net/hidden:0"]),
        (),
    ]
    wanted = []
    with tf1.Session(graph=graph, config=config()) as session:
        session.run(model.init)
        for asked, batch in zip(fetches, model.batches):  # noqa: B905
            wanted.append(session.run([asked, model.train], batch))
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        for asked, batch, expected in zip(fetches, model.batches, wanted):  # noqa: B905
            assert same(session.run([asked, model.train], batch), expected)
    assert len(calls) == QUICK * len(fetches)


def test_what_does_not_fit_goes_through_run(tmp_path, click_model, config, calls, manifests):
    model = click_model(True)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        ids = session.run([model.ids, model.train], model.batches[0])[0]  # a fed tensor is fetched
        assert np.array_equal(ids, model.batches[0][model.ids])
        metadata = tf1.RunMetadata()
        session.run(model.train, model.batches[1], tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE), metadata)
        assert metadata.step_stats.dev_stats
        assert not calls
        with pytest.raises(ValueError, match="Cannot feed value of shape"):
            session.run(model.train, {model.ids: np.zeros((2, 2), np.int64), model.label: np.zeros(2)})
    assert len(manifests(tmp_path)) == 2


def test_errors_are_those_of_a_plain_run(tmp_path, config, calls):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None], name="x")
        v = tf1.get_variable("v", initializer=np.float32([1, 2]), use_resource=True)
        loss = tf.reduce_sum(tf1.check_numerics(tf1.log(x), "bad logarithm", name="check") * v)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf1.global_variables_initializer()
    seen = []
    for wrap in (lambda s: s, lambda s: record_session(s, tmp_path, parse_steps(""))):
        with wrap(tf1.Session(graph=graph, config=config())) as session:
            session.run(init)
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                session.run([loss, train], {x: [-1.0, 1.0]})
            seen.append((str(caught.value.message).splitlines()[0], caught.value.op.name))
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run([loss, train], {x: [1.0, 1.0, 1.0]})
    assert seen[0] == seen[1]
    assert len(calls) == 2


def test_the_callers_arrays_and_the_record_do_not_share_memory(tmp_path, click_model, config, calls, manifests, values):
    model = click_model(True)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        logits, _ = session.run(["net/logits:0", model.train], model.batches[0])
        kept = logits.copy()
        if logits.flags.writeable:
            logits[:] = -1
    assert len(calls) == QUICK
    assert values(manifests(tmp_path)[0])["net/logits:0"].tobytes() == kept.tobytes()


def test_a_graph_that_grows_between_steps(tmp_path, click_model, config, calls, manifests, values):
    model = click_model(True)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
        with model.graph.as_default():
            twice = tf.multiply(model.loss, 2.0, name="twice")
        loss, double, _ = session.run([model.loss, twice, model.train], model.batches[1])
    assert double == 2 * loss
    assert len(calls) == QUICK * 2
    first, second = manifests(tmp_path)
    assert "twice:0" not in values(first)
    assert values(second)["twice:0"] == double
    graphs = [tf1.GraphDef.FromString((m["path"] / m["graph"]).read_bytes()) for m in (first, second)]
    assert ["twice" in {node.name for node in graph.node} for graph in graphs] == [False, True]

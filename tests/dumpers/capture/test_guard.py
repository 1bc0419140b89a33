"""The guard's ladder holds the hashes of what a session computes, and writing it changes nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os

import numpy as np
import pytest

from dumpers.capture import guard
from dumpers.capture.guard import fingerprint, leaves, variables_due
from dumpers.capture.guard_session import named_results
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

from dumpers.capture.estimator import DumpHook  # noqa: E402 - needs TensorFlow


@pytest.fixture
def ladder(tmp_path, monkeypatch):
    """Switches the guard on and returns what reads the lines of a ladder."""
    monkeypatch.setenv("TF_DUMP_GUARD_RUN", "0" * 16)

    def choose(name, plain):
        monkeypatch.setenv("TF_DUMP_GUARD", str(tmp_path / name))
        monkeypatch.setenv("TF_DUMP_GUARD_PLAIN", "True" if plain else "")

        def read(file="ladder_0.jsonl"):
            return [json.loads(line) for line in (tmp_path / name / file).read_text().splitlines()]

        return read

    return choose


def mark(value):
    """Written down once more, from the bytes."""
    return hashlib.blake2b(np.asarray(value).tobytes(), digest_size=16).hexdigest()


def bare_run(model, config, steps):
    """Losses, and all variables before the first step and after each, without any hook."""
    with model.graph.as_default():
        variables = tf1.global_variables()
        names = [variable.name.split(":")[0] for variable in variables]
        reads = [model.graph.as_graph_element(variable) for variable in variables]
    with tf1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        losses, states = [], [dict(zip(names, session.run(reads)))]  # noqa: B905 - Python 3.7
        for number in range(steps):
            losses.append(session.run([model.train, model.loss], model.batches[number % 6])[1])
            states.append(dict(zip(names, session.run(reads))))  # noqa: B905 - Python 3.7
    return losses, states


def hooked_run(model, config, folder, steps, wanted):
    with record_session(tf1.Session(graph=model.graph, config=config()), folder, parse_steps(wanted)) as session:
        session.run(model.init)
        return [session.run([model.train, model.loss], model.batches[n % 6])[1] for n in range(steps)]


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_the_rungs_are_the_hashes_of_a_bare_run(tmp_path, ladder, click_model, config, manifests, use_resource, plain):
    model = click_model(use_resource)
    losses, states = bare_run(model, config, 21)
    version, ops = model.graph.version, len(model.graph.get_operations())
    read = ladder("ladder", plain)
    found = hooked_run(model, config, tmp_path / "rec", 21, "1-2")
    assert [loss.tobytes() for loss in found] == [loss.tobytes() for loss in losses]
    assert (model.graph.version, len(model.graph.get_operations())) == (version, ops)
    assert [record["step"] for record in manifests(tmp_path / "rec")] == ([] if plain else [1, 2])
    header, start, *rungs = read()
    assert header["at"] == "header"
    assert header["rewriting"]["on"] is False
    assert {name: line[3] for name, line in start["variables"].items()} == {n: mark(v) for n, v in states[0].items()}
    assert [rung["at"] for rung in rungs] == [*range(21)]
    assert [rung["recorded"] for rung in rungs] == [not plain and step in (1, 2) for step in range(21)]
    for rung in rungs:
        step = rung["at"]
        assert rung["fetched"]["loss:0"] == ["float32", [], 4, mark(losses[step])]
        assert rung["fed"]["ids:0"] == ["int64", [16], 128, mark(model.batches[step % 6][model.ids])]
        assert ("variables" in rung) == (step < 16 or step % 2 == 0)
        if "variables" in rung:
            expected = {name: mark(value) for name, value in states[step + 1].items()}
            assert {name: line[3] for name, line in rung["variables"].items()} == expected
        assert "added" not in rung
    assert ["graph" in rung for rung in rungs] == [True] + [False] * 20


def test_the_last_variables_are_read_when_the_session_is_closed(tmp_path, ladder, click_model, config):
    model = click_model(False)
    _, states = bare_run(model, config, 18)
    read = ladder("ladder", False)
    hooked_run(model, config, tmp_path / "rec", 18, "0")
    last = read()[-1]
    assert (last["at"], last["step"]) == ("settled", 17)
    assert {name: line[3] for name, line in last["variables"].items()} == {n: mark(v) for n, v in states[18].items()}


def test_a_hook_of_a_monitored_session_has_the_same_ladder(tmp_path, ladder, click_model, config):
    model = click_model(True)
    read = ladder("session", False)
    hooked_run(model, config, tmp_path / "rec", 4, "1-2")
    ladders = [read()]
    for name, plain in (("hook", False), ("plain", True)):
        read = ladder(name, plain)
        with model.graph.as_default():
            hook = DumpHook(tmp_path / name / "rec", parse_steps("1-2"))
            with tf1.train.MonitoredTrainingSession(config=config(), hooks=[hook]) as session:
                shown = [session.run([model.train, model.loss], model.batches[n])[1] for n in range(4)]
        ladders.append(read())
        assert [rung["fetched"]["loss:0"][3] for rung in read()[2:]] == [mark(loss) for loss in shown]
    for lines in ladders:
        for line in lines:
            for changed in ("recorded", "graph", "records", "kind"):  # the monitored session made savers and such
                line.pop(changed, None)
    assert ladders[0][2:] == ladders[1][2:] == ladders[2][2:]


def test_an_estimator_writes_a_ladder_a_session(tmp_path, ladder, config):
    try:
        estimators = tf1.estimator
    except AttributeError:
        pytest.skip("tf.estimator: gone since TensorFlow 2.16")

    def model_fn(features, labels, mode):
        weight = tf1.get_variable("weight", [3, 1], initializer=tf1.ones_initializer())
        loss = tf1.losses.mean_squared_error(labels, tf.matmul(features, weight))
        train = tf1.train.AdamOptimizer(0.1).minimize(loss, tf1.train.get_global_step())
        return estimators.EstimatorSpec(mode, loss=loss, train_op=train)

    def data():
        random = np.random.RandomState(3)
        values = random.rand(8, 3).astype(np.float32), random.rand(8, 1).astype(np.float32)
        return tf1.data.Dataset.from_tensors(values).repeat(5)

    found = []
    for name, plain in (("recorded", False), ("plain", True)):
        read = ladder(name, plain)
        run = estimators.RunConfig(str(tmp_path / name / "model"), 1, session_config=config())
        estimator = estimators.Estimator(model_fn, config=run)
        hook = DumpHook(tmp_path / name / "rec", parse_steps(""))
        estimator.train(data, hooks=[hook], steps=3)
        estimator.evaluate(data, hooks=[hook], steps=2)
        lines = read()[1:], read("ladder_1.jsonl")[1:]
        assert [line["at"] for line in lines[0]] == ["start", 0, 1, 2]
        assert [line["at"] for line in lines[1]] == ["start", 0, 1]
        assert len(lines[0][1]["fetched"]) == 1
        assert {"weight", "weight/Adam", "weight/Adam_1", "global_step"} <= set(lines[0][0]["variables"])
        found.append([line for part in lines for line in part])
    # TensorFlow numbers the functions of input pipelines through the process, so the second graph has other names.
    differing = [[key for key in left if left[key] != right[key] and key != "graph"] for left, right in zip(*found)]  # noqa: B905
    assert [keys for keys in differing if keys] == [["recorded"]] * 5


def test_an_uninitialised_variable_and_one_that_cannot_be_read_alone(tmp_path, ladder, config):
    class Odd:
        """A variable whose read would count something up."""

        name = "odd:0"

        def _as_graph_element(self):
            return counting

    with tf.Graph().as_default() as graph:
        weight = tf1.get_variable("weight", initializer=1.0, use_resource=True)
        later = tf1.get_variable("later", initializer=[2.0, 3.0], use_resource=False)
        counter = tf1.get_variable("counter", initializer=0, trainable=False, use_resource=True)
        counting = tf1.assign_add(counter, 1)
        graph.add_to_collection("variables", Odd())
        train = tf1.train.GradientDescentOptimizer(0.5).minimize(weight * weight)
    read = ladder("ladder", True)
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run([weight.initializer, counter.initializer])
        session.run(train)
        session.run(later.initializer)
        session.run(train)
        assert session.run(graph.as_graph_element(counter)) == 0
    header, start, first, second = read()
    assert header["unread"] == ["odd"]
    assert start["variables"]["later"] is first["variables"]["later"] is None
    assert second["variables"]["later"] == ["float32", [2], 8, mark(np.array([2, 3], np.float32))]
    assert second["variables"]["weight"] == ["float32", [], 4, mark(np.float32(0))]


def test_an_op_that_comes_in_with_a_step_is_counted(tmp_path, ladder, config):
    with tf.Graph().as_default() as graph:
        weight = tf1.get_variable("weight", initializer=1.0, use_resource=True)
        train = tf1.train.GradientDescentOptimizer(0.5).minimize(weight * weight)
        init = tf1.global_variables_initializer()
    read = ladder("ladder", True)
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(init)
        session.run(train)
        recorder = session._precision_tool_recorder
        plain = recorder._plan

        def meddling(request, can_watch):
            with graph.as_default():
                tf.constant(1.0)
            return plain(request, can_watch=can_watch)

        recorder._plan = meddling
        session.run(train)
    rungs = read()[2:]
    assert ["added" in rung for rung in rungs] == [False, True]
    assert rungs[1]["graph"] != rungs[0]["graph"]


@pytest.mark.parametrize("what", ["folder", "write", "session"])
def test_a_ladder_that_cannot_be_written_is_said_once_and_training_goes_on(
    tmp_path, ladder, click_model, config, monkeypatch, capsys, what
):
    model = click_model(True)
    losses, _ = bare_run(model, config, 5)
    ladder("ladder", False)
    if what == "folder":
        (tmp_path / "ladder").write_text("a file")
    elif what == "write":
        monkeypatch.setattr(guard, "_claim", lambda folder: os.open("/dev/full", os.O_WRONLY))
    else:
        monkeypatch.setattr(tf1.Session, "list_devices", lambda self: 1 / 0)
    found = hooked_run(model, config, tmp_path / "rec", 5, "1")
    assert [loss.tobytes() for loss in found] == [loss.tobytes() for loss in losses]
    said = [line for line in capsys.readouterr().err.splitlines() if "ladder" in line]
    assert len(said) == 1
    assert "training goes on" in said[0]
    if what == "write":
        assert os.strerror(errno.ENOSPC) in said[0]


def test_ranks_have_files_of_their_own(tmp_path, ladder, click_model, config, monkeypatch):
    for rank in "02":
        monkeypatch.setenv("RANK_ID", rank)
        monkeypatch.setenv("RANK_SIZE", "4")
        read = ladder("ladder", True)
        hooked_run(click_model(True), config, tmp_path / "rec", 2, "0")
        assert [line["at"] for line in read(f"rank_{rank}_0.jsonl")] == ["header", "start", 0, 1]


def test_without_the_setting_nothing_is_written(tmp_path, click_model, config, monkeypatch):
    monkeypatch.delenv("TF_DUMP_GUARD", raising=False)
    hooked_run(click_model(True), config, tmp_path / "rec", 2, "0")
    assert [path.name for path in tmp_path.iterdir()] == ["rec"]


def test_unseeded_ops_and_shuffles_are_in_the_header(tmp_path, ladder, config):
    with tf.Graph().as_default() as graph:
        data = tf1.data.Dataset.range(8).shuffle(8).repeat()
        sample = tf1.data.make_one_shot_iterator(data).get_next()
        weight = tf1.get_variable("weight", initializer=tf1.random_uniform([2], name="draw"), use_resource=True)
        tf1.random_uniform([2], seed=3)
        loss = tf.reduce_sum(weight * tf.cast(sample, tf.float32))
        train = tf1.train.GradientDescentOptimizer(0.5).minimize(loss)
        init = tf1.global_variables_initializer()
    read = ladder("ladder", True)
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(init)
        session.run(train)
    header = read()[0]
    assert header["unseeded"] == ["draw/RandomUniform"]
    assert header["unseeded_ops"] == 1
    assert header["seed"] is None


def test_results_get_the_names_of_their_tensors(config):
    with tf.Graph().as_default() as graph:
        a, b = tf.constant(1.0, name="a"), tf.constant([2.0, 3.0], name="b")
        sparse = tf1.SparseTensor([[0, 1]], [5.0], [2, 2])
        nothing = tf.no_op(name="nothing")
    fetches = {"one": a, "two": [b, nothing, a], "three": sparse}
    with tf1.Session(graph=graph, config=config()) as session:
        result = session.run(fetches)
    found = [(name, np.asarray(value).tolist()) for name, value in named_results(graph, fetches, result)]
    assert [name for name, _ in found[:3]] == ["a:0", "b:0", "a:0"]
    assert [value for _, value in found] == [1.0, [2.0, 3.0], 1.0, [[0, 1]], [5.0], [2, 2]]
    assert [name for name, _ in found[3:]] == [
        part.name for part in (sparse.indices, sparse.values, sparse.dense_shape)
    ]


def test_variables_are_read_at_eight_steps_while_their_number_doubles():
    due = [step for step in range(4096) if variables_due(step)]
    assert due[:16] == list(range(16))
    for low in (16, 32, 512, 2048):
        found = [step for step in due if low <= step < 2 * low]
        assert found == list(range(low, 2 * low, low // 8))


def test_fingerprints_tell_values_apart_that_look_alike():
    several = [
        np.float32(0.0), np.float32(-0.0), np.zeros(1, np.float32), np.zeros((1, 1), np.float32), np.int32(0),
        np.array([b"a\0", b"b"], object), np.array([b"a", b"\0b"], object), b"a", b"a\0", np.array([], np.float32),
        True, 0, 0.0, tf.bfloat16.as_numpy_dtype(0), np.float16(0),
    ]  # fmt: skip
    marks = [json.dumps(fingerprint(value)) for value in several]
    assert len(set(marks)) == len(marks)
    wide = np.arange(12, dtype=np.float64).reshape(3, 4)
    assert fingerprint(wide.T) == fingerprint(np.array(wide.T, order="C")) != fingerprint(wide)
    assert fingerprint(object()) is fingerprint(np.array([object()], object)) is None


def test_leaves_have_their_places():
    nested = {"loss": 1, "more": (2, [None, {"x": 3}])}
    assert list(leaves(nested, "r")) == [("r['loss']", 1), ("r['more'][0]", 2), ("r['more'][1][1]['x']", 3)]

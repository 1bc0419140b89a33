"""Loops and branches of old graphs: what is kept of the turns, and that nothing changes for the training."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dumpers.capture import watch
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from dumpers.capture.turns import TurnKeeper

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


@pytest.fixture(autouse=True)
def control_flow_v1():
    """Branches and loops as old graphs have them; the process gets its setting back."""
    enabled = tf1.control_flow_v2_enabled()
    tf1.disable_control_flow_v2()
    yield
    if enabled:
        tf1.enable_control_flow_v2()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A temporary directory for the debugger's files alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    memory = Path(watch._MEMORY)
    if "TMPDIR" not in os.environ and memory.is_dir():
        folder = Path(tempfile.mkdtemp(dir=str(memory)))
        monkeypatch.setattr(watch, "_MEMORY", str(folder))
    yield folder
    shutil.rmtree(str(folder))


def recurrent_model(use_resource, turns):
    """A recurrent net with a branch in its loop, trained through the loop; ``turns`` is what is fed."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [3, 4], name="x")
        limit = tf1.placeholder(tf.int32, [], name="limit")
        start = np.random.RandomState(3).uniform(-0.5, 0.5, [4, 4]).astype("f4")
        w = tf1.get_variable("w", initializer=start, use_resource=use_resource)

        def body(i, state):
            state = tf.tanh(tf.matmul(state, w, name="product"), name="state")
            even = tf.equal(tf.math.floormod(i, 2), 0)
            kept = tf1.cond(even, lambda: tf.multiply(state, 1.25, name="up"), lambda: state - 0.125, name="branch")
            return i + 1, kept

        _, last = tf1.while_loop(lambda i, _: i < limit, body, [tf.constant(0), x], name="loop")
        loss = tf.reduce_mean(tf.square(last - 1.0), name="loss")
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf1.global_variables_initializer()
    random = np.random.RandomState(5)
    batches = [{x: random.uniform(-1, 1, [3, 4]).astype("f4"), limit: turns} for _ in range(4)]
    return SimpleNamespace(graph=graph, loss=loss, train=train, init=init, w=w, batches=batches)


def turns_of(manifest, name):
    """Values of one tensor in order of time, with their notes."""
    op, slot = name.rsplit(":", 1)
    found = [t for t in manifest["tensors"] if (t["op"], t["output"]) == (op, int(slot))]
    assert [t["timestamp_us"] for t in found] == sorted({t["timestamp_us"] for t in found})
    return [(manifest["value"](t) if t["file"] else None, t["note"]) for t in found]


def stock_turns(session, fetches, feeds, root):
    """What TensorFlow's own dumping session records: all values of each tensor, in order of time."""
    from tensorflow.python.debug.lib.debug_data import DebugDumpDir
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    root.mkdir()
    result = DumpingDebugWrapperSession(session, session_root=str(root)).run(fetches, feeds)
    (run,) = root.iterdir()
    found = {}
    for datum in DebugDumpDir(str(run)).dumped_tensor_data:
        if "__cf__" not in datum.node_name:  # a constant that TensorFlow folded; in ours as what it was folded from
            found.setdefault(f"{datum.node_name}:{datum.output_slot}", []).append(datum)
    values = {
        name: [d.get_tensor() for d in sorted(data, key=lambda d: (d.timestamp, d.file_path))]
        for name, data in found.items()
        if not name.startswith("_")
    }
    return result, {name: [v for v in some if isinstance(v, np.ndarray)] for name, some in values.items()}


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("turns", [1, 21])
def test_kept_turns_are_those_of_the_stock_wrapper(tmp_path, config, manifests, use_resource, turns):
    model = recurrent_model(use_resource, turns)

    def exact():
        """TensorFlow 1.15 and 2.6 else merge equal ops (entries of a loop, constants), either one, as it comes."""
        settings = config()
        settings.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
        return settings

    with tf1.Session(graph=model.graph, config=exact()) as session:
        session.run(model.init)
        wanted = [model.loss, model.train]
        theirs_loss, theirs = stock_turns(session, wanted, model.batches[0], tmp_path / "stock")
    with record_session(tf1.Session(graph=model.graph, config=exact()), tmp_path / "ours", parse_steps("0")) as session:
        session.run(model.init)
        ours_loss = session.run(wanted, model.batches[0])
    (record,) = manifests(tmp_path / "ours")

    assert ours_loss[0].tobytes() == theirs_loss[0].tobytes()
    assert record["complete"]
    assert max(len(values) for values in theirs.values()) == turns + 1
    for name, values in theirs.items():
        ours = turns_of(record, name)
        count = len(values)
        chosen = [*range(count)] if count <= 8 else [*range(7), count - 1]
        if not values:
            continue
        assert [array.tobytes() for array, _ in ours] == [values[turn].tobytes() for turn in chosen], name
        if count > 1:
            notes = [f"turn {turn}; kept {len(chosen)} of {count}" for turn in chosen]
            assert [note for _, note in ours] == notes
    assert len(turns_of(record, "loop/product:0")) == min(turns, 8)
    assert len(turns_of(record, "loop/branch/up:0")) == min((turns + 1) // 2, 8)


@pytest.mark.parametrize("use_resource", [True, False])
def test_losses_and_weights_are_those_of_the_plain_session(tmp_path, config, use_resource):
    model = recurrent_model(use_resource, 9)

    def results(session):
        with session:
            session.run(model.init)
            losses = [session.run([model.loss, model.train], batch)[0].tobytes() for batch in model.batches]
            return losses, session.run(model.w).tobytes()

    plain = results(tf1.Session(graph=model.graph, config=config()))
    assert results(record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps(""))) == plain
    assert len(list(tmp_path.glob("run_*"))) == len(model.batches)


def test_a_long_loop_is_capped_while_it_runs(tmp_path, config, manifests, temporary, monkeypatch):
    """FC05 (b)."""
    graph = tf.Graph()
    with graph.as_default():
        start = tf1.placeholder(tf.float32, [10], name="start")
        _, last = tf1.while_loop(
            lambda i, _: i < 4800, lambda i, s: (i + 1, tf.multiply(s, 0.999, name="shrunk")), [0, start], name="loop"
        )
        out = tf.identity(last, name="out")
    left, real = [], TurnKeeper.stop

    def stop(keeper):
        """The loop is over; nothing was deleted at its end yet."""
        left.append(sum(1 for path in temporary.rglob("*DebugIdentity*")))
        real(keeper)

    monkeypatch.setattr(TurnKeeper, "stop", stop)
    value = np.arange(10, dtype="f4")
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path / "ours", parse_steps("0")) as session:
        result = session.run(out, {start: value})
    expected = [value]
    for _ in range(4800):
        expected.append(expected[-1] * np.float32(0.999))
    (record,) = manifests(tmp_path / "ours")
    kept = turns_of(record, "loop/shrunk:0")
    assert [note for _, note in kept] == [f"turn {t}; kept 8 of 4800" for t in [*range(7), 4799]]
    assert [array.tobytes() for array, _ in kept] == [expected[t + 1].tobytes() for t in [*range(7), 4799]]
    assert result.tobytes() == expected[-1].tobytes()
    assert turns_of(record, "loop/Merge:0")[-1] == (4800, "turn 4800; kept 8 of 4801")
    assert sum(t["file"] is not None for t in record["tensors"]) < 200
    assert 0 < left[0] < 81600  # are written in all; how many are left depends on how busy the machine is
    assert [p.name for p in temporary.rglob("*") if p.is_file()] == ["_tfdbg_owner"]


def test_turns_stand_between_what_enters_and_what_leaves(tmp_path, config, manifests):
    model = recurrent_model(True, 3)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        session.run([model.loss, model.train], model.batches[0])
    (record,) = manifests(tmp_path)
    order = [(t["op"], t["timestamp_us"]) for t in record["tensors"]]
    assert [time for _, time in order] == sorted(time for _, time in order)
    names = [op for op, _ in order if op in ("x", "loop/product", "loop/state", "loop/Exit_1", "loss")]
    assert names == ["x", *["loop/product", "loop/state"] * 3, "loop/Exit_1", "loss"]


def test_the_setting_chooses_how_many_turns(tmp_path, config, manifests, monkeypatch):
    monkeypatch.setenv("TF_DUMP_LOOP_TURNS", "3")
    graph = tf.Graph()
    with graph.as_default():
        last = tf1.while_loop(lambda i: i < 6, lambda i: tf.add(i, 1, name="inc"), [tf.constant(0)], name="loop")
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("0")) as session:
        assert session.run(last) == 6
    (record,) = manifests(tmp_path)
    assert turns_of(record, "loop/inc:0") == [(t + 1, f"turn {t}; kept 3 of 6") for t in (0, 1, 5)]


def test_a_loop_in_a_loop_counts_through(tmp_path, config, manifests):
    graph = tf.Graph()
    with graph.as_default():

        def inner(i, total):
            counted = tf1.while_loop(lambda j: j < i, lambda j: tf.add(j, 1, name="inc"), [tf.constant(0)], name="in")
            return i + 1, tf.add(total, counted, name="sum")

        _, total = tf1.while_loop(lambda i, _: i < 4, inner, [tf.constant(0), tf.constant(0)], name="out")
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("0")) as session:
        assert session.run(total) == 6
    (record,) = manifests(tmp_path)
    assert [int(value) for value, _ in turns_of(record, "out/sum:0")] == [0, 1, 3, 6]
    assert [int(value) for value, _ in turns_of(record, "out/in/inc:0")] == [1, 1, 2, 1, 2, 3]


def test_an_error_in_a_loop_reaches_the_caller(tmp_path, config, manifests):
    """FC03 in a loop: the turns up to it are in the record."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")

        def body(value):
            return tf1.check_numerics(tf1.log(value, name="log"), "log in a loop", name="checked")

        out = tf1.while_loop(lambda value: value < 1e9, body, [x], name="loop")

    def error(session):
        with session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(out, {x: 10.0})
        return caught.value.message.splitlines()[0], caught.value.op.name

    plain = error(tf1.Session(graph=graph, config=config()))
    assert error(record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("0"))) == plain
    (record,) = manifests(tmp_path)
    assert not record["complete"]
    with np.errstate(invalid="ignore"):
        expected = [np.float32(10.0)]
        while not np.isnan(expected[-1]):
            expected.append(np.log(expected[-1]))
    found = np.array([value for value, _ in turns_of(record, "loop/log:0")])
    np.testing.assert_allclose(found, np.array(expected[1:]), rtol=1e-5, atol=0)


def test_without_a_debugger_loops_and_branches_are_listed(tmp_path, config, manifests, monkeypatch, capsys):
    from dumpers.capture import recorder

    monkeypatch.setattr(recorder, "watch_room", lambda count, size: False)
    model = recurrent_model(True, 3)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
    (record,) = manifests(tmp_path)
    ((value, note),) = turns_of(record, "loop/product:0")
    assert value is None
    assert note == "inside a loop, and TensorFlow's debugger cannot be used: not recorded"
    assert capsys.readouterr().err.count("TMPDIR") == 1


def test_a_full_temporary_directory_gives_the_turns_up_not_the_run(tmp_path, config, manifests, monkeypatch):
    from dumpers.capture import turns

    monkeypatch.setattr(turns, "_free_bytes", lambda folder: 1000)  # as of a small file system
    model = recurrent_model(True, 30)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
    (record,) = manifests(tmp_path)
    ((value, note),) = turns_of(record, "loop/product:0")
    assert value is None
    assert note == "kept 0 of 30: " + turns.FULL


@pytest.mark.parametrize("where", ["loop", "branch"])
def test_long_names_in_loops_and_branches(tmp_path, config, manifests, where):
    """Three hundred characters: recorded in parts that a file name takes, listed with the reason as one part."""
    parts, single = "/".join(f"part{i:02d}" * 6 for i in range(9)), "n" * 300

    def ops(value):
        return tf.add(tf.multiply(value, 2.0, name=parts), 1.0, name=single)

    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        if where == "loop":
            out = tf1.while_loop(lambda v: v < 100.0, ops, [x], name="f")
        else:
            out = tf1.cond(x < 100.0, lambda: ops(x), lambda: x, name="f")
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("0")) as session:
        assert session.run(out, {x: 60.0}) == 121.0
    (record,) = manifests(tmp_path)
    assert len("f/" + parts) > 300
    assert turns_of(record, f"f/{parts}:0") == [(120.0, "")]
    ((value, note),) = turns_of(record, f"f/{single}:0")
    assert value is None
    assert "its name is too long for the debugger: not recorded" in note


def test_a_dead_tensor_is_said_to_be_one(tmp_path, config, manifests):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        out = tf1.cond(
            x > 0,
            lambda: tf1.cond(x > 5, lambda: x * 2, lambda: tf.multiply(x, 3.0, name="deep"), name="inner"),
            lambda: tf1.while_loop(lambda v: v < 3, lambda v: tf.add(v, 1.0, name="inc"), [x], name="loop"),
            name="branch",
        )
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")) as session:
        assert [session.run(out, {x: value}) for value in (1.0, -0.5)] == [3.0, 3.5]
    first, second = manifests(tmp_path)
    names = "branch/inner/deep:0", "branch/loop/inc:0"
    assert turns_of(first, names[0]) == [(3.0, "")]
    assert turns_of(second, names[0]) == [(None, "no value: did not run or was not initialised")]
    assert turns_of(first, names[1]) == [(None, "no value: did not run or was not initialised")]
    assert [float(value) for value, _ in turns_of(second, names[1])] == [0.5, 1.5, 2.5, 3.5]


def test_exactly_the_chosen_steps(tmp_path, config, manifests):
    """FC05 (c)."""
    graph = tf.Graph()
    with graph.as_default():
        v = tf1.get_variable("v", initializer=0.0, use_resource=True)
        step = v.assign_add(1.0)
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("1,5,100-102")) as session:
        session.run(v.initializer)
        for _ in range(120):
            session.run(step)
    assert [record["step"] for record in manifests(tmp_path)] == [1, 5, 100, 101, 102]


def test_records_of_loops_are_read_as_distinct_tensors(tmp_path, config):
    formats = pytest.importorskip("dumpers.formats.tf_record", reason="the workbench wants a newer Python")
    model = recurrent_model(True, 20)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
    (run,) = tmp_path.glob("run_*")
    dump = formats.read_tf_record(Path(run))
    turns = [record for record in dump if record.op == "loop/product"]
    assert len({record.timestamp_us for record in turns}) == len(turns) == 8
    assert [record.note for record in turns][-1] == "turn 19; kept 8 of 20"
    assert len({record.load().tobytes() for record in turns}) == 8

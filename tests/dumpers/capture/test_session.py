"""Proof that the record holds what consumers saw, and that a recorded session behaves as the plain one."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

from dumpers.capture.session import flush, record_session
from dumpers.capture.steps import parse_steps
from dumpers.errors import UsageError

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


def stock_values(root):
    """What TensorFlow's own wrapper recorded in its newest run.

    Fed placeholders and constants that TensorFlow folded (``op/_1__cf__1``) come under the names in the graph.
    """
    newest = max(root.glob("run_*"), key=lambda p: [int(n) for n in p.name.split("_")[1:]])
    found = {}
    for path in newest.rglob("*_DebugIdentity_*"):
        for value in tf1.Event.FromString(path.read_bytes()).summary.value:
            op, slot, _ = value.node_name.rsplit(":", 2)
            fed = re.match(r"_arg_(.+)_(\d+)_\d+\Z", op)
            name = f"{fed.group(1)}:{fed.group(2)}" if fed else f"{op}:{slot}"
            name = re.sub(r"/_\d+__cf__\d+:", ":", name)
            if tf.as_dtype(value.tensor.dtype) not in (tf.resource, tf.variant):
                found[name] = tf.make_ndarray(value.tensor)
    return found


def racing(graph, name, values):
    """What else a tensor may rightly hold: nobody reads this output of an assignment, and the next one writes into it.

    TensorFlow's own copy of it then races with that next update (seen under load with TensorFlow 2.21), so the stock
    wrapper has no one value for it. Right is what the assignment wrote, or what a later one to the same variable did.
    """
    tensor = graph.get_tensor_by_name(name)
    if not tensor.dtype._is_ref_dtype or tensor.op.type != "Assign" or tensor.consumers():
        return set()
    variable = tensor.op.inputs[0]
    writers = [op for op in variable.consumers() if op.outputs and op.outputs[0].dtype._is_ref_dtype]
    written = [values[op.outputs[0].name] for op in writers if op.outputs[0].name in values]
    return {array.tobytes() for array in [values[tensor.op.inputs[1].name], *written]}


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("step", [0, 1])
def test_every_tensor_of_the_stock_wrapper_is_bit_equal_in_ours(
    tmp_path, click_model, config, manifests, values, use_resource, step
):
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    model = click_model(use_resource)

    def train(session, last):
        for number in range(step + 1):
            result = (last if number == step else session).run([model.train, model.loss], model.batches[number])
        return result[1]

    stock_root = tmp_path / "stock"
    stock_root.mkdir()
    raw = tf1.Session(graph=model.graph, config=config())
    raw.run(model.init)
    theirs_loss = train(raw, DumpingDebugWrapperSession(raw, session_root=str(stock_root)))
    theirs = stock_values(stock_root)

    with record_session(
        tf1.Session(graph=model.graph, config=config()), tmp_path / "ours", parse_steps(str(step))
    ) as session:
        session.run(model.init)
        ours_loss = train(session, session)
    (record,) = manifests(tmp_path / "ours")
    ours = values(record)

    assert record["complete"]
    assert record["step"] == step
    assert len(theirs) > 60
    assert set(theirs) <= set(ours)
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype, name
        assert ours[name].tobytes() in {value.tobytes(), *racing(model.graph, name, ours)}, name
    assert ours_loss.tobytes() == theirs_loss.tobytes()
    missing = [t for t in record["tensors"] if not t["file"] and t["dtype"] != "resource"]
    assert missing == []


@pytest.mark.parametrize("use_resource", [True, False])
def test_losses_are_those_of_the_plain_session(tmp_path, click_model, config, use_resource):
    model = click_model(use_resource)

    def losses(session):
        with session:
            session.run(model.init)
            return [session.run([model.loss, model.train], batch)[0].tobytes() for batch in model.batches]

    plain = losses(tf1.Session(graph=model.graph, config=config()))
    recorded = losses(record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")))
    assert recorded == plain
    assert len(list(tmp_path.glob("run_*"))) == len(model.batches)


@pytest.mark.parametrize("use_resource", [True, False])
def test_steps_are_counted_and_chosen(tmp_path, click_model, config, manifests, use_resource):
    model = click_model(use_resource)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("1|3-4")) as session:
        session.run(model.init)
        for batch in model.batches:
            session.run(model.loss, batch)  # an evaluation
            session.run(model.train, batch)
            model.saver.save(session, str(tmp_path / "ckpt"))
    assert [record["step"] for record in manifests(tmp_path)] == [1, 3, 4]


def test_time_stamps_rise_in_the_same_order_every_time(tmp_path, click_model, config, manifests):
    model = click_model(False)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        for batch in model.batches[:3]:
            session.run(model.train, batch)
    records = manifests(tmp_path)
    orders = []
    last = 0
    for record in records:
        stamps = [t["timestamp_us"] for t in record["tensors"]]
        assert stamps == sorted(stamps)
        assert stamps[0] > last
        last = stamps[-1]
        orders.append([(t["op"], t["output"]) for t in record["tensors"]])
    assert orders[0] == orders[1] == orders[2]
    place = {name: index for index, (name, _) in enumerate(orders[0])}
    for op in model.graph.get_operations():
        for producer in (t.op for t in op.inputs):
            if op.name in place and producer.name in place and producer.type != "Placeholder":
                assert place[producer.name] < place[op.name]


def test_feeds_are_recorded_even_if_the_caller_reuses_the_buffer(tmp_path, click_model, config, manifests, values):
    model = click_model(True)
    ids = np.arange(16, dtype=np.int64)
    labels = np.ones(16, np.float32)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        _, fetched = session.run(
            [model.train, model.graph.get_tensor_by_name("net/rows:0")], {model.ids: ids, "label:0": labels}
        )
        expected = fetched.copy()
        fetched[:] = -1
        ids[:] = 0
        labels[:] = 9
    (record,) = manifests(tmp_path)
    assert sorted(record["feeds"]) == ["ids:0", "label:0"]
    found = values(record)
    assert found["ids:0"].tolist() == list(range(16))
    assert found["label:0"].tolist() == [1.0] * 16
    assert np.array_equal(found["net/rows:0"], expected)


def test_arrays_of_one_step_do_not_change_in_later_steps(tmp_path, click_model, config, manifests, values):
    """Reference variables hand out live buffers; the writer must not see what later steps do to them."""
    from dumpers.capture.worker import BoundedWorker

    model = click_model(False)
    gate = threading.Event()
    worker = BoundedWorker()
    worker.submit(0, gate.wait)
    session = record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0"), worker=worker)
    session.run(model.init)
    before = session.run(model.table).copy()
    for batch in model.batches:
        session.run(model.train, batch)
    gate.set()
    session.close()
    found = values(manifests(tmp_path)[0])
    assert np.array_equal(found["table:0"], before)
    assert np.array_equal(found["table/read:0"], before)


def test_it_is_a_session(tmp_path, click_model, config):
    model = click_model(True)
    raw = tf1.Session(graph=model.graph, config=config())
    session = record_session(raw, tmp_path, parse_steps("0"))
    assert isinstance(session, tf1.Session)
    assert session.graph is model.graph
    assert record_session(session, tmp_path, parse_steps("0")) is session
    with session.as_default():
        assert tf1.get_default_session() is session
        model.init.run()
        assert model.loss.eval(model.batches[0]) > 0
    step = session.make_callable([model.loss, model.train], [model.ids, model.label])
    assert step(*model.batches[0].values())[0] > 0
    flush(session)
    assert len(list(tmp_path.glob("run_*/record.json"))) == 1
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(model.loss, model.batches[0])


def test_dropping_the_wrapper_leaves_the_session_alone(tmp_path, click_model, config):
    model = click_model(True)
    raw = tf1.Session(graph=model.graph, config=config())
    session = record_session(raw, tmp_path, parse_steps("0"))
    session.run(model.init)
    del session
    assert raw.run(model.loss, model.batches[0]) > 0


def test_monitored_session(tmp_path, click_model, config, manifests):
    model = click_model(True)
    with model.graph.as_default():
        hooks = [tf1.train.CheckpointSaverHook(str(tmp_path / "ck"), save_steps=1)]
        with record_session(
            tf1.train.MonitoredSession(tf1.train.ChiefSessionCreator(config=config()), hooks=hooks),
            tmp_path / "rec",
            parse_steps(""),
        ) as session:
            for batch in model.batches[:3]:
                assert not session.should_stop()
                session.run([model.train, model.loss], batch)
    assert [record["step"] for record in manifests(tmp_path / "rec")] == [0, 1, 2]


def test_what_is_no_session_is_refused(tmp_path):
    with pytest.raises(UsageError, match="dict is no"):
        record_session({}, tmp_path, parse_steps("0"))


def test_threads_do_not_mix_records(tmp_path, click_model, config, manifests, values):
    model = click_model(True)
    session = record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps(""))
    session.run(model.init)
    problems = []

    def work(mark):
        for _ in range(5):
            feeds = {model.ids: np.full(16, mark, np.int64), model.label: np.full(16, mark % 2, np.float32)}
            try:
                session.run(model.train, feeds)
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()
    records = manifests(tmp_path)
    assert problems == []
    assert len(records) == 20
    assert sorted(record["step"] for record in records) == list(range(20))
    assert all(record["complete"] for record in records)
    marks = []
    for record in records:
        found = values(record)
        (mark,) = set(found["ids:0"].tolist())
        assert set(found["label:0"].tolist()) == {float(mark % 2)}
        assert np.array_equal(found["net/rows:0"], np.tile(found["net/rows:0"][:1], (16, 1)))
        marks.append(mark)
    assert sorted(marks) == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5


def test_empty_fetches(tmp_path, click_model, config):
    model = click_model(True)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        assert session.run([]) == []
        assert session.run({}) == {}
    assert list(tmp_path.glob("run_*")) == []


def test_partial_runs_work_and_say_that_they_are_not_recorded(tmp_path, config, capsys):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [])
        y = x * 2.0
        z = y + 1.0
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")) as session:
        handle = session.partial_run_setup([y, z], [x])
        assert session.partial_run(handle, y, {x: 2.0}) == 4.0
        assert session.partial_run(handle, z) == 5.0
    assert capsys.readouterr().err.count("partial runs are not recorded") == 1


def test_graph_rewriting_is_noted_once(tmp_path, click_model, config, capsys):
    model = click_model(True)
    with record_session(tf1.Session(graph=model.graph), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
        session.run(model.train, model.batches[1])
    assert capsys.readouterr().err.count("disable_meta_optimizer") == 1
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
    assert capsys.readouterr().err == ""


def test_queue_runners_on_the_recorded_session(tmp_path, config, manifests):
    """FC04 (b): feeding runs neither block nor use up step numbers."""
    graph = tf.Graph()
    with graph.as_default():
        queue = tf1.FIFOQueue(4, [tf.float32], shapes=[[]])
        runner = tf1.train.QueueRunner(queue, [queue.enqueue(tf1.random_uniform([]))] * 2)
        tf1.train.add_queue_runner(runner)
        w = tf1.get_variable("w", initializer=1.0)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.square(w - queue.dequeue()))
        init = tf1.global_variables_initializer()
    session = record_session(tf1.Session(graph=graph, config=tf1.ConfigProto()), tmp_path, parse_steps(""))
    with graph.as_default(), session.as_default():
        session.run(init)
        coordinator = tf1.train.Coordinator()
        threads = tf1.train.start_queue_runners(sess=session, coord=coordinator)
        for _ in range(3):
            session.run(train)
        coordinator.request_stop()
        session.run(queue.close(cancel_pending_enqueues=True))
        coordinator.join(threads, stop_grace_period_secs=10)
    session.close()
    assert [record["step"] for record in manifests(tmp_path)] == [0, 1, 2]


def test_a_device_that_does_not_exist(tmp_path, config):
    """FC03 (d)."""
    graph = tf.Graph()
    with graph.as_default(), graph.device("/job:nowhere/task:0"):
        total = tf.add(tf.constant(1.0), 1.0)
    caught = []
    for session in (
        tf1.Session(graph=graph, config=config()),
        record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")),
    ):
        with session, pytest.raises(tf.errors.OpError) as error:
            session.run(total)
        caught.append((type(error.value), error.value.message.splitlines()[0]))
    assert caught[0][0] is tf.errors.InvalidArgumentError
    assert caught[0] == caught[1]

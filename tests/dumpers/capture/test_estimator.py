"""The hook records what a recorded session does, for monitored sessions and Estimators, and changes nothing."""

from __future__ import annotations

import gc
import glob
import tempfile
import threading

import numpy as np
import pytest

from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

from dumpers.capture.estimator import DumpHook  # noqa: E402 - needs TensorFlow

ROWS, BATCH = 24, 4


@pytest.fixture
def estimator():
    """The module of Estimators; TensorFlow dropped it with 2.16."""
    try:
        return tf1.estimator
    except AttributeError:
        pytest.skip("tf.estimator: gone since TensorFlow 2.16")


def monitored(model, config, hooks, **options):
    return tf1.train.MonitoredTrainingSession(
        config=config(), hooks=hooks, save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
        **options
    )  # fmt: skip


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_monitored_session_records_what_a_recorded_session_does(
    tmp_path, click_model, config, manifests, values, use_resource
):
    model = click_model(use_resource)
    shown = model.graph.get_tensor_by_name("net/hidden:0")
    with model.graph.as_default():
        with record_session(tf1.Session(config=config()), tmp_path / "session", parse_steps("1-2")) as session:
            session.run(model.init)
            losses = [session.run([model.train, model.loss], batch)[1] for batch in model.batches[:4]]
        with monitored(model, config, []) as session:
            plain = [session.run([model.train, model.loss, shown], batch)[1:] for batch in model.batches[:4]]
        hook = DumpHook(tmp_path / "hook", parse_steps("1-2"))
        with monitored(model, config, [hook]) as session:
            found = [session.run([model.train, model.loss], batch)[1] for batch in model.batches[:4]]
    assert [loss.tobytes() for loss in found] == [loss.tobytes() for loss in losses]
    assert [loss.tobytes() for loss in found] == [loss.tobytes() for loss, _ in plain]
    ours, theirs = manifests(tmp_path / "hook"), manifests(tmp_path / "session")
    assert [record["step"] for record in ours] == [1, 2]
    for mine, other in zip(ours, theirs):  # noqa: B905 - Python 3.7
        assert mine["complete"]
        assert sorted(mine["feeds"]) == sorted(other["feeds"])
        left, right = values(mine), values(other)
        assert list(left) == list(right)
        assert len(left) > 60
        for name in left:
            assert left[name].tobytes() == right[name].tobytes(), name
        assert left["net/hidden:0"].tobytes() == plain[mine["step"]][1].tobytes()
        assert left["loss:0"].tobytes() == plain[mine["step"]][0].tobytes()


def test_savers_and_summaries_beside_it_go_on_and_are_not_counted(tmp_path, click_model, config, manifests):
    model = click_model(False)
    with model.graph.as_default():
        tf1.summary.scalar("seen", model.loss)
        hook = DumpHook(tmp_path / "rec", parse_steps(""))
        session = tf1.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path / "ck"), config=config(), hooks=[hook], save_checkpoint_steps=1,
            save_summaries_steps=1, log_step_count_steps=1,
        )  # fmt: skip
        with session:
            for batch in model.batches:
                session.run(model.loss, batch)  # an evaluation
                session.run(model.train, batch)
    assert [record["step"] for record in manifests(tmp_path / "rec")] == list(range(len(model.batches)))
    assert tf1.train.latest_checkpoint(str(tmp_path / "ck")).endswith("-6")
    (events,) = glob.glob(str(tmp_path / "ck" / "events*"))
    tags = [v.tag for event in tf1.train.summary_iterator(events) for v in event.summary.value]
    assert tags.count("seen") == len(model.batches) * 2


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("steps", ["", "3|7-9"])
def test_fifty_steps_have_the_same_losses_and_weights(tmp_path, click_model, config, use_resource, steps):
    model = click_model(use_resource)

    def trained(hooks):
        with model.graph.as_default(), monitored(model, config, hooks) as session:
            losses = [
                session.run([model.loss, model.train], model.batches[step % len(model.batches)])[0].tobytes()
                for step in range(50)
            ]
            weights = session.run(model.graph.get_collection("variables"))
        return losses, [value.tobytes() for value in weights]

    assert trained([DumpHook(tmp_path, parse_steps(steps))]) == trained([])
    assert len(list(tmp_path.glob("run_*/record.json"))) == (50 if not steps else 4)


def test_a_step_that_raises_gives_its_number_back(tmp_path, click_model, config, manifests, monkeypatch):
    """Until the next run nobody tells the hook; the debugger's folder is gone then too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pattern = str(tmp_path / "precision_tool_watch_*")
    model = click_model(False)
    wrong = {model.ids: np.array([10**6], np.int64), model.label: np.ones(1, np.float32)}
    with model.graph.as_default():
        hook = DumpHook(tmp_path, parse_steps("0-1"))
        with monitored(model, config, [hook]) as session:
            for feeds in (wrong, model.batches[0], wrong, wrong, model.batches[1], model.batches[2]):
                if feeds is wrong:
                    with pytest.raises(tf.errors.InvalidArgumentError):
                        session.run(model.train, feeds)
                else:
                    session.run(model.train, feeds)
        records = manifests(tmp_path)
        assert [record["step"] for record in records] == [0, 1]
        assert all(record["complete"] for record in records)
        with pytest.raises(tf.errors.InvalidArgumentError), monitored(model, config, [hook]) as session:
            session.run(model.train, wrong)  # the hook never hears of the end
        assert len(glob.glob(pattern)) == 1
    del hook, session
    gc.collect()
    assert not glob.glob(pattern)


def test_a_session_made_again_goes_on_counting(tmp_path, click_model, config, manifests):
    """TensorFlow makes a monitored session anew when its server was restarted."""
    model = click_model(True)

    class Preempted(tf1.train.SessionRunHook):
        done = 0

        def before_run(self, run_context):
            self.done += 1
            if self.done == 3:
                raise tf.errors.AbortedError(None, None, "the server was restarted")

    with model.graph.as_default():
        hook = DumpHook(tmp_path / "rec", parse_steps(""))
        with monitored(model, config, [hook, Preempted()], checkpoint_dir=str(tmp_path / "ck")) as session:
            for batch in model.batches:
                session.run(model.train, batch)
        with monitored(model, config, [hook]) as session:
            session.run(model.train, model.batches[0])
    assert [record["step"] for record in manifests(tmp_path / "rec")] == [0, 1, 2, 3, 4, 5, 0]


def test_threads_do_not_mix_records(tmp_path, click_model, config, manifests, values):
    model = click_model(True)
    with model.graph.as_default():
        hook = DumpHook(tmp_path, parse_steps(""))
        with monitored(model, config, [hook]) as session:

            def work(mark):
                feeds = {model.ids: np.full(16, mark, np.int64), model.label: np.full(16, mark % 2, np.float32)}
                for _ in range(4):
                    session.run(model.train, feeds)

            threads = [threading.Thread(target=work, args=(mark,)) for mark in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    records = manifests(tmp_path)
    assert sorted(record["step"] for record in records) == list(range(12))
    for record in records:
        found = values(record)
        (mark,) = set(found["ids:0"].tolist())
        assert set(found["label:0"].tolist()) == {float(mark % 2)}


def test_an_evaluation_outside_of_estimators(tmp_path, config, manifests, values):
    """Batches are steps though metrics change; initialisers, savers and the final value of the metric are none."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 2], name="x")
        weight = tf1.get_variable("weight", initializer=np.float32([[1.0], [2.0]]))
        mean, update = tf1.metrics.mean(tf.matmul(x, weight, name="scores"), name="average")
        saver = tf1.train.Saver()
        checkpoint = saver.save(_started(graph, config), str(tmp_path / "ckpt"))
        hook = DumpHook(tmp_path / "rec", parse_steps(""))
        batches = [np.float32([[i, 1.0]]) for i in range(3)]
        with tf1.train.MonitoredSession(tf1.train.ChiefSessionCreator(config=config()), hooks=[hook]) as session:
            session.run(weight.initializer)
            session.run(saver.saver_def.restore_op_name, {saver.saver_def.filename_tensor_name: checkpoint})
            for batch in batches:
                session.run(update, {x: batch})
            session.run(saver.saver_def.save_tensor_name, {saver.saver_def.filename_tensor_name: checkpoint})
            assert session.run(mean) == pytest.approx(3.0)
            session.run("scores:0", {x: batches[0]})
        names = [name for name in values(manifests(tmp_path / "rec")[0]) if name.startswith("scores")]
    records = manifests(tmp_path / "rec")
    assert [record["step"] for record in records] == [0, 1, 2, 3]
    assert names[-1] == "scores:0"
    scores = [values(record)["scores:0"].ravel().tolist() for record in records]
    assert scores == [[2.0], [3.0], [4.0], [2.0]]


def _started(graph, config):
    session = tf1.Session(graph=graph, config=config())
    session.run(tf1.global_variables_initializer())
    return session


# ------------------------------------------------------------------------------------------------------ Estimators


def features():
    random = np.random.RandomState(3)
    return random.uniform(size=(ROWS, 3)).astype(np.float32), random.randint(0, 2, size=(ROWS, 1)).astype(np.float32)


def input_fn(repeat=1, shuffle=False):
    x, y = features()
    data = tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat(repeat)
    return data.batch(BATCH)


def model_fn(features, labels, mode, params):
    dense = tf1.get_variable(
        "dense", initializer=np.float32([[0.5], [-0.25], [0.125]]), use_resource=params["resource"]
    )
    logits = tf.matmul(features["x"], dense, name="logits")
    if mode == tf1.estimator.ModeKeys.PREDICT:
        return tf1.estimator.EstimatorSpec(mode, predictions={"logits": logits}, prediction_hooks=params["hooks"])
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), name="the_loss")
    train = tf1.train.AdamOptimizer(0.01).minimize(loss, global_step=tf1.train.get_global_step())
    metrics = {"auc": tf1.metrics.auc(labels, tf.sigmoid(logits))} if mode == tf1.estimator.ModeKeys.EVAL else None
    return tf1.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train if mode == tf1.estimator.ModeKeys.TRAIN else None, eval_metric_ops=metrics,
        training_hooks=params["hooks"], evaluation_hooks=params["hooks"],
    )  # fmt: skip


def make(estimator, folder, config, hooks, resource=True):
    run_config = estimator.RunConfig(
        model_dir=str(folder), session_config=config(), tf_random_seed=1, save_checkpoints_steps=2,
        save_summary_steps=1, log_step_count_steps=1,
    )  # fmt: skip
    return estimator.Estimator(model_fn, config=run_config, params={"resource": resource, "hooks": hooks})


@pytest.mark.parametrize("resource", [True, False])
def test_training_evaluation_and_prediction(tmp_path, config, manifests, values, estimator, resource):
    """The dataset's end closes the first; each phase counts its own batches."""
    hooks = [DumpHook(tmp_path / "rec", parse_steps("0|4-9"))]
    job = make(estimator, tmp_path / "model", config, hooks, resource)
    batches = ROWS // BATCH
    job.train(input_fn)
    trained = manifests(tmp_path / "rec")
    assert [record["step"] for record in trained] == [0, 4, 5]
    x, _ = features()
    first = values(trained[0])
    logits = first["logits:0"]
    assert first["IteratorGetNext:0"].tobytes() == x[:BATCH].tobytes()
    np.testing.assert_allclose(logits, x[:BATCH] @ np.float32([[0.5], [-0.25], [0.125]]), rtol=1e-6)

    measures = job.evaluate(input_fn)
    plain = make(estimator, tmp_path / "model", config, []).evaluate(input_fn)
    assert measures == plain
    evaluated = manifests(tmp_path / "rec")[len(trained) :]
    assert [record["step"] for record in evaluated] == [0, 4, 5]
    assert all(record["complete"] for record in evaluated)
    found = [values(record) for record in evaluated]
    assert found[1]["IteratorGetNext:0"].tobytes() == x[4 * BATCH : 5 * BATCH].tobytes()
    weights = job.get_variable_value("dense")
    np.testing.assert_allclose(found[1]["logits:0"], x[4 * BATCH : 5 * BATCH] @ weights, rtol=1e-5, atol=1e-7)

    predicted = [item["logits"] for item in job.predict(input_fn)]
    records = manifests(tmp_path / "rec")[len(trained) + len(evaluated) :]
    assert [record["step"] for record in records] == [0, 4, 5]
    stacked = np.stack(predicted)
    for record in records:
        part = stacked[record["step"] * BATCH : (record["step"] + 1) * BATCH]
        assert values(record)["logits:0"].tobytes() == part.tobytes()
    assert len(predicted) == batches * BATCH
    assert all(record["complete"] for record in records)


@pytest.mark.parametrize("resource", [True, False])
def test_fifty_steps_of_an_estimator_are_the_same(tmp_path, config, estimator, resource):
    def trained(name, hooks):
        losses = []

        class Loss(tf1.train.SessionRunHook):
            def before_run(self, run_context):
                return tf1.train.SessionRunArgs(run_context.session.graph.get_tensor_by_name("the_loss:0"))

            def after_run(self, run_context, run_values):
                losses.append(run_values.results.tobytes())

        job = make(estimator, tmp_path / name, config, hooks, resource)
        job.train(lambda: input_fn(repeat=None), steps=50, hooks=[Loss()])
        return losses, {name: job.get_variable_value(name).tobytes() for name in job.get_variable_names()}

    with_hook = trained("with", [DumpHook(tmp_path / "rec", parse_steps(""))])
    assert with_hook == trained("without", [])
    assert len(with_hook[0]) == 50
    assert len(list((tmp_path / "rec").glob("run_*/record.json"))) == 50

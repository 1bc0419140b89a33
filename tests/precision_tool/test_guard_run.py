"""The guard on real jobs, each run as a child: proved, or the right tensors and the right cause."""

from __future__ import annotations

import os
import sys
import textwrap
import time

import pytest

from dumpers.errors import DataError
from precision_tool.guard import guard_result
from precision_tool.guard_causes import Cause
from precision_tool.guard_run import run_guard
from precision_tool.job import job_environment

pytest.importorskip("tensorflow")

SESSION = """
import os, sys
import numpy as np, tensorflow as tf
import precision_tool.tf_config as hooks
tf1 = tf.compat.v1
tf1.disable_eager_execution()

def config(rewriting=False):
    found = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    found.graph_options.rewrite_options.disable_meta_optimizer = not rewriting
    return found

def build(resource=True, seed=7):
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(seed)
        x = tf1.placeholder(tf.float32, [None, 9], name="x")
        weight = tf1.get_variable("weight", [9, 5], initializer=tf1.random_uniform_initializer(-1, 1),
                                  use_resource=resource)
        loss = tf.reduce_mean(tf.square(tf.nn.relu(tf.matmul(x, weight))), name="loss")
        step = tf1.train.get_or_create_global_step()
        train = tf1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        init = tf1.global_variables_initializer()
    return graph, x, weight, loss, train, init

def batches():
    random = np.random.RandomState(1)
    return [random.rand(6, 9).astype(np.float32) for _ in range(5)]

def train_all(session, graph, x, weight, loss, train, init, buffers=None):
    with session:
        session.run(init)
        for batch in buffers or batches():
            session.run([train, loss], {x: batch})
"""


@pytest.fixture
def guarded(tmp_path):
    """Runs the guard on a script that is given as text."""
    said = []

    def guarded(*parts, args=(), **environment):
        script = tmp_path / "script.py"
        script.write_text("\n".join(textwrap.dedent(part) for part in parts))
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        settings = {k: v for k, v in job_environment({}).items() if not k.startswith("TF_DUMP_")}
        settings.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_DUMP_STEP": "1-2", **environment})
        try:
            return run_guard([sys.executable, str(script), *args], settings, scratch, said.append)
        finally:
            assert list(scratch.iterdir()) == []
            assert not (tmp_path / "precision_data").exists()

    guarded.said = said
    return guarded


def test_sessions_with_rewriting_off_are_proved(guarded):
    guard = guarded(
        SESSION,
        """
        for resource in (True, False):
            parts = build(resource)
            train_all(hooks.sess_dump(tf1.Session(graph=parts[0], config=config())), *parts)
        graph, x, weight, loss, train, init = build()
        with graph.as_default():
            with tf1.train.MonitoredTrainingSession(config=config(), hooks=[hooks.estimator_dump()]) as session:
                for batch in batches():
                    session.run([train, loss], {x: batch})
        """,
    )
    assert guard.proved, guard_result(guard)
    assert (guard.tally.steps, guard.tally.recorded, guard.tally.fed, guard.tally.fetched) == (15, 6, 15, 15)
    # Weight, two moments, two powers of betas and the step, before the first and after each of five steps.
    assert guard.tally.variables == 3 * 6 * 6
    assert len(guarded.said) == 2
    assert not guard.notes


def test_an_estimator_is_proved(guarded):
    import tensorflow as tf

    if not hasattr(tf.compat.v1, "estimator"):
        pytest.skip("tf.estimator: gone since TensorFlow 2.16")
    guard = guarded(
        SESSION,
        """
        def model_fn(features, labels, mode):
            weight = tf1.get_variable("weight", [9, 1], use_resource=True)
            loss = tf1.losses.mean_squared_error(labels, tf.matmul(features, weight))
            train = tf1.train.AdamOptimizer(0.1).minimize(loss, tf1.train.get_global_step())
            return tf1.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

        def data():
            values = np.ones((4, 9), np.float32), np.ones((4, 1), np.float32)
            return tf1.data.Dataset.from_tensors(values).map(lambda x, y: (x * 2, y)).repeat(6)

        folder = os.path.join(os.environ["ROOT_DIR"], "model")
        run = tf1.estimator.RunConfig(folder, 1, session_config=config())
        estimator = tf1.estimator.Estimator(model_fn, config=run)
        estimator.train(data, hooks=[hooks.estimator_dump()], steps=4)
        estimator.evaluate(data, hooks=[hooks.estimator_dump()], steps=3)
        """,
    )
    assert guard.proved, guard_result(guard)
    assert (guard.tally.steps, guard.tally.recorded) == (7, 4)


def test_keras_and_a_step_function_are_proved(guarded):
    guard = guarded("""
        import numpy as np, tensorflow as tf
        import precision_tool.tf_config as hooks
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        model = tf.keras.Sequential([
            tf.keras.Input((3,)), tf.keras.layers.Dense(4, "relu"), tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(1),
        ])
        model.compile("adam", "mse", jit_compile=False)
        x, y = np.random.rand(40, 3).astype("float32"), np.zeros((40, 1), "float32")
        model.fit(x, y, batch_size=10, verbose=0, callbacks=[hooks.keras_dump()], validation_split=0.2)
        weight = tf.Variable(tf.random.uniform([3, 1]))

        @hooks.function_dump
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weight) ** 2)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
            return loss

        for _ in range(20):
            step(x)
        """)
    assert guard.proved, guard_result(guard)
    assert (guard.tally.steps, guard.tally.recorded) == (24, 4)
    assert guard.tally.variables > 200
    assert not guard.notes


def test_a_graph_that_is_rewritten_is_named_as_the_cause(guarded):
    """TensorFlow folds ``(w * 0.1) * 0.3`` into one product, which rounds once; a recorded step multiplies twice."""
    guard = guarded(
        SESSION,
        """
        graph = tf.Graph()
        with graph.as_default():
            x = tf1.placeholder(tf.float32, [37, 77], name="x")
            start = np.random.RandomState(1).uniform(-1, 1, (37, 77)).astype(np.float32)
            weight = tf1.get_variable("weight", initializer=start, use_resource=True)
            loss = tf.reduce_sum(tf.square((weight * 0.1 * 0.3 + (weight + 0.7) + 1e-3) * x), name="loss")
            train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
            init = tf1.global_variables_initializer()
        data = [np.random.RandomState(n).rand(37, 77).astype(np.float32) for n in range(4)]
        session = hooks.sess_dump(tf1.Session(graph=graph, config=config(rewriting="on" in sys.argv)))
        train_all(session, graph, x, weight, loss, train, init, data)
        """,
        args=["on"],
    )
    assert guard.cause is Cause.REWRITING
    assert guard.difference.step == 1
    assert ("fetched", "loss:0") in [name for name, _, _ in guard.difference.moved]
    assert "step 1, the first that differs, was recorded" in guard.reason.evidence
    assert "disable_meta_optimizer" in guard.reason.advice[0]
    assert len(guarded.said) == 4


def test_a_job_without_a_seed_does_not_repeat_itself(guarded):
    guard = guarded(
        SESSION,
        """
        parts = build(seed=None)
        train_all(hooks.sess_dump(tf1.Session(graph=parts[0], config=config())), *parts)
        """,
    )
    assert guard.cause is Cause.JOB
    assert guard.difference.at == "start"
    assert [name for name, _, _ in guard.difference.moved] == [("variable", "weight")]
    assert any("weight/Initializer/random_uniform/RandomUniform" in line for line in guard.reason.evidence)


MEDDLER = {
    "variable": """
        from dumpers.capture.recorded_step import RecordedStep
        plain = RecordedStep.finish

        def finish(step, result, values):
            plain(step, result, values)
            if not step.skipped:
                weight = parts[2]
                weight.load(np.nextafter(bare.run(weight), np.float32(9)), bare)

        RecordedStep.finish = finish
        """,
    "feeds": """
        from dumpers.capture.recorder import Recorder
        plain = Recorder.begin

        def begin(recorder, fetches, feed_dict=None):
            step = plain(recorder, fetches, feed_dict)
            if step is not None and not step.skipped:
                next(iter(step.values.values()))[0, 0] += 1
            return step

        Recorder.begin = begin
        """,
}


@pytest.mark.parametrize(("meddler", "moved"), [("variable", ("variable", "weight")), ("feeds", ("fetched", "loss:0"))])
def test_a_hook_that_meddles_is_caught(guarded, meddler, moved):
    guard = guarded(
        SESSION,
        MEDDLER[meddler],
        """
        parts = build()
        with parts[0].as_default():
            bare = tf1.Session(graph=parts[0], config=config())
        train_all(hooks.sess_dump(bare), *parts)
        """,
    )
    assert guard.cause is Cause.HOOK
    assert guard.difference.step == 1
    assert moved in [name for name, _, _ in guard.difference.moved]
    assert ("fetched", "loss:0") not in [name for name, _, _ in guard.difference.moved] or meddler == "feeds"
    assert "report" in guard.reason.advice[0]


def test_steps_that_the_script_chooses_itself_do_not_spoil_the_plain_side(guarded):
    guard = guarded(
        SESSION,
        """
        os.environ["TF_DUMP_STEP"] = "0"
        parts = build()
        train_all(hooks.sess_dump(tf1.Session(graph=parts[0], config=config())), *parts)
        """,
        TF_DUMP_STEP="99",
    )
    assert guard.proved
    assert guard.tally.recorded == 1


def test_a_script_that_builds_another_graph_when_recorded(guarded):
    guard = guarded(
        SESSION,
        """
        parts = build()
        if not os.environ["TF_DUMP_GUARD_PLAIN"]:
            with parts[0].as_default():
                tf.constant(1.0)
                parts = (*parts[:3], parts[3] * 1.5, *parts[4:])
        train_all(hooks.sess_dump(tf1.Session(graph=parts[0], config=config())), *parts)
        """,
    )
    assert guard.cause is Cause.GRAPH


@pytest.mark.parametrize(
    ("script", "match"),
    [
        ("print('no hook at all')", "wrote no ladder"),
        ("import sys\nprint('cause', file=sys.stderr)\nsys.exit(3)", r"ended with exit code 3; its last lines: cause"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "was ended by SIGTERM"),
        ("raise ValueError('two\\nlines\\x1b[2J')", "exit code 1"),
        ("import sys\nsys.stderr.write('x' * 5_000_000 + '\\nlast')\nsys.exit(1)", "last lines: .*last"),
    ],
)
def test_a_run_that_cannot_be_compared_is_one_line(guarded, script, match):
    with pytest.raises(DataError, match=match) as caught:
        guarded(script)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2500


def test_an_interrupt_ends_the_run_and_leaves_nothing(guarded, tmp_path):
    script = f"""
        import os, pathlib, signal, time
        pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)
        """
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        guarded(script)
    assert time.monotonic() - began < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_interpreter_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be started"):
        run_guard([str(tmp_path / "python"), "script.py"], {}, tmp_path, lambda line: None)

"""The guard's ladder of TensorFlow 2 steps: what goes in, what comes out, all variables; no bit changes."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from dumpers.capture.function_steps import StepLog
from dumpers.capture.functions import EagerBlock, keras_callback, record_function, record_model
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
if int(tf.__version__.split(".")[0]) < 2:
    pytest.skip("TensorFlow 2 has step functions", allow_module_level=True)


@pytest.fixture(autouse=True, scope="module")
def graph_mode():
    """The other way round than in the neighbouring modules: eager, and functions not rewritten."""
    from tensorflow.python.eager import context

    with context.eager_mode():
        before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        yield
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


@pytest.fixture
def ladder(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_DUMP_GUARD_RUN", "0" * 16)

    def choose(name, plain):
        monkeypatch.setenv("TF_DUMP_GUARD", str(tmp_path / name))
        monkeypatch.setenv("TF_DUMP_GUARD_PLAIN", "True" if plain else "")

        def read(file="ladder_0.jsonl"):
            return [json.loads(line) for line in (tmp_path / name / file).read_text().splitlines()]

        return read

    return choose


def mark(value):
    return hashlib.blake2b(np.asarray(value).tobytes(), digest_size=16).hexdigest()


def keras_run(folder, hooked):
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(5) if hasattr(tf.keras.utils, "set_random_seed") else tf.random.set_seed(5)
    random = np.random.RandomState(3)
    x, y = random.rand(40, 3).astype(np.float32), random.rand(40, 1).astype(np.float32)
    layers = tf.keras.layers
    first = layers.Dense(8, activation="relu", name="guarded", bias_initializer="ones")
    model = tf.keras.Sequential([tf.keras.Input((3,)), first, layers.Dense(1)])
    start = np.linspace(-0.5, 0.5, 41, dtype=np.float32)
    model.set_weights([start[:24].reshape(3, 8), start[:8], start[:8].reshape(8, 1), start[:1]])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", **({} if tf.__version__ < "2.7" else {"jit_compile": False}))
    callbacks, losses, weights = [], [], []
    if hooked:
        log = StepLog(folder, parse_steps("1-2"), kind="keras_dump")
        callbacks = [keras_callback(lambda m: record_model(m, frozenset(["train"]), {"train": log}), log.flush)]

    def seen(batch, logs):
        losses.append(logs["loss"])
        weights.append(model.get_weights()[0].tobytes())

    each = tf.keras.callbacks.LambdaCallback(on_batch_end=seen)
    model.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0, callbacks=[*callbacks, each])
    return losses, weights


def test_keras_fit(tmp_path, ladder, manifests):
    bare = keras_run(None, False)
    found = []
    for name, plain in (("recorded", False), ("plain", True)):
        read = ladder(name, plain)
        assert keras_run(tmp_path / name / "rec", True) == bare
        header, start, *rungs = read()
        assert (header["kind"], header["rewriting"]["on"]) == ("keras_dump", False)
        assert [record["step"] for record in manifests(tmp_path / name / "rec")] == ([] if plain else [1, 2])
        assert [rung["at"] for rung in rungs] == list(range(8))
        kernels = [name for name, line in start["variables"].items() if "guarded" in name and line[1] == [3, 8]]
        kernel = min(kernels, key=len)
        expected = [hashlib.blake2b(value, digest_size=16).hexdigest() for value in bare[1]]
        assert [rung["variables"][kernel][3] for rung in rungs] == expected
        assert any("adam" in name.lower() or "/m" in name for name in rungs[0]["variables"])
        assert rungs[0]["fetched"]["result['loss']"][0] == "float32"
        found.append(rungs)
    for left, right in zip(*found):  # noqa: B905 - Python 3.7
        assert left["fetched"] == right["fetched"]
        assert {n: left["variables"][n] for n in right["variables"] if "guarded" in n} == {
            n: line for n, line in right["variables"].items() if "guarded" in n
        }


def test_a_step_function(tmp_path, ladder):
    found = []
    for name, plain in (("recorded", False), ("plain", True)):
        weight = tf.Variable([[1.0], [2.0]], name="guarded_weight")

        @tf.function
        def train(x, weight=weight):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ weight))
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
            return {"loss": loss}

        read = ladder(name, plain)
        step = record_function(train, StepLog(tmp_path / name / "rec", parse_steps("1")))
        values, losses, states = np.float32([[1, 2], [3, 4]]), [], []
        for _ in range(3):
            losses.append(step(tf.constant(values))["loss"].numpy())
            states.append(weight.numpy())
        rungs = read()[2:]
        assert [rung["fetched"]["result['loss']"][3] for rung in rungs] == [mark(loss) for loss in losses]
        assert [rung["variables"]["guarded_weight"][3] for rung in rungs] == [mark(state) for state in states]
        assert {mark(values)} == {line[3] for rung in rungs for line in rung["fed"].values()}
        assert [rung["recorded"] for rung in rungs] == [False, not plain, False]
        found.append([dict(rung, recorded=None) for rung in rungs])
        del weight, train, step
    assert found[0] == found[1]


def test_a_hook_inside_a_block_has_no_ladder_and_the_block_has_one(tmp_path, ladder):
    for plain in (False, True):
        read = ladder("plain" if plain else "recorded", plain)
        block = EagerBlock(StepLog(tmp_path / "rec", parse_steps("0"), kind="eager_dump"))
        inner = record_function(tf.function(lambda x: x * 2), StepLog(tmp_path / "inner", parse_steps("0")))
        for _ in range(3):
            with block:
                inner(tf.constant(1.0))
        assert [line["at"] for line in read()] == ["header", "start", 0, 1, 2]
        with pytest.raises(FileNotFoundError):
            read("ladder_1.jsonl")


def test_a_step_that_fails_has_no_rung(tmp_path, ladder):
    read = ladder("ladder", True)
    step = record_function(
        tf.function(lambda x: tf.debugging.check_numerics(x, "bad")), StepLog(tmp_path, parse_steps(""))
    )
    step(tf.constant(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(float("nan")))
    step(tf.constant(2.0))
    assert [line["at"] for line in read()] == ["header", "start", 0, 1]

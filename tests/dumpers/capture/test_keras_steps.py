"""Keras steps: recorded whole, and the numbers of the job stay what they are without the hook."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from dumpers.capture import pack
from dumpers.capture import record as record_module
from dumpers.capture.function_steps import StepLog
from dumpers.capture.functions import keras_callback, record_model
from dumpers.capture.record import KEEPS
from dumpers.capture.steps import parse_steps
from dumpers.errors import UsageError

tf = pytest.importorskip("tensorflow")
if int(tf.__version__.split(".")[0]) < 2:
    pytest.skip("TensorFlow 2 has Keras models whose steps are functions", allow_module_level=True)
HAS_XLA_SWITCH = not tf.__version__.startswith("2.6")


@pytest.fixture(autouse=True, scope="module")
def graph_mode():
    """The other way round than in the neighbouring modules: eager, and functions not rewritten."""
    from tensorflow.python.eager import context

    with context.eager_mode():
        before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        yield
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


def compile_model(model, jit=False, **more):
    if HAS_XLA_SWITCH:
        more["jit_compile"] = jit
    model.compile(tf.keras.optimizers.Adam(0.01), "binary_crossentropy", **more)


def click_model(dropout=True, **compiled):
    layers = tf.keras.layers
    tf.random.set_seed(1)
    random = np.random.RandomState(3)
    ids, dense = tf.keras.Input((5,), dtype="int64"), tf.keras.Input((3,))
    start = layers.Concatenate()([layers.Flatten()(layers.Embedding(50, 8, name="table")(ids)), dense])
    x = start
    for number in range(2):
        cross = layers.Dense(43, name=f"cross{number}")(x)
        x = layers.Add()([layers.Multiply()([start, cross]), x])
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.Dense(16, activation="relu")(x)
    if dropout:
        x = layers.Dropout(0.3, seed=5)(x)
    model = tf.keras.Model([ids, dense], layers.Dense(1, activation="sigmoid", name="out")(x))
    model.set_weights([random.uniform(-0.3, 0.3, w.shape).astype(w.dtype) if w.dtype.kind == "f" else w
                       for w in model.get_weights()])  # fmt: skip
    compile_model(model, **compiled)
    features = [random.randint(0, 50, (95, 5)), random.rand(95, 3).astype(np.float32)]
    return model, features, random.randint(0, 2, (95, 1)).astype(np.float32)


def fit(folder, choose, keep="pack", validate=False, epochs=5, **built):
    """Ten steps an epoch, the last one with five rows; returns losses and weights. No hook without ``choose``."""
    model, x, y = click_model(**built)
    callbacks = []
    if choose is not None:
        log = StepLog(folder, parse_steps(choose), keep=keep)

        def install(recorded):
            record_model(recorded, frozenset(["train"]), {"train": log})

        callbacks = [keras_callback(install, log.flush)]
    losses = []
    more = {"validation_data": (x, y)} if validate else {}
    each = tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: losses.append(logs["loss"]))
    model.fit(x, y, batch_size=10, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks, each], **more)
    return losses, [value.tobytes() for value in model.get_weights()]


@pytest.fixture(scope="module")
def plain():
    return fit(None, None)


@pytest.mark.parametrize("keep", KEEPS)
def test_fifty_steps_of_fit_are_the_same_to_the_last_bit(tmp_path, manifests, values, plain, keep):
    assert len(plain[0]) == 50
    assert fit(tmp_path, "", keep) == plain
    records = manifests(tmp_path)
    assert [record["step"] for record in records] == list(range(50))
    assert all(record["complete"] for record in records)
    kept = {"pack": "file", "npy": "file", "shapes": "bytes"}.get(keep, "summary")
    without = [t for t in records[0]["tensors"] if t.get(kept) in (None, "")]
    assert {t["dtype"] for t in without} <= {"resource", "variant"}
    assert len(records[0]["tensors"]) > 100


def test_chosen_steps_with_validation_between(tmp_path, manifests, values):
    bare = fit(None, None, validate=True)
    assert fit(tmp_path, "0|7-8|49", validate=True) == bare
    records = manifests(tmp_path)
    assert [record["step"] for record in records] == [0, 7, 8, 49]
    types = {t["op_type"] for t in records[0]["tensors"]}
    assert {"MatMul", "IteratorGetNext", "ReadVariableOp"} <= types
    assert any(t["op"].startswith("table/embeddings") for t in records[1]["tensors"])
    model, x, _ = click_model()
    looked_up = model.get_weights()[0][x[0][:10]]
    assert any(value.tobytes() == looked_up.tobytes() for value in values(records[0]).values())


def test_gradients_are_among_the_tensors(tmp_path, manifests, values):
    """Those of a linear model by hand, in float64."""
    random = np.random.RandomState(5)
    x, y = random.rand(16, 3).astype(np.float32), random.rand(16, 1).astype(np.float32)
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", **({"jit_compile": False} if HAS_XLA_SWITCH else {}))
    weight, bias = (value.astype(np.float64) for value in model.get_weights())
    log = StepLog(tmp_path, parse_steps("0"))
    record_model(model, frozenset(["train"]), {"train": log})
    model.train_on_batch(x, y)
    log.flush()
    (record,) = manifests(tmp_path)
    error = 2 * (x.astype(np.float64) @ weight + bias - y) / len(x)
    for gradient in (x.T @ error, error.sum(0)):
        found = [v for v in values(record).values() if v.shape == gradient.shape and v.dtype == np.float32]
        assert any(np.allclose(value, gradient, rtol=1e-5, atol=1e-7) for value in found)


def test_batches_of_evaluate_and_predict_count_for_themselves(tmp_path, manifests):
    model, x, y = click_model()
    kinds = ["train", "evaluate", "predict"]
    logs = {kind: StepLog(tmp_path / kind, parse_steps("1")) for kind in kinds}
    record_model(model, frozenset(kinds), logs)
    model.train_on_batch(x, y)
    model.train_on_batch(x, y)
    model.evaluate(x, y, batch_size=50, verbose=0)
    assert model.predict(x, batch_size=50, verbose=0).shape == (95, 1)
    for kind, log in logs.items():
        log.flush()
        (record,) = manifests(tmp_path / kind)
        assert record["step"] == 1
        updates = {t["op"] for t in record["tensors"] if "Adam" in t["op"] or "adam" in t["op"]}
        assert bool(updates) == (kind == "train"), kind


def test_eager_steps(tmp_path, manifests):
    bare = fit(None, None, run_eagerly=True, epochs=1)
    assert fit(tmp_path, "0|4", run_eagerly=True, epochs=1) == bare
    records = manifests(tmp_path)
    assert [record["step"] for record in records] == [0, 4]
    types = {t["op_type"] for t in records[0]["tensors"]}
    assert {"MatMul", "ReluGrad", "ReadVariableOp"} <= types


def test_several_steps_in_one_execution(tmp_path, manifests, capfd):
    bare = fit(None, None, steps_per_execution=2)
    assert fit(tmp_path, "0|3|6-7", steps_per_execution=2) == bare
    records = manifests(tmp_path)
    assert [record["step"] for record in records] == [0, 3, 6]
    assert capfd.readouterr().err.count("steps_per_execution=2") == 1


@pytest.mark.skipif(not HAS_XLA_SWITCH, reason="Keras of TensorFlow 2.6 does not compile with XLA")
def test_steps_compiled_by_xla_stay_closed_and_the_same(tmp_path, manifests, capfd):
    bare = fit(None, None, dropout=False, jit=True, epochs=2)
    assert fit(tmp_path, "0|5", dropout=False, jit=True, epochs=2) == bare
    records = manifests(tmp_path)
    assert [record["step"] for record in records] == [0, 5]
    assert capfd.readouterr().err.count("compiled by XLA") == 1
    assert not any(t["op_type"] == "ReluGrad" for t in records[0]["tensors"])


def test_a_full_disk_warns_once_and_changes_nothing(tmp_path, manifests, plain, monkeypatch, capfd):
    written = []

    def limited(number, group):
        written.append(number)
        if len(written) > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        pack.write_group(number, group)

    monkeypatch.setattr(record_module, "write_group", limited)
    assert fit(tmp_path, "") == plain
    assert capfd.readouterr().err.count("training goes on") == 1
    complete = [record["complete"] for record in manifests(tmp_path)]
    assert len(complete) == 50
    assert not complete[-1]


def test_no_keras_model_is_refused():
    with pytest.raises(UsageError, match="no Keras model"):
        record_model(object(), frozenset(["train"]), {})

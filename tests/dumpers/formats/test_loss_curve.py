"""Loss curves out of every file kind a training writes, against what TensorFlow, Keras and csv put in."""

from __future__ import annotations

import csv
import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from dumpers.errors import DataError, UsageError
from dumpers.formats.loss_curve import read_loss_curve


def write(folder, text, name="a.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@given(
    st.dictionaries(st.integers(0, 2**40), st.floats(width=64), min_size=1, max_size=30),
    st.sampled_from([",", ";", "\t"]),
)
def test_a_csv_gives_back_what_was_written(tmp_path_factory, points, delimiter):
    path = tmp_path_factory.mktemp("csv") / "run.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["Wall time", "Step", "Value"])
        writer.writerows([1.5, step, repr(value)] for step, value in points.items())
    curve = read_loss_curve(path)
    steps = sorted(points)
    assert curve.steps.tolist() == steps
    np.testing.assert_array_equal(curve.values, [points[step] for step in steps])


@pytest.mark.parametrize(
    ("text", "steps", "values"),
    [
        ("0.5\n0.25\nnan\n", [0, 1, 2], [0.5, 0.25, np.nan]),
        ("10,0.5\n20,0.25\n", [10, 20], [0.5, 0.25]),
        ("epoch,accuracy,loss,val_loss\n0,0.1,0.5,9\n1,0.2,0.25,9\n", [0, 1], [0.5, 0.25]),
        ("step,loss,auc\n1,0.5,\n2,,0.7\n3,0.25,\n", [1, 3], [0.5, 0.25]),
        ("step,note,loss,val_loss\n1,a,0.5,NA\n2,b,0.25,x\n", [1, 2], [0.5, 0.25]),
        ("step,loss\n1,0.5\n2,0.4\n2,0.3\n", [1, 2], [0.5, 0.3]),
        ('{"loss": [3, 2.5, "nan"], "val_loss": [1, 1, 1]}', [0, 1, 2], [3, 2.5, np.nan]),
        ("[[1.5, 10, 0.5], [1.6, 20, NaN]]", [10, 20], [0.5, np.nan]),
        ('{"step": 4, "loss": 0.5}\n{"step": 8, "loss": -Infinity, "note": "x"}\n', [4, 8], [0.5, -np.inf]),
    ],
)
def test_what_trainings_write(tmp_path, text, steps, values):
    curve = read_loss_curve(write(tmp_path, text))
    assert curve.steps.tolist() == steps
    np.testing.assert_array_equal(curve.values, values)


@pytest.mark.parametrize("regex", [None, "(.*)"])
def test_a_last_number_that_may_have_been_cut_is_told(tmp_path, regex):
    whole = read_loss_curve(write(tmp_path, "0.5\n0.25\n"), regex=regex)
    cut = read_loss_curve(write(tmp_path, "0.5\n0."), regex=regex)
    assert (whole.notes, cut.values.tolist()) == ((), [0.5, 0.0])
    assert "no end" in " ".join(cut.notes)


def test_the_event_files_of_tensorflow(tmp_path):
    import tensorflow as tf

    values = np.array([0.7, 0.6, np.nan], np.float32)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        for step, value in enumerate(values):
            tf.summary.scalar("epoch_loss", value, step * 10)
            tf.summary.scalar("auc", 0.5, step * 10)
    curve = read_loss_curve(tmp_path, name="epoch_loss")
    assert curve.steps.tolist() == [0, 10, 20]
    np.testing.assert_array_equal(curve.values.astype(np.float32), values)
    with pytest.raises(UsageError, match="auc, epoch_loss"):
        read_loss_curve(tmp_path)


def test_keras_and_its_csv_logger(tmp_path):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(8, dtype=np.float32).reshape(8, 1) / 8
    told = model.fit(x, x, epochs=3, verbose=0, callbacks=[tf.keras.callbacks.CSVLogger(str(tmp_path / "k.csv"))])
    curve = read_loss_curve(tmp_path / "k.csv")
    np.testing.assert_allclose(curve.values, told.history["loss"], rtol=1e-12)
    history = write(tmp_path, json.dumps({k: [float(x) for x in v] for k, v in told.history.items()}), "h.json")
    assert read_loss_curve(history).values.tolist() == told.history["loss"]


def test_a_text_log(tmp_path):
    log = write(tmp_path, "INFO start\nstep = 10, loss = 0.5 (1 s)\nnoise\nstep = 20, loss = nan\n", "log.txt")
    curve = read_loss_curve(log, regex=r"step = (?P<step>\d+), loss = (?P<loss>\S+)")
    assert curve.steps.tolist() == [10, 20]
    np.testing.assert_array_equal(curve.values, [0.5, np.nan])
    assert read_loss_curve(log, regex=r"loss = (\S+)").steps.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "how", "error", "words"),
    [
        ("", {}, DataError, "is empty"),
        ("step,loss\n1,0.5\n2,oops\n", {}, DataError, "line 3: oops is no number"),
        ("step,loss\n1.5,0.5\n", {}, DataError, "line 2: the step 1.5"),
        ("step,a,b\n1,2,3\n", {}, UsageError, r"several curves \(a, b\)"),
        ("step,a,b\n1,2,3\n", {"name": "c"}, UsageError, "no curves are called c"),
        ("1,2,3\n", {}, DataError, "3 columns without a header"),
        ('{"loss": [1, 2', {}, DataError, "is no JSON"),
        ('{"loss": 1}\n{"loss"\n', {}, DataError, "line 2 is no JSON"),
        ("[" * 100_000, {}, DataError, "nested too deeply|is no JSON"),
        ('{"loss": ["a", true]}', {}, DataError, "no curve of numbers"),
        ("loss 1\n", {"regex": "("}, UsageError, "--regex"),
        ("loss 1\n", {"regex": "loss"}, UsageError, "has no group"),
        ("loss 1\n", {"regex": r"(?P<step>\d)"}, UsageError, "has a step and no value"),
        ("loss x\n", {"regex": r"loss (\S)"}, DataError, "line 1: x is no number"),
        ("nothing\n", {"regex": r"loss (\S)"}, DataError, "no line matches"),
    ],
)
def test_bad_input_is_one_line(tmp_path, text, how, error, words):
    with pytest.raises(error, match=words) as caught:
        read_loss_curve(write(tmp_path, text), **how)
    assert "\n" not in str(caught.value)


def test_no_file_and_no_regular_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.csv", tmp_path / "pipe", tmp_path):
        with pytest.raises(DataError):
            read_loss_curve(path)

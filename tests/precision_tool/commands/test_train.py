"""``train``: a saved step runs again on both sides; overflow records of the device are what ``ac`` shows."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys
import numpy as np, tensorflow as tf
import precision_tool.tf_config as npu_tf_config
from precision_tool.tf_session import PrecisionTfSession
tf1 = tf.compat.v1
tf1.disable_eager_execution()
resource = sys.argv[1] == "resource"
x = tf1.placeholder(tf.float32, [None, 3], name="in/x")
tf1.placeholder(tf.float32, [None], name="weights")  # nothing needs it
w = tf1.get_variable("w", initializer=np.float32([[0.1], [0.2], [0.3]]), use_resource=resource)
b = tf1.get_variable("b", [1], initializer=tf1.random_uniform_initializer(-1, 1, seed=4), use_resource=resource)
rate = tf.constant(0.5, name="dropout/rate")
kept = tf.multiply(tf.matmul(x, w) + b, 1 - rate, name="kept")
loss = tf.reduce_mean(tf.square(kept), name="loss")
train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
with PrecisionTfSession() as session:
    session.run(tf1.global_variables_initializer())
    for step in range(3):
        session.run(train, {x: np.arange(12, dtype=np.float32).reshape(4, 3) + step})
"""


def save_step(root: Path, resource: str = "resource", script: str = SCRIPT) -> None:
    environment = dict(os.environ, ROOT_DIR=str(root), PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="3")
    words = [sys.executable, "-c", script, resource]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def extracted(root: Path) -> dict[str, np.ndarray]:
    folder = root / "precision_data/tf/dump"
    with open(folder / "index.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    names = {line[next(key for key in line if "file" in key.lower())]: line for line in lines}
    return {Path(name).name: np.load(folder / name, allow_pickle=False) for name in names if name}


@pytest.mark.parametrize("resource", ["resource", "reference"])
def test_both_sides_compute_the_saved_step(ask, tmp_path, monkeypatch, resource):
    """The values are those of NumPy from the saved files: dropout off, the last step's inputs and weights."""
    import tensorflow as tf

    monkeypatch.setenv("TF_DUMP_STEP", "7")  # the step of a training says nothing about the one that is replayed
    save_step(tmp_path, resource)
    result = ask("train", tmp_path)
    assert result.data["devices"]["cpu"]["files"] > 10
    assert result.data["devices"]["npu"]["files"] > 5
    assert result.data["random_inputs"] == []
    assert "dropout/rate: set to 0" in result.notes
    checkpoint = str(tmp_path / "precision_data/tf/checkpoints/ckpt")
    assert result.data["checkpoint"] == checkpoint
    w, b = (tf.train.load_variable(checkpoint, name) for name in "wb")
    x = np.load(tmp_path / "precision_data/tf/checkpoints/input/in_x_0.npy")
    assert x.tobytes() == (np.arange(12, dtype=np.float32).reshape(4, 3) + 2).tobytes()
    (kept,) = [value for name, value in extracted(tmp_path).items() if name.startswith("kept.0.")]
    expected = x.astype(np.float64) @ w.astype(np.float64) + b
    np.testing.assert_allclose(kept, expected, rtol=1e-5)
    compared = ask("vc", tmp_path)
    assert compared.exit_code == 0, compared
    assert ask("verdict", tmp_path).exit_code == 0


def test_one_side_and_missing_inputs(ask, tmp_path):
    save_step(tmp_path)
    os.unlink(tmp_path / "precision_data/tf/checkpoints/input/in_x_0.npy")
    first = ask("train -d cpu", tmp_path)
    assert list(first.data["devices"]) == ["cpu"]
    assert first.data["random_inputs"] == ["in/x:0"]
    assert [note for note in first.notes if note.startswith("in/x:0: no saved input")]
    values = {name.rsplit(".", 2)[0]: value.tobytes() for name, value in extracted(tmp_path).items()}
    ask("train -d cpu", tmp_path)
    again = {name.rsplit(".", 2)[0]: value.tobytes() for name, value in extracted(tmp_path).items()}
    assert values == again
    only = ask("train -d npu -a 'dump|fusion_off'", tmp_path)
    assert list(only.data["devices"]) == ["npu"]
    nothing = ask("train -d npu -a fusion_off", tmp_path)
    assert nothing.data["devices"]["npu"] == {"files": 0, "directory": None}
    assert any("dump|fusion_off" in note for note in nothing.notes)


def test_overflows_are_shown_by_ac(ask, tmp_path):
    save_step(tmp_path)
    np.save(tmp_path / "precision_data/tf/checkpoints/input/in_x_0.npy", np.full((4, 3), 1e25, np.float32))
    result = ask("train -d npu -a overflow", tmp_path)
    assert result.data["overflows"] >= 1
    shown = ask("ac -l 1", tmp_path)
    lines = [line for block in shown.blocks for line in getattr(block, "lines", ())]
    assert any("floating-point overflow" in line for line in lines), lines
    (title,) = [block.title for block in shown.blocks if block.title.startswith("Overflow: ")]
    assert "Opdebug.Node_OpDebug" in title


def test_without_an_overflow_nothing_is_reported(ask, tmp_path):
    save_step(tmp_path)
    result = ask("train -d npu -a overflow", tmp_path)
    assert result.data["overflows"] == 0


def test_what_cannot_be_replayed(ask, tmp_path):
    folder = tmp_path / "precision_data/tf/checkpoints"
    with pytest.raises(DataError, match="PrecisionTfSession"):
        ask("train", tmp_path)
    with pytest.raises(UsageError, match="dmup"):
        ask("train -a dmup", tmp_path)
    save_step(tmp_path)
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def fails(path, content, match):
        path.write_bytes(content)
        with pytest.raises(DataError, match=match):
            ask("train -d cpu", tmp_path)
        path.write_bytes(whole[path])

    data, meta, saved = folder / "ckpt.data-00000-of-00001", folder / "ckpt.meta", folder / "input/in_x_0.npy"
    fails(data, whole[data][:3], "ckpt: cannot be restored")
    fails(data, bytes(len(whole[data])), "ckpt: cannot be restored")
    fails(meta, whole[meta][:100], "ckpt.meta")
    fails(saved, b"no npy", "in_x_0.npy: cannot be read")
    np.save(saved, np.ones((4, 2), np.float32))
    with pytest.raises(DataError, match=r"shape \[4, 2\]"):
        ask("train -d cpu", tmp_path)
    np.save(saved, np.ones((4, 3), np.int32))
    with pytest.raises(DataError, match="int32"):
        ask("train -d cpu", tmp_path)


def test_a_graph_without_a_training_op(ask, tmp_path):
    save_step(
        tmp_path, script=SCRIPT.replace("with Prec", "tf1.get_default_graph().clear_collection('train_op')\nwith Prec")
    )
    with pytest.raises(DataError, match="train_op"):
        ask("train", tmp_path)

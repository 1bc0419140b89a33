"""``dump --guard`` as a user types it: a script, a module, ladders, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys
import numpy as np, tensorflow as tf
import precision_tool.tf_config as hooks
tf1 = tf.compat.v1
tf1.disable_eager_execution()  # after the import that sets the seeds, as people write it
x = tf1.placeholder(tf.float32, [None, 3], name="x")
weight = tf1.get_variable("weight", [3, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(x, weight)), name="loss")
train = tf1.train.AdamOptimizer(0.1).minimize(loss)
config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
config.graph_options.rewrite_options.disable_meta_optimizer = True
with hooks.sess_dump(tf1.Session(config=config)) as session:
    session.run(tf1.global_variables_initializer())
    for step in range(3):
        session.run([loss, train], {x: np.full((4, 3), float(sys.argv[1]), np.float32)})
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def typed(here):
    def typed(*words, program=(str(ROOT / "cli.py"),), **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TF_DUMP_")}
        settings = {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **environment}
        command = [sys.executable, *program, *words]
        return subprocess.run(command, cwd=here, env=settings, capture_output=True, text=True, timeout=300, check=False)

    return typed


@pytest.fixture(scope="module")
def ladders(here, typed):
    """Recorded by hand: the last one trains on other data."""
    pytest.importorskip("tensorflow")
    for name, value, plain in (("plain", "1", "True"), ("recorded", "1", ""), ("other", "2", "")):
        settings = {"TF_DUMP_GUARD": str(here / name), "TF_DUMP_GUARD_PLAIN": plain, "ROOT_DIR": str(here / "records")}
        assert typed(value, program=["job.py"], **settings).returncode == 0
    return here


@pytest.mark.parametrize("words", [["job.py", "1"], ["-m", "job", "1"]])
def test_a_script_and_a_module_are_proved(typed, here, words):
    pytest.importorskip("tensorflow")
    done = typed("dump", "--steps", "1-2", "--guard", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("proved: recording changed no bit")
    assert "3 steps, 2 of them recorded" in done.stdout
    assert not (here / "precision_data").exists()


def test_ladders(typed, ladders):
    done = typed("--json", "dump", "--guard", "plain", "recorded")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["compared"]["recorded"] == 1
    done = typed("--json", "dump", "--guard", "plain", "other", "plain")
    assert done.returncode == 1
    found = json.loads(done.stdout)["result"]
    assert (found["cause"], found["step"]) == ("input", 0)
    assert [moved["name"] for moved in found["moved"] if moved["kind"] == "fed"] == ["x:0"]
    assert "what is fed differs: x:0" in typed("dump", "--guard", "plain", "other", "plain").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plain"], 2, "of a plain run and of a recorded one"),
        (["plain", "recorded", "plain", "plain"], 2, "of a plain run and of a recorded one"),
        (["--plan", "job.py"], 2, "do not go with --guard"),
        (["--out", "names.txt", "job.py"], 2, "do not go with --guard"),
        ([], 2, "give the training script"),
        (["nowhere.py"], 2, "no such script"),
        (["recorded", "plain"], 3, "TF_DUMP_GUARD_PLAIN"),
        (["plain", "records"], 3, "sess_dump"),
    ],
)
def test_mistakes(typed, ladders, words, code, said):
    done = typed("dump", "--guard", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr

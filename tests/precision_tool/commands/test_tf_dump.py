"""``tf_dump``: from the raw record to one npy a tensor."""

from __future__ import annotations

import sys

import pytest

from dumpers.errors import DataError

RECORD = """
import sys
sys.path.insert(0, {root!r})
import os; os.environ["ROOT_DIR"] = {place!r}
import numpy as np, tensorflow as tf
tf.compat.v1.disable_eager_execution()
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from pathlib import Path
v = tf.compat.v1.get_variable("v", initializer=np.float32([1, 2]), use_resource=True)
update = v.assign_add(tf.constant([1.0, 1.0]) * 2.0)
with tf.compat.v1.Session() as plain:
    sess = record_session(plain, Path({place!r}) / "precision_data/tf/tf_debug", parse_steps(""))
    sess.run(tf.compat.v1.global_variables_initializer())
    sess.run(update)
    sess.close()
"""


@pytest.fixture
def script(tmp_path, project_root):  # type: ignore[no-untyped-def]
    path = tmp_path / "train.py"
    path.write_text(RECORD.format(root=str(project_root), place=str(tmp_path)))
    return path


def test_nothing_recorded(tmp_path, ask) -> None:
    with pytest.raises(DataError, match="tf_debug"):
        ask("tf_dump", tmp_path)


def test_command_that_records_nothing(tmp_path, ask) -> None:
    with pytest.raises(DataError, match=r"still empty after 'exit 3' \(exit code 3\)"):
        ask("tf_dump 'exit 3'", tmp_path)


def test_command_is_run_and_its_record_extracted(script, tmp_path, ask) -> None:
    result = ask(f"tf_dump '{sys.executable} {script}'", tmp_path)
    folder = tmp_path / "precision_data/tf/dump"
    assert result.data["tensors"] == len(list(folder.glob("*.npy"))) > 0
    assert result.files == (folder / "index.csv",)
    again = ask("tf_dump 'touch never'", tmp_path)  # there is a record now: the command is not run
    assert again.data["tensors"] == result.data["tensors"]
    assert not (tmp_path / "never").exists()


def test_all_runs(script, tmp_path, ask) -> None:
    one = ask(f"tf_dump '{sys.executable} {script}'", tmp_path)
    every = ask("tf_dump --all-runs", tmp_path)
    assert every.data["steps"] == [one.data["step"]]
    assert every.data["tensors"] == one.data["tensors"]
    assert f"1 steps ({one.data['step']})" in every.title

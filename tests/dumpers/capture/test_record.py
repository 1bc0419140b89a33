"""Disk trouble: training goes on, one warning, the record says what is missing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from dumpers.capture import arrays, pack
from dumpers.capture import record as record_module
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


def _after(count, action, counts):
    """Lets the action succeed so many times, then reports a full disk."""
    done = []

    def limited(*given):
        if counts(*given):
            if len(done) >= count:
                raise OSError(errno.ENOSPC, "No space left on device")
            done.append(given)
        action(*given)

    return limited


@pytest.mark.parametrize("layout", ["pack", "npy"])
def test_full_disk(tmp_path, click_model, config, manifests, values, monkeypatch, capsys, layout):
    model = click_model(True)
    if layout == "npy":
        limited = _after(5, arrays.write_whole, lambda path, content: path.suffix == ".npy")
        monkeypatch.setattr(arrays, "write_whole", limited)
    else:
        monkeypatch.setattr(pack, "GROUP_BYTES", 64)
        monkeypatch.setattr(record_module, "write_group", _after(5, pack.write_group, lambda *given: True))
    with tf1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        expected = [session.run([model.loss, model.train], batch)[0] for batch in model.batches]
    with record_session(
        tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0-2"), keep=layout
    ) as session:
        session.run(model.init)
        assert [session.run([model.loss, model.train], batch)[0] for batch in model.batches] == expected
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text]
    assert "No space left on device" in line
    assert str(tmp_path) in line
    assert "bytes needed" in line
    assert "bytes free" in line
    records = manifests(tmp_path)
    assert len(records) == 3
    for record in records:
        assert not record["complete"]
        assert "No space left" in record["reason"]
        values(record)
        if layout == "npy":
            files = {t["file"] for t in record["tensors"] if t["file"]}
            assert {"tensors/" + p.name for p in (record["path"] / "tensors").iterdir()} == files
        lost = [t for t in record["tensors"] if not t["file"] and t["dtype"] != "resource"]
        assert lost
        assert all("not written" in t["note"] for t in lost)


def test_real_limit_of_the_file_size(tmp_path, values):
    """The operating system itself refuses: a file may have 64 KiB, a tensor of the step has 1 MiB."""
    pytest.importorskip("resource")
    script = textwrap.dedent(
        """
        import resource, sys
        import numpy as np, tensorflow as tf
        from pathlib import Path
        from dumpers.capture.session import record_session
        from dumpers.capture.steps import parse_steps
        tf1 = tf.compat.v1
        tf1.disable_eager_execution()
        v = tf1.get_variable("v", initializer=np.ones([512, 512], "f4"), use_resource=True)
        loss = tf.reduce_sum(v * v)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with record_session(tf1.Session(), Path(sys.argv[1]), parse_steps("0")) as session:
            session.run(tf1.global_variables_initializer())
            resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
            for _ in range(3):
                print(session.run([loss, train])[0])
        """
    )
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", script, str(tmp_path)]
    run = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)  # noqa: UP022
    err = run.stderr.decode()
    assert run.returncode == 0, err
    losses = [float(line) for line in run.stdout.decode().split()]
    assert np.allclose(losses, [262144.0, 262144 * 0.64, 262144 * 0.64**2], rtol=1e-4)
    assert err.count("could not be recorded completely") == 1
    assert "File too large" in err
    (folder,) = tmp_path.iterdir()
    record = dict(json.loads((folder / "record.json").read_text()), path=folder)
    assert not record["complete"]
    values(record)
    assert not list(folder.rglob("*.part"))


def test_a_folder_that_cannot_be_made(tmp_path, click_model, config, capsys):
    model = click_model(True)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with record_session(tf1.Session(graph=model.graph, config=config()), blocked / "tf", parse_steps("")) as session:
        session.run(model.init)
        for batch in model.batches[:2]:
            assert session.run([model.loss, model.train], batch)[0] > 0
    assert capsys.readouterr().err.count("training goes on") == 1


def test_a_new_run_gets_a_folder_of_its_own(tmp_path, click_model, config, manifests):
    model = click_model(True)
    for _ in range(2):
        with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
            session.run(model.init)
            session.run(model.train, model.batches[0])
    assert len(manifests(tmp_path)) == 2
    assert oct((tmp_path / manifests(tmp_path)[0]["path"]).stat().st_mode & 0o777) == "0o700"


def test_the_graph_is_in_the_record(tmp_path, click_model, config, manifests):
    model = click_model(True)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        session.run(model.train, model.batches[0])
    (record,) = manifests(tmp_path)
    definition = tf1.GraphDef.FromString((record["path"] / record["graph"]).read_bytes())
    assert [node.name for node in definition.node] == [op.name for op in model.graph.get_operations()]
    assert "_output_shapes" in definition.node[0].attr


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)  # noqa: UP022
    except OSError:
        pytest.skip("no mount program")
    if done.returncode:
        pytest.skip("mounting a small file system is not permitted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_file_system_of_256_kib(tiny_disk, config, manifests, values, capsys):
    """FC05 (a): 1 MiB of tensors; small ones and the manifest still fit."""
    graph = tf.Graph()
    with graph.as_default():
        variables = [tf1.get_variable(f"v{n}", initializer=np.ones([64, 256], "f4")) for n in range(16)]
        loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf1.global_variables_initializer()
    with record_session(tf1.Session(graph=graph, config=config()), tiny_disk, parse_steps("")) as session:
        session.run(init)
        losses = [session.run([loss, train])[0] for _ in range(3)]
    assert np.allclose(losses, [262144.0, 262144 * 0.64, 262144 * 0.64**2], rtol=1e-4)
    err = capsys.readouterr().err
    assert err.count("training goes on") == 1
    assert str(tiny_disk) in err
    record = manifests(tiny_disk)[0]
    assert not record["complete"]
    assert "No space left" in record["reason"]
    values(record)

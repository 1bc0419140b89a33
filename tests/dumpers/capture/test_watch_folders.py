"""The debugger's folders: one from step to step, empty in between, and none left of a killed process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import pytest

from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from dumpers.capture.watch_folders import OWNER, PREFIX, WatchFolders, remove_leftovers

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


def folders_in(place):
    return sorted(path.name for path in place.glob(PREFIX + "*"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_steps_share_a_folder_that_is_empty_between_them(tmp_path, place, click_model, config, manifests):
    model = click_model(False)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path / "rec", parse_steps("")) as session:
        session.run(model.init)
        seen = []
        for batch in model.batches[:3]:
            session.run(model.train, batch)
            seen.append([(path.name, os.listdir(str(path))) for path in place.iterdir()])
    assert len(seen[0]) == 1
    assert seen[0][0][1] == [OWNER]
    assert seen[1] == seen[2] == seen[0]
    assert all(record["complete"] for record in manifests(tmp_path / "rec"))
    del session
    gc.collect()
    assert not os.listdir(str(place))


@pytest.mark.parametrize("repeats", [3])
def test_no_value_of_a_step_before_is_taken_for_one_of_this_step(tmp_path, place, config, manifests, values, repeats):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        v = tf1.get_variable("v", initializer=1.0, use_resource=False)
        kept = tf1.control_flow_v2_enabled()
        tf1.disable_control_flow_v2()
        chosen = tf1.cond(x > 0, lambda: tf.multiply(x, 2.0, name="yes"), lambda: tf.multiply(x, 3.0, name="no"))
        if kept:
            tf1.enable_control_flow_v2()
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(v * chosen)
        init = tf1.global_variables_initializer()
    fed = [1.0, -1.0] * repeats
    with record_session(tf1.Session(graph=graph, config=config()), tmp_path / "rec", parse_steps("")) as session:
        session.run(init)
        before = []
        for value in fed:
            before.append(float(session.run(v)))
            session.run(train, {x: value})
    records = manifests(tmp_path / "rec")
    assert len(records) == len(fed)
    for record, value, start in zip(records, fed, before):  # noqa: B905
        found = values(record)
        assert ("cond/yes:0" in found, "cond/no:0" in found) == (value > 0, value < 0)
        assert found["v:0"] == np.float32(start)


def test_two_steps_at_once_have_two_folders_and_later_ones_the_same(place):
    pool = WatchFolders()
    one, two = pool.take(), pool.take()
    assert one.path != two.path
    (one.path / "_tfdbg_device").mkdir()
    (one.path / "_tfdbg_device" / "stale").write_text("of this step")
    pool.give_back(one)
    pool.give_back(two)
    again = pool.take(), pool.take()
    assert {folder.path for folder in again} == {one.path, two.path}
    assert all(os.listdir(str(folder.path)) == [OWNER] for folder in again)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    assert pool.take(str(elsewhere)).path.parent == elsewhere


def test_a_folder_that_somebody_removed_is_not_used_again(place):
    pool = WatchFolders()
    first = pool.take()
    pool.give_back(first)
    (first.path / OWNER).unlink()
    first.path.rmdir()
    second = pool.take()
    assert second.path.is_dir()
    assert os.listdir(str(second.path)) == [OWNER]


CHILD = textwrap.dedent(
    """
    import sys, tempfile
    tempfile.tempdir = sys.argv[1]
    from dumpers.capture.watch_folders import WatchFolders
    pool = WatchFolders()
    folder = pool.take()
    (folder.path / "_tfdbg_device").mkdir()
    (folder.path / "_tfdbg_device" / "value").write_text("x")
    idle = pool.take()
    pool.give_back(idle)
    print(folder.path.name, flush=True)
    sys.stdin.read()
    """
)


def start_child(place):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    return child, child.stdout.readline().decode().strip()


@pytest.mark.skipif(not os.path.exists("/proc/sys/kernel/random/boot_id"), reason="needs Linux")
def test_only_what_killed_processes_left_is_removed(place):
    live, live_name = start_child(place)
    live_folders = set(folders_in(place))
    dead, dead_name = start_child(place)
    dead_folders = set(folders_in(place)) - live_folders
    assert (live_name in live_folders, dead_name in dead_folders) == (True, True)
    assert len(live_folders) == len(dead_folders) == 2
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert dead_folders <= set(folders_in(place))

    target = place / "of_somebody"
    target.mkdir()
    (target / OWNER).write_bytes((place / dead_name / OWNER).read_bytes())
    (place / (PREFIX + "link")).symlink_to(target)
    foreign = place / (PREFIX + "other_machine")
    foreign.mkdir()
    (foreign / OWNER).write_text("another boot")
    linked = place / (PREFIX + "owner_is_a_link")
    linked.mkdir()
    (linked / OWNER).symlink_to(target / OWNER)
    unknown = place / (PREFIX + "without_owner")
    unknown.mkdir()
    (unknown / "file").write_text("x")
    (place / (PREFIX + "killed_at_once")).mkdir()
    (place / (PREFIX + "file")).write_text("x")
    (place / dead_name / "_tfdbg_device" / "out").symlink_to(target)

    remove_leftovers(str(place))
    kept = {PREFIX + end for end in ("link", "other_machine", "owner_is_a_link", "without_owner", "file")}
    assert set(folders_in(place)) == live_folders | kept
    assert (target / OWNER).exists()
    live.communicate()  # ends by itself: what it does not use any more goes with it
    assert set(folders_in(place)) == {live_name} | kept


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_leaves_its_parents_folders(place):
    pool = WatchFolders()
    mine, idle = pool.take(), pool.take()
    pool.give_back(idle)
    child = os.fork()
    if not child:
        code = 1
        try:
            other = pool.take()
            code = 0 if other.path not in (mine.path, idle.path) else 2
            mine.remove()
            pool.give_back(other)
            pool._end()  # what the end of the process calls
            code = code or (3 if other.path.exists() else 0)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert folders_in(place) == sorted([mine.path.name, idle.path.name])
    assert pool.take().path == idle.path

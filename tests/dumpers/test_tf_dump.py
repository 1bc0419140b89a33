"""tf_dump: which record it takes, names that collide or are too long, and what happens to a folder that is there."""

from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from dumpers.capture.plan import How, Taken
from dumpers.capture.record import FORMAT, GraphFile, Item, RunRecord
from dumpers.capture.talk import SayOnce
from dumpers.capture.worker import BoundedWorker
from dumpers.errors import DataError
from dumpers.formats.registry import read_dump
from dumpers.formats.schema import tf_message
from dumpers.tf_dump import extract, recorded_runs
from dumpers.workspace import Workspace


def make_record(workspace, tensors, *, start_us=1000, run=1, step=0, reason="", layout="pack"):
    """Writes a raw record with our own writer; ``tensors`` is ``[(op, array), ...]``."""
    header = {"format": FORMAT, "run": run, "step": step, "start_us": start_us, "graph": None, "fetches": []}
    record = RunRecord(workspace.tf_debug, header, SayOnce(), layout)
    items = []
    for moment, (op, array) in enumerate(tensors):
        taken = Taken(f"{op}:0", op, 0, "Const", "resource" if array is None else "", None, moment, How.FETCH)
        if array is None:
            items.append(Item(taken, start_us + moment, None, "resource", "no value: resource"))
        else:
            items.append(Item(taken, start_us + moment, np.asarray(array), array.dtype.name))
    worker = BoundedWorker()
    record.submit(worker, GraphFile(b""), items, reason)
    worker.flush()
    return record.folder


def index_rows(workspace):
    with open(workspace.tf_dump / "index.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path / "precision_data")


def test_names_values_and_index(workspace):
    make_record(
        workspace,
        [("net/w", np.float32([[1, 2]])), ("a.b/c", np.int64(3)), ("handle", None)],
        start_us=5_000_000,
        step=4,
    )
    report = extract(workspace)
    assert sorted(os.listdir(workspace.tf_dump)) == ["a.b_c.0.5000001.npy", "index.csv", "net_w.0.5000000.npy"]
    assert np.load(workspace.tf_dump / "net_w.0.5000000.npy").tolist() == [[1, 2]]
    assert index_rows(workspace)[0] == {
        "file": "net_w.0.5000000.npy", "op": "net/w", "output": "0", "op_type": "Const", "step": "4",
        "timestamp_us": "5000000", "dtype": "float32", "shape": "(1, 2)", "note": "",
    }  # fmt: skip
    assert report.step == 4
    assert len(report.files) == 3
    assert report.skipped == (("handle:0", "no value: resource"),)
    dump = read_dump(workspace.tf_dump)
    assert [(r.op, r.step) for r in dump] == [("net/w", 4), ("a.b/c", 4), ("handle", 4)]
    assert dump.records[1].load() == 3
    assert not dump.problems


def test_long_and_colliding_names_never_share_a_file(workspace):
    """FC02."""
    ops = ["n" * length for length in (200, 221, 230, 255, 300)]
    ops += ["ä" * 150, "ä" * 149 + "b", "scope/" + "m" * 260, "scope/" + "m" * 259 + "x"]
    ops += ["tower/out", "tower_out", "Tower/x", "tower/x"]
    make_record(workspace, [(op, np.float32([number])) for number, op in enumerate(ops)])
    report = extract(workspace)
    rows = index_rows(workspace)
    assert [row["op"] for row in rows] == ops
    files = [row["file"] for row in rows]
    assert len({file.casefold() for file in files}) == len(ops)
    assert all(len(file.encode()) <= 255 for file in files)
    for number, file in enumerate(files):
        assert np.load(workspace.tf_dump / file).tolist() == [number]
    assert len(report.files) == len(ops) + 1
    assert [(r.op, r.load().tolist()) for r in read_dump(workspace.tf_dump)] == [
        (op, [number]) for number, op in enumerate(ops)
    ]


def test_names_that_collide_at_the_same_moment(workspace):
    folder = make_record(workspace, [(op, np.float32([n])) for n, op in enumerate(("Tower/x", "tower_x", "tower/x"))])
    manifest = json.loads((folder / "record.json").read_text())
    for entry in manifest["tensors"]:
        entry["timestamp_us"] = 7
    (folder / "record.json").write_text(json.dumps(manifest))
    extract(workspace)
    rows = {row["op"]: row["file"] for row in index_rows(workspace)}
    assert len({file.casefold() for file in rows.values()}) == 3
    for number, op in enumerate(("Tower/x", "tower_x", "tower/x")):
        assert np.load(workspace.tf_dump / rows[op]).tolist() == [number]
        assert rows[op].endswith(".0.7.npy")


def test_the_newest_complete_record_by_number(workspace):
    make_record(workspace, [("a", np.float32(1))], start_us=900, run=9, step=0)
    make_record(workspace, [("a", np.float32(2))], start_us=1000, run=10, step=1)
    broken = make_record(workspace, [("a", np.float32(3))], start_us=1100, run=11, step=2, reason="disk full")
    cut_off = make_record(workspace, [("a", np.float32(4))], start_us=1200, run=12, step=3)
    (cut_off / "record.json").unlink()
    assert [path.name for path in recorded_runs(workspace.tf_debug)] == [
        "run_1200_12", "run_1100_11", "run_1000_10", "run_900_9",
    ]  # fmt: skip
    report = extract(workspace)
    assert report.step == 1
    assert len(report.notes) == 2
    assert str(cut_off) in report.notes[0]
    assert str(broken) in report.notes[1]
    assert "disk full" in report.notes[1]
    assert extract(workspace, allow_incomplete=True).step == 2


@pytest.mark.parametrize("make", [lambda w: None, lambda w: w.tf_debug.mkdir(parents=True)])
def test_nothing_recorded(workspace, make):
    make(workspace)
    with pytest.raises(DataError, match=r"tf_debug: no recorded run; train with"):
        extract(workspace)


def test_only_incomplete_records(workspace):
    make_record(workspace, [("a", np.float32(3))], reason="disk full")
    with pytest.raises(DataError, match=r"1 runs, no complete training step.*disk full"):
        extract(workspace)
    assert not workspace.tf_dump.exists()


def test_a_second_extraction_replaces_the_first(workspace):
    make_record(workspace, [("a", np.float32(1)), ("b", np.float32(1))], start_us=1000)
    extract(workspace)
    make_record(workspace, [("a", np.float32(2))], start_us=2000)
    report = extract(workspace)
    assert sorted(os.listdir(workspace.tf_dump)) == ["a.0.2000.npy", "index.csv"]
    assert os.listdir(workspace.tf_dump.parent).count("dump") == 1
    assert report.notes == ()
    assert sorted(p.name for p in workspace.tf_dump.parent.iterdir()) == ["dump", "tf_debug"]


def test_foreign_files_are_moved_aside(workspace):
    make_record(workspace, [("a", np.float32(1))])
    extract(workspace)
    (workspace.tf_dump / "mine.npy").write_bytes(b"precious")
    report = extract(workspace)
    (note,) = report.notes
    assert "mine.npy" in note
    (aside,) = workspace.tf_dump.parent.glob("dump_before_*")
    assert str(aside) in note
    assert (aside / "mine.npy").read_bytes() == b"precious"
    assert not (workspace.tf_dump / "mine.npy").exists()


def test_a_link_to_a_users_folder_is_not_written_through(workspace, tmp_path):
    make_record(workspace, [("a", np.float32(1))])
    users = tmp_path / "users"
    users.mkdir()
    (users / "x.0.1.npy").write_bytes(b"precious")
    workspace.tf_dump.symlink_to(users, target_is_directory=True)
    extract(workspace)
    assert sorted(os.listdir(users)) == ["x.0.1.npy"]
    assert not workspace.tf_dump.is_symlink()


def test_a_failed_extraction_keeps_the_former_content(workspace, monkeypatch):
    make_record(workspace, [("a", np.float32(1))], start_us=1000)
    extract(workspace)
    make_record(workspace, [("a", np.float32(2))], start_us=2000, layout="npy")

    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(DataError, match="No space left on device"):
        extract(workspace)
    assert sorted(os.listdir(workspace.tf_dump)) == ["a.0.1000.npy", "index.csv"]
    assert sorted(p.name for p in workspace.tf_dump.parent.iterdir()) == ["dump", "tf_debug"]


def test_copies_where_links_are_not_possible(workspace, monkeypatch):
    make_record(workspace, [("a", np.float32([1, 2]))], layout="npy")

    def refuse(*_args):
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    extract(workspace)
    (file,) = workspace.tf_dump.glob("*.npy")
    assert np.load(file).tolist() == [1, 2]
    assert file.stat().st_nlink == 1


@pytest.mark.parametrize(
    ("layout", "name", "reason"), [("npy", "tensors/000000.npy", "cut short"), ("pack", "tensors.0.pack", "not (all)")]
)
def test_a_damaged_tensor_spoils_only_itself(workspace, layout, name, reason):
    tensors = [("a", np.arange(100.0)), ("b", np.float32(1))]
    folder = make_record(workspace, tensors if layout == "npy" else tensors[::-1], layout=layout)
    victim = folder / name
    victim.write_bytes(victim.read_bytes()[:-50])
    report = extract(workspace)
    assert [name for name, _ in report.skipped] == ["a:0"]
    assert reason in report.skipped[0][1]
    assert {row["op"]: row["file"] != "" for row in index_rows(workspace)} == {"a": False, "b": True}


class TestTensorFlowsOwnRuns:
    """Run directories that TensorFlow's dumping wrapper wrote."""

    @pytest.fixture
    def stock(self, workspace):
        tf = pytest.importorskip("tensorflow")
        from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

        tf1 = tf.compat.v1
        graph = tf.Graph()
        with graph.as_default():
            x = tf1.placeholder(tf.float32, [2], name="net/x")
            text = tf.constant([b"a", b"bc"], name="text")
            v = tf1.get_variable("v", initializer=np.float32([1, 2]), use_resource=False)
            loss = tf.reduce_sum(v * x * tf.cast(tf.size(text), tf.float32), name="loss")
            train = tf1.train.GradientDescentOptimizer(0.5).minimize(loss)
            init = tf1.global_variables_initializer()
        config = tf1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        workspace.tf_debug.mkdir(parents=True)
        with tf1.Session(graph=graph, config=config) as session:
            wrapped = DumpingDebugWrapperSession(session, session_root=str(workspace.tf_debug))

            def run(what):
                feeds = {x: [3, 4]} if what != "init" else {}
                wrapped.run({"init": init, "loss": loss, "train": [train, loss, text]}[what], feeds)

            yield run

    def test_the_last_training_run_is_taken(self, workspace, stock):
        for what in ("init", "loss", "train", "train", "loss"):
            stock(what)
        report = extract(workspace)
        assert report.record == recorded_runs(workspace.tf_debug)[1]
        found = {r.op: r for r in read_dump(workspace.tf_dump)}
        assert found["v"].load().tolist() == [1 - 0.5 * 2 * 3, 2 - 0.5 * 2 * 4]
        assert found["net/x"].load().tolist() == [3, 4]
        assert found["net/x"].note == "fed"
        assert found["text"].load().tolist() == [b"a", b"bc"]
        assert {path.name.rsplit(".", 3)[0] for path in Path(workspace.tf_dump).glob("*.npy")} >= {"v", "net_x", "loss"}

    def test_without_a_training_run_it_is_refused(self, workspace, stock):
        for what in ("init", "loss"):
            stock(what)
        with pytest.raises(DataError, match="none of them trains"):
            extract(workspace)


def make_tfdbg_run(workspace, name, values, global_step):
    """Writes a run directory as TensorFlow's debugger does."""
    run = workspace.tf_debug / name
    device = run / "_tfdbg_device_,job_localhost"
    device.mkdir(parents=True)
    core = tf_message("Event")
    core.log_message.message = json.dumps({"global_step": global_step}).encode()
    (run / "_tfdbg_core_metadata_sessionrun00000000000001_5").write_bytes(core.SerializeToString())
    for op, value in values.items():
        event = tf_message("Event")
        tensor = event.summary.value.add(node_name=f"{op}:0:DebugIdentity".encode()).tensor
        tensor.dtype, tensor.tensor_content = 1, np.float32(value).tobytes()
        (device / f"{op}_0_DebugIdentity_{int(value)}").write_bytes(event.SerializeToString())


@pytest.mark.parametrize(("given", "steps"), [((30, 31), [30, 31]), ((-1, -1), [0, 1])])
def test_all_runs_of_the_debugger(workspace, given, steps):
    make_tfdbg_run(workspace, "run_1000_0", {"a": 5.0, "_arg_x_0_1": 7.0}, given[0])
    make_tfdbg_run(workspace, "run_2000_1", {"a": 6.0}, given[1])
    report = extract(workspace, all_runs=True)
    assert (report.step, report.steps, report.record) == (None, tuple(steps), workspace.tf_debug)
    assert [(row["file"], row["op"], row["step"]) for row in index_rows(workspace)] == [
        ("a.0.5.npy", "a", str(steps[0])),
        ("x.0.7.npy", "x", str(steps[0])),
        ("a.0.6.npy", "a", str(steps[1])),
    ]
    assert np.load(workspace.tf_dump / "a.0.6.npy") == 6
    assert extract(workspace).steps == ()  # the default stays the last training run
    assert [row["op"] for row in index_rows(workspace)] == ["a"]


def test_all_runs_take_our_own_records_too_and_name_what_is_passed_over(workspace):
    make_record(workspace, [("a", np.float32(1))], start_us=1000, run=1, step=3)
    make_record(workspace, [("a", np.float32(2))], start_us=2000, run=2, step=4)
    make_tfdbg_run(workspace, "run_3000_3", {"b": 9.0}, 5)
    (workspace.tf_debug / "run_4000_4").mkdir()
    report = extract(workspace, all_runs=True)
    assert report.steps == (3, 4, 5)
    assert [(row["op"], row["step"]) for row in index_rows(workspace)] == [("a", "3"), ("a", "4"), ("b", "5")]
    assert len(report.files) == 4
    assert any("run_4000_4" in note and note.startswith("passed over") for note in report.notes)


def test_all_runs_of_an_empty_folder(workspace):
    with pytest.raises(DataError, match="no recorded run"):
        extract(workspace, all_runs=True)


def test_runs_of_several_ranks(workspace):
    for rank in (10, 2):
        make_record(workspace, [("x", np.float32([rank]))], start_us=5000 + rank)
        place = workspace.tf_debug / f"rank_{rank}"
        place.mkdir()
        for run in workspace.tf_debug.glob("run_*"):
            run.rename(place / run.name)
    (workspace.tf_debug / "rank_0").mkdir()
    report = extract(workspace)
    assert report.record.parent.name == "rank_2"
    assert report.notes == ("ranks 2, 10 recorded; this is rank 2, take another with --rank",)
    assert recorded_runs(workspace.tf_debug) == [report.record]
    other = extract(workspace, rank=10)
    assert (other.record.parent.name, other.notes) == ("rank_10", ())
    with pytest.raises(DataError, match="nothing was recorded by rank 0; there is 2, 10"):
        extract(workspace, rank=0)

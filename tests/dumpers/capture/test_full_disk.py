"""Whatever the disk refuses, and whenever: training goes on, one line is said, no record reads as more than it is."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dumpers.capture import pack, recorded_step, recorder
from dumpers.capture import record as record_module
from dumpers.capture.record import KEEPS
from dumpers.capture.session import flush, record_session
from dumpers.capture.steps import parse_steps
from dumpers.capture.worker import BoundedWorker

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1
CODES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def load(name):
    spec = importlib.util.spec_from_file_location(name, str(Path(__file__).with_name(name + ".py")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kill_writer, fault_points = load("kill_writer"), load("fault_points")


class Refusal:
    """Refuses calls while one step is recorded: the n-th, or all from the n-th on. Deleting is never refused."""

    def __init__(self, monkeypatch, at, code=errno.ENOSPC, lasting=True, step=1):
        self.at, self.code, self.lasting, self.step = at, code, lasting, step
        self.count, self.on = 0, False
        self._lock = threading.Lock()
        fault_points.install(self.act, lambda *place: monkeypatch.setattr(*place, raising=False))

    def begin(self, step):
        self.on = step == self.step

    def act(self, name, moment):
        if not self.on or moment == "after" or name == "unlink":
            return
        with self._lock:
            number, self.count = self.count, self.count + 1
        if number == self.at or (self.lasting and number > self.at):
            raise OSError(self.code, os.strerror(self.code))


def lines(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line]


def check(folder, keep, manifests, kept, broken=1):
    """Holds all records against the truth; returns that of the step that had trouble, None where it has no manifest."""
    records = {record["step"]: record for record in manifests(folder)}
    for step, record in records.items():
        truth, found = kept.of(kill_writer.truth_of(step, keep)), kept(record)
        assert set(found) == set(truth)
        if record["complete"]:
            assert not record["reason"]
            assert found == truth
        else:
            assert step == broken
            for entry in record["tensors"]:
                name = "{}:{}".format(entry["op"], entry["output"])
                assert found[name] == truth[name] or (found[name] is None and "not written" in entry["note"]), name
    assert set(records) >= {0, 1, 2} - {broken}
    return records.get(broken)


@pytest.mark.parametrize("lasting", [True, False], ids=["from_there_on", "once"])
@pytest.mark.parametrize("keep", KEEPS)
def test_a_refusal_at_every_call_of_a_record(tmp_path, manifests, kept, monkeypatch, capsys, keep, lasting):
    monkeypatch.setattr(pack, "GROUP_BYTES", 3000)
    counting = Refusal(monkeypatch, at=1 << 30)
    kill_writer.write(tmp_path / "whole", keep, [0, 1, 2], counting.begin)
    assert counting.count >= 12
    complete = 0
    for at in range(counting.count):
        code, folder = CODES[at % len(CODES)], tmp_path / str(at)
        refusal = Refusal(monkeypatch, at, code, lasting)
        kill_writer.write(folder, keep, [0, 1, 2], refusal.begin)
        record = check(folder, keep, manifests, kept)
        said = lines(capsys)
        if record is not None and record["complete"]:  # there was another way, such as a copy in place of a link
            complete += 1
            assert said == []
            continue
        assert len(said) == 1
        assert os.strerror(code) in said[0]
        assert "step 1 could not be recorded completely" in said[0]
        assert str(folder) in said[0]
        if record is not None:
            assert os.strerror(code) in record["reason"]
    assert not (lasting and complete)


@pytest.mark.parametrize("keep", KEEPS)
def test_training_goes_on_while_the_disk_is_full(
    tmp_path, click_model, config, manifests, kept, monkeypatch, capsys, keep
):
    model = click_model(True)
    variables = model.graph.get_collection("variables")

    def train(wrap, before):
        with wrap(tf1.Session(graph=model.graph, config=config())) as session:
            session.run(model.init)
            losses = []
            for step, batch in enumerate(model.batches[:4]):
                before(session, step)
                losses.append(session.run([model.loss, model.train], batch)[0])
            return np.array(losses).tobytes(), [value.tobytes() for value in session.run(variables)]

    def recording(folder):
        return lambda session: record_session(session, folder, parse_steps(""), keep=keep)

    expected = train(lambda session: session, lambda session, step: None)
    assert train(recording(tmp_path / "whole"), lambda session, step: None) == expected
    truth = {record["step"]: kept(record) for record in manifests(tmp_path / "whole")}
    for at in (0, 3, 9, 11):
        refusal = Refusal(monkeypatch, at)

        def before(session, step, refusal=refusal):
            flush(session)
            refusal.on = step in (1, 2)

        assert train(recording(tmp_path / str(at)), before) == expected
        assert len(lines(capsys)) == 1
        records = {record["step"]: record for record in manifests(tmp_path / str(at))}
        for step in (0, 3):
            assert records[step]["complete"]
            assert kept(records[step]) == truth[step]
        assert not any(record["complete"] for step, record in records.items() if step in (1, 2))


@pytest.mark.parametrize("keep", ["pack", "npy", "stats"])
def test_the_folder_is_deleted_at_every_moment(tmp_path, manifests, kept, monkeypatch, capsys, keep):
    monkeypatch.setattr(pack, "GROUP_BYTES", 3000)
    counting = Refusal(monkeypatch, at=1 << 30)
    kill_writer.write(tmp_path / "whole", keep, [0, 1, 2], counting.begin)
    for at in range(counting.count):
        folder = tmp_path / str(at)
        refusal = Refusal(monkeypatch, at, lasting=False)

        def act(name, moment, refusal=refusal, folder=folder):
            try:
                type(refusal).act(refusal, name, moment)
            except OSError:
                folder.rename(folder.with_suffix(".gone"))

        fault_points.install(act, lambda *place: monkeypatch.setattr(*place, raising=False))
        kill_writer.write(folder, keep, [0, 1, 2], refusal.begin)
        assert len(lines(capsys)) <= 1
        records = {record["step"]: record for record in manifests(folder)}
        assert kept(records[2]) == kept.of(kill_writer.truth_of(2, keep))
        if 1 in records and records[1]["complete"]:
            assert kept(records[1]) == kept.of(kill_writer.truth_of(1, keep))


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)  # noqa: UP022
    except OSError:
        pytest.skip("no mount program")
    if done.returncode:
        pytest.skip("mounting a small file system is not permitted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("keep", KEEPS)
def test_a_real_disk_with_every_amount_of_room(disk, manifests, kept, monkeypatch, capsys, keep):
    monkeypatch.setattr(pack, "GROUP_BYTES", 3000)
    filler, folder, seen = disk / "filler", disk / "tf", set()
    for free in range(0, 64, 4):

        def before(step, free=free):
            if step == 1:
                space = os.statvfs(str(disk))
                filler.write_bytes(b"x" * max(0, space.f_bavail * space.f_frsize - free * 1024))
            elif filler.exists():
                filler.unlink()

        kill_writer.write(folder, keep, [0, 1, 2], before)
        record = check(folder, keep, manifests, kept)
        said = lines(capsys)
        if record is not None and record["complete"]:
            assert said == []
            seen.add("complete")
        else:
            assert len(said) == 1
            assert "No space left on device" in said[0]
            seen.add("none" if record is None else "incomplete")
        shutil.rmtree(str(folder))
    assert seen == {"none", "incomplete", "complete"}


def test_a_real_disk_that_cannot_be_written_any_more(disk, manifests, kept, capsys):
    def before(step):
        mode = "ro" if step == 1 else "rw"
        subprocess.run(["mount", "-o", "remount," + mode, str(disk)], check=True)

    kill_writer.write(disk / "tf", "pack", [0, 1, 2], before)
    assert check(disk / "tf", "pack", manifests, kept) is None
    (line,) = lines(capsys)
    assert "Read-only file system" in line


FAULTS = [
    ("stats", record_module, "summarise_all", ValueError("no such mode")),
    ("sketch", record_module, "summarise_all", MemoryError()),
    ("hash", record_module, "summarise_all", KeyError("first\nsecond")),
    ("pack", record_module, "write_group", TypeError("buffer")),
    ("npy", record_module, "write_npy", RuntimeError("broken")),
    ("pack", record_module, "pack_name", ZeroDivisionError()),
    ("shapes", record_module, "make_private", MemoryError()),
    ("pack", recorded_step, "storable", MemoryError()),
    ("stats", recorded_step, "time_stamps", IndexError("list index out of range")),
]


@pytest.mark.parametrize("fault", FAULTS, ids=["{0}-{2}".format(*fault) for fault in FAULTS])
def test_a_fault_of_ours(tmp_path, click_model, config, manifests, monkeypatch, capsys, fault):
    keep, module, name, error = fault
    monkeypatch.setattr(pack, "GROUP_BYTES", 64)
    model = click_model(True)
    with tf1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        expected = [session.run([model.loss, model.train], batch)[0] for batch in model.batches]
    real, calls = getattr(module, name), []

    def broken(*given):
        calls.append(given)
        if now == 1 and len(calls) in (1, 3):
            raise error
        return real(*given)

    monkeypatch.setattr(module, name, broken)
    session = record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0-2"), keep=keep)
    session.run(model.init)
    losses = []
    for now, batch in enumerate(model.batches):  # noqa: B007 - broken() looks at it
        calls.clear()
        losses.append(session.run([model.loss, model.train], batch)[0])
        flush(session)
    session.close()
    assert losses == expected
    (line,) = lines(capsys)
    together = name == "summarise_all"  # each tensor is taken alone then, so nothing is lost; but it is said
    assert ("step 1: summaries were taken one by one" if together else "step 1 could not be recorded") in line
    assert "training goes on" in line
    assert type(error).__name__ in line
    records = {record["step"]: record for record in manifests(tmp_path)}
    assert records[0]["complete"]
    assert records[2]["complete"]
    if together:
        assert records[1]["complete"]
        assert [summarised(records[n]) for n in (0, 2)] == [summarised(records[1])] * 2
    elif name in ("write_group", "write_npy"):
        assert not records[1]["complete"]
        assert type(error).__name__ in records[1]["reason"]
    else:
        assert 1 not in records or not records[1]["complete"]


def summarised(record):
    """Names of the tensors that have a summary; there are some."""
    found = ["{op}:{output}".format(**entry) for entry in record["tensors"] if "summary" in entry]
    assert len(found) > 20
    return found


BEFORE = [
    ("make_plan", [0, 1, 2], "neither counted as a step nor recorded: MemoryError"),  # it has one run more than steps
    ("_with_bodies", [1, 2], "step 0 could not be prepared and is not recorded: MemoryError"),
    ("RecordedStep", [1, 2], "step 0 could not be prepared and is not recorded: MemoryError"),
    ("FastFetch", [0, 1, 2], "a step is fetched the slow way: MemoryError"),
]


@pytest.mark.parametrize("fault", BEFORE, ids=[fault[0] for fault in BEFORE])
def test_a_fault_of_ours_before_a_step(tmp_path, click_model, config, manifests, monkeypatch, capsys, fault):
    """It breaks the first time: the job goes on as without a hook, later steps are recorded."""
    model = click_model(True)
    with tf1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        expected = [session.run([model.loss, model.train], batch)[0] for batch in model.batches]
    name, steps, said = fault
    place = recorder.Recorder if name == "_with_bodies" else recorder
    real, calls = getattr(place, name), []

    def broken(*given, **named):
        calls.append(given)
        if len(calls) == 1:
            raise MemoryError
        return real(*given, **named)

    session = record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0-2"))
    session.run(model.init)
    monkeypatch.setattr(place, name, broken)
    losses = [session.run([model.loss, model.train], batch)[0] for batch in model.batches]
    session.close()
    assert losses == expected
    if name == "FastFetch" and not calls:
        pytest.skip("here the debugger copies tensors of this model, which the session's own run does")
    (line,) = lines(capsys)
    assert said in line
    records = manifests(tmp_path)
    assert [record["step"] for record in records] == steps
    assert all(record["complete"] for record in records)


def test_no_room_for_the_copies_of_the_debugger(tmp_path, click_model, config, manifests, values, monkeypatch, capsys):
    """Reference variables: what shares their memory is copied to files in the temporary directory."""
    from dumpers.capture import watch

    model = click_model(False)

    def refuse(*given, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = []
    for place in ("whole", "refused"):
        if place == "refused":
            monkeypatch.setattr(watch.tempfile, "mkdtemp", refuse)
        folder = tmp_path / place
        with record_session(tf1.Session(graph=model.graph, config=config()), folder, parse_steps("0-1")) as session:
            session.run(model.init)
            found.append([session.run([model.loss, model.train], batch)[0] for batch in model.batches])
    assert found[0] == found[1]
    (line,) = lines(capsys)
    assert "No space left" in line
    whole, refused = manifests(tmp_path / "whole"), manifests(tmp_path / "refused")
    for full, less in zip(whole, refused):  # noqa: B905 - Python 3.7
        assert full["complete"]
        assert not less["complete"]
        assert "TMPDIR" in less["reason"]
        truth, left = values(full), values(less)
        assert 10 < len(left) < len(truth)
        assert all(left[name].tobytes() == truth[name].tobytes() for name in left)


@pytest.mark.parametrize("kind", ["full", "closed", "none"])
def test_nobody_can_be_told(tmp_path, manifests, kept, monkeypatch, kind):
    """A log on the full disk itself, or a job without stderr."""
    log = None
    if kind != "none":
        log = open("/dev/full" if kind == "full" else os.devnull, "w")  # noqa: SIM115 - closed below
    if kind == "closed":
        log.close()
    refusal = Refusal(monkeypatch, at=8)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", log)
        kill_writer.write(tmp_path, "pack", [0, 1, 2], refusal.begin)
    check(tmp_path, "pack", manifests, kept)
    if kind == "full":
        with pytest.raises(OSError, match="No space left"):
            log.close()


def test_a_thread_that_trains_when_the_main_program_has_ended(tmp_path, manifests, kept):
    script = """
import sys, threading
from pathlib import Path
import kill_writer
def late(step):
    if step == 1:
        threading.main_thread().join()
        import time
        time.sleep(0.2)
given = (Path(sys.argv[1]), "pack", [0, 1, 2], late)
threading.Thread(target=kill_writer.write, args=given).start()
"""
    here = [str(Path(__file__).parent), str(Path(pack.__file__).parents[2])]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(here + [p for p in sys.path if p]))
    run = subprocess.run(  # noqa: UP022 - Python 3.7
        [sys.executable, "-c", script, str(tmp_path)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert run.returncode == 0
    assert run.stderr.decode() == ""
    assert check(tmp_path, "pack", manifests, kept)["complete"]


def test_a_system_without_more_threads(tmp_path, manifests, kept, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pack, "GROUP_BYTES", 3000)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        kill_writer.write(tmp_path, "pack", [0, 1, 2])
    assert check(tmp_path, "pack", manifests, kept)["complete"]


@pytest.mark.parametrize("limit_steps", [0.4, 1.0, 2.5, 8.0])
def test_memory_that_waits_while_the_disk_is_slow(tmp_path, config, monkeypatch, limit_steps):
    """At most the bound, or one step where that is more; the training thread waits meanwhile."""
    graph = tf.Graph()
    with graph.as_default():
        variables = [tf1.get_variable(f"v{n}", initializer=np.ones([64, 256], "f4")) for n in range(4)]
        loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf1.global_variables_initializer()
    monkeypatch.setattr(pack, "GROUP_BYTES", 100000)
    gate = threading.Semaphore(0)
    real = record_module.write_group

    def slow(*given):
        gate.acquire()
        real(*given)

    with record_session(tf1.Session(graph=graph, config=config()), tmp_path / "one", parse_steps("0")) as session:
        session.run(init)
        session.run([loss, train])
    (folder,) = (tmp_path / "one").iterdir()
    one = sum(path.stat().st_size for path in folder.glob("*.pack"))
    monkeypatch.setattr(record_module, "write_group", slow)
    worker = BoundedWorker(int(one * limit_steps))
    session = record_session(
        tf1.Session(graph=graph, config=config()), tmp_path / "more", parse_steps(""), worker=worker
    )
    session.run(init)
    done = []

    def job():
        with graph.as_default():
            for _ in range(6):
                done.append(session.run([loss, train])[0])

    thread = threading.Thread(target=job)
    thread.start()
    thread.join(1)
    at_once = max(1, min(6, int(limit_steps)))
    assert len(done) == at_once  # no write is done yet
    for _ in range(10000):
        gate.release()
    thread.join(60)
    session.close()
    assert len(done) == 6
    assert worker.most_bytes <= max(one, int(one * limit_steps))
    assert worker.most_bytes >= 0.9 * at_once * one


def test_arrays_are_given_back_as_soon_as_they_are_written(tmp_path):
    import weakref

    class Watched(np.ndarray):
        pass

    header = {"format": 2, "run": 1, "step": 0, "start_us": 5, "graph": None, "fetches": []}
    record = record_module.RunRecord(tmp_path, header, lambda *given: True)
    worker, arrays = BoundedWorker(), [np.full(1000, n).view(Watched) for n in range(20)]
    alive = [weakref.ref(array) for array in arrays]
    items = [item._replace(value=array) for item, array in zip(kill_writer.items_of(0) * 4, arrays)]  # noqa: B905
    with tf1.Graph().as_default() as graph:
        tf.zeros([], name="only")
    record.submit(worker, record_module.GraphFile(graph.as_graph_def().SerializeToString()), items)
    del items, arrays
    worker.flush()
    assert not any(reference() is not None for reference in alive[: len(kill_writer.items_of(0)) * 4])

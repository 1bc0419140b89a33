"""``dump`` and ``dump --plan`` on real scripts; the truth is what TensorFlow and NumPy say of a fully recorded step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.tf_record import read_tf_record

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import os, sys, time
import numpy as np
import tensorflow as tf
import precision_tool.tf_config as npu_tf_config
tf1 = tf.compat.v1
tf1.disable_eager_execution()
ids = tf1.placeholder(tf.int64, [None], name="ids")
tf1.identity(tf1.placeholder_with_default([b"one", b"three"], [2], name="words"), name="said")
table = tf1.get_variable("table", [50, 8], initializer=tf1.random_uniform_initializer(-1, 1, seed=3))
h = tf.gather(table, ids, name="lookup")
with tf1.name_scope("tower"):
    for layer in range(8):
        w = tf1.get_variable("w%d" % layer, [8, 8], initializer=tf1.random_uniform_initializer(-1, 1, seed=layer))
        h = tf.nn.relu(tf.matmul(h, w, name="matmul%d" % layer))
loss = tf.reduce_mean(tf.square(h), name="loss")
train = tf1.train.AdamOptimizer(0.1).minimize(loss)
config = tf1.ConfigProto()
config.graph_options.rewrite_options.disable_meta_optimizer = True
with npu_tf_config.sess_dump(tf1.Session(config=config)) as session:
    session.run(tf1.global_variables_initializer())
    for step in range(4):
        session.run([loss, train, "said:0"], {ids: np.arange(100) % 50})
        if "--endless" in sys.argv and step == int(sys.argv[2]):
            print("waiting", flush=True)
            time.sleep(600)
        if "--fail" in sys.argv and step == 1:
            raise ValueError("after step 1")
"""

KERAS = """
import numpy as np, tensorflow as tf
from precision_tool.tf_config import keras_dump
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((40, 3), "f4"), np.ones((40, 1), "f4"), batch_size=10, verbose=0, callbacks=[keras_dump()])
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with the scripts."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "with_keras.py").write_text(KERAS)
    (folder / "plain.py").write_text("print('no hook here')\n")
    return folder


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in [name for name in os.environ if name.startswith("TF_DUMP_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def recorded(here, tmp_path_factory):
    """Step 2, recorded whole by a run of the script without this command."""
    folder = tmp_path_factory.mktemp("whole")
    environment = {**os.environ, "ROOT_DIR": str(folder), "PYTHONPATH": str(ROOT), "TF_DUMP_STEP": "2"}
    subprocess.run([sys.executable, str(here / "train.py")], env=environment, check=True, capture_output=True)
    (record,) = (folder / "precision_data/tf/tf_debug").glob("run_*")
    return record


def values_of(record):
    """Values by ``op:slot`` of all that has some."""
    return {f"{r.op}:{r.slot}": r.load() for r in read_tf_record(record).records if r.source is not None}


def test_records_what_the_options_say(ask, here, tmp_path):
    result = ask(f"dump --steps '0|2-3' --mode hash --ops matmul {here}/train.py", tmp_path)
    assert result.exit_code == 0
    assert [row["step"] for row in result.data["records"]] == [0, 2, 3]
    assert all(row["complete"] for row in result.data["records"])
    for path, row in zip(result.files, result.data["records"], strict=True):
        found = read_tf_record(path).records
        assert found
        assert len(found) == row["tensors"]
        assert all("matmul" in record.op and record.summary.mode == "hash" for record in found)
        assert row["bytes"] == sum(file.stat().st_size for file in path.rglob("*"))
    again = ask(f"dump {here}/train.py", tmp_path)
    assert [row["step"] for row in again.data["records"]] == [0]
    assert again.title.startswith("1 step of ")
    assert not set(again.files) & set(result.files)


def test_a_rank_has_its_folder(ask, here, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_ID", "3")
    monkeypatch.setenv("RANK_SIZE", "4")
    result = ask(f"dump --mode shapes {here}/train.py", tmp_path)
    (row,) = result.data["records"]
    assert row["record"].startswith("rank_3/run_")


def test_a_script_that_fails_after_a_step(ask, here, tmp_path):
    result = ask(f"dump {here}/train.py --fail", tmp_path)
    assert result.exit_code == 3
    assert [row["step"] for row in result.data["records"]] == [0]
    assert any("ended with exit code 1" in problem for problem in result.problems)
    assert any("ValueError: after step 1" in line for line in result.notes)


def test_scripts_that_record_nothing(ask, here, tmp_path):
    with pytest.raises(DataError, match=r"recorded nothing in .*; wrap its session with sess_dump.*: no hook here"):
        ask(f"dump {here}/plain.py", tmp_path)
    with pytest.raises(DataError, match="recorded nothing in a trial; wrap"):
        ask(f"dump --plan {here}/plain.py", tmp_path)
    with pytest.raises(DataError, match="choose a step that it reaches"):
        ask(f"dump --steps 9 --mode shapes {here}/train.py", tmp_path)
    (here / "broken.py").write_text("import nothing_of_that_name")
    with pytest.raises(DataError, match=r"exit code 1 and recorded nothing: ModuleNotFoundError"):
        ask(f"dump --plan {here}/broken.py", tmp_path)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("dump", "give the training script"),
        ("dump nothere.py", "nothere.py: no such script"),
        ("dump --plan nothere.py", "nothere.py: no such script"),
        ("dump --mode all {here}/train.py", "TF_DUMP_MODE 'all'"),
        ("dump --steps x {here}/train.py", "steps 'x'"),
        ("dump --ops ( {here}/train.py", "is no regular expression"),
        ("dump --dtypes float33 {here}/train.py", "is no dtype"),
        ("dump --tensors nothere {here}/train.py", "cannot be read"),
        ("dump --cut 2% {here}/train.py", "belong to --plan"),
        ("dump --plan {here} more", "'more' stands behind a record"),
    ],
)
def test_mistakes(ask, here, tmp_path, line, match):
    with pytest.raises(UsageError, match=match.replace("(", r"\(")):
        ask(line.format(here=here), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cut", ["0%", "101%", "x%", "nan%", "-1", "2 M", "1e3"])
def test_sizes_that_no_cut_set_has(ask, recorded, tmp_path, cut):
    with pytest.raises(UsageError, match="--cut"):
        ask(f"dump --plan --cut={cut!r} {recorded}", tmp_path)


def test_no_record_to_plan_for(ask, tmp_path):
    with pytest.raises(DataError, match="has no record of a step"):
        ask("dump --plan", tmp_path)
    with pytest.raises(DataError, match="has no record of a step"):
        ask(f"dump --plan {tmp_path}", tmp_path)


def test_the_plan_of_a_script_is_that_of_its_recorded_step(ask, here, recorded, tmp_path):
    """Numbers and bytes from the values of the whole record; the script is ended at its step and leaves nothing."""
    started = time.monotonic()
    result = ask(f"dump --plan --steps '2|3' {here}/train.py --endless 2", tmp_path)
    assert time.monotonic() - started < 300  # it would sleep for 600 seconds
    assert not list(tmp_path.iterdir())
    truth = values_of(recorded)
    types = {f"{r.op}:{r.slot}": r.op_type for r in read_tf_record(recorded).records}
    assert result.data["step"] == 2
    assert result.data["tensors"] == len(truth) > 100
    assert result.data["bytes"] == sum(value.nbytes for value in truth.values())
    counts, sizes = Counter(types[name] for name in truth), Counter()
    for name, value in truth.items():
        sizes[types[name]] += value.nbytes
    found = {row["op_type"]: (row["tensors"], row["size_bytes"]) for row in result.data["types"]}
    assert found == {kind: (counts[kind], sizes[kind]) for kind in counts}
    assert sum(row["share"] for row in result.data["types"]) == pytest.approx(1)
    of_record = ask(f"dump --plan {recorded}", tmp_path)
    for key in ("tensors", "bytes", "types", "chosen", "cut"):
        assert of_record.data[key] == result.data[key]
    assert ask(f"dump --plan {recorded.parents[3]}", tmp_path).data["cut"] == result.data["cut"]


SELECTIONS = ["--ops tower", "--op-types MatMul|Relu", "--dtypes int64,int32", "--scopes tower,gradients/tower"]
SELECTIONS += ["--sizes 64-1K", "--sizes 1K-", "--budget 20K", "--ops grad --budget 2K", "--op-types Placeholder.*"]


def test_what_options_keep_is_what_a_run_with_them_records(ask, here, recorded, tmp_path):
    """The same settings in the plan, and in one run of the script each, in this process's children."""
    for number, options in enumerate(SELECTIONS):
        plan = ask(f"dump --plan {options} {recorded}", tmp_path).data
        if number in (3, 4, 6):  # a child takes seconds; these go through all parts of a selection
            made = ask(f"dump --steps 2 {options} {here}/train.py", tmp_path).files
            values = values_of(made[0])
            # A run pays for memory that tensors share once, so a budget reaches a little further than planned.
            more = len(values) - plan["chosen"]["tensors"]
            assert 0 <= more <= (5 if number == 6 else 0)
            assert bool(more) or plan["chosen"]["bytes"] == sum(value.nbytes for value in values.values())
            part = ask(f"dump --plan {made[0]}", tmp_path)
            assert any("this is no plan of the whole step" in note for note in part.notes)
        assert 0 < plan["chosen"]["tensors"] < plan["tensors"]
        assert set(plan["cut"]["names"]) <= set(values_of(recorded))


def test_the_cut_set_is_what_its_file_records(ask, here, recorded, tmp_path):
    names_file = tmp_path / "cut.txt"
    plan = ask(f"dump --plan --cut 5% --out {names_file} {recorded}", tmp_path)
    cut, truth = plan.data["cut"], values_of(recorded)
    assert plan.files == [names_file]
    assert cut["budget"] == int(0.05 * plan.data["bytes"])
    assert cut["size_bytes"] == sum(truth[name].nbytes for name in cut["names"]) <= cut["budget"]
    made = ask(f"dump --steps 2 --tensors {names_file} {here}/train.py", tmp_path).files
    again = values_of(made[0])
    assert list(again) == list(cut["names"])
    for name, value in again.items():
        np.testing.assert_array_equal(value, truth[name])


def test_regions_are_those_of_tensorflows_graph(ask, recorded, tmp_path):
    """Which ops lead to which, from the GraphDef as TensorFlow reads it."""
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString((recorded / "graph.pb").read_bytes())
    reads = {node.name: [name.split(":")[0] for name in node.input if not name.startswith("^")] for node in graph.node}
    kinds = {node.name: node.op for node in graph.node}
    executed = {name.rpartition(":")[0] for name in values_of(recorded)}
    executed = {op for op in executed if kinds[op] != "Const"}

    def leading_to(op):
        found, waiting = set(), [op]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(reads[name])
        return found & executed

    cut = ask(f"dump --plan --cut 3% {recorded}", tmp_path).data["cut"]
    before, sizes = set(), []
    for op in dict.fromkeys(name.rpartition(":")[0] for name in cut["names"]):
        mine = leading_to(op) - before
        before |= mine
        sizes.append(len(mine))
    assert cut["ops"] == len(executed)
    assert cut["largest_region"] == max(sizes)
    assert cut["median_region"] == np.median(sizes)
    assert cut["unseen"] == len(executed - before)


def test_a_cut_set_that_cannot_be_written(ask, recorded, tmp_path):
    with pytest.raises(DataError, match=r"nothere/x: cannot be written: No such file"):
        ask(f"dump --plan --out {tmp_path}/nothere/x {recorded}", tmp_path)
    with pytest.raises(DataError, match="the cut set is empty"):
        ask(f"dump --plan --ops nothing_of_that_name --out {tmp_path}/x {recorded}", tmp_path)
    assert not list(tmp_path.iterdir())


def test_damaged_records(ask, recorded, tmp_path):
    copy = tmp_path / "run_1_1"
    copy.mkdir()
    tree = json.loads((recorded / "record.json").read_bytes())
    (copy / "graph.pb").write_bytes((recorded / "graph.pb").read_bytes())
    for change, match in [
        ({"graph": None}, "has no graph"),
        ({"tensors": []}, "no tensor of known size"),
        ({"tensors": [{**entry, "shape": None} for entry in tree["tensors"]]}, "no tensor of known size"),
        ({"format": 99}, "format 99 is not known"),
    ]:
        (copy / "record.json").write_text(json.dumps({**tree, **change}))
        with pytest.raises(DataError, match=match):
            ask(f"dump --plan {copy}", tmp_path)
    entries = [{**entry, "bytes": -5, "shape": [2**40, 2**40], "file": None} for entry in tree["tensors"]]
    (copy / "record.json").write_text(json.dumps({**tree, "tensors": entries}))
    assert ask(f"dump --plan {copy}", tmp_path).data["bytes"] >= 2**80  # Python's own integers: nothing wraps round


def test_keras(ask, here, tmp_path):
    pytest.importorskip("keras")
    plan = ask(f"dump --plan --cut 20% {here}/with_keras.py", tmp_path).data
    (record,) = ask(f"dump {here}/with_keras.py", tmp_path).files
    truth = values_of(record)
    assert plan["tensors"] == len(truth) > 50
    assert plan["bytes"] == sum(value.nbytes for value in truth.values())
    assert plan["cut"]["unseen"] < plan["cut"]["ops"] / 4


def test_an_interrupted_plan_leaves_nothing(here, tmp_path):
    """Ctrl-C while the script runs: exit code 130, no child, no temporary folder."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    (here / "slow.py").write_text(
        f"open({str(here / 'slow.pid')!r}, 'w').write(str(__import__('os').getpid()))\nimport time; time.sleep(600)\n"
    )
    words = [sys.executable, str(ROOT / "cli.py"), "dump", "--plan", str(here / "slow.py")]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as tool:
        pid_file, deadline = here / "slow.pid", time.monotonic() + 60
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        tool.send_signal(signal.SIGINT)
        _, stderr = tool.communicate(timeout=60)
    assert tool.returncode == 130
    assert "Traceback" not in stderr
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)

"""TensorFlow's debug directories: bit-equal to what TensorFlow's own reader gives, of old and new TensorFlow alike."""

from __future__ import annotations

import json
import os
import pickle
import random
import runpy
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.registry import read_dump, read_tensor
from dumpers.formats.schema import tf_message
from dumpers.formats.tfdbg import read_tfdbg_run, read_tfdbg_runs, read_tfdbg_tensor
from dumpers.formats.tfdbg_run import read_run_facts
from dumpers.records import TensorRecord

tf = pytest.importorskip("tensorflow")

PROGRAM = Path(__file__).parent / "tfdbg_program.py"
RECORDED = Path(__file__).parents[2] / "data" / "recorded" / "tfdbg_tf_1.15.5.tar.xz"
"""A run of PROGRAM under TensorFlow 1.15.5 and Python 3.7, with what that TensorFlow's own reader said of it."""

IDENTITY = "DebugIdentity"


def tf1_python() -> str | None:
    """A Python 3.7 with TensorFlow 1.15: named by the environment, or the first of pyenv and PATH that has it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [os.environ.get("PRECISION_TOOL_TF1_PYTHON"), *map(str, sorted(pyenv.glob("3.7*/bin/python3.7")))]
    for candidate in filter(None, [*candidates, shutil.which("python3.7")]):
        code = "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"
        if subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="module", params=["installed", "1.15.5 as recorded", "1.15 here"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """One step recorded by the wrapper of TensorFlow's debugger, and what its own reader says of it."""
    root = tmp_path_factory.mktemp("tfdbg")
    (root / "runs").mkdir()
    if request.param == "installed":
        runpy.run_path(str(PROGRAM))["main"](str(root))
    elif request.param == "1.15.5 as recorded":
        shutil.rmtree(root / "runs")
        with tarfile.open(RECORDED) as archive:
            archive.extractall(root, filter="data")
        assert json.loads((root / "truth.json").read_text())["version"] == "1.15.5"
    else:
        python = tf1_python()
        if python is None:
            pytest.skip("no Python 3.7 with TensorFlow 1.15 (name one in PRECISION_TOOL_TF1_PYTHON)")
        subprocess.run([python, str(PROGRAM), str(root)], check=True, capture_output=True, timeout=120)
    truth = json.loads((root / "truth.json").read_text())
    truth["content"] = (root / "truth.bin").read_bytes()
    (folder,) = (root / "runs").iterdir()
    return folder, truth


@pytest.fixture(scope="module")
def run(recorded: tuple[Path, dict]) -> Path:
    return recorded[0]


def test_every_tensor_is_bit_equal_to_tensorflow_s_reader(recorded: tuple[Path, dict]):
    run, truth = recorded
    dump = read_tfdbg_run(run)
    assert dump.problems == ()
    assert dump.ignored == ()
    ours: dict[tuple, list] = {}
    for record in dump:
        ours.setdefault((record.op, record.slot, record.timestamp_us), []).append(record)
    offset, seen = 0, set()
    assert len(truth["rows"]) == len(dump) > 200
    for row in truth["rows"]:
        record = ours[row["op"], row["slot"], row["time"]].pop(0)
        raw = truth["content"][offset : offset + row["size"]]
        offset += row["size"]
        if row["dtype"] is None:
            assert record.source is None
            seen.add("resource" if record.dtype == "resource" else "uninitialised")
            assert record.dtype == "resource" if row["initialised"] else "uninitialised" in record.note
            continue
        got = record.load()
        assert got.shape == tuple(row["shape"]) == record.shape
        assert got.dtype.name == row["dtype"]
        assert not got.flags.writeable
        seen.add(record.dtype)
        if row["dtype"] == "object":
            assert [text.hex() for text in got.ravel().tolist()] == row["texts"]
        else:
            assert got.tobytes() == raw
    assert not any(ours.values())
    assert seen >= {"float16", "float32", "float64", "bfloat16", "bool", "int8", "uint8", "int16", "int32", "int64"}
    assert seen >= {"uint16", "complex64", "complex128", "string", "resource", "uninitialised"}


def test_names_types_edges_and_order(recorded: tuple[Path, dict]):
    run, truth = recorded
    dump = read_dump(run)
    assert dump.path == run
    record = dump.tensor("net/layer.1/add", "output", 0)
    assert (record.op_type, record.device, record.shape) == (truth["types"]["net/layer.1/add"], "tf", (2, 2))
    assert dump.tensor("parts", "output", 2) is not None
    assert dump.tensor("odd_0_DebugIdentity_7", "output", 0).load().tolist() == (-record.load()).tolist()
    assert any(record.op.startswith("_arg_x") for record in dump)
    times = [record.timestamp_us for record in dump]
    assert times == sorted(times)
    assert any(record.shape == (0, 2) and record.load().size == 0 for record in dump)
    graph = dump.graph
    assert {name: op.type for name, op in graph.ops.items()} == truth["types"]
    for name, op in graph.ops.items():  # the debugger's copies are gone, also as inputs
        theirs = [text if ":" in text else f"{text}:0" for text in truth["inputs"][name]]
        assert [f"{source.op}:{source.slot}" for source in op.inputs] == theirs


def test_all_passes_of_a_loop_are_there_in_order(run: Path):
    dump = read_tfdbg_run(run)
    passes = [r for r in dump if r.op_type == "Mul" and r.op.startswith("loop/")]
    assert len(passes) == 30
    values = [float(np.abs(r.load()).max()) for r in passes]
    assert values == sorted(values, reverse=True)
    assert values[0] == values[-1] * 2.0**29


def test_what_run_was_called_with(recorded: tuple[Path, dict]):
    run, truth = recorded
    facts, theirs = read_run_facts(run), truth["facts"]
    assert (facts.global_step, facts.session_run_index) == (theirs["global_step"], theirs["session_run_index"])
    assert (list(facts.inputs), list(facts.outputs)) == (theirs["inputs"], theirs["outputs"])
    assert (facts.feeds, facts.fetches) == (theirs["feeds"], theirs["fetches"])
    assert "x:0" in facts.inputs


def test_one_file_and_pickled_source(run: Path):
    file = next(iter(run.glob("_tfdbg_device_*/net/layer.1/add_0_DebugIdentity_*")))
    (record,) = read_tensor(file)
    assert (record.op, record.slot) == ("net/layer.1/add", 0)
    assert pickle.loads(pickle.dumps(record.source)).load().shape == (2, 2)
    assert record.path == file
    dump = read_tfdbg_run(run)
    again = pickle.loads(pickle.dumps(dump))
    assert again.graph.ops["net/layer.1/add"].inputs == dump.graph.ops["net/layer.1/add"].inputs


def test_records_hold_no_large_content(run: Path):
    for record in read_tfdbg_run(run):
        assert len(pickle.dumps(record.source)) < 1200, record.op


def copy_run(run: Path, target: Path) -> Path:
    return Path(shutil.copytree(run, target / run.name))


def test_damaged_files_spoil_only_themselves(run: Path, tmp_path: Path):
    folder = copy_run(run, tmp_path)
    before = len(read_tfdbg_run(folder))
    files = sorted(folder.glob("_tfdbg_device_*/*_DebugIdentity_*"))[:3]
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-2])
    files[2].write_bytes(b"\xff" * 40)
    (files[0].parent / "notes.txt").write_text("x")
    (folder / "readme").write_text("x")
    (graph,) = folder.glob("_tfdbg_device_*/_tfdbg_graph_*")
    graph.write_bytes(graph.read_bytes()[:-9])
    dump = read_tfdbg_run(folder)
    assert len(dump) == before - 3
    assert {problem.path for problem in dump.problems} == {*files, graph}
    assert {problem.path: problem.reason for problem in dump.problems}[files[0]].startswith("is empty")
    assert sorted(path.name for path in dump.ignored) == ["notes.txt", "readme"]
    assert dump.graph is None


def test_links_and_pipes_are_not_followed(run: Path, tmp_path: Path):
    folder = copy_run(run, tmp_path)
    before = len(read_tfdbg_run(folder))
    device = next(folder.glob("_tfdbg_device_*"))
    secret = tmp_path / "secret_0_DebugIdentity_5"
    secret.write_bytes(event_bytes(np.float32([1])))
    (device / "link_0_DebugIdentity_5").symlink_to(secret)
    (device / "scope").symlink_to(tmp_path)
    (folder / "_tfdbg_device_,other").symlink_to(tmp_path)
    os.mkfifo(device / "pipe_0_DebugIdentity_5")
    dump = read_tfdbg_run(folder)
    assert len(dump) == before
    assert {problem.path.name for problem in dump.problems} == {
        "link_0_DebugIdentity_5", "scope", "_tfdbg_device_,other", "pipe_0_DebugIdentity_5",
    }  # fmt: skip


def event_bytes(array, name="a:0:DebugIdentity", *, shape=None, chunk=(1, 0), wall_time=5.0, texts=()) -> bytes:
    """An Event as TensorFlow writes it."""
    event = tf_message("Event")
    event.wall_time = wall_time
    value = event.summary.value.add(node_name=name.encode(), tag=name.partition(":")[0].encode())
    value.tensor.dtype = 7 if texts else tf.as_dtype(array.dtype).as_datatype_enum
    for size in array.shape if shape is None else shape:
        value.tensor.tensor_shape.dim.add(size=size)
    value.tensor.tensor_content = b"" if texts else array.tobytes()
    value.tensor.string_val.extend(texts)
    metadata = {"device": "/job:localhost", "outputSlot": 0, "numChunks": chunk[0], "chunkIndex": chunk[1]}
    value.metadata.plugin_data.plugin_name = b"debugger"
    value.metadata.plugin_data.content = json.dumps(metadata, separators=(",", ":")).encode()
    return event.SerializeToString()


@pytest.fixture
def device(tmp_path: Path) -> Path:
    folder = tmp_path / "run_1_1" / "_tfdbg_device_,job_localhost,replica_0,task_0,device_CPU_0"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("size", [12, 6000])
def test_pieces_are_put_together(device: Path, size: int):
    whole = np.arange(size, dtype=np.float32).reshape(3, -1)
    cuts = [0, size // 5, size // 2, size]
    order = [2, 0, 1]  # file times need not follow the pieces
    for time, index in enumerate(order):
        part = whole.ravel()[cuts[index] : cuts[index + 1]]
        raw = event_bytes(part, shape=whole.shape, chunk=(3, index))
        (device / f"a_0_DebugIdentity_{time + 1}").write_bytes(raw)
    texts = [b"one", b"", b"three"]
    for index in range(2):
        raw = event_bytes(whole, "s:0:DebugIdentity", shape=(3,), chunk=(2, index), texts=texts[index::2][: 2 - index])
        (device / f"s_0_DebugIdentity_{index + 1}").write_bytes(raw)
    dump = read_tfdbg_run(device.parent)
    assert dump.problems == ()
    assert len(dump) == 2
    record = dump.tensor("a", "output", 0)
    assert record.shape == whole.shape
    assert pickle.loads(pickle.dumps(record.source)).load().tolist() == whole.tolist()
    assert dump.tensor("s", "output", 0).load().tolist() == [b"one", b"three", b""]


def test_a_missing_piece_is_a_problem(device: Path):
    whole = np.arange(8, dtype=np.int32)
    for index in (0, 2):
        raw = event_bytes(whole[index : index + 2], shape=(8,), chunk=(4, index))
        (device / f"a_0_DebugIdentity_{index}").write_bytes(raw)
    (device / "b_0_DebugIdentity_3").write_bytes(event_bytes(whole, "b:0:DebugIdentity"))
    dump = read_tfdbg_run(device.parent)
    assert [record.op for record in dump] == ["b"]
    assert "2 of 4 pieces, number 2 is missing" in dump.problems[0].reason
    with pytest.raises(DataError, match="piece 1 of 4"):
        read_tfdbg_tensor(device / "a_0_DebugIdentity_0")


def test_pieces_that_do_not_fill_the_shape(device: Path):
    for index in range(2):
        raw = event_bytes(np.arange(3, dtype=np.int32), shape=(8,), chunk=(2, index))
        (device / f"a_0_DebugIdentity_{index}").write_bytes(raw)
    dump = read_tfdbg_run(device.parent)
    assert "24 bytes for a int32 tensor of shape (8,)" in dump.problems[0].reason


def test_same_microsecond_keeps_the_order_of_the_numbers(device: Path):
    for number in range(12):
        suffix = f"-{number}" if number else ""
        (device / f"a_0_DebugIdentity_77{suffix}").write_bytes(event_bytes(np.int64([number])))
    dump = read_tfdbg_run(device.parent)
    assert [int(record.load()[0]) for record in dump] == list(range(12))
    assert {record.timestamp_us for record in dump} == {77}


def test_other_debug_ops_are_kept_apart(tmp_path: Path):
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession
    from tensorflow.python.debug.wrappers.framework import WatchOptions

    values = np.float32([[1, -2, np.nan], [np.inf, 0, 7]])
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, (2, 3), name="x")
        y = tf.identity(x, name="scope/y")
        with tf.compat.v1.Session() as session:
            options = WatchOptions(debug_ops=["DebugIdentity", "DebugNanCount", "DebugNumericSummary"])
            wrapped = DumpingDebugWrapperSession(session, str(tmp_path), watch_fn=lambda fetches, feeds: options)
            wrapped.run(y, {x: values})
    dump = read_tfdbg_run(next(tmp_path.iterdir()))
    assert dump.tensor("scope/y", "output", 0).load().tobytes() == values.tobytes()
    assert dump.tensor("scope/y:0:DebugNanCount", "output", 0).load().tolist() == [1]
    summary = dump.tensor("scope/y:0:DebugNumericSummary", "output", 0)
    finite = values[np.isfinite(values)].astype(np.float64)
    figures = summary.statistics
    assert (figures.count, figures.nan, figures.pos_inf, figures.neg_inf) == (6, 1, 1, 0)
    assert (figures.min, figures.max, figures.mean) == (finite.min(), finite.max(), finite.mean())
    assert summary.op_type == "DebugNumericSummary"
    assert "scope/y:0" in summary.note


def test_several_devices(device: Path):
    other = device.with_name("_tfdbg_device_,job_localhost,replica_0,task_0,device_GPU_0")
    (other / "a.b").mkdir(parents=True)
    (device / "x_0_DebugIdentity_2").write_bytes(event_bytes(np.int32([1]), "x:0:DebugIdentity"))
    (other / "a.b" / "y_1_DebugIdentity_1").write_bytes(event_bytes(np.int32([2]), "a.b/y:1:DebugIdentity"))
    dump = read_tfdbg_run(device.parent)
    assert [(r.op, r.slot, int(r.load()[0])) for r in dump] == [("a.b/y", 1, 2), ("x", 0, 1)]


def write_core(run: Path, **facts: object) -> None:
    event = tf_message("Event")
    event.log_message.message = json.dumps(facts).encode()
    (run / "_tfdbg_core_metadata_sessionrun00000000000001_5").write_bytes(event.SerializeToString())


@pytest.mark.parametrize(
    ("given", "steps"), [((7, 9), [7, 9]), ((-1, -1), [0, 1]), ((4, 4), [0, 1]), ((3, -1), [0, 1])]
)
def test_all_runs_of_a_folder(tmp_path: Path, given: tuple[int, int], steps: list[int]):
    for number, step in enumerate(given):
        device = tmp_path / f"run_{900 + number * 100}_{number}" / "_tfdbg_device_,job"
        device.mkdir(parents=True)
        write_core(device.parent, global_step=step, session_run_index=number)
        (device / f"a_0_DebugIdentity_{number}").write_bytes(event_bytes(np.int32([number])))
    dump = read_tfdbg_runs(tmp_path)
    assert [(record.step, int(record.load()[0])) for record in dump] == [(steps[0], 0), (steps[1], 1)]


def test_folder_without_runs(tmp_path: Path):
    with pytest.raises(DataError, match="holds no run"):
        read_tfdbg_runs(tmp_path)


def test_metadata_that_is_damaged(tmp_path: Path):
    write_core(tmp_path, global_step="seven", input_names=3)
    assert read_run_facts(tmp_path).global_step == -1
    (tmp_path / "_tfdbg_feed_keys_info_").write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match="cut off at byte 0"):
        read_run_facts(tmp_path)


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 62, 4), (-3,), (1,) * 40, (0, 1 << 63 - 1)])
@pytest.mark.parametrize("content", [b"1234", b""])
def test_tensor_that_claims_another_shape(device: Path, shape: tuple[int, ...], content: bytes):
    raw = event_bytes(np.frombuffer(content, np.float32), shape=shape)
    (device / "a_0_DebugIdentity_5").write_bytes(raw)
    dump = read_tfdbg_run(device.parent)
    assert all(record.source is None or record.load().size == 0 for record in dump)
    if not len(dump):
        assert len(dump.problems) == 1


def test_values_repeated_beyond_reason_are_refused(device: Path):
    event = tf_message("Event")
    value = event.summary.value.add(node_name=b"a:0:DebugIdentity")
    value.tensor.dtype = 1
    value.tensor.tensor_shape.dim.add(size=1 << 34)
    value.tensor.float_val.append(1.0)
    (device / "a_0_DebugIdentity_5").write_bytes(event.SerializeToString())
    (record,) = read_tfdbg_run(device.parent).records
    with pytest.raises(DataError, match="1 values for 17179869184 elements"):
        record.load()


def test_uninitialised_tensor_has_no_value(tmp_path: Path):
    device = tmp_path / "_tfdbg_device_x"
    device.mkdir()
    event = tf_message("Event")
    event.summary.value.add(node_name=b"a:0:DebugIdentity")
    (device / "a_0_DebugIdentity_5").write_bytes(event.SerializeToString())
    (record,) = read_tfdbg_run(tmp_path).records
    assert record.source is None
    assert "uninitialised" in record.note


def test_folder_that_is_none(tmp_path: Path):
    with pytest.raises(DataError, match="no run directory"):
        read_tfdbg_run(tmp_path)


def refusal(record: TensorRecord) -> str:
    """Why a tensor cannot be loaded, empty if it can; it must not be larger than what is expanded at most."""
    try:
        assert record.load().nbytes <= 1 << 26
    except DataError as error:
        return str(error)
    return ""


def check_reading(device: Path, raw: bytes) -> None:
    """Only a clean result or problems may come out."""
    (device / "a_0_DebugIdentity_5").write_bytes(raw)
    dump = read_tfdbg_run(device.parent)
    assert len(dump) + len(dump.problems) == 1
    for record in dump:
        if record.source:
            assert "\n" not in refusal(record)


@pytest.mark.parametrize("long", [False, True])
def test_fuzz(device: Path, long: bool):
    rng = random.Random(3)
    name = "scope/" + "n" * (4200 if long else 3) + ":0:DebugIdentity"
    whole = event_bytes(np.arange(6, dtype=np.float32).reshape(2, 3), name, chunk=(1, 0))
    for cut in range(0, len(whole), 160 if long else 1):
        check_reading(device, whole[:cut])
    for _ in range(450):
        raw = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3))):
            place = rng.choice((rng.randrange(len(raw)), rng.randrange(min(40, len(raw))), -rng.randrange(1, 160)))
            raw[place] = rng.choice((raw[place] ^ (1 << rng.randrange(8)), 0xFF, 0x80, 0, rng.randrange(256)))
        check_reading(device, bytes(raw))

"""TensorFlow's debug directories: bit-equal to what TensorFlow's own reader gives."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.registry import read_dump, read_tensor
from dumpers.formats.schema import tf_message
from dumpers.formats.tfdbg import read_tfdbg_run

tf = pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step recorded by the wrapper of TensorFlow's debugger."""
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    root = tmp_path_factory.mktemp("tfdbg")
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 3), name="x")
        w = tf.compat.v1.get_variable("net/w", (3, 2), initializer=tf.compat.v1.ones_initializer(), use_resource=False)
        r = tf.compat.v1.get_variable("net/r", (2,), initializer=tf.compat.v1.ones_initializer(), use_resource=True)
        y = tf.add(tf.matmul(x, w), r, name="net/layer.1/add")
        fetches = [
            y,
            tf.cast(y, tf.bfloat16, name="half"),
            tf.cast(y, tf.float16, name="fp16"),
            tf.greater(y, 0.0, name="mask"),
            tf.cast(y, tf.int64, name="ids"),
            tf.cast(y, tf.complex64, name="complex"),
            tf.strings.as_string(y, name="words"),
            tf.zeros_like(y)[:0],
            tf.split(x, 3, axis=1, name="parts")[2],
            tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)], name="loop"),
        ]
        init = tf.compat.v1.global_variables_initializer()
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # keeps the ops as they were written
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        session.run(init)
        wrapped = DumpingDebugWrapperSession(session, str(root))
        wrapped.run(fetches, {x: np.arange(6, dtype=np.float32).reshape(2, 3) - 2})
    (folder,) = [path for path in root.iterdir() if path.name.startswith("run_")]
    return folder


def test_every_tensor_is_bit_equal_to_tensorflow_s_reader(run: Path):
    from tensorflow.python.debug.lib import debug_data

    dump = read_tfdbg_run(run)
    assert dump.problems == ()
    assert dump.ignored == ()
    theirs = debug_data.DebugDumpDir(str(run)).dumped_tensor_data
    assert len(theirs) == len(dump) > 20
    ours = {(record.op, record.slot, record.timestamp_us): record for record in dump}
    seen = set()
    for datum in theirs:
        record = ours.pop((datum.node_name, datum.output_slot, datum.timestamp))
        value = datum.get_tensor()
        if isinstance(value, debug_data.InconvertibleTensorProto):
            assert record.source is None
            assert record.dtype == "resource"
            assert "no value" in record.note
            seen.add("resource")
            continue
        got = record.load()
        assert got.dtype == value.dtype
        assert got.shape == value.shape == record.shape
        assert got.tolist() == value.tolist() if got.dtype == object else got.tobytes() == value.tobytes()
        seen.add(record.dtype)
    assert not ours
    assert seen >= {"float32", "float16", "bfloat16", "bool", "int64", "int32", "complex64", "string", "resource"}


def test_names_types_graph_and_order(run: Path):
    dump = read_dump(run)
    assert dump.path == run
    record = dump.tensor("net/layer.1/add", "output", 0)
    assert (record.op_type, record.device, record.shape) == ("AddV2", "tf", (2, 2))
    assert dump.tensor("parts", "output", 2) is not None
    assert any(record.op.startswith("_arg_x") for record in dump)
    assert dump.graph.ops["net/layer.1/add"].type == "AddV2"
    times = [record.timestamp_us for record in dump]
    assert times == sorted(times)
    assert any(record.shape == (0, 2) and record.load().size == 0 for record in dump)


def test_one_file_and_pickled_source(run: Path):
    file = next(iter(run.glob("_tfdbg_device_*/net/layer.1/add_0_DebugIdentity_*")))
    (record,) = read_tensor(file)
    assert (record.op, record.slot) == ("net/layer.1/add", 0)
    assert pickle.loads(pickle.dumps(record.source)).load().shape == (2, 2)


def copy_run(run: Path, target: Path) -> Path:
    import shutil

    return Path(shutil.copytree(run, target / run.name))


def test_damaged_files_spoil_only_themselves(run: Path, tmp_path: Path):
    folder = copy_run(run, tmp_path)
    before = len(read_tfdbg_run(folder))
    files = sorted(folder.glob("_tfdbg_device_*/*_DebugIdentity_*"))[:3]
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-2])
    files[2].write_bytes(b"\xff" * 40)
    (files[0].parent / "notes.txt").write_text("x")
    dump = read_tfdbg_run(folder)
    assert len(dump) == before - 3
    assert {problem.path for problem in dump.problems} == set(files)
    assert [path.name for path in dump.ignored] == ["notes.txt"]


def test_tensor_that_claims_another_shape(tmp_path: Path):
    device = tmp_path / "run_1_1" / "_tfdbg_device_,job_localhost"
    device.mkdir(parents=True)
    event = tf_message("Event")
    value = event.summary.value.add(node_name=b"a:0:DebugIdentity")
    value.tensor.dtype = 1
    value.tensor.tensor_shape.dim.add(size=1 << 40)
    value.tensor.tensor_content = b"1234"
    (device / "a_0_DebugIdentity_5").write_bytes(event.SerializeToString())
    dump = read_tfdbg_run(tmp_path / "run_1_1")
    assert len(dump) == 0
    assert "4 bytes for a float32 tensor" in dump.problems[0].reason


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

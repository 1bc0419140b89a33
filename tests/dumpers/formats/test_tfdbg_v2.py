"""Debugger V2 logs: against TensorFlow's own reader of the same folder."""

from __future__ import annotations

import math
import pickle
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.crc32c import crc32c, masked
from dumpers.formats.kinds import identify
from dumpers.formats.schema import tf_message
from dumpers.formats.tfdbg_v2 import read_tfdbg_v2
from dumpers.formats.tfdbg_v2_graphs import plain_function_name
from dumpers.formats.tfdbg_v2_values import MODES, summary_of
from dumpers.records import TensorRecord

tf = pytest.importorskip("tensorflow")

WRITTEN_MODES = ("NO_TENSOR", "CURT_HEALTH", "CONCISE_HEALTH", "FULL_HEALTH", "SHAPE", "FULL_TENSOR")


def program(root: Path, mode: str, **options: object) -> None:
    """Eager ops, a function with a loop and a branch, many types, values that are not finite."""
    options.setdefault("circular_buffer_size", -1)
    writer = tf.debugging.experimental.enable_dump_debug_info(str(root), tensor_debug_mode=mode, **options)
    try:

        @tf.function
        def model(x, n):
            i = tf.constant(0)
            while i < n:
                x = tf.sin(x) + tf.math.log(x - 1.0)
                i += 1
            x = tf.cond(i > 1, lambda: x * 2.0, lambda: x)
            return x, tf.cast(x, tf.bfloat16), x > 0, tf.strings.as_string(i)

        a = tf.constant([[1.0, 2.0, 3.0]]) + 1.0
        tf.reshape(tf.range(8), [2, 2, 2, 1, 1, 1, 1]) * 2
        model(a, 2)
        tf.unstack(a[0])
        tf.cast(tf.constant([1.5, -math.inf, math.inf, math.nan, 0, -2]), tf.float64) + 0
        tf.complex([1.0], [2.0]) * 2
        tf.zeros([0, 3]) + 1
        tf.zeros([300, 100]) + 0.5
    finally:
        writer.FlushNonExecutionFiles()
        writer.FlushExecutionFiles()
        tf.debugging.experimental.disable_dump_debug_info()


def graph_program(root: Path, **options: object) -> None:
    """A session of the old kind. TensorFlow matches ``op_regex`` against text here and against bytes in eager mode."""
    from tensorflow.python.eager import context

    writer = tf.debugging.experimental.enable_dump_debug_info(str(root), tensor_debug_mode="FULL_TENSOR", **options)
    try:
        with context.graph_mode(), tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, (2,), name="x")
            y = tf.add(tf.sin(x), 1.0, name="scope/sum") * 2.0
            with tf.compat.v1.Session() as session:
                session.run(y, {x: [1.0, 2.0]})
    finally:
        writer.FlushNonExecutionFiles()
        writer.FlushExecutionFiles()
        tf.debugging.experimental.disable_dump_debug_info()


@pytest.fixture(scope="module", autouse=True)
def eager() -> Iterator[None]:
    from tensorflow.python.eager import context

    with context.eager_mode():
        yield


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    roots = {mode: tmp_path_factory.mktemp(mode) for mode in WRITTEN_MODES}
    for mode, root in roots.items():
        program(root, mode)
    return roots


def truth_of(root: Path):
    """TensorFlow's traces in order of time: (graph op or None, op type, slot, wall time, value, figures)."""
    from tensorflow.python.debug.lib.debug_events_reader import DebugDataReader

    rows = []
    with DebugDataReader(str(root)) as reader:
        reader.update()
        for trace in reader.graph_execution_traces():
            value = None if trace.op_type == "AsString" else reader.graph_execution_trace_to_tensor_value(trace)
            rows.append(
                (trace.op_name, trace.op_type, trace.output_slot, trace.wall_time, value, trace.debug_tensor_value)
            )
        for run in reader.executions():
            values = reader.execution_to_tensor_values(run)
            figures = run.debug_tensor_values or [None] * len(values)
            for slot in range(len(run.output_tensor_ids)):
                has = slot < len(values)
                rows.append((None, run.op_type, slot, run.wall_time, values[slot] if has else None,
                             figures[slot] if slot < len(figures) else None))  # fmt: skip
    return rows


def matched(root: Path):
    """Our record beside each of TensorFlow's rows."""
    dump = read_tfdbg_v2(root)
    assert dump.problems == ()
    assert dump.ignored == ()
    left: dict[tuple, list] = {}
    for record in dump:
        eager = record.op.startswith("eager/")
        left.setdefault((record.timestamp_us, record.op_type, record.slot, eager), []).append(record)
    pairs = []
    for row in truth_of(root):
        name, op_type, slot, wall_time, _, _ = row
        found = left[round(wall_time * 1e6), op_type, slot, name is None]
        fitting = [r for r in found if name is None or r.op == name or r.op.endswith("/" + name)]
        found.remove(fitting[0])
        pairs.append((fitting[0], row))
    assert not any(left.values())
    assert len(pairs) == len(dump) > 30
    return pairs


def test_full_tensors_are_bit_equal(logs: dict[str, Path]):
    kinds = set()
    for record, (_, _, _, _, value, _) in matched(logs["FULL_TENSOR"]):
        if record.dtype == "string":  # TensorFlow's reader cannot read the texts that its writer writes
            assert record.load().tolist() == b"2"
            kinds.add("string")
            continue
        got = pickle.loads(pickle.dumps(record.source)).load()
        kinds.add(record.dtype)
        assert (got.shape, record.shape) == (value.shape, value.shape)
        assert got.dtype.name == value.dtype.name
        assert got.tobytes() == value.tobytes()
    assert kinds >= {"float32", "float64", "int32", "bool", "bfloat16", "string", "complex64"}


def test_health_modes_tell_what_tensorflow_tells(logs: dict[str, Path]):
    for record, (_, _, _, _, _, figures) in matched(logs["CONCISE_HEALTH"]):
        if not figures:
            assert (record.statistics, record.source) == (None, None)
            continue
        _, count, low, high, nan = figures
        s = record.statistics
        assert (s.count, s.neg_inf, s.pos_inf, s.nan) == (count, low, high, nan)
    for record, (_, _, _, _, _, figures) in matched(logs["CURT_HEALTH"]):
        if figures:
            assert record.statistics.nan == (0 if figures[1] == 0 else None)
            assert ("NaN or infinity" in record.note) == (figures[1] == 1)
    seen = []
    for record, (_, _, _, _, _, figures) in matched(logs["FULL_HEALTH"]):
        if figures:
            s = record.statistics
            assert (s.count, s.neg_inf, s.pos_inf, s.nan) == tuple(figures[4:8])
            assert record.dtype == tf.as_dtype(int(figures[2])).name
            seen.append((s.neg_inf, s.pos_inf, s.nan, record.note))
    assert any(row[:3] == (1, 1, 1) and "1 negative, 1 zero, 1 positive" in row[3] for row in seen)


def test_full_health_of_the_values(logs: dict[str, Path]):
    """The counts against NumPy on the values of the other log of the same program, not against TensorFlow's vector."""
    values = {(r.op, r.slot): r.load() for r in read_tfdbg_v2(logs["FULL_TENSOR"]) if r.source}
    checked = 0
    for record in read_tfdbg_v2(logs["FULL_HEALTH"]):
        if record.statistics is None or record.op.startswith("while"):  # of several passes the last would be taken
            continue
        value = values[record.op, record.slot].astype(np.float64)
        s = record.statistics
        assert s.count == value.size
        assert (s.nan, s.pos_inf) == (np.isnan(value).sum(), (value == np.inf).sum())
        assert s.neg_inf == (value == -np.inf).sum()
        checked += 1
    assert checked > 6


def test_shapes(logs: dict[str, Path]):
    values = {(r.op, r.slot): r for r in read_tfdbg_v2(logs["FULL_TENSOR"])}
    deep = 0
    for record, (_, _, _, _, _, figures) in matched(logs["SHAPE"]):
        if not figures:
            continue
        other = values[record.op, record.slot]
        assert record.dtype == other.dtype
        assert record.statistics.count == math.prod(other.shape)
        if len(other.shape) > 6:
            assert record.shape is None
            assert f"rank {len(other.shape)}, last dimensions {other.shape[-6:]}" in record.note
            deep += 1
        else:
            assert record.shape == other.shape
    assert deep == 2


def test_no_tensor_is_no_value(logs: dict[str, Path]):
    dump = read_tfdbg_v2(logs["NO_TENSOR"])
    assert len(dump) > 40
    assert all(r.source is None and r.statistics is None and "NO_TENSOR" in r.note for r in dump)
    assert {r.op for r in dump} >= {"eager/model", "eager/AddV2", "while/Sin"}


def test_graph_names_types_and_inputs(logs: dict[str, Path]):
    from tensorflow.python.debug.lib.debug_events_reader import DebugDataReader

    dump = read_tfdbg_v2(logs["FULL_TENSOR"])
    with DebugDataReader(str(logs["FULL_TENSOR"])) as reader:
        reader.update()
        theirs = reader.graph_op_digests()
        names = [digest.op_name for digest in theirs]
        assert len(dump.graph) == len(theirs)
        for digest, op in zip(theirs, dump.graph, strict=True):
            assert op.type == digest.op_type
            assert op.name == digest.op_name or (names.count(digest.op_name) > 1 and op.name.endswith(digest.op_name))
            assert [source.slot for source in op.inputs] == [int(n.split(":")[1]) for n in digest.input_names or ()]
            for source, text in zip(op.inputs, digest.input_names or (), strict=True):
                assert source.op == text.split(":")[0] or source.op.endswith("/" + text.split(":")[0])
    assert {s.op for s in dump.graph.ops["while/add"].inputs} == {"while/Sin", "while/Log"}
    assert any(name.startswith("while_body/while/") for name in dump.graph.ops)  # no number of the process in it


def test_names_do_not_depend_on_the_process(logs: dict[str, Path], tmp_path: Path):
    program(tmp_path, "SHAPE")  # all functions of this process have other numbers now
    again, first = (read_tfdbg_v2(root) for root in (tmp_path, logs["SHAPE"]))
    assert [(r.op, r.slot, r.shape) for r in again] == [(r.op, r.slot, r.shape) for r in first]
    assert list(again.graph.ops) == list(first.graph.ops)
    assert plain_function_name("__inference_train_step_1234") == "train_step"
    assert plain_function_name("step_2") == "step_2"


def test_records_of_a_large_tensor_are_listed_unread(logs: dict[str, Path]):
    (large,) = [r for r in read_tfdbg_v2(logs["FULL_TENSOR"]) if r.shape == (300, 100) and r.op_type == "AddV2"]
    assert len(pickle.dumps(large.source)) < 600
    assert (large.load() == 0.5).all()


def test_op_regex_types_and_circular_buffer(tmp_path: Path):
    graph_program(tmp_path / "regex", op_regex="(Sin|AddV2)$")
    dump = read_tfdbg_v2(tmp_path / "regex")
    assert {r.op_type for r in dump} == {"Sin", "AddV2"}
    assert {op.type for op in dump.graph} > {"Sin", "AddV2", "Placeholder", "Mul"}
    assert dump.tensor("scope/sum", "output", 0).load().tolist() == (np.sin(np.float32([1, 2])) + 1).tolist()
    program(tmp_path / "types", "FULL_TENSOR", tensor_dtypes=[tf.bool])
    (record,) = [r for r in read_tfdbg_v2(tmp_path / "types") if r.op == "eager/model" and r.source]
    assert (record.dtype, record.slot) == ("bool", 0)
    left_out = [r for r in read_tfdbg_v2(tmp_path / "types") if r.op == "eager/Mul"]
    assert [r.note for r in left_out] == ["no value: FULL_TENSOR was not asked for ops or types like this one"]
    assert "1 of 4 outputs" in record.note
    program(tmp_path / "ring", "FULL_TENSOR", circular_buffer_size=5)
    ring = list(read_tfdbg_v2(tmp_path / "ring"))
    assert len({r.op for r in ring if r.op.startswith("eager/")}) == 5
    assert len(ring) == len(truth_of(tmp_path / "ring"))


def test_several_runs_in_one_folder(logs: dict[str, Path], tmp_path: Path):
    for mode, number in (("SHAPE", 5), ("FULL_TENSOR", 9)):
        for file in logs[mode].iterdir():
            shutil.copy(file, tmp_path / f"tfdbg_events.{number:010d}.host.{file.name.rpartition('.')[2]}")
    newest = read_tfdbg_v2(tmp_path)
    assert [r.op for r in newest] == [r.op for r in read_tfdbg_v2(logs["FULL_TENSOR"])]
    assert {p.name.split(".")[1] for p in newest.ignored} == {"0000000005"}
    assert len(newest.ignored) == 6
    for name in ("tfdbg_events.0000000005.host", "tfdbg_events.0000000005.host.execution"):
        chosen = read_tfdbg_v2(tmp_path / name)
        assert [r.op for r in chosen] == [r.op for r in read_tfdbg_v2(logs["SHAPE"])]
        assert {p.name.split(".")[1] for p in chosen.ignored} == {"0000000009"}
    with pytest.raises(DataError, match="holds no run"):
        read_tfdbg_v2(tmp_path / "tfdbg_events.0000000007.host")


def copy_log(log: Path, target: Path) -> tuple[Path, str]:
    folder = Path(shutil.copytree(log, target / "log"))
    return folder, next(folder.glob("*.metadata")).name.removesuffix(".metadata")


def test_hosts_of_one_run_are_read_together(logs: dict[str, Path], tmp_path: Path):
    folder, prefix = copy_log(logs["FULL_TENSOR"], tmp_path)
    single = len(read_tfdbg_v2(folder))
    for file in list(folder.iterdir()):
        part = file.name.rpartition(".")[2]
        shutil.copy(file, folder / f"{prefix}b.{part}")
        if part in ("execution", "graphs"):
            (folder / f"{prefix}b.{part}").write_bytes(b"")
    eager = sum(r.op.startswith("eager/") for r in read_tfdbg_v2(logs["FULL_TENSOR"]))
    assert len(read_tfdbg_v2(folder)) == 2 * single - eager


def test_crashed_run_keeps_what_was_written(logs: dict[str, Path], tmp_path: Path):
    folder, prefix = copy_log(logs["FULL_TENSOR"], tmp_path)
    before = read_tfdbg_v2(folder)
    traces = folder / f"{prefix}.graph_execution_traces"
    traces.write_bytes(traces.read_bytes()[:-7])
    dump = read_tfdbg_v2(folder)
    assert len(dump) == len(before) - 1
    (problem,) = dump.problems
    assert problem.path == traces
    assert "what comes before is read" in problem.reason
    raw = bytearray(traces.read_bytes())
    raw[len(raw) // 2] ^= 0x20
    traces.write_bytes(raw)
    assert 0 < len(read_tfdbg_v2(folder)) < len(dump)
    (folder / f"{prefix}.graphs").unlink()
    (folder / f"{prefix}.metadata").write_bytes(b"")
    dump = read_tfdbg_v2(folder)
    assert [p.path.suffix for p in dump.problems] == [".metadata", ".graphs", ".graph_execution_traces"]
    assert dump.graph is None
    assert any(r.op == "eager/AddV2" for r in dump)


def test_folder_that_is_none(tmp_path: Path):
    assert identify(tmp_path) is None
    with pytest.raises(DataError, match="holds no run of Debugger V2"):
        read_tfdbg_v2(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_tfdbg_v2(tmp_path / "none" / "none")


def test_is_recognised(logs: dict[str, Path]):
    assert all(identify(root).kind.name == "tfdbg_v2" for root in logs.values())


@pytest.mark.parametrize(
    ("mode", "values"),
    [
        (3, [1.0]),
        (3, [-1, 2, 0.5, 0, 0]),
        (3, [0, math.nan, 0, 0, 0]),
        (4, [0] * 4 + [5] + [0] * 6),
        (5, [0, 1, 2, 5, 2, 2, 0, 0, 0, 0]),
        (5, [0, 1, -2, 5, 2, 2, 0, 0, 0, 0]),
    ],
)
def test_vectors_that_make_no_sense(mode: int, values: list[float]):
    with pytest.raises(DataError):
        summary_of(mode, values)


def test_modes_that_are_seldom_written():
    assert set(MODES.values()) >= set(WRITTEN_MODES)
    three = summary_of(8, [-math.inf, 0, math.nan])
    assert (three.statistics.neg_inf, three.statistics.pos_inf, three.statistics.nan) == (None, 0, None)
    assert "holds -inf, NaN" in three.note
    assert "not decoded" in summary_of(6, [1.0] * 22).note


def frame(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(crc32c(head))) + data + struct.pack("<I", masked(crc32c(data)))


def refusal(record: TensorRecord) -> str:
    """Why a tensor cannot be loaded, empty if it can; it must not be larger than what is expanded at most."""
    try:
        assert record.load().nbytes <= 1 << 26
    except DataError as error:
        return str(error)
    return ""


def check_reading(folder: Path) -> None:
    dump = read_tfdbg_v2(folder)
    for record in dump:
        if record.source:
            assert "\n" not in refusal(record)
    assert all("\n" not in problem.reason for problem in dump.problems)


def test_fuzz(tmp_path: Path):
    """Records with right checksums around damaged messages, the harder case."""
    rng = random.Random(4)
    event = tf_message("DebugEvent")
    event.wall_time = 5.0
    trace = event.graph_execution_trace
    trace.tfdbg_context_id, trace.op_name, trace.tensor_debug_mode, trace.output_slot = b"g", b"scope/op", 7, 1
    trace.tensor_proto.dtype = 1
    trace.tensor_proto.tensor_shape.dim.add(size=3)
    trace.tensor_proto.tensor_content = np.float32([1, 2, 3]).tobytes()
    graphs = tf_message("DebugEvent")
    graphs.graph_op_creation.op_name, graphs.graph_op_creation.graph_id = b"scope/op", b"g"
    graphs.graph_op_creation.input_names.extend([b"a:0", b"b"])
    run = tf_message("DebugEvent")
    run.wall_time = 6.0
    run.execution.op_type, run.execution.tensor_debug_mode, run.execution.num_outputs = b"MatMul", 4, 1
    run.execution.tensor_protos.add(dtype=2, tensor_content=np.float64([1, -1, 1, 1, 4, 0, 1, 1, 1, 1, 0]).tobytes())
    run.execution.tensor_protos[0].tensor_shape.dim.add(size=11)
    meta = tf_message("DebugEvent")
    meta.wall_time, meta.debug_metadata.tfdbg_run_id = 1.0, b"id"
    files = {"metadata": meta, "graphs": graphs, "execution": run, "graph_execution_traces": event}
    whole = {part: message.SerializeToString() for part, message in files.items()}
    for part, raw in whole.items():
        (tmp_path / f"tfdbg_events.1.h.{part}").write_bytes(frame(raw))
    dump = read_tfdbg_v2(tmp_path)
    assert dump.problems == ()
    assert [(r.op, r.slot) for r in dump] == [("scope/op", 1), ("eager/MatMul", 0)]
    for number in range(400):
        part = rng.choice(sorted(whole))
        raw = bytearray(whole[part])
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(raw))
            raw[place] = rng.choice((raw[place] ^ (1 << rng.randrange(8)), 0xFF, 0x80, 0, rng.randrange(256)))
        if number % 5 == 0:
            del raw[rng.randrange(len(raw)) :]
        path = tmp_path / f"tfdbg_events.1.h.{part}"
        path.write_bytes(frame(bytes(raw)))
        check_reading(tmp_path)
        path.write_bytes(frame(whole[part]))

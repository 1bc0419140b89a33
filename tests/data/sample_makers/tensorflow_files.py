"""Everything that only TensorFlow itself should write; what is right is what its own readers say."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from sample_makers.expect import Expected, f32, tensor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _config() -> object:
    import tensorflow as tf

    tf1 = tf.compat.v1
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
    return config


def _small_graph() -> object:
    """x [2] -> x * w + b -> relu, as a TensorFlow 1 graph with variables."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [2], name="x")
        w = tf1.get_variable("w", initializer=np.array([2, -3], np.float32), use_resource=False)
        product = tf.multiply(x, w, name="net/Mul")
        with tf.control_dependencies([product]):
            tf.nn.relu(tf.add(product, np.float32(0.5), name="net/Add"), name="net/Relu")
        tf.constant([b"a", b"bc"], name="texts")
        tf1.global_variables_initializer()
    return graph


def tfdbg(folder: Path) -> Expected:
    """One run of the dumping wrapper session."""
    import tensorflow as tf
    from tensorflow.python.debug.lib.debug_data import DebugDumpDir
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    graph = _small_graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph, config=_config()) as session:
        session.run("init")
        # The place stands in the dumped graph: no path of the machine that makes the samples.
        place = Path(tempfile.gettempdir()) / "tfdbg_sample"
        wrapped = DumpingDebugWrapperSession(session, str(place))
        wrapped.run(["net/Relu:0", "texts:0"], feed_dict={"x:0": np.array([1, np.inf], np.float32)})
    shutil.move(place, folder)
    (run,) = folder.glob("run_*")
    data = DebugDumpDir(str(run), validate=False).dumped_tensor_data
    return {f"{datum.node_name}:output:{datum.output_slot}": _value(datum.get_tensor()) for datum in data}


def _value(value: object) -> Expected:
    array = np.asarray(value)
    if array.dtype == object:
        texts = [item.decode() for item in array.ravel().tolist()]
        return {"dtype": "string", "shape": list(array.shape), "values": texts}
    return tensor(array)


def tfdbg_v2(folder: Path) -> Expected:
    """Debugger V2, full tensors: eager ops and a function's ops."""
    import tensorflow as tf
    from tensorflow.python.debug.lib.debug_events_reader import DebugDataReader

    tf.debugging.experimental.enable_dump_debug_info(
        str(folder), tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
    )
    doubled = tf.function(lambda x: tf.math.log(x) * 2.0)
    doubled(tf.constant([1.0, 0.0])) + 1.0
    tf.debugging.experimental.disable_dump_debug_info()
    found: list[object] = []
    with DebugDataReader(str(folder)) as reader:
        reader.update()
        for execution in reader.executions():
            for value in reader.execution_to_tensor_values(execution):
                found.append([execution.op_type, _value(value)])
        for trace in reader.graph_execution_traces():
            found.append([trace.op_type, _value(reader.graph_execution_trace_to_tensor_value(trace))])
    for part in ("source_files", "stack_frames"):  # megabytes of TensorFlow's source, and paths of this machine
        next(folder.glob(f"*.{part}")).unlink()
    return {"tensors": found}


def _read_checkpoint(prefix: Path) -> Expected:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    names = sorted(reader.get_variable_to_shape_map())
    return {name: _value(reader.get_tensor(name)) for name in names}


def _saved(folder: Path, version: int) -> Expected:
    """A saver's checkpoint with a partitioned table, sharded in files where the version can."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    folder.mkdir(parents=True)
    table = f32(6, 2)
    values = {"bias": np.array([0.5, np.nan], np.float32), "global_step": np.array(7, np.int64)}
    if version != tf1.train.SaverDef.V1:  # which knows no float16
        values["half"] = np.array([1.5], np.float16)
    graph = tf.Graph()
    with graph.as_default(), tf1.Session(graph=graph, config=_config()) as session:

        def part(shape: list[int], dtype: object = None, partition_info: object = None) -> object:
            return tf.constant(table[partition_info.var_offset[0] :][: shape[0]])  # type: ignore[attr-defined]

        cut = tf1.fixed_size_partitioner(3)
        tf1.get_variable("table", [6, 2], tf.float32, part, partitioner=cut, use_resource=False)
        for name, value in values.items():
            tf1.get_variable(name, initializer=value, use_resource=False)
        session.run(tf1.global_variables_initializer())
        saver = tf1.train.Saver(write_version=version, save_relative_paths=True)
        saver.save(session, str(folder / "model.ckpt"), global_step=7, write_meta_graph=False)
    return {"table": _value(table), **{name: _value(value) for name, value in values.items()}}


def checkpoint_v2(folder: Path) -> Expected:
    """The bundle: index and data file."""
    import tensorflow as tf

    return _saved(folder, tf.compat.v1.train.SaverDef.V2)


def checkpoint_v1(folder: Path) -> Expected:
    """The table file of old savers."""
    import tensorflow as tf

    return _saved(folder, tf.compat.v1.train.SaverDef.V1)


def checkpoint_object(folder: Path) -> Expected:
    """An object-based checkpoint with an optimizer-like nesting."""
    import tensorflow as tf

    inner = tf.Module()
    inner.kernel = tf.Variable(f32(2, 2))
    step = tf.Variable(np.int64(3))
    prefix = tf.train.Checkpoint(net=inner, step=step).write(str(folder / "ckpt-1"))
    found = _read_checkpoint(Path(prefix))
    found.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    return found


def event_file(folder: Path) -> Expected:
    """Scalars as TensorFlow 1 wrote them (simple values) and as TensorFlow 2 does (tensors)."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    curves: dict[str, list[list[float]]] = {"loss": [], "auc": []}
    with tf.Graph().as_default():
        writer = tf1.summary.FileWriter(str(folder / "v1"))
        for step in range(3):
            loss = float(np.float32(1 / (step + 1)))
            writer.add_summary(tf1.Summary(value=[tf1.Summary.Value(tag="loss", simple_value=loss)]), step)
            curves["loss"].append([step, loss])
        writer.close()
    second = tf.summary.create_file_writer(str(folder / "v2"))
    with second.as_default():
        for step in (10, 20):
            tf.summary.scalar("auc", 0.5 + step / 100, step=step)
            curves["auc"].append([step, float(np.float32(0.5 + step / 100))])
    second.close()
    return {"curves": curves}


def _graph_facts(graph: object) -> Expected:
    ops: dict[str, object] = {}
    for op in graph.get_operations():  # type: ignore[attr-defined]
        inputs = [f"{value.op.name}:{value.value_index}" for value in op.inputs]
        ops[op.name] = [op.type, inputs, [control.name for control in op.control_inputs]]
    return {"ops": ops}


def graph_pb(folder: Path) -> Expected:
    """A binary GraphDef."""
    import tensorflow as tf

    graph = _small_graph()
    tf.io.write_graph(graph, str(folder), "graph.pb", as_text=False)
    return _graph_facts(graph)


def graph_pbtxt(folder: Path) -> Expected:
    """A GraphDef as text."""
    import tensorflow as tf

    graph = _small_graph()
    tf.io.write_graph(graph, str(folder), "graph.pbtxt", as_text=True)
    return _graph_facts(graph)


def meta_graph(folder: Path) -> Expected:
    """The file that a saver writes beside a checkpoint."""
    import tensorflow as tf

    graph = _small_graph()
    folder.mkdir(parents=True)
    with graph.as_default():
        tf.compat.v1.train.export_meta_graph(str(folder / "model.meta"), graph=graph)
    return _graph_facts(graph)


def saved_model(folder: Path) -> Expected:
    """A SavedModel of TensorFlow 1 style: one graph, a signature, variables."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    graph = _small_graph()
    with graph.as_default(), tf1.Session(graph=graph, config=_config()) as session:
        session.run("init")
        builder = tf1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], strip_default_attrs=True)
        builder.save()
    return _graph_facts(graph)

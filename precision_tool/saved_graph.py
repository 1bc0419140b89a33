"""The step that ``PrecisionTfSession`` saved, ready to run: its graph, its variables, its inputs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dumpers.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

Array = NDArray[Any]


@dataclass(frozen=True)
class SavedStep:
    """A saved step in a graph of its own.

    Attributes:
        checkpoint: Prefix of the checkpoint's files.
        graph: The training graph, with a seed in every op that draws numbers, dropout off.
        train_ops: The collection ``train_op``.
        feeds: Value of each placeholder that the step needs, by name.
        made_up: Names of placeholders without a saved value, which got random ones.
        notes: What the user should know.
    """

    checkpoint: Path
    graph: tf.Graph
    train_ops: tuple[tf.Operation, ...]
    feeds: dict[str, Array]
    made_up: tuple[str, ...]
    notes: tuple[str, ...]


def load_step(folder: Path, seed: int) -> SavedStep:
    """Loads the latest checkpoint of a folder with its graph and inputs, into a new graph.

    Args:
        folder: ``tf/checkpoints``.
        seed: For ops without one, and for inputs that were not saved.

    Raises:
        DataError: nothing was saved, a file is damaged, or the graph has no training op.
    """
    import tensorflow as tf

    checkpoint = _latest(folder)
    meta = _read_meta(checkpoint.with_name(checkpoint.name + ".meta"))
    notes = _prepare(meta.graph_def, seed)
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.compat.v1.train.import_meta_graph(meta, clear_devices=True)
    except (ValueError, KeyError, TypeError, tf.errors.OpError) as error:
        raise DataError(f"{checkpoint}.meta: the graph cannot be built: {_first_line(error)}") from error
    train_ops = tuple(getattr(op, "op", op) for op in graph.get_collection("train_op"))
    if not train_ops:
        raise DataError(
            f"{checkpoint}.meta: the collection train_op is empty; optimizers of TensorFlow fill it, for others call"
            " tf.compat.v1.add_to_collection('train_op', op) in the training script"
        )
    feeds, made_up = _feeds(graph, train_ops, folder / "input", seed)
    lines = [f"{name}: no saved input, fed with random values (seed {seed})" for name in made_up]
    return SavedStep(checkpoint, graph, train_ops, feeds, made_up, (*notes, *lines))


def restore(step: SavedStep, session: tf.compat.v1.Session) -> None:
    """Gives the session's variables their saved values, initial ones where none were saved, and fills tables.

    No op is added: the initialisers run with the saved values fed.

    Raises:
        DataError: the checkpoint is damaged or does not fit its graph.
    """
    import tensorflow as tf

    from dumpers.capture.saved_step import graph_variables

    try:
        reader = tf.train.load_checkpoint(str(step.checkpoint))
        known = reader.get_variable_to_shape_map()
        missing = []
        for variable in graph_variables(step.graph):
            value = _saved_value(reader, known, variable)
            if value is None:
                missing.append(variable.initializer)
            else:
                session.run(variable.initializer, {variable.initializer.inputs[1].name: value})
        if missing:
            session.run(missing)
        session.run(step.graph.get_collection("table_initializer"))
    except (ValueError, TypeError, IndexError, tf.errors.OpError) as error:
        raise DataError(f"{step.checkpoint}: cannot be restored: {_first_line(error)}") from error


def _latest(folder: Path) -> Path:
    import tensorflow as tf

    try:
        named = tf.train.latest_checkpoint(str(folder))
    except (ValueError, tf.errors.OpError):
        named = None
    prefix = Path(named) if named else folder / "ckpt"
    if not prefix.with_name(prefix.name + ".index").exists():
        raise DataError(
            f"{folder}: no checkpoint; train a step with precision_tool.tf_session.PrecisionTfSession first"
        )
    return prefix


def _read_meta(path: Path) -> Any:  # noqa: ANN401  a MetaGraphDef, whose class TensorFlow makes at run time
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        return tf.compat.v1.MetaGraphDef.FromString(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DecodeError as error:
        raise DataError(f"{path}: is no MetaGraphDef (damaged or cut off); save the step again") from error


def _prepare(graph_def: Any, seed: int) -> list[str]:  # noqa: ANN401  a GraphDef
    """Switches dropout off and gives a seed to every op that has none; returns notes."""
    notes = []
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    for node in nodes:
        if "dropout" in node.name and "rate" in node.name.rsplit("/", 1)[-1]:
            if node.op == "Const":
                notes.append(f"{node.name}: set to 0")
                _set_zero(node.attr["value"].tensor)
            elif node.op.startswith("Placeholder"):
                notes.append(f"{node.name}: {node.op}, no constant; stays as it is")
        if "seed" in node.attr and "seed2" in node.attr and not (node.attr["seed"].i or node.attr["seed2"].i):
            node.attr["seed"].i = seed
            node.attr["seed2"].i = zlib.crc32(node.name.encode("utf-8")) >> 1
    return notes


def _set_zero(tensor: Any) -> None:  # noqa: ANN401  a TensorProto
    import tensorflow as tf

    tensor.CopyFrom(tf.make_tensor_proto(np.zeros_like(tf.make_ndarray(tensor))))


def _feeds(
    graph: tf.Graph, train_ops: tuple[tf.Operation, ...], folder: Path, seed: int
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Returns a value for each placeholder that the ops need, and the names of those without a saved one."""
    from dumpers.capture.saved_step import input_file_name
    from dumpers.capture.steps import executed

    needed = sorted(
        (op.outputs[0] for op in executed(train_ops) if op.type == "Placeholder"), key=lambda t: str(t.name)
    )
    files: dict[str, str] = {}
    feeds: dict[str, Array] = {}
    for tensor in needed:
        file = input_file_name(tensor.name)
        if file in files:
            raise DataError(f"{folder / file}: stands for both {files[file]} and {tensor.name}; rename one of them")
        files[file] = tensor.name
        if (folder / file).exists():
            feeds[tensor.name] = _saved_input(folder / file, tensor)
    rows = next((value.shape[0] for value in feeds.values() if value.ndim), 1)
    made_up = [tensor for tensor in needed if not (folder / input_file_name(tensor.name)).exists()]
    for tensor in made_up:
        feeds[tensor.name] = _random(tensor, rows, seed)
    return feeds, tuple(str(tensor.name) for tensor in made_up)


def _saved_input(path: Path, tensor: tf.Tensor) -> Array:
    dtype = np.dtype(tensor.dtype.base_dtype.as_numpy_dtype)
    try:
        value: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as npy: {_first_line(error)}; save the step again") from error
    if value.dtype.kind == "V" and value.dtype.itemsize == dtype.itemsize:
        value = value.view(dtype)
    if not tensor.shape.is_compatible_with(value.shape):
        raise DataError(f"{path}: has shape {list(value.shape)}, {tensor.name} takes {tensor.shape}")
    if value.dtype.kind != "S" and value.dtype != dtype:
        raise DataError(f"{path}: holds {value.dtype}, {tensor.name} takes {dtype}")
    return value


def _random(tensor: tf.Tensor, rows: int, seed: int) -> Array:
    """Random values for a placeholder: unknown first dimensions get the rows of the saved inputs, others 1."""
    random = np.random.default_rng([seed, zlib.crc32(str(tensor.name).encode("utf-8"))])
    known = tensor.shape.as_list() if tensor.shape.rank is not None else []
    shape = [n if n is not None else (rows if axis == 0 else 1) for axis, n in enumerate(known)]
    dtype = np.dtype(tensor.dtype.base_dtype.as_numpy_dtype)
    if dtype.kind == "O":
        return np.full(shape, b"", dtype)
    if dtype.kind in "iub":
        return np.asarray(random.integers(0, 2, size=shape)).astype(dtype)  # small: it may be an index
    return np.asarray(random.random(shape)).astype(dtype)


def _saved_value(reader: Any, known: dict[str, list[int]], variable: tf.Variable) -> Array | None:  # noqa: ANN401
    """The value of a variable in a checkpoint, of a partitioned one its part; None if it is not there."""
    from dumpers.capture.saved_step import checkpoint_entry

    name, part, _ = checkpoint_entry(variable)
    if name not in known:
        return None
    whole: Array = np.asarray(reader.get_tensor(name))
    if not part:
        return whole
    info = variable._save_slice_info
    return whole[tuple(slice(at, at + n) for at, n in zip(info.var_offset, info.var_shape, strict=True))]


def _first_line(error: Exception) -> str:
    lines = str(getattr(error, "message", "") or error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__

"""What ``PrecisionTfSession`` saves around a run, for ``train`` to run it again: the fed values and all variables.

Variables are read through what the graph has already and written by a graph of our own, so that the user's graph gets
no op: its names, and the seeds that TensorFlow takes from the number of ops, stay what they were.
"""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from .arrays import storable, write_bytes, write_npy
from .record import make_private
from .requests import Fetched, Fetches, read_request
from .talk import SayOnce

if TYPE_CHECKING:
    import tensorflow as tf

CHECKPOINT = "ckpt"
INPUTS = "input"
_MAX_NAME_BYTES = 240
_PART = ".part"
_STATE = 'model_checkpoint_path: "{0}"\nall_model_checkpoint_paths: "{0}"\n'.format(CHECKPOINT)
_VARIABLES = ("variables", "local_variables")

Read = Callable[[List[Any]], List[Any]]
"""Evaluates variables of the session."""

Entry = Tuple[str, str, "tf.DType"]
"""Name in the checkpoint, slice of a partitioned variable (empty for a whole one), dtype."""


def input_file_name(tensor: str) -> str:
    """Returns the name of the file of a fed tensor: ``:`` and ``/`` become ``_``; cut where it is too long."""
    name = tensor.replace(":", "_").replace("/", "_")
    raw = name.encode("utf-8")
    if len(raw) > _MAX_NAME_BYTES:
        name = "{}_{:08x}".format(raw[: _MAX_NAME_BYTES - 10].decode("utf-8", "ignore"), zlib.crc32(raw))
    return name + ".npy"


class StepSaver:
    """Saves the inputs before a run and the variables after it. A full disk is said once and changes nothing else.

    Args:
        graph: The session's graph.
        folder: Gets ``ckpt.*`` and ``input``.
    """

    def __init__(self, graph: tf.Graph, folder: Path) -> None:
        self._graph = graph
        self._folder = folder
        self._writer: Optional[_CheckpointWriter] = None
        self._meta_version = -1
        self.say_once = SayOnce()

    def save_inputs(self, fetches: Fetches, feed_dict: Optional[Mapping[Any, Any]]) -> None:
        """Saves what is fed, each tensor to a file; the parts of a sparse tensor are tensors too."""
        files: Dict[str, str] = {}
        for name, value in read_request(self._graph, fetches, feed_dict).fed_copies():
            file = input_file_name(name)
            if file in files:
                self.say_once(file, "{} and {} would both be {}: the first is saved".format(files[file], name, file))
                continue
            files[file] = name
            try:
                dtype = self._graph.get_tensor_by_name(name).dtype.base_dtype.name
                make_private(self._folder / INPUTS)
                write_npy(self._folder / INPUTS / file, storable(value, dtype)[0])
            except (OSError, ValueError) as error:
                self._refused(error)

    def save_variables(self, read: Read) -> None:
        """Saves all variables that have a value.

        The index goes away first and comes last: a checkpoint with an index is whole.
        """
        import tensorflow as tf

        entries, values = _read_all(self._graph, read)
        if not entries:
            return
        part = self._folder / _PART
        try:
            make_private(part)
            self._write(part, entries, values)
        except (OSError, ValueError, tf.errors.OpError) as error:
            self._refused(error)
        finally:
            shutil.rmtree(str(part), ignore_errors=True)

    def close(self) -> None:
        """Frees what writing takes."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, part: Path, entries: Tuple[Entry, ...], values: List[Fetched]) -> None:
        if self._writer is None or self._writer.entries != entries:
            self.close()
            self._writer = _CheckpointWriter(entries)
        self._writer.write(part / CHECKPOINT, values)
        index = self._folder / (CHECKPOINT + ".index")
        if index.exists():
            os.unlink(str(index))
        self._write_meta()
        names = sorted(path.name for path in part.iterdir())
        for name in sorted(names, key=lambda name: name == index.name):
            os.replace(str(part / name), str(self._folder / name))
        write_bytes(self._folder / "checkpoint", _STATE.encode("ascii"))

    def _write_meta(self) -> None:
        import tensorflow as tf

        if self._meta_version != self._graph.version:
            meta = tf.compat.v1.train.export_meta_graph(graph=self._graph)
            write_bytes(self._folder / (CHECKPOINT + ".meta"), meta.SerializeToString(deterministic=True))
            self._meta_version = self._graph.version

    def _refused(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(getattr(error, "message", "") or error)
        self.say_once(
            "disk",
            "{}: the step could not be saved: {}; training goes on. Free some space or set ROOT_DIR to a larger "
            "disk".format(self._folder, reason[:300]),
        )


class _CheckpointWriter:
    """Writes checkpoints of the same variables, from a graph and a session of its own on the host."""

    def __init__(self, entries: Tuple[Entry, ...]) -> None:
        import tensorflow as tf

        self.entries = entries
        graph = tf.Graph()
        with graph.as_default(), graph.device("/cpu:0"):
            self._prefix = tf.compat.v1.placeholder(tf.string, [])
            self._values = [tf.compat.v1.placeholder(dtype) for _, _, dtype in entries]
            self._save = tf.raw_ops.SaveV2(
                prefix=self._prefix,
                tensor_names=[name for name, _, _ in entries],
                shape_and_slices=[part for _, part, _ in entries],
                tensors=self._values,
            )
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=graph, config=config)

    def write(self, prefix: Path, values: List[Fetched]) -> None:
        """Writes ``<prefix>.index`` and ``<prefix>.data-00000-of-00001``."""
        feeds = dict(zip(self._values, values))  # noqa: B905 - one for each; Python 3.7
        feeds[self._prefix] = str(prefix)
        self._session.run(self._save, feeds)

    def close(self) -> None:
        """Ends the session."""
        self._session.close()


def checkpoint_entry(variable: tf.Variable) -> Entry:
    """Returns how a checkpoint names a variable, as TensorFlow's own saver does."""
    part = getattr(variable, "_save_slice_info", None)
    name, spec = (part.full_name, part.spec) if part is not None else (variable.op.name, "")
    return name, spec, variable.dtype.base_dtype


def graph_variables(graph: tf.Graph) -> List[tf.Variable]:
    """Returns the variables of a graph, global ones first, each once."""
    found = [v for collection in _VARIABLES for v in graph.get_collection(collection)]
    return list({v.op.name: v for v in found if hasattr(v, "op") and hasattr(v, "initializer")}.values())


def _read_all(graph: tf.Graph, read: Read) -> Tuple[Tuple[Entry, ...], List[Fetched]]:
    """Reads all variables; one by one if some have no value yet, which are left out."""
    import tensorflow as tf

    variables = graph_variables(graph)
    try:
        values = read(variables) if variables else []
    except tf.errors.OpError:
        found = [(variable, _value(variable, read)) for variable in variables]
        variables = [variable for variable, value in found if value is not None]
        values = [value for _, value in found if value is not None]
    return tuple(checkpoint_entry(variable) for variable in variables), values


def _value(variable: tf.Variable, read: Read) -> Fetched:
    import tensorflow as tf

    try:
        return read([variable])[0]
    except tf.errors.OpError:
        return None

"""The files that ``bench formats`` reads, made anew for each run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord

_TIME_US: Final = 1_700_000_000_000_000
_ELEMENTS: Final = 1024
"""Of a small tensor; real dumps of a recommendation model are mostly this small."""


@dataclass(frozen=True)
class ReadCase:
    """Files of one kind that are read whole.

    Attributes:
        name: Kind.
        files: All of them.
        find: Opens them with our reader.
    """

    name: str
    files: tuple[Path, ...]
    find: Callable[[], list[TensorRecord]]


def write_dump_files(root: Path, count: int, seed: int) -> Path:
    """Writes device dump files of two inputs and an output each, and returns the folder they lie in."""
    from dumpers.formats.npu_dump import dump_file_name, write_npu_dump

    leaf = root / "20240125153144" / "0" / "ge_default_1" / "1" / "0"
    leaf.mkdir(parents=True)
    values = np.random.default_rng(seed).random((3, _ELEMENTS), np.float32)
    content = b""
    for number in range(count):
        time = _TIME_US + number
        path = leaf / dump_file_name("MatMulV2", f"net/layer_{number}/MatMul", number, 3, time)
        if number == 0:
            name = "net/layer_0/MatMul"
            write_npu_dump(path, op_name=name, inputs=list(values[:2]), outputs=[values[2]], dump_time_us=time)
            content = path.read_bytes()
        else:  # the header's name stays that of the first: what is measured is the listing
            path.write_bytes(content)
    return leaf


def write_tfdbg_run(root: Path, tensors: int, elements: int, seed: int) -> Path:
    """Lets TensorFlow's debugger record one step of about so many float32 tensors, and returns the run's folder."""
    import tensorflow as tf
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    tf1 = tf.compat.v1
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
    values = np.random.default_rng(seed).random(elements, np.float32)
    with tf.Graph().as_default() as graph:
        fed = tf1.placeholder(tf.float32, [elements], name="fed")
        sums = [tf.add(fed, np.float32(number), name=f"layer_{number}/add") for number in range(tensors // 2)]
        everything = tf.group(*sums)
        with tf1.Session(graph=graph, config=config) as session:
            wrapped = DumpingDebugWrapperSession(session, str(root))
            wrapped.run(everything, feed_dict={fed: values})
    return next(root.glob("run_*"))


def read_with_tensorflow(run: Path) -> list[NDArray[np.generic]]:
    """Returns all tensors of a run, read by TensorFlow itself."""
    from tensorflow.python.debug.lib.debug_data import DebugDumpDir

    dump = DebugDumpDir(str(run), validate=False)
    return [datum.get_tensor() for datum in dump.dumped_tensor_data]


def read_plainly(run: Path) -> list[bytes]:
    """Returns the bytes of every file of a run: what reading it costs before anything is understood."""
    found = []
    for folder, _, names in os.walk(run):
        for name in names:
            with open(os.path.join(folder, name), "rb", buffering=0) as file:
                found.append(file.read())
    return found


def write_read_cases(folder: Path, size: int, seed: int) -> list[ReadCase]:
    """Writes one large file or set of files of each kind that holds whole tensors."""
    folder.mkdir(parents=True)
    values = np.random.default_rng(seed).random((8, size // 32), np.float32)
    return [_npy(folder, values), _npz(folder, values), _checkpoint(folder, values)]


def _npy(folder: Path, values: NDArray[np.float32]) -> ReadCase:
    from dumpers.formats.npy import write_npy
    from dumpers.formats.registry import read_tensor

    path = folder / "tensor.npy"
    write_npy(path, values)
    return ReadCase("npy", (path,), lambda: read_tensor(path))


def _npz(folder: Path, values: NDArray[np.float32]) -> ReadCase:
    from dumpers.formats.npz import read_npz

    path = folder / "tensors.npz"
    np.savez(path, **{f"tensor_{number}": row for number, row in enumerate(values)})  # type: ignore[arg-type, unused-ignore]
    return ReadCase("npz", (path,), lambda: list(read_npz(path)))


def _checkpoint(folder: Path, values: NDArray[np.float32]) -> ReadCase:
    import tensorflow as tf

    from dumpers.formats.checkpoint import read_checkpoint

    tf1 = tf.compat.v1
    prefix = folder / "model.ckpt-1"
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph, config=config) as session:
        for number, row in enumerate(values):
            fed = tf1.placeholder(tf.float32, row.shape, name=f"fed_{number}")
            tf1.get_variable(f"table_{number}", initializer=fed, validate_shape=True, use_resource=True)
        feeds = {f"fed_{number}:0": row for number, row in enumerate(values)}
        session.run(tf1.global_variables_initializer(), feeds)
        tf1.train.Saver().save(session, str(prefix), write_meta_graph=False)
    files = tuple(sorted(folder.glob("model.ckpt-1.data-*")))
    return ReadCase("checkpoint", files, lambda: list(read_checkpoint(prefix)))

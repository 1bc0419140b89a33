"""TensorFlow's debugger as a copy between producer and consumer, for the few tensors that a fetch would show too late.

A watch puts a deep copy behind a tensor; its consumers, the fetch among them, read the copy. References cannot be
redirected so: their copies are written to files in a temporary folder (:mod:`.watch_folders`), read back here and
deleted. The debugger aborts the process when it cannot create a file, so the room is checked first. A tensor in a loop
gives a file each turn; :mod:`.turns` bounds them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Collection, Dict, Iterator, List, Optional, Sequence, Type

from .turns import MEMORY_BYTES, TurnKeeper, Turns
from .watch_folders import KeptFolder, WatchFolders

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
    from numpy.typing import NDArray

_DEBUG_OP = "DebugIdentity"
_SPARE_BYTES = 64 << 20
_MEMORY = "/dev/shm"
"""A file system in memory: ext4 takes five times as long for files that come and go."""


class WatchFolder:
    """A temporary folder for one run's debugger files, which are gone after the ``with`` block.

    Args:
        folders: Has the folder.
        names: ``op:slot`` of each tensor to copy; without any, nothing is created.
        loops: Those of them that may have a value each turn of a loop.
        keep: How many turns to keep of each.
    """

    def __init__(self, folders: WatchFolders, names: Sequence[str], loops: Collection[str] = (), keep: int = 2) -> None:
        self._folders = folders
        self._names = list(names)
        self._loops = frozenset(loops)
        self._keep = keep
        self._folder: Optional[KeptFolder] = None
        self._loop_folder: Optional[KeptFolder] = None
        self._keeper: Optional[TurnKeeper] = None
        self.refusal = ""
        """Why there is no folder, and so no copy, where the system did not allow it."""

    def __enter__(self) -> WatchFolder:
        try:
            self._make()
        except (OSError, RuntimeError) as error:  # no room, or no thread
            self._let_go(whole=False)
            self._keeper = None
            reason = getattr(error, "strerror", None) or error
            self.refusal = "no temporary folder for copies of tensors: {}. Set TMPDIR to another one".format(reason)
        return self

    def _make(self) -> None:
        if self._names:
            self._folder = self._folders.take()
        if self._loops:
            self._loop_folder = self._folders.take(_loop_place())
            keeper = TurnKeeper(self._loop_folder.path, self._loops, self._keep)
            keeper.start()
            self._keeper = keeper

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        self._let_go(whole=kind is None)

    def _let_go(self, *, whole: bool) -> None:
        """Gives the folders back; after a run that failed they go, whatever of it may still write."""
        for folder in (self._folder, self._loop_folder):
            if folder is not None and whole:
                self._folders.give_back(folder)
            elif folder is not None:
                folder.remove()
        self._folder = self._loop_folder = None

    def add_to(self, options: Optional[tf.compat.v1.RunOptions]) -> Optional[tf.compat.v1.RunOptions]:
        """Returns the run's options with the watches added; the caller's own object is left as it is."""
        if self._folder is None:
            return options
        import tensorflow as tf

        merged = tf.compat.v1.RunOptions()
        if options is not None:
            merged.CopyFrom(options)
        merged.debug_options.reset_disk_byte_usage = True
        for name in self._names:
            op, slot = name.rsplit(":", 1)
            folder = self._loop_folder if name in self._loops and self._loop_folder is not None else self._folder
            watch = merged.debug_options.debug_tensor_watch_opts.add()
            watch.node_name = op
            watch.output_slot = int(slot)
            watch.debug_ops.append(_DEBUG_OP)
            watch.debug_urls.append("file://{}".format(folder.path))
        return merged

    def read(self, wanted: Sequence[str]) -> Dict[str, NDArray[np.generic]]:
        """Returns the copies of the wanted tensors; one that did not run, or that was cut short, is left out."""
        found: Dict[str, NDArray[np.generic]] = {}
        if self._folder is None:
            return found
        keys = {"{}:{}".format(name, _DEBUG_OP): name for name in wanted}
        for path in _files(self._folder.path):
            key, value = _event_value(path)
            name = keys.get(key)
            if name is not None and value is not None:
                found[name] = value
        return found

    def read_turns(self) -> Dict[str, Turns]:
        """Returns the kept turns of each tensor in a loop; one that did not run is left out."""
        if self._keeper is None:
            return {}
        keeper = self._keeper
        keeper.stop()
        return {name: Turns(count, tuple(kept), keeper.reason) for name, count, kept in keeper.kept()}

    @staticmethod
    def read_turn(path: Path) -> Optional[NDArray[np.generic]]:
        """Returns the value in one of the debugger's files, None if it was cut short or has none."""
        return _event_value(path)[1]


def watch_room(count: int, size_bytes: int) -> bool:
    """Tells whether the temporary directory takes ``count`` files of ``size_bytes`` together, with room to spare."""
    try:
        folder = tempfile.gettempdir()
        space = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    inodes = space.f_favail >= 2 * count + 100 or space.f_files == 0
    return os.access(folder, os.W_OK) and inodes and space.f_bavail * space.f_frsize >= 2 * size_bytes + _SPARE_BYTES


def _files(folder: Path) -> Iterator[Path]:
    paths: List[Path] = []
    for root, _, names in os.walk(str(folder)):
        paths.extend(Path(root) / name for name in names if not name.startswith("_tfdbg_"))
    return iter(sorted(paths, key=lambda path: path.name.rsplit("_", 1)[-1]))


def _loop_place() -> str:
    """Where the files of loops go: a file system in memory, unless somebody has chosen a folder or it is too small."""
    if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK):
        space = os.statvfs(_MEMORY)
        if space.f_bavail * space.f_frsize >= 2 * MEMORY_BYTES:
            return _MEMORY
    return tempfile.gettempdir()


def _event_value(path: Path) -> "tuple[str, Optional[NDArray[np.generic]]]":
    """The watch key and the value in one of the debugger's files."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        event = tf.compat.v1.Event.FromString(path.read_bytes())
    except (OSError, DecodeError):
        return "", None
    for value in event.summary.value:
        # A tensor without a value (an uninitialised variable) is written without shape and content.
        if value.tensor.dtype and value.tensor.HasField("tensor_shape"):
            return value.node_name, tf.make_ndarray(value.tensor)
    return "", None

"""The raw record of one run: ``run_<us>_<n>/`` with ``graph.pb``, the tensors and ``record.json``.

``record.json`` is written last; a folder without it is not a record. Its keys:

``format`` (2), ``run`` (number of the session's training run, from 1), ``step`` (training step, from 0), ``complete``,
``reason`` (why not complete), ``start_us``, ``graph`` (name of the GraphDef file, null if it could not be written),
``fetches`` (tensor and op names), ``feeds`` (name of each fed tensor and its file), ``tensors``: one object for each
output of each op that ran, in one fixed topological order, with ``op``, ``output``, ``op_type``, ``dtype``, ``shape``
(null if unknown), ``file`` (relative to the folder, null without a value), ``offset`` (of the first byte in a pack, see
:mod:`dumpers.capture.pack`; absent where the file is a npy of its own), ``width`` (of the texts in a pack, in bytes),
``summary`` (what is kept instead of the values, see :mod:`dumpers.capture.summaries`; absent where those are),
``bytes`` (of the values, where only shapes are kept), ``timestamp_us``, ``note``. Beside the tensors stand
``selection`` (the settings that chose them, by name) and, where only shapes are kept, ``bytes``: of distinct buffers.

Bytes in a pack are those of the array: row-major, little-endian, texts as fixed-width bytes. Time stamps rise by one
microsecond an op from the start of the run; they state the order, not the duration.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Hashable, List, NamedTuple, Optional, Sequence, Set

import numpy as np

from .arrays import write_bytes, write_npy
from .lines import Line, contiguous, joined, line_of
from .manifest import ManifestFile, free_bytes
from .pack import Group, Place, beyond, lay_out, memory_of, pack_name, tensor_of, write_group
from .plan import How, Taken
from .summaries import MODES, summarise, summarise_all
from .talk import SayOnce, fault_text
from .worker import BoundedWorker

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
GRAPH = "graph.pb"
KEEPS = ("pack", "npy", "shapes", *MODES)
"""What is kept of tensors: their values in a few large files or in one npy each, their shapes, or a summary of them."""

_ALIKE: "Dict[str, Optional[Callable[[Any], Hashable]]]" = {"pack": memory_of, "npy": None}

_DIRECTORY_MODE = 0o700
_LINE_BYTES = 300
"""Room kept in the manifest for what one tensor needs besides its name."""


class Item(NamedTuple):
    """One tensor of a record.

    Attributes:
        taken: Which one.
        timestamp_us: Its time stamp.
        value: The array, None if there is no value.
        dtype: Name of its dtype.
        note: Why there is none, or what is odd.
    """

    taken: Taken
    timestamp_us: int
    value: "Optional[NDArray[np.generic]]"
    dtype: str
    note: str = ""


class GraphFile:
    """A serialized graph that many records hold: written once, and linked where the file system has links.

    Args:
        content: The GraphDef; empty if there is none.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._written: Optional[Path] = None

    def place(self, path: Path) -> bool:
        """Puts it at ``path``; False if there is none.

        Raises:
            OSError: the file system does not take it.
        """
        if not self.content:
            return False
        if self._written is not None:
            try:
                os.link(str(self._written), str(path))
                return True
            except OSError:  # no links, too many of them, or the user has taken the first one away
                pass
        write_bytes(path, self.content)
        self._written = path
        return True


class RunRecord:
    """Writes one record in the threads of a worker.

    Whatever goes wrong here ends the record, not the training. What a file system refuses is said once, the rest of the
    record is skipped, and the manifest says what is missing. Anything else is a fault of ours, and treated alike.

    Args:
        parent: Folder that gets the ``run_*`` folder.
        header: What the manifest says besides the tensors.
        say_once: Where a refusal is told.
        keep: One of :data:`KEEPS`.
        budget: Most bytes of values to write, the smallest tensors first; None for no limit.
    """

    def __init__(
        self,
        parent: Path,
        header: Dict[str, Any],
        say_once: SayOnce,
        keep: str = "pack",
        budget: Optional[int] = None,
    ) -> None:
        self._parent = parent
        self._header = header
        self._say_once = say_once
        self._keep = keep
        self._budget = budget
        self._folder: Optional[Path] = None
        self._lines: List[Line] = []
        self._places: List[Optional[Place]] = []
        self._packs: Dict[int, int] = {}
        self._lost: Set[int] = set()
        self._summaries: Dict[int, Dict[str, Any]] = {}
        self._faults: Dict[int, str] = {}
        self._left = 0
        self._opened = threading.Event()
        self._lock = threading.Lock()
        self._failure = ""
        self._needed_bytes = 0

    @property
    def folder(self) -> Optional[Path]:
        """The record's folder, None before it is made and where it could not be made."""
        return self._folder

    def submit(self, worker: BoundedWorker, graph: GraphFile, items: Sequence[Item], reason: str = "") -> int:
        """Queues everything.

        Args:
            worker: Whose threads write.
            graph: Of the run.
            items: The tensors, in order; nobody may change their values any more.
            reason: Why the record is not complete, where that is not the file system's doing.

        Returns:
            Bytes of the distinct buffers.
        """
        values = [None if item.value is None else contiguous(item.value) for item in items]
        self._lines = [line_of(item) for item in items]
        if self._keep == "shapes":
            self._header["bytes"] = sum(group.size_bytes for group in lay_out(values, memory_of)[1])
            values = [None] * len(values)
        alike = _ALIKE.get(self._keep, tensor_of)
        if self._budget is not None and self._keep in _ALIKE:
            for index in beyond(values, alike, self._budget):
                values[index] = None
                self._lines[index] = self._lines[index].without_room(self._budget)
        self._places, groups = lay_out(values, alike)
        self._left = len(groups)
        size = sum(group.size_bytes for group in groups)
        self._needed_bytes = size + len(graph.content)
        worker.submit(0, self._open, graph)
        actions: Dict[str, Callable[..., None]] = {"pack": self._write_packed, "npy": self._write_apart}
        action = actions.get(self._keep, self._summarise)
        for number, group in enumerate(groups):
            # Summaries go one after the other: two threads that hand each other the interpreter every 20 us are slower.
            lane = 0 if self._keep in MODES else group.lane
            worker.submit(group.size_bytes, action, number, group, reason, lane=lane)
        if not groups:
            worker.submit(0, self._close, reason)
        return size

    def _open(self, graph: GraphFile) -> None:
        """Makes the folder, keeps room for the manifest and writes the graph."""
        try:
            self._folder = folder = self._make_folder()
            ManifestFile(folder).keep_room(4096 + sum(len(line.taken.name) + _LINE_BYTES for line in self._lines))
            if self._keep == "npy":
                os.mkdir(str(folder / "tensors"), _DIRECTORY_MODE)
            if graph.place(folder / GRAPH):
                self._header["graph"] = GRAPH
        except Exception as error:
            self._failed(error)
        finally:
            self._opened.set()

    def _write_packed(self, number: int, group: Group, reason: str) -> None:
        self._opened.wait()
        if self._folder is not None and not self._failure:
            try:
                if group.lane not in self._packs:
                    path = str(self._folder / pack_name(group.lane))
                    self._packs[group.lane] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                write_group(self._packs[group.lane], group)
            except Exception as error:
                self._lost.add(number)
                self._failed(error)
        else:
            self._lost.add(number)
        self._one_done(group, reason)

    def _write_apart(self, number: int, group: Group, reason: str) -> None:
        self._opened.wait()
        for index, value in zip(group.indexes, group.arrays):  # noqa: B905 - one made with the other; Python 3.7
            if self._folder is None or self._failure:
                self._lost.add(index)
                continue
            try:
                write_npy(self._folder / _npy_name(index), value)
            except Exception as error:
                self._lost.add(index)
                self._failed(error)
        self._one_done(group, reason)

    def _summarise(self, number: int, group: Group, reason: str) -> None:
        self._opened.wait()
        if self._folder is not None:
            dtypes = [self._lines[index].dtype for index in group.indexes]
            try:
                found = summarise_all(group.arrays, dtypes, self._keep)
            except Exception as error:  # most often one tensor's fault; taken alone it says so, the others have theirs
                self._summarise_apart(group, dtypes)
                start = "step {}: summaries were taken one by one, not together".format(self._header["step"])
                self._say_once.fault(start, error)  # not again where a tensor's own fault was said
            else:
                self._summaries.update(zip(group.indexes, found))  # noqa: B905 - Python 3.7
        self._one_done(group, reason)

    def _summarise_apart(self, group: Group, dtypes: Sequence[str]) -> None:
        """Takes the tensors of a group one by one; one that cannot be taken has a note why."""
        for index, array, dtype in zip(group.indexes, group.arrays, dtypes):  # noqa: B905 - Python 3.7
            try:
                self._summaries[index] = summarise(array, dtype, self._keep)
            except Exception as error:
                self._faults[index] = "no summary: {}".format(fault_text(error))
                self._failed(error)

    def _one_done(self, group: Group, reason: str) -> None:
        group.arrays.clear()
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._close(reason)

    def _close(self, reason: str) -> None:
        """Writes the manifest."""
        for number in self._packs.values():
            try:
                os.close(number)
            except OSError as error:  # a network file system may say only now that it has no room
                self._lost.update(range(len(self._places)))
                self._failed(error)
        if self._folder is None:
            return
        try:
            ManifestFile(self._folder).write(self._manifest(reason))
        except Exception as error:
            self._failed(error)
            self._summaries.clear()  # the rest may fit, and says that they are missing
            try:
                ManifestFile(self._folder).write(self._manifest(reason))
            except Exception as second:
                self._failed(second)

    def _manifest(self, reason: str) -> bytes:
        entries = [self._entry(index, line) for index, line in enumerate(self._lines)]
        feeds = {
            line.taken.name: entry["file"]
            for line, entry in zip(self._lines, entries)  # noqa: B905 - made one from the other; Python 3.7
            if line.taken.how is How.FED
        }
        reason = self._failure or reason
        manifest = dict(self._header, complete=not reason, reason=reason, feeds=feeds, tensors=entries)
        return json.dumps(manifest, indent=0, separators=(",", ":"), sort_keys=True).encode("utf-8")

    def _entry(self, index: int, line: Line) -> Dict[str, Any]:
        entry, place = line.entry(), self._places[index]
        if self._keep == "shapes" and line.size is not None:
            entry.update(note=joined(line.note, "only its shape was recorded"), bytes=line.size)
        if place is None:
            return entry
        missing = "not written: {}".format(self._failure)
        if self._keep in MODES:
            if place.index in self._summaries:
                entry["summary"] = self._summaries[place.index]
            else:
                entry["note"] = joined(line.note, self._faults.get(place.index, missing))
        elif (place.group if self._keep == "pack" else index) in self._lost:
            entry["note"] = missing
        elif self._keep == "npy":
            entry["file"] = _npy_name(index)
        else:
            entry.update(file=pack_name(place.lane), offset=place.offset)
            if line.width:
                entry["width"] = line.width
        return entry

    def _make_folder(self) -> Path:
        start_us = int(self._header["start_us"])
        make_private(self._parent)
        while True:
            folder = self._parent / "run_{}_{}".format(start_us, self._header["run"])
            try:
                os.mkdir(str(folder), _DIRECTORY_MODE)
            except FileExistsError:
                start_us += 1
                continue
            return folder

    def _failed(self, error: Exception) -> None:
        place = self._folder if self._folder is not None else self._parent
        start = "step {} could not be recorded completely: {}".format(self._header["step"], place)
        if isinstance(error, OSError):
            text = error.strerror or str(error)
            self._say_once(
                "disk",
                "{}: {} ({} bytes needed, {} bytes free); training goes on, the record is marked incomplete. Free some "
                "space or set ROOT_DIR to a larger disk.".format(start, text, self._needed_bytes, free_bytes(place)),
            )
        else:
            text = self._say_once.fault(start, error)
        self._failure = self._failure or "{} while writing {}".format(text, place)


def _npy_name(index: int) -> str:
    return "tensors/{:06d}.npy".format(index)


def make_private(folder: Path) -> None:
    """Makes a folder and those above it that are missing, readable for their owner only.

    Raises:
        OSError: the file system does not allow it.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(str(place), _DIRECTORY_MODE)

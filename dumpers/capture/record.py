"""The raw record of one run: ``run_<us>_<n>/`` with ``graph.pb``, ``tensors/*.npy`` and ``record.json``.

``record.json`` is written last; a folder without it is not a record. Its keys:

``format`` (1), ``run`` (number of the session's training run, from 1), ``step`` (training step, from 0), ``complete``,
``reason`` (why not complete), ``start_us``, ``graph`` (name of the GraphDef file, null if it could not be written),
``fetches`` (tensor and op names), ``feeds`` (name of each fed tensor and its file), ``tensors``: one object for each
output of each op that ran, in one fixed topological order, with ``op``, ``output``, ``op_type``, ``dtype``, ``shape``
(null if unknown), ``file`` (relative to the folder, null without a value), ``timestamp_us``, ``note``.

Time stamps rise by one microsecond an op from the start of the run; they state the order, not the duration.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .arrays import write_bytes, write_npy
from .plan import How, Taken
from .talk import SayOnce

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 1
MANIFEST = "record.json"
GRAPH = "graph.pb"
_DIRECTORY_MODE = 0o700
_LINE_BYTES = 300
"""Room kept in the manifest for what one tensor needs besides its name."""


class RunRecord:
    """Writes one record. All methods but the constructor run in the writer's thread, in order.

    A file system that refuses something ends the record, not the training: the first refusal is said once, the rest of
    the record is skipped, and the manifest says what is missing.

    Args:
        parent: Folder that gets the ``run_*`` folder.
        header: What the manifest says besides the tensors.
        say_once: Where a refusal is told.
    """

    def __init__(self, parent: Path, header: Dict[str, Any], say_once: SayOnce) -> None:
        self._parent = parent
        self._header = header
        self._say_once = say_once
        self._folder: Optional[Path] = None
        self._lines: List[Dict[str, Any]] = []
        self._feeds: Dict[str, Optional[str]] = {}
        self._failure = ""
        self._needed_bytes = 0

    @property
    def folder(self) -> Optional[Path]:
        """The record's folder, None before :meth:`open` and where it could not be made."""
        return self._folder

    def open(self, graph: bytes, names: Sequence[str], needed_bytes: int) -> None:
        """Makes the folder, keeps room for the manifest and writes the graph.

        Args:
            graph: Serialized GraphDef; empty if there is none.
            names: Names of the tensors to come.
            needed_bytes: Their size, for the message when the disk is full.
        """
        self._needed_bytes = needed_bytes + len(graph)
        try:
            self._folder = self._make_folder()
            # On a full disk the manifest still has to say that the record is not complete.
            write_bytes(self._reserve(), b"\0" * (4096 + sum(len(name) + _LINE_BYTES for name in names)))
            if graph:
                write_bytes(self._folder / GRAPH, graph)
                self._header["graph"] = GRAPH
        except OSError as error:
            self._refused(error)

    def write(
        self, taken: Taken, timestamp_us: int, value: Optional[Tuple[NDArray[np.generic], str]], note: str
    ) -> None:
        """Writes one tensor.

        Args:
            taken: Which one.
            timestamp_us: Its time stamp.
            value: The array and the name of its dtype, None if there is no value.
            note: Why there is none, or what is odd.
        """
        file = None
        if value is not None and self._folder is not None and not self._failure:
            name = "tensors/{:06d}.npy".format(len(self._lines))
            try:
                write_npy(self._folder / name, value[0])
                file = name
            except OSError as error:
                self._refused(error)
        if value is not None and file is None:
            note = "not written: {}".format(self._failure)
        if taken.how is How.FED:
            self._feeds[taken.name] = file
        self._lines.append(
            {
                "op": taken.op,
                "output": taken.slot,
                "op_type": taken.op_type,
                "dtype": value[1] if value is not None else taken.dtype,
                "shape": list(value[0].shape) if value is not None else taken.shape,
                "file": file,
                "timestamp_us": timestamp_us,
                "note": note,
            }
        )

    def close(self, reason: str = "") -> None:
        """Writes the manifest.

        Args:
            reason: Why the record is not complete, where that is not the file system's doing.
        """
        if self._folder is None:
            return
        reason = self._failure or reason
        manifest = dict(self._header, complete=not reason, reason=reason, feeds=self._feeds, tensors=self._lines)
        text = json.dumps(manifest, indent=0, separators=(",", ":"), sort_keys=True)
        try:
            if self._reserve().exists():
                os.unlink(str(self._reserve()))
            write_bytes(self._folder / MANIFEST, text.encode("utf-8"))
        except OSError as error:
            self._refused(error)

    def _make_folder(self) -> Path:
        start_us = int(self._header["start_us"])
        make_private(self._parent)
        while True:
            folder = self._parent / "run_{}_{}".format(start_us, self._header["run"])
            try:
                folder.mkdir(mode=_DIRECTORY_MODE)
            except FileExistsError:
                start_us += 1
                continue
            (folder / "tensors").mkdir(mode=_DIRECTORY_MODE)
            return folder

    def _reserve(self) -> Path:
        return self._folder_or_parent() / ".reserve"

    def _folder_or_parent(self) -> Path:
        return self._folder if self._folder is not None else self._parent

    def _refused(self, error: OSError) -> None:
        place = self._folder_or_parent()
        self._failure = self._failure or "{} while writing {}".format(error.strerror or error, place)
        self._say_once(
            "disk",
            "step {} could not be recorded completely: {}: {} ({} bytes needed, {} bytes free); training goes on, the "
            "record is marked incomplete. Free some space or set ROOT_DIR to a larger disk.".format(
                self._header["step"], place, error.strerror or error, self._needed_bytes, _free_bytes(place)
            ),
        )


def make_private(folder: Path) -> None:
    """Makes a folder and those above it that are missing, readable for their owner only.

    Raises:
        OSError: the file system does not allow it.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)


def _free_bytes(place: Path) -> "int | str":
    for folder in (place, *place.parents):
        try:
            return shutil.disk_usage(str(folder)).free
        except OSError:
            continue
    return "unknown"

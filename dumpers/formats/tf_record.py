"""Our own raw record of one training step (``run_<us>_<n>``): ``record.json``, ``graph.pb`` and the tensors.

Those lie one behind the other in a few packs (format 2), or in npy files of their own (``tensors/*.npy``; all of format
1, and of format 2 where the user asked for it).

``record.json`` is written last, so a folder without it is a step that was cut off. Everything in it is checked; a path
that leaves the folder is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from dumpers.dtypes import WITHOUT_VALUE
from dumpers.errors import DataError
from dumpers.formats.lowfloat import stored_bytes
from dumpers.formats.npy import NpySource
from dumpers.formats.raw import RawSource, bad_shape, element_count, open_regular, regular_only
from dumpers.formats.summary import Summary, read_summary
from dumpers.formats.tf_graph import read_graph_def
from dumpers.graph import Graph
from dumpers.records import Dump, Problem, TensorRecord, TensorSource, execution_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD_FILE: Final = "record.json"
FORMATS: Final = (1, 2)

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


@dataclass(frozen=True)
class TextSource:
    """Texts of one width in a pack, as bytes.

    Attributes:
        path: The pack.
        offset: Of the first byte.
        width: Bytes of each text; zero bytes at its end do not count.
        shape: Of the array.
    """

    path: Path
    offset: int
    width: int
    shape: tuple[int, ...]

    def load(self) -> NDArray[np.bytes_]:
        """Returns the array, read-only.

        Raises:
            DataError: the file vanished or became shorter.
        """
        count = element_count(self.shape)
        with open_regular(self.path) as file:
            try:
                raw = np.fromfile(file, np.uint8, count=count * self.width, offset=self.offset)
            except OSError as error:
                raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if raw.size != count * self.width:
            raise DataError(f"{self.path}: became shorter; record the step again")
        array = raw.view(f"S{self.width}") if raw.size else np.zeros(count, "S1")
        array = array.reshape(self.shape)
        array.flags.writeable = False
        return array


def is_tf_record(folder: Path) -> bool:
    """Tells whether a folder is a raw record, finished or cut off."""
    if (folder / RECORD_FILE).is_file() or (folder / ".reserve").is_file():
        return True
    if not (folder / "graph.pb").is_file():
        return False
    return (folder / "tensors").is_dir() or (folder / "tensors.0.pack").is_file()


def read_tf_record(path: Path) -> Dump:
    """Reads a raw record. Feeds are records too, as output of their placeholder.

    A record that says it is incomplete (disk full) is read; the dump's first problem says why it is incomplete.

    Raises:
        DataError: no record, one that was never finished, or a manifest that makes no sense.
    """
    path = Path(path)
    manifest = _Manifest(path, _load(path))
    graph = manifest.graph()
    records = [*manifest.feeds(graph), *manifest.tensors()]
    return Dump(path, execution_order(records), tuple(manifest.problems), graph=graph)


def _load(folder: Path) -> dict[str, Json]:
    path = folder / RECORD_FILE
    try:
        with open(path, "rb", opener=regular_only) as file:
            tree = json.loads(file.read())
    except FileNotFoundError as error:
        state = (
            "the step was cut off before it was written; run the step again" if folder.is_dir() else "no such folder"
        )
        raise DataError(f"{folder}: has no {RECORD_FILE}: {state}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON: {error}; record the step again") from error
    if not isinstance(tree, dict) or tree.get("format") not in FORMATS:
        version = tree.get("format") if isinstance(tree, dict) else None
        raise DataError(
            f"{path}: record format {version!r} is not known (this version reads {FORMATS[0]} to {FORMATS[-1]})"
        )
    return tree


class _Manifest:
    """The checked content of ``record.json``."""

    def __init__(self, folder: Path, tree: Mapping[str, Json]) -> None:
        self.folder = folder
        self.path = folder / RECORD_FILE
        self.tree = tree
        self.problems: list[Problem] = []
        self._root = os.path.realpath(folder)
        self._folders: dict[str, bool] = {}
        self._sizes: dict[Path, int] = {}
        step = tree.get("step")
        self.step = step if isinstance(step, int) else None
        if tree.get("complete") is not True:
            reason = tree.get("reason") or "no reason given"
            self.problems.append(Problem(self.path, f"record is incomplete: {reason}"))

    def graph(self) -> Graph | None:
        """The graph beside the manifest."""
        name = self.tree.get("graph")
        if name is None:
            return None
        file = self._inside(name)
        if file is None:
            return None
        try:
            return read_graph_def(file)
        except DataError as error:
            self.problems.append(Problem.of(file, error))
            return None

    def tensors(self) -> list[TensorRecord]:
        """The recorded tensors."""
        entries = self.tree.get("tensors")
        if not isinstance(entries, list):
            raise DataError(f"{self.path}: has no list of tensors; record the step again")
        found = (self._tensor(index, entry) for index, entry in enumerate(entries))
        return [record for record in found if record is not None]

    def _tensor(self, index: int, entry: Json) -> TensorRecord | None:
        if not isinstance(entry, dict):
            self._bad(index, "is no object")
            return None
        op, slot, dtype = entry.get("op"), entry.get("output"), entry.get("dtype")
        if not isinstance(op, str) or not op or type(slot) is not int or slot < 0 or not isinstance(dtype, str):
            self._bad(index, "lacks op, output or dtype")
            return None
        shape = entry.get("shape")
        if shape is not None and not (isinstance(shape, list) and all(type(dim) is int for dim in shape)):
            self._bad(index, f"has shape {shape!r}")
            return None
        time, size = entry.get("timestamp_us"), entry.get("bytes")
        dims = None if shape is None else tuple(dim for dim in shape if isinstance(dim, int))
        source, note = self._source(entry, dtype, dims)
        summary = self._summary(index, entry)
        if summary is not None and source is None:
            note = f"statistics only ({summary.mode})"
        return TensorRecord(
            op=op,
            op_type=str(entry.get("op_type") or ""),
            io="output",
            slot=slot,
            dtype=dtype,
            shape=dims,
            source=source,
            step=self.step,
            timestamp_us=time if type(time) is int else None,
            device="tf",
            note=note,
            statistics=summary.statistics if summary is not None else None,
            summary=summary,
            size_bytes=size if type(size) is int and size >= 0 else None,
        )

    def _summary(self, index: int, entry: Mapping[str, Json]) -> Summary | None:
        """What the record keeps of a tensor instead of its values."""
        try:
            return read_summary(entry.get("summary"))
        except ValueError as error:
            self._bad(index, f"has a summary that {error}")
            return None

    def _source(
        self, entry: Mapping[str, Json], dtype: str, shape: tuple[int, ...] | None
    ) -> tuple[TensorSource | None, str]:
        note = str(entry.get("note") or "")
        name = entry.get("file")
        if name is None:
            return None, note or f"no value: {dtype}"
        file = self._inside(name)
        if file is None:
            return None, "; ".join(filter(None, (note, f"file {name!r} cannot be used")))
        if "offset" in entry:
            try:
                return self._packed(file, entry, dtype, shape), note
            except DataError as error:
                self.problems.append(Problem(file, f"{entry.get('op')}: {error}"))
                return None, "; ".join(filter(None, (note, str(error))))
        return NpySource(file, None if dtype in WITHOUT_VALUE else dtype, shape), note

    def _packed(
        self, file: Path, entry: Mapping[str, Json], dtype: str, shape: tuple[int, ...] | None
    ) -> RawSource | TextSource:
        """Makes sure that what an entry claims is possible and lies in its pack."""
        offset, width = entry.get("offset"), entry.get("width", 0)
        if type(offset) is not int or offset < 0 or type(width) is not int or width < 0:
            raise DataError(f"offset {offset!r}, width {width!r}; damaged, record the step again")
        if shape is None or bad_shape(shape):
            raise DataError(f"shape {shape}; damaged, record the step again")
        count = element_count(shape)
        try:
            size = count * width if dtype == "string" else stored_bytes(dtype, count)
        except ValueError as error:
            raise DataError(str(error)) from error
        if file not in self._sizes:
            self._sizes[file] = os.path.getsize(file)
        if offset + size > self._sizes[file]:
            raise DataError(
                f"{file.name} ends at byte {self._sizes[file]}, its {size} bytes at {offset} are not (all) there; "
                "record the step again"
            )
        return TextSource(file, offset, width, shape) if dtype == "string" else RawSource(file, offset, dtype, shape)

    def feeds(self, graph: Graph | None) -> list[TensorRecord]:
        """Fed tensors that the list of tensors does not have."""
        feeds = self.tree.get("feeds")
        if not isinstance(feeds, dict):
            return []
        entries = self.tree.get("tensors")
        listed = {
            (entry.get("op"), entry.get("output"))
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict)
        }
        start = self.tree.get("start_us")
        result = []
        for name, file_name in feeds.items():
            op, _, slot = name.partition(":")
            if (op, int(slot or 0) if (slot or "0").isdigit() else 0) in listed:
                continue
            result.append(self._feed(op, slot, file_name, graph, start if type(start) is int else None))
        return [record for record in result if record is not None]

    def _feed(
        self, op: str, slot: str, file_name: Json, graph: Graph | None, start_us: int | None
    ) -> TensorRecord | None:
        from dumpers.formats.npy import read_npy_header

        known = graph.ops.get(op) if graph else None
        declared = known.attrs.get("dtype") if known else None
        dtype, shape, source = str(declared or "undefined"), None, None
        file = self._inside(file_name) if file_name is not None else None
        if file is not None:
            try:
                header = read_npy_header(file)
            except DataError as error:
                self.problems.append(Problem.of(file, error))
                return None
            shape, dtype = header.shape, dtype if header.unknown else header.dtype
            source = NpySource(file, None if dtype in WITHOUT_VALUE else dtype)
        return TensorRecord(
            op=op,
            op_type=known.type if known else "Placeholder",
            io="output",
            slot=int(slot) if slot.isdigit() else 0,
            dtype=dtype,
            shape=shape,
            source=source,
            step=self.step,
            timestamp_us=start_us,
            device="tf",
            note="fed" if source else f"fed, no value: {dtype}",
        )

    def _inside(self, name: Json) -> Path | None:
        """Returns a file of the record; a problem and None if it is missing or lies outside."""
        if not isinstance(name, str) or not name or "\0" in name:
            self.problems.append(Problem(self.path, f"file name {name!r}"))
            return None
        path = self.folder / name
        real = os.path.realpath(path)
        if os.path.isabs(name) or os.path.commonpath((self._root, real)) != self._root:
            self.problems.append(Problem(self.path, f"file {name!r} lies outside the record; it is not opened"))
            return None
        if not os.path.isfile(real):
            self.problems.append(Problem(path, "is missing"))
            return None
        return path

    def _bad(self, index: int, reason: str) -> None:
        self.problems.append(Problem(self.path, f"tensor {index} {reason}"))

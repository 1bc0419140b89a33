"""The sparse part of a model: a folder of embedding tables, each with its keys, rows and optimizer slots.

``sparse-<name>-<step>/<table>/key/slice.data`` holds int64 keys, ``embedding/slice.data`` one row of float32 for each
of them, and every further folder one optimizer slot of the same shape. ``slice.attribute`` beside it says how many rows
there are, how wide they are and how many bytes a value takes, as int64 without a heading. Before the ranks of a run are
joined each has its own ``slice_<rank>.data``; what an older generation wrote lies in ``HashTable/HBM/<table>`` and has
attributes in JSON.

Nothing in an attribute is believed that the sizes of the files do not say too. What is damaged spoils its own column.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.checkpoint_files import step_of
from dumpers.formats.raw import open_regular, read_into, regular_only
from dumpers.formats.sparse_attribute import KEY_BYTES, VALUE_BYTES, read_attribute
from dumpers.records import Problem

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

KEY: Final = "key"
EMBEDDING: Final = "embedding"
HISTORY: Final = "history_record"

_ADMISSION: Final = frozenset(
    {"table_2_threshold", HISTORY, "key_count_map", "max_offset", "evict_pos", "ddr_key_freq_map"}
    | {"exclude_ddr_key_freq_map", "embedding_info", "dev_offset_2_Batch_n_Key", "embedding_current_status"}
)
"""Folders of a table that hold what admission and eviction remember, not rows."""

_SLICE: Final = re.compile(r"slice(_[0-9]{1,9})?\.data")
_PREFIXES: Final = ("sparse-", "delta-sparse-")
_OLDER: Final = ("HashTable", "HBM")


@dataclass(frozen=True)
class Slice:
    """One file of a column.

    Attributes:
        path: The file.
        rows: Rows in it.
    """

    path: Path
    rows: int


@dataclass(frozen=True)
class SparseColumn:
    """Keys, rows or one slot of a table; row i of every column belongs to key i.

    Attributes:
        name: Of its folder (``embedding``, ``LazyAdam_momentum``).
        dtype: ``int64`` for keys, ``float32`` for rows.
        width: Values a row.
        slices: Files in the order of the rows.
    """

    name: str
    dtype: str
    width: int
    slices: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        """Rows of all slices."""
        return sum(part.rows for part in self.slices)

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        return self.width * np.dtype(self.dtype).itemsize

    def open(self) -> OpenColumn:
        """Opens all slices, to read rows from any place.

        Raises:
            DataError: a slice vanished or became shorter.
        """
        return OpenColumn(self)


class OpenColumn:
    """Open files of a column; a context manager.

    Attributes:
        column: What it belongs to.
        descriptors: int32 [slices].
        starts: int64 [slices + 1]: number of the first row of each slice, then the number of all rows.
    """

    def __init__(self, column: SparseColumn) -> None:
        self.column = column
        self.starts = np.cumsum([0, *(part.rows for part in column.slices)], dtype=np.int64)
        self.descriptors = np.full(len(column.slices), -1, np.int32)
        try:
            for number, part in enumerate(column.slices):
                self.descriptors[number] = _open(part.path, part.rows * column.row_bytes)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the files; again does nothing."""
        for number, descriptor in enumerate(self.descriptors):
            if descriptor >= 0:
                os.close(int(descriptor))
                self.descriptors[number] = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def read(self, first: int, count: int) -> NDArray[np.generic]:
        """Returns rows ``first`` and following: [count, width], [count] for keys; across slices if need be.

        Raises:
            DataError: a file became shorter.
        """
        column = self.column
        raw = np.empty(count * column.row_bytes, np.uint8)
        done = 0
        for number, part in enumerate(column.slices):
            begin, end = max(first, int(self.starts[number])), min(first + count, int(self.starts[number + 1]))
            if begin < end:
                at = (begin - int(self.starts[number])) * column.row_bytes
                size = (end - begin) * column.row_bytes
                read_into(int(self.descriptors[number]), raw[done : done + size], at, str(part.path))
                done += size
        values = raw.view(f"<{np.dtype(column.dtype).str[1:]}")
        return values if column.name == KEY else values.reshape(count, column.width)


@dataclass(frozen=True)
class SparseTable:
    """One table.

    Attributes:
        name: Of the table.
        path: Its folder.
        key: Its keys; None if they are damaged, and then nothing can be said about any row.
        columns: Rows, then slots by name; those that can be read.
        damaged: Column -> why it cannot be read.
        other: What admission and eviction remember: folder name -> its files.
    """

    name: str
    path: Path
    key: SparseColumn | None
    columns: tuple[SparseColumn, ...] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)
    other: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of keys."""
        return self.key.rows if self.key else 0


@dataclass(frozen=True)
class SparseTree:
    """The tables of one save.

    Attributes:
        path: The folder.
        tables: By name.
        problems: What is damaged, and what was not read.
    """

    path: Path
    tables: tuple[SparseTable, ...]
    problems: tuple[Problem, ...] = ()


# ------------------------------------------------------------------------------------------------------------- finding


def is_sparse_tree(path: Path) -> bool:
    """Tells whether a folder is the sparse part of a model, or one of its tables."""
    return bool(_table_folders(path))


def sparse_tree_of(prefix: Path) -> Path | None:
    """Returns the sparse part that was saved with the checkpoint of a prefix; None if there is none."""
    for start in _PREFIXES:
        folder = prefix.with_name(f"{start}{prefix.name}")
        if is_sparse_tree(folder):
            return folder
    return None


def newest_sparse_tree(folder: Path) -> Path | None:
    """Returns the sparse part with the highest step number in a folder, a full save before a delta of one step."""
    found = []
    for name in _folders(folder):
        path = folder / name
        if name.startswith(_PREFIXES) and is_sparse_tree(path):
            step = step_of(path)
            found.append((-1 if step is None else step, name.startswith(_PREFIXES[0]), name, path))
    return max(found)[-1] if found else None


def _table_folders(path: Path) -> dict[str, Path]:
    """Folders of the tables by the tables' names."""
    if _is_table(path):
        return {path.name: path}
    older = path.joinpath(*_OLDER)
    return {name: home / name for home in (older, path) for name in _folders(home) if _is_table(home / name)}


def _is_table(path: Path) -> bool:
    return any(_SLICE.fullmatch(name) for name in _names(path / KEY))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


# ------------------------------------------------------------------------------------------------------------- reading


def read_sparse_tree(path: Path) -> SparseTree:
    """Reads what tables there are and how large; no keys and no rows.

    Raises:
        DataError: there is no table.
    """
    folders = _table_folders(path)
    if not folders:
        raise DataError(f"{path}: holds no embedding table (a folder with key/slice.data); give a sparse-... folder")
    tables = tuple(_table(name, folders[name]) for name in sorted(folders))
    problems = [Problem(table.path / column, why) for table in tables for column, why in sorted(table.damaged.items())]
    if (path / _OLDER[0] / "DDR").is_dir():
        problems.append(Problem(path / _OLDER[0] / "DDR", "tables of an older generation in host memory are not read"))
    return SparseTree(path, tables, tuple(problems))


def _table(name: str, folder: Path) -> SparseTable:
    damaged: dict[str, str] = {}
    columns: list[SparseColumn] = []
    other: dict[str, tuple[Path, ...]] = {}
    key: SparseColumn | None = None
    try:
        key = _column(folder / KEY, None)
    except DataError as error:
        damaged[KEY] = str(error)
    for inner in _folders(folder):
        files = _slice_files(folder / inner)
        if inner == KEY or not files:
            continue
        if inner in _ADMISSION:
            other[inner] = files
        elif key is not None:
            try:
                columns.append(_column(folder / inner, key))
            except DataError as error:
                damaged[inner] = str(error)
    if key is not None and EMBEDDING not in {column.name for column in columns} | damaged.keys():
        damaged[EMBEDDING] = f"{folder}: has keys but no {EMBEDDING}/slice.data; copy it or save the model again"
    columns.sort(key=lambda column: (column.name != EMBEDDING, column.name))
    return SparseTable(name, folder, key, tuple(columns), damaged, other)


def _slice_files(folder: Path) -> tuple[Path, ...]:
    """In the order in which the ranks' slices are joined: that of their names as text."""
    return tuple(folder / name for name in _names(folder) if _SLICE.fullmatch(name))


def _column(folder: Path, key: SparseColumn | None) -> SparseColumn:
    """Reads a column's files; ``key`` is None for the keys themselves."""
    files = _slice_files(folder)
    if len(files) > 1 and any(path.name == "slice.data" for path in files):
        raise DataError(f"{folder}: has slice.data and slices of single ranks: an interrupted save; save it again")
    if key is not None and [path.name for path in files] != [part.path.name for part in key.slices]:
        raise DataError(f"{folder}: has other slices than the keys; copy it or save the model again")
    kinds = [_slice(path, None if key is None else key.slices[at].rows) for at, path in enumerate(files)]
    widths = {width for _, width in kinds if width is not None}
    if len(widths) > 1:
        raise DataError(f"{folder}: slices with rows of {sorted(widths)} values; save the model again")
    dtype = "int64" if key is None else "float32"
    width = 1 if key is None else next(iter(widths), 0)
    return SparseColumn(folder.name, dtype, width, tuple(part for part, _ in kinds))


def _slice(path: Path, keys: int | None) -> tuple[Slice, int | None]:
    """Returns a file with its rows, and their width (None where a file without rows does not tell it).

    Args:
        path: The file.
        keys: Number of its keys; None for the file of the keys.
    """
    size = _size(path)
    attribute = path.with_suffix(".attribute")
    claimed = read_attribute(attribute, keys=keys is None) if os.path.lexists(attribute) else None
    if claimed is None and path.name == "slice.data":
        raise DataError(f"{attribute}: no such file; copy it or save the model again")
    if keys is None:
        rows, width = size // KEY_BYTES, 1
        fits = size % KEY_BYTES == 0 and (claimed is None or claimed[0] == rows)
    else:
        rows = keys
        width = claimed[1] if claimed else size // (VALUE_BYTES * keys) if keys else 0
        fits = size == rows * width * VALUE_BYTES and (claimed is None or claimed[0] == rows)
    if not fits:
        told = f"its attribute claims {claimed[0]} rows of {claimed[1]}" if claimed else "there is no attribute"
        expected = "keys of 8 bytes" if keys is None else f"{keys} keys"
        raise DataError(f"{path}: {size} bytes do not fit {expected}, {told}; cut off, copy it or save the model again")
    return Slice(path, rows), (width if claimed or rows else None)


def _size(path: Path) -> int:
    with open_regular(path) as file:
        return file.seek(0, 2)


def _open(path: Path, size: int) -> int:
    try:
        descriptor = regular_only(os.fspath(path), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    there = os.fstat(descriptor).st_size
    if there < size:
        os.close(descriptor)
        raise DataError(f"{path}: ends after {there} of {size} bytes; it changed while it was compared")
    return descriptor

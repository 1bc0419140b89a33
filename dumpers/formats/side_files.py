"""Small files around dumps that hold no tensor themselves: tables, indexes, the parts of a debugger's run."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from dumpers.errors import DataError
from dumpers.formats.dump_names import read_mapping
from dumpers.formats.raw import regular_only

if TYPE_CHECKING:
    from dumpers.records import Dump

Facts = Mapping[str, "str | int"]

_MAX_LINE: Final = 1 << 20
_PARTS: Final = {
    "_tfdbg_graph_": "graph of one device",
    "_tfdbg_core_metadata_": "metadata of the run",
    "_tfdbg_feed_keys_": "names of the feeds",
    "_tfdbg_fetches_": "names of the fetches",
}


@dataclass(frozen=True)
class TableFile:
    """A text with commas: its columns and how many lines it has below them."""

    columns: tuple[str, ...]
    rows: int


def read_table(path: Path) -> TableFile:
    """Reads the columns of a table and counts its rows, without keeping them.

    Raises:
        DataError: it cannot be read, or is no text with commas.
    """
    try:
        with open(path, opener=regular_only, encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(_bounded(file, path))
            columns = next(reader, None)
            if not columns:
                raise DataError(f"{path}: is empty; a table starts with a line of column names")
            return TableFile(tuple(cell.strip() for cell in columns), sum(1 for row in reader if any(row)))
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _bounded(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(_MAX_LINE):
        if len(line) == _MAX_LINE:
            raise DataError(f"{path}: has a line of more than {_MAX_LINE} characters; it is no table")
        yield line


def read_mapping_file(path: Path) -> Mapping[str, str]:
    """Reads a ``mapping.csv``: short file names and the long ones they stand for.

    Raises:
        DataError: it cannot be read.
    """
    return read_mapping(Path(path).parent) if Path(path).name == "mapping.csv" else _pairs(Path(path))


def _pairs(path: Path) -> Mapping[str, str]:
    try:
        with open(path, opener=regular_only, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return {row[0].strip(): row[1].strip() for row in csv.reader(_bounded(file, path)) if len(row) == 2}
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_tfdbg_part(path: Path) -> Facts:
    """Says what a file beside the tensors of a debugger's run is, and how large.

    Raises:
        DataError: it cannot be read.
    """
    name = Path(path).name
    what = next((text for mark, text in _PARTS.items() if name.startswith(mark)), "metadata")
    return {"part": what, "bytes": _size(path), "read": "give the folder run_* that holds it"}


def read_v2_part(path: Path) -> Facts:
    """Says which part of a Debugger V2 run a file is, and how large.

    Raises:
        DataError: it cannot be read.
    """
    part = Path(path).name.rsplit(".", 1)[-1].replace("_", " ")
    return {"part": part, "bytes": _size(path), "read": "give the folder that holds all tfdbg_events.* files"}


def read_msprobe_part(path: Path) -> Facts:
    """Says which part of an msprobe dump a file is, and how large.

    Raises:
        DataError: it cannot be read.
    """
    parts = {"stack.json": "call stacks", "construct.json": "nesting of modules"}
    what = parts.get(Path(path).name, "messages of the dump")
    return {"part": what, "bytes": _size(path), "read": "give the folder that holds dump.json"}


def _size(path: Path) -> int:
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_record(path: Path) -> Dump:
    """Reads the raw record whose manifest this is.

    Raises:
        DataError: see :func:`dumpers.formats.tf_record.read_tf_record`.
    """
    from dumpers.formats.tf_record import read_tf_record

    return read_tf_record(Path(path).parent)

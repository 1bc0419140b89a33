"""TensorFlow checkpoints of version 1: tables that hold the values themselves, usually compressed with snappy.

Their first entry lists all variables with type, shape and slices; every other entry is one slice with its values in the
typed fields of a ``TensorProto``. A checkpoint saved by several devices is several such tables.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import DataError
from dumpers.formats.bundle_sources import UNREADABLE, stored_as
from dumpers.formats.object_graph import text
from dumpers.formats.raw import bad_shape, element_count
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.snappy import LARGEST_GAIN
from dumpers.formats.sstable import Table, read_table
from dumpers.formats.tensor_slices import Piece, SlicedSource, bounds, check_cover, extents_of, slice_key
from dumpers.formats.tf_tensor import proto_array, proto_shape, value_dtype, value_field
from dumpers.records import Dump, Problem, TensorRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class SavedSliceSource:
    """One slice of a variable in a table.

    Attributes:
        path: The table.
        key: Of the slice.
        number: TensorFlow's number of the type.
        shape: Of the slice.
        name: Of the variable, for messages.
    """

    path: Path
    key: bytes
    number: int
    shape: tuple[int, ...]
    name: str

    def load(self) -> NDArray[np.generic]:
        """Returns the array, read-only.

        Raises:
            DataError: the table vanished or is damaged.
        """
        raw = read_table(self.path).get(self.key)
        if raw is None:
            raise DataError(f"{self.path}: {self.name}: values are missing; copy it or save the checkpoint again")
        try:
            array = self._array(raw)
        except DataError as error:
            raise DataError(f"{self.path}: {self.name}: {error}; copy it or save the checkpoint again") from error
        array.flags.writeable = False
        return array

    def _array(self, raw: bytes) -> NDArray[np.generic]:
        tensor = _parse(raw).data.data
        dtype, count = value_dtype(self.number), element_count(self.shape)
        parts = 2 if dtype.startswith("complex") else 1
        held = len(getattr(tensor, value_field(dtype)))
        if held != parts * count:
            raise DataError(f"holds {held // parts} of {count} values")
        tensor.dtype = self.number
        tensor.tensor_content = b""
        tensor.tensor_shape.Clear()
        for size in self.shape:
            tensor.tensor_shape.dim.add(size=size)
        return proto_array(tensor)


def read_checkpoint_v1(prefix: Path, tables: Sequence[Path]) -> Dump:
    """Reads the list of variables of a checkpoint of version 1.

    Args:
        prefix: Name of the checkpoint.
        tables: Its tables, one or as many as there were devices.

    Raises:
        DataError: a table is damaged or lists no variables.
    """
    found: dict[bytes, _Variable] = {}
    for path in tables:
        for saved in _meta(path).tensor:
            found.setdefault(bytes(saved.name), _Variable(saved)).add(saved, path)
    problems: list[Problem] = []
    records = tuple(found[name].record(problems) for name in sorted(found))
    return Dump(prefix, records, tuple(problems))


def _meta(path: Path) -> Message:
    table = read_table(path)
    raw = next((value for _, value in _first(table)), None)
    if raw is None:
        raise DataError(f"{path}: a table without entries, no checkpoint")
    try:
        saved = _parse(raw)
    except DataError as error:
        where = f"block at byte {table.blocks[0].offset}"
        raise DataError(f"{path}: {where}: {error}; copy it or save the checkpoint again") from error
    if not saved.HasField("meta"):
        raise DataError(f"{path}: a table, but no checkpoint of version 1 (no list of variables)")
    return saved.meta


def _first(table: Table) -> list[tuple[bytes, bytes]]:
    for block in table.blocks[:1]:
        for key, value in table.entries(block):
            return [(key, value)] if key == b"" else []
    return []


def _parse(raw: bytes) -> Message:
    saved = tf_message("SavedTensorSlices")
    try:
        saved.ParseFromString(raw)
    except decode_error() as error:
        raise DataError("damaged entry") from error
    return saved


class _Variable:
    """A variable while the tables are read."""

    def __init__(self, saved: Message) -> None:
        self._name = bytes(saved.name)
        self._number = int(saved.type)
        self._shape = proto_shape(saved.shape)
        self._slices: list[tuple[tuple[tuple[int, int], ...], Path]] = []
        self._paths: list[Path] = []
        self._trouble = ""

    def add(self, saved: Message, path: Path) -> None:
        """Adds the slices that one table has of it."""
        if saved.type != self._number or proto_shape(saved.shape) != self._shape:
            self._trouble = "tables disagree about its type or shape"
        self._paths.append(path)
        self._slices += [(extents_of(message), path) for message in saved.slice]

    def record(self, problems: list[Problem]) -> TensorRecord:
        """Returns the record; notes what is wrong."""
        name, dtype = text(self._name), value_dtype(self._number)
        decoded, note = stored_as(dtype)
        record = TensorRecord(
            op=name,
            op_type="",
            io="output",
            slot=0,
            dtype=decoded or dtype,
            shape=self._shape,
            source=None,
            device="tf",
            note=note,
        )
        if not decoded:
            return record
        try:
            return replace(record, source=self._source(name))
        except DataError as error:
            problems.append(Problem(self._paths[0], f"{name}: {error}"))
            return replace(record, note=f"{UNREADABLE}{self._paths[0]}: {error}")

    def _source(self, name: str) -> SavedSliceSource | SlicedSource:
        shape = self._shape
        if self._trouble or shape is None or bad_shape(shape):
            raise DataError(self._trouble or f"impossible shape {shape}")
        # A value takes a byte at least before compression; so no file makes us reserve more than it can fill.
        most = LARGEST_GAIN * sum(path.stat().st_size for path in self._paths)
        if element_count(shape) > most:
            raise DataError(f"shape {list(shape)} is more than its files can hold; damaged, save the checkpoint again")
        make = functools.partial(SavedSliceSource, number=self._number, name=name)
        pieces = []
        for extents, path in self._slices:
            start, part = bounds(extents, shape)
            pieces.append(Piece(start, part, make(path, slice_key(self._name, extents), shape=part)))
        check_cover(pieces, shape)
        if len(pieces) == 1 and isinstance(pieces[0].source, SavedSliceSource):
            return pieces[0].source
        return SlicedSource(self._paths[0], shape, tuple(pieces))

"""TensorFlow checkpoints without TensorFlow: one record a variable, values read when asked for.

Version 2 ("tensor bundle") is a table ``<prefix>.index`` with an entry a variable (type, shape, place, checksum) and
data files ``<prefix>.data-00000-of-00001`` that hold nothing but values. Partitioned variables have one entry for the
whole, without values, and one for each slice. Checkpoints saved from objects are the same, with keys that are paths
through the objects, and the graph of the objects as one more string. Version 1 is in
:mod:`dumpers.formats.checkpoint_v1`.

What a damaged entry or a lost data file spoils is that variable only: it keeps its record, and its ``note`` begins with
:data:`UNREADABLE`. Checksums of values are verified when they are loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.bundle_sources import UNREADABLE, BundleSource, StringSource, stored_as, stored_size
from dumpers.formats.checkpoint_files import (
    CheckpointFiles,
    data_file,
    find_checkpoint,
    locate_checkpoint,
)
from dumpers.formats.object_graph import OBJECT_GRAPH, SavedVariable, read_object_graph, text
from dumpers.formats.raw import bad_shape, element_count
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.sstable import read_table
from dumpers.formats.tensor_slices import Piece, SlicedSource, bounds, check_cover, extents_of, slice_key
from dumpers.formats.tf_tensor import proto_shape, value_dtype
from dumpers.records import Dump, Problem, TensorRecord, TensorSource

__all__ = ["UNREADABLE", "check_values", "find_checkpoint", "locate_checkpoint", "read_checkpoint"]

_VERSION: Final = 1
_MOST_SHARDS: Final = 100_000


def read_checkpoint(path: Path | CheckpointFiles) -> Dump:
    """Reads a checkpoint of either version; ``Dump.path`` is its prefix.

    Args:
        path: Anything that :func:`locate_checkpoint` takes, or what it returned.

    Raises:
        DataError: no checkpoint there, or its index is damaged as a whole.
    """
    files = path if isinstance(path, CheckpointFiles) else locate_checkpoint(path)
    if files.version == 1:
        from dumpers.formats.checkpoint_v1 import read_checkpoint_v1

        return read_checkpoint_v1(files.prefix, files.tables)
    return _with_names(_Bundle(files.prefix, files.tables[0]).read())


def check_values(dump: Dump) -> tuple[Problem, ...]:
    """Loads every variable, one at a time, and returns what is damaged beyond what the listing has found."""
    found: list[Problem] = []
    for record in dump.records:
        if record.source is not None:
            try:
                record.load()
            except DataError as error:
                found.append(Problem.of(record.source.path, error))
    return tuple(found)


def _with_names(dump: Dump) -> Dump:
    """Adds full names and slots from the object graph to the notes."""
    graph = next((record for record in dump.records if record.op == OBJECT_GRAPH and record.source), None)
    if graph is None:
        return dump
    try:
        names = read_object_graph(graph)
    except DataError:  # the string is a variable like others: whoever loads it meets the same error
        return dump
    return replace(dump, records=tuple(_named(record, names) for record in dump.records))


def _named(record: TensorRecord, names: Mapping[str, SavedVariable]) -> TensorRecord:
    known = names.get(record.op)
    notes = [known.describe()] if known and not record.note.startswith(UNREADABLE) else []
    return replace(record, note="; ".join(filter(None, (record.note, *notes)))) if notes else record


@dataclass(frozen=True)
class _Layout:
    """What the header of a bundle tells."""

    shards: int
    big_endian: bool


class _Bundle:
    """Reads the index of one checkpoint of version 2."""

    def __init__(self, prefix: Path, index: Path) -> None:
        self._prefix = prefix
        self._index = index
        self._problems: list[Problem] = []
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, int | None] = {}

    def read(self) -> Dump:
        """Returns the records, in order of their names."""
        entries = dict(self._entries())
        layout = self._header(entries.pop(b"", None))
        slices = {key: entries.pop(key) for key in list(entries) if key.startswith(b"\x00")}
        records = tuple(self._record(key, entries[key], slices, layout) for key in sorted(entries))
        return Dump(self._prefix, records, tuple(self._problems))

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        table = read_table(self._index)
        for number, block in enumerate(table.blocks):
            try:
                yield from table.entries(block)
            except DataError as error:
                if number == 0:
                    raise
                reason = str(error).removeprefix(f"{self._index}: ")
                self._problems.append(Problem(self._index, f"{reason}; its variables are lost"))

    def _header(self, raw: bytes | None) -> _Layout:
        header = tf_message("BundleHeaderProto")
        try:
            if raw is None:
                raise DataError(f"{self._index}: has no header; a table, but no index of a checkpoint")
            header.ParseFromString(raw)
        except decode_error() as error:
            raise DataError(f"{self._index}: damaged header; save the checkpoint again") from error
        if header.version.min_consumer > _VERSION:
            raise DataError(
                f"{self._index}: needs a reader of version {header.version.min_consumer}, this is {_VERSION}"
            )
        if not 0 < header.num_shards <= _MOST_SHARDS or header.endianness not in (0, 1):
            raise DataError(
                f"{self._index}: header claims {header.num_shards} data files in byte order {header.endianness}; "
                "damaged, save the checkpoint again"
            )
        return _Layout(int(header.num_shards), header.endianness == 1)

    def _record(self, key: bytes, raw: bytes, slices: Mapping[bytes, bytes], layout: _Layout) -> TensorRecord:
        name, where = text(key), self._index
        dtype, note = "undefined", ""
        shape: tuple[int, ...] | None = None
        source: TensorSource | None = None
        try:
            entry = _parse(raw)
            stored, claimed = value_dtype(entry.dtype), proto_shape(entry.shape)
            if claimed is None or bad_shape(claimed):
                raise DataError(f"impossible shape {claimed}")
            shape = claimed
            decoded, note = stored_as(stored)
            dtype = decoded or stored
            if decoded and entry.slices:
                source = self._sliced(key, entry, slices, layout)
            elif decoded:
                where = self._data_file(entry.shard_id, layout)
                source = self._source(name, entry, layout)
        except DataError as error:
            self._problems.append(Problem(where, f"{name}: {error}"))
            note = f"{UNREADABLE}{where}: {error}"
        return TensorRecord(
            op=name, op_type="", io="output", slot=0, dtype=dtype, shape=shape, source=source, device="tf", note=note
        )

    def _sliced(self, key: bytes, entry: Message, slices: Mapping[bytes, bytes], layout: _Layout) -> SlicedSource:
        shape = proto_shape(entry.shape) or ()
        pieces = []
        for message in entry.slices:
            extents = extents_of(message)
            start, part_shape = bounds(extents, shape)
            raw = slices.get(slice_key(key, extents))
            if raw is None:
                raise DataError(f"slice {_slice_text(start, part_shape)} is not in the index")
            part = _parse(raw)
            if part.dtype != entry.dtype or proto_shape(part.shape) != part_shape:
                raise DataError(f"slice {_slice_text(start, part_shape)} has another type or shape")
            pieces.append(Piece(start, part_shape, self._source(text(key), part, layout)))
        check_cover(pieces, shape)
        return SlicedSource(self._index, shape, tuple(pieces))

    def _source(self, name: str, entry: Message, layout: _Layout) -> TensorSource:
        """Makes sure that what an entry claims is possible and lies in its data file."""
        dtype, shape = value_dtype(entry.dtype), proto_shape(entry.shape) or ()
        if not 0 <= entry.shard_id < layout.shards:
            raise DataError(f"is in data file {entry.shard_id} of {layout.shards}; damaged, save the checkpoint again")
        path = self._data_file(entry.shard_id, layout)
        there = self._size(entry.shard_id, path)
        if there is None:
            raise DataError("no such data file; copy it beside the index, or save the checkpoint again")
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > there:
            raise DataError(
                f"the data file ends at byte {there}, its {entry.size} bytes at {entry.offset} are not (all) there; "
                "copy it or save the checkpoint again"
            )
        count = element_count(shape)
        place = BundleSource(
            path, entry.offset, entry.size, dtype, shape, entry.crc32c, name=name, big_endian=layout.big_endian
        )
        if dtype == "string":
            if entry.size < count + 4:
                raise DataError(f"{entry.size} bytes cannot hold {count} strings; damaged, save the checkpoint again")
            return StringSource(place)
        if entry.size != stored_size(dtype, count):
            raise DataError(
                f"{entry.size} bytes for {dtype} of shape {list(shape)}, which takes {stored_size(dtype, count)}; "
                "damaged, save the checkpoint again"
            )
        return place

    def _data_file(self, shard: int, layout: _Layout) -> Path:
        if shard not in self._paths:
            self._paths[shard] = data_file(self._prefix, shard, layout.shards)
        return self._paths[shard]

    def _size(self, shard: int, path: Path) -> int | None:
        if shard not in self._sizes:
            self._sizes[shard] = os.path.getsize(path) if os.path.isfile(path) else None
        return self._sizes[shard]


def _parse(raw: bytes) -> Message:
    entry = tf_message("BundleEntryProto")
    try:
        entry.ParseFromString(raw)
    except decode_error() as error:
        raise DataError("damaged entry in the index; save the checkpoint again") from error
    return entry


def _slice_text(start: tuple[int, ...], shape: tuple[int, ...]) -> str:
    return ":".join(f"{at},{length}" for at, length in zip(start, shape, strict=True))

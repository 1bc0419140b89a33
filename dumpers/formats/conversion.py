"""Dump files -> npy files under the names that the public converter gives them, and whatever else a dump holds.

Names: ``<dump>.<input|output>.<i>[.<AxBxC>].npy``, ``.bin`` for raw bytes, ``<dump>.l1buffer.<i>.bin``,
``<dump>.space.<i>.bin``, ``<dump>.output.<i>.json`` for an overflow record. A name too long for a file system becomes
the name-based UUID of the full one, and ``mapping.csv`` of the folder gets a line.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.formats.dump_names import MAPPING_FILE, full_name, read_mapping
from dumpers.formats.npy import write_npy
from dumpers.names import MAX_FILE_NAME_BYTES, flatten_tf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.npu_dump import NpuDumpFile
    from dumpers.records import TensorRecord

_WIDENED: Final = frozenset({"bfloat16"})


@dataclass(frozen=True)
class Wanted:
    """What to write.

    Attributes:
        layout: Layout asked for; empty for the original one where it is known.
        stored: Leave the stored layout as it is, and name files as the public converter does without a layout.
        raw: Stored bytes instead of npy.
    """

    layout: str = ""
    stored: bool = False
    raw: bool = False


@dataclass
class Written:
    """What a conversion did.

    Attributes:
        files: Files written, in order.
        notes: What was done to a tensor, or could not be.
        unchanged: Tensors without a layout that could be turned into the wanted one.
        failed: (what, reason) of everything that gave no file.
        records: (file, record) of the tensors, for an index.
    """

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchanged: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    records: list[tuple[Path, TensorRecord]] = field(default_factory=list)


Known = Mapping[tuple[Path | None, str, int], "TensorRecord"]
"""(file, io, slot) -> the record as the whole dump has it: a graph tells original shapes that headers leave out."""


def convert_dump(path: Path, target: Path, wanted: Wanted, known: Known | None = None) -> Written:
    """Converts one device dump file: every tensor, buffer and workspace.

    Args:
        path: The dump file.
        target: An existing folder.
        wanted: What to write.
        known: Records of the dump that it belongs to.

    Raises:
        DataError: it is no dump file. A tensor that gives no file is listed in ``failed``.
        OSError: the target cannot be written.
    """
    from dumpers.formats.dump_names import parse_dump_name
    from dumpers.formats.npu_dump import read_npu_dump

    name = full_name(path.name, read_mapping(path.parent)) or path.name
    parsed = parse_dump_name(name)
    if parsed is not None and parsed.is_overflow:
        return _overflow(path, name, target)
    dump = read_npu_dump(path, name=parsed)
    done = Written()
    for record in (*dump.inputs, *dump.outputs):
        better = (known or {}).get((record.path, record.io, record.slot))
        same = better is not None and type(better.source) is type(record.source)
        _tensor(better if better is not None and same else record, name, target, wanted, done)
    _buffers(dump, name, target, done)
    return done


def _tensor(record: TensorRecord, dump: str, target: Path, wanted: Wanted, done: Written) -> None:
    what = f"{dump}.{record.io}.{record.slot}"
    if record.source is None:
        done.failed.append((what, record.note or f"no value: {record.dtype}"))
        return
    try:
        if wanted.raw:
            file = _raw(record, what, target, wanted)
        else:
            array, shape, note = _values(record, wanted)
            file = placed(target, f"{what}{shape}.npy")
            note = "; ".join(filter(None, (note, _save(file, array))))
            if note.endswith("taken as it is"):
                done.unchanged += 1
            elif note:
                done.notes.append(f"{what}: {note}")
    except DataError as error:
        done.failed.append((what, str(error).removeprefix(f"{record.path}: ")))
        return
    done.files.append(file)
    done.records.append((file, record))


def _values(record: TensorRecord, wanted: Wanted) -> tuple[NDArray[np.generic], str, str]:
    """Returns (array, the shape part of its file name, note)."""
    from dumpers.formats.relayout import AS_IT_IS, in_layout, original

    if wanted.stored:
        return _scalar(record.load()), "", ""
    if wanted.layout:
        try:
            array, note = in_layout(record, wanted.layout)
        except DataError as error:
            return _scalar(record.load()), "", f"left in {record.format}: {error}"
        array = _scalar(array)
        return array, "" if note.endswith(AS_IT_IS) else "." + "x".join(map(str, array.shape)), note
    array, note = original(record)
    shape = "." + "x".join(map(str, array.shape)) if note.endswith("undone") else ""
    return _scalar(array), shape, note


def _scalar(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.reshape(1) if array.ndim == 0 else array


def _save(file: Path, array: NDArray[np.generic]) -> str:
    """Writes an npy; types that npy lacks become float32, which holds all of their values."""
    note = ""
    if array.dtype.hasobject:
        raise DataError("holds text, which an npy of numbers cannot")
    if array.dtype.name in _WIDENED or array.dtype.name.startswith("float8"):
        note, array = f"{array.dtype.name} written as float32", array.astype(np.float32)
    write_npy(file, array)
    return note


def _raw(record: TensorRecord, what: str, target: Path, wanted: Wanted) -> Path:
    layout = wanted.layout
    array = _scalar(record.load())
    if layout:
        from dumpers.formats.relayout import in_layout

        array = _scalar(in_layout(record, layout)[0])
    count = "_".join(map(str, array.shape)) if layout else str(array.size)
    file = placed(target, f"{what}.{count}.{array.dtype.name}.{layout or record.format or 'ND'}.bin")
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.kind in "iufc" else array
    with atomic_file(file) as out:
        out.write(np.ascontiguousarray(little).tobytes())
    return file


def _buffers(dump: NpuDumpFile, name: str, target: Path, done: Written) -> None:
    from dumpers.formats.npu_dump import buffer_blocks, buffer_file_name

    for buffer in dump.buffers:
        full = buffer_file_name(name, buffer)
        try:
            file = placed(target, full)
            with atomic_file(file) as out:
                for block in buffer_blocks(dump.path, buffer):
                    out.write(block)
        except DataError as error:
            done.failed.append((full.removesuffix(".bin"), str(error).removeprefix(f"{dump.path}: ")))
        else:
            done.files.append(file)


def _overflow(path: Path, name: str, target: Path) -> Written:
    from dumpers.formats.overflow import read_overflow

    done = Written()
    for record in read_overflow(path):
        file = placed(target, f"{name}.output.{record.slot}.json")
        with atomic_file(file) as out:
            out.write(json.dumps(record.data, indent=4).encode("ascii"))
        done.files.append(file)
    return done


def convert_tensors(records: Iterable[TensorRecord], target: Path, wanted: Wanted) -> Written:
    """Writes the tensors of any other kind under the names of reference tensors, ``<op>.<output>.<time>.npy``.

    An op that gives one name twice gets a number before the time. The caller writes the index.

    Raises:
        OSError: the target cannot be written.
    """
    done = Written()
    used: set[str] = set()
    for record in records:
        what = f"{record.op}:{record.slot}"
        if record.source is None:
            done.failed.append((what, record.note or f"no value: {record.dtype}"))
            continue
        name = _free_name(record, used)
        try:
            array, _, note = _values(record, wanted)
            file = placed(target, name)
            note = "; ".join(filter(None, (note, _save(file, array if array.size != 1 else _own_shape(record, array)))))
        except DataError as error:
            done.failed.append((what, str(error).removeprefix(f"{record.path}: ")))
            continue
        if note:
            done.notes.append(f"{what}: {note}")
        done.files.append(file)
        done.records.append((file, record))
    return done


def _own_shape(record: TensorRecord, array: NDArray[np.generic]) -> NDArray[np.generic]:
    """A scalar stays one here: the shape (1,) is a habit of the device's converter only."""
    return array.reshape(()) if record.shape == () else array


def _free_name(record: TensorRecord, used: set[str]) -> str:
    op = flatten_tf(record.op).replace("\0", "_") or "_"
    time = record.timestamp_us if record.timestamp_us is not None else 10**15
    number = 0
    while True:
        name = f"{op}.{record.slot}.{f'{number}.' if number else ''}{time}.npy"
        if name.casefold() not in used:
            used.add(name.casefold())
            return name
        number += 1


def write_index(folder: Path, records: Iterable[tuple[Path, TensorRecord]]) -> Path:
    """Writes ``index.csv`` with the full names of reference tensors, so that the folder is a dump by itself.

    Raises:
        OSError: it cannot be written.
    """
    from dumpers.formats.npy_dir import INDEX_COLUMNS, INDEX_FILE

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(INDEX_COLUMNS)
    for file, record in records:
        dtype = "float32" if record.dtype in _WIDENED or record.dtype.startswith("float8") else record.dtype
        shape = "" if record.shape is None else str(tuple(record.shape))
        step, moment = (("" if n is None else n) for n in (record.step, record.timestamp_us))
        writer.writerow((file.name, record.op, record.slot, record.op_type, step, moment, dtype, shape, record.note))
    with atomic_file(folder / INDEX_FILE) as out:
        out.write(text.getvalue().encode("utf-8", "surrogateescape"))
    return folder / INDEX_FILE


def placed(folder: Path, name: str) -> Path:
    """Returns where a file of this name goes; a name too long is replaced, and ``mapping.csv`` tells the full one.

    Raises:
        DataError: there is a mapping that cannot be read.
        OSError: it cannot be written.
    """
    safe = name.replace("/", "_").replace("\0", "_")
    if len(safe.encode("utf-8", "surrogateescape")) <= MAX_FILE_NAME_BYTES - 1:
        return folder / safe
    suffix = Path(safe).suffix
    text_name = safe.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    short = uuid.uuid3(uuid.NAMESPACE_DNS, text_name).hex + suffix
    mapping = dict(read_mapping(folder))
    if mapping.get(short) != safe:
        mapping[short] = safe
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(sorted(mapping.items()))
        with atomic_file(folder / MAPPING_FILE) as out:
            out.write(text.getvalue().encode("utf-8", "surrogateescape"))
    return folder / short

"""Folders of npy files: converted device tensors, reference tensors in TensorFlow naming, or just arrays."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import (
    full_name,
    parse_converted_name,
    parse_stored_reference,
    parse_tf_name,
    read_mapping,
)
from dumpers.formats.npy import NpySource, read_npy_header
from dumpers.formats.op_names import OpNames, declared_dtype
from dumpers.formats.raw import regular_only
from dumpers.formats.walk import step_of
from dumpers.graph import Graph
from dumpers.records import Dump, Problem, TensorRecord, execution_order

INDEX_FILE: Final = "index.csv"
"""Full names of reference tensors, beside the files."""

INDEX_COLUMNS: Final = ("file", "op", "output", "op_type", "step", "timestamp_us", "dtype", "shape", "note")

_LIMIT: Final = 4096


class _Collector:
    """Gathers the records of one dump; a bad file spoils only itself."""

    def __init__(self) -> None:
        self.records: list[TensorRecord] = []
        self.problems: list[Problem] = []
        self.ignored: list[Path] = []

    def add(self, record: TensorRecord, path: Path, declared: str | None = None) -> None:
        """Adds the record of a file: dtype and shape come from its header, raw data get the declared dtype."""
        try:
            header = read_npy_header(path)
        except DataError as error:
            self.problem(path, error)
            return
        dtype, source, note = header.dtype, NpySource(path), record.note
        if (declared == "bfloat16" and (header.unknown or header.dtype == "float16")) or (header.unknown and declared):
            dtype, source = declared, NpySource(path, declared)
        note = note if dtype != "undefined" else "; ".join(filter(None, (note, header.unknown)))
        fields = vars(record) | {"dtype": dtype, "shape": header.shape, "note": note}
        fields["source"] = None if dtype == "undefined" else source
        self.records.append(TensorRecord(**fields))  # dataclasses.replace takes twice as long, for each of 50,000 files

    def add_stored(self, record: TensorRecord, path: Path) -> None:
        """Adds the record of a file in the very old dump form, which holds one output, or all of its op."""
        from dumpers.formats.npu_dump import read_npu_dump

        try:
            file = read_npu_dump(path)
        except DataError as error:
            self.problem(path, error)
            return
        self.problems.extend(file.problems)
        slot = 0 if len(file.outputs) == 1 else record.slot
        if slot >= len(file.outputs):
            self.problem(path, f"holds {len(file.outputs)} outputs, its name says output {record.slot}")
            return
        kept = {name: getattr(record, name) for name in ("op", "op_type", "slot", "timestamp_us", "device")}
        self.records.append(replace(file.outputs[slot], **kept))

    def problem(self, path: Path, reason: Exception | str) -> None:
        """Notes a file that cannot be used."""
        self.problems.append(Problem(path, str(reason).removeprefix(f"{path}: ")))

    def dump(self, path: Path, graph: Graph | None) -> Dump:
        """Returns what was gathered."""
        return Dump(path, execution_order(self.records), tuple(self.problems), tuple(self.ignored), graph)


def read_converted_dir(folder: Path, names: Iterable[str], *, graph: Graph | None = None) -> Dump:
    """Reads a folder of converted device tensors (``<dump name>.<input|output>.<slot>.npy``, both layouts).

    Args:
        folder: The folder.
        names: Its file names.
        graph: The device graph, for full op names and for the dtype of raw two-byte data.

    Raises:
        DataError: ``mapping.csv`` cannot be read.
    """
    mapping = read_mapping(folder)
    resolver = OpNames(graph)
    step = step_of(folder)
    found = _Collector()
    for name in names:
        path = folder / name
        full = full_name(name, mapping)
        parsed = parse_converted_name(full) if full else None
        if full is None:
            found.problem(path, "short name that mapping.csv does not have; its op is not known")
        elif parsed is None or parsed.io is None:
            _ignore(found, path)
        else:
            op = resolver.full(parsed.op_name, parsed.op_type)
            record = TensorRecord(
                op=op,
                op_type=parsed.op_type,
                io=parsed.io,
                slot=parsed.slot,
                dtype="undefined",
                shape=None,
                source=None,
                step=step,
                timestamp_us=parsed.timestamp_us,
                format=parsed.format,
                task_id=parsed.task_id,
                stream_id=parsed.stream_id,
            )
            found.add(record, path, declared_dtype(resolver.op(op), parsed.io, parsed.slot))
    return found.dump(folder, graph)


def read_tf_dir(root: Path, files: Iterable[Path], *, graph: Graph | None = None) -> Dump:
    """Reads reference tensors (``<op>.<output>.<time>.npy``, old ``.pb`` and ``.quant``), and the indexes beside them.

    All records are kept: of several files of one tensor the one with the greatest time stamp is the last in order.

    Args:
        root: Where the files lie, sub-folders included.
        files: All files below it.
        graph: TensorFlow graph, or the device graph whose original names tell the full op names.

    Raises:
        DataError: an index cannot be read.
    """
    found = _Collector()
    resolver = OpNames(graph, originals=True)
    by_folder: dict[Path, list[str]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file.name)
    for folder, names in by_folder.items():
        indexed = _read_index(folder, set(names), found) if INDEX_FILE in names else set()
        mapping = read_mapping(folder)
        for name in names:
            if name not in indexed and name != INDEX_FILE:
                _add_tf_file(found, folder / name, full_name(name, mapping), resolver)
    return found.dump(root, graph if graph and graph.kind == "tf" else None)


def _add_tf_file(found: _Collector, path: Path, full: str | None, resolver: OpNames) -> None:
    stored = parse_stored_reference(full) if full else None
    parsed = stored or (parse_tf_name(full) if full else None)
    if full is None:
        found.problem(path, "name of digits only that mapping.csv does not have; its op is not known")
    elif parsed is None:
        _ignore(found, path)
    else:
        name = resolver.full(parsed.op_name)
        op = resolver.op(name)
        record = TensorRecord(
            op=name,
            op_type=op.type if op else "",
            io="output",
            slot=parsed.slot,
            dtype="undefined",
            shape=None,
            source=None,
            timestamp_us=parsed.timestamp_us,
            device="tf",
        )
        if stored:
            found.add_stored(record, path)
        else:
            found.add(record, path, declared_dtype(op, "output", parsed.slot))


def read_plain_dir(root: Path, files: Iterable[Path]) -> Dump:
    """Reads arrays that follow no naming rule: each is output 0 of an op named like the file, in order of names."""
    found = _Collector()
    for path in files:
        if path.suffix != ".npy":
            _ignore(found, path)
            continue
        name = path.relative_to(root).as_posix().removesuffix(".npy")
        record = TensorRecord(name, "", "output", 0, "undefined", None, None, device="tf")
        found.add(record, path)
    return found.dump(root, None)


def is_index(path: Path) -> bool:
    """Tells whether a file is our index of reference tensors."""
    try:
        with open(path, opener=regular_only, encoding="utf-8", errors="replace", newline="") as file:
            return file.readline(_LIMIT).strip().split(",")[:3] == list(INDEX_COLUMNS[:3])
    except OSError:
        return False


def _read_index(folder: Path, present: set[str], found: _Collector) -> set[str]:
    """Adds the records of an index; returns the files it covers."""
    path = folder / INDEX_FILE
    covered: set[str] = set()
    try:
        with open(path, opener=regular_only, encoding="utf-8", errors="surrogateescape", newline="") as file:
            reader = csv.DictReader(file)
            missing = set(INDEX_COLUMNS[:3]) - set(reader.fieldnames or ())
            if missing:
                raise DataError(f"{path}: lacks the columns {', '.join(sorted(missing))}; run tf_dump again")
            for number, row in enumerate(reader, start=2):
                _add_row(found, folder, present, row, number)
                covered.add(row.get("file") or "")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error
    return covered


def _add_row(found: _Collector, folder: Path, present: set[str], row: Mapping[str, str | None], line: int) -> None:
    name, slot = row.get("file") or "", row.get("output") or ""
    if not row.get("op") or _number(slot) is None:
        found.problem(folder / INDEX_FILE, f"line {line} has no op or no output number")
        return
    dtype = row.get("dtype") or "undefined"
    record = TensorRecord(
        op=row["op"] or "",
        op_type=row.get("op_type") or "",
        io="output",
        slot=int(slot),
        dtype=dtype,
        shape=parse_shape_text(row.get("shape")),
        source=None,
        step=_number(row.get("step")),
        timestamp_us=_number(row.get("timestamp_us")),
        device="tf",
        note=row.get("note") or "",
    )
    if not name:
        found.records.append(record if record.note else replace(record, note=f"no value: {dtype}"))
    elif os.path.basename(name) != name or name not in present:
        found.problem(folder / INDEX_FILE, f"line {line} names {name!r}, which is not beside it")
    else:
        found.add(record, folder / name, dtype if dtype != "undefined" else None)


def parse_shape_text(text: str | None) -> tuple[int, ...] | None:
    """Returns the shape behind ``2x3``, ``(2, 3)``, ``[2,3]`` or ``()``; None for an empty text."""
    if not text or not text.strip() or text.strip().lower() in ("none", "unknown", "?"):
        return None
    return tuple(int(dim) for dim in re.findall(r"-?[0-9]{1,19}", text))


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _ignore(found: _Collector, path: Path) -> None:
    if path.name not in ("mapping.csv", INDEX_FILE):
        found.ignored.append(path)

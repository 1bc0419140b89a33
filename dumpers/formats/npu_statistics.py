"""Statistics dumps: instead of a tensor's values the device wrote its figures, one csv file for each op.

Columns are found by name, since older files stop earlier: ``Input/Output, Index, Data Size, Data Type, Format, Shape,
Max Value, Min Value, Avg Value, Count, Nan Count, Negative Inf Count, Positive Inf Count``. A figure that the device
does not compute for a type is blank.
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import DumpName, full_name, parse_dump_name, read_mapping
from dumpers.formats.enums import DTYPE_OF, device_dtype
from dumpers.formats.raw import bad_shape, open_regular
from dumpers.records import Io, Problem, RecordedStatistics, TensorRecord

NOTE: Final = "statistics only"
"""How the note of a record begins that has figures and no values; the file's name follows."""

_NEEDED: Final = ("Input/Output", "Index")
_MAX_BYTES: Final = 64 << 20
_SIDES: Final[Mapping[str, Io]] = {"input": "input", "output": "output"}
_NAMES: Final = {"half": "float16", "float": "float32", "double": "float64", "bf16": "bfloat16"}


@dataclass(frozen=True)
class StatisticsFile:
    """The records of one statistics file, and its lines that make no sense."""

    records: tuple[TensorRecord, ...]
    problems: tuple[Problem, ...] = ()


def read_statistics(path: Path) -> tuple[TensorRecord, ...]:
    """Returns a record without values for each line of a statistics file, with its figures.

    Raises:
        DataError: no such file, no statistics file, or none of its lines makes sense.
    """
    path = Path(path)
    name = parse_dump_name(full_name(path.name, read_mapping(path.parent)) or "")
    found = read_statistics_file(path, name=name)
    if found.problems and not found.records:
        raise DataError(f"{path}: {found.problems[0].reason}")
    return found.records


def read_statistics_file(
    path: Path,
    *,
    name: DumpName | None = None,
    step: int | None = None,
    op_name: Callable[[str, str], str] | None = None,
) -> StatisticsFile:
    """Reads a statistics file; a line that makes no sense is a problem and does not spoil the others.

    Args:
        path: The file.
        name: Fields of its name; parsed from ``path`` if not given.
        step: Training step for the records.
        op_name: Gets (name from the file name, op type) and returns the op's full name.

    Raises:
        DataError: no such file, or no statistics file.
    """
    name = name or parse_dump_name(path.name)
    known = name.op_name if name else path.name.removesuffix(".csv")
    kind = name.op_type if name else ""
    base = TensorRecord(
        op=op_name(known, kind) if op_name else known,
        op_type=kind,
        io="output",
        slot=0,
        dtype="undefined",
        shape=None,
        source=None,
        step=step,
        timestamp_us=name.timestamp_us if name else None,
        note=f"{NOTE} ({path.name})",
        task_id=name.task_id if name else None,
        stream_id=name.stream_id if name else None,
    )
    records: list[TensorRecord] = []
    problems: list[Problem] = []
    for line, row in _rows(path):
        try:
            records.append(_record(base, row))
        except ValueError as error:
            problems.append(Problem(path, f"line {line}: {error}"))
    return StatisticsFile(tuple(records), tuple(problems))


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yields (line number, cell by column name).

    Raises:
        DataError: the file cannot be read, or its first line has not the columns.
    """
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            if size > _MAX_BYTES:
                raise DataError(f"{path}: {size} bytes are more than any statistics file has")
            lines = io.StringIO(file.read().decode("utf-8-sig", "replace"), newline="")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    reader = csv.reader(lines)
    try:
        columns = [column.strip() for column in next(reader, [])]
        if missing := [column for column in _NEEDED if column not in columns]:
            raise DataError(f"{path}: line 1 has no column {missing[0]!r}; it is no statistics file")
        for row in reader:
            if row:
                yield reader.line_num, dict(zip(columns, (cell.strip() for cell in row), strict=False))
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error


def _record(base: TensorRecord, row: Mapping[str, str]) -> TensorRecord:
    side = _SIDES.get(row["Input/Output"].lower())
    if side is None:
        raise ValueError(f"Input/Output says {row['Input/Output'][:40]!r}, neither input nor output")
    slot = _whole(row, "Index")
    if slot is None:
        raise ValueError("has no Index")
    statistics = RecordedStatistics(
        count=_whole(row, "Count"),
        nan=_whole(row, "Nan Count"),
        pos_inf=_whole(row, "Positive Inf Count"),
        neg_inf=_whole(row, "Negative Inf Count"),
        min=_figure(row, "Min Value"),
        max=_figure(row, "Max Value"),
        mean=_figure(row, "Avg Value"),
    )
    return replace(
        base,
        io=side,
        slot=slot,
        dtype=_dtype(row.get("Data Type", "")),
        shape=_shape(row.get("Shape", ""), statistics.count),
        format=row.get("Format", "").removeprefix("FORMAT_"),
        statistics=statistics,
    )


def _whole(row: Mapping[str, str], column: str) -> int | None:
    text = row.get(column, "")
    if not text or text == "-":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ValueError(f"{column} is {text[:40]!r}, not a number")
    return int(text)


def _figure(row: Mapping[str, str], column: str) -> float | None:
    text = row.get(column, "")
    if not text or text == "-":
        return None
    try:
        return float(text)
    except ValueError:
        if text.lower() in ("true", "false"):
            return float(text.lower() == "true")
        raise ValueError(f"{column} is {text[:40]!r}, not a number") from None


def _dtype(text: str) -> str:
    name = device_dtype(text.upper())
    if name == text.upper() and name.removeprefix("DT_") not in DTYPE_OF:
        return _NAMES.get(text.lower(), text.lower() or "undefined")
    return name


def _shape(text: str, count: int | None) -> tuple[int, ...] | None:
    """Returns the shape of ``2x3x4``; of ``-`` that of a scalar if there is one element, else it is not known."""
    if text in ("", "-"):
        return () if count == 1 else None
    parts = text.split("x")
    if not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts):
        raise ValueError(f"Shape is {text[:40]!r}, not like 2x3x4")
    shape = tuple(map(int, parts))
    if reason := bad_shape(shape):
        raise ValueError(reason)
    return shape


def with_statistics(records: Sequence[TensorRecord], recorded: Sequence[TensorRecord]) -> list[TensorRecord]:
    """Returns tensors with the figures that statistics files have for them; figures without a tensor stand alone.

    A tensor and its figures have the same op, side, slot and time stamp; where the two were written at different times,
    they belong together if the folder has each of them once.
    """
    if not recorded:
        return list(records)
    by_slot: dict[tuple[str, str, Io, int], list[int]] = defaultdict(list)
    for number, record in enumerate(records):
        by_slot[record.op, record.op_type, record.io, record.slot].append(number)
    rows = defaultdict(list)
    for row in recorded:
        rows[row.op, row.op_type, row.io, row.slot].append(row)
    merged, alone = list(records), []
    for key, found in rows.items():
        numbers = by_slot.get(key, [])
        for row in found:
            same = [number for number in numbers if merged[number].timestamp_us == row.timestamp_us]
            if not same and len(found) == len(numbers) == 1:
                same = numbers
            if len(same) == 1 and merged[same[0]].statistics is None:
                merged[same[0]] = replace(merged[same[0]], statistics=row.statistics)
            else:
                alone.append(row)
    return merged + alone

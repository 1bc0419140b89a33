"""What the names of dump files say: device dumps, converted files, reference tensors, and ``mapping.csv``.

Fields are found by meaning (numbers, the long one is the time, ``input``/``output``), not by counting dots.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.records import Io

MAPPING_FILE: Final = "mapping.csv"
INCOMPLETE_FILE: Final = "dump_incomplete.txt"
"""Lies in the folder of a step that was not written to its end, and says why."""

_WORD: Final = re.compile(r"[^./]+\Z")
"""A type or a flattened name: TensorFlow allows more than letters and digits, ``>`` for example."""

_TIME_DIGITS: Final = 14
"""Shortest number that can only be a time stamp: microseconds have 16 digits, tasks and streams a few."""

_HEX_NAME: Final = re.compile(r"[0-9a-f]{32}\Z")
_TF_NAME: Final = re.compile(r"(?P<op>.+?)\.(?P<slot>\d{1,6})(?:\.\d{1,9})?\.(?P<time>\d{10,20})\.npy\Z")


@dataclass(frozen=True)
class DumpName:
    """Fields of a device dump's file name.

    Attributes:
        op_type: ``MatMulV2``, ``Opdebug`` for an overflow record.
        op_name: Flattened op name (``/`` and ``.`` became ``_``).
        task_id: Device task; for an overflow record that of the debug task.
        stream_id: None if the name does not tell (old layout), never 0 instead.
        timestamp_us: Microseconds since 1970.
        extra: Task type, context, thread and device numbers of the FFTS+ layout.
        io, slot: Set for a converted file, which holds one tensor.
        statistics: Whether it is a ``.csv`` of statistics instead of data.
    """

    op_type: str
    op_name: str
    task_id: int
    stream_id: int | None
    timestamp_us: int
    extra: tuple[int, ...] = ()
    io: Io | None = None
    slot: int = 0
    statistics: bool = False

    @property
    def is_overflow(self) -> bool:
        """Whether this is an overflow record and not an op's data."""
        return self.op_type == "Opdebug"


@dataclass(frozen=True)
class TfName:
    """Fields of a reference tensor's file name: flattened op name, output slot, time stamp."""

    op_name: str
    slot: int
    timestamp_us: int


def parse_dump_name(name: str) -> DumpName | None:
    """Returns the fields of a device dump's file name, None for anything else (converted files included)."""
    fields = name.split(".")
    statistics = fields[-1] == "csv"
    if statistics:
        fields.pop()
    parsed = _parse_fields(fields)
    return replace(parsed, statistics=statistics) if parsed else None


def parse_converted_name(name: str) -> DumpName | None:
    """Returns the fields of ``<dump name>.<input|output>.<slot>[.<shape or format>].npy``, else None."""
    fields = name.split(".")
    if fields[-1] != "npy":
        return None
    for io in ("input", "output"):
        if io not in fields[3:-2]:
            continue
        where = len(fields) - 1 - fields[::-1].index(io)
        rest = fields[where + 1 : -1]
        parsed = _parse_fields(fields[:where])
        if parsed and _is_number(rest[0]) and len(rest) <= 2:
            return replace(parsed, io="input" if io == "input" else "output", slot=int(rest[0]))
    return None


def parse_tf_name(name: str) -> TfName | None:
    """Returns the fields of ``<op>.<output>[.<number>].<time>.npy``, else None. Dots in the op name are kept."""
    match = _TF_NAME.match(name)
    return TfName(match["op"], int(match["slot"]), int(match["time"])) if match else None


def is_alias(name: str) -> bool:
    """Tells whether a file name stands for a longer one: digits only, or the converter's 32 hex digits."""
    stem = name.removesuffix(".npy")
    return _is_number(stem) or bool(_HEX_NAME.match(stem))


def read_mapping(folder: Path) -> Mapping[str, str]:
    """Returns ``short file name -> full file name`` of a folder's ``mapping.csv``, empty without one.

    Raises:
        DataError: the file cannot be read as text.
    """
    path = folder / MAPPING_FILE
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == 2]
    except FileNotFoundError:
        return {}
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return {short.strip(): full.strip() for short, full in rows}


def full_name(name: str, mapping: Mapping[str, str]) -> str | None:
    """Returns what a file is really called; None for an alias that ``mapping.csv`` does not have.

    A full name may lack the suffix that the short one has, and the other way round.
    """
    stem = name.removesuffix(".npy")
    suffix = ".npy" if name != stem else ""
    for key in (name, stem):
        if key in mapping:
            full = mapping[key]
            return full if not suffix or full.endswith(suffix) else full + suffix
    return None if is_alias(name) else name


def _parse_fields(fields: list[str]) -> DumpName | None:
    if len(fields) < 4 or not all(_is_number(field) for field in fields[2:]):
        return None
    if not (_WORD.match(fields[0]) and _WORD.match(fields[1])) or _is_number(fields[0]):
        return None
    numbers = [int(field) for field in fields[2:]]
    where = _time_position(fields[2:])
    if where is None:
        return None
    extra = tuple(numbers[where + 1 :])
    return DumpName(fields[0], fields[1], numbers[0], numbers[1] if where == 2 else None, numbers[where], extra)


def _time_position(numbers: list[str]) -> int | None:
    """Which number is the time: the long one; without one, by count (2 or 3, and 4 more in the FFTS+ layout)."""
    if len(numbers) > 9:
        return None
    for where in (1, 2):
        if where < len(numbers) and len(numbers[where]) >= _TIME_DIGITS:
            return where
    return {2: 1, 3: 2, 6: 1, 7: 2}.get(len(numbers))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 255

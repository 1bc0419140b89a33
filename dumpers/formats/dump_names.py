"""What the names of dump files say: device dumps, converted files, reference tensors, and ``mapping.csv``.

Fields are found by meaning (numbers, the long one is the time, ``input``/``output``), not by counting dots.
"""

from __future__ import annotations

import csv
import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.raw import open_regular
from dumpers.records import Io

MAPPING_FILE: Final = "mapping.csv"
INCOMPLETE_FILE: Final = "dump_incomplete.txt"
"""Lies in the folder of a step that was not written to its end, and says why."""

_MAX_MAPPING_BYTES: Final = 64 << 20

_WORD: Final = re.compile(r"[^./]+\Z")
"""A type or a flattened name: TensorFlow allows more than letters and digits, ``>`` for example."""

_SLOT_DIGITS: Final = 9
"""An op has no more tensors than that; a longer number is something else."""

_TIME_DIGITS: Final = 14
"""Shortest number that can only be a time stamp: microseconds have 16 digits, tasks and streams a few."""

_SHAPE: Final = re.compile(r"\d{1,18}(x\d{1,18})*\Z", re.ASCII)
_ALIAS: Final = re.compile(r"(?:[0-9]+|[0-9a-f]{32})(?:\.npy)?")
_LONGEST_ALIAS: Final = 259
"""With the suffix; a longer number is no file's name."""
_STORED_NAME: Final = re.compile(r"(?P<op>.+?)\.(?P<slot>\d{1,6})\.(?P<time>\d{14,20})\.(pb|quant)\Z")
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
        shape: Of a converted file, if its name has the shape that was asked for.
        format: Of a converted file, if its name has the layout (MindSpore).
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
    shape: tuple[int, ...] | None = None
    format: str = ""
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
    return replace(parsed, statistics=True) if parsed and statistics else parsed


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
        if parsed and _is_slot(rest[0]) and len(rest) <= 2:
            side: Io = "input" if io == "input" else "output"
            shape, layout = _shape_or_format(rest[1]) if len(rest) > 1 else (None, "")
            return replace(parsed, io=side, slot=int(rest[0]), shape=shape, format=layout)
    return None


def _shape_or_format(field: str) -> tuple[tuple[int, ...] | None, str]:
    """Returns the shape of ``2x3x4``, or the layout of any other field."""
    if _SHAPE.match(field):
        return tuple(map(int, field.split("x"))), ""
    return None, field


@functools.lru_cache(maxsize=1 << 16)  # each name of a folder is asked for a few times
def parse_tf_name(name: str) -> TfName | None:
    """Returns the fields of ``<op>.<output>[.<number>].<time>.npy``, else None. Dots in the op name are kept."""
    match = _TF_NAME.match(name)
    return TfName(match["op"], int(match["slot"]), int(match["time"])) if match else None


def parse_stored_reference(name: str) -> TfName | None:
    """Returns the fields of ``<op>.<output>.<time>.pb`` or ``.quant``: a reference tensor in the very old dump form."""
    match = _STORED_NAME.match(name)
    return TfName(match["op"], int(match["slot"]), int(match["time"])) if match else None


def is_alias(name: str) -> bool:
    """Tells whether a file name stands for a longer one: digits only, or the converter's 32 hex digits."""
    return _ALIAS.fullmatch(name) is not None and len(name) <= _LONGEST_ALIAS


def read_mapping(folder: Path) -> Mapping[str, str]:
    """Returns ``short file name -> full file name`` of a folder's ``mapping.csv``, empty without one.

    Lines that have not two columns are no entries; a comma in a name counts only outside of quotes.

    Raises:
        DataError: the file cannot be read, or is larger than any mapping.
    """
    path = folder / MAPPING_FILE
    if not os.path.lexists(path):
        return {}
    with open_regular(path) as raw:
        try:
            if os.fstat(raw.fileno()).st_size > _MAX_MAPPING_BYTES:
                raise DataError(f"{path}: larger than any mapping of names ({_MAX_MAPPING_BYTES} bytes)")
            lines = StringIO(raw.read().decode("utf-8", "surrogateescape"), newline="")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return dict(_mapping_rows(csv.reader(lines)))


def _mapping_rows(rows: Iterator[list[str]]) -> Iterator[tuple[str, str]]:
    while True:
        try:
            row = next(rows, None)
        except csv.Error:  # a field that is too long; the next line is read on
            continue
        if row is None:
            return
        if len(row) == 2:
            yield row[0].strip(), row[1].strip()


def full_name(name: str, mapping: Mapping[str, str]) -> str | None:
    """Returns what a file is really called; None for an alias that ``mapping.csv`` does not have.

    A full name may lack the suffix that the short one has, and the other way round.
    """
    if not mapping:
        return None if is_alias(name) else name
    suffix = next((ending for ending in (".npy", ".csv") if name.endswith(ending)), "")
    for key in (name, name.removesuffix(suffix)):
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


def _is_slot(text: str) -> bool:
    return _is_number(text) and len(text) <= _SLOT_DIGITS

"""Reading a whole-network result file, of either generation, as leniently as the fields allow.

Columns are found by name, the two ``DataType`` and ``Address`` by their place after ``NPUDump`` and ``GroundTruth``.
Files of 2021 name the sides ``LeftOp`` and ``RightOp`` and separate op names by blanks; newer ones ``NPUDump`` and
``GroundTruth``, separated by commas. Any of the metric columns may be missing (the comparator writes those asked for);
columns that are not known (metrics of the user's own, ``IsNpuOps`` and the like of newer tools) are kept as text.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from compare.figures import (
    BOTH_EMPTY,
    BOTH_ZERO,
    COLUMNS,
    EQUAL_BY_HASH,
    EQUAL_NOT_FINITE,
    LEFT_ZERO,
    NON_FINITE_MISMATCH,
    OVER_LIMIT,
    RIGHT_ZERO,
    distance_at,
)
from dumpers.errors import DataError
from dumpers.formats.raw import regular_only

_RESULT_NAME = re.compile(r"result_(\d+)\.csv")
_LONGEST_INTEGER: Final = 18
"""Digits; longer ones are damage, and Python refuses those of thousands."""

_NOTHING = frozenset({"NaN", "*", ""})


@dataclass(frozen=True)
class ResultRow:
    """One row of a result file.

    Attributes:
        line: Line number in the file, from 1.
        index: Fusion group; None if the cell is no number.
        op_type: Empty in old files.
        left_names, right_names: Op names; empty for ``*``.
        op, io, slot: Parsed from TensorIndex; ``op`` is empty on a row without data.
        figures: Column name -> number; None for ``NaN``, an empty cell and anything that is no finite number.
        texts: Column name -> the cell as it stands (``NaN`` = not compared, ``nan`` or ``inf`` = computed so).
        shape: The Shape cell, empty if there is none.
        reason: CompareFailReason, empty if there is none.
        sequence: OpSequence, the op's number in the graph; None if there is none.
        overflow: OverFlow: ``YES``, ``NO``, ``NaN`` where it does not apply, empty without the column.
        left_dtype, right_dtype: The DataType cells, empty if there are none.
        extra: Columns that are not known here, as they stand.
    """

    line: int
    index: int | None
    op_type: str
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    op: str
    io: str
    slot: int | None
    figures: Mapping[str, float | None]
    texts: Mapping[str, str]
    shape: str = ""
    reason: str = ""
    sequence: int | None = None
    overflow: str = ""
    left_dtype: str = ""
    right_dtype: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def cosine(self) -> float | None:
        """CosineSimilarity, None where it is not a number."""
        return self.figures.get("CosineSimilarity")

    @property
    def cosine_text(self) -> str:
        """The CosineSimilarity cell."""
        return self.texts.get("CosineSimilarity", "")

    def below(self, threshold: float) -> bool | None:
        """Tells whether the tensor is bad at a cosine threshold, None if the file does not allow to tell.

        Where there is no cosine what the reason says decides (one zero side is bad at any threshold), or the relative
        distance (a scalar); a NaN or infinity of one side only is bad whatever the cosine of the rest, and so is a
        figure over a user's limit.
        """
        if NON_FINITE_MISMATCH in self.reason or OVER_LIMIT in self.reason:
            return True
        if self.cosine is not None:
            return self.cosine < threshold
        if LEFT_ZERO in self.reason or RIGHT_ZERO in self.reason:
            return True
        distance = self.figures.get("RelativeEuclideanDistance")
        if distance is not None:
            return distance > distance_at(threshold)
        equal = any(phrase in self.reason for phrase in (BOTH_ZERO, BOTH_EMPTY, EQUAL_NOT_FINITE, EQUAL_BY_HASH))
        return False if equal else None


@dataclass(frozen=True)
class ResultFile:
    """A result file.

    Attributes:
        rows: In the order of the file, which may be text order of the indices.
        problems: Lines that could not be understood, each as one sentence.
    """

    path: Path
    rows: tuple[ResultRow, ...]
    problems: tuple[str, ...] = ()


def result_files(path: Path) -> tuple[Path, ...]:
    """Returns the result files of a directory (sub-directories included) by their number, or the file itself.

    Raises:
        DataError: there is nothing of the kind.
    """
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise DataError(f"no such file or directory: {path}")
    found = [(int(m[1]), p) for p in path.rglob("result_*.csv") if (m := _RESULT_NAME.match(p.name))]
    if not found:
        raise DataError(f"no result_<time>.csv in {path}: run vc first, or give a file with -f")
    return tuple(p for _, p in sorted(found, key=lambda item: (item[0], str(item[1]))))


def read_csv(path: Path) -> ResultFile:
    """Reads a result file.

    Raises:
        DataError: it cannot be read or is not a result file.
    """
    try:
        with open(path, "rb", opener=regular_only) as file:
            raw = file.read()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in raw[:4096]:
        raise DataError(f"{path} is not a result file: it is binary, or text in UTF-16; save it as CSV in UTF-8")
    text = raw.decode("utf-8-sig", "replace")
    columns: _Columns | None = None
    rows: list[ResultRow] = []
    problems: list[str] = []
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in reader:
            if not any(cells):
                continue
            if columns is None:
                columns = _Columns.of(cells, path)
            elif len(cells) < columns.needed:
                problems.append(f"line {reader.line_num} has {len(cells)} cells, {columns.needed} are needed")
            else:
                rows.append(columns.row(cells, reader.line_num))
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}") from error
    if columns is None:
        raise DataError(f"{path} is empty: a result file starts with a line of column names")
    return ResultFile(path, tuple(rows), tuple(problems))


_SIDES = {"NPUDump": ("GroundTruth", ","), "LeftOp": ("RightOp", " ")}
_PLAIN = frozenset(
    {"Index", "OpSequence", "OpType", "TensorIndex", "Shape", "OverFlow", "CompareFailReason", "DataType", "Address"}
)


@dataclass(frozen=True)
class _Columns:
    """Where the columns of one file are."""

    names: Sequence[str]
    position: Mapping[str, int]
    left: int
    right: int
    separator: str

    @classmethod
    def of(cls, header: Sequence[str], path: Path) -> _Columns:
        names = [cell.strip() for cell in header]
        position = {name: number for number, name in reversed(list(enumerate(names)))}
        if reason := _foreign(position):
            raise DataError(f"{path} is not a whole-network result file: {reason}")
        missing = [name for name in ("Index", "TensorIndex") if name not in position]
        left = next((name for name in _SIDES if name in position), "NPUDump")
        right, separator = _SIDES[left]
        missing += [name for name in (left, right) if name not in position]
        if not missing and not any(name in position for name in COLUMNS) and "CompareFailReason" not in position:
            missing.append("CosineSimilarity")
        if missing:
            shown = ", ".join(ascii(name[:40])[1:-1] for name in names[:4])
            raise DataError(
                f"{path} is not a whole-network result file: no column {', '.join(missing)} "
                f"(its columns are {shown}, ...)"
            )
        return cls(names, position, position[left], position[right], separator)

    @property
    def needed(self) -> int:
        """Cells that a row must have to be of use."""
        return 1 + max(self.left, self.right, self.position["TensorIndex"], self.position.get("CosineSimilarity", 0))

    def row(self, cells: Sequence[str], line: int) -> ResultRow:
        op, io, slot = _tensor_index(self._cell(cells, "TensorIndex"))
        texts = {name: self._cell(cells, name) for name in COLUMNS if name in self.position}
        return ResultRow(
            line=line,
            index=_integer(self._cell(cells, "Index")),
            op_type=self._cell(cells, "OpType"),
            left_names=self._names(cells[self.left]),
            right_names=self._names(cells[self.right]),
            op=op,
            io=io,
            slot=slot,
            figures={name: _number(text) for name, text in texts.items()},
            texts=texts,
            shape=self._cell(cells, "Shape"),
            reason=self._cell(cells, "CompareFailReason"),
            sequence=_integer(self._cell(cells, "OpSequence")),
            overflow=self._cell(cells, "OverFlow"),
            left_dtype=self._after(cells, self.left),
            right_dtype=self._after(cells, self.right),
            extra={name: self._cell(cells, name) for name in self._extra},
        )

    @cached_property
    def _extra(self) -> tuple[str, ...]:
        known = {*COLUMNS, *_PLAIN, self.names[self.left], self.names[self.right], ""}
        return tuple(name for name in self.position if name not in known)

    def _cell(self, cells: Sequence[str], name: str) -> str:
        number = self.position.get(name)
        return _unguarded(cells[number].strip()) if number is not None and number < len(cells) else ""

    def _after(self, cells: Sequence[str], side: int) -> str:
        """The DataType that belongs to a side: the first behind it, before the other side or the tensor."""
        for number in range(side + 1, min(len(self.names), len(cells))):
            if self.names[number] == "DataType":
                return cells[number].strip()
            if self.names[number] != "Address":
                break
        return ""

    def _names(self, cell: str) -> tuple[str, ...]:
        names = (name.strip() for name in _unguarded(cell.strip()).split(self.separator))
        return tuple(name for name in names if name not in _NOTHING)


def _foreign(position: Mapping[str, int]) -> str:
    """Says what a similar file of another purpose is, empty if it is none that is known."""
    if "NPU Name" in position and "Bench Name" in position:
        return "no column Index, TensorIndex; it is a comparison of two PyTorch runs, written by msprobe"
    if "NPUDumpPath" in position and "GroundTruthPath" in position:
        return "it is a pairing table (written with -map), which names the files to compare and holds no figures"
    return ""


def _unguarded(cell: str) -> str:
    """Removes the apostrophe in front of a cell that would otherwise be taken for a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in tuple("=+-@%") else cell


def _tensor_index(cell: str) -> tuple[str, str, int | None]:
    """Splits ``op:output:0`` from the right, since an op name may hold a colon."""
    parts = cell.rsplit(":", 2)
    if cell in _NOTHING or len(parts) != 3:
        return "", "", None
    return parts[0], "input" if parts[1] == "input" else "output", _integer(parts[2])


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_INTEGER else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

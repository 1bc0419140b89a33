"""ComparisonRow and Comparison: what differs, as a table in order of execution, and as the result file users know.

The file has exactly the columns that scripts for such files expect: 20 for a device dump against npy files, 21 for two
device dumps (each side that is not npy has an ``Address``), 19 for npy against npy. Everything that we know beyond them
(how many elements differ, where NaN sit, a factor that explains all, why a figure is undefined) stands as a message in
``CompareFailReason``: that column may hold text of any kind, so neither a position relative to ``NPUDump`` nor the
column count nor "the last column is the reason" changes for anybody.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compare.figures import COLUMNS, EQUAL_BY_HASH, EQUAL_NOT_FINITE, NON_FINITE_MISMATCH, Figures, shape_text
from compare.result_file import ResultFile, ResultRow, read_csv
from dumpers.formats.atomic import atomic_file

if TYPE_CHECKING:
    from compare.pairs import Coverage, Unpaired
    from dumpers.records import Io, Problem, TensorRecord

__all__ = ["Comparison", "ComparisonRow", "ResultFile", "ResultRow", "csv_text", "read_csv", "write_csv"]

MISSING = "NaN"
"""What the file has where there is nothing: not compared, not known."""

NOBODY = "*"
"""Name of a side that has no op for the row."""


@dataclass(slots=True)
class ComparisonRow:
    """One tensor of the left side with its partner, or the reason why there is none. Never changed (not frozen: speed).

    Attributes:
        index: Number of the fusion group in order of first appearance in the graph, or of the op in order of execution.
        op: Name of the left op; of the right one where the left has none.
        op_type: Type of the op, empty if unknown.
        left_names, right_names: Ops of each side; empty if that side has none.
        io, slot: Which tensor of ``op``; None on a row without data.
        left, right: The records compared.
        figures: None when nothing could be computed; ``reason`` then says why.
        shape: Of the compared left array, flat where the file has it flat; None if unknown.
        reason: Why there are no figures.
        note: What was done to the data before (layout, flattening).
        unreadable: A file was damaged; the rest of the comparison is not spoiled by it (R3).
    """

    index: int
    op: str
    op_type: str
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    io: Io | None = None
    slot: int | None = None
    left: TensorRecord | None = None
    right: TensorRecord | None = None
    figures: Figures | None = None
    shape: tuple[int, ...] | None = None
    reason: str = ""
    note: str = ""
    unreadable: bool = False

    @property
    def tensor(self) -> str:
        """``op:output:0``, empty on a row without data."""
        return f"{self.op}:{self.io}:{self.slot}" if self.io else ""

    @property
    def judged(self) -> bool:
        """Whether elements of both sides were held against each other."""
        return self.figures is not None and self.figures.comparable

    def below(self, threshold: float) -> bool:
        """Tells whether the row is suspicious at a cosine threshold (:meth:`Figures.below`)."""
        return self.figures is not None and self.figures.below(threshold)

    def messages(self, metrics: Sequence[str] = COLUMNS) -> list[str]:
        """What ``CompareFailReason`` says: nothing for data that are equal with every figure defined.

        Args:
            metrics: The columns there are; of others it is not said why they are undefined.
        """
        told = [self.reason] if self.reason else []
        if self.figures is not None:
            told += figure_messages(self.figures, metrics)
        return [*told, self.note] if self.note else told


@dataclass(frozen=True)
class Comparison:
    """Two dumps held against each other.

    Attributes:
        left, right: The directories; left is under test.
        rows: In order of execution (of the left side, or of the graph).
        unpaired: Every tensor without a partner and every op without data, with the reason; those of the left side and
            of two-device comparisons have a row too.
        problems: Damaged files met while the dumps were read.
        left_npy, right_npy: Whether that side's data are npy files.
        compared_bytes: Stored bytes of both sides that were held against each other.
        coverage: Bytes of both dumps and of their tensors that are in pairs.
        map_notes: Lines of the user's map of op names that did nothing.
        metrics: Columns that were asked for, in their order.
        left_out: Rows that were not asked for.
    """

    left: Path
    right: Path
    rows: tuple[ComparisonRow, ...]
    unpaired: tuple[Unpaired, ...] = ()
    problems: tuple[Problem, ...] = ()
    left_npy: bool = False
    right_npy: bool = True
    compared_bytes: int = 0
    coverage: Coverage | None = None
    map_notes: tuple[str, ...] = ()
    metrics: tuple[str, ...] = COLUMNS
    left_out: int = 0

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unreadable(self) -> int:
        """Damaged files met, at reading and at comparing."""
        return len(self.problems) + sum(row.unreadable for row in self.rows)

    @property
    def judged(self) -> tuple[ComparisonRow, ...]:
        """Rows whose elements were compared."""
        return tuple(row for row in self.rows if row.judged)

    @property
    def not_judged(self) -> tuple[ComparisonRow, ...]:
        """Rows that could not be compared: neither below a threshold nor equal (R2)."""
        return tuple(row for row in self.rows if not row.judged)

    def below(self, threshold: float) -> tuple[ComparisonRow, ...]:
        """Outputs that are suspicious at a cosine threshold, in order of execution."""
        return tuple(row for row in self.rows if row.io == "output" and row.below(threshold))

    def ranked(self) -> tuple[ComparisonRow, ...]:
        """Rows that differ or could not be compared, the worst first (:attr:`Figures.rank`)."""
        found = [row for row in self.rows if row.figures is not None and not row.figures.equal]
        return tuple(sorted(found, key=lambda row: row.figures.rank if row.figures else (9, 0.0)))


def figure_messages(figures: Figures, metrics: Sequence[str] = COLUMNS) -> list[str]:
    """Says what the ten columns cannot: counts of NaN and of differing elements, a pattern, undefined figures."""
    told: list[str] = []
    if figures.non_finite_mismatches:
        place = figures.mismatch_index
        first = "where is not known" if place is None else f"the first at element {place}"
        least = "at least " if figures.estimated else ""
        told.append(f"{least}{figures.non_finite_mismatches} {NON_FINITE_MISMATCH}(es); {first}")
    if figures.nan_left or figures.nan_right or figures.inf_left or figures.inf_right:
        rest = (
            "; they count as 0 in what is estimated" if figures.estimated else "; figures are over the other elements"
        )
        told.append(
            f"NaN {figures.nan_left} left {figures.nan_right} right; infinite {figures.inf_left} left "
            f"{figures.inf_right} right{'' if figures.estimated and figures.cosine is None else rest}"
        )
    hashed = EQUAL_BY_HASH in figures.reasons.get(COLUMNS[0], "")
    if figures.equal and figures.elements and not figures.finite and not hashed:
        told.append(EQUAL_NOT_FINITE)
    if figures.estimated:
        told.append(figures.estimated)
    if figures.differing:
        told.append(f"{figures.differing} of {figures.elements} elements differ")
    if figures.max_abs_exact is not None:
        told.append(f"greatest difference is {figures.max_abs_exact}")
    if not figures.comparable:
        return [*told, *_undefined(figures, metrics), *filter(None, [figures.explanation])]
    if figures.explanation:
        told.append(figures.explanation)
    return told + _undefined(figures, metrics)


def _undefined(figures: Figures, metrics: Sequence[str]) -> list[str]:
    columns: dict[str, list[str]] = {}
    for column in metrics:
        if column in figures.reasons:
            columns.setdefault(figures.reasons[column], []).append(column)
    columns.pop(figures.estimated, None)  # told before
    whole = [reason for reason in columns if all(figures.reasons.get(column) == reason for column in COLUMNS)]
    return whole or [f"{' '.join(names)} undefined: {reason}" for reason, names in columns.items()]


def csv_text(comparison: Comparison) -> str:
    """Returns the result file's text, CR LF at line ends."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(_header(comparison))
    for row in comparison.rows:
        writer.writerow([_safe(cell) for cell in _cells(row, comparison)])
    return buffer.getvalue()


def write_csv(comparison: Comparison, path: Path) -> None:
    """Writes the result file; a reader sees the whole file or none."""
    with atomic_file(path) as file:
        file.write(csv_text(comparison).encode("utf-8", "backslashreplace"))


def _header(comparison: Comparison) -> list[str]:
    left = ["NPUDump", "DataType"] + ([] if comparison.left_npy else ["Address"])
    right = ["GroundTruth", "DataType"] + ([] if comparison.right_npy else ["Address"])
    return ["Index", "OpType", *left, *right, "TensorIndex", "Shape", *comparison.metrics, "CompareFailReason"]


def _cells(row: ComparisonRow, comparison: Comparison) -> list[str]:
    compared = row.figures is not None
    left = [_names(row.left_names), _dtype(row.left, compared)] + ([] if comparison.left_npy else [MISSING])
    right = [_names(row.right_names), _dtype(row.right, compared)] + ([] if comparison.right_npy else [MISSING])
    shape = MISSING if row.shape is None else shape_text(row.shape)
    figures = [format_figure(row.figures.column(name)) if row.figures else MISSING for name in comparison.metrics]
    tail = [row.tensor or MISSING, shape, *figures, ",".join(row.messages(comparison.metrics))]
    return [str(row.index), row.op_type or MISSING, *left, *right, *tail]


def _names(names: Sequence[str]) -> str:
    return ",".join(names) if names else NOBODY


def _dtype(record: TensorRecord | None, compared: bool) -> str:
    return record.dtype if record is not None and compared else MISSING


def format_figure(value: float | str | None) -> str:
    """Returns a figure with six decimals, ``NaN`` for none; beyond 1e15 with an exponent, digits would be noise."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    return f"{value:.6f}" if abs(value) < 1e15 else f"{value:.6e}"


def _safe(cell: str) -> str:
    """Makes a cell that a spreadsheet takes for text.

    A cell that begins with ``= + - @ %`` and is no number gets an apostrophe in front; control characters (a name may
    hold any) become visible escapes, so that a row stays one line.
    """
    plain = "".join(ch if ch.isprintable() or ch == " " else ch.encode("unicode_escape").decode() for ch in cell)
    return f"'{plain}" if plain[:1] in tuple("=+-@%") and not _is_number(plain) else plain


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False

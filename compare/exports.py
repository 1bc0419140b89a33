"""A comparison as JSON and as Parquet: every row, every figure in full precision, and why one is missing.

The result CSV has six decimals and the columns that existing scripts read; these are for programs. Both are written row
by row, whole or not at all, and hold nothing that changes from one run to the next.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from compare.figures import COLUMNS, FIELDS, Figures
from compare.outcomes import encoded, field_types
from compare.table import Comparison, ComparisonRow, csv_text
from compare.tolerance import required_tolerance
from dumpers.errors import UsageError
from dumpers.formats.atomic import atomic_file

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES: Final = (".csv", ".parquet", ".json")
"""Kinds of files a comparison can be written as."""

_SPREAD: Final = ("left_mean", "left_deviation", "right_mean", "right_deviation")
"""What the StandardDeviation column is made of."""

_ROWS_AT_A_TIME: Final = 10_000
_SIMPLE: Final[Mapping[object, str]] = {
    int: "int64",
    int | None: "int64",
    float: "float64",
    float | None: "float64",
    str: "string",
    bool: "bool_",
}


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Writes a comparison as the kind of file that the suffix names.

    Raises:
        UsageError: the suffix names none, or PyArrow is missing.
        OSError: it cannot be written; nothing is left behind then.
    """
    check_suffix(path)
    with atomic_file(path) as file:
        if path.suffix == ".csv":
            file.write(csv_text(comparison).encode("utf-8", "backslashreplace"))
        elif path.suffix == ".json":
            _write_json(comparison, file)
        else:
            _write_parquet(comparison, file)


def check_suffix(path: Path) -> None:
    """Checks that a comparison can be written to such a file.

    Raises:
        UsageError: it cannot.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--out {path}: the name has to end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401  is it there, and does it go with this NumPy
        except ImportError as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"--out {path}: Parquet needs PyArrow ({reason}); write .csv or .json instead") from error


# ------------------------------------------------------------------------------------------------------------ rows


def row_data(row: ComparisonRow, metrics: Sequence[str]) -> dict[str, object]:
    """Returns a row as plain data: names, then the fields of its figures, the tolerances and what is to be said.

    Args:
        row: Any row.
        metrics: Columns that were asked for; fields of other columns are left out.
    """
    return {**_names(row), **_figures(row.figures, metrics), **_remarks(row, metrics)}


def _names(row: ComparisonRow) -> dict[str, object]:
    return {
        "index": row.index,
        "op": row.op,
        "op_type": row.op_type,
        "left_names": list(row.left_names),
        "right_names": list(row.right_names),
        "io": row.io,
        "slot": row.slot,
        "tensor": row.tensor,
        "shape": None if row.shape is None else list(row.shape),
    }


def _figures(figures: Figures | None, metrics: Sequence[str]) -> dict[str, object]:
    return {name: None if figures is None else encoded(getattr(figures, name)) for name in _fields(metrics)}


def _remarks(row: ComparisonRow, metrics: Sequence[str]) -> dict[str, object]:
    tolerance = required_tolerance(row.figures) if row.figures else None
    return {
        "required_atol": tolerance.atol if tolerance else None,
        "required_rtol": tolerance.rtol if tolerance else None,
        "required_reason": (tolerance.text or tolerance.atol_reason) if tolerance else "",
        "reason": row.reason,
        "note": row.note,
        "messages": row.messages(metrics),
        "unreadable": row.unreadable,
    }


def _fields(metrics: Sequence[str]) -> list[str]:
    """Names of the fields of Figures that are written."""
    left_out = {FIELDS[column] for column in COLUMNS if column not in metrics}
    if "standard_deviation" in left_out:
        left_out |= set(_SPREAD)
    names = [field.name for field in dataclasses.fields(Figures)]
    return [name for name in names if name not in left_out and name != "flattened"]


# ------------------------------------------------------------------------------------------------------------ JSON


def _write_json(comparison: Comparison, file: BinaryIO) -> None:
    heading = {
        "left": str(comparison.left),
        "right": str(comparison.right),
        "metrics": list(comparison.metrics),
        "compared_bytes": comparison.compared_bytes,
        "left_out": comparison.left_out,
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in comparison.problems],
        "unpaired": [{"side": item.side, "tensor": item.tensor, "reason": item.reason} for item in comparison.unpaired],
    }
    file.write(json.dumps(_finite(heading))[:-1].encode() + b', "rows": [')
    for number, row in enumerate(comparison.rows):
        text = json.dumps(_finite(row_data(row, comparison.metrics)), allow_nan=False)
        file.write((",\n" if number else "\n").encode() + text.encode())
    file.write(b"\n]}\n")


def _finite(value: object) -> object:
    """Returns the value with NaN and infinities as text, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


# --------------------------------------------------------------------------------------------------------- Parquet


def _write_parquet(comparison: Comparison, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(comparison.metrics)
    with pq.ParquetWriter(file, schema) as writer:
        for rows in _chunks(comparison.rows):
            data = [_typed(row_data(row, comparison.metrics), schema) for row in rows]
            writer.write_table(pa.Table.from_pylist(data, schema=schema))


def _chunks(rows: Sequence[ComparisonRow]) -> Iterator[Sequence[ComparisonRow]]:
    for start in range(0, max(len(rows), 1), _ROWS_AT_A_TIME):
        yield rows[start : start + _ROWS_AT_A_TIME]


def _schema(metrics: Sequence[str]) -> pa.Schema:
    """Columns and their types: counts int64, figures float64, shapes lists of int64; whatever is neither is text.

    ``max_abs_exact`` is text, since the difference of 64-bit integers takes 65 bits.
    """
    import pyarrow as pa

    hints = field_types(Figures)
    texts, sizes = pa.list_(pa.string()), pa.list_(pa.int64())
    columns: list[tuple[str, Any]] = [("index", pa.int64()), ("op", pa.string()), ("op_type", pa.string())]
    columns += [("left_names", texts), ("right_names", texts), ("io", pa.string()), ("slot", pa.int64())]
    columns += [("tensor", pa.string()), ("shape", sizes)]
    for name in _fields(metrics):
        if name in ("left_shape", "right_shape"):
            columns.append((name, sizes))
        elif name in ("max_abs_exact", "standard_deviation") or hints[name] not in _SIMPLE:
            columns.append((name, pa.string()))
        else:
            columns.append((name, getattr(pa, _SIMPLE[hints[name]])()))
    columns += [("required_atol", pa.float64()), ("required_rtol", pa.float64()), ("required_reason", pa.string())]
    columns += [("reason", pa.string()), ("note", pa.string()), ("messages", texts), ("unreadable", pa.bool_())]
    return pa.schema(columns)


def _typed(data: Mapping[str, object], schema: pa.Schema) -> dict[str, object]:
    import pyarrow as pa

    return {
        field.name: _as_text(data[field.name]) if field.type == pa.string() else data[field.name] for field in schema
    }


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

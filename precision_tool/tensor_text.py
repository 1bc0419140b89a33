"""A tensor in words: the statistics line, the first values as a table, the whole tensor as a text file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from dumpers.dtypes import WITHOUT_VALUE
from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.names import MAX_FILE_NAME_BYTES
from precision_tool.dot import safe_file_name
from precision_tool.result import Cell, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import RecordedStatistics, TensorRecord

VALUES_PER_ROW = 8
MAX_ROWS = 16


def statistics_data(array: NDArray[np.generic]) -> dict[str, Any]:
    """Returns shape, dtype and figures of an array; figures are over its finite elements, None where there is none."""
    from compare.statistics import statistics

    found = statistics(array)
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "count": found.count,
        "nan": found.nan,
        "inf": found.inf,
        "max": found.maximum,
        "min": found.minimum,
        "mean": found.mean,
    }


def statistics_line(array: NDArray[np.generic]) -> str:
    """Returns ``[Shape: ..] [Dtype: ..] [Max: ..] [Min: ..] [Mean: ..]``; NaN and infinities are counted behind it."""
    data = statistics_data(array)
    parts = [f"[Shape: {tuple(data['shape'])}]", f"[Dtype: {data['dtype']}]"]
    parts += [f"[{name}: {_figure(data[name.lower()])}]" for name in ("Max", "Min", "Mean")]
    parts += [f"[{name}: {data[name.lower()]}]" for name in ("NaN", "Inf") if data[name.lower()]]
    return " ".join(parts)


def record_line(record: TensorRecord) -> str:
    """Returns the statistics line of a dumped tensor, or why it has none.

    A tensor that only has the figures which its file states (a statistics dump) gets the line from them.
    """
    if record.source is None and record.statistics is not None:
        return _recorded_line(record, record.statistics)
    if record.source is None or record.dtype in WITHOUT_VALUE - {"string"}:
        return f"[Shape: {record.shape}] [Dtype: {record.dtype}] no value: {record.note or record.dtype}"
    try:
        array, note = load_plain(record)
    except DataError as error:
        return f"unreadable: {error}"
    line = statistics_line(array)
    return line if not note else f"{line} [{note}]"


def record_data(record: TensorRecord) -> dict[str, Any]:
    """Returns what :func:`record_line` says, as data."""
    data: dict[str, Any] = {
        "tensor": record.name,
        "file": str(record.path) if record.path else None,
        "timestamp_us": record.timestamp_us,
    }
    if record.source is None:
        known = {"dtype": record.dtype, "shape": record.shape, "reason": record.note or "no value"}
        return data | known | (_recorded_data(record.statistics) if record.statistics is not None else {})
    try:
        array, note = load_plain(record)
        return data | statistics_data(array) | ({"layout": note} if note else {})
    except DataError as error:
        return data | {"dtype": record.dtype, "shape": record.shape, "reason": str(error)}


def _recorded_data(found: RecordedStatistics) -> dict[str, Any]:
    """Returns figures that a file states under the names of :func:`statistics_data`; None for what it leaves out."""
    inf = None if found.pos_inf is None or found.neg_inf is None else found.pos_inf + found.neg_inf
    figures = {"max": found.max, "min": found.min, "mean": found.mean, "l2": found.l2}
    return {"count": found.count, "nan": found.nan, "inf": inf} | figures


def _recorded_line(record: TensorRecord, found: RecordedStatistics) -> str:
    data = _recorded_data(found)
    parts = [f"[Shape: {record.shape}]", f"[Dtype: {record.dtype}]"]
    parts += [f"[{name}: {_figure(data[name.lower()])}]" for name in ("Max", "Min", "Mean")]
    parts += [f"[{name}: {data[name.lower()]}]" for name in ("L2", "NaN", "Inf") if data[name.lower()]]
    return " ".join([*parts, f"[{record.note}]"] if record.note else parts)


def load_plain(record: TensorRecord) -> tuple[NDArray[np.generic], str]:
    """Loads a tensor as the framework knows it, without the device's layout and its padding.

    Returns:
        The array, and what was done to it or could not be done; empty for a plain tensor.

    Raises:
        DataError: no value, or a damaged file.
    """
    from dumpers.formats.layouts import is_private, load_original

    if not is_private(record.format):
        return record.load(), ""
    stored = f"stored as {record.format} {record.shape}"
    if record.original_shape is None:
        return record.load(), f"{stored}, padding included: the original shape is not known"
    try:
        return load_original(record), stored
    except DataError as error:
        array = record.load()
        return array, f"{stored}, padding included: {error}"


def values_table(title: str, array: NDArray[np.generic]) -> Table:
    """Returns the first values of an array, eight a row, sixteen rows at most, each row with its first index."""
    flat = np.ravel(array)[: VALUES_PER_ROW * MAX_ROWS]
    rows = [
        (start, " ".join(value_text(value) for value in flat[start : start + VALUES_PER_ROW]))
        for start in range(0, flat.size, VALUES_PER_ROW)
    ]
    return Table(title, ("Index", "Data"), tuple(rows))


def value_text(value: object) -> str:
    """Returns one element as text: integers in full, floats with six digits."""
    if isinstance(value, (np.bool_, bool)):
        return str(bool(value))
    if isinstance(value, (np.integer, int)):
        return str(int(value))
    if isinstance(value, (bytes, str)):
        return repr(value)
    if isinstance(value, (np.complexfloating, complex)):
        return f"{complex(value):.6g}"
    return f"{float(value):.6g}" if isinstance(value, SupportsFloat) else repr(value)


def element(value: object) -> Cell:
    """Returns one element as a table cell or JSON value."""
    if isinstance(value, (np.bool_, bool)):
        return bool(value)
    if isinstance(value, (np.integer, int)):
        return int(value)
    if isinstance(value, (np.complexfloating, complex, bytes, str)):
        return value_text(value)
    return float(value) if isinstance(value, SupportsFloat) else repr(value)


def text_file(folder: Path, source: Path, suffix: str = "") -> Path:
    """Returns where the text of a tensor goes: below our own folder, never beside foreign data.

    Args:
        folder: ``temp/decode``.
        source: The file with the tensor; files of the same name in different folders get different texts.
        suffix: Which tensor of the file.
    """
    place = hashlib.sha1(os.fsencode(source.resolve().parent)).hexdigest()[:8]
    name = safe_file_name(source.name.removesuffix(".npy") + suffix, room=MAX_FILE_NAME_BYTES - 16)
    return folder / "text" / place / f"{name}.txt"


def write_text(array: NDArray[np.generic], target: Path, source: Path) -> bool:
    """Writes the whole tensor as text, one row per last axis, blank separated; a scalar one value a line.

    Nothing is done when the text is newer than the source.

    Returns:
        Whether the text was written now.
    """
    if target.is_file() and target.stat().st_mtime_ns > source.stat().st_mtime_ns:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    width = array.shape[-1] if array.ndim else 1
    flat = np.ravel(array)
    with atomic_file(target) as out:
        for start in range(0, flat.size, max(width, 1)):
            row = " ".join(_plain_number(value) for value in flat[start : start + width])
            out.write(row.encode("ascii", "backslashreplace") + b"\n")
    return True


def _plain_number(value: object) -> str:
    """As ``%g``, but integers in full: an id of 19 digits must survive."""
    if isinstance(value, (np.bool_, bool)):
        return str(int(value))
    return value_text(value)


def _figure(value: float | None) -> str:
    return "-" if value is None else value_text(value)

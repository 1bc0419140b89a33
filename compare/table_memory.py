"""What admission and eviction remember of a table's keys, held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compare.table_rows import ColumnDiff
from dumpers.errors import DataError
from dumpers.formats.raw import open_regular
from dumpers.formats.sparse_tree import HISTORY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.sparse_tree import SparseTable


def compare_memory(left: SparseTable, right: SparseTable) -> Iterator[ColumnDiff]:
    """Yields one row for each folder of either side: bytes against bytes, records of keys in any order."""
    for name in sorted(left.other.keys() | right.other.keys()):
        if name not in left.other or name not in right.other:
            yield ColumnDiff(name, "missing on the right" if name in left.other else "missing on the left")
            continue
        try:
            reason = _difference(name, left.other[name], right.other[name])
        except DataError as error:
            yield ColumnDiff(name, "unreadable", reason=str(error))
        else:
            yield ColumnDiff(name, "values differ" if reason else "equal", reason=reason)


def _difference(name: str, left: Sequence[Path], right: Sequence[Path]) -> str:
    one, two = _bytes(left), _bytes(right)
    if np.array_equal(one, two):
        return ""
    if name != HISTORY:
        return f"{one.size} against {two.size} bytes, not the same"
    (ours, our_records), (theirs, their_records) = _history(one, left[0]), _history(two, right[0])
    told = [f"table time {ours} against {theirs}"] if ours != theirs else []
    alone = [
        len(np.setdiff1d(first, second))
        for first, second in ((our_records, their_records), (their_records, our_records))
    ]
    if any(alone):
        told.append(f"{alone[0]} of {our_records.size} records are only on the left, {alone[1]} only on the right")
    return "; ".join(told)


def _history(raw: NDArray[np.uint8], path: Path) -> tuple[int, NDArray[np.void]]:
    """Returns the table's time, and key, count and time of the last visit as one element each."""
    if raw.size < 8 or (raw.size - 8) % 24:
        raise DataError(f"{path}: {raw.size} bytes are no time and whole records; cut off, save the model again")
    records = raw[8:].copy().view([("key", "<i8"), ("count", "<i8"), ("time", "<i8")])
    return int(raw[:8].view("<i8")[0]), records


def _bytes(paths: Sequence[Path]) -> NDArray[np.uint8]:
    parts = [np.empty(0, np.uint8)]
    for path in paths:
        with open_regular(path) as file:
            try:
                parts.append(np.fromfile(file, np.uint8))
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return np.concatenate(parts)

"""``ckpt --csv``: every variable, and every column of every embedding table, as one row each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from precision_tool.commands.checkpoint_report import spec
from precision_tool.commands.table_report import key_text

if TYPE_CHECKING:
    from pathlib import Path

    from compare.checkpoints import CheckpointDiff
    from compare.figures import Figures
    from compare.sparse_tables import TreeDiff
    from dumpers.formats.sparse_tree import SparseTable

COLUMNS = (
    *("Variable", "Verdict", "Slot", "SlotOf", "Left", "Right", "CosineSimilarity", "MaxAbsoluteError"),
    *("RelativeEuclideanDistance", "Elements", "Differing", "TimesTypical", "Keys", "Reason"),
)
"""``Variable`` is ``table/column`` for embedding tables, and ``Keys`` the number of shared keys of such a row."""

_FORMULA = ("=", "+", "-", "@", "%", "\t", "\r")


def write_rows(path: Path, diff: CheckpointDiff | None, trees: TreeDiff | None) -> None:
    """Writes the file whole or not at all.

    Raises:
        OSError: the folder is not writable, or the disk is full.
    """
    from dumpers.formats.atomic import atomic_file

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    rows = [*(_variables(diff) if diff else ()), *(_tables(trees) if trees else ())]
    writer.writerows([_shown(cell) for cell in row] for row in rows)
    with atomic_file(path) as file:
        file.write(buffer.getvalue().encode("utf-8", "backslashreplace"))


def _variables(diff: CheckpointDiff) -> Iterator[tuple[object, ...]]:
    times = {row.name: found for row, found in diff.suspects}
    for row in diff.rows:
        reason = "; ".join(filter(None, (row.reason, row.note)))
        sides = (spec(row.left), spec(row.right))
        names = (row.name, row.verdict, row.slot, row.slot_of, *sides)
        yield (*names, *_numbers(row.figures), times.get(row.name), None, reason)


def _tables(trees: TreeDiff) -> Iterator[tuple[object, ...]]:
    for table in trees.tables:
        if not table.columns:
            numbers = _numbers(None)
            yield (table.name, table.verdict, "", "", None, None, *numbers, None, table.shared, key_text(table))
        for column in table.columns:
            is_slot = column.name != "embedding"
            slot = (column.name, f"{table.name}/embedding") if is_slot else ("", "")
            sides = tuple(_table_spec(side, column.name) for side in (table.left, table.right))
            reason = "; ".join(filter(None, (column.reason, "" if is_slot else key_text(table))))
            names = (f"{table.name}/{column.name}", column.verdict, *slot, *sides)
            yield (*names, *_numbers(column.figures), None, table.shared, reason)


def _table_spec(table: SparseTable | None, name: str) -> str | None:
    found = [column for column in table.columns if column.name == name] if table else []
    return f"{found[0].dtype}[{found[0].rows}, {found[0].width}]" if found else None


def _numbers(figures: Figures | None) -> tuple[object, ...]:
    if figures is None:
        return (None,) * 5
    elements = (figures.elements, figures.differing)
    return (figures.cosine, figures.max_abs_error, figures.relative_distance, *elements)


def _shown(cell: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return repr(cell)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell

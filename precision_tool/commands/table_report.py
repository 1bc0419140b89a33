"""What ``ckpt`` says of embedding tables: tables, and plain data for ``--json``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from precision_tool.commands.checkpoint_report import more
from precision_tool.result import Block, Cell, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compare.sparse_tables import TableDiff, TreeDiff
    from compare.table_rows import ColumnDiff
    from dumpers.formats.sparse_tree import SparseTable

TABLE_COLUMNS = (
    *("Table", "Column", "Verdict", "KeysLeft", "KeysRight", "Shared", "MissingLeft", "MissingRight", "RowsDiffering"),
    *("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance", "Reason"),
)
KEY_COLUMNS = ("Table", "Column", "Key", "Distance", "MaxAbsoluteError", "Differing", "NonFinite")

_NAMED = 10
"""Keys of one side that a line of text names."""


def heading(diff: TreeDiff) -> str:
    """How many tables got which verdict."""
    counts = Counter(table.verdict for table in diff.tables)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    return f"{counted} (of {len(diff.tables)} embedding tables)"


def tables(diff: TreeDiff, threshold: float, limit: int) -> list[Block]:
    """Returns what to show: a row for each column of each table, slots below their table's rows, and the worst keys."""
    if limit == 0:
        return []
    rows = [(table, column) for table in diff.tables for column in (table.columns or (None,))]
    marks = {at: mark for at, (table, column) in enumerate(rows) if (mark := _mark(table, column, threshold))}
    cells = tuple(_cells(table, column) for table, column in rows)
    blocks: list[Block] = [Table("Embedding tables, the worst first", TABLE_COLUMNS, cells, marks)]
    for table in diff.tables:
        worst = list(_worst(table))
        if worst:
            title = f"Worst keys of {table.name}{more(limit, len(worst))}"
            blocks.append(Table(title, KEY_COLUMNS, tuple(worst[:limit])))
    return blocks


def _mark(table: TableDiff, column: ColumnDiff | None, threshold: float) -> str:
    verdict = column.verdict if column else table.verdict
    if verdict == "unreadable":
        return "bad"
    figures = column.figures if column else None
    if figures is not None:
        return "bad" if figures.below(threshold) else "warn" if table.only_left or table.only_right else ""
    return "" if verdict == "equal" else "warn"


def _cells(table: TableDiff, column: ColumnDiff | None) -> tuple[Cell, ...]:
    figures = column.figures if column else None
    keys = (_keys(table.left), _keys(table.right), table.shared, table.only_right, table.only_left)
    numbers: tuple[Cell, ...] = (None, None, None, None)
    if figures is not None and column is not None:
        numbers = (column.rows, figures.cosine, figures.max_abs_error, figures.relative_distance)
    first = column is None or column is table.columns[0]
    reason = "; ".join(filter(None, (column.reason if column else "", key_text(table) if first else "")))
    return (
        table.name,
        column.name if column else None,
        column.verdict if column else table.verdict,
        *keys,
        *numbers,
        reason,
    )


def _keys(table: SparseTable | None) -> int | None:
    return table.rows if table is not None and table.key is not None else None


def key_text(table: TableDiff) -> str:
    """Counts of the keys that differ, and the smallest of them."""
    told = [table.reason] if table.reason else []
    for side, examples in (("left", table.left_examples), ("right", table.right_examples)):
        if examples:
            names = ", ".join(map(str, examples[:_NAMED]))
            told.append(f"only on the {side}: {names}{', ...' if len(examples) > _NAMED else ''}")
    return "; ".join(told)


def _worst(table: TableDiff) -> Iterator[tuple[Cell, ...]]:
    for column in table.columns:
        for key in column.worst:
            yield (table.name, column.name, key.key, key.distance, key.largest, key.differing, key.mismatches)


def problem_lines(diff: TreeDiff) -> list[str]:
    """Damage, each once."""
    lines = [f"{problem.path}: {problem.reason.removeprefix(f'{problem.path}: ')}" for problem in diff.problems]
    told = [table.reason for table in diff.tables if table.verdict == "unreadable" and not table.columns]
    return list(dict.fromkeys([*lines, *(line for line in told if not any(line in known for known in lines))]))


def data(diff: TreeDiff) -> dict[str, Any]:
    """The tables for ``--json``."""
    return {
        "tables": [_table_data(table) for table in diff.tables],
        "table_problems": [{"path": str(problem.path), "reason": problem.reason} for problem in diff.problems],
    }


def _table_data(table: TableDiff) -> dict[str, Any]:
    return {
        "name": table.name,
        "verdict": table.verdict,
        "keys": [_keys(table.left), _keys(table.right)],
        "shared": table.shared,
        "missing_on_the_left": {"count": table.only_right, "smallest": list(table.right_examples)},
        "missing_on_the_right": {"count": table.only_left, "smallest": list(table.left_examples)},
        "repeated": [table.left_repeats, table.right_repeats],
        "columns": [_column_data(column) for column in table.columns],
        "reason": table.reason,
    }


def _column_data(column: ColumnDiff) -> dict[str, Any]:
    figures = column.figures
    return {
        "name": column.name,
        "verdict": column.verdict,
        "rows_differing": column.rows if figures else None,
        "differing": figures.differing if figures else None,
        "elements": figures.elements if figures else None,
        "cosine": figures.cosine if figures else None,
        "max_abs_error": figures.max_abs_error if figures else None,
        "relative_distance": figures.relative_distance if figures else None,
        "non_finite_mismatches": figures.non_finite_mismatches if figures else None,
        "worst": [
            {
                "key": key.key,
                "distance": key.distance,
                "max_abs_error": key.largest,
                "differing": key.differing,
                "non_finite_mismatches": key.mismatches,
            }
            for key in column.worst
        ],
        "reason": column.reason,
    }

"""Every row of a result file as a table (``vcs --all``), with the columns that ``vc`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from precision_tool.result import Cell, Table

if TYPE_CHECKING:
    from compare.result_file import ResultFile, ResultRow

FIGURES = ("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance")
COLUMNS = ("Index", "OpType", "Op", "GroundTruth", "Tensor", "Shape", *FIGURES, "Reason")


def rows_table(file: ResultFile, threshold: float) -> Table:
    """Returns all rows of a result file in its order; rows below the threshold and rows nobody can judge are marked.

    Args:
        file: A result file.
        threshold: Cosine below which a row is bad.
    """
    marks = {index: mark for index, row in enumerate(file.rows) if (mark := _mark(row, threshold))}
    return Table("All tensors", COLUMNS, tuple(map(_cells, file.rows)), marks, paged=True)


def _mark(row: ResultRow, threshold: float) -> str:
    below = row.below(threshold)
    return "warn" if below is None else "bad" if below else ""


def _cells(row: ResultRow) -> tuple[Cell, ...]:
    tensor = None if row.slot is None else f"{row.io}:{row.slot}"
    names = (row.op_type, ",".join(row.left_names) or "*", ",".join(row.right_names) or "*", tensor, row.shape or None)
    return (row.index, *names, *(row.figures.get(name) for name in FIGURES), row.reason)

"""Rows of shared keys -> figures of a column, and of the keys that are worst."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from compare.figures import BOTH_EMPTY, BOTH_ZERO, COLUMNS, Figures
from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.sparse_tree import OpenColumn

WORST: Final = 20
"""Keys of a column that are named."""


TableVerdict = Literal[
    "equal",
    "values differ",
    "keys differ",
    "columns differ",
    "missing on the left",
    "missing on the right",
    "unreadable",
]


@dataclass(frozen=True)
class KeyFigures:
    """One key whose rows differ.

    Attributes:
        key: The key.
        distance: L2 distance of its rows as a share of the longer row, over the elements finite on both sides.
        largest: Greatest absolute difference.
        differing: Elements that differ.
        mismatches: Elements that are not finite on one side at least and differ.
    """

    key: int
    distance: float
    largest: float
    differing: int
    mismatches: int

    @property
    def rank(self) -> tuple[float, ...]:
        """Key that sorts the worst first."""
        return (-float(self.mismatches > 0), -self.distance, self.key)


@dataclass(frozen=True)
class ColumnDiff:
    """Rows or one slot of a table.

    Attributes:
        name: Of the column.
        verdict: As for a table.
        figures: Over the shared rows.
        rows: Shared rows that differ.
        worst: Keys of the worst of them.
        reason: What the verdict does not say.
    """

    name: str
    verdict: TableVerdict
    figures: Figures | None = None
    rows: int = 0
    worst: tuple[KeyFigures, ...] = ()
    reason: str = ""


@dataclass
class RowFigures:
    """Figures of a column while its blocks are compared.

    Attributes:
        width: Values a row.
        rows, differing_rows: Shared rows, and those that differ.
        sums: Squares of the left and the right side and of the difference, and the product.
        largest: Greatest absolute difference.
        counts: As :mod:`compare.onepass.rows` has them.
        worst: The worst keys.
    """

    width: int
    rows: int = 0
    differing_rows: int = 0
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(4))
    largest: float = 0.0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(7, np.int64))
    worst: list[KeyFigures] = field(default_factory=list)

    def add(self, other: RowFigures) -> None:
        """Adds a block; blocks come in one order, so that the sums do not depend on threads."""
        self.rows += other.rows
        self.differing_rows += other.differing_rows
        self.sums += other.sums
        self.largest = max(self.largest, other.largest)
        self.counts += other.counts
        self.worst = sorted([*self.worst, *other.worst], key=lambda key: key.rank)[:WORST]

    def figures(self) -> Figures:
        """Returns the figures of all rows as one array [rows, width]."""
        shape, size = (self.rows, self.width), self.rows * self.width
        left, right, distance, dot = map(float, self.sums)
        differing, mismatches, left_nan, right_nan, left_inf, right_inf, finite = map(int, self.counts)
        why = BOTH_EMPTY if not size else "" if finite else "no element is finite on both sides"
        zero = (
            BOTH_ZERO if left == right == 0 else "left is zero" if left == 0 else "right is zero" if right == 0 else ""
        )
        cosine_reason = why or ("scalar" if size == 1 else zero)
        distance_reason = why or ("" if right else zero)
        reasons = dict.fromkeys(COLUMNS, why or "not taken of tables")
        reasons |= {"CosineSimilarity": cosine_reason, "MaxAbsoluteError": why}
        reasons["RelativeEuclideanDistance"] = distance_reason
        return Figures(
            shape,
            shape,
            "float32",
            "float32",
            size,
            differing=differing,
            finite=finite,
            nan_left=left_nan,
            nan_right=right_nan,
            inf_left=left_inf,
            inf_right=right_inf,
            non_finite_mismatches=mismatches,
            cosine=None if cosine_reason else max(-1.0, min(1.0, dot / math.sqrt(left * right))),
            max_abs_error=None if why else self.largest,
            relative_distance=None if distance_reason else math.sqrt(distance / right),
            reasons={column: text for column, text in reasons.items() if text},
        )


def compare_rows(
    left: OpenColumn,
    right: OpenColumn,
    keys: NDArray[np.int64],
    left_rows: NDArray[np.int64],
    right_rows: NDArray[np.int64],
) -> RowFigures:
    """Reads and compares the rows of some shared keys.

    Args:
        left: Open column.
        right: Likewise, of the same width.
        keys: int64 [n].
        left_rows: int64 [n].
        right_rows: int64 [n].

    Raises:
        DataError: a file became shorter, or cannot be read.
    """
    from compare.onepass import rows as kernels

    width = left.column.width
    one, two = _gathered(left, left_rows), _gathered(right, right_rows)
    sums, counts = np.empty((keys.size, 5)), np.empty((keys.size, 7), np.int64)
    kernels.row_figures(one, two, width, sums, counts)
    differing = np.flatnonzero(counts[:, kernels.DIFFERING])
    return RowFigures(
        width,
        keys.size,
        differing.size,
        sums[:, : kernels.LARGEST].sum(axis=0),
        float(sums[:, kernels.LARGEST].max(initial=0.0)),
        counts.sum(axis=0),
        _worst(keys[differing], sums[differing], counts[differing]),
    )


def _gathered(side: OpenColumn, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    from compare.onepass.rows import gather

    column = side.column
    raw = np.empty(rows.size * column.row_bytes, np.uint8)
    read = gather(side.descriptors, side.starts, rows, column.row_bytes, raw) if raw.size else rows.size
    if read != rows.size:
        number = int(np.searchsorted(side.starts, rows[read], side="right")) - 1
        raise DataError(f"{column.slices[number].path}: row {rows[read]} cannot be read; it changed while compared")
    return raw.view("<f4").astype(np.float32, copy=False)


def _worst(keys: NDArray[np.int64], sums: NDArray[np.float64], counts: NDArray[np.int64]) -> list[KeyFigures]:
    from compare.onepass import rows as kernels

    longer = np.maximum(sums[:, kernels.LEFT], sums[:, kernels.RIGHT])
    share = np.sqrt(np.divide(sums[:, kernels.DISTANCE], longer, out=np.zeros(keys.size), where=longer > 0))
    order = np.lexsort((keys, -share, -(counts[:, kernels.MISMATCHES] > 0).astype(np.int64)))[:WORST]
    return [
        KeyFigures(
            int(keys[at]),
            float(share[at]),
            float(sums[at, kernels.LARGEST]),
            int(counts[at, kernels.DIFFERING]),
            int(counts[at, kernels.MISMATCHES]),
        )
        for at in order
    ]

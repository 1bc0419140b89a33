"""Embedding tables of two models -> what differs, key by key: in any order of rows, however many ranks wrote them.

Rows meet by their keys. Keys of one side only are counted and the smallest are named; rows of shared keys are compared
in blocks, and the figures of a column are those of the concatenation of all its shared rows. The worst keys of a column
are named: rows with a NaN or an infinity on one side first, then by the distance of the rows as a share of the longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from compare.key_join import MEMORY, JoinedKeys, join_keys
from compare.table_memory import compare_memory
from compare.table_rows import WORST, ColumnDiff, RowFigures, TableVerdict, compare_rows
from dumpers.errors import DataError
from dumpers.formats.sparse_tree import EMBEDDING, KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from dumpers.formats.sparse_tree import OpenColumn, SparseColumn, SparseTable, SparseTree
    from dumpers.records import Problem

    Progress = Callable[[int, int], None]

_BLOCK_BYTES: Final = 1 << 19
"""Of one side's rows that are compared at once."""


@dataclass(frozen=True)
class TableDiff:
    """One table.

    Attributes:
        name: Of the table.
        left, right: What is there; None on the side that does not have it.
        verdict: The answer in words.
        shared: Keys of both sides.
        only_left, only_right: Number of keys of one side.
        left_examples, right_examples: The smallest of them.
        left_repeats, right_repeats: Rows whose key comes again in a later row of the same side.
        columns: Rows, then slots.
        reason: What the verdict does not say.
    """

    name: str
    left: SparseTable | None
    right: SparseTable | None
    verdict: TableVerdict
    shared: int = 0
    only_left: int = 0
    only_right: int = 0
    left_examples: tuple[int, ...] = ()
    right_examples: tuple[int, ...] = ()
    left_repeats: int = 0
    right_repeats: int = 0
    columns: tuple[ColumnDiff, ...] = ()
    reason: str = ""

    @property
    def rank(self) -> tuple[float, ...]:
        """Key that sorts the worst first."""
        order = ("unreadable", "missing on the right", "missing on the left", "columns differ", "values differ")
        group = order.index(self.verdict) if self.verdict in order else 5 + (self.verdict == "equal")
        ranks = [column.figures.rank for column in self.columns if column.figures is not None]
        return (group, *min(ranks, default=(9, 0.0)))


@dataclass(frozen=True)
class TreeDiff:
    """Two sparse trees held against each other.

    Attributes:
        left, right: What was read; left is under test.
        tables: The worst first.
    """

    left: SparseTree
    right: SparseTree
    tables: tuple[TableDiff, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Damage of both sides."""
        return self.left.problems + self.right.problems

    @property
    def unreadable(self) -> bool:
        """Whether data of either side were lost or damaged."""
        return bool(self.problems) or any(table.verdict == "unreadable" for table in self.tables)

    @property
    def different(self) -> bool:
        """Whether anything that could be read differs."""
        return any(
            table.verdict not in ("equal", "unreadable")
            or table.only_left
            or table.only_right
            or any(column.verdict not in ("equal", "unreadable") for column in table.columns)
            for table in self.tables
        )


def compare_trees(
    left: SparseTree, right: SparseTree, *, threads: int = 1, memory: int = MEMORY, progress: Progress | None = None
) -> TreeDiff:
    """Compares two trees table by table; a damaged column spoils its own row only.

    Args:
        left: Under test.
        right: Reference.
        threads: Blocks of rows compared at once; the result does not depend on it.
        memory: Bytes that the join of two tables' keys may take.
        progress: Told of (keys done, keys in all).
    """
    ones, twos = ({table.name: table for table in tree.tables} for tree in (left, right))
    names = sorted(ones.keys() | twos.keys())
    total = sum(max(side[name].rows if name in side else 0 for side in (ones, twos)) for name in names)
    tables, done = [], 0
    with ThreadPoolExecutor(threads) as pool:
        for name in names:
            found = _Tables(name, ones.get(name), twos.get(name), pool, memory).diff()
            tables.append(found)
            done += max(side[name].rows if name in side else 0 for side in (ones, twos))
            if progress is not None:
                progress(done, total)
    tables.sort(key=lambda table: (table.rank, table.name))
    return TreeDiff(left, right, tuple(tables))


class _Tables:
    """Compares the two sides of one table."""

    def __init__(
        self, name: str, left: SparseTable | None, right: SparseTable | None, pool: ThreadPoolExecutor, memory: int
    ) -> None:
        self._name = name
        self._left = left
        self._right = right
        self._pool = pool
        self._memory = memory

    def diff(self) -> TableDiff:
        """Returns what differs."""
        left, right = self._left, self._right
        if left is None or right is None:
            return TableDiff(self._name, left, right, "missing on the left" if left is None else "missing on the right")
        row = TableDiff(self._name, left, right, "unreadable")
        lost = [table.damaged[KEY] for table in (left, right) if KEY in table.damaged]
        if lost or left.key is None or right.key is None:
            return replace(row, reason="; ".join(lost))
        try:
            pairs, others = _columns(left, right)
            return self._joined(row, left.key, right.key, pairs, [*others, *compare_memory(left, right)])
        except DataError as error:
            return replace(row, reason=str(error))

    def _joined(
        self,
        row: TableDiff,
        left_key: SparseColumn,
        right_key: SparseColumn,
        pairs: Sequence[tuple[SparseColumn, SparseColumn]],
        others: Sequence[ColumnDiff],
    ) -> TableDiff:
        totals = [RowFigures(max(left.width, right.width)) for left, right in pairs]
        found = _Keys()
        with ExitStack() as stack:
            keys = [stack.enter_context(column.open()) for column in (left_key, right_key)]
            sides = [(stack.enter_context(one.open()), stack.enter_context(two.open())) for one, two in pairs]
            for part in join_keys(*keys, memory=self._memory):
                found.add(part)
                for total, (one, two) in zip(totals, sides, strict=True):
                    for block in self._blocks(part, one, two):
                        total.add(block)
        columns = [_column_diff(left.name, total) for (left, _), total in zip(pairs, totals, strict=True)]
        columns = sorted([*columns, *others], key=lambda column: (column.name != EMBEDDING, column.name))
        return replace(
            row,
            verdict=_verdict(columns, found),
            shared=found.shared,
            only_left=found.only[0],
            only_right=found.only[1],
            left_examples=found.examples[0],
            right_examples=found.examples[1],
            left_repeats=found.repeats[0],
            right_repeats=found.repeats[1],
            columns=tuple(columns),
            reason=_reason(found),
        )

    def _blocks(self, part: JoinedKeys, left: OpenColumn, right: OpenColumn) -> Iterator[RowFigures]:
        """Compares the shared rows of a part; a few blocks are on their way at a time, and they come in order."""
        size = max(1, _BLOCK_BYTES // max(1, left.column.row_bytes))
        waiting: deque[Callable[[], RowFigures]] = deque()
        for start in range(0, part.keys.size, size):
            here = slice(start, start + size)
            work = partial(compare_rows, left, right, part.keys[here], part.left_rows[here], part.right_rows[here])
            waiting.append(self._pool.submit(work).result)
            if len(waiting) > 16:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()


@dataclass
class _Keys:
    """What is known of the keys while their parts are joined; lists are of the left and the right side."""

    shared: int = 0
    only: list[int] = field(default_factory=lambda: [0, 0])
    examples: list[tuple[int, ...]] = field(default_factory=lambda: [(), ()])
    repeats: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, part: JoinedKeys) -> None:
        """Adds a part."""
        self.shared += part.keys.size
        for side, (keys, repeats) in enumerate(
            ((part.only_left, part.left_repeats), (part.only_right, part.right_repeats))
        ):
            self.only[side] += keys.size
            self.examples[side] = tuple(sorted([*self.examples[side], *map(int, keys[:WORST])])[:WORST])
            self.repeats[side] += repeats


def _columns(left: SparseTable, right: SparseTable) -> tuple[list[tuple[SparseColumn, SparseColumn]], list[ColumnDiff]]:
    """Returns the columns that can be compared, and what is to say of the others."""
    ones, twos = ({column.name: column for column in table.columns} for table in (left, right))
    pairs, others = [], []
    for name in sorted(ones.keys() | twos.keys() | left.damaged.keys() | right.damaged.keys()):
        lost = [table.damaged[name] for table in (left, right) if name in table.damaged]
        if lost:
            others.append(ColumnDiff(name, "unreadable", reason="; ".join(lost)))
        elif name not in twos or name not in ones:
            others.append(ColumnDiff(name, "missing on the right" if name in ones else "missing on the left"))
        elif ones[name].width != twos[name].width and min(ones[name].rows, twos[name].rows):
            widths = f"rows of {ones[name].width} against {twos[name].width} values"
            others.append(ColumnDiff(name, "columns differ", reason=widths))
        else:
            pairs.append((ones[name], twos[name]))
    return pairs, others


def _column_diff(name: str, total: RowFigures) -> ColumnDiff:
    figures = total.figures()
    if not figures.differing:
        reason = figures.reasons.get("CosineSimilarity", "")
        return ColumnDiff(name, "equal", figures, reason=reason)
    told = [f"{total.differing_rows} of {total.rows} rows differ"]
    if figures.non_finite_mismatches:
        told.append(f"{figures.non_finite_mismatches} values not finite on one side")
    if figures.cosine is None:
        told.append(f"no cosine: {figures.reasons['CosineSimilarity']}")
    return ColumnDiff(name, "values differ", figures, total.differing_rows, tuple(total.worst), "; ".join(told))


def _verdict(columns: Sequence[ColumnDiff], found: _Keys) -> TableVerdict:
    verdicts = {column.verdict for column in columns}
    if "unreadable" in verdicts:
        return "unreadable"
    if verdicts & {"columns differ", "missing on the left", "missing on the right"}:
        return "columns differ"
    if "values differ" in verdicts:
        return "values differ"
    return "keys differ" if any(found.only) else "equal"


def _reason(found: _Keys) -> str:
    told = []
    for side, other, number in (("left", "right", 0), ("right", "left", 1)):
        if found.only[number]:
            told.append(f"{found.only[number]} keys are missing on the {other}")
        if found.repeats[number]:
            told.append(f"{found.repeats[number]} rows of the {side} have a key that comes again (the last one counts)")
    return "; ".join(told)

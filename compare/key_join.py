"""Two columns of keys -> which keys both have and in which rows, in memory that does not grow with the tables.

Tables that are too large at once are worked off in parts: a key belongs to the part that a hash of it says, so both
sides' rows of a key meet in one part, and a part is as large as the memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.sparse_tree import OpenColumn

    Keys = NDArray[np.int64]

MEMORY: Final = 256 << 20
"""Bytes that one part may take."""

_KEY_BYTES: Final = 64
"""What a key of either side takes while a part is joined: key, row, order, and copies of them."""

_BLOCK: Final = 1 << 18
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class JoinedKeys:
    """One part of two tables.

    Attributes:
        keys: Keys of both sides, int64 [n], in the order of the left side's rows.
        left_rows, right_rows: Their rows, int64 [n].
        only_left, only_right: Keys that one side has, ascending.
        left_repeats, right_repeats: Rows whose key stands in a later row too; the last row of a key counts, as when
            a model is loaded.
    """

    keys: Keys
    left_rows: Keys
    right_rows: Keys
    only_left: Keys
    only_right: Keys
    left_repeats: int
    right_repeats: int


def join_keys(left: OpenColumn, right: OpenColumn, *, memory: int = MEMORY) -> Iterator[JoinedKeys]:
    """Yields the parts.

    Args:
        left: An open column of keys.
        right: Likewise.
        memory: Bytes that a part may take, about.

    Raises:
        DataError: a file became shorter.
    """
    parts = max(1, -(-(left.column.rows + right.column.rows) * _KEY_BYTES // memory))
    for part in range(parts):
        left_keys, left_rows, left_repeats = _sorted(*_part(left, part, parts))
        right_keys, right_rows, right_repeats = _sorted(*_part(right, part, parts))
        place = np.searchsorted(right_keys, left_keys)
        shared = np.zeros(left_keys.size, bool)
        inside = place < right_keys.size
        shared[inside] = right_keys[place[inside]] == left_keys[inside]
        place = place[shared]
        alone = np.ones(right_keys.size, bool)
        alone[place] = False
        order = np.argsort(left_rows[shared])
        yield JoinedKeys(
            left_keys[shared][order],
            left_rows[shared][order],
            right_rows[place][order],
            left_keys[~shared],
            right_keys[alone],
            left_repeats,
            right_repeats,
        )


def _part(side: OpenColumn, part: int, parts: int) -> tuple[Keys, Keys]:
    """Returns the keys of one part and their rows, in order of the rows."""
    keys: list[Keys] = [np.empty(0, np.int64)]
    rows: list[Keys] = [np.empty(0, np.int64)]
    for first in range(0, side.column.rows, _BLOCK):
        block = side.read(first, min(_BLOCK, side.column.rows - first)).astype(np.int64, copy=False)
        here = np.arange(first, first + block.size, dtype=np.int64)
        if parts > 1:
            mine = ((block.view(np.uint64) * _MIX) >> np.uint64(32)) % np.uint64(parts) == np.uint64(part)
            block, here = block[mine], here[mine]
        keys.append(block)
        rows.append(here)
    return np.concatenate(keys), np.concatenate(rows)


def _sorted(keys: Keys, rows: Keys) -> tuple[Keys, Keys, int]:
    """Returns keys in ascending order, each once with its last row, and how many rows that leaves out."""
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    last = np.ones(keys.size, bool)
    last[:-1] = keys[1:] != keys[:-1]
    return keys[last], rows[last], int(keys.size - np.count_nonzero(last))

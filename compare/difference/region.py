"""Where the elements differ: one row, one column, one block, a few elements."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from compare.onepass import elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.difference.pair import Array, Pair

_LONGEST_AXIS = 1 << 22
_SHOWN = 4
_FEW = 4
"""Differing elements are few when they are at most one in so many."""


@dataclass
class Region:
    """The elements that differ.

    Attributes:
        count: How many.
        first, last: Flat indices.
        axes: Coordinates that occur, one array an axis; None where an axis is too long to keep them.
        left_zero, left_nan, right_zero: Whether that holds at all of them.
    """

    count: int = 0
    first: int = -1
    last: int = -1
    axes: list[NDArray[np.int64]] | None = None
    left_zero: bool = True
    left_nan: bool = True
    right_zero: bool = True
    marks: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    @property
    def filling(self) -> str:
        """What stands there on one side, empty if nothing in particular."""
        if self.left_nan:
            return "left is NaN there"
        if self.left_zero:
            return "left is zero there"
        return "right is zero there" if self.right_zero else ""


def find_region(pair: Pair) -> Region:
    """Walks over both sides and keeps where they differ."""
    found = Region()
    shape = pair.shape if len(pair.shape) > 1 and max(pair.shape) <= _LONGEST_AXIS else ()
    offsets = np.cumsum([0, *shape])
    found.marks = np.zeros(int(offsets[-1]), np.uint8)
    for start, one, two in pair.blocks():
        differing = np.flatnonzero(~pair.same(one, two))
        if not differing.size:
            continue
        positions = differing.astype(np.int64) + start
        found.first = int(positions[0]) if found.first < 0 else found.first
        found.last = int(positions[-1])
        found.count += positions.size
        if shape:
            elements.mark_axes(positions, np.array(shape, np.int64), offsets.astype(np.int64), found.marks)
        if not pair.verbatim:
            _look_at(found, pair, one[differing], two[differing])
    if pair.verbatim:
        found.left_zero = found.left_nan = found.right_zero = False
    if shape:
        found.axes = [np.flatnonzero(found.marks[b:e]) for b, e in pairwise(offsets.tolist())]
    return found


def _look_at(found: Region, pair: Pair, one: Array, two: Array) -> None:
    x, y = pair.numbers(one), pair.numbers(two)
    found.left_zero = found.left_zero and not x.any()
    found.left_nan = found.left_nan and bool(np.isnan(x).all())
    found.right_zero = found.right_zero and not y.any()


def region_text(pair: Pair, found: Region) -> str:
    """Says where the elements differ if that is a part of the whole, empty if they are spread over it.

    A part is: some rows, some columns, or a block of neighbouring ones, that hold at most half of all elements and of
    whose elements at least half differ; or elements anywhere that are at most a quarter of all.
    """
    box = _box(pair, found)
    rest = f", {found.filling}" if found.filling else ""
    if box:
        return f"{box} ({found.count} elements, the rest equal{rest})"
    if found.count * _FEW <= pair.size or (found.count == 1 and pair.size > 1):
        who = "1 element differs" if found.count == 1 else f"{found.count} elements differ"
        return f"{who}, the rest equal: first at index {_index(pair, found.first)}{rest}"
    return ""


def _index(pair: Pair, position: int) -> str:
    if len(pair.shape) < 2:
        return str(position)
    return str(tuple(int(axis) for axis in np.unravel_index(position, pair.shape)))


def _box(pair: Pair, found: Region) -> str:
    axes = found.axes
    if axes is None:
        length = found.last - found.first + 1
        if len(pair.shape) != 1 or found.count < 2 or 2 * found.count < length or 2 * length > pair.size:
            return ""
        return f"elements {found.first}..{found.last} differ"
    volume = math.prod(axis.size for axis in axes)
    cut = [(number, axis) for number, axis in enumerate(axes) if axis.size < pair.shape[number]]
    whole = len(cut) == 1
    one_run = all(axis[-1] - axis[0] == axis.size - 1 for _, axis in cut)
    if found.count < 2 or 2 * found.count < volume or 2 * volume > pair.size or not (whole or one_run):
        return ""
    parts = [f"{_name(number, axis.size, len(axes))} {_ranges(axis)}" for number, axis in cut]
    return f"{', '.join(parts)} {'differs' if whole and cut[0][1].size == 1 else 'differ'}"


def _name(number: int, count: int, axes: int) -> str:
    if axes == 2:
        return ("row", "column")[number] + ("s" if count > 1 else "")
    return f"axis {number}"


def _ranges(axis: NDArray[np.int64]) -> str:
    """``3..7, 9`` of coordinates in order; the first few runs, and how many coordinates there are."""
    cuts = np.flatnonzero(np.diff(axis) > 1)
    begins, ends = axis[np.append(0, cuts + 1)], axis[np.append(cuts, axis.size - 1)]
    runs = [str(b) if b == e else f"{b}..{e}" for b, e in zip(begins.tolist(), ends.tolist(), strict=True)]
    more = f" ... ({axis.size} in all)" if len(runs) > _SHOWN else ""
    return ", ".join(runs[:_SHOWN]) + more

"""Rows and columns of one side that stand elsewhere on the other: swapped, permuted, rolled, repeated, taken wrongly.

Each row gets a hash of its elements; a left row is looked up among the right side's hashes, and what comes out is a map
row -> row that is then held against every element. Arrays of more than two dimensions are seen as a matrix: of slices
along the first axis, and of rows along the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.difference.pair import BLOCK
from compare.onepass import elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.difference.pair import Array, Pair

    Hashes = NDArray[np.uint64]
    Positions = NDArray[np.int64]

LARGEST = 1 << 22
"""Rows, or columns, that are looked for: 32 MB of hashes a side."""

_CANDIDATES = 64


@dataclass(frozen=True)
class Lines:
    """The rows, or the columns, of a matrix.

    Attributes:
        rows, width: Of the matrix.
        noun: What a line is called: row, column, slice.
        of_columns: Whether the lines are columns.
    """

    rows: int
    width: int
    noun: str
    of_columns: bool = False

    @property
    def count(self) -> int:
        """Number of lines."""
        return self.width if self.of_columns else self.rows

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.rows if self.of_columns else self.width

    def at(self, line: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
        """Flat indices of places of lines."""
        return place * self.width + line if self.of_columns else line * self.width + place


def all_lines(shape: tuple[int, ...]) -> list[Lines]:
    """Returns the ways to see an array as lines of at least two elements, at least two of them."""
    if len(shape) < 2 or 0 in shape:
        return []
    size, first, last = int(np.prod(shape, dtype=np.int64)), shape[0], shape[-1]
    found = [Lines(first, size // first, "row" if len(shape) == 2 else "slice")]
    if len(shape) > 2:
        found.append(Lines(size // last, last, "row"))
    found.append(Lines(size // last, last, "column", of_columns=True))
    return [lines for lines in found if lines.count > 1 and lines.length > 1]


def rearranged(pair: Pair, first: int, *, permuted: bool) -> tuple[str, list[str]]:
    """Returns how lines were rearranged, empty if they were not, and what was not looked for.

    Args:
        pair: Both sides.
        first: Flat index of the first element that differs.
        permuted: Both sides hold the same elements: only then can lines have changed places.
    """
    skipped = []
    for lines in all_lines(pair.shape):
        if lines.count > LARGEST:
            skipped.append(f"{lines.noun}s that changed places: more than {LARGEST} of them")
            continue
        if not _may_be(pair, lines, first):
            continue
        left, right = hashes(pair, pair.a, lines), hashes(pair, pair.b, lines)
        found = _map_of(left, right, permuted=permuted)
        if found is not None and _proved(pair, lines, found, pair.b):
            return _text(lines.noun, found), skipped
        if not permuted and (left == left[0]).all() and _proved(pair, lines, np.zeros_like(left, np.int64), pair.a):
            return f"left holds one {lines.noun} in every {lines.noun}", skipped
    return "", skipped


def _may_be(pair: Pair, lines: Lines, first: int) -> bool:
    """Tells whether a few lines, one that differs among them, could be found elsewhere, or are all one."""
    line = first % lines.width if lines.of_columns else first // lines.width
    places = np.linspace(0, lines.length - 1, min(lines.length, 64)).astype(np.int64)
    picks = (line, lines.count - 1, lines.count // 2, 0)
    if all(_is_among(pair, lines, pick, places, pair.b) for pick in picks):
        return True
    own = pair.a[lines.at(np.zeros_like(places), places)]
    return all(pair.same(own, pair.a[lines.at(np.full_like(places, pick), places)]).all() for pick in picks)


def _is_among(pair: Pair, lines: Lines, line: int, places: Positions, other: Array) -> bool:
    """Tells whether a left line could be one of another side: by its greatest element first, then by some more."""
    own = pair.a[lines.at(np.full_like(places, line), places)]
    peak = _peak(pair, own)
    every = np.arange(lines.count, dtype=np.int64)
    there = other[lines.at(every, np.full(1, places[peak], np.int64))]
    hits = np.flatnonzero(pair.same(np.broadcast_to(own[peak : peak + 1], there.shape), there))
    if hits.size > _CANDIDATES:
        return True
    return any(pair.same(own, other[lines.at(np.full_like(places, hit), places)]).all() for hit in hits.tolist())


def _peak(pair: Pair, block: Array) -> int:
    """Position of an element that is not usual: the greatest."""
    size = np.abs(pair.numbers(block))
    size = size.reshape(block.size, -1).max(axis=1)
    return int(np.argmax(np.where(np.isfinite(size), size, -1.0)))


def hashes(pair: Pair, side: Array, lines: Lines) -> Hashes:
    """Returns one hash a line of a flat side."""
    found = np.zeros(lines.count, np.uint64)
    none = np.zeros(0, np.uint64)
    for start in range(0, pair.size, BLOCK):
        keys = pair.keys(side[start : start + BLOCK])
        if lines.of_columns:
            elements.axis_sums(keys, start, lines.width, none, found)
        else:
            elements.axis_sums(keys, start, lines.width, found, none)
    return found


def _map_of(left: Hashes, right: Hashes, *, permuted: bool) -> Positions | None:
    """Returns which right line each left line is, None if one is nowhere or could be several."""
    found = np.arange(left.size, dtype=np.int64)
    moved = np.flatnonzero(left != right)
    if not moved.size:
        return None
    if permuted:
        one, two = moved[np.argsort(left[moved], kind="stable")], moved[np.argsort(right[moved], kind="stable")]
        if not np.array_equal(left[one], right[two]):
            return None
        found[one] = two
        return found
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left[moved], side="left")
    high = np.searchsorted(right[order], left[moved], side="right")
    if (high - low != 1).any():
        return None
    found[moved] = order[low]
    return found


def _proved(pair: Pair, lines: Lines, found: Positions, other: Array) -> bool:
    """Holds every element of the left side against the one of the other side that it is said to be."""
    step = max(1, BLOCK // lines.length)
    for line in range(0, lines.count, step):
        here = np.arange(line, min(line + step, lines.count), dtype=np.int64)[:, None]
        for place in range(0, lines.length, BLOCK):
            places = np.arange(place, min(place + BLOCK, lines.length), dtype=np.int64)[None, :]
            one, two = lines.at(here, places).reshape(-1), lines.at(found[here], places).reshape(-1)
            if not pair.same(pair.a[one], other[two]).all():
                return False
    return True


def _text(noun: str, found: Positions) -> str:
    own = np.arange(found.size, dtype=np.int64)
    moved = np.flatnonzero(found != own)
    if np.bincount(found, minlength=found.size).max() == 1:
        return _permutation_text(noun, found, moved)
    if (found == found[0]).all():
        return f"left holds {noun} {found[0]} of right in every {noun}"
    first = int(moved[0])
    if moved.size == 1:
        return f"{noun} {first} of left holds {noun} {found[first]} of right"
    last, begin, end = int(moved[-1]), int(found[first]), int(found[moved[-1]])
    if last - first == moved.size - 1 and (found[moved] - moved == begin - first).all():
        return f"{noun}s {first}..{last} of left hold {noun}s {begin}..{end} of right"
    return f"{moved.size} {noun}s of left hold other {noun}s of right: {noun} {first} holds {noun} {begin}"


def _permutation_text(noun: str, found: Positions, moved: Positions) -> str:
    count, own = found.size, np.arange(found.size, dtype=np.int64)
    if moved.size == 2:
        return f"{noun}s {moved[0]} and {moved[1]} swapped"
    if (found == count - 1 - own).all():
        return f"{noun}s reversed"
    shift = int(found[0])
    if ((found - own) % count == shift).all():
        return roll_text(f"{noun}s", -shift, count)
    first = int(moved[0])
    return f"{noun}s permuted ({moved.size} of {count} moved; {noun} {first} of left is {noun} {found[first]} of right)"


def roll_text(nouns: str, shift: int, count: int) -> str:
    """Says by how much something was rolled, the shorter way round."""
    shift %= count
    shift = shift - count if shift > count // 2 else shift
    return f"{nouns} rolled by {shift} (left[i] = right[i {'-' if shift > 0 else '+'} {abs(shift)}], cyclic)"

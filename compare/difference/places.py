"""The same elements in other places: transposed, reversed, rolled, moved, swapped, shuffled."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from compare.difference.pair import BLOCK
from compare.difference.rows import roll_text

if TYPE_CHECKING:
    from compare.difference.measure import Measured
    from compare.difference.pair import Array, Pair

SORTED = 1 << 24
"""Elements that are sorted to prove that both sides hold the same ones in another order: 256 MB."""

_AXES = 4
_CANDIDATES = 32


def reordered(pair: Pair) -> str:
    """Returns by which change of axes or direction the left side comes from the right one."""
    right = pair.right.reshape([size for size in pair.right.shape if size != 1])
    if 2 <= right.ndim <= _AXES:
        for axes in list(permutations(range(right.ndim)))[1:]:
            if pair.data_same(right.transpose(axes)):
                return _axes_text(pair, right.transpose(axes).shape, axes)
    for axis in range(right.ndim if right.ndim > 1 else 0):
        if right.ndim <= _AXES and pair.data_same(np.flip(right, axis)):
            return ("rows", "columns")[axis] + " reversed" if right.ndim == 2 else f"reversed along axis {axis}"
    return "reversed" if right.ndim and pair.data_same(np.flip(right)) else ""


def _axes_text(pair: Pair, shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    told = tuple(size for size in pair.left.shape if size != 1)
    text = "transposed" if len(axes) == 2 else f"axes permuted (left = right.transpose{axes})"
    return text if told == shape else f"{text}, the shape not"


def swapped(pair: Pair, found: Measured) -> str:
    """Returns which two elements changed places, if it is two."""
    if found.differing != 2:
        return ""
    first = found.first
    for start, one, two in pair.blocks():
        if start + one.size <= first:
            continue
        differing = np.flatnonzero(~pair.same(one, two)) + start
        second = int(differing[-1]) if differing.size else first
        if second > first:
            break
    crossed = pair.same(pair.a[[first, second]], pair.b[[second, first]]).all()
    return f"elements {first} and {second} swapped" if crossed else ""


def rolled(pair: Pair, found: Measured, *, cyclic: bool) -> str:
    """Returns by how many places the elements moved.

    Where they do not come back at the other end (not ``cyclic``) at most a quarter of them may have left.
    """
    pivot = _pivot(pair, found, within=0 if cyclic else pair.size // 4)
    if pivot is None:
        return ""
    for shift in _shifts(pair, pivot):
        if cyclic:
            turn = shift % pair.size
            if pair.runs_same(turn, 0, pair.size - turn) and pair.runs_same(0, pair.size - turn, turn):
                return roll_text("elements", shift, pair.size)
        elif 4 * abs(shift) <= pair.size:
            left, right = max(shift, 0), max(-shift, 0)
            if pair.runs_same(left, right, pair.size - abs(shift)):
                return _moved_text(pair, shift)
    return ""


def _moved_text(pair: Pair, shift: int) -> str:
    width = pair.shape[-1] if len(pair.shape) > 1 else 0
    unit, places = ("row", shift // width) if width and shift % width == 0 else ("place", shift)
    several = f"{places} {unit}{'s' if abs(places) != 1 else ''}"
    lost = f"{abs(shift)} at the {'beginning' if shift > 0 else 'end'}"
    return f"moved by {several} (left[i] = right[i {'-' if shift > 0 else '+'} {abs(shift)}], all but {lost})"


def _pivot(pair: Pair, found: Measured, within: int) -> int | None:
    """Position of the left side's greatest finite number, one that does not occur often, ``within`` both ends."""
    top = max(abs(found.left.low), abs(found.left.high))
    largest, position = 0.0, None
    for start in range(within, pair.size - within, BLOCK):
        size = np.abs(pair.plain(pair.a[start : min(start + BLOCK, pair.size - within)]))
        peak = int(size.argmax())
        if not np.isfinite(size[peak]):
            size = np.where(np.isfinite(size), size, -1.0)
            peak = int(size.argmax())
        if size[peak] > largest:
            largest, position = float(size[peak]), start + peak // (2 if pair.complex else 1)
            if largest == top:
                break
    return position


def _shifts(pair: Pair, pivot: int) -> list[int]:
    """How far the pivot may have moved: once for each place where the right side holds it, none if there are many."""
    model = pair.plain(pair.a[pivot : pivot + 1])
    found: list[int] = []
    for start in range(0, pair.size, BLOCK):
        numbers = pair.plain(pair.b[start : start + BLOCK])
        equal = numbers[0 :: model.size] == model[0]
        if model.size == 2:
            equal &= numbers[1::2] == model[1]
        if equal.any():
            found += (pivot - start - np.flatnonzero(equal)).tolist()
        if len(found) > _CANDIDATES:
            return []
    return [shift for shift in found if shift]


def shuffled(pair: Pair) -> tuple[str, list[str]]:
    """Returns whether both sides hold the same elements, proved by sorting them; and why that was not done."""
    if pair.size > SORTED:
        return "", [f"proof that both sides hold the same elements in another order: more than {SORTED} elements"]
    one, two = (_sorted(pair, side) for side in (pair.a, pair.b))
    return ("shuffled (the same elements in another order)" if np.array_equal(one, two) else ""), []


def _sorted(pair: Pair, side: Array) -> Array:
    if not pair.complex:
        keys = np.concatenate([pair.keys(side[start : start + BLOCK]) for start in range(0, pair.size, BLOCK)])
        keys.sort()
        return keys
    parts = np.concatenate([pair.numbers(side[start : start + BLOCK]) for start in range(0, pair.size, BLOCK)])
    parts += 0.0  # one zero
    return np.sort(parts.view(np.complex128)).view(np.uint64)

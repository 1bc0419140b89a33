"""Slices of an op (``..._lxslice<N>``) against the whole op of the other side: which rows of it each one is.

Only names that say so are believed, and only along the first axis: two tensors of which one happens to have more rows
are of different shapes, and stay so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from compare.pairs import Pair, Side, Step, Unpaired
from dumpers.formats.layouts import is_private
from dumpers.formats.npu_slice_info import without_slice

if TYPE_CHECKING:
    from dumpers.records import TensorRecord

_MARK: Final = "_lxslice"
_NUMBER: Final = re.compile(r"_lxslice(\d{1,6})(?=\Z|_)")
Shape = tuple[int, ...]


def whole_op(name: str) -> str:
    """Returns the name of the op that a slice belongs to, empty for an op that is no slice."""
    return without_slice(name) if _MARK in name and _NUMBER.search(name) else ""


def place_slices(rows: Sequence[Pair | Unpaired]) -> list[Pair | Unpaired]:
    """Gives pairs of a slice with a whole tensor the rows of the whole that the slice is.

    Pairs whose slices do not fit together stay as they are: their shapes differ.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Pair) or not (_MARK in row.left.op or _MARK in row.right.op):
            continue
        left, right = whole_op(row.left.op), whole_op(row.right.op)
        if left and not right:
            groups.setdefault(("left", left, row.io, row.slot, id(row.right)), []).append(number)
        elif right and not left:
            groups.setdefault(("right", right, row.io, row.slot, id(row.left)), []).append(number)
    placed = list(rows)  # Nearly always nothing else happens here.
    for key, numbers in groups.items():
        side: Side = "left" if key[0] == "left" else "right"
        pairs = [row for row in (rows[number] for number in numbers) if isinstance(row, Pair)]
        for number, pair in zip(numbers, _placed(pairs, side), strict=True):
            placed[number] = pair
    return placed


def _placed(pairs: Sequence[Pair], side: Side) -> list[Pair]:
    """Returns the pairs of one whole tensor, each with its rows; as they are where that is not certain."""
    slices = [pair.left if side == "left" else pair.right for pair in pairs]
    other: Side = "right" if side == "left" else "left"
    whole = shape_of(pairs[0].right if side == "left" else pairs[0].left)
    shapes = [shape_of(record) for record in slices]
    order = [int(found[1]) if (found := _NUMBER.search(record.op)) else -1 for record in slices]
    parts = _parts(order, shapes, whole)
    if parts is None or whole is None or any(pair.steps for pair in pairs):
        return list(pairs)
    placed = []
    for pair, index, (start, stop) in zip(pairs, order, parts, strict=True):
        why = f"slice {index} is rows {start} to {stop - 1} of the {whole[0]} rows of the {other} tensor"
        placed.append(replace(pair, steps=(Step(other, "rows", (start, stop), why),)))
    return placed


def _parts(order: Sequence[int], shapes: Sequence[Shape | None], whole: Shape | None) -> list[tuple[int, int]] | None:
    """Returns the first row of each slice and the one behind its last.

    None where the slices are not 0, 1, ... without a gap, differ in more than the first axis, are each the whole
    tensor, or have more rows than it.
    """
    known = [shape for shape in shapes if shape]
    if not whole or len(known) != len(shapes) or sorted(order) != list(range(len(order))):
        return None
    if any(shape[1:] != whole[1:] for shape in known) or all(shape == whole for shape in known):
        return None
    starts: dict[int, int] = {}
    at = 0
    for index, shape in sorted(zip(order, known, strict=True)):
        starts[index] = at
        at += shape[0]
    if at > whole[0]:
        return None
    return [(starts[index], starts[index] + shape[0]) for index, shape in zip(order, known, strict=True)]


def shape_of(record: TensorRecord) -> Shape | None:
    """Returns the shape that the framework knows, None where a private layout hides it."""
    return record.original_shape if is_private(record.format) else record.shape

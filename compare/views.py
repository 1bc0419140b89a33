"""Two loaded arrays of a pair, made comparable: layouts undone, recorded padding cut off, rows of a slice taken.

Nothing is guessed: a private layout is undone by the original shape that a record or the partner has; padding is cut
only where a record says the original shape; rows, turns and reshapes come from the pairing. What was done is a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.figures import shape_text
from dumpers.errors import DataError
from dumpers.formats.layouts import PLAIN, is_private, to_original

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from compare.pairs import Pair, Step
    from dumpers.records import TensorRecord

    Array = NDArray[np.generic]


def as_stored(pair: Pair) -> bool:
    """Tells whether both tensors are compared as they lie in their files: :func:`align` would return them unchanged.

    For a caller who reads the files himself, block by block.
    """
    if pair.steps:
        return False
    for record in (pair.left, pair.right):
        shape, original = record.shape, record.original_shape
        if is_private(record.format):
            return False
        if original is None:
            continue
        if shape is None or _turned_layout(record) or _recorded(record, shape) != shape:
            return False
    return True


def align(pair: Pair, left: Array, right: Array) -> tuple[Array, Array, tuple[str, ...]]:
    """Makes the arrays of a pair comparable.

    Args:
        pair: Says what the arrays are.
        left: As loaded.
        right: As loaded.

    Returns:
        Both arrays, and what was done or could not be.
    """
    left, right, notes = original_layouts(pair.left, left, pair.right, right)
    told = [note for note in notes if note]
    for step in pair.steps:
        if step.side == "left":
            left, note = _apply(step, left, right)
        else:
            right, note = _apply(step, right, left)
        told.append(note)
    if not pair.steps:
        left, right, cropped = _without_padding(pair, left, right)
        told += cropped
    return left, right, tuple(told)


def original_layouts(
    left_record: TensorRecord, left: Array, right_record: TensorRecord, right: Array
) -> tuple[Array, Array, tuple[str, str]]:
    """Undoes the private layouts of two partners, with a note for each where that is impossible."""
    left, left_note = _original(left_record, left, _plain_shape(right_record, right))
    right, right_note = _original(right_record, right, _plain_shape(left_record, left))
    return left, right, (left_note, right_note)


def _plain_shape(record: TensorRecord, array: Array) -> tuple[int, ...] | None:
    """Original shape that the partner tells, None if it does not know it either."""
    return record.original_shape if is_private(record.format) else array.shape


def _original(record: TensorRecord, array: Array, partner: tuple[int, ...] | None) -> tuple[Array, str]:
    """Undoes a private layout; where that is impossible the stored data are compared, and it is said."""
    known = str(getattr(record.source, "layout", ""))
    if _turned_layout(record) and record.original_shape == partner and partner is not None:
        return to_original(array, record.format, partner, original_format=known), f"{record.format} turned to {known}"
    shape = record.original_shape if record.original_shape is not None else partner
    if not is_private(record.format) or array.shape == shape:
        return array, ""
    if shape is None:
        return array, f"compared in stored layout {record.format}"
    groups = int(getattr(record.source, "groups", 1))
    try:
        return to_original(array, record.format, shape, original_format=known, groups=groups), ""
    except DataError as error:
        return array, f"compared in stored layout {record.format} ({error})"


def _turned_layout(record: TensorRecord) -> bool:
    """Whether a tensor is stored in another order of its plain axes than the framework's, and the shapes show it."""
    have, want = record.format, str(getattr(record.source, "layout", ""))
    stored, original = record.shape, record.original_shape
    if have == want or stored is None or original is None or stored == original:
        return False
    if not {have, want} <= PLAIN_AXES or sorted(have) != sorted(want) or len(stored) != len(have):
        return False
    return tuple(stored[have.index(axis)] for axis in want) == original


PLAIN_AXES = frozenset(name for name in PLAIN if name != "ND")
"""Layouts whose name lists the axes."""


def _without_padding(pair: Pair, left: Array, right: Array) -> tuple[Array, Array, list[str]]:
    """Crops each side to the original shape that its record states, if the shapes are equal then."""
    shapes = (_recorded(pair.left, left.shape), _recorded(pair.right, right.shape))
    if shapes[0] != shapes[1] or shapes == (left.shape, right.shape):
        return left, right, []
    notes = []
    for side, array, shape in (("left", left, shapes[0]), ("right", right, shapes[1])):
        if array.shape != shape:
            text = f"{shape_text(array.shape)} cut to its original shape {shape_text(shape)}"
            notes.append(f"{side} {text}: the rest is padding")
    return left[_box(shapes[0])], right[_box(shapes[1])], notes


def _recorded(record: TensorRecord, stored: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of what is no padding, by the record: all of it where that says nothing that fits."""
    shape = record.original_shape
    if shape is None or is_private(record.format) or len(shape) != len(stored):
        return stored
    return shape if all(0 <= part <= size for part, size in zip(shape, stored, strict=True)) else stored


def _box(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _apply(step: Step, array: Array, partner: Array) -> tuple[Array, str]:
    """Does one step of the pairing; one that does not fit the array is left out, and it is said."""
    numbers = step.numbers
    if step.kind == "rows":
        start, stop = numbers
        if array.ndim and 0 <= start <= stop <= array.shape[0]:
            return array[start:stop], step.why
    elif step.kind == "turn":
        if sorted(numbers) == list(range(array.ndim)):
            return array.transpose(numbers), step.why
    else:
        shape = numbers or partner.shape
        if array.size == _count(shape):
            return array.reshape(shape), step.why
    return array, f"{step.why}: this does not fit the shape {shape_text(array.shape)}, so nothing was done"


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count

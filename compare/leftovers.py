"""Ops that a pairing left over on both sides, as candidates for a name of the other side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compare.slices import shape_of
from dumpers.dtypes import is_float
from dumpers.names import flatten

if TYPE_CHECKING:
    from compare.pairs import Unpaired
    from dumpers.records import TensorRecord

Key = tuple[str, int]


@dataclass(frozen=True)
class Leftover:
    """One op without any partner.

    Attributes:
        name: What a line of the map calls it: the op, or the original that a device tensor stands for.
        tensors: By side and slot.
    """

    name: str
    tensors: Mapping[Key, TensorRecord] = field(default_factory=dict)

    def agrees(self, other: Leftover) -> int:
        """Returns in how many tensors two ops have the same shape and kind of number; 0 if any differs."""
        count = 0
        for key, mine in self.tensors.items():
            theirs = other.tensors.get(key)
            if theirs is None:
                continue
            if not alike(mine, theirs):
                return 0
            count += 1
        return count


def alike(left: TensorRecord, right: TensorRecord) -> bool:
    """Tells whether two tensors have the same shape and a dtype of the same kind (a device may narrow it)."""
    shapes = (shape_of(left), shape_of(right))
    return None not in shapes and shapes[0] == shapes[1] and _kind(left.dtype) == _kind(right.dtype)


def _kind(dtype: str) -> str:
    if is_float(dtype):
        return "float"
    return "integer" if dtype.startswith(("int", "uint")) else dtype


def leftovers(unpaired: Iterable[Unpaired], side: str, paired: Collection[str]) -> dict[str, Leftover]:
    """Returns the ops of one side that were looked for on the other and not found, by flattened name.

    Args:
        unpaired: All tensors without a partner.
        side: ``left`` or ``right``.
        paired: Flattened names of ops that have a partner; what such an op lacks is no matter of names.
    """
    tensors: dict[str, dict[Key, TensorRecord]] = {}
    names: dict[str, str] = {}
    for row in unpaired:
        if row.side == side and row.wanted and row.record is not None and flatten(row.wanted) not in paired:
            flat = flatten(row.wanted)
            names.setdefault(flat, row.wanted)
            tensors.setdefault(flat, {}).setdefault((row.record.io, row.record.slot), row.record)
    return {flat: Leftover(names[flat], found) for flat, found in tensors.items()}

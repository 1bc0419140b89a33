"""What the manifest of a record says of each tensor, kept without the arrays, which go as soon as they are written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Tuple

import numpy as np

from .plan import Taken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .record import Item


class Line(NamedTuple):
    """What the manifest says of an item; ``width`` is that of texts, else 0, ``size`` the bytes of a value."""

    taken: Taken
    timestamp_us: int
    shape: "Optional[Tuple[int, ...]]"
    dtype: str
    note: str
    width: int
    size: Optional[int]

    def without_room(self, budget: int) -> Line:
        """The line of a value that does not fit."""
        note = "not taken: {} bytes do not fit into a budget of {} a step".format(self.size, budget)
        return self._replace(note=joined(self.note, note))

    def entry(self) -> Dict[str, Any]:
        """Returns the manifest's object of a tensor without a value."""
        return {
            "op": self.taken.op,
            "output": self.taken.slot,
            "op_type": self.taken.op_type,
            "dtype": self.dtype,
            "shape": self.shape,
            "file": None,
            "timestamp_us": self.timestamp_us,
            "note": self.note,
        }


def line_of(item: Item) -> Line:
    """Returns what stays of an item when its array is gone."""
    value = item.value
    shape = item.taken.shape if value is None else value.shape
    width = value.dtype.itemsize if value is not None and value.dtype.kind == "S" else 0
    size = None if value is None else value.nbytes
    return Line(item.taken, item.timestamp_us, shape, item.dtype, item.note, width, size)


def joined(*notes: str) -> str:
    """Returns the notes that are not empty as one."""
    return "; ".join(filter(None, notes))


def contiguous(value: "NDArray[np.generic]") -> "NDArray[np.generic]":
    """Returns the array as it goes into a file: row-major, little-endian."""
    if value.dtype.byteorder == ">" or (value.dtype.byteorder == "=" and sys.byteorder == "big"):
        value = value.astype(value.dtype.newbyteorder("<"))
    return value if value.flags.c_contiguous else np.array(value, order="C")

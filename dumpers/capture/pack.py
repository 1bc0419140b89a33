"""How the tensors of one step are laid out in its files: one file a writing thread, each distinct buffer once.

Creating a file costs as much as writing a megabyte, and a step has thousands of tensors. So they lie one behind the
other, from multiples of 64 bytes on, in ``tensors.<lane>.pack``; the manifest says where. Tensors that share memory
(an identity, a reshape) share their place. The layout depends on the tensors alone, not on the threads.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Hashable, List, Optional, Sequence, Tuple

import numpy as np

from .worker import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64
GROUP_BYTES = 8 << 20
"""What one action writes; groups go to the lanes in turn."""

_PADDING = memoryview(bytes(ALIGNMENT))
_VECTOR = 512
"""Pieces handed to the system in one call; it takes 1,024."""


class Place:
    """Where a buffer lies.

    Attributes:
        lane: Number of the pack file.
        offset: Of the first byte in it.
        group: Number of the group that it is written with.
        index: Which of the values it is; of those that are alike the first.
    """

    __slots__ = ("group", "index", "lane", "offset")

    def __init__(self, lane: int, offset: int, group: int, index: int) -> None:
        self.lane = lane
        self.offset = offset
        self.group = group
        self.index = index


class Group:
    """Buffers that are written together.

    Attributes:
        lane: Number of the pack file.
        arrays: Contiguous arrays, one behind the other.
        indexes: Which of the values they are; of those that are alike the first.
        size_bytes: Of the arrays.
    """

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.indexes: List[int] = []
        self.arrays: "List[NDArray[np.generic]]" = []
        self.size_bytes = 0


def lay_out(
    values: "Sequence[Optional[NDArray[np.generic]]]", alike: Optional[Callable[[Any], Hashable]]
) -> Tuple[List[Optional[Place]], List[Group]]:
    """Gives every array its place.

    Args:
        values: Contiguous arrays; None where there is none.
        alike: Arrays for which it returns the same have one place; None where each has its own.

    Returns:
        The place of each, and the groups in the order in which their lanes must write them.
    """
    places: List[Optional[Place]] = []
    groups: List[Group] = []
    known: Dict[Hashable, Place] = {}
    ends = [0] * LANES
    for index, value in enumerate(values):
        if value is None:
            places.append(None)
            continue
        size = value.nbytes
        key = index if alike is None else alike(value)
        place = known.get(key)
        if place is None:
            if not groups or groups[-1].size_bytes >= GROUP_BYTES:
                groups.append(Group(len(groups) % LANES))
            group = groups[-1]
            place = Place(group.lane, ends[group.lane], len(groups) - 1, index)
            known[key] = place
            ends[group.lane] += -(-size // ALIGNMENT) * ALIGNMENT
            group.arrays.append(value)
            group.indexes.append(index)
            group.size_bytes += size
        places.append(place)
    return places, groups


def beyond(
    values: "Sequence[Optional[NDArray[np.generic]]]", alike: Optional[Callable[[Any], Hashable]], budget: int
) -> List[int]:
    """Returns which arrays do not fit into a budget of bytes, the largest ones; arrays that are alike count once."""
    present = [(value.nbytes, index, value) for index, value in enumerate(values) if value is not None]
    left: List[int] = []
    known = set()
    used = 0
    for size, index, value in sorted(present, key=lambda entry: entry[:2]):
        key = index if alike is None else alike(value)
        if key in known:
            continue
        if used + size > budget:
            left.append(index)
        else:
            known.add(key)
            used += size
    return left


def memory_of(array: "NDArray[np.generic]") -> Hashable:
    """Where a contiguous array lies: arrays in one place have the same bytes."""
    size = array.nbytes
    return (array.__array_interface__["data"][0] if size else 0, size)


def tensor_of(array: "NDArray[np.generic]") -> Hashable:
    """Where it lies, and as what: arrays that are the same tensor."""
    return (memory_of(array), array.dtype.str, array.shape)


def pack_name(lane: int) -> str:
    """Returns the file name of a lane's pack."""
    return "tensors.{}.pack".format(lane)


def write_group(file_number: int, group: Group) -> None:
    """Appends the bytes of a group to its lane's file.

    Raises:
        OSError: the file system does not take them all.
    """
    pieces: List[Any] = []
    for array in group.arrays:
        if not array.nbytes:
            continue
        pieces.append(array.reshape(-1).view(np.uint8).data)
        rest = -array.nbytes % ALIGNMENT
        if rest:
            pieces.append(_PADDING[:rest])
        if len(pieces) >= _VECTOR:
            _write_all(file_number, pieces)
            pieces = []
    if pieces:
        _write_all(file_number, pieces)


def _write_all(file_number: int, pieces: List[Any]) -> None:
    """Writes pieces one behind the other; the system may take fewer bytes than it is given."""
    while pieces:
        taken = os.writev(file_number, pieces)
        if not taken:
            raise OSError(errno.EIO, "The file system takes no more bytes")
        first = 0
        while first < len(pieces) and taken >= len(pieces[first]):
            taken -= len(pieces[first])
            first += 1
        pieces = pieces[first:]
        if pieces and taken:
            pieces[0] = pieces[0][taken:]

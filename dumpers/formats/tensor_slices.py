"""Partitioned variables of a checkpoint: the key of a slice, and slices put together to the whole tensor.

A slice is one extent (start, length) a dimension. Its key in the table is an order-preserving code of the variable's
name and the extents, as TensorFlow writes it for both generations of checkpoints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.schema import Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorSource

Extent: TypeAlias = tuple[int, int]
"""Start and length along one dimension; length -1 is everything."""

WHOLE: Final = -1
_MOST_SLICES: Final = 10_000
_ESCAPED: Final = re.compile(rb"[\x00\xff]")


def extents_of(message: Message) -> tuple[Extent, ...]:
    """Returns the extents of a ``TensorSliceProto``."""
    return tuple((int(e.start), int(e.length) if e.HasField("length") else WHOLE) for e in message.extent)


def slice_key(name: bytes, extents: Sequence[Extent]) -> bytes:
    """Returns the key of a slice of a variable."""
    text = _ESCAPED.sub(lambda found: found[0] + bytes([255 - found[0][0]]), name)
    numbers = b"".join(_signed(number) for extent in extents for number in extent)
    return b"\x00" + text + b"\x00\x01" + _unsigned(len(extents)) + numbers


def _unsigned(number: int) -> bytes:
    width = (number.bit_length() + 7) // 8
    return bytes([width]) + number.to_bytes(width, "big")


def _signed(number: int) -> bytes:
    """As many bytes as there are leading ones in front; negative numbers are complements, so that bytes sort them."""
    magnitude = ~number if number < 0 else number
    width = magnitude.bit_length() // 7 + 1
    header = ((1 << width) - 1) << (7 * width)
    code = (number & ((1 << 8 * width) - 1)) ^ header
    return code.to_bytes(width, "big")


@dataclass(frozen=True)
class Piece:
    """A slice of a variable.

    Attributes:
        start, shape: Where it lies in the whole.
        source: Its values.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    source: TensorSource

    @property
    def region(self) -> tuple[slice, ...]:
        """The slice as an index of the whole array."""
        return tuple(slice(at, at + length) for at, length in zip(self.start, self.shape, strict=True))


@dataclass(frozen=True)
class SlicedSource:
    """A variable that lies in slices; checked to be covered exactly once when it was listed.

    Attributes:
        path: The file that lists the slices.
        shape: Of the whole.
        pieces: The slices.
    """

    path: Path
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def load(self) -> NDArray[np.generic]:
        """Returns the whole array, read-only.

        Raises:
            DataError: a slice vanished or is damaged.
        """
        first = self.pieces[0].source.load()
        whole = np.empty(self.shape, first.dtype)
        whole[self.pieces[0].region] = first
        del first
        for piece in self.pieces[1:]:
            whole[piece.region] = piece.source.load()
        whole.flags.writeable = False
        return whole


def bounds(extents: Sequence[Extent], shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns start and shape of a slice of a tensor.

    Raises:
        DataError: the slice does not lie in the tensor.
    """
    if len(extents) != len(shape):
        raise DataError(f"slice with {len(extents)} dimensions of a tensor with {len(shape)}")
    for (start, length), dim in zip(extents, shape, strict=True):
        if length != WHOLE and not (min(start, length) >= 0 and start + length <= dim):
            raise DataError(f"slice {start}+{length} reaches beyond dimension {dim}")
    starts = tuple(0 if length == WHOLE else start for start, length in extents)
    lengths = tuple(dim if length == WHOLE else length for (_, length), dim in zip(extents, shape, strict=True))
    return starts, lengths


def check_cover(pieces: Sequence[Piece], shape: tuple[int, ...]) -> None:
    """Makes sure that slices cover a tensor, each element once.

    Raises:
        DataError: they do not.
    """
    if not 0 < len(pieces) <= _MOST_SLICES:
        raise DataError(f"{len(pieces)} slices")
    total = sum(math.prod(piece.shape) for piece in pieces)
    if total != math.prod(shape):
        raise DataError(f"slices hold {total} of {math.prod(shape)} elements")
    if not shape or total == 0:
        return
    low = np.array([piece.start for piece in pieces], dtype=np.int64)
    high = low + np.array([piece.shape for piece in pieces], dtype=np.int64)
    for index in range(1, len(pieces)):
        shared = np.minimum(high[:index], high[index]) > np.maximum(low[:index], low[index])
        if shared.all(axis=1).any():
            raise DataError(f"slice {index} overlaps another one")

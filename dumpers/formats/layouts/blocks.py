"""Which part of a stored array holds which part of the framework's tensor, as pairs of views, and the copy between.

A layout is a list of stored axes. ``H`` is an axis as it is; ``C1`` counts blocks of channels and ``C0`` the channels
inside a block; ``C1.H.W`` is one stored axis that runs over three. What a block has too many is padding: no pair
covers it, so padding can neither leak out nor be written.

The copy is where decoding spends its time. Elements are moved as integers of their size, since types such as bfloat16
have slow copy loops of their own, and a run that lies together on both sides moves as one piece, which is what makes
FRACTAL_NZ and channels-last layouts as fast as memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Pair = tuple[Array, Array]

_PAGE: Final = 4096
_MANY_RUNS: Final = 64
_ROWS: Final = 512
_RUNS: Final = 16
_NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True)
class Blocked:
    """Axes of a stored array.

    Attributes:
        axes: The axes in order, each a tuple of what it runs over: ``(("C1", "H", "W"), ("N1",), ("N0",), ("C0",))``.
        sizes: Length of each of them.
    """

    axes: tuple[tuple[str, ...], ...]
    sizes: Mapping[str, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored array."""
        return tuple(math.prod(self.sizes[name] for name in axis) for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """What the axes run over, one after the other."""
        return tuple(name for axis in self.axes for name in axis)


class _Cut(NamedTuple):
    """A piece of one axis: some blocks from the one numbered ``first``, elements ``low`` to ``high`` of each."""

    first: int
    blocks: int
    low: int
    high: int
    at: int  # where it begins in the plain array


def parse_axes(text: str) -> tuple[tuple[str, ...], ...]:
    """Returns the axes behind a text such as ``C1.H.W N1 N0 C0``."""
    return tuple(tuple(axis.split(".")) for axis in text.split())


def blocked(text: str, dims: Mapping[str, int], blocks: Mapping[str, int]) -> Blocked:
    """Returns the stored axes of a tensor.

    Args:
        text: The layout's axes.
        dims: Length of each axis of the tensor.
        blocks: Block size of each axis that is cut into blocks, at least 1.
    """
    axes = parse_axes(text)
    sizes = {name: _size(name, dims, blocks) for axis in axes for name in axis}
    return Blocked(axes, sizes)


def _size(name: str, dims: Mapping[str, int], blocks: Mapping[str, int]) -> int:
    letter, digit = name[0], name[1:]
    if digit == "0":
        return blocks[letter]
    return -(-dims[letter] // blocks[letter]) if digit else dims[letter]


def pairs(
    stored: Array, layout: Blocked, plain: Array, letters: str, starts: Mapping[str, int] = _NOWHERE
) -> Iterator[Pair]:
    """Yields views of equal shape: a piece of the stored array and where it belongs in the plain one.

    Args:
        stored: Array of the layout's shape.
        layout: Its axes.
        plain: Array with the axes ``letters``, every letter of the layout among them.
        letters: One letter for each axis of ``plain``.
        starts: Where ``plain`` begins on an axis of the layout, in elements; 0 for axes that are not named.
    """
    names = layout.names
    split = stored.reshape([layout.sizes[name] for name in names])
    choices = [
        _cuts(starts.get(letter, 0), length, layout.sizes.get(letter + "0"))
        for letter, length in zip(letters, plain.shape, strict=True)
    ]
    for cuts in itertools.product(*choices):
        yield _pair(split, names, plain, dict(zip(letters, cuts, strict=True)))


def _cuts(start: int, length: int, block: int | None) -> list[_Cut]:
    """Cuts a range where blocks end: what is left of the first block, all whole blocks, the rest."""
    if block is None:
        return [_Cut(start, length, 0, 1, 0)]
    found = []
    done = 0
    while done < length:
        first, low = divmod(start + done, block)
        whole = 0 if low else (length - done) // block
        high = block if whole else min(block, low + length - done)
        found.append(_Cut(first, whole or 1, low, high, done))
        done += (whole or 1) * (high - low)
    return found


def _pair(split: Array, names: tuple[str, ...], plain: Array, cuts: dict[str, _Cut]) -> Pair:
    index: list[slice] = []
    for name in names:
        cut = cuts[name[0]]
        index.append(slice(cut.low, cut.high) if name[1:] == "0" else slice(cut.first, cut.first + cut.blocks))
    order, shape, places = [], [], []
    for letter, cut in cuts.items():
        inner = cut.high - cut.low
        places.append(slice(cut.at, cut.at + cut.blocks * inner))
        for name, size in ((letter, cut.blocks), (letter + "1", cut.blocks), (letter + "0", inner)):
            if name in names:
                order.append(names.index(name))
                shape.append(size)
    return split[tuple(index)].transpose(order), plain[tuple(places)].reshape(shape)


def copy_elements(target: Array, source: Array) -> None:
    """Copies an array into another one of the same shape and element size, both :func:`as_elements`."""
    size = target.itemsize
    if target.ndim and target.shape[-1] > 1 and target.strides[-1] == source.strides[-1] == size:
        run = np.dtype((np.void, size * target.shape[-1]))
        target, source = _merged(target.view(run)[..., 0], source.view(run)[..., 0])
        if target.ndim > 1 and target.shape[-1] > _MANY_RUNS and source.strides[-1] % _PAGE == 0:
            _copy_rows(target, source)
            return
    np.copyto(target, source)


def _merged(target: Array, source: Array) -> Pair:
    """Sees neighbouring axes that follow each other without a gap on both sides as one."""
    merged: list[tuple[int, int, int]] = []
    for size, to, start in zip(target.shape, target.strides, source.strides, strict=True):
        if merged and merged[-1][1:] == (to * size, start * size):
            merged[-1] = (merged[-1][0] * size, to, start)
        elif size != 1:
            merged.append((size, to, start))
    shape = [size for size, _, _ in merged]
    view = np.lib.stride_tricks.as_strided
    return view(target, shape, [to for _, to, _ in merged]), view(source, shape, [start for _, _, start in merged])


def _copy_rows(target: Array, source: Array) -> None:
    """Copies many runs a row whose sources lie a multiple of a page apart, as in FRACTAL_NZ.

    One row after the other, all runs of a row would fall into the same few cache lines and each into a page of its
    own: half the speed, or a third. Blocks that the second-level cache holds do not have that trouble.
    """
    rows, columns = target.shape[-2:]
    for outer in np.ndindex(target.shape[:-2]):
        to, start = target[outer], source[outer]
        for top in range(0, rows, _ROWS):
            for left in range(0, columns, _RUNS):
                block = slice(top, top + _ROWS), slice(left, left + _RUNS)
                np.copyto(to[block], start[block])


def copy_back(found: Iterable[Pair]) -> None:
    """Copies the stored side of all pairs to the plain side."""
    for stored, plain in found:
        copy_elements(plain, stored)


def copy_forward(found: Iterable[Pair]) -> None:
    """Copies the plain side of all pairs to the stored side."""
    for stored, plain in found:
        copy_elements(stored, plain)


def as_elements(array: Array) -> Array:
    """Returns the array seen as integers (16 bytes: complex numbers) of its element size, which NumPy copies fast."""
    kinds: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
    return array.view(kinds.get(array.itemsize, np.dtype((np.void, array.itemsize))))

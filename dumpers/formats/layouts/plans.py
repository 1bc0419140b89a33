"""How a tensor of given axes and shape lies in a stored array: one plan, or one for each way that is possible.

Reading and writing share the plans: a reader makes those of every layout that the original shape may have and takes
the one whose stored shape is that of the file; a writer makes the one of the layout it was told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.formats.layouts.blocks import Blocked, blocked, pairs, parse_axes
from dumpers.formats.layouts.rules import Rule

if TYPE_CHECKING:
    from dumpers.formats.layouts.blocks import Array, Pair


_MOST_GATES: Final = 16
"""Recurrent layers have one gate (plain), three (GRU) or four (LSTM)."""


@dataclass(frozen=True)
class Blocks:
    """Sizes that the stored shape shows.

    Attributes:
        c0: Length of the last stored axis.
        ni: Length of the other axis that runs inside a block; 16 where there is none.
        groups: Groups of a convolution, gates of a recurrent layer; 1 if not told.
    """

    c0: int
    ni: int = 16
    groups: int = 1


@dataclass(frozen=True)
class Plan:
    """One way in which a tensor may lie in a stored array.

    Attributes:
        stored_shape: Shape of the stored array.
        pairs: Gets the stored array and the plain one and yields views of both that belong together.
        key: Equal for plans that put every element at the same place.
        label: For messages.
        any_lead: Whether only the last four axes and the number of elements before them must agree.
    """

    stored_shape: tuple[int, ...]
    pairs: Callable[[Array, Array], Iterator[Pair]]
    key: tuple[object, ...]
    label: str
    any_lead: bool = False

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Tells whether a stored array of this shape may be this one."""
        if not self.any_lead or len(shape) < 4:
            return shape == self.stored_shape
        own = self.stored_shape
        return shape[-4:] == own[-4:] and math.prod(shape[:-4]) == math.prod(own[:-4])


def make_plans(rule: Rule, letters: str, shape: tuple[int, ...], blocks: Blocks) -> list[Plan]:
    """Returns the plans of a tensor with these axes, none if it cannot have this layout.

    Args:
        rule: The layout.
        letters: Axes of ``shape``; not used by layouts of matrices.
        shape: Of the plain tensor.
        blocks: Block sizes.
    """
    if min(blocks.c0, blocks.ni) < 1:
        return []
    if rule.family == "matrix":
        return _matrices(rule, shape, blocks)
    dims = dict(zip(letters, shape, strict=True))
    if rule.family in _FAMILIES:
        return _FAMILIES[rule.family](rule, letters, dims, blocks)
    if rule.grouped and blocks.groups > 1:
        return _grouped(rule, letters, dims, blocks)
    return _plain_blocks(rule, letters, dims, blocks)


def block_sizes(rule: Rule, stored_shape: tuple[int, ...], groups: int) -> Blocks | None:
    """Reads the block sizes off a stored shape; None if it does not have the layout's number of axes."""
    if rule.family == "rnn_bias":
        return Blocks(16, groups=groups) if len(stored_shape) == 1 else None
    axes = parse_axes(rule.axes)
    if rule.diagonal:
        if len(stored_shape) != len(axes) + 1 or stored_shape[-1] != stored_shape[-2]:
            return None
        stored_shape = stored_shape[:-1]
    if rule.family == "matrix":
        if len(stored_shape) < 4:
            return None
        return Blocks(stored_shape[-1], stored_shape[-2], groups)
    if len(stored_shape) != len(axes):
        return None
    inner = [place for place, axis in enumerate(axes[:-1]) if axis[0][1:] == "0"]
    return Blocks(stored_shape[-1], stored_shape[inner[0]] if inner else 16, groups)


def _block_of(rule: Rule, blocks: Blocks) -> dict[str, int]:
    """Block size of each axis: the one whose inner part comes last has C0."""
    names = [name for axis in parse_axes(rule.axes) for name in axis if name[1:] == "0"]
    return {name[0]: blocks.c0 if name == names[-1] else blocks.ni for name in names}


def _completed(rule: Rule, letters: str, dims: dict[str, int]) -> tuple[str, dict[str, int]] | None:
    """Adds the layout's axes that the tensor lacks, with length 1; None if the tensor has one that the layout lacks."""
    known = {name[0] for axis in parse_axes(rule.axes) for name in axis}
    if any(dims[letter] != 1 for letter in letters if letter not in known):
        return None
    missing = "".join(sorted(known - set(letters)))
    return missing + letters, {**dict.fromkeys(missing, 1), **dims}


def _key(letters: str, dims: dict[str, int], *more: object) -> tuple[object, ...]:
    return (*((letter, dims[letter]) for letter in letters if dims[letter] != 1), *more)


def _full_shape(letters: str, dims: dict[str, int]) -> tuple[int, ...]:
    return tuple(dims[letter] for letter in letters)


def _plain_blocks(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks) -> list[Plan]:
    completed = _completed(rule, letters, dims)
    if completed is None:
        return []
    names, sizes = completed
    layout = blocked(rule.axes, sizes, _block_of(rule, blocks))
    inside = {name[0] for name in layout.names}

    def find(stored: Array, plain: Array) -> Iterator[Pair]:
        if rule.diagonal:
            stored = _diagonal(stored)
        full = plain.reshape(_full_shape(names, sizes))
        outside = tuple(axis for axis, letter in enumerate(names) if letter not in inside)
        kept = "".join(letter for letter in names if letter in inside)
        return pairs(stored, layout, full.squeeze(outside) if outside else full, kept)

    shape = (*layout.shape, layout.shape[-1]) if rule.diagonal else layout.shape
    return [Plan(shape, find, _key(letters, dims), letters)]


def _diagonal(stored: Array) -> Array:
    """The last two axes' diagonal, as a view that can be written."""
    shape = stored.shape[:-1]
    strides = (*stored.strides[:-2], stored.strides[-2] + stored.strides[-1])
    return np.lib.stride_tricks.as_strided(stored, shape, strides)


def _grouped(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks) -> list[Plan]:
    """Filters of a grouped convolution: E groups share one pack, each on the pack's block diagonal."""
    completed = _completed(rule, letters, dims)
    groups, c0, ni = blocks.groups, blocks.c0, blocks.ni
    if completed is None or not dims["N"] or not dims["C"] or dims["N"] % groups:
        return []
    names, sizes = completed
    c, n = sizes["C"], sizes["N"] // groups
    together = min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, ni) // n), groups)
    packed = {**sizes, "G": -(-groups // together), "C": together * c, "N": together * n}
    layout = blocked(f"G.{rule.axes}", packed, {"C": c0, "N": ni})
    before = (slice(None),) * (names.index("N") + 1)

    def find(stored: Array, plain: Array) -> Iterator[Pair]:
        full = plain.reshape(1, *_full_shape(names, sizes))
        for group in range(groups):
            pack, place = divmod(group, together)
            piece = full[(*before, slice(group * n, group * n + n))]
            yield from pairs(stored, layout, piece, "G" + names, {"G": pack, "C": place * c, "N": place * n})

    return [Plan(layout.shape, find, _key(letters, dims, groups), f"{letters} in {groups} groups")]


def _small_channels(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks) -> list[Plan]:
    """FRACTAL_Z_C04: a pixel is four channels, and C0 / 4 pixels make one block."""
    completed = _completed(Rule("N C H W", (), "derived", ""), letters, dims)
    if completed is None or blocks.c0 % 4 or not 1 <= dims.get("C", 1) <= 4 or "HW" not in completed[0]:
        return []
    names, sizes = completed
    pixels = {"N": sizes["N"], "C": sizes["C"], "P": sizes["H"] * sizes["W"]}
    layout = blocked(rule.axes, pixels, {"P": blocks.c0 // 4, "N": blocks.ni, "C": 4})
    merged = names.replace("HW", "P")

    def find(stored: Array, plain: Array) -> Iterator[Pair]:
        return pairs(stored, layout, plain.reshape(_full_shape(merged, pixels)), merged)

    return [Plan(layout.shape, find, _key(letters, dims), letters)]


def _matrices(rule: Rule, shape: tuple[int, ...], blocks: Blocks) -> list[Plan]:
    """A batch of matrices; or one, of all but the last axis merged into the rows, or all but the first into columns."""
    if len(shape) < 2:
        return [_matrix(rule, (1, 1, math.prod(shape)), blocks)]
    lead = math.prod(shape[:-2])
    direct = _matrix(rule, (lead, shape[-2], shape[-1]), blocks, shape[:-2])
    if len(shape) == 2:
        return [direct]
    rows = _matrix(rule, (1, math.prod(shape[:-1]), shape[-1]), blocks)
    columns = _matrix(rule, (1, shape[0], math.prod(shape[1:])), blocks)
    return [direct, rows, columns]


def _matrix(rule: Rule, sizes: tuple[int, int, int], blocks: Blocks, lead: tuple[int, ...] = ()) -> Plan:
    layout = blocked(rule.axes, dict(zip("BHW", sizes, strict=True)), {"H": blocks.ni, "W": blocks.c0})

    def find(stored: Array, plain: Array) -> Iterator[Pair]:
        return pairs(stored, layout, plain.reshape(sizes), "BHW")

    label = f"{sizes[0]} of {sizes[1]}x{sizes[2]}" if sizes[0] != 1 else f"{sizes[1]}x{sizes[2]}"
    return Plan((*lead, *layout.shape[1:]), find, sizes, label, any_lead=True)


def _lstm(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks) -> list[Plan]:
    """C is the input and the state one after the other, N the four gates; each part is padded on its own."""
    completed = _completed(rule, letters, dims)
    if completed is None or dims.get("N", 0) % 4 or dims.get("N", 0) == 0 or dims.get("C", 0) < dims["N"] // 4:
        return []
    names, sizes = completed
    state = sizes["N"] // 4
    rows = [part for part in (sizes["C"] - state, state) if part]
    return [_parts(rule, names, sizes, blocks, rows=rows, gates=4)]


def _rnn(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks) -> list[Plan]:
    """As the LSTM's, but with any number of gates, and with or without the state below the input."""
    c, n = dims["C"], dims["N"]
    plans = []
    for gates in _gates(blocks):
        if n % gates or not c or not n:
            continue
        plans.append(_parts(rule, letters, dims, blocks, rows=[c], gates=gates))
        if c > n // gates:
            plans.append(_parts(rule, letters, dims, blocks, rows=[c - n // gates, n // gates], gates=gates))
    return plans


def _gates(blocks: Blocks) -> range:
    return range(blocks.groups, blocks.groups + 1) if blocks.groups > 1 else range(1, _MOST_GATES + 1)


def _parts(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks, *, rows: list[int], gates: int) -> Plan:
    """Plan of a matrix whose parts (rows: C; gates: equal parts of N) are padded one by one."""
    sizes = {"C": blocks.c0, "N": blocks.ni}
    width = dims["N"] // gates
    below = [-(-part // sizes["C"]) * sizes["C"] for part in rows]
    beside = -(-width // sizes["N"]) * sizes["N"]
    layout = blocked(rule.axes, {**dims, "C": sum(below), "N": gates * beside}, sizes)

    def find(stored: Array, plain: Array) -> Iterator[Pair]:
        full = plain.reshape(_full_shape(letters, dims))
        for number, part in enumerate(rows):
            for gate in range(gates):
                bounds = {
                    "C": slice(sum(rows[:number]), sum(rows[:number]) + part),
                    "N": slice(gate * width, gate * width + width),
                }
                piece = full[tuple(bounds.get(letter, slice(None)) for letter in letters)]
                starts = {"C": sum(below[:number]), "N": gate * beside}
                yield from pairs(stored, layout, piece, letters, starts)

    columns = ("gates", gates) if width % sizes["N"] and gates > 1 else ()
    split = ("split", rows[0]) if len(rows) > 1 and rows[0] % sizes["C"] else ()
    label = f"{gates} gates" + (f" of {'+'.join(map(str, rows))} inputs" if len(rows) > 1 else "")
    return Plan(layout.shape, find, _key(letters, dims, columns, split), label)


def _rnn_bias(rule: Rule, letters: str, dims: dict[str, int], blocks: Blocks) -> list[Plan]:
    n, plans = dims["N"], []
    for gates in _gates(blocks):
        if not n or n % gates:
            continue
        plans.append(_bias(n, gates, blocks.c0))
    return plans


def _bias(n: int, gates: int, block: int) -> Plan:
    width = n // gates
    beside = -(-width // block) * block
    layout = Blocked((("N1", "N0"),), {"N1": gates * beside // block, "N0": block})

    def find(stored: Array, plain: Array) -> Iterator[Pair]:
        for gate in range(gates):
            piece = plain[gate * width : gate * width + width]
            yield from pairs(stored, layout, piece, "N", {"N": gate * beside})

    key = ("gates", gates) if width % block and gates > 1 else ()
    return Plan(layout.shape, find, (n, key), f"{gates} gates")


_FAMILIES: dict[str, Callable[[Rule, str, dict[str, int], Blocks], list[Plan]]] = {
    "small_channels": _small_channels,
    "lstm": _lstm,
    "rnn": _rnn,
    "rnn_bias": _rnn_bias,
}

"""Units of work of a sweep: a few pairs, described by where their bytes lie, that anybody can be handed.

A unit is plain data (paths, offsets, dtypes, shapes and the names that the rows need), so it can be pickled and taken
by a thread, a process or a scheduler on another machine that sees the same files; ``compare.sweep.compare_unit`` does
the work. Nothing in a unit's rows depends on which other pairs are in it, or on who takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from compare.op_lookup import size_bytes
from compare.pairing import Pair
from compare.views import as_stored
from dumpers.errors import DataError
from dumpers.formats.extent import open_tensor

SMALL_BYTES = 256 << 10
"""Pairs below it (both sides together) are batched: handing over a thousand tiny ones one by one costs more than
comparing them. They are also compared by the calling thread itself: most of their cost is Python, and 4,000 pairs of
4 KB took 541 us each in one thread and 907 us in two, which wait for each other at the interpreter's lock."""

BATCH_BYTES = 4 << 20
BATCH_PAIRS = 64

LARGE_BYTES = 512 << 20
"""Pairs from this size on (both sides together) are swept by several threads at once."""

Look = Literal["suspicious", "all", "none"]
"""Which pairs that differ get a second look: those beyond :attr:`Figures.suspicious`, every one, or none."""


@dataclass(frozen=True)
class Wanted:
    """What is to be found out about every pair.

    Attributes:
        divergence: Whether the figure that needs more passes is wanted.
        details: Which pairs get a second look.
        threads: How many sweep one pair.
    """

    divergence: bool = True
    details: Look = "suspicious"
    threads: int = 1


@dataclass(frozen=True)
class Unit:
    """Pairs that are compared together.

    Attributes:
        numbers: Place of each pair in the list that was divided.
        pairs: The pairs.
        size: Bytes of both sides, the measure of the work.
        memory: Bytes of the arrays that are in memory while the unit is worked on.
        wanted: What is to be found out.
    """

    numbers: tuple[int, ...]
    pairs: tuple[Pair, ...]
    size: int
    memory: int
    wanted: Wanted = Wanted()

    @property
    def small(self) -> bool:
        """Whether it is a batch of small pairs (or one of them)."""
        return len(self.pairs) > 1 or self.size < SMALL_BYTES


def pair_bytes(pair: Pair) -> int:
    """Returns the bytes of both sides of a pair."""
    return size_bytes(pair.left) + size_bytes(pair.right)


def in_place(pair: Pair) -> bool:
    """Tells whether both sides are compared block by block where they lie in their files, so that neither is loaded."""
    if not as_stored(pair):
        return False
    try:
        for record in (pair.left, pair.right):
            file = None if record.source is None else open_tensor(record.source)
            if file is None:
                return False
            file.close()
    except DataError:  # said when it is compared
        return False
    return True


def units_of(pairs: Iterable[tuple[int, Pair]], wanted: Wanted) -> Iterator[Unit]:
    """Divides numbered pairs into units: small neighbours together, every other pair by itself.

    Args:
        pairs: Number and pair.
        wanted: Of every pair; only pairs of :data:`LARGE_BYTES` and more get more than one thread each.
    """
    alone = replace(wanted, threads=1)
    batch: list[tuple[int, Pair]] = []
    total = 0
    for number, pair in pairs:
        size = pair_bytes(pair)
        if size >= SMALL_BYTES:
            needed = 0 if in_place(pair) else size
            yield Unit((number,), (pair,), size, needed, wanted if size >= LARGE_BYTES else alone)
            continue
        if batch and (total + size > BATCH_BYTES or len(batch) >= BATCH_PAIRS):
            yield _batch(batch, total, alone)
            batch, total = [], 0
        batch.append((number, pair))
        total += size
    if batch:
        yield _batch(batch, total, alone)


def _batch(batch: list[tuple[int, Pair]], total: int, wanted: Wanted) -> Unit:
    numbers, pairs = zip(*batch, strict=True)
    return Unit(numbers, pairs, total, total, wanted)

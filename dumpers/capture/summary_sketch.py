"""A random projection of a tensor to 32 numbers, from which the distance of two tensors can be estimated.

The tensor's numbers (both parts of complex ones) are dealt in turn to 251 buckets, each with a random sign, and summed
there; the 251 sums are projected to 32 numbers by a matrix of random signs over sqrt(32). 251 is prime, so that no
column of a matrix falls into one bucket. Signs depend on the position and a fixed seed only, hence

    E |P x - P y|^2 = |x - y|^2    and    E (P x . P y) = x . y    over the seeds.

The square of an estimated distance has a standard deviation of about sqrt(2/32 + 2/251) = 0.27 of it, the distance
itself of about 0.13. A single element that differs is found exactly.

Signs are laid out as ``table[row, bucket] * turn[group, bucket]``, one group being 64 rows of 251: the table stays in
the cache, and two groups never add up in step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Dict

import numpy as np

from .summary_hash import random_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SIZE = 32
"""Numbers of a projection."""

_BUCKETS = 251
_ROWS = 64
GROUP = _BUCKETS * _ROWS
"""Numbers of one group; :meth:`Projection.add` wants whole groups, except at the end."""

_KEPT = 256
"""Groups whose signs are kept, for tensors of up to four million numbers; those of further groups are made anew."""

_SEEDS = {"table": 0x736B6531, "turn": 0x736B6532, "matrix": 0x736B6533}

_made: Dict[str, Floats] = {}


def signs(what: str, first: int, count: int) -> Floats:
    """Returns +1 and -1 number ``first`` to ``first + count`` of one of the three fixed streams."""
    top = random_words(_SEEDS[what], first, count) >> np.uint64(63)
    return 1.0 - 2.0 * top.astype(np.float64)


def _fixed(what: str, rows: int) -> Floats:
    if what not in _made:
        _made[what] = signs(what, 0, rows * _BUCKETS).reshape(rows, _BUCKETS)
    return _made[what]


def _turns(first: int, end: int) -> Floats:
    return signs("turn", first * _BUCKETS, (end - first) * _BUCKETS).reshape(end - first, _BUCKETS)


class Projection:
    """Projects a tensor that comes block by block."""

    def __init__(self) -> None:
        self._buckets = np.zeros(_BUCKETS)
        self._groups = 0

    def add(self, block: Floats) -> None:
        """Adds the next numbers, all finite: some whole groups, or whatever is left at the end."""
        table = _fixed("table", _ROWS)
        groups, rest = divmod(len(block), GROUP)
        if groups:
            whole = block[: groups * GROUP].reshape(groups, _ROWS, _BUCKETS)
            self._turn(np.einsum("grb,rb->gb", whole, table))
        if rest:
            self._turn(_row_sums(block[groups * GROUP :], table).reshape(1, _BUCKETS))

    def _turn(self, sums: Floats) -> None:
        """Adds the sums of the next groups with the signs that tell groups apart."""
        first, end = self._groups, self._groups + len(sums)
        self._groups = end
        turns = _fixed("turn", _KEPT)[first:end] if end <= _KEPT else _turns(first, end)
        self._buckets += np.add.reduce(sums * turns, axis=0)

    def numbers(self) -> Floats:
        """Returns the 32 numbers of all that was added; infinite where float64 does not reach."""
        return _projected(self._buckets)


def project_small(values: Floats) -> Floats:
    """Returns the 32 numbers of a tensor of less than a group, the same bits as :class:`Projection` gives."""
    # Added to zero as there, which leaves no negative zero.
    return _projected(_row_sums(values, _fixed("table", _ROWS)) * _fixed("turn", _KEPT)[0] + 0.0)


def _row_sums(values: Floats, table: Floats) -> Floats:
    """Sums of less than a group of numbers, by bucket."""
    rows = -(-len(values) // _BUCKETS)
    padded = np.zeros(rows * _BUCKETS)
    padded[: len(values)] = values
    found: Floats
    if rows == 1:
        found = np.multiply(padded, table[0], out=padded)
        return found
    found = np.einsum("rb,rb->b", padded.reshape(rows, _BUCKETS), table[:rows])
    return found


def _projected(buckets: Floats) -> Floats:
    # Not by a matrix product: its rounding depends on the library behind NumPy.
    found: Floats = np.add.reduce(_fixed("matrix", SIZE) * buckets, axis=1) / math.sqrt(SIZE)
    return found

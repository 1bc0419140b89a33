"""Where a kernel leaves its sums: positions in one array of float64 and one of int64."""

from __future__ import annotations

from typing import Final

SX: Final = 0
"""Sum of the left numbers; SY of the right ones."""
SY: Final = 1
XX: Final = 2
"""Sum of squares on the left; YY on the right, XY of the products."""
YY: Final = 3
XY: Final = 4
DD: Final = 5
"""Sum of squared differences; SD of absolute ones."""
SD: Final = 6
REL: Final = 7
"""Sum of ``|x - y| / |y|`` over the numbers with ``|y|`` above the threshold; REL_TOP is the greatest of them."""
REL_TOP: Final = 8
TOP: Final = 9
"""Greatest ``|x - y|``."""
FLOATS: Final = 10

FINITE: Final = 0
"""Numbers finite on both sides."""
DIFFERING: Final = 1
"""Elements that differ, non-finite ones included."""
ABOVE: Final = 2
"""Numbers with ``|y|`` above the threshold of the relative errors."""
NAN_LEFT: Final = 3
NAN_RIGHT: Final = 4
INF_LEFT: Final = 5
INF_RIGHT: Final = 6
MISMATCHES: Final = 7
"""Elements not finite on one side at least, and not the same on the other."""
FIRST_MISMATCH: Final = 8
"""Index of the first of them, -1 without any; TOP_AT of the first element with the greatest difference."""
TOP_AT: Final = 9
TOP_BITS: Final = 10
"""Greatest difference of two 64-bit integers, as the bits of an unsigned number; TOP_CARRY is its bit 64."""
TOP_CARRY: Final = 11
AT_ZERO: Final = 12
"""Numbers that differ where ``|y|`` is at most the threshold of the relative errors."""
INTEGERS: Final = 13

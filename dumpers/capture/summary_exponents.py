"""How many numbers of a tensor have each binary exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


class Histogram:
    """Counts exponents block by block. The bits of a float have them; integers are looked at as float64.

    Args:
        least: Exponent of the smallest normal number of the stored type, None for integers.
    """

    def __init__(self, least: Optional[int]) -> None:
        self._least = least
        self._counts: Optional[NDArray[np.int64]] = None
        self._bias = 0
        self._of = 0
        self._zeros = 0

    def add(self, block: Array, zeros: int, replaced: int) -> None:
        """Adds finite numbers.

        Args:
            block: float32, float64 or integers.
            zeros: Zeros among them.
            replaced: Further zeros, which stand for something else and are not counted.
        """
        places, bins, self._bias = biased_exponents(block)
        found = np.bincount(places, minlength=bins)
        found[0] -= zeros + replaced
        self._counts = found if self._counts is None else self._counts + found
        self._of += len(block) - replaced
        self._zeros += zeros

    def result(self) -> Optional[Dict[str, Any]]:
        """As :func:`histogram` says; None if nothing was counted."""
        if self._counts is None:
            return None
        return histogram(self._counts, self._of, self._zeros, self._least, self._bias)


def biased_exponents(block: Array) -> Tuple[NDArray[np.unsignedinteger[Any]], int, int]:
    """Returns the exponent bits of each number, how many values they may have, and the bias that is in them."""
    if block.dtype.kind != "f":
        block = block.astype(np.float64)
    if block.dtype == np.float32:
        return np.right_shift(block.view(np.uint32), np.uint32(23)).astype(np.uint8), 256, 127  # the sign goes
    places = np.right_shift(block.view(np.uint64), np.uint64(52)).astype(np.uint16)
    np.bitwise_and(places, np.uint16(0x7FF), out=places)
    return places, 2048, 1023


def histogram(
    counts: NDArray[np.int64], of: int, zeros: int, least: Optional[int], bias: int
) -> Optional[Dict[str, Any]]:
    """Returns ``of``, ``zero``, ``subnormal``, ``first`` and ``counts``; None if nothing was looked at.

    Args:
        counts: Of each biased exponent, zeros taken out.
        of: Numbers that were looked at.
        zeros: Zeros among them.
        least: Exponent of the smallest normal number of the stored type, None for integers.
        bias: What is in the biased exponents.
    """
    if not of:
        return None
    lowest = 1 if least is None else least + bias
    subnormal = int(counts[:lowest].sum())
    used = np.flatnonzero(counts[lowest:])
    kept = counts[lowest + used[0] : lowest + used[-1] + 1].tolist() if len(used) else []
    first = lowest + int(used[0]) - bias if len(used) else None
    return {"of": of, "zero": zeros, "subnormal": subnormal, "first": first, "counts": kept}

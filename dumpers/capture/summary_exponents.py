"""How many numbers of a tensor have each binary exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

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
        if block.dtype.kind != "f":
            block = block.astype(np.float64)
        if block.dtype == np.float32:
            places = np.right_shift(block.view(np.uint32), np.uint32(23)).astype(np.uint8)  # that leaves the sign out
            found = np.bincount(places, minlength=256)
            self._bias = 127
        else:
            places = np.right_shift(block.view(np.uint64), np.uint64(52)).astype(np.uint16)
            np.bitwise_and(places, np.uint16(0x7FF), out=places)
            found = np.bincount(places, minlength=2048)
            self._bias = 1023
        found[0] -= zeros + replaced
        self._counts = found if self._counts is None else self._counts + found
        self._of += len(block) - replaced
        self._zeros += zeros

    def result(self) -> Optional[Dict[str, Any]]:
        """Returns ``of``, ``zero``, ``subnormal``, ``first`` and ``counts``; None if nothing was counted."""
        if self._counts is None or not self._of:
            return None
        least = 1 if self._least is None else self._least + self._bias
        subnormal = int(self._counts[:least].sum())
        used = np.flatnonzero(self._counts[least:])
        counts = self._counts[least + used[0] : least + used[-1] + 1].tolist() if len(used) else []
        first = least + int(used[0]) - self._bias if len(used) else None
        return {"of": self._of, "zero": self._zeros, "subnormal": subnormal, "first": first, "counts": counts}

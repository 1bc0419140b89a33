"""Strings and raw data of unknown type: compared by bytes, no figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import BLOCK, flat

if TYPE_CHECKING:
    from numpy.typing import NDArray


def differing_elements(left: NDArray[np.generic], right: NDArray[np.generic]) -> int:
    """Counts elements whose bytes differ; text is taken as UTF-8, so ``"a"`` equals ``b"a"``."""
    a, b = flat(left), flat(right)
    found = 0
    for start in range(0, left.size, BLOCK):
        found += int(np.count_nonzero(~same_bytes(a[start : start + BLOCK], b[start : start + BLOCK])))
    return found


def same_bytes(one: NDArray[np.generic], two: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Tells element by element whether the bytes are the same."""
    pairs = zip(one.tolist(), two.tolist(), strict=True)
    return np.fromiter((_as_bytes(x) == _as_bytes(y) for x, y in pairs), np.bool_, count=one.size)


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")

"""The rules that people use now, on the same dumps: the first output in the device's order that a rule dislikes.

``cosine 0.98`` and ``cosine 0.99`` are the thresholds of the users' guides, ``allclose`` is NumPy's with rtol 1e-3 and
atol 1e-5. A NaN has no cosine, and ``nan < 0.98`` is false: as in the scripts, it is no finding for those two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dumpers.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from compare.pairing import Pairing

RULES = ("cosine 0.98", "cosine 0.99", "allclose")


def first_disliked(pairing: Pairing) -> Mapping[str, str]:
    """Returns for each rule the device's op whose output it dislikes first, empty text for none."""
    found = dict.fromkeys(RULES, "")
    for pair in pairing.pairs:
        if pair.io != "output" or pair.steps or all(found.values()):
            continue
        try:
            left, right = pair.left.load(), pair.right.load()
        except DataError:
            continue
        if left.size != right.size or left.dtype.kind not in "fiuV" or not left.size:
            continue
        a, b = left.reshape(-1).astype(np.float64), right.reshape(-1).astype(np.float64)
        for rule, wrong in _rules(a, b).items():
            found[rule] = found[rule] or (pair.left.op if wrong else "")
    return found


def _rules(a: NDArray[np.float64], b: NDArray[np.float64]) -> dict[str, bool]:
    with np.errstate(all="ignore"):
        cosine = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b) or np.nan)
    return {
        "cosine 0.98": cosine < 0.98,
        "cosine 0.99": cosine < 0.99,
        "allclose": not np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True),
    }

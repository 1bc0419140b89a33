"""Two curves as lines of text, in characters that every terminal and locale has."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEFT, RIGHT, BOTH, BROKEN = "o", "x", "*", "!"
WIDTH, HEIGHT = 64, 12


def draw_curves(left: Sequence[float], right: Sequence[float], steps: tuple[int, int]) -> list[str]:
    """Returns the picture: ``o`` left, ``x`` right, ``*`` both in one place, ``!`` a value that is not finite.

    Args:
        left: Values in order of the steps; curves longer than the picture are averaged by stretches.
        right: As many.
        steps: First and last step, for the axis.
    """
    width = min(WIDTH, len(left))
    columns = [(_mean(left, at, width), _mean(right, at, width)) for at in range(width)]
    finite = [value for pair in columns for value in pair if math.isfinite(value)]
    if not finite:
        return ["no finite value to draw"]
    low, high = min(finite), max(finite)
    grid = [[" "] * width for _ in range(HEIGHT)]
    for at, pair in enumerate(columns):
        for mark, value in zip((LEFT, RIGHT), pair, strict=True):
            row = 0 if not math.isfinite(value) else _row(value, low, high)
            here = mark if math.isfinite(value) else BROKEN
            grid[row][at] = (
                here if grid[row][at] in (" ", here) else BROKEN if BROKEN in (here, grid[row][at]) else BOTH
            )
    labels = [f"{high:.6g}", *[""] * (HEIGHT - 2), f"{low:.6g}"]
    room = max(map(len, labels))
    lines = [f"{label:>{room}} |{''.join(row).rstrip()}" for label, row in zip(labels, grid, strict=True)]
    first, last = str(steps[0]), str(steps[1])
    axis = first if len(left) == 1 else first + last.rjust(max(width - len(first), len(last) + 1))
    return [*lines, f"{'':>{room}} +{'-' * width}", f"{'':>{room}}  {axis}", "o left, x right, * both, ! not finite"]


def _mean(values: Sequence[float], at: int, width: int) -> float:
    part = values[at * len(values) // width : (at + 1) * len(values) // width]
    return math.fsum(part) / len(part) if all(map(math.isfinite, part)) else math.nan


def _row(value: float, low: float, high: float) -> int:
    share = 0.5 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)
    return round((1 - share) * (HEIGHT - 1))

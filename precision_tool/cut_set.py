"""Which few tensors of a step tell most about where two runs part.

Whoever records some tensors only, and finds the first that differs, has still to suspect each op that leads to it and
to no earlier recorded tensor. These are the tensor's *region*; ops that lead to no recorded tensor are unseen, and as
bad as a region of all ops. Greedily, the region that costs most (the sum of suspects over its ops) is split by the
tensor that saves most of that for its bytes, as long as the budget lasts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_CANDIDATES: Final = 24
"""Ops of a region that are tried, spread evenly; each is searched once through its region."""

_OVERHEAD_BYTES: Final = 1024
"""What a tensor costs beside its values: its line in the manifest, its place in a pack."""


@dataclass(frozen=True)
class CutSet:
    """The chosen tensors and what they leave open.

    Attributes:
        chosen: Positions of the ops whose outputs are recorded, rising.
        size_bytes: Of their values.
        regions: Number of ops that a first difference leaves, by chosen op in the same order.
        unseen: Number of ops that lead to no chosen tensor.
    """

    chosen: tuple[int, ...]
    size_bytes: int
    regions: tuple[int, ...]
    unseen: int


def choose_cut(inputs: Sequence[Sequence[int]], sizes: Mapping[int, int], budget: int) -> CutSet:
    """Chooses within a budget.

    Args:
        inputs: Of each op, in order of execution, the positions of the ops that it reads; all of them smaller.
        sizes: Bytes of the recorded outputs, by position; ops that are not in it cannot be chosen.
        budget: Most bytes of values in all.

    Returns:
        The cut set; the same for the same arguments.
    """
    chosen: dict[int, int] = {}
    left = budget
    waiting = [(0, 0, False, list(range(len(inputs))))] if inputs else []
    number = 0
    while waiting:
        _, _, seen, region = heapq.heappop(waiting)
        found = _best_split(inputs, sizes, region, left, seen=seen)
        if found is None:
            continue
        position, above = found
        chosen[position] = sizes[position]
        left -= sizes[position]
        rest = [op for op in region if op not in above]
        for part, part_seen in ((sorted(above), True), (rest, seen)):
            number += 1
            cost = len(part) * (len(part) if part_seen else len(inputs))
            heapq.heappush(waiting, (-cost, number, part_seen, part))
    return _measured(inputs, chosen)


def _best_split(
    inputs: Sequence[Sequence[int]], sizes: Mapping[int, int], region: Sequence[int], budget: int, *, seen: bool
) -> tuple[int, set[int]] | None:
    """Returns the op that saves most suspects for its bytes, and what it splits off: itself and its region."""
    possible = [op for op in region if sizes.get(op, budget + 1) <= budget]
    if not possible:
        return None
    members = set(region)
    best: tuple[float, int, set[int]] | None = None
    for index in sorted({round(k * (len(possible) - 1) / (_CANDIDATES - 1)) for k in range(_CANDIDATES)}):
        position = possible[index]
        above = _ancestors(inputs, position, members)
        saved = 2 * (len(region) - len(above)) if seen else len(inputs) + 1 - len(above)
        gain = len(above) * saved / (sizes[position] + _OVERHEAD_BYTES)
        if gain > 0 and (best is None or gain > best[0]):
            best = (gain, position, above)
    return None if best is None else (best[1], best[2])


def _ancestors(inputs: Sequence[Sequence[int]], start: int, members: set[int]) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        for source in inputs[waiting.pop()]:
            if source in members and source not in found:
                found.add(source)
                waiting.append(source)
    return found


def _measured(inputs: Sequence[Sequence[int]], chosen: Mapping[int, int]) -> CutSet:
    """Takes the regions exactly: each op belongs to the first chosen op that it leads to."""
    owner = [-1] * len(inputs)
    for position in sorted(chosen):
        waiting = [position]
        while waiting:
            op = waiting.pop()
            if owner[op] < 0:
                owner[op] = position
                waiting.extend(inputs[op])
    order = tuple(sorted(chosen))
    counts = dict.fromkeys(order, 0)
    for position in owner:
        if position >= 0:
            counts[position] += 1
    return CutSet(order, sum(chosen.values()), tuple(counts[position] for position in order), owner.count(-1))

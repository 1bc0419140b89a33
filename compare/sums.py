"""The sums behind every figure, taken in one pass over two tensors, over the numbers that are finite on both sides.

The compiled kernels add whole blocks in float64. What they cannot do well is noticed afterwards and taken again:
squares that leave the range of float64 (with powers of two taken out), sums that cancel (exactly), spreads that are
small against the mean (about the mean).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compare import careful
from compare.onepass.decode import numbers_of
from compare.onepass.state import (
    ABOVE,
    AT_ZERO,
    DD,
    DIFFERING,
    FINITE,
    FIRST_MISMATCH,
    FLOATS,
    INF_LEFT,
    INF_RIGHT,
    INTEGERS,
    MISMATCHES,
    NAN_LEFT,
    NAN_RIGHT,
    REL,
    REL_TOP,
    SD,
    SX,
    SY,
    TOP,
    TOP_AT,
    TOP_BITS,
    TOP_CARRY,
    XX,
    XY,
    YY,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.sides import Side

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]
    State = tuple[Floats, Counts]

ZERO: Final = float(np.finfo(np.float64).eps)
"""Reference values up to this one count as zero in the relative errors, as the users' columns have always had it."""

CHUNK_BYTES: Final = 16 << 20
"""Bytes of one side swept by one call; sums of the chunks are added in order, so threads do not change a result."""

Run = Callable[[Callable[[tuple[int, int]], Any], Iterable[tuple[int, int]]], Iterable[Any]]
"""Like ``map``: that of a thread pool sweeps the chunks of a large tensor side by side."""

_SAFE: Final = (1e-140, 1e140)
_TINY: Final = 1e-300
"""A range below has no inverse that float64 can hold."""

_CANCELS: Final = 1e-3
"""A sum below this share of what its terms could add up to is taken again, exactly."""

_SPREAD: Final = 1e-2
"""A variance below this share of the mean square is taken again, about the mean."""


@dataclass(slots=True)
class Moments:
    """Mean and spread of one side, merged block by block (no cancellation however far the mean is from zero)."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Floats) -> None:
        """Merges a block of finite values."""
        n = values.size
        mean = float(values.sum()) / n
        centred = values - mean
        spread = float(np.multiply(centred, centred, out=centred).sum())
        total = self.count + n
        shift = mean - self.mean
        self.spread += spread + shift * shift * (self.count * n / total)
        self.mean += shift * (n / total)
        self.count = total
        self.low = min(self.low, float(np.min(values)))
        self.high = max(self.high, float(np.max(values)))

    @property
    def deviation(self) -> float:
        """Population standard deviation."""
        return math.sqrt(self.spread / self.count) if self.count else math.nan


@dataclass(slots=True)
class Sums:
    """Counts by element, sums over the numbers (both parts of a complex one) that are finite on both sides.

    Attributes:
        scale: Powers of two taken out of the sums: of the left side, the right one, the distances.
        finite: Numbers; two for each complex element.
    """

    scale: careful.Scale = careful.PLAIN
    finite: int = 0
    differing: int = 0
    nan_left: int = 0
    nan_right: int = 0
    inf_left: int = 0
    inf_right: int = 0
    mismatches: int = 0
    first_mismatch: int | None = None
    dot: float = 0.0
    left_square: float = 0.0
    right_square: float = 0.0
    distance_square: float = 0.0
    distance: float = 0.0
    largest: float = 0.0
    largest_exact: int = 0
    largest_at: int | None = None
    relative: float = 0.0
    relative_mean: float = 0.0
    relative_largest: float = 0.0
    relative_count: int = 0
    differing_at_zero: int = 0
    left: Moments = field(default_factory=Moments)
    right: Moments = field(default_factory=Moments)


def accumulate(left: Side, right: Side, run: Run = map, *, relative: bool = True) -> Sums:
    """Returns the sums of two sides with equally many elements.

    Args:
        left: Under test.
        right: Reference.
        run: How the chunks of large tensors are swept.
        relative: Whether the relative errors are wanted; without them the sums of float32 take half as long.

    Raises:
        DataError: a file became shorter while it was read.
    """
    floats, counts = _sweep(left, right, run, relative)
    scale = _needed_scale(left, right, floats, counts)
    if scale != careful.PLAIN:
        careful.add_scaled(left, right, scale, floats, counts)
    sums = Sums(
        scale,
        int(counts[FINITE]),
        int(counts[DIFFERING]),
        int(counts[NAN_LEFT]),
        int(counts[NAN_RIGHT]),
        int(counts[INF_LEFT]),
        int(counts[INF_RIGHT]),
        int(counts[MISMATCHES]),
        int(counts[FIRST_MISMATCH]) if counts[FIRST_MISMATCH] >= 0 else None,
        float(floats[XY]),
        float(floats[XX]),
        float(floats[YY]),
        float(floats[DD]),
        float(floats[SD]),
        float(floats[TOP]),
        (int(counts[TOP_CARRY]) << 64) + (int(counts[TOP_BITS]) % (1 << 64)),
        int(counts[TOP_AT]) if counts[TOP_AT] >= 0 else None,
        float(floats[REL]),
        0.0,
        float(floats[REL_TOP]),
        int(counts[ABOVE]),
        int(counts[AT_ZERO]),
    )
    if sums.finite:
        within = math.isfinite(sums.relative) or math.isinf(sums.relative_largest)
        sums.relative_mean = sums.relative / sums.finite if within else careful.mean_relative(left, right, sums.finite)
        _refine(left, right, sums, floats)
    return sums


def _refine(left: Side, right: Side, sums: Sums, floats: Floats) -> None:
    """Takes again what cancelled, and fills in the moments."""
    n = sums.finite
    limit = min(_CANCELS, 0.01 / math.sqrt(n))
    totals = [float(floats[SX]), float(floats[SY])]
    same = sums.differing == 0 and left.dtype == right.dtype
    for number, square in enumerate((sums.left_square, sums.right_square)):
        if abs(totals[number]) < limit * math.sqrt(n * square):
            again = not (number and same)
            totals[number] = careful.exact_total(left, right, number, sums.scale) if again else totals[0]
    if abs(sums.dot) < limit * math.sqrt(sums.left_square) * math.sqrt(sums.right_square):
        sums.dot = careful.exact_dot(left, right, sums.scale)
    sums.left = _moments(left, right, 0, totals[0], sums)
    sums.right = sums.left if same else _moments(left, right, 1, totals[1], sums)


def _moments(left: Side, right: Side, number: int, total: float, sums: Sums) -> Moments:
    n = sums.finite
    square = sums.right_square if number else sums.left_square
    mean = total / n
    spread = square - total * mean
    if spread < _SPREAD * square:
        mean, spread = careful.centred(left, right, number, sums.scale)
    return Moments(n, mean, spread)


def _sweep(left: Side, right: Side, run: Run, relative: bool) -> State:
    if left.code is None or right.code is None:
        return careful.sweep(left, right)
    chunks = _chunks(left, right)
    if len(chunks) == 1:
        return _chunk(left, right, chunks[0], relative)
    total = empty_state()
    if left.watch or right.watch:
        run = map  # who watches sees the blocks in order
    for state in run(lambda chunk: _chunk(left, right, chunk, relative), chunks):
        _merge(total, state)
    return total


def _chunks(left: Side, right: Side) -> list[tuple[int, int]]:
    step = CHUNK_BYTES // max(left.dtype.itemsize, right.dtype.itemsize)
    return [(begin, min(begin + step, left.count)) for begin in range(0, left.count, step)]


def divergence(left: Side, right: Side, run: Run = map) -> float:
    """Returns the Kullback-Leibler divergence of both sides, each scaled to 0..1 by its own range, floored, normalised.

    With p and q not yet divided by their sums P and Q it is sum(p ln(p/q)) / P + ln(Q/P), which takes one pass once
    both ranges are known.
    """
    if left.code is None or right.code is None:
        return careful.divergence(left, right)
    from compare.onepass import drive, shares

    chunks = _chunks(left, right)
    ranges = np.array([math.inf, -math.inf, math.inf, -math.inf, 0, 0, 0])
    for part in run(lambda chunk: _divergence_chunk(left, right, drive.RANGE, chunk, ranges), chunks):
        ranges[[0, 2]] = np.minimum(ranges[[0, 2]], part[[0, 2]])
        ranges[[1, 3]] = np.maximum(ranges[[1, 3]], part[[1, 3]])
    low_x, high_x, low_y, high_y = ranges[: shares.P].tolist()
    if any(span != 0 and not _TINY < span < math.inf for span in (high_x - low_x, high_y - low_y)):
        return careful.divergence(left, right)
    total = np.zeros(shares.FIELDS)
    for part in run(lambda chunk: _divergence_chunk(left, right, drive.SHARE, chunk, ranges), chunks):
        total += part
    return careful.divergence_of(float(total[shares.P]), float(total[shares.Q]), float(total[shares.CROSS]))


def _divergence_chunk(left: Side, right: Side, task: int, chunk: tuple[int, int], ranges: Floats) -> Floats:
    from compare.onepass import drive

    fields, unused = ranges.copy(), np.zeros(INTEGERS, np.int64)
    status = drive.sweep_double(left.spec, right.spec, task, *chunk, *_rooms.of("double"), fields, unused)
    if status != drive.DONE:
        raise (left if status == drive.LEFT_SHORT else right).cut_short()
    return fields


def empty_state() -> State:
    """Returns sums of nothing."""
    counts = np.zeros(INTEGERS, np.int64)
    counts[FIRST_MISMATCH] = counts[TOP_AT] = -1
    return np.zeros(FLOATS), counts


def _merge(total: State, state: State) -> None:
    """Adds the state of the next chunk."""
    floats, counts = total
    more_floats, more_counts = state
    tops = (floats[TOP], counts[TOP_CARRY], counts[TOP_BITS : TOP_BITS + 1].view(np.uint64)[0])
    new_tops = (more_floats[TOP], more_counts[TOP_CARRY], more_counts[TOP_BITS : TOP_BITS + 1].view(np.uint64)[0])
    greatest = max(floats[REL_TOP], more_floats[REL_TOP])
    first = counts[FIRST_MISMATCH] if counts[FIRST_MISMATCH] >= 0 else more_counts[FIRST_MISMATCH]
    floats[: REL + 1] += more_floats[: REL + 1]
    floats[REL_TOP] = greatest
    counts[: MISMATCHES + 1] += more_counts[: MISMATCHES + 1]
    counts[FIRST_MISMATCH] = first
    counts[AT_ZERO] += more_counts[AT_ZERO]
    if (counts[TOP_AT] < 0 <= more_counts[TOP_AT]) or new_tops[1:] > tops[1:] or new_tops[0] > tops[0]:
        floats[TOP] = more_floats[TOP]
        counts[TOP_AT : TOP_CARRY + 1] = more_counts[TOP_AT : TOP_CARRY + 1]


class _Rooms(threading.local):
    """Buffers of one thread; a kernel is never called with those of another."""

    def __init__(self) -> None:
        self._rooms: dict[str, tuple[Any, ...]] = {}

    def of(self, numbers: str) -> tuple[Any, ...]:
        if numbers not in self._rooms:
            from compare.onepass.drive import RAW, STEP

            raw = (_aligned(RAW, np.uint8), _aligned(RAW, np.uint8))
            if numbers == "single":
                made = (*raw, *(_aligned(STEP, np.float32) for _ in range(4)), _aligned(STEP, np.int32))
            elif numbers == "double":
                wide = [_aligned(STEP, np.float64) for _ in range(4)]
                made = (*raw, _aligned(STEP, np.float32), *wide, _aligned(STEP, np.int32))
            else:
                made = (*raw, _aligned(STEP, np.int64), _aligned(STEP, np.int64))
            self._rooms[numbers] = made
        return self._rooms[numbers]


_rooms = _Rooms()


def _aligned(count: int, dtype: type[np.generic]) -> NDArray[np.generic]:
    """Returns room that begins at a cache line: copying there is what reading a cached file costs."""
    size = count * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype)


def _chunk(left: Side, right: Side, chunk: tuple[int, int], relative: bool) -> State:
    from compare.onepass.drive import RAW

    state = empty_state()
    add, rooms = _adder(left, right, state, relative)
    begin, end = chunk
    if not (left.watch or right.watch):
        add(begin, end)
        return state
    step = RAW // max(left.dtype.itemsize, right.dtype.itemsize)  # as the kernel takes them, so sums stay the same
    for start in range(begin, end, step):
        stop = min(start + step, end)
        add(start, stop)
        for side, room in zip((left, right), rooms, strict=False):
            if side.watch:
                side.watch(room[: (stop - start) * side.dtype.itemsize].data)
    return state


def _adder(left: Side, right: Side, state: State, relative: bool) -> tuple[Callable[[int, int], None], tuple[Any, ...]]:
    """Returns what adds a range of elements, and the buffers, of which the first two then hold its last block."""
    from compare.onepass import drive

    if left.code is None or right.code is None:
        raise TypeError("no kernel for these elements")
    numbers = numbers_of(left.code, right.code)
    rooms = _rooms.of(numbers)
    unsigned = (left.dtype == np.uint64, right.dtype == np.uint64)
    one, two = left.spec, right.spec

    def add(begin: int, end: int) -> None:
        if numbers == "single":
            status = drive.sweep_single(one, two, relative, begin, end, *rooms, *state)
        elif numbers == "double":
            status = drive.sweep_double(one, two, drive.ADD, begin, end, *rooms, *state)
        else:
            status = drive.sweep_integer(one, two, begin, end, *unsigned, *rooms, *state)
        if status != drive.DONE:
            raise (left if status == drive.LEFT_SHORT else right).cut_short()

    return add, rooms


def _needed_scale(left: Side, right: Side, floats: Floats, counts: Counts) -> careful.Scale:
    """Tells which powers of two have to be taken out of the values; none for nearly all tensors."""
    low, high = _SAFE
    if not counts[FINITE]:
        return careful.PLAIN
    squares_safe = low <= floats[XX] <= high and low <= floats[YY] <= high
    if squares_safe and (low <= floats[DD] <= high or floats[TOP] == 0):
        return careful.PLAIN
    sizes = careful.magnitudes(left, right)
    safe = all(low <= floats[at] <= high or size == 0 for at, size in zip((XX, YY), sizes, strict=True))
    if safe and (low <= floats[DD] <= high or floats[TOP] == 0):
        return careful.PLAIN
    return careful.scale_for(sizes, float(floats[TOP]))

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
from functools import partial
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

_NOTHING: Final = (np.zeros(FLOATS), np.array([-(at in (FIRST_MISMATCH, TOP_AT)) for at in range(INTEGERS)], np.int64))
"""Sums of nothing: positions are -1."""

_CHECKED: Final = 1 << 22
"""Bytes between two calls of a side's checksum where Python takes it: threads wait for each other at every call."""

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
    state = _sweep(left, right, run, relative)
    counts: list[int] = state[1].tolist()
    floats: list[float] = state[0].tolist()
    scale = _needed_scale(left, right, floats) if counts[FINITE] else careful.PLAIN
    if scale != careful.PLAIN:
        careful.add_scaled(left, right, scale, *state)
        floats, counts = state[0].tolist(), state[1].tolist()
    sums = Sums(
        scale,
        counts[FINITE],
        counts[DIFFERING],
        counts[NAN_LEFT],
        counts[NAN_RIGHT],
        counts[INF_LEFT],
        counts[INF_RIGHT],
        counts[MISMATCHES],
        counts[FIRST_MISMATCH] if counts[FIRST_MISMATCH] >= 0 else None,
        floats[XY],
        floats[XX],
        floats[YY],
        floats[DD],
        floats[SD],
        floats[TOP],
        (counts[TOP_CARRY] << 64) + counts[TOP_BITS] % (1 << 64),
        counts[TOP_AT] if counts[TOP_AT] >= 0 else None,
        floats[REL],
        0.0,
        floats[REL_TOP],
        counts[ABOVE],
        counts[AT_ZERO],
    )
    if sums.finite:
        within = math.isfinite(sums.relative) or math.isinf(sums.relative_largest)
        sums.relative_mean = sums.relative / sums.finite if within else careful.mean_relative(left, right, sums.finite)
        _refine(left, right, sums, floats[SX], floats[SY], run)
    return sums


def _refine(left: Side, right: Side, sums: Sums, total_x: float, total_y: float, run: Run) -> None:
    """Takes again what cancelled, and fills in the moments."""
    n = sums.finite
    limit = min(_CANCELS, 0.01 / math.sqrt(n))
    same = sums.differing == 0 and left.dtype == right.dtype
    cancelled = (
        abs(total_x) < limit * math.sqrt(n * sums.left_square),
        abs(total_y) < limit * math.sqrt(n * sums.right_square),
        abs(sums.dot) < limit * math.sqrt(sums.left_square) * math.sqrt(sums.right_square),
    )
    if any(cancelled):
        exact = _exact_sums(left, right, sums.scale, cancelled, run)
        total_x = exact[0] if cancelled[0] else total_x
        total_y = exact[1] if cancelled[1] else total_y
        sums.dot = exact[2] if cancelled[2] else sums.dot
    if same:
        total_y = total_x
    sums.left = _moments(left, right, 0, total_x, sums)
    sums.right = sums.left if same else _moments(left, right, 1, total_y, sums)


def _exact_sums(
    left: Side, right: Side, scale: careful.Scale, wanted: tuple[bool, bool, bool], run: Run
) -> tuple[float, ...]:
    """Those wanted of the two totals and the dot product as if without rounding; by kernels where these can."""
    if scale != careful.PLAIN or left.code is None or right.code is None or left.count <= careful.EXACT:
        return careful.exact_sums(left, right, scale)
    from compare.onepass import drive, exact

    found = [0.0] * exact.FIELDS
    tasks = [drive.EXACT] * (wanted[0] or wanted[1]) + [drive.EXACT_PRODUCTS] * wanted[2]
    for task in tasks:
        start, chunks = np.zeros(exact.FIELDS), _chunks(left, right)
        parts = [part.tolist() for part in run(partial(_task, left, right, task, start), chunks)]
        found = [total + math.fsum(column) for total, column in zip(found, zip(*parts, strict=True), strict=True)]
    return tuple(found[at] + found[at + 1] for at in (exact.X, exact.Y, exact.XY))


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
    if left.count * max(left.dtype.itemsize, right.dtype.itemsize) <= CHUNK_BYTES:
        return _chunk(left, right, (0, left.count), relative)
    total = empty_state()
    if left.checksum or right.checksum:
        run = map  # a running checksum needs the bytes in their order
    for state in run(lambda chunk: _chunk(left, right, chunk, relative), _chunks(left, right)):
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
    for part in run(partial(_task, left, right, drive.RANGE, ranges), chunks):
        ranges[[0, 2]] = np.minimum(ranges[[0, 2]], part[[0, 2]])
        ranges[[1, 3]] = np.maximum(ranges[[1, 3]], part[[1, 3]])
    low_x, high_x, low_y, high_y = ranges[: shares.P].tolist()
    if any(span != 0 and not _TINY < span < math.inf for span in (high_x - low_x, high_y - low_y)):
        return careful.divergence(left, right)
    total = np.zeros(shares.FIELDS)
    for part in run(partial(_task, left, right, drive.SHARE, ranges), chunks):
        total += part
    return careful.divergence_of(float(total[shares.P]), float(total[shares.Q]), float(total[shares.CROSS]))


def _task(left: Side, right: Side, task: int, start: Floats, chunk: tuple[int, int]) -> Floats:
    """Sweeps a chunk for a task of :func:`compare.onepass.drive.sweep_double`; returns the fields, which begin so."""
    from compare.onepass import drive

    fields, unused = start.copy(), np.zeros(INTEGERS, np.int64)
    status = drive.sweep_double(left.spec, right.spec, task, *chunk, *_rooms.of("double", drive.RAW), fields, unused)
    if status != drive.DONE:
        raise (left if status == drive.LEFT_SHORT else right).cut_short()
    return fields


def empty_state() -> State:
    """Returns sums of nothing."""
    return _NOTHING[0].copy(), _NOTHING[1].copy()


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
        self._rooms: dict[tuple[str, int], tuple[Any, ...]] = {}

    def of(self, numbers: str, block_bytes: int) -> tuple[Any, ...]:
        """Returns what :mod:`compare.onepass.drive` needs to sweep these numbers in blocks of so many bytes."""
        if (numbers, block_bytes) not in self._rooms:
            from compare.onepass.drive import STEP

            raw = (_aligned(block_bytes, np.uint8), _aligned(block_bytes, np.uint8))
            if numbers == "single":
                made = (*raw, *(_aligned(STEP, np.float32) for _ in range(4)), _aligned(STEP, np.int32))
            elif numbers == "double":
                wide = [_aligned(STEP, np.float64) for _ in range(4)]
                made = (*raw, _aligned(STEP, np.float32), *wide, _aligned(STEP, np.int32))
            else:
                integers = (_aligned(STEP, np.int64), _aligned(STEP, np.int64))
                doubles = (_aligned(STEP, np.float64), _aligned(STEP, np.float64))
                made = (*raw, *integers, *doubles, _aligned(STEP, np.int32))
            self._rooms[numbers, block_bytes] = made
        return self._rooms[numbers, block_bytes]


_rooms = _Rooms()


def _aligned(count: int, dtype: type[np.generic]) -> NDArray[np.generic]:
    """Returns room that begins at a cache line: copying there is what reading a cached file costs."""
    size = count * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype)


def _chunk(left: Side, right: Side, chunk: tuple[int, int], relative: bool) -> State:
    state = empty_state()
    begin, end = chunk
    if not (left.checksum or right.checksum):
        _add(left, right, begin, end, state, relative)
    elif not _add_with_checksums(left, right, begin, end, state, relative):
        step = _CHECKED // max(left.dtype.itemsize, right.dtype.itemsize)  # whole steps of a kernel: sums stay the same
        for start in range(begin, end, step):
            stop = min(start + step, end)
            rooms = _add(left, right, start, stop, state, relative, _CHECKED)
            for side, room in zip((left, right), rooms, strict=False):
                if side.checksum:
                    side.checksum.add(room[: (stop - start) * side.dtype.itemsize].data)
    return state


def _add_with_checksums(left: Side, right: Side, begin: int, end: int, state: State, relative: bool) -> bool:
    """Adds a range of elements and takes both checksums in one compiled call; False where that cannot be done."""
    from compare.onepass import checksum, drive

    if left.code is None or right.code is None or left.checksum is None or right.checksum is None:
        return False
    if not checksum.HARDWARE or numbers_of(left.code, right.code) != "single":
        return False
    takers = (left.checksum, right.checksum)
    values = np.array([taker.value ^ checksum.INVERSE for taker in takers], np.uint64)
    rooms = _rooms.of("single", drive.RAW)
    status = checksum.sweep_single(left.spec, right.spec, relative, begin, end, *rooms, *state, values)
    if status != drive.DONE:
        raise (left if status == drive.LEFT_SHORT else right).cut_short()
    for side, taker, value in zip((left, right), takers, values.tolist(), strict=True):
        taker.went_on(value ^ checksum.INVERSE, (end - begin) * side.dtype.itemsize)
    return True


def _add(
    left: Side, right: Side, begin: int, end: int, state: State, relative: bool, block_bytes: int = 0
) -> tuple[Any, ...]:
    """Adds a range of elements in blocks of so many bytes; returns the buffers, the first two with its last block."""
    from compare.onepass import drive

    if left.code is None or right.code is None:
        raise TypeError("no kernel for these elements")
    numbers = numbers_of(left.code, right.code)
    rooms = _rooms.of(numbers, block_bytes or drive.RAW)
    one, two = left.spec, right.spec
    if numbers == "single":
        status = drive.sweep_single(one, two, relative, begin, end, *rooms, *state)
    elif numbers == "double":
        status = drive.sweep_double(one, two, drive.ADD, begin, end, *rooms, *state)
    else:
        unsigned = (left.dtype == np.uint64, right.dtype == np.uint64)
        status = drive.sweep_integer(one, two, begin, end, *unsigned, *rooms, *state)
    if status != drive.DONE:
        raise (left if status == drive.LEFT_SHORT else right).cut_short()
    return rooms


def _needed_scale(left: Side, right: Side, floats: list[float]) -> careful.Scale:
    """Tells which powers of two have to be taken out of the values; none for nearly all tensors."""
    low, high = _SAFE
    distance_safe = low <= floats[DD] <= high or floats[TOP] == 0
    if distance_safe and low <= floats[XX] <= high and low <= floats[YY] <= high:
        return careful.PLAIN
    sizes = careful.magnitudes(left, right)
    safe = all(low <= floats[at] <= high or size == 0 for at, size in zip((XX, YY), sizes, strict=True))
    return careful.PLAIN if safe and distance_safe else careful.scale_for(sizes, floats[TOP])

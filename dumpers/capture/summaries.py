"""What is kept of a tensor instead of its values: modes ``stats``, ``sketch`` and ``hash``.

A summary is a JSON object. Every mode has ``version`` (1), ``mode``, ``dtype`` (TensorFlow's name), ``shape`` and
``count`` (elements). All figures are over finite elements, both parts of complex ones; an element of which either part
is not finite is not. A figure that does not exist (no finite element, no numbers, beyond float64) is null; NaN and
infinity never stand in a summary.

``stats`` and ``sketch``:
    ``finite``, ``nan``, ``pos_inf``, ``neg_inf``: numbers of elements. ``min``, ``max``: exact; whole numbers for
    integers. ``mean``, ``l1`` (sum of magnitudes), ``l2`` (Euclidean norm): sums in float64, integers beyond 2^53 as
    their nearest float64. ``zero_share``: zeros of all numbers. ``exponents``: binary exponents of the magnitudes,
    an object with ``of`` (numbers looked at: all of a tensor of up to 8,192, else every 17th of each block of 64,256),
    ``zero``, ``subnormal``, ``first`` and ``counts``: ``counts[i]`` normal numbers with
    2^e <= |x| < 2^(e+1) for e = ``first`` + i; ``first`` is null where there is none.
``sketch`` besides:
    ``projection``: 32 numbers (:mod:`.summary_sketch`) as base64 of little-endian float64, with elements that are not
    finite taken as 0. ``order_free``: hash of the multiset of elements (:mod:`.summary_hash`).
``hash``:
    ``positional``, ``order_free``: see :mod:`.summary_hash`.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Dict, Hashable, List, Optional, Sequence, Tuple, Union

import numpy as np

from .summary_exponents import Histogram
from .summary_hash import order_free_hash, positional_hash
from .summary_numbers import Numbers, numbers_of, plain
from .summary_sketch import GROUP, Projection
from .summary_small import FIGURES, SMALL, TOGETHER, WIDE, encoded, small_figures, small_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Floats = NDArray[np.float64]
    Number = Union[int, float]

MODES = ("stats", "sketch", "hash")
"""Ways of taking a tensor that keep no values."""

VERSION = 1
BLOCK = 4 * GROUP
"""Numbers that are looked at at a time; with the scratch they stay in the second-level cache."""

_STRIDE = 17
"""Of larger tensors it takes every 17th: a prime, so that all columns of a matrix take part."""

_ROW = 1004
"""Numbers of one dot product. BLAS adds twice as fast as NumPy, but a long vector makes it start threads of its own."""

_ONES = np.ones((_ROW, 1))

_local = threading.local()


def summarise(array: Array, dtype: str, mode: str) -> Dict[str, Any]:
    """Returns the summary of one tensor, to be written as JSON.

    Threads may call it at the same time; NumPy lets the interpreter go during each pass over a block.

    Args:
        array: As :func:`.arrays.storable` returns it; any shape and layout, of at most 2^63 elements.
        dtype: The name of its type, which tells what raw bytes are.
        mode: One of :data:`MODES`.

    Raises:
        ValueError: no such mode, or an array of Python objects.
    """
    array, dtype = _checked(array, dtype, mode)
    numbers = numbers_of(array, dtype) if mode != "hash" else None
    figures = _Figures(numbers, projected=mode == "sketch").result() if numbers else None
    return _summary(array, dtype, mode, figures)


def summarise_all(arrays: Sequence[Array], dtypes: Sequence[str], mode: str) -> List[Dict[str, Any]]:
    """Returns the summaries of several tensors, the same as :func:`summarise` gives for each, but sooner.

    A pass over a few numbers costs no more time than the call that starts it, so small tensors of one type go through
    the passes together.

    Args:
        arrays: Each as for :func:`summarise`.
        dtypes: Of each.
        mode: One of :data:`MODES`.

    Raises:
        ValueError: as there.
    """
    checked = [_checked(array, dtype, mode) for array, dtype in zip(arrays, dtypes)]  # noqa: B905 - Python 3.7
    if mode == "hash":
        return [_summary(array, dtype, mode, None) for array, dtype in checked]
    numbers = [numbers_of(array, dtype) for array, dtype in checked]
    together: Dict[Hashable, List[int]] = {}
    for index, found in enumerate(numbers):
        if found is not None and found.width == 1 and 0 < len(found.flat) <= SMALL:
            together.setdefault((found.flat.dtype.str, checked[index][1]), []).append(index)
    figures: List[Optional[Dict[str, Any]]] = [None] * len(checked)
    for alike in together.values():
        for first in range(0, len(alike), TOGETHER):
            part = alike[first : first + TOGETHER]
            small = [numbers[index] for index in part]
            taken = small_figures([found for found in small if found is not None], projected=mode == "sketch")
            for index, known in zip(part, taken):  # noqa: B905
                figures[index] = known
    for index, found in enumerate(numbers):
        if found is not None and figures[index] is None:
            figures[index] = _Figures(found, projected=mode == "sketch").result()
    return [
        _summary(array, dtype, mode, known)
        for (array, dtype), known in zip(checked, figures)  # noqa: B905
    ]


def _checked(array: Array, dtype: str, mode: str) -> Tuple[Array, str]:
    if mode not in MODES:
        raise ValueError("capture mode {!r}: use one of {}".format(mode, ", ".join(MODES)))
    if array.dtype.kind in "OmM":
        raise ValueError("no summary of {} elements".format(array.dtype))
    return plain(array, dtype)


def _summary(array: Array, dtype: str, mode: str, figures: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The summary, its keys in order; ``figures`` are None for what has no numbers, and in the mode ``hash``."""
    found = {
        "version": VERSION,
        "mode": mode,
        "dtype": dtype,
        "shape": [int(size) for size in array.shape],
        "count": int(array.size),
    }  # type: Dict[str, Any]
    if mode == "hash":
        found["positional"] = positional_hash(array, dtype)
    else:
        if mode == "sketch":
            found["projection"] = None
        found.update(dict.fromkeys(FIGURES) if figures is None else figures)
    if mode != "stats":
        found["order_free"] = order_free_hash(array, dtype)
    return {key: found[key] for key in sorted(found)}


class _Scratch:
    """Buffers of one thread, so that no pass over a block asks for memory."""

    def __init__(self) -> None:
        self.values = np.empty(BLOCK, np.float64)
        self.flags = np.empty(BLOCK, np.bool_)


def _scratch() -> _Scratch:
    if not hasattr(_local, "scratch"):
        _local.scratch = _Scratch()
    found: _Scratch = _local.scratch
    return found


class _Figures:
    """Figures of one tensor, taken in one pass over its blocks."""

    def __init__(self, numbers: Numbers, *, projected: bool) -> None:
        self._numbers = numbers
        self._projection = Projection() if projected else None
        self._histogram = Histogram(numbers.least_exponent)
        self._stride = 1 if len(numbers.flat) <= SMALL else _STRIDE
        self._shift = _shift(numbers.flat)
        self._low: List[Number] = []
        self._high: List[Number] = []
        self._bad = {"nan": 0, "pos_inf": 0, "neg_inf": 0}
        self._bad_numbers = 0
        self._zeros = 0
        self._sums: List[float] = []
        self._magnitudes: List[float] = []
        self._squares: List[float] = []

    def result(self) -> Dict[str, Any]:
        """Looks at all numbers and returns the figures by their keys."""
        numbers = self._numbers
        found: Dict[str, Any] = dict.fromkeys(FIGURES)
        # One change of the state for all blocks; a signalling NaN must not warn in a training log.
        with np.errstate(all="ignore"):
            for start in range(0, len(numbers.flat), BLOCK):
                self._add(numbers.decode(numbers.flat[start : start + BLOCK]))
            found.update(self._bad)
            found["finite"] = len(numbers.flat) // numbers.width - sum(self._bad.values())
            found["exponents"] = self._histogram.result()
            if self._projection is not None:
                found["projection"] = self._encoded(self._projection.numbers())
        if len(numbers.flat):
            found["zero_share"] = self._zeros / len(numbers.flat)
        finite = len(numbers.flat) - self._bad_numbers
        if finite:
            found["min"], found["max"] = min(self._low) + 0, max(self._high) + 0  # no negative zero
            found["mean"] = self._scaled(math.fsum(self._sums) / finite)
            found["l1"] = self._scaled(math.fsum(self._magnitudes))
            found["l2"] = self._scaled(math.sqrt(math.fsum(self._squares)))
        return found

    def _add(self, block: Array) -> None:
        low, high = np.minimum.reduce(block).item(), np.maximum.reduce(block).item()
        bad: Optional[NDArray[np.bool_]] = None
        replaced = 0
        if block.dtype.kind == "f" and not (math.isfinite(low) and math.isfinite(high)):
            bad = self._count_bad(block)
            replaced = int(np.count_nonzero(bad))
            kept = block[~bad]
            low, high = (kept.min().item(), kept.max().item()) if kept.size else (None, None)
            block = np.where(bad, block.dtype.type(0), block)
        if low is not None:
            self._low.append(low)
            self._high.append(high)
        self._bad_numbers += replaced
        flags = np.equal(block, 0, out=_scratch().flags[: len(block)])
        self._zeros += int(np.count_nonzero(flags)) - replaced
        self._add_exponents(block, flags, bad)
        self._add_sums(block)

    def _add_exponents(self, block: Array, zero: NDArray[np.bool_], bad: Optional[NDArray[np.bool_]]) -> None:
        replaced = 0 if bad is None else int(np.count_nonzero(bad[:: self._stride]))
        zeros = int(np.count_nonzero(zero[:: self._stride]))
        self._histogram.add(block[:: self._stride], zeros - replaced, replaced)

    def _add_sums(self, block: Array) -> None:
        values = _scratch().values[: len(block)]
        if self._shift:
            np.ldexp(block, -self._shift, out=values)
        else:
            np.copyto(values, block)
        self._sums.append(_sum(values))
        self._squares.append(_sum_of_squares(values))
        if self._projection is not None:
            self._projection.add(values)
        np.absolute(values, out=values)
        self._magnitudes.append(_sum(values))

    def _count_bad(self, block: Array) -> NDArray[np.bool_]:
        """Counts the elements that are not finite and returns which numbers belong to them."""
        width = self._numbers.width
        parts = block.reshape(-1, width)
        nan = np.isnan(parts).any(axis=1)
        high = (parts == np.inf).any(axis=1) & ~nan
        low = (parts == -np.inf).any(axis=1) & ~nan & ~high
        for name, flags in (("nan", nan), ("pos_inf", high), ("neg_inf", low)):
            self._bad[name] += int(np.count_nonzero(flags))
        return np.repeat(nan | high | low, width)

    def _scaled(self, value: float) -> Optional[float]:
        try:
            return math.ldexp(value, self._shift)
        except OverflowError:
            return None

    def _encoded(self, projection: Floats) -> Optional[str]:
        return encoded(np.ldexp(projection, self._shift) if self._shift else projection)


def _sum(values: Floats) -> float:
    if len(values) <= SMALL:
        return small_sum(values)
    rows = len(values) // _ROW
    rest = float(np.add.reduce(values[rows * _ROW :]))
    return rest + float(np.matmul(values[: rows * _ROW].reshape(rows, 1, _ROW), _ONES).sum())


def _sum_of_squares(values: Floats) -> float:
    if len(values) <= SMALL:
        return small_sum(values * values)
    rows = len(values) // _ROW
    rest, whole = values[rows * _ROW :], values[: rows * _ROW]
    total = float(np.matmul(whole.reshape(rows, 1, _ROW), whole.reshape(rows, _ROW, 1)).sum())
    return float(np.add.reduce(rest * rest)) + total


def _shift(flat: Array) -> int:
    """Power of two to take out of float64 values whose squares would leave its range; 0 for all other types."""
    if flat.dtype != np.float64:
        return 0
    greatest = 0.0
    for start in range(0, len(flat), BLOCK):
        block = flat[start : start + BLOCK]
        block = np.absolute(block, out=_scratch().values[: len(block)])
        highest = float(np.maximum.reduce(block))
        if not math.isfinite(highest):
            finite = block[np.isfinite(block)]
            highest = float(finite.max()) if finite.size else 0.0
        greatest = max(greatest, highest)
    return math.frexp(greatest)[1] if greatest and not 1 / WIDE < greatest < WIDE else 0

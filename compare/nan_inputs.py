"""What the inputs of an op held where its output went wrong: the element, and the range of the whole."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import element_kind, flat, to_float64
from compare.nonfinite import BLOCK_BYTES
from dumpers.errors import DataError
from dumpers.formats.extent import open_tensor
from dumpers.formats.layouts import is_private
from dumpers.formats.relayout import original

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.nan_scan import Finding
    from dumpers.formats.extent import TensorFile
    from dumpers.records import TensorRecord


@dataclass(frozen=True)
class InputValue:
    """What an input held where the output went wrong.

    Attributes:
        tensor: Name of the input.
        value: The element; None where the op does not work element by element.
        clean: Whether the whole input is finite; None if it is not in the dump.
        minimum, maximum: Over its finite elements; None without any, and for complex numbers, text and statistics.
        state: What the scan found in it, None if it is not in the dump.
    """

    tensor: str
    value: str | None
    clean: bool | None
    minimum: float | int | None = None
    maximum: float | int | None = None
    state: Finding | None = None

    def describe(self) -> str:
        """Returns ``x:output:0 there: 0.0 (all of it: -3 to 1)``, empty if nothing is known."""
        parts = []
        if self.minimum is not None and self.maximum is not None:
            parts.append(f"{self.minimum:.6g} to {self.maximum:.6g}")
        if self.state is not None and self.state.bad:
            state = self.state
            parts.append(f"{state.nan} NaN, {state.positive_inf} Inf, {state.negative_inf} -Inf")
        whole = ", and ".join(parts)
        if self.value is not None:
            return f"{self.tensor} there: {self.value}" + (f" (all of it: {whole})" if whole else "")
        return f"{self.tensor}: {whole}" if whole else ""


def input_value(state: Finding, bad: Finding) -> InputValue:
    """Looks at an input (or any tensor of the same places) where another tensor went wrong.

    Args:
        state: What the scan found in the input.
        bad: The tensor that went wrong.
    """
    record = state.record
    if not state.known or record.source is None:
        return InputValue(record.name, None, not state.bad if state.known else None, state=state)
    try:
        value = _element(state, bad)
        low, high = _range(record)
    except DataError:  # it could be read a moment ago; what the scan found still holds
        value, low, high = None, None, None
    return InputValue(record.name, value, not state.bad, low, high, state)


def _element(state: Finding, bad: Finding) -> str | None:
    """Value at the bad element: of equal or broadcast shape; None where positions do not correspond."""
    record = state.record
    if bad.index is None:
        return None
    if is_private(record.format):
        array = original(record)[0]
        place = corresponding(array.shape, bad)
        return None if place is None else str(array[place])
    place = corresponding(state.shape, bad)
    if place is None or record.source is None:
        return None
    file = open_tensor(record.source)
    if file is None:
        return str(np.asarray(record.load())[place])
    with file:
        at = int(np.ravel_multi_index(place, file.shape)) if place else 0
        return str(_read(file, at, 1)[0])


def corresponding(shape: tuple[int, ...], bad: Finding) -> tuple[int, ...] | None:
    """Place in a tensor that NumPy's broadcasting brings to the bad element, None if the shapes do not fit."""
    index = bad.index or ()
    offset = len(bad.shape) - len(shape)
    if offset < 0 or any(size not in (1, want) for size, want in zip(shape, bad.shape[offset:], strict=True)):
        return None
    return tuple(0 if size == 1 else at for size, at in zip(shape, index[offset:], strict=True))


def _range(record: TensorRecord) -> tuple[float | int | None, float | int | None]:
    """Least and greatest finite element; integers exactly."""
    low: float | int = math.inf
    high: float | int = -math.inf
    for block in _blocks(record):
        kind = element_kind(block.dtype)
        if kind in ("integer", "boolean"):
            low, high = min(low, int(block.min())), max(high, int(block.max()))
        elif kind == "float":
            with np.errstate(all="ignore"):
                values = to_float64(block)
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        else:
            return None, None
    return (None, None) if low > high else (low, high)


def _blocks(record: TensorRecord) -> Iterator[NDArray[np.generic]]:
    """Yields the elements of a tensor in order, a block at a time, without loading what can be read in place."""
    file = open_tensor(record.source) if record.source is not None else None
    if file is None:
        array = np.asarray(record.load())
        values, step = flat(array), max(1, BLOCK_BYTES // max(array.dtype.itemsize, 1))
        for at in range(0, array.size, step):
            yield values[at : at + step]
        return
    with file:
        step = BLOCK_BYTES // file.dtype.itemsize
        for at in range(0, file.count, step):
            yield _read(file, at, min(step, file.count - at))


def _read(file: TensorFile, at: int, count: int) -> NDArray[np.generic]:
    """Reads elements of an open tensor.

    Raises:
        DataError: the file has become shorter, or cannot be read.
    """
    size = count * file.dtype.itemsize
    try:
        data = os.pread(file.fd, size, file.offset + at * file.dtype.itemsize)
    except OSError as error:
        raise DataError(f"{file.where}: cannot be read: {error.strerror or error}") from error
    if len(data) != size:
        raise DataError(f"{file.where}: became shorter while it was read; dump it again")
    return np.frombuffer(data, file.dtype)

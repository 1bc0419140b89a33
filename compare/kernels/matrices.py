"""Kernels of ops on the diagonals of matrices: bands, diagonals taken, set and put into new matrices. All exact.

A stack of diagonals has the highest one first. Shorter ones are aligned to the left or to the right, superdiagonals and
subdiagonals each their own way (``align`` of the third version of these ops; the second aligns all to the left).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from compare.bounds import Array
from compare.kernels.base import Call, Kernel, KernelError, checked_shape, moving

_ALIGN = "RIGHT_LEFT"
"""What TensorFlow takes where the attribute is left out."""


class _Stack(NamedTuple):
    """Diagonals ``low`` to ``high`` of matrices of one size.

    Attributes:
        single: Whether it is one diagonal without an axis for its number.
    """

    low: int
    high: int
    rows: int
    columns: int
    align: str
    single: bool

    @property
    def length(self) -> int:
        """Of the longest diagonal."""
        return min(self.rows + min(self.high, 0), self.columns - max(self.low, 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stack behind the axes of the batch."""
        return (self.length,) if self.single else (self.high - self.low + 1, self.length)

    def places(self) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yields for each diagonal its place in the stack, positions there, and rows and columns in the matrix."""
        for number, diagonal in enumerate(range(self.high, self.low - 1, -1)):
            size = min(self.rows + min(diagonal, 0), self.columns - max(diagonal, 0))
            above, below = self.align.split("_")
            left = (diagonal >= 0 and above == "LEFT") or (diagonal <= 0 and below == "LEFT")
            steps = np.arange(max(size, 0))
            start = 0 if left else self.length - size
            yield number, start + steps, steps + max(-diagonal, 0), steps + max(diagonal, 0)


def _stack(call: Call, k: list[int], rows: int, columns: int) -> _Stack:
    if not 1 <= len(k) <= 2 or k[0] > k[-1]:
        raise KernelError(f"diagonals {k}: wanted one number, or the lower and the upper end")
    if k[-1] >= max(columns, 1) or -k[0] >= max(rows, 1):
        raise KernelError(f"diagonals {k} of a matrix of {rows} x {columns}")
    align = str(call.attrs.get("align", _ALIGN)) if call.type.endswith("V3") else "LEFT_LEFT"
    if align not in ("LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"):
        raise KernelError(f"align {align!r}")
    # One diagonal given as a pair of equal numbers has no axis of its own either.
    return _Stack(k[0], k[-1], rows, columns, align, single=k[0] == k[-1])


def _matrix(call: Call) -> Array:
    x = call.array(0)
    if x.ndim < 2:
        raise KernelError(f"a matrix needs two axes, there is shape {x.shape}")
    return x


def _offsets(call: Call, index: int) -> list[int]:
    return call.integers(index, "k") if len(call.inputs) > index else [0]


def _band_part(call: Call) -> list[Array]:
    x = _matrix(call)
    (lower,), (upper,) = call.integers(1, "num_lower"), call.integers(2, "num_upper")
    below = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
    kept = ((lower < 0) | (below <= lower)) & ((upper < 0) | (-below <= upper))
    return [np.where(kept, x, np.zeros((), x.dtype))]


def _diag_part(call: Call) -> list[Array]:
    x = _matrix(call)
    stack = _stack(call, _offsets(call, 1), *x.shape[-2:])
    padding = call.array(2).reshape(()) if len(call.inputs) > 2 else np.zeros((), x.dtype)
    result = np.full((*x.shape[:-2], stack.high - stack.low + 1, stack.length), padding, x.dtype)
    for number, places, rows, columns in stack.places():
        result[..., number, places] = x[..., rows, columns]
    return [result.reshape((*x.shape[:-2], *stack.shape))]


def _set_diag(call: Call) -> list[Array]:
    x, diagonals = _matrix(call), call.array(1)
    stack = _stack(call, _offsets(call, 2), *x.shape[-2:])
    result = x.copy()
    _put(result, diagonals, stack)
    return [result]


def _put(matrix: Array, diagonals: Array, stack: _Stack) -> None:
    wanted = (*matrix.shape[:-2], *stack.shape)
    if diagonals.shape != wanted:
        raise KernelError(f"diagonals of shape {diagonals.shape}, wanted {wanted}")
    parts = diagonals.reshape((*matrix.shape[:-2], stack.high - stack.low + 1, stack.length))
    for number, places, rows, columns in stack.places():
        matrix[..., rows, columns] = parts[..., number, places]


def _diag(call: Call) -> list[Array]:
    diagonals, k = call.array(0), _offsets(call, 1)
    if not 1 <= len(k) <= 2 or diagonals.ndim < len(set(k)):
        raise KernelError(f"diagonals {k} of shape {diagonals.shape}")
    least_rows = diagonals.shape[-1] - min(k[-1], 0)
    least_columns = diagonals.shape[-1] + max(k[0], 0)
    given = [call.integers(index)[0] if len(call.inputs) > index else -1 for index in (2, 3)]
    if given == [-1, -1]:
        rows = columns = max(least_rows, least_columns)
    else:
        rows = least_rows if given[0] == -1 else given[0]
        columns = least_columns if given[1] == -1 else given[1]
    stack = _stack(call, k, rows, columns)
    padding = call.array(4).reshape(()) if len(call.inputs) > 4 else np.zeros((), diagonals.dtype)
    batch = diagonals.shape[: diagonals.ndim - (1 if stack.single else 2)]
    result = np.full(checked_shape([*batch, rows, columns]), padding, diagonals.dtype)
    _put(result, diagonals, stack)
    return [result]


MATRICES: Mapping[str, Kernel] = MappingProxyType(
    {
        "MatrixBandPart": moving(_band_part, 1, 3),
        "MatrixDiag": moving(_diag),
        "MatrixDiagV2": moving(_diag, 5),
        "MatrixDiagV3": moving(_diag, 5),
        "MatrixDiagPart": moving(_diag_part),
        "MatrixDiagPartV2": moving(_diag_part, 3),
        "MatrixDiagPartV3": moving(_diag_part, 3),
        "MatrixSetDiag": moving(_set_diag, 2),
        "MatrixSetDiagV2": moving(_set_diag, 3),
        "MatrixSetDiagV3": moving(_set_diag, 3),
    }
)

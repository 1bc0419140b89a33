"""Matrix products.

``sum_k a_k b_k`` accumulates in float32 at least (float64 for float64 operands), in any order, fused or not, from zero
or, where a bias follows in one fused op, from the bias. The bound is that of :func:`compare.bounds.sum_error` with the
products as terms; ``|A||B|``, ``A^2 B^2`` and the partial sums over blocks of K come from matrix products, so that no
K x M x N array is ever made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from compare.bounds import FORMATS, Accumulation, Array, Real, few_values, sum_error
from compare.kernels.base import Call, Kernel, KernelError

BLOCKS = 8
"""Into how many parts K is cut to follow the partial sums in the order of the data."""

PORTION = 2**15
"""Elements of the product that are followed at a time."""


def operands(call: Call) -> tuple[Array, Array]:
    """Returns both factors as they are multiplied, transposed where the attributes say so.

    Raises:
        KernelError: their shapes do not fit.
    """
    a, b = call.array(0), call.array(1)
    if a.ndim < 2 or b.ndim < 2:
        raise KernelError(f"factors of shapes {a.shape} and {b.shape}: two axes needed")
    if call.flag("transpose_x1", "transpose_a", "adj_x1", "adj_x"):
        a = np.swapaxes(a, -1, -2)
    if call.flag("transpose_x2", "transpose_b", "adj_x2", "adj_y"):
        b = np.swapaxes(b, -1, -2)
    if a.shape[-1] != b.shape[-2]:
        raise KernelError(f"factors of shapes {a.shape} and {b.shape} (after transposing) do not fit")
    return a, b


def product_error(a: Array, b: Array, exact: Array, u: float, *, start: Array | None = None) -> Real:
    """Bounds the rounding error of ``a @ b`` accumulated with unit roundoff ``u``.

    Args:
        a: Left factor.
        b: Right factor.
        u: Unit roundoff of the accumulator.
        exact: Their product in float64.
        start: What the accumulator may hold before the first product (a bias, a summand), broadcast to the product.
            Every partial sum then has it in it. The bound covers both: started there, and added at the end.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    length = left.shape[-1]
    magnitude = np.abs(left) @ np.abs(right)
    squares = (left * left) @ (right * right)
    total = np.asarray(exact, dtype=np.float64)
    walk = _walk(left, right, total, None) + length / 6.0 * squares
    # Cauchy-Schwarz with equality: all terms of an element have the same size.
    uniform = magnitude**2 >= 0.999 * length * squares
    if few_values(left) and few_values(right):
        uniform = np.ones_like(uniform)
    count = np.full(total.shape, float(length))
    error = sum_error(Accumulation(count, magnitude, squares, total, walk, True, uniform), u)
    if start is not None:
        first = np.broadcast_to(np.asarray(start, dtype=np.float64), total.shape)
        size = np.abs(first)
        walk = _walk(left, right, total, first) + length / 6.0 * squares
        terms = Accumulation(
            count + 1.0, magnitude + size, squares + first**2, total + first, walk, True, np.asarray(uniform)
        )
        error = np.maximum(error, sum_error(terms, u) + _absorbed(length, magnitude, squares, size, u))
    if u >= FORMATS["float32"].u and _smallest(left) * _smallest(right) < FORMATS["float32"].normal:
        # Products below the normal range may be flushed to zero, each of them.
        error = error + length * FORMATS["float32"].normal
    return error


def _absorbed(length: int, magnitude: Real, squares: Real, size: Real, u: float) -> Real:
    """What is lost when terms of the size of one unit of the accumulator's start meet it one by one.

    Their rounding errors are then not independent of them: a term below half a unit vanishes as a whole, each time.
    """
    small = squares <= length * (4.0 * u * size) ** 2
    return np.where(small, np.minimum(magnitude, length * u * size), 0.0)


def _smallest(values: Real) -> float:
    size = np.abs(values)
    return float(size.min(initial=np.inf, where=size > 0))


def _walk(left: Real, right: Real, total: Real, first: Real | None) -> Real:
    """``sum s_i^2`` with s_i taken at the ends of BLOCKS parts of K, forwards and backwards, whichever is larger.

    ``first`` is what the accumulator starts with, None for zero.
    """
    if left.ndim > 2 or right.ndim > 2:
        return _walk_rows(left, right, total, first)
    # Rows in portions that stay in the cache: the many passes over them then cost little.
    portion = max(1, PORTION // max(total.shape[-1], 1))
    result = np.empty_like(total)
    for start in range(0, total.shape[0], portion):
        rows = slice(start, start + portion)
        result[rows] = _walk_rows(left[rows], right, total[rows], None if first is None else first[rows])
    return result


def _walk_rows(left: Real, right: Real, total: Real, first: Real | None) -> Real:
    length = left.shape[-1]
    edges = np.linspace(0, length, min(BLOCKS, length) + 1).astype(int)
    before = np.zeros_like(total) if first is None else first
    whole = total + before
    forward, backward = np.zeros_like(total), np.zeros_like(total)
    done, rest = np.square(before), np.square(whole)
    for start, end in pairwise(edges):
        partial = before + left[..., start:end] @ right[..., start:end, :]
        # Backwards the parts still to come are the ones done already: start + (total - product so far).
        now, later = np.square(partial), np.square(whole - partial if first is None else whole - partial + first)
        forward += (end - start) * np.maximum(done, now)
        backward += (end - start) * np.maximum(rest, later)
        before, done, rest = partial, now, later
    return np.maximum(forward, backward)


def _matmul(call: Call) -> list[Array]:
    a, b = operands(call)
    if call.type == "MatMulV2" and (a.ndim != 2 or b.ndim != 2):
        raise KernelError(f"factors of shapes {a.shape} and {b.shape}: exactly two axes needed")
    return [np.asarray(a @ b)]


def _matmul_bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    a, b = operands(call)
    return [product_error(a, b, exact[0], call.u)]


PRODUCTS: Mapping[str, Kernel] = MappingProxyType(
    {
        "MatMulV2": Kernel(_matmul, _matmul_bound, (2, 2), accumulates=True),
        "BatchMatMulV2": Kernel(_matmul, _matmul_bound, (2, 2), accumulates=True),
    }
)

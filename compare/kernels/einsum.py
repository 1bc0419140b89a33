"""Kernel of ``Einsum`` with one or two operands, as a sum or as a stack of matrix products.

Labels fall into four groups: those of both operands and the result (batch), of both operands only (summed), and of one
operand and the result (free). What a single operand has alone and the result lacks is summed with ones on the other
side. So every equation becomes ``[batch, free, summed] @ [batch, summed, free]``, whose rounding error
:func:`compare.kernels.matmul.product_error` bounds; in which order a device walks through the labels does not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from compare.bounds import Array, Real, accumulation, sum_error
from compare.kernels.base import Call, Kernel, KernelError, checked_scratch, checked_shape
from compare.kernels.matmul import product_error

_EQUATION = re.compile(r"[A-Za-z.]*(,[A-Za-z.]*)?->[A-Za-z.]*\Z")
_ELLIPSIS = "..."
_HIDDEN = 0x1F600
"""From this code point on there are labels for the axes behind an ellipsis; no equation can have them."""


class _Operand(NamedTuple):
    """An operand with a label for each axis, none twice."""

    labels: str
    value: Array


class _Equation(NamedTuple):
    """What is computed.

    Attributes:
        sizes: Of each label.
    """

    operands: tuple[_Operand, ...]
    result: str
    sizes: Mapping[str, int]


def _read(call: Call) -> _Equation:
    text = str(call.attrs.get("equation", "")).replace(" ", "")
    if not _EQUATION.match(text):
        raise KernelError(f"equation {text!r} is not understood")
    left, result = text.split("->")
    terms = left.split(",")
    arrays = call.arrays()
    if len(terms) != len(arrays):
        raise KernelError(f"equation {text!r} for {len(arrays)} inputs")
    hidden = max((x.ndim - len(t.replace(_ELLIPSIS, "")) for t, x in zip(terms, arrays, strict=True)), default=0)
    names = "".join(chr(_HIDDEN + k) for k in range(max(hidden, 0)))
    operands = tuple(_labelled(term, x, names) for term, x in zip(terms, arrays, strict=True))
    result = _expanded(result, names)
    sizes: dict[str, int] = {}
    for operand in operands:
        for label, size in zip(operand.labels, operand.value.shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]) or (size == 1 and ord(label) < _HIDDEN):
                raise KernelError(f"label {label} has the sizes {sizes[label]} and {size}")
    if len(set(result)) < len(result) or set(result) - set(sizes):
        raise KernelError(f"result {result!r} of an einsum repeats or invents a label")
    return _Equation(operands, result, sizes)


def _expanded(term: str, names: str) -> str:
    before, dots, after = term.partition(_ELLIPSIS)
    if "." in before + after:
        raise KernelError(f"operand {term!r} of an einsum is not understood")
    return before + (names if dots else "") + after


def _labelled(term: str, x: Array, names: str) -> _Operand:
    count = x.ndim - len(term.replace(_ELLIPSIS, ""))
    if count < 0 or (count and _ELLIPSIS not in term):
        raise KernelError(f"operand {term!r} of an einsum for shape {x.shape}")
    labels = _expanded(term, names[len(names) - count :])
    while len(set(labels)) < len(labels):
        label = next(name for name in labels if labels.count(name) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if x.shape[first] != x.shape[second]:
            raise KernelError(f"label {label} has the sizes {x.shape[first]} and {x.shape[second]}")
        x = np.diagonal(x, axis1=first, axis2=second)
        labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    return _Operand(labels, x)


def _arranged(operand: _Operand, groups: Sequence[str], sizes: Mapping[str, int]) -> Array:
    """Brings the axes into groups, one axis each; labels that the operand lacks are stretched."""
    wanted = "".join(groups)
    there = [label for label in wanted if label in operand.labels]
    moved = np.transpose(operand.value, [operand.labels.index(label) for label in there])
    shape = iter(moved.shape)
    full = [next(shape) if label in operand.labels else 1 for label in wanted]
    shape_of_all = checked_shape([sizes[label] for label in wanted])
    if math.prod(shape_of_all) > operand.value.size:
        checked_scratch(math.prod(shape_of_all), "an operand stretched over labels that it lacks")
    stretched = np.broadcast_to(moved.reshape(full), shape_of_all)
    return stretched.reshape([math.prod(sizes[label] for label in group) for group in groups])


def _factors(found: _Equation) -> tuple[Array, Array, str]:
    """Both factors as stacks of matrices, and the labels of their product in order."""
    left, right = found.operands
    both = [label for label in left.labels if label in right.labels]
    batch = "".join(label for label in both if label in found.result)
    summed = "".join(label for label in found.sizes if label not in found.result)
    mine = "".join(label for label in left.labels if label in found.result and label not in batch)
    theirs = "".join(label for label in right.labels if label in found.result and label not in batch)
    a = _arranged(left, (batch, mine, summed), found.sizes)
    b = _arranged(right, (batch, summed, theirs), found.sizes)
    return a, b, batch + mine + theirs


def _ordered(product: Array, labels: str, found: _Equation) -> Array:
    shaped = product.reshape([found.sizes[label] for label in labels])
    return np.transpose(shaped, [labels.index(label) for label in found.result])


def _lines(found: _Equation) -> Array:
    """The terms of each element of the result of one operand, along the last axis."""
    (only,) = found.operands
    summed = "".join(label for label in only.labels if label not in found.result)
    lines = _arranged(only, (found.result, summed), found.sizes)
    return lines.reshape([*(found.sizes[label] for label in found.result), lines.shape[-1]])


def _run(call: Call) -> list[Array]:
    found = _read(call)
    if len(found.operands) == 1:
        return [np.asarray(_lines(found).sum(axis=-1, dtype=call.array(0).dtype))]
    a, b, labels = _factors(found)
    return [_ordered(np.asarray(a @ b), labels, found)]


def _bound(call: Call, exact: Sequence[Array]) -> list[Real]:
    found = _read(call)
    if len(found.operands) == 1:
        return [np.asarray(sum_error(accumulation(np.asarray(_lines(found), np.float64)), call.u))]
    a, b, labels = _factors(found)
    wide = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    return [_ordered(product_error(a, b, wide, call.u), labels, found)]


EINSUM: Mapping[str, Kernel] = MappingProxyType({"Einsum": Kernel(_run, _bound, (1, 2), accumulates=True)})

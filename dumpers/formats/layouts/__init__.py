"""The device's private layouts: back to the tensor that the framework knows, and forward again.

What layout the original shape is in is often not written down; then it is the one among the usual ones whose
dimensions fit the stored shape, and two that fit and differ are a reason to refuse. :data:`RULES` lists the layouts,
each with its axes, how sure the rule is and where it comes from. A layout without a public rule is refused: such data
are shown as they are stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.layouts.blocks import as_elements, copy_back, copy_forward
from dumpers.formats.layouts.plans import Blocks, Plan, block_sizes, make_plans
from dumpers.formats.layouts.rules import PLAIN, RULES, WITHOUT_RULE, Rule
from dumpers.formats.raw import bad_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord

__all__ = ["PLAIN", "PRIVATE", "RULES", "WITHOUT_RULE", "from_original", "is_private", "load_original", "to_original"]

PRIVATE: Final = frozenset(RULES)
"""Layouts that :func:`to_original` undoes."""

_MAX_BLOCK: Final = 1 << 12


def is_private(layout: str) -> bool:
    """Tells whether stored data in this layout differ from the framework's tensor."""
    name = layout.partition(":")[0]
    return name in RULES or name in WITHOUT_RULE or name.startswith(("FRACTAL_", "C1HW"))


def load_original(record: TensorRecord) -> NDArray[np.generic]:
    """Loads a record and undoes the device's layout where it has one and the original shape is known.

    Raises:
        DataError: no value, a damaged file, or a layout that cannot be undone (see :func:`to_original`).
    """
    array = record.load()
    if record.original_shape is None or not is_private(record.format):
        return array
    groups = getattr(record.source, "groups", 1)
    layout = getattr(record.source, "layout", "")
    try:
        return to_original(array, record.format, record.original_shape, original_format=layout, groups=groups)
    except DataError as error:
        raise DataError(f"{record.path}: {record.name}: {error}") from error


def to_original(
    array: NDArray[np.generic],
    layout: str,
    original_shape: tuple[int, ...],
    *,
    original_format: str = "",
    groups: int = 1,
    out: NDArray[np.generic] | None = None,
) -> NDArray[np.generic]:
    """Returns the data in ``original_shape`` and C order, padding cut off.

    Args:
        array: Data with the stored shape.
        layout: Stored layout, with ``:<groups>`` behind it as device graphs write it, or without. A plain one leaves
            the array as it is, or turns its axes where ``original_format`` is another plain one.
        original_shape: Shape before the conversion.
        original_format: Layout of ``original_shape`` (``NHWC``) if known; otherwise the one that fits.
        groups: Group count of a grouped convolution's filter; number of gates of a recurrent layer's weights or bias
            (1: not told).
        out: Written to instead of a new array, for a private layout; of ``original_shape``, the same dtype, C order.

    Raises:
        DataError: the layout has no public rule, the shapes do not belong together, or two readings fit.
        ValueError: ``out`` is not such an array.
    """
    name, groups = _split_name(layout, groups)
    shape = tuple(int(dim) for dim in original_shape)
    if not is_private(name):
        return _turned(array, name, original_format, shape)
    rule = _rule(name, shape)
    if reason := bad_shape(shape):
        raise DataError(f"original shape: {reason}")
    blocks = block_sizes(rule, array.shape, groups)
    if blocks is None:
        raise DataError(f"layout {name} with {array.ndim} dimensions {array.shape}")
    plan = _fitting(name, rule, array.shape, shape, original_format, blocks)
    result = np.empty(shape, array.dtype) if out is None else _checked(out, shape, array.dtype)
    if result.size:  # a file may claim any number of groups for nothing
        copy_back(plan.pairs(as_elements(array), as_elements(result)))
    return result


def from_original(
    array: NDArray[np.generic],
    layout: str,
    *,
    original_format: str,
    c0: int | None = None,
    ni: int = 16,
    groups: int = 1,
) -> NDArray[np.generic]:
    """Returns the data as the device stores them, padding filled with zeros.

    Args:
        array: The framework's tensor.
        layout: Layout to make.
        original_format: Layout of ``array``; of no effect (``ND``) for FRACTAL_NZ, FRACTAL_ZZ and the recurrent ones.
        c0: Block of the last stored axis; by default 16, for types of one byte 32, for NC1HWC0_C04 4.
        ni: The other block, where the layout has one.
        groups: As for :func:`to_original`. FRACTAL_ZN_RNN takes the rows as one part.

    Raises:
        DataError: the layout has no public rule, or the tensor cannot have it.
    """
    name, groups = _split_name(layout, groups)
    if not is_private(name):
        return _turned(array, original_format, name, None)
    rule = _rule(name, array.shape)
    if c0 is None:
        c0 = 4 if name.endswith("HWC0_C04") else 32 if array.itemsize == 1 and rule.family != "rnn_bias" else 16
    if not (1 <= c0 <= _MAX_BLOCK and 1 <= ni <= _MAX_BLOCK and groups >= 1):
        raise DataError(f"layout {name}: blocks of {c0} and {ni}, {groups} groups; give 1 to {_MAX_BLOCK}")
    letters = _written_axes(name, rule, array.shape, original_format)
    plans = make_plans(rule, letters, array.shape, Blocks(c0, ni, groups))
    if not plans or not array.ndim:
        raise DataError(f"a tensor {array.shape} of layout {original_format or 'ND'} cannot be stored as {name}")
    plan = plans[0]
    if reason := bad_shape(plan.stored_shape):
        raise DataError(f"layout {name}: {reason}")
    result = np.zeros(plan.stored_shape, array.dtype)
    if array.size:
        copy_forward(plan.pairs(as_elements(result), as_elements(np.ascontiguousarray(array))))
    return result


def _split_name(layout: str, groups: int) -> tuple[str, int]:
    """``FRACTAL_Z:8`` is FRACTAL_Z with 8 groups; FRACTAL_NZ_C0_16 says what the shape says too."""
    name, _, told = layout.partition(":")
    if name.startswith("FRACTAL_NZ_C0_"):
        name = "FRACTAL_NZ"
    return name, int(told) if told.isdecimal() and len(told) < 10 and int(told) > 1 else max(1, groups)


def _rule(name: str, shape: tuple[int, ...]) -> Rule:
    rule = RULES.get(name)
    if rule is None:
        raise DataError(
            f"layout {name} cannot be turned back into {shape} nor made: its rule is not public; "
            "the stored layout is shown"
        )
    return rule


def _checked(out: NDArray[np.generic], shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise ValueError(f"out is {out.dtype} {out.shape}, not {dtype} {shape} in C order")
    return out


def _turned(array: NDArray[np.generic], have: str, want: str, shape: tuple[int, ...] | None) -> NDArray[np.generic]:
    """Turns axes where both layouts name the same ones; a name of four axes on another tensor means nothing."""
    if have == want or array.ndim != len(have) or not {have, want} <= PLAIN or sorted(have) != sorted(want):
        return array
    turned = np.ascontiguousarray(array.transpose([have.index(axis) for axis in want]))
    if shape is not None and turned.shape != shape:
        raise DataError(f"{have} data {array.shape} do not belong to the original shape {shape} of layout {want}")
    return turned


def _fitting(
    name: str, rule: Rule, stored: tuple[int, ...], shape: tuple[int, ...], known: str, blocks: Blocks
) -> Plan:
    candidates = _candidates(name, rule, shape, known)
    plans = [plan for letters in candidates for plan in make_plans(rule, letters, shape, blocks) if plan.fits(stored)]
    plans = [plan for plan in plans if plan.stored_shape == stored] or plans
    if not plans:
        tried = ", ".join(candidates[:6])
        raise DataError(
            f"{name} data of shape {stored} do not belong to the original shape {shape}"
            + f" ({tried} tried)" * bool(tried)
        )
    if len({plan.key for plan in plans}) > 1:
        labels = " or ".join(dict.fromkeys(plan.label for plan in plans[:6]))
        raise DataError(f"{name} data of original shape {shape} may be {labels}; give the graph, which tells")
    return plans[0]


def _candidates(name: str, rule: Rule, shape: tuple[int, ...], known: str) -> Sequence[str]:
    """Axes that the original shape may have."""
    if rule.family == "matrix":
        return [""]
    if rule.family in ("rnn", "rnn_bias"):
        return [rule.plain[0]] if len(shape) == len(rule.plain[0]) else _wrong_rank(name, shape, len(rule.plain[0]))
    axes = {letter for layout in rule.plain for letter in layout}
    names = (known,) if known in PLAIN and set(known) <= axes else rule.plain
    found = [layout for layout in names if len(layout) == len(shape)]
    if not found and len(shape) == 2 and (rule.grouped or rule.family == "lstm"):
        return ["CN"]
    if not found and rule.fewer_axes:
        found = ["".join(part) for layout in names for part in itertools.combinations(layout, len(shape))]
    return list(dict.fromkeys(found)) or _wrong_rank(name, shape, len(rule.plain[0]))


def _wrong_rank(name: str, shape: tuple[int, ...], rank: int) -> Sequence[str]:
    raise DataError(f"original shape {shape} of {name} data does not have {rank} dimensions")


def _written_axes(name: str, rule: Rule, shape: tuple[int, ...], original_format: str) -> str:
    if rule.family == "matrix":
        return ""
    if rule.family in ("rnn", "rnn_bias"):
        return str(_candidates(name, rule, shape, "")[0])
    axes = {letter for layout in rule.plain for letter in layout}
    if len(shape) == 2 and original_format in ("", "ND", "CN") and (rule.grouped or rule.family == "lstm"):
        return "CN"
    if original_format not in PLAIN or len(original_format) != len(shape) or not set(original_format) <= axes:
        raise DataError(
            f"a tensor {shape} of layout {original_format or 'ND'} cannot be stored as {name}: name its axes"
        )
    return original_format

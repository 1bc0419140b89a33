"""Which tensors that no name pairs look the same: equal values, values that go together, names and shapes alike.

Only a bounded part of the data is read: tensors of at most :data:`TENSOR_BYTES`, :data:`TOTAL_BYTES` in all.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from compare.leftovers import Leftover, alike
from compare.op_lookup import size_bytes
from compare.slices import shape_of
from dumpers.errors import DataError
from dumpers.formats.layouts import load_original
from dumpers.names import flatten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord

TENSOR_BYTES: Final = 1 << 20
TOTAL_BYTES: Final = 64 << 20

SAMPLE: Final = 4096
"""Elements of a tensor that are held against those of others."""

_MIN_ELEMENTS: Final = 16
"""Fewer values agree by chance."""

_GROUP: Final = 256
"""Tensors of one shape on a side, at most, for the look at values."""

_CORRELATION, _DOUBT = 0.99, 0.95
_NAMES: Final = 200
_NEAR: Final = 20
_MIN_SCORE: Final = 0.5
_WORDS: Final = re.compile(r"[A-Za-z]+|\d+")


@dataclass(frozen=True)
class Likeness:
    """Two ops that look the same.

    Attributes:
        left, right: Flattened names.
        score: 1 for equal values; a correlation; a similarity of names between 0 and 1.
        kind: ``equal values``, ``like values`` or ``like names``.
        reason: The score in words.
    """

    left: str
    right: str
    score: float
    kind: str
    reason: str


@dataclass
class _Values:
    """Digest of one tensor, and its first elements with mean 0 and length 1."""

    op: str
    digest: bytes
    sample: NDArray[np.float64]


def by_values(left: dict[str, Leftover], right: dict[str, Leftover]) -> list[Likeness]:
    """Finds ops with equal values, or values that go together, by their outputs.

    A partner counts only if it is the only one on both sides; constants are left out.
    """
    found: dict[str, Likeness] = {}
    for lefts, rights in _loaded(left, right):
        taken = {one.right for one in found.values()}
        for like in (*_equal(lefts, rights), *_correlated(lefts, rights)):
            if like.left not in found and like.right not in taken:
                found[like.left] = like
                taken.add(like.right)
    return list(found.values())


def _loaded(left: dict[str, Leftover], right: dict[str, Leftover]) -> Iterator[tuple[list[_Values], list[_Values]]]:
    """Yields the values of both sides by number of elements and kind, as far as the budget goes."""
    groups: dict[tuple[object, ...], tuple[list[tuple[str, TensorRecord]], list[tuple[str, TensorRecord]]]] = {}
    for side, ops in enumerate((left, right)):
        for flat, op in ops.items():
            for (io, slot), record in op.tensors.items():
                shape = shape_of(record)
                if io == "output" and shape and _MIN_ELEMENTS <= size_bytes(record) <= TENSOR_BYTES:
                    key = (slot, *sorted(size for size in shape if size != 1))
                    groups.setdefault(key, ([], []))[side].append((flat, record))
    budget = TOTAL_BYTES
    for lefts, rights in groups.values():
        if not lefts or not rights or max(len(lefts), len(rights)) > _GROUP:
            continue
        budget -= sum(size_bytes(record) for _, record in (*lefts, *rights))
        if budget < 0:
            return
        yield _read(lefts), _read(rights)


def _read(records: Iterable[tuple[str, TensorRecord]]) -> list[_Values]:
    found = []
    for op, record in records:
        try:
            array = load_original(record)
        except DataError:
            continue  # Damaged data are reported where they are compared; here they are no evidence.
        if array.dtype.kind not in "fiub" or array.size < _MIN_ELEMENTS:
            continue
        sample = _standardised(array)
        if sample is not None:
            found.append(_Values(op, hashlib.sha256(array.tobytes()).digest(), sample))
    return found


def _standardised(array: NDArray[np.generic]) -> NDArray[np.float64] | None:
    """Returns the first elements with mean 0 and length 1, None for constants and what is not finite."""
    sample = array.reshape(-1)[:SAMPLE].astype(np.float64)
    if not np.isfinite(sample).all():
        return None
    greatest = float(np.abs(sample).max())
    if greatest == 0:
        return None
    sample = sample / greatest  # no overflow in the squares
    sample -= sample.mean()
    length = float(np.sqrt(np.dot(sample, sample)))
    return sample / length if length > 1e-6 else None


def _equal(lefts: list[_Values], rights: list[_Values]) -> Iterator[Likeness]:
    groups: dict[bytes, tuple[list[str], list[str]]] = {}
    for side, values in enumerate((lefts, rights)):
        for value in values:
            groups.setdefault(value.digest, ([], []))[side].append(value.op)
    for mine, theirs in groups.values():
        if len(mine) == 1 == len(theirs):
            yield Likeness(mine[0], theirs[0], 1.0, "equal values", "all values are equal, and of no other tensor")


def _correlated(lefts: list[_Values], rights: list[_Values]) -> Iterator[Likeness]:
    if not lefts or not rights:
        return
    table = np.stack([value.sample for value in lefts]) @ np.stack([value.sample for value in rights]).T
    for row, value in enumerate(lefts):
        best = int(np.argmax(table[row]))
        score = min(1.0, float(table[row, best]))
        rivals = max(np.delete(table[row], best).max(initial=-1), np.delete(table[:, best], row).max(initial=-1))
        if score >= _CORRELATION and rivals < _DOUBT:
            reason = f"the first {value.sample.size} values correlate with {score:.4f}, those of no other tensor do"
            yield Likeness(value.op, rights[best].op, score, "like values", reason)


def by_names(left: dict[str, Leftover], right: dict[str, Leftover]) -> list[Likeness]:
    """Finds for each of the first ops the one whose name is nearest; equal shapes count for a third."""
    words = {flat: frozenset(_WORDS.findall(flat)) for flat in right}
    index: dict[str, list[str]] = {}
    for flat, parts in words.items():
        for part in parts:
            index.setdefault(part, []).append(flat)
    found = []
    for flat in list(left)[:_NAMES]:
        shared: dict[str, int] = {}
        mine = frozenset(_WORDS.findall(flat))
        for part in sorted(mine, key=lambda part: len(index.get(part, ()))):
            for other in index.get(part, ())[:_GROUP]:
                shared[other] = shared.get(other, 0) + 1
        near = sorted(shared, key=lambda other: (-shared[other] / len(words[other] | mine), other))[:_NEAR]
        scored = [(_name_score(left[flat], right[other]), other) for other in near]
        if scored:
            (score, shape), other = max(scored, key=lambda item: (item[0][0], item[1]))
            if score >= _MIN_SCORE:
                text = "same shape" if shape else "shapes differ or are not known"
                found.append(Likeness(flat, other, score, "like names", f"nearest name ({score:.2f}), {text}"))
    return found


def _name_score(left: Leftover, right: Leftover) -> tuple[float, bool]:
    names = difflib.SequenceMatcher(None, flatten(left.name)[-256:], flatten(right.name)[-256:], autojunk=False)
    common = [(record, right.tensors[key]) for key, record in left.tensors.items() if key in right.tensors]
    same = bool(common) and all(alike(one, other) for one, other in common)
    return (2 * names.ratio() + same) / 3, same

"""Before anybody is accused: did both sides see the same batch, the same weights, the same random numbers?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.isolation import same_bits
from compare.metrics import compare_arrays
from dumpers.dtypes import WITHOUT_VALUE, is_float
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.pairing import Pairing
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump, TensorRecord

FEEDS = frozenset({"Data", "Placeholder", "PlaceholderWithDefault"})
WEIGHTS = frozenset({"ReadVariableOp", "Variable", "VariableV2", "VarHandleOp"})
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "StatelessTruncated", "ParameterizedTruncated", "Dropout")

NOISE = 1e-3
"""Relative distance up to which differing floats may be honest: different libraries, an earlier step's rounding."""


@dataclass(frozen=True)
class Difference:
    """A pair of tensors that differ though nothing that was judged explains it.

    Attributes:
        left, right: The records.
        differing, elements: How many elements differ, None where shapes or kinds of data differ.
        distance: Relative Euclidean distance, None if undefined.
    """

    left: TensorRecord
    right: TensorRecord
    differing: int | None
    elements: int
    distance: float | None

    @property
    def beyond_noise(self) -> bool:
        """Whether rounding cannot be the reason: integers, other shapes, or floats more than 1e-3 apart."""
        if self.differing is None or not (is_float(self.left.dtype) and is_float(self.right.dtype)):
            return True
        return self.distance is None or self.distance > NOISE


class Partners:
    """The right-hand record of every left-hand one."""

    def __init__(self, pairing: Pairing) -> None:
        self._right: Mapping[tuple[str, str, int], TensorRecord] = {
            (p.left.op, p.left.io, p.left.slot): p.right for p in pairing.pairs if p.left and p.right
        }

    def of(self, record: TensorRecord) -> TensorRecord | None:
        """Returns the partner of a left-hand record."""
        return self._right.get((record.op, record.io, record.slot))


def difference(left: TensorRecord, right: TensorRecord) -> Difference | None:
    """Compares two records; None if they are equal or one of them has no value.

    Raises:
        DataError: a file is damaged.
    """
    if left.source is None or right.source is None or {left.dtype, right.dtype} & WITHOUT_VALUE:
        return None
    a, b = left.load(), right.load()
    if same_bits(a, b):
        return None
    integers = a.dtype.kind in "iub" and b.dtype.kind in "iub"
    if integers and a.size == b.size and np.array_equal(a.reshape(-1), b.reshape(-1)):
        return None  # A device may narrow int64 feeds to int32: the values count, not the width.
    figures = compare_arrays(a, b)
    if figures.differing is None and figures.flattened is not None:
        figures = figures.flattened  # The device may store a reshaped tensor; the elements count here.
    if figures.differing == 0:
        return None
    return Difference(left, right, figures.differing, figures.elements, figures.relative_distance)


def unequal_feeds(left: Dump, right: Dump, graph: Graph | None) -> Iterator[Difference]:
    """Yields the fed tensors that differ. On a device a feed is seen where it is first read."""
    if graph is None:
        return
    for op in graph:
        if op.type not in FEEDS:
            continue
        mine = _fed(left, graph, op)
        original = op.originals[0] if op.originals else op.name
        theirs = right.tensor(original, "output", 0) or _read_by_consumer(right, original)
        if mine is not None and theirs is not None and (found := _difference(mine, theirs)) is not None:
            yield found


def unequal_weights(left: Dump, graph: Graph | None, partners: Partners) -> Iterator[Difference]:
    """Yields variables whose value differs where it is read."""
    for record in left:
        op = graph.ops.get(record.op) if graph else None
        kind = op.type if op else record.op_type
        if kind in WEIGHTS and record.io == "output" and (found := _against(record, partners)) is not None:
            yield found


def unjudged_differences(left: Dump, judged: frozenset[str], partners: Partners) -> Iterator[Difference]:
    """Yields outputs that differ although all the op's paired inputs are equal, for ops that could not be replayed."""
    for name, records in left.by_op.items():
        if name in judged or not _equal_inputs(records, partners):
            continue
        for record in records:
            if record.io == "output" and (found := _against(record, partners)) is not None:
                yield found


def is_random(op_type: str) -> bool:
    """Whether an op draws random numbers, by its type."""
    return any(mark in op_type for mark in _RANDOM)


def _equal_inputs(records: tuple[TensorRecord, ...], partners: Partners) -> bool:
    """All inputs have a partner and equal it; an op without inputs in the dump cannot be told apart from a carrier."""
    inputs = [r for r in records if r.io == "input" and r.source is not None]
    pairs = [(record, partners.of(record)) for record in inputs]
    return bool(pairs) and all(other is not None and _difference(record, other) is None for record, other in pairs)


def _against(record: TensorRecord, partners: Partners) -> Difference | None:
    other = partners.of(record)
    return _difference(record, other) if other is not None else None


def _difference(left: TensorRecord, right: TensorRecord) -> Difference | None:
    """As :func:`difference`; a damaged file is no difference (the sweep reports it)."""
    try:
        return difference(left, right)
    except DataError:
        return None


def _fed(dump: Dump, graph: Graph, op: Op) -> TensorRecord | None:
    own = dump.tensor(op.name, "output", 0)
    if own is not None:
        return own
    for consumer, index, _ in graph.consumers[op.name]:
        record = dump.tensor(consumer, "input", index)
        if record is not None:
            return record
    return None


def _read_by_consumer(dump: Dump, name: str) -> TensorRecord | None:
    graph = dump.graph
    if graph is None or name not in graph.ops:
        return None
    return _fed(dump, graph, graph.ops[name])

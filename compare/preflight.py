"""Before anybody is accused: did both sides see the same batch, the same weights, the same random numbers?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.isolation import input_records, same_bits
from compare.kernels.table import device_type
from compare.metrics import compare_arrays
from compare.table_names import VARIABLES
from compare.views import original_layouts
from dumpers.dtypes import WITHOUT_VALUE, is_float
from dumpers.errors import DataError
from dumpers.formats.layouts import is_private

if TYPE_CHECKING:
    from compare.pairing import Pairing
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump, TensorRecord

FEEDS = frozenset({"Data", "Placeholder", "PlaceholderWithDefault"})
WEIGHTS = VARIABLES | {"ReadVariableOp"}
_UPDATES = ("Apply", "Assign", "Scatter", "SparseApply", "StridedSliceAssign")
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "StatelessTruncated", "ParameterizedTruncated", "Dropout")

UNRELATED = 0.7
"""Relative distance from which on two weights have nothing to do with each other: independent ones are 1.4 apart, those
of two honest devices after ten steps of Adam at most 0.4 (docs/decisions/0005)."""

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
            (p.left.op, p.left.io, p.left.slot): p.right for p in pairing.pairs if not p.steps
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
    if is_private(left.format) or is_private(right.format):
        a, b, _ = original_layouts(left, a, right, b)
    integers = a.dtype.kind in "iub" and b.dtype.kind in "iub"
    if integers and a.size == b.size and np.array_equal(a.reshape(-1), b.reshape(-1)):
        return None  # A device may narrow int64 feeds to int32: the values count, not the width.
    figures = compare_arrays(a, b)
    if figures.differing is None and figures.flattened is not None:
        figures = figures.flattened  # The device may store a reshaped tensor; the elements count here.
    if figures.differing == 0:
        return None
    return Difference(left, right, figures.differing, figures.elements, figures.relative_distance)


def unequal_feeds(
    left: Dump, right: Dump, graph: Graph | None, right_graph: Graph | None = None
) -> Iterator[tuple[Op, Difference]]:
    """Yields the feeds of the left graph that differ. On a device a feed is seen where it is first read."""
    if graph is None:
        return
    for op in graph:
        if op.type not in FEEDS:
            continue
        mine = _fed(left, graph, op)
        original = op.originals[0] if op.originals else op.name
        theirs = right.tensor(original, "output", 0) or _read_by_consumer(right, right_graph or right.graph, original)
        if mine is not None and theirs is not None and (found := _difference(mine, theirs)) is not None:
            yield op, found


def unequal_weights(
    left: Dump, graph: Graph | None, partners: Partners, right: Dump | None = None
) -> Iterator[Difference]:
    """Yields what was read from variables, before the step changed them, and differs.

    A device that reads a variable in place dumps it as the input of its readers; ``right`` then has it under the name
    of the variable, or of its read.
    """
    updated: set[str] = set()
    seen: set[str] = set()
    for name, records in left.by_op.items():
        op = graph.ops.get(name) if graph else None
        kind = op.type if op else records[0].op_type
        variable = op.inputs[0].op if op is not None and op.inputs and kind not in VARIABLES else name
        reads = kind in WEIGHTS or (op is not None and graph is not None and _same_lookup(left, graph, op, partners))
        if reads and variable not in updated:
            yield from (found for r in records if r.io == "output" and (found := against(r, partners)) is not None)
        elif op is not None and graph is not None and right is not None:
            yield from _read_in_place(left, right, graph, op, updated, seen)
        if op is not None and kind.removeprefix("Resource").startswith(_UPDATES):
            updated.update(source.op for source in op.inputs)


def _read_in_place(
    left: Dump, right: Dump, graph: Graph, op: Op, updated: set[str], seen: set[str]
) -> Iterator[Difference]:
    """Yields the variables that an op is the first to read, where the other side read something else."""
    for index, source in enumerate(op.inputs):
        producer = graph.ops.get(source.op)
        if producer is None or producer.type not in VARIABLES or source.op in updated or source.op in seen:
            continue
        mine = left.tensor(op.name, "input", index)
        names = [name for original in (*producer.originals, producer.name) for name in (original, f"{original}/read")]
        theirs = next((r for name in names if (r := right.tensor(name, "output", 0)) is not None and r.source), None)
        if mine is None or theirs is None or mine.dtype in WITHOUT_VALUE:
            continue
        seen.add(source.op)
        if (found := _difference(mine, theirs)) is not None:
            yield found


def is_lookup(op: Op, graph: Graph | None) -> bool:
    """Whether an op fetches rows right from a variable: what it gives is as good as the variable."""
    source = graph.ops.get(op.inputs[0].op) if graph is not None and op.inputs else None
    return source is not None and source.type in VARIABLES and device_type(op.type) == "GatherV2"


def _same_lookup(left: Dump, graph: Graph, op: Op, partners: Partners) -> bool:
    """Whether an op is a lookup and both sides asked for the same rows."""
    if not is_lookup(op, graph) or len(op.inputs) < 2:
        return False
    indices = input_records(left, graph, op)[0][1]
    return indices is not None and partners.of(indices) is not None and against(indices, partners) is None


def unrelated(found: Sequence[Difference]) -> bool:
    """Whether weights come from somewhere else altogether: most elements of what differs are that far apart."""
    far = sum(d.elements for d in found if d.distance is None or d.distance > UNRELATED)
    return 2 * far > sum(d.elements for d in found)


def is_random(op_type: str) -> bool:
    """Whether an op draws random numbers, by its type."""
    return any(mark in op_type for mark in _RANDOM)


def against(record: TensorRecord, partners: Partners) -> Difference | None:
    """Compares a left-hand record with its partner; None if there is none."""
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


def _read_by_consumer(dump: Dump, graph: Graph | None, name: str) -> TensorRecord | None:
    """Finds a feed, by its framework name, where an op of a device read it."""
    if graph is None:
        return None
    ops = [graph.ops[n] for n in (name, *graph.by_original.get(name, ())) if n in graph.ops]
    return next((record for op in ops if op.type in FEEDS and (record := _fed(dump, graph, op)) is not None), None)

"""Finding ops and tensors by names that a file system may have flattened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from dumpers.dtypes import numpy_dtype
from dumpers.names import flatten

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op, Source
    from dumpers.records import Io, TensorRecord

Key = tuple[str, str, int]


class OpLookup:
    """Ops of a graph by full name, else by flattened name where that names one op only (of the wanted type)."""

    def __init__(self, graph: Graph) -> None:
        self._ops = graph.ops
        self._flat: dict[str, list[Op]] = {}
        for op in graph:
            self._flat.setdefault(flatten(op.name), []).append(op)

    def find(self, name: str, op_type: str = "") -> Op | None:
        """Returns the op, None if there is none or the flattened name fits several."""
        exact = self._ops.get(name)
        if exact is not None:
            return exact
        found = self._flat.get(flatten(name), [])
        if len(found) > 1 and op_type:
            found = [op for op in found if op.type == op_type]
        return found[0] if len(found) == 1 else None


class TensorLookup:
    """Tensors of one dump: the newest of each, by full or flattened op name.

    Attributes:
        exact: The newest tensors by full op name, side and slot.
        older: Tensors that a newer one of the same op and slot replaces.
    """

    def __init__(self, records: Iterable[TensorRecord]) -> None:
        self.exact: dict[Key, TensorRecord] = {}
        self.older: list[TensorRecord] = []
        for record in records:
            key = (record.op, record.io, record.slot)
            present = self.exact.setdefault(key, record)
            if present is not record:
                newer = _time(record) >= _time(present)
                self.older.append(present if newer else record)
                self.exact[key] = record if newer else present

    @cached_property
    def _flat(self) -> dict[Key, list[TensorRecord]]:
        """By flattened name; most pairs of dumps never need it."""
        found: dict[Key, list[TensorRecord]] = {}
        for record in self.exact.values():
            found.setdefault((flatten(record.op), record.io, record.slot), []).append(record)
        return found

    @cached_property
    def _slots(self) -> dict[str, dict[str, list[int]]]:
        """Slots by flattened op name and side."""
        found: dict[str, dict[str, list[int]]] = {}
        for op, io, slot in self._flat:
            found.setdefault(op, {}).setdefault(io, []).append(slot)
        return found

    def __iter__(self) -> Iterator[TensorRecord]:
        return iter(self.exact.values())

    def __len__(self) -> int:
        return len(self.exact)

    def find(self, op: str, io: Io, slot: int) -> TensorRecord | None:
        """Returns the newest tensor, None if there is none or the flattened name fits several ops."""
        exact = self.exact.get((op, io, slot))
        if exact is not None:
            return exact
        found = self._flat.get((flatten(op), io, slot), [])
        return found[0] if len(found) == 1 else None

    def ambiguous(self, op: str, io: Io, slot: int) -> bool:
        """Tells whether the flattened name fits several ops and the full name none."""
        return (op, io, slot) not in self.exact and len(self._flat.get((flatten(op), io, slot), [])) > 1

    def slots(self, op: str, io: Io) -> list[int] | None:
        """Returns the slots that an op has on one side, by its flattened name; None if there is no such op."""
        found = self._slots.get(flatten(op))
        return None if found is None else sorted(found.get(io, []))

    def by_op(self) -> dict[str, list[TensorRecord]]:
        """Newest tensors of each op, ops in order of execution, inputs first, then by slot."""
        groups: dict[str, list[TensorRecord]] = {}
        for record in self.exact.values():
            groups.setdefault(record.op, []).append(record)
        for group in groups.values():
            if len(group) > 1:
                group.sort(key=lambda r: (r.io != "input", r.slot))
        return groups


def recorded_sources(op: Op, recorded: int) -> tuple[Source, ...]:
    """Returns the producers of the inputs that a dump has, by slot.

    Absent optional inputs take a slot in the graph; whether they take one in the dump shows in the number of inputs
    there.
    """
    present = tuple(source for source in op.inputs if source.op)
    return present if recorded == len(present) else op.inputs


def size_bytes(record: TensorRecord) -> int:
    """Returns the bytes a record's array takes in memory, by its file where the dtype or shape is not known."""
    if record.source is None:
        return 0
    if record.shape is not None:
        size = _array_bytes(record.dtype, record.shape)
        if size is not None:
            return size
    try:
        return record.source.path.stat().st_size
    except OSError:
        return 0


def _time(record: TensorRecord) -> int:
    return -1 if record.timestamp_us is None else record.timestamp_us


@lru_cache(maxsize=4096)
def _array_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of an array; None for a dtype without values. A dump has few shapes and many tensors."""
    try:
        return numpy_dtype(dtype).itemsize * math.prod(shape)
    except ValueError:
        return None

"""Examination of one side: every op run again from its own inputs, every read held against what was written.

This needs one dump and its graph, no second device. What comes out: the ops whose own error is above what rounding
explains, the tensors that changed between their writer and a reader, and what could not be judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.replay import LocalError, local_error
from compare.verdict import Skipped
from dumpers.dtypes import WITHOUT_VALUE
from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.graph import Graph, Op
    from dumpers.records import Dump, TensorRecord

Progress = Callable[[int, int], None]

WITHOUT_TASK = frozenset({"Data", "Const", "Variable", "NetOutput", "NoOp", "Placeholder", "VarHandleOp", "VariableV2"})
"""Types that compute nothing: what they hold is seen where it is read."""


@dataclass(frozen=True)
class OpCheck:
    """What the replay of one op says.

    Attributes:
        position: Place in the order of execution, from 0.
        errors: Per output; empty when the op could not be replayed.
        reason: Why not, empty otherwise.
        assumed_inputs: True where the dump has no inputs and the producers' outputs were taken instead.
    """

    op: Op
    position: int
    errors: tuple[LocalError, ...] = ()
    reason: str = ""
    assumed_inputs: bool = False

    @property
    def worst(self) -> LocalError | None:
        """The output with the largest ratio."""
        judged = [e for e in self.errors if e.ratio is not None]
        return max(judged, key=lambda e: e.ratio if e.ratio is not None else -1.0) if judged else None

    @property
    def ratio(self) -> float | None:
        """Largest ratio of error to bound, None if nothing was judged."""
        worst = self.worst
        return worst.ratio if worst else None


@dataclass(frozen=True)
class Overwrite:
    """A reader that read other bytes than the writer wrote.

    Attributes:
        producer, slot: Who wrote, which output.
        consumer, index: Who read, as which input.
        differing: Elements that differ, of ``elements``.
        first: Flat position of the first one.
        position: The reader's place in the order of execution.
    """

    producer: Op
    slot: int
    consumer: str
    index: int
    differing: int
    elements: int
    first: int
    position: int


@dataclass(frozen=True)
class Examination:
    """All checks of one side, in order of execution."""

    checks: tuple[OpCheck, ...]
    overwrites: tuple[Overwrite, ...]
    skipped: tuple[Skipped, ...]
    judged_bytes: int

    def sources(self, limit: float) -> tuple[OpCheck, ...]:
        """Ops whose ratio is above ``limit``, in order of execution."""
        return tuple(c for c in self.checks if c.ratio is not None and c.ratio > limit)


def examine(dump: Dump, graph: Graph, *, threads: int | None = None, progress: Progress | None = None) -> Examination:
    """Checks every op of a dump.

    Ops run in ``threads`` threads; the result does not depend on their number. At most ``threads`` ops have their
    tensors in memory at a time.
    """
    names = [name for name in dump.by_op if name in graph.ops and graph.ops[name].type not in WITHOUT_TASK]
    skipped = [Skipped(name, "not in the graph of this dump") for name in dump.by_op if name not in graph.ops]
    jobs = [(graph.ops[name], position) for position, name in enumerate(names)]
    checks: list[OpCheck] = []
    overwrites: list[Overwrite] = []
    judged = 0
    with ThreadPoolExecutor(max_workers=threads) as pool:
        work = pool.map(lambda job: _check(dump, graph, *job), jobs)
        for done, (check, found, size) in enumerate(work, 1):
            checks.append(check)
            overwrites += found
            judged += size
            if check.reason:
                skipped.append(Skipped(check.op.name, check.reason))
            skipped += [Skipped(f"{check.op.name}:output:{e.slot}", e.reason) for e in check.errors if e.reason]
            if progress:
                progress(done, len(jobs))
    return Examination(tuple(checks), tuple(overwrites), tuple(skipped), judged)


def input_records(dump: Dump, graph: Graph, op: Op) -> tuple[list[TensorRecord | None], bool]:
    """Returns the records of an op's inputs and whether one was taken from its producer for want of a dumped input."""
    records: list[TensorRecord | None] = []
    assumed = False
    for index, source in enumerate(op.inputs):
        record = dump.tensor(op.name, "input", index)
        if record is None and source.op:
            record = dump.tensor(source.op, "output", source.slot)
            assumed = assumed or record is not None
        records.append(record)
    return records, assumed


def output_records(dump: Dump, op: Op) -> list[TensorRecord | None]:
    """Returns the records of an op's outputs by slot, None where one was not dumped."""
    slots = [r.slot for r in dump.by_op.get(op.name, ()) if r.io == "output"]
    return [dump.tensor(op.name, "output", slot) for slot in range(max(slots, default=-1) + 1)]


def load_values(records: Sequence[TensorRecord | None]) -> list[NDArray[np.generic] | None]:
    """Loads what has a value; None for the rest.

    Raises:
        DataError: a file is damaged.
    """
    return [
        r.load() if r is not None and r.source is not None and r.dtype not in WITHOUT_VALUE else None for r in records
    ]


def same_bits(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    """Whether two arrays of one dtype and shape hold the same bytes (NaN equals itself)."""
    return left.dtype == right.dtype and left.shape == right.shape and bool(np.array_equal(_bytes(left), _bytes(right)))


def _check(dump: Dump, graph: Graph, op: Op, position: int) -> tuple[OpCheck, list[Overwrite], int]:
    records, assumed = input_records(dump, graph, op)
    try:
        inputs = load_values(records)
        outputs = load_values(output_records(dump, op))
        overwrites = list(_overwrites(dump, graph, op, position, records, inputs))
    except DataError as error:
        return OpCheck(op, position, reason=f"unreadable: {error}"), [], 0
    judged = sum(a.nbytes for a in (*inputs, *outputs) if a is not None)
    if all(output is None for output in outputs):
        return OpCheck(op, position, reason="no output with a value in the dump"), overwrites, judged
    errors = tuple(local_error(op, inputs, outputs))
    reasons = {error.reason for error in errors if error.ratio is None}
    if errors and all(error.ratio is None for error in errors):
        return OpCheck(op, position, reason="; ".join(sorted(reasons))), overwrites, judged
    return OpCheck(op, position, errors, assumed_inputs=assumed), overwrites, judged


def _overwrites(
    dump: Dump,
    graph: Graph,
    op: Op,
    position: int,
    records: Sequence[TensorRecord | None],
    inputs: Sequence[NDArray[np.generic] | None],
) -> Iterator[Overwrite]:
    for index, (source, record, read) in enumerate(zip(op.inputs, records, inputs, strict=True)):
        producer = graph.ops.get(source.op)
        if producer is None or record is None or read is None or record.io != "input":
            continue
        origin = dump.tensor(source.op, "output", source.slot)
        if origin is None or origin.source is None:
            continue
        written = origin.load()
        if written.dtype != read.dtype or written.size != read.size or same_bits(written.reshape(-1), read.reshape(-1)):
            continue
        differing = np.flatnonzero(_changed(written, read))
        yield Overwrite(producer, source.slot, op.name, index, len(differing), read.size, int(differing[0]), position)


def _changed(written: NDArray[np.generic], read: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which elements differ in a byte; both contiguous and of one dtype and size."""
    width = written.dtype.itemsize
    differs: NDArray[np.bool_] = _bytes(written).reshape(-1, width) != _bytes(read).reshape(-1, width)
    return np.asarray(differs.any(axis=1))


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def infinite(value: float | None) -> bool:
    """Whether a ratio is that of an exact op, or of a NaN that the replay does not have."""
    return value is not None and math.isinf(value)

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
from dumpers.formats.layouts import is_private, to_original

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.graph import Graph, Op, Source
    from dumpers.records import Dump, Io, TensorRecord

Progress = Callable[[int, int], None]

WITHOUT_TASK = frozenset({"Data", "Const", "Variable", "NetOutput", "NoOp", "Placeholder", "VarHandleOp", "VariableV2"})
"""Types that compute nothing: what they hold is seen where it is read."""

CONSTANTS = frozenset({"Const", "Constant", "HostConst"})


@dataclass(frozen=True)
class OpCheck:
    """What the replay of one op says.

    Attributes:
        position: Place in the order of execution, from 0.
        errors: Per output; empty when the op could not be replayed.
        reason: Why not, empty otherwise.
        assumed_inputs: True where the dump has no inputs and the producers' outputs were taken instead.
        written_bytes: Size of the outputs that have a value in the dump.
        replayed_bytes: Size of those of them that were judged.
    """

    op: Op
    position: int
    errors: tuple[LocalError, ...] = ()
    reason: str = ""
    assumed_inputs: bool = False
    written_bytes: int = 0
    replayed_bytes: int = 0

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
    """All checks of one side, in order of execution.

    Attributes:
        outputs_only: Whether this is a device dump without a single input, as devices make by default.
    """

    checks: tuple[OpCheck, ...]
    overwrites: tuple[Overwrite, ...]
    skipped: tuple[Skipped, ...]
    judged_bytes: int
    outputs_only: bool = False

    def sources(self, limit: float) -> tuple[OpCheck, ...]:
        """Ops whose ratio is above ``limit``, in order of execution."""
        return tuple(c for c in self.checks if c.ratio is not None and c.ratio > limit)


def examine(
    dump: Dump,
    graph: Graph,
    *,
    lender: Dump | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Checks every op of a dump.

    Ops run in ``threads`` threads; the result does not depend on their number. At most ``threads`` ops have their
    tensors in memory at a time. Constants that the dump lacks are taken from ``lender``.
    """
    names = [name for name in dump.by_op if name in graph.ops and graph.ops[name].type not in WITHOUT_TASK]
    skipped = [Skipped(name, "not in the graph of this dump") for name in dump.by_op if name not in graph.ops]
    checks: list[OpCheck] = []
    overwrites: list[Overwrite] = []
    judged = 0
    pool = ThreadPoolExecutor(max_workers=threads)
    try:
        jobs = [pool.submit(_check, dump, graph, graph.ops[name], place, lender) for place, name in enumerate(names)]
        for done, job in enumerate(jobs, 1):
            check, found, size = job.result()
            checks.append(check)
            overwrites += found
            judged += size
            if check.reason:
                skipped.append(Skipped(check.op.name, check.reason))
            skipped += [Skipped(f"{check.op.name}:output:{e.slot}", e.reason) for e in check.errors if e.reason]
            if progress:
                progress(done, len(jobs))
    finally:
        # After Ctrl-C the ops that wait are dropped; those under way end on their own.
        pool.shutdown(wait=True, cancel_futures=True)
    outputs_only = any(r.device == "npu" for r in dump) and all(r.io == "output" for r in dump)
    return Examination(tuple(checks), tuple(overwrites), tuple(skipped), judged, outputs_only)


def input_records(
    dump: Dump, graph: Graph, op: Op, lender: Dump | None = None
) -> tuple[list[TensorRecord | None], bool]:
    """Returns the records of an op's inputs and whether one was taken from elsewhere for want of a dumped input.

    First what the op's last execution read; else what the producer wrote before that; a constant, which devices never
    dump and nobody computes, also from ``lender``, the dump of the other side.
    """
    own = last_execution(dump, op)
    moment = next((r.timestamp_us for (io, _), r in own.items() if io == "output"), None)
    records: list[TensorRecord | None] = []
    assumed = False
    for index, source in enumerate(op.inputs):
        record = own.get(("input", index))
        if record is None and source.op:
            record = written(dump, source, moment) or _lent(graph, source, lender)
            assumed = assumed or record is not None
        records.append(record)
    return records, assumed


def last_execution(dump: Dump, op: Op) -> dict[tuple[Io, int], TensorRecord]:
    """Returns the records of an op's last execution by (io, slot); in a loop an op runs more than once."""
    records = dump.by_op.get(op.name, ())
    newest = {(r.io, r.slot): r for r in records}
    moments = {r.timestamp_us for (io, _), r in newest.items() if io == "output"}
    if len(newest) < len(records) and len(moments) == 1:
        return {key: r for key, r in newest.items() if r.timestamp_us in moments}
    return newest


def written(dump: Dump, source: Source, moment: int | None) -> TensorRecord | None:
    """Returns what a producer wrote last, of several executions the last one that is not after ``moment``."""
    records = [r for r in dump.by_op.get(source.op, ()) if r.io == "output" and r.slot == source.slot]
    if len(records) > 1 and moment is not None:
        records = [r for r in records if r.timestamp_us is None or r.timestamp_us <= moment]
    return records[-1] if records else None


def _lent(graph: Graph, source: Source, lender: Dump | None) -> TensorRecord | None:
    producer = graph.ops.get(source.op)
    if lender is None or producer is None or producer.type not in CONSTANTS:
        return None
    found = (lender.tensor(name, "output", source.slot) for name in (*producer.originals, producer.name))
    return next((record for record in found if record is not None), None)


def output_records(dump: Dump, op: Op) -> list[TensorRecord | None]:
    """Returns the records of an op's outputs by slot, None where one was not dumped."""
    own = last_execution(dump, op)
    slots = [slot for io, slot in own if io == "output"]
    return [own.get(("output", slot)) for slot in range(max(slots, default=-1) + 1)]


def load_values(records: Sequence[TensorRecord | None]) -> list[NDArray[np.generic] | None]:
    """Loads what has a value, in the layout that the framework knows; None for the rest.

    Raises:
        DataError: a file is damaged, or a private layout cannot be undone.
    """
    return [
        _load(r) if r is not None and r.source is not None and r.dtype not in WITHOUT_VALUE else None for r in records
    ]


def _load(record: TensorRecord) -> NDArray[np.generic]:
    """Axes of an op's attributes mean those of the original shape: a tensor in private layout must not be taken as is.

    Raises:
        DataError: the file is damaged, or the original shape is not known.
    """
    array = record.load()
    if not is_private(record.format):
        return array
    if record.original_shape is None:
        raise DataError(f"{record.name} is stored in {record.format} and its original shape is not known")
    known, groups = str(getattr(record.source, "layout", "")), int(getattr(record.source, "groups", 1))
    if array.shape == record.original_shape:
        return array
    return to_original(array, record.format, record.original_shape, original_format=known, groups=groups)


def same_bits(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    """Whether two arrays of one dtype and shape hold the same bytes (NaN equals itself)."""
    return left.dtype == right.dtype and left.shape == right.shape and bool(np.array_equal(_bytes(left), _bytes(right)))


def _check(
    dump: Dump, graph: Graph, op: Op, position: int, lender: Dump | None
) -> tuple[OpCheck, list[Overwrite], int]:
    records, assumed = input_records(dump, graph, op, lender)
    try:
        inputs = load_values(records)
        outputs = load_values(output_records(dump, op))
        overwrites = list(_overwrites(dump, graph, op, position, records, inputs))
    except DataError as error:
        return OpCheck(op, position, reason=f"unusable: {error}"), [], 0
    judged = sum(a.nbytes for a in (*inputs, *outputs) if a is not None)
    if all(output is None for output in outputs):
        return OpCheck(op, position, reason="no output with a value in the dump"), overwrites, judged
    errors = tuple(local_error(op, inputs, outputs))
    reasons = {error.reason for error in errors if error.ratio is None}
    written_bytes = sum(array.nbytes for array in outputs if array is not None)
    if errors and all(error.ratio is None for error in errors):
        found = OpCheck(op, position, reason="; ".join(sorted(reasons)), written_bytes=written_bytes)
        return found, overwrites, judged
    sizes = {slot: array.nbytes for slot, array in enumerate(outputs) if array is not None}
    replayed = sum(sizes.get(error.slot, 0) for error in errors if error.ratio is not None)
    found = OpCheck(op, position, errors, assumed_inputs=assumed, written_bytes=written_bytes, replayed_bytes=replayed)
    return found, overwrites, judged


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
        origin = written(dump, source, record.timestamp_us)
        if origin is None or origin.source is None:
            continue
        wrote = _load(origin)
        if wrote.dtype != read.dtype or wrote.size != read.size or same_bits(wrote.reshape(-1), read.reshape(-1)):
            continue
        differing = np.flatnonzero(_changed(wrote, read))
        yield Overwrite(producer, source.slot, op.name, index, len(differing), read.size, int(differing[0]), position)


def _changed(wrote: NDArray[np.generic], read: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which elements differ in a byte; both contiguous and of one dtype and size."""
    width = wrote.dtype.itemsize
    differs: NDArray[np.bool_] = _bytes(wrote).reshape(-1, width) != _bytes(read).reshape(-1, width)
    return np.asarray(differs.any(axis=1))


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def infinite(value: float | None) -> bool:
    """Whether a ratio is that of an exact op, or of a NaN that the replay does not have."""
    return value is not None and math.isinf(value)

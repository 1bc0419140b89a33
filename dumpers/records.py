"""TensorRecord and Dump: what was dumped, in order of execution, without holding any array."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from dumpers.errors import DataError, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.summary import Summary
    from dumpers.graph import Graph

Io = Literal["input", "output"]


class TensorSource(Protocol):
    """Where the bytes of one tensor lie. Small, immutable and picklable, so that a worker can be handed it."""

    @property
    def path(self) -> Path:
        """The file that holds the tensor."""

    def load(self) -> NDArray[np.generic]:
        """Returns the array, read-only, in its stored dtype and shape.

        Raises:
            DataError: the file vanished or does not hold what its header claims.
        """


@dataclass(frozen=True)
class RecordedStatistics:
    """Figures of a tensor that its file states, instead of or beside the values; None for what the file leaves out.

    Attributes:
        count: Number of elements.
        nan, pos_inf, neg_inf: Numbers of non-finite elements.
        min, max, mean: Over the elements as the writer defines it (most writers take finite elements only).
        l1, l2: Sum of magnitudes, Euclidean norm.
        zero_share: Zeros of all numbers, 0 to 1.
    """

    count: int | None = None
    nan: int | None = None
    pos_inf: int | None = None
    neg_inf: int | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2: float | None = None
    l1: float | None = None
    zero_share: float | None = None

    @property
    def finite(self) -> bool | None:
        """Whether all elements are finite; None where the figures do not tell.

        Without counts a smallest or greatest value that is not finite tells; a finite one does not, since the writer
        may have left such elements out.
        """
        counts = (self.nan, self.pos_inf, self.neg_inf)
        if any(counts) or any(value is not None and not math.isfinite(value) for value in (self.min, self.max)):
            return False
        return None if None in counts else True


@dataclass(frozen=True)
class TensorRecord:
    """One tensor of a dump.

    Attributes:
        op: Name of the op. On the device side the name in the device graph where a graph or header tells it, else the
            flattened form of the file name; on the reference side the full name where an index tells it.
        op_type: Type of the op, empty if unknown.
        io: Whether the op read (``input``) or wrote (``output``) the tensor.
        slot: Position among the op's inputs or outputs.
        step: Training step, from 0; None if the files do not tell.
        timestamp_us: Microseconds since 1970; None if unknown.
        device: ``npu`` or ``tf``.
        dtype: Name as in :mod:`dumpers.dtypes`.
        shape: None if unknown until loaded.
        source: None when the tensor has no value; ``note`` then says why.
        format: Layout of the stored data (``ND``, ``NC1HWC0``, ...), empty if unknown or plain.
        original_shape: Shape before the device's private layout, None if the same or unknown.
        note: Why there is no value, or what is odd about it.
        task_id, stream_id: Device task, None elsewhere.
        statistics: Figures that the file itself states; such a record may have no ``source``.
        summary: What our own record keeps of a tensor instead of its values; its figures are in ``statistics`` too.
        size_bytes: Of the values, where a record that keeps none says so.
    """

    op: str
    op_type: str
    io: Io
    slot: int
    dtype: str
    shape: tuple[int, ...] | None
    source: TensorSource | None
    step: int | None = None
    timestamp_us: int | None = None
    device: str = "npu"
    format: str = ""
    original_shape: tuple[int, ...] | None = None
    note: str = ""
    task_id: int | None = None
    stream_id: int | None = None
    statistics: RecordedStatistics | None = None
    summary: Summary | None = None
    size_bytes: int | None = None

    @property
    def name(self) -> str:
        """``op:output:0``, as the TensorIndex column has it."""
        return f"{self.op}:{self.io}:{self.slot}"

    @property
    def path(self) -> Path | None:
        """The file that holds the tensor, None without a value."""
        return self.source.path if self.source else None

    def load(self) -> NDArray[np.generic]:
        """Returns the array, read-only.

        Raises:
            DataError: the record has no value, or its file is damaged.
        """
        if self.source is None:
            raise DataError(f"{self.name} has no value: {self.note or self.dtype}")
        array = self.source.load()
        array.flags.writeable = False
        return array


@dataclass(frozen=True)
class Problem:
    """A file of a dump that could not be used; the rest of the dump is not spoiled by it."""

    path: Path
    reason: str

    def __post_init__(self) -> None:
        """A reason is one line, like the message of an error; names in damaged files hold line ends."""
        object.__setattr__(self, "reason", one_line(self.reason))

    @classmethod
    def of(cls, path: Path, error: Exception) -> Problem:
        """Returns an error as the problem of a file; the message's own mention of the file is left out."""
        return cls(path, str(error).removeprefix(f"{path}: "))


@dataclass(frozen=True)
class Dump:
    """The records of one run and step, in order of execution (time stamp, then inputs before outputs, then slot).

    Attributes:
        path: The directory it was read from.
        records: All tensors.
        problems: Damaged files, each with its reason.
        ignored: Files that are no dump files (a readme), named so that nothing is dropped silently.
        graph: The graph that belongs to the records, if there is one.
    """

    path: Path
    records: tuple[TensorRecord, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[Path, ...] = ()
    graph: Graph | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[TensorRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def by_op(self) -> Mapping[str, tuple[TensorRecord, ...]]:
        """Records of each op, ops in order of execution."""
        groups: dict[str, list[TensorRecord]] = {}
        for record in self.records:
            groups.setdefault(record.op, []).append(record)
        return {name: tuple(group) for name, group in groups.items()}

    def tensor(self, op: str, io: Io, slot: int) -> TensorRecord | None:
        """Returns one tensor of an op, or None. The last one in time if the op ran more than once."""
        found = [r for r in self.by_op.get(op, ()) if r.io == io and r.slot == slot]
        return found[-1] if found else None


def execution_order(records: Sequence[TensorRecord]) -> tuple[TensorRecord, ...]:
    """Sorts records as a Dump wants them; never by the order in which a file system lists names (rule R4)."""
    return tuple(
        sorted(records, key=lambda r: (r.timestamp_us if r.timestamp_us is not None else -1, r.op, r.io, r.slot))
    )

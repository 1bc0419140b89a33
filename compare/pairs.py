"""What a pairing consists of: pairs, tensors without a partner, and how much of both dumps is in pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from compare.op_lookup import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dumpers.records import Dump, Io, TensorRecord

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Step:
    """One change to a side's array that makes the two of a pair comparable.

    Attributes:
        side: Whose array is changed.
        kind: ``rows`` keeps the rows ``numbers[0]`` to ``numbers[1]`` of the first axis, ``turn`` transposes by the
            permutation ``numbers``, ``shape`` reshapes to ``numbers`` (to the partner's shape where they are empty).
        why: For the note beside the figures.
    """

    side: Side
    kind: Literal["rows", "turn", "shape"]
    numbers: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Pair:
    """Two tensors to compare.

    Attributes:
        index: Number of the fusion group, or of the op in order of execution.
        op: Name of the left op, in full where a graph tells it.
        left_names, right_names: Ops of each side behind the row; ``right_names`` is empty for an inserted op.
        by_original: Whether the reference is a framework tensor found through the device graph.
        steps: What is done to the arrays before they are compared, in order.
    """

    index: int
    op: str
    op_type: str
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    left: TensorRecord
    right: TensorRecord
    by_original: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def io(self) -> Io:
        """Which side of the left op the tensor is on."""
        return self.left.io

    @property
    def slot(self) -> int:
        """Position among the left op's inputs or outputs."""
        return self.left.slot


@dataclass(frozen=True)
class Unpaired:
    """A tensor without a partner, or an op without any data.

    Attributes:
        side: Where the tensor or op is.
        record: None for an op without data.
        reason: Why there is no partner.
        wanted: Op that was looked for on the other side and is not there; empty where none was.
    """

    index: int
    op: str
    op_type: str
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    side: str
    record: TensorRecord | None
    reason: str
    wanted: str = ""

    @property
    def tensor(self) -> str:
        """``op:output:0``, or the op's name for an op without data."""
        return f"{self.op}:{self.record.io}:{self.record.slot}" if self.record else self.op


@dataclass(frozen=True)
class Coverage:
    """How much of both dumps is in pairs, in bytes."""

    left_bytes: int
    right_bytes: int
    paired_left_bytes: int
    paired_right_bytes: int


@dataclass(frozen=True)
class Pairing:
    """Pairs and the rest.

    Attributes:
        rows: Rows of a result table in its order: pairs, left tensors without a partner, ops without data.
        unpaired: All tensors without a partner and ops without data, of both sides.
        notes: Lines of the user's map that did nothing.
    """

    rows: tuple[Pair | Unpaired, ...]
    unpaired: tuple[Unpaired, ...]
    coverage: Coverage
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs, in order of execution."""
        return tuple(row for row in self.rows if isinstance(row, Pair))


def lone(index: int, record: TensorRecord, side: Side, reason: str, wanted: str = "") -> Unpaired:
    """Returns a tensor without a partner."""
    names = ((record.op,), ()) if side == "left" else ((), (record.op,))
    return Unpaired(index, record.op, record.op_type, names[0], names[1], side, record, reason, wanted)


def older(records: Iterable[TensorRecord], side: Side) -> list[Unpaired]:
    """Returns the tensors that a newer one of the same name hides."""
    found = []
    for record in records:
        reason = "an older dump of the same tensor; the newest is compared"
        if record.note.startswith("slice "):
            reason = f"{record.note.partition(';')[0]}, which could not be joined; another one of them is looked at"
        found.append(lone(-1, record, side, reason))
    return found


def coverage(left: Dump, right: Dump, rows: Sequence[Pair | Unpaired]) -> Coverage:
    """Returns the bytes of both dumps, and of their tensors that are in pairs, each counted once."""
    pairs = [row for row in rows if isinstance(row, Pair)]
    return Coverage(
        left_bytes=sum(map(size_bytes, left)),
        right_bytes=sum(map(size_bytes, right)),
        paired_left_bytes=sum(map(size_bytes, {id(pair.left): pair.left for pair in pairs}.values())),
        paired_right_bytes=sum(map(size_bytes, {id(pair.right): pair.right for pair in pairs}.values())),
    )


def swapped(pairing: Pairing) -> Pairing:
    """Exchanges the sides; a row is then named after the op that becomes the left one."""
    rows: list[Pair | Unpaired] = []
    for row in pairing.rows:
        if isinstance(row, Pair):
            op = row.right.op
            rows.append(
                replace(
                    row,
                    op=op,
                    left_names=row.right_names or (op,),
                    right_names=row.left_names,
                    left=row.right,
                    right=row.left,
                    steps=tuple(replace(step, side=_other(step.side)) for step in row.steps),
                )
            )
        else:
            rows.append(_exchange(row))
    whole = pairing.coverage
    bytes_ = Coverage(whole.right_bytes, whole.left_bytes, whole.paired_right_bytes, whole.paired_left_bytes)
    return Pairing(tuple(rows), tuple(_exchange(row) for row in pairing.unpaired), bytes_, pairing.notes)


def _exchange(row: Unpaired) -> Unpaired:
    side = "right" if row.side == "left" else "left"
    return replace(row, left_names=row.right_names, right_names=row.left_names, side=side)


def _other(side: Side) -> Side:
    return "right" if side == "left" else "left"

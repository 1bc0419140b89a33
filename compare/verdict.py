"""Verdict: what a pair of dumps means, as one object that every front shows and ``--json`` prints.

How it is reached stands in :mod:`compare.judge`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Kind(enum.StrEnum):
    """What was found."""

    FINE = "fine"
    ROUNDING = "rounding"
    OPERATOR = "operator"
    FUSION = "fusion"
    TABLE_LOOKUP = "table_lookup"
    OPTIMIZER = "optimizer"
    MEMORY_OVERWRITTEN = "memory_overwritten"
    UPSTREAM = "upstream"
    NAN_INPUT = "nan_input"
    PRECISION_MODE = "precision_mode"
    DATA = "data"
    RANDOMNESS = "randomness"
    NONDETERMINISM = "nondeterminism"
    CHECKPOINT = "checkpoint"
    NOT_COMPARABLE = "not_comparable"
    UNKNOWN = "unknown"

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong: only these two end with exit code 0."""
        return self in (Kind.FINE, Kind.ROUNDING)


@dataclass(frozen=True)
class Suspect:
    """An op whose own error is above what rounding explains.

    Attributes:
        op, op_type: Names in the graph of its side.
        side: ``left`` (the device under test) or ``right`` (the reference).
        local_error: Largest error against the float64 replay from the op's own inputs; infinite for a NaN or infinity
            that the replay does not have; None when the op could not be replayed.
        bound: What rounding may explain at that element; 0 for ops that only move bits.
        ratio: Error over bound there; infinite for an exact op.
        member: The guilty original op inside a fused op.
        note: One phrase for a person.
    """

    op: str
    op_type: str
    side: str = "left"
    local_error: float | None = None
    bound: float | None = None
    ratio: float | None = None
    member: str | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The suspect as JSON data; what is infinite is null and said in ``note``."""
        return {
            "op": self.op,
            "op_type": self.op_type,
            "side": self.side,
            "local_error": _finite(self.local_error),
            "bound": _finite(self.bound),
            "ratio": _finite(self.ratio),
            "member": self.member,
            "note": self.note,
        }


@dataclass(frozen=True)
class Skipped:
    """A tensor or op that could not be judged, with the reason."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """The answer.

    Attributes:
        kind: See :class:`Kind`.
        op, op_type, tensor: The guilty op in the device's graph and its worst tensor; None for a clean verdict.
        table, keys: Embedding table and the keys of the wrong rows (``table_lookup``).
        keys_total: How many keys are wrong; ``keys`` holds the first of them.
        step: Training step of the dump.
        confidence: 0 to 1. 1 for bits that an exact op changed, ``1 - limit / ratio`` for an op with a bound, lower for
            what could not be replayed.
        side: The side that is wrong.
        evidence: Rows that a person can check; each has ``text`` and names ops, tensors and figures.
        next: What to do.
        suspects: All sources, first one first.
        compared_bytes: Bytes of tensors that were judged.
        skipped: What could not be judged.
        replayed: Of the bytes that ops wrote, those that were run again and judged, and all; zeros without a graph.
    """

    kind: Kind
    op: str | None = None
    op_type: str | None = None
    tensor: str | None = None
    table: str | None = None
    keys: tuple[int, ...] = ()
    keys_total: int = 0
    step: int | None = None
    confidence: float = 1.0
    side: str = "left"
    evidence: tuple[Mapping[str, Any], ...] = ()
    next: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    compared_bytes: int = 0
    skipped: tuple[Skipped, ...] = field(default=())
    replayed: tuple[int, int] = (0, 0)

    @property
    def replayed_share(self) -> float | None:
        """Share of the bytes written by ops that was run again, None where no op could be."""
        return self.replayed[0] / self.replayed[1] if self.replayed[1] else None

    def as_dict(self) -> dict[str, Any]:
        """The ``result`` object of ``verdict --json``."""
        return {
            "verdict": str(self.kind),
            "op": self.op,
            "op_type": self.op_type,
            "tensor": self.tensor,
            "table": self.table,
            "keys": list(self.keys),
            "keys_total": self.keys_total,
            "step": self.step,
            "confidence": round(self.confidence, 4),
            "side": self.side,
            "evidence": [{k: _plain(v) for k, v in row.items()} for row in self.evidence],
            "next": list(self.next),
            "suspects": [suspect.as_dict() for suspect in self.suspects],
            "coverage": {
                "compared_bytes": self.compared_bytes,
                "replayed_share": None if self.replayed_share is None else round(self.replayed_share, 6),
                "skipped": [{"tensor": s.tensor, "reason": s.reason} for s in self.skipped],
            },
        }

    def lines(self) -> list[str]:
        """The verdict for a person, a sentence a line, the answer first."""
        lines = [self._headline()]
        lines += [str(row["text"]) for row in self.evidence]
        lines += [f"Next: {step}" for step in self.next]
        judged = f"Judged {_size(self.compared_bytes)} of tensors"
        if self.replayed_share is not None:
            judged += f"; ops that wrote {100 * self.replayed_share:.4g} % of the bytes were run again"
        skipped = f"; {len(self.skipped)} tensors or ops could not be judged" if self.skipped else ""
        return [*lines, f"{judged}{skipped}."]

    def _headline(self) -> str:
        where = f"{self.op} [{self.op_type}]" if self.op else ""
        wrong = "" if self.side == "left" or self.kind.clean else " (on the reference side)"
        table = f", table {self.table}, {self.keys_total} keys" if self.table else ""
        confidence = "" if self.kind.clean else f", confidence {self.confidence:.2f}"
        return f"Verdict: {self.kind}{': ' if where else ''}{where}{table}{wrong}{confidence}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: object) -> object:
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value


def _size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"

"""Two device dumps with a graph each: what their tensors stand for, where one of the runs fused what the other did not.

A fused op may keep the name of its first member; its output is then that of the last. Equal names alone would compare
the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from compare.op_lookup import OpLookup
from compare.original_names import OriginalNames

if TYPE_CHECKING:
    from compare.pairs import Side
    from dumpers.graph import Graph, Op
    from dumpers.records import TensorRecord

Original = tuple[str, int]
"""Op and output of the framework."""


class TwoGraphs:
    """The graphs of both sides.

    Args:
        left, right: Device graphs.
        left_ops, right_ops: Records of each op that was dumped.
    """

    def __init__(
        self,
        left: Graph,
        right: Graph,
        left_ops: Mapping[str, Sequence[TensorRecord]],
        right_ops: Mapping[str, Sequence[TensorRecord]],
    ) -> None:
        self._sides: dict[Side, _Side] = {"left": _Side(left, left_ops), "right": _Side(right, right_ops)}
        self._alike: dict[tuple[str, str], bool] = {}

    def original(self, record: TensorRecord, side: Side) -> Original | None:
        """Returns the framework's tensor that a tensor stands for unchanged, None where the graph tells none."""
        return self._sides[side].original(record)

    def conflict(self, left: TensorRecord, right: TensorRecord) -> str:
        """Says which two tensors of the framework two tensors stand for; empty if the graphs do not tell them apart."""
        key = (left.op, right.op)
        if key not in self._alike:
            ops = (self._sides["left"].op(left), self._sides["right"].op(right))
            self._alike[key] = None in ops or ops[0] == ops[1]
        if self._alike[key]:
            return ""
        mine, theirs = self.original(left, "left"), self.original(right, "right")
        if mine is None or theirs is None or mine == theirs:
            return ""
        return f"it stands for {mine[0]}:{mine[1]} on the left and for {theirs[0]}:{theirs[1]} on the right"


class _Side:
    def __init__(self, graph: Graph, ops: Mapping[str, Sequence[TensorRecord]]) -> None:
        self._lookup = OpLookup(graph)
        self._names = OriginalNames(graph)
        self._ops = ops

    def op(self, record: TensorRecord) -> Op | None:
        return self._lookup.find(record.op, record.op_type)

    def original(self, record: TensorRecord) -> Original | None:
        op = self.op(record)
        if op is None or self._names.skip_reason(op, record.io):
            return None
        if record.io == "output":
            found = self._names.output(op, record.slot)
        else:
            inputs = 1 + max((r.slot for r in self._ops.get(record.op, ()) if r.io == "input"), default=-1)
            found = self._names.input(op, record.slot, inputs)
        return (found.op, found.slot) if found.op and not found.steps else None

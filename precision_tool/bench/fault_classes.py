"""The classes of ``bench faults``: what is done wrong, where, how much, and which answers are right.

A class is a fault kind of the emulated device on a group of operators, or a change of what the device is given (batch,
weights, seeds, precision). A lookup whose rows were swapped or are stale, or whose tail was lost, is rightly called
``table_lookup`` or ``operator``; sums by place are part of the optimizer's work or operators by themselves. For a
changed batch, weight or seed the right op is the one that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dumpers.graph import Op

PRODUCTS: Final = frozenset({"MatMulV2", "BatchMatMulV2", "Conv2D", "Einsum"})
REDUCTIONS: Final = frozenset({"ReduceSum", "ReduceMean", "BiasAddGrad", "UnsortedSegmentSum", "AddN", "L2Loss"})
UPDATES: Final = ("Apply", "SparseApply", "Scatter", "Assign")
MOVES: Final = frozenset(
    {"ConcatV2", "Reshape", "Transpose", "Slice", "StridedSlice", "Pack", "ExpandDims", "Squeeze", "Split", "Tile"}
)


@dataclass(frozen=True)
class FaultClass:
    """One class.

    Attributes:
        name: As it stands in the table.
        kind: Fault kind of the device; a ``change`` of :mod:`precision_tool.bench.fault_trials` where ``group`` is
            empty.
        group: Of the operators that it hits, a key of :data:`GROUPS`.
        sizes: Parameters, from blatant to small.
        step: Training step that is dumped.
        answers: Right verdicts; empty: by the operator, see :func:`right_answers`.
    """

    name: str
    kind: str
    group: str
    sizes: tuple[str, ...] = ("",)
    step: int = 0
    answers: tuple[str, ...] = ()


def group_of(op_type: str) -> str:
    """Returns the group of a device operator's type."""
    if op_type.startswith(UPDATES):
        return "update"
    if op_type == "GatherV2":
        return "gather"
    for name, types in (("product", PRODUCTS), ("reduction", REDUCTIONS), ("move", MOVES)):
        if op_type in types:
            return name
    return "elementwise"


GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "any": frozenset({"update", "gather", "product", "reduction", "move", "elementwise"}),
    "no lookup": frozenset({"product", "reduction", "move", "elementwise"}),
    **{name: frozenset({name}) for name in ("update", "gather", "product", "reduction", "move", "elementwise")},
}
"""Names of groups of operators -> what :func:`group_of` says of them."""

_SCALES: Final = ("factor=1.5", "factor=1.01", "factor=1.001")
_LOOKUP: Final = ("table_lookup", "operator")

CLASSES: Final = (
    FaultClass("scaled product", "scale", "product", _SCALES),
    FaultClass("scaled reduction", "scale", "reduction", _SCALES),
    FaultClass("scaled element-wise op", "scale", "elementwise", _SCALES),
    FaultClass("scaled lookup", "scale", "gather", _SCALES),
    FaultClass("scaled update", "scale", "update", ("factor=1.5", "factor=1.01")),
    FaultClass("shifted values", "bias", "no lookup", ("value=1", "value=0.1", "value=0.01")),
    FaultClass("shifted lookup", "bias", "gather", ("value=1", "value=0.01")),
    FaultClass("signs flipped", "sign_flip", "no lookup", ("share=1", "share=0.1", "count=1")),
    FaultClass("signs of a lookup flipped", "sign_flip", "gather", ("share=1", "share=0.1", "count=1")),
    FaultClass("rows of a lookup swapped", "row_swap", "gather", ("count=4", "count=1"), answers=_LOOKUP),
    FaultClass("rows swapped", "row_swap", "no lookup", ("count=4", "count=1")),
    FaultClass("stale rows of a lookup", "stale_rows", "gather", ("share=0.5", "share=0.1"), step=1, answers=_LOOKUP),
    FaultClass("stale rows", "stale_rows", "no lookup", ("share=1", "share=0.1"), step=1),
    FaultClass("rows of other keys", "wrong_row", "gather", ("share=0.5", "share=0.1", "share=0.001")),
    FaultClass("zero rows of keys", "zero_rows", "gather", ("share=0.5", "share=0.1", "share=0.001")),
    FaultClass("tail of a product lost", "drop_tail", "product", ("", "count=1")),
    FaultClass("tail of a lookup lost", "drop_tail", "gather", ("", "count=1"), answers=_LOOKUP),
    FaultClass("tail lost", "drop_tail", "any", ("", "count=1")),
    FaultClass("NaN", "nan", "any"),
    FaultClass("infinity", "inf", "any"),
    FaultClass("memory overwritten", "overwrite", "any", ("share=0.5", "share=0.01"), answers=("memory_overwritten",)),
    FaultClass("one element overwritten", "overwrite", "any", ("count=1",), answers=("memory_overwritten",)),
    FaultClass("fusion lost a member", "fusion_drop", "any", answers=("fusion",)),
    FaultClass("product in bfloat16", "bf16_inputs", "product"),
    FaultClass("other op in bfloat16", "bf16_inputs", "elementwise"),
    FaultClass("accumulated in float16", "fp16_accumulate", "any"),
    FaultClass("epsilon", "eps", "any", ("value=0.01", "value=0.001", "value=0.0001")),
    FaultClass("no bias correction", "no_bias_correction", "update"),
    FaultClass("last write wins", "last_write_wins", "any", answers=("operator", "optimizer")),
    FaultClass("update skipped", "skip_update", "update"),
    FaultClass("update of rows skipped", "skip_update", "update", ("share=0.5", "share=0.05")),
    FaultClass("all-reduce not divided", "no_world_divide", "any"),
    FaultClass("every second step", "intermittent", "product", ("kind=scale,every=2,factor=1.5",), step=1),
    FaultClass("another batch", "batch", "", ("all", "one"), answers=("data",)),
    FaultClass("another dense weight", "weight", "", ("scaled", "one"), answers=("checkpoint",)),
    FaultClass("other rows of a table", "table", "", ("half", "one"), answers=("checkpoint",)),
    FaultClass("another seed of dropout", "seed", "", answers=("randomness",)),
    FaultClass("undeclared bfloat16", "bfloat16", "", answers=("precision_mode",)),
    FaultClass("NaN in the batch", "nan_batch", "", answers=("nan_input",)),
)


def right_answers(chosen: FaultClass, op: Op, table: str | None) -> tuple[str, ...]:
    """Returns the verdicts that are right for a class on an operator of the device's graph.

    Args:
        chosen: The class.
        op: The operator that is hit.
        table: The table that it looks up, None for any other operator.
    """
    if chosen.answers:
        return chosen.answers
    if chosen.kind in ("wrong_row", "zero_rows"):
        return ("table_lookup",) if table is not None else ("operator",)
    if chosen.kind == "drop_tail" and table is not None:
        return _LOOKUP
    return ("optimizer",) if group_of(op.type) == "update" else ("operator",)

"""Which embedding table an op looks rows up in: by the attribute of our engine, else the variable that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compare.kernels.table import device_type

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op

TABLE_ATTR: Final = "_embedding_table"
VARIABLES: Final = frozenset({"Variable", "VariableV2", "VarHandleOp"})
PASSING: Final = frozenset({"Identity", "ReadVariableOp", "TransData", "Cast", "Enter"})
"""Ops between a variable and the gather that hand its value on."""

_FARTHEST: Final = 8


def table_of(op: Op, graph: Graph | None) -> str | None:
    """Returns the table that a gather reads, None for any other op and a gather from something computed."""
    if device_type(op.type) != "GatherV2":
        return None
    named = op.attrs.get(TABLE_ATTR)
    if isinstance(named, str) and named:
        return named
    variable = variable_of(op, 0, graph)
    return variable.name if variable is not None else None


def variable_of(op: Op, index: int, graph: Graph | None) -> Op | None:
    """Returns the variable whose value an op reads as one of its inputs, None if that was computed."""
    for _ in range(_FARTHEST):
        if graph is None or index >= len(op.inputs):
            return None
        source = graph.ops.get(op.inputs[index].op)
        if source is None or source.type in VARIABLES:
            return source
        if source.type not in PASSING:
            return None
        op, index = source, 0
    return None

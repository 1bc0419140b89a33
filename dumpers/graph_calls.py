"""From an op that calls a sub-graph or function to what it calls, and its inputs and outputs on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dumpers.graph import AttrValue, Graph, Op, Source

PARENT_INDEX: Final = "_parent_node_index"
"""Attribute of a device sub-graph's Data op, or of a result's descriptor: index of the caller's input or output."""

_GE_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
}
# Index of the op's input that is the function's first argument. Of other ops that take functions (data sets, gradients)
# the arguments are not inputs of the op.
_TF_FIRST_INPUT: Final[Mapping[str, int]] = {
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
    "While": 0,
    "StatelessWhile": 0,
    "GeOp": 0,
    "If": 1,
    "StatelessIf": 1,
    "Case": 1,
    "StatelessCase": 1,
    "RemoteCall": 1,
}
_NO_RESULT: Final = frozenset({"cond"})


@dataclass(frozen=True)
class Call:
    """One call of a graph by an op.

    Attributes:
        outer: The graph with the calling op.
        op: The calling op.
        graph: What it calls.
        role: What for: ``f``, ``then_branch``, ``else_branch``, ``cond``, ``body``, ``branches[0]``, ...
    """

    outer: Graph
    op: Op
    graph: Graph
    role: str

    def inner_of(self, index: int) -> tuple[str, ...]:
        """Returns what carries input ``index`` of the calling op inside: Data ops, or the argument of a function."""
        return tuple(name for name, used in self._arguments() if used == index)

    def source_of(self, name: str) -> Source | None:
        """Returns where a Data op or an argument inside gets its value from, in the outer graph.

        None for any other op, and where the op has no such input.
        """
        index = next((used for inner, used in self._arguments() if inner == name), -1)
        return self.op.inputs[index] if 0 <= index < len(self.op.inputs) else None

    def result_of(self, slot: int) -> Source | None:
        """Returns where output ``slot`` of the calling op comes from inside.

        None where it does not come from this graph (the condition of a loop), or the graph has no such result.
        """
        if self.role in _NO_RESULT or slot < 0:
            return None
        if self.graph.kind == "ge":
            return _device_results(self.graph).get(slot)
        known = _first_input(self.outer, self.op) is not None
        return self.graph.results[slot] if known and slot < len(self.graph.results) else None

    def _arguments(self) -> Iterator[tuple[str, int]]:
        if self.graph.kind == "ge":
            for op in self.graph:
                index = op.attrs.get(PARENT_INDEX)
                if op.type == "Data" and isinstance(index, int):
                    yield op.name, index
            return
        first = _first_input(self.outer, self.op)
        if first is not None:
            yield from ((name, first + position) for position, name in enumerate(self.graph.arguments))


def calls_of(graph: Graph, op: Op) -> tuple[Call, ...]:
    """Returns the calls of an op, see :meth:`dumpers.graph.Graph.calls`."""
    names = _device_callees(op) if graph.kind == "ge" else _function_callees(graph, op)
    return tuple(Call(graph, op, graph.library[name], role) for role, name in names if name and name in graph.library)


def _device_callees(op: Op) -> Iterator[tuple[str, str]]:
    names, roles = op.subgraph_names, _GE_ROLES.get(op.type, ())
    for position, name in enumerate(names):
        plain = "f" if len(names) == 1 else f"branches[{position}]"
        yield (roles[position] if position < len(roles) else plain), name


def _function_callees(graph: Graph, op: Op) -> Iterator[tuple[str, str]]:
    if op.type in graph.library:  # a function is an op type of its own
        yield "f", op.type
    for key, value in op.attrs.items():
        if isinstance(value, Mapping):
            yield key, _function_name(value)
        elif isinstance(value, tuple):
            for position, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield f"{key}[{position}]", _function_name(item)


def _function_name(value: Mapping[str, AttrValue]) -> str:
    name = value.get("name")
    return name if isinstance(name, str) else ""


def _first_input(graph: Graph, op: Op) -> int | None:
    return 0 if op.type in graph.library else _TF_FIRST_INPUT.get(op.type)


def _device_results(graph: Graph) -> dict[int, Source]:
    """Inputs of the result op, by the descriptor's index where it has one, else by position."""
    outputs = [op for op in graph if op.type == "NetOutput"]
    named = [op for op in outputs if op.name == f"{graph.name}_Node_Output"]
    results: dict[int, Source] = {}
    for op in (named or outputs)[:1]:
        for position, source in enumerate(op.inputs):
            index = op.input_ports[position].attrs.get(PARENT_INDEX) if position < len(op.input_ports) else None
            if source.op:
                results[index if isinstance(index, int) else position] = source
    return results

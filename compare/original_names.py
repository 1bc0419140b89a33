"""From a device tensor to the framework tensor it stands for, by what the device graph says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from compare.op_lookup import recorded_sources

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op

_INSERTED = frozenset({"Cast", "TransData"})
"""Types of the ops that the compiler inserts between two originals without changing what a value means."""

_QUANT_IN, _QUANT_OUT = "AscendDequant", "AscendQuant"


@dataclass(frozen=True)
class Reference:
    """A tensor of the framework's graph: output ``slot`` of op ``op``. Empty ``op``: none, ``reason`` says why."""

    op: str
    slot: int = 0
    reason: str = ""


class OriginalNames:
    """The fusion groups of a device graph and the reference of each of its tensors."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def groups(self) -> Mapping[str, int]:
        """Number of the fusion group of each op, in order of first appearance."""
        numbers: dict[tuple[str, ...], int] = {}
        return {op.name: numbers.setdefault(_group_key(op), len(numbers)) for op in self._graph}

    @cached_property
    def members(self) -> Mapping[int, tuple[str, ...]]:
        """Ops of each group, in the order of the graph."""
        found: dict[int, list[str]] = {}
        for name, number in self.groups.items():
            found.setdefault(number, []).append(name)
        return {number: tuple(names) for number, names in found.items()}

    def skip_reason(self, op: Op, io: str) -> str:
        """Says why a tensor of an op is not meant to be compared, empty if it is."""
        if op.type == _QUANT_IN and io == "input":
            return "inputs of AscendDequant are quantised: not compared"
        if op.type == _QUANT_OUT and io == "output":
            return "outputs of AscendQuant are quantised: not compared"
        if op.attrs.get("_datadump_is_multiop") and not any(_named(op, slot) for slot in range(len(op.output_ports))):
            return "inner op of a split: no tensor of the reference corresponds to it"
        return ""

    def output(self, op: Op, slot: int) -> Reference:
        """Returns the reference of an output; that of an inserted cast is what went into it."""
        seen: set[str] = set()
        while op.name not in seen:
            seen.add(op.name)
            found = self._own(op, slot)
            if found.op or op.type not in _INSERTED or not op.inputs:
                return found
            source = op.inputs[slot if slot < len(op.inputs) else 0]
            producer = self._graph.ops.get(source.op)
            if producer is None:
                return Reference("", 0, f"the graph has no op {source.op or 'that'} feeds {op.name}")
            op, slot = producer, source.slot
        return Reference("", 0, f"the graph runs in a circle at {op.name}")

    def input(self, op: Op, slot: int, recorded: int) -> Reference:
        """Returns the reference of an input: that of its producer's output.

        Args:
            op: The consumer.
            slot: Position among the inputs that the dump has.
            recorded: How many inputs the dump has; tells whether absent optional inputs count.
        """
        sources = recorded_sources(op, recorded)
        if slot >= len(sources) or not sources[slot].op:
            return Reference("", 0, f"the graph has no producer for input {slot} of {op.name}")
        producer = self._graph.ops.get(sources[slot].op)
        if producer is None:
            return Reference("", 0, f"the graph has no op {sources[slot].op}, which feeds input {slot} of {op.name}")
        return self.output(producer, sources[slot].slot)

    def _own(self, op: Op, slot: int) -> Reference:
        """What the op itself says about one of its outputs."""
        attrs = op.output_ports[slot].attrs if slot < len(op.output_ports) else {}
        name = attrs.get("_datadump_origin_name")
        if name is None:
            name = self._default_name(op)
            if name is None:
                return Reference(
                    "", 0, f"{op.name} replaces several ops and the graph does not say whose output this is"
                )
        if not name:
            return Reference("", 0, f"{op.name} was inserted by the compiler")
        index = attrs.get("_datadump_origin_output_index", slot)
        return Reference(str(name), index if isinstance(index, int) else slot)

    def _default_name(self, op: Op) -> str | None:
        """Name where a descriptor has none: the op itself, or its one original if nobody else has that."""
        originals = op.originals
        if not originals:
            return ""
        if len(originals) > 1 or (originals[0] != op.name and len(self.members[self.groups[op.name]]) > 1):
            return None
        return originals[0]


def _named(op: Op, slot: int) -> bool:
    return bool(op.output_ports[slot].attrs.get("_datadump_origin_name"))


def _group_key(op: Op) -> tuple[str, ...]:
    level_one = op.attrs.get("_L1_fusion_sub_graph_no")
    if level_one not in (None, ""):
        return ("L1", str(level_one))
    return op.originals or (op.name,)

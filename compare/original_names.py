"""From a device tensor to the framework tensor it stands for, by what the device graph says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from compare.op_lookup import recorded_sources

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op

_SAME = frozenset({"Cast", "TransData", "Identity"})
"""Types of the ops that the compiler inserts between two originals without changing what a value means."""

_RESHAPES = frozenset({"Reshape", "Squeeze", "SqueezeV2", "ExpandDims", "Unsqueeze", "UnsqueezeV2", "Flatten"})
"""The same elements in the same order, in another shape."""

_TURNS = frozenset({"Transpose", "TransposeD"})
"""The same elements with the axes exchanged."""

StepText = tuple[Literal["turn", "shape"], tuple[int, ...], str]
"""Kind, numbers and reason of a :class:`compare.pairs.Step` of the reference."""

_QUANT_IN, _QUANT_OUT = "AscendDequant", "AscendQuant"


@dataclass(frozen=True)
class Reference:
    """A tensor of the framework's graph: output ``slot`` of op ``op``. Empty ``op``: none, ``reason`` says why.

    Attributes:
        steps: What inserted ops did to the tensor on its way, in order.
    """

    op: str
    slot: int = 0
    reason: str = ""
    steps: tuple[StepText, ...] = ()


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
        """Returns the reference of an output; that of an inserted cast, transpose or reshape is what went into it."""
        seen: set[str] = set()
        steps: list[StepText] = []
        while op.name not in seen:
            seen.add(op.name)
            found = self._own(op, slot)
            if found.op:
                return replace(found, steps=tuple(reversed(steps)))
            done, trouble = self._passed(op, slot, turned_later=any(kind == "turn" for kind, _, _ in steps))
            if done is None:
                return replace(found, reason=trouble or found.reason)
            steps += done
            source = op.inputs[slot if slot < len(op.inputs) and not done else 0]
            producer = self._graph.ops.get(source.op)
            if producer is None:
                return Reference("", 0, f"the graph has no op {source.op or 'that'} feeds {op.name}")
            op, slot = producer, source.slot
        return Reference("", 0, f"the graph runs in a circle at {op.name}")

    def _passed(self, op: Op, slot: int, *, turned_later: bool) -> tuple[list[StepText] | None, str]:
        """Returns what an inserted op does to its first input; None where its output is another tensor, and why."""
        if not op.inputs or op.originals:
            return None, ""
        if op.type in _SAME:
            return [], ""
        if slot or op.type not in _RESHAPES | _TURNS:
            return None, ""
        if op.type in _TURNS:
            order = self._permutation(op)
            if order is None:
                return None, f"{op.name} was inserted by the compiler, and which axes it exchanges is not known"
            return [("turn", order, f"axes in the order {','.join(map(str, order))} by the inserted {op.name}")], ""
        shape = _static_shape(op)
        if turned_later and shape is None:
            return None, f"{op.name} was inserted by the compiler, and which shape it gives is not known"
        return [("shape", shape or (), f"in the shape that the inserted {op.name} gives it")], ""

    def _permutation(self, op: Op) -> tuple[int, ...] | None:
        """Returns the axes that an inserted transpose takes, from its attribute or from a constant of the graph."""
        order = op.attrs.get("perm")
        if order is None and len(op.inputs) > 1:
            constant = self._graph.ops.get(op.inputs[1].op)
            value = constant.attrs.get("value") if constant is not None else None
            order = value if isinstance(value, (list, tuple)) else None
        if not isinstance(order, (list, tuple)):
            return None
        axes = tuple(axis for axis in order if isinstance(axis, int) and not isinstance(axis, bool))
        return axes if axes and sorted(axes) == list(range(len(axes))) == list(range(len(order))) else None

    def all_references(self) -> Iterator[str]:
        """Yields every name of the framework that the graph mentions; one may come more than once."""
        for op in self._graph:
            yield from op.originals
            for port in op.output_ports:
                name = port.attrs.get("_datadump_origin_name")
                if isinstance(name, str) and name:
                    yield name

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


def _static_shape(op: Op) -> tuple[int, ...] | None:
    """Returns the shape of an op's first output where the graph knows all of it."""
    if not op.output_ports:
        return None
    port = op.output_ports[0]
    shape = port.origin_shape if port.origin_shape is not None else port.shape
    return shape if shape and all(size >= 0 for size in shape) else None


def _named(op: Op, slot: int) -> bool:
    return bool(op.output_ports[slot].attrs.get("_datadump_origin_name"))


def _group_key(op: Op) -> tuple[str, ...]:
    level_one = op.attrs.get("_L1_fusion_sub_graph_no")
    if level_one not in (None, ""):
        return ("L1", str(level_one))
    return op.originals or (op.name,)

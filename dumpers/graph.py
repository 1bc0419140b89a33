"""Graph, Op and Port: what was to be computed, for device graphs and TensorFlow graphs alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import networkx as nx

AttrValue = str | int | float | bool | bytes | None | Sequence["AttrValue"] | Mapping[str, "AttrValue"]
"""An attribute in Python's own types; dtypes are names as in :mod:`dumpers.dtypes`, enums and messages plain data."""


@dataclass(frozen=True)
class Port:
    """One input or output of an op as the graph describes it.

    Attributes:
        dtype: Name as in :mod:`dumpers.dtypes`, ``undefined`` for an absent optional input.
        shape: None when unknown; a dimension of -1 is dynamic.
        format: Layout name (``ND``, ``NHWC``, ``FRACTAL_NZ``), empty for TensorFlow graphs.
        attrs: Descriptor attributes (``_datadump_origin_name``, ``origin_shape``, ...).
    """

    dtype: str
    shape: tuple[int, ...] | None = None
    format: str = ""
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where an input comes from: output ``slot`` of op ``op``. ``op`` is empty for an absent optional input."""

    op: str
    slot: int


@dataclass(frozen=True)
class Op:
    """One node of a graph.

    Attributes:
        inputs: Data inputs only, one per input port, absent ones included as ``Source("", 0)``.
        control_inputs: Names of ops that must run before.
        attrs: Attributes without the ports' own.
    """

    name: str
    type: str
    inputs: tuple[Source, ...] = ()
    control_inputs: tuple[str, ...] = ()
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    id: int = 0
    stream_id: int = 0

    @property
    def originals(self) -> tuple[str, ...]:
        """Names of the original (framework) ops behind this one, duplicates removed, order kept.

        The op itself if the graph does not say, empty if the compiler inserted it.
        """
        names = self.attrs.get("_datadump_original_op_names")
        if names is None:
            return (self.name,)
        return tuple(dict.fromkeys(str(n) for n in _as_list(names)))

    @property
    def original_types(self) -> tuple[str, ...]:
        """Types of the original ops, in the order of :attr:`originals` (duplicates not removed)."""
        return tuple(str(t) for t in _as_list(self.attrs.get("_datadump_original_op_types")))

    @property
    def fused(self) -> bool:
        """Whether several original ops became this one."""
        return len(self.originals) > 1

    @property
    def pass_names(self) -> tuple[str, ...]:
        """Fusion passes that made this op, graph and buffer fusion together."""
        return tuple(str(n) for key in ("pass_name", "pass_name_ub") for n in _as_list(self.attrs.get(key)))


@dataclass(frozen=True)
class Graph:
    """Ops by name, in the order of the file.

    Attributes:
        kind: ``ge`` for a device graph, ``tf`` for a TensorFlow graph.
        path: The file it was read from.
    """

    name: str
    ops: Mapping[str, Op]
    kind: Literal["ge", "tf"]
    path: Path | None = None
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops.values())

    def __len__(self) -> int:
        return len(self.ops)

    @cached_property
    def consumers(self) -> Mapping[str, tuple[tuple[str, int, int], ...]]:
        """For each op the ops that read it: (consumer, input index of the consumer, output slot of the producer).

        Rebuilt from the inputs, since the ``dst`` lists of device graphs are not reliable.
        """
        found: dict[str, list[tuple[str, int, int]]] = {name: [] for name in self.ops}
        for op in self:
            for index, source in enumerate(op.inputs):
                if source.op in found:
                    found[source.op].append((op.name, index, source.slot))
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def by_original(self) -> Mapping[str, tuple[str, ...]]:
        """Device ops of each original op name."""
        found: dict[str, list[str]] = {}
        for op in self:
            for original in op.originals:
                found.setdefault(original, []).append(op.name)
        return {name: tuple(ops) for name, ops in found.items()}

    @cached_property
    def networkx(self) -> nx.DiGraph[str]:
        """The data edges (producer -> consumer) for walks; control edges carry ``control=True``."""
        import networkx

        result: nx.DiGraph[str] = networkx.DiGraph()
        result.add_nodes_from(self.ops)
        for op in self:
            for name in op.control_inputs:
                if name in self.ops:
                    result.add_edge(name, op.name, control=True)
            for source in op.inputs:
                if source.op in self.ops:
                    result.add_edge(source.op, op.name, control=False)
        return result


def _as_list(value: AttrValue) -> Sequence[AttrValue]:
    if value is None or value == "":
        return ()
    return (value,) if isinstance(value, (str, bytes, int, float, bool)) else tuple(value)

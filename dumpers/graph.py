"""Graph, Op and Port: what was to be computed, for device graphs and TensorFlow graphs alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import networkx as nx

    from dumpers.graph_calls import Call

AttrValue = str | int | float | bool | bytes | None | Sequence["AttrValue"] | Mapping[str, "AttrValue"]
"""An attribute in Python's own types; dtypes are names as in :mod:`dumpers.dtypes`, enums and messages plain data."""

SUBGRAPHS: Final = "subgraph_name"
"""Attribute of a device op with the names of the sub-graphs that it calls."""


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

    @property
    def origin_format(self) -> str:
        """Layout before the device changed it, empty where the graph does not tell."""
        return _text_of(self.attrs.get("origin_format"))

    @property
    def origin_shape(self) -> tuple[int, ...] | None:
        """Shape in :attr:`origin_format`, None where the graph does not tell; -1 is a dynamic dimension."""
        shape = self.attrs.get("origin_shape")
        if not isinstance(shape, (tuple, list)) or self.attrs.get("origin_shape_initialized") is False:
            return None
        dims = tuple(dim for dim in shape if isinstance(dim, int))
        return dims if len(dims) == len(shape) and dims != (_UNKNOWN_RANK,) else None

    @property
    def origin_dtype(self) -> str:
        """Element type before the device changed it, empty where the graph does not tell."""
        dtype = _text_of(self.attrs.get("origin_data_type"))
        return "" if dtype in _NO_DTYPE else dtype


_NO_DTYPE: Final = frozenset({"undefined", "RESERVED", "DT_UNDEFINED"})
_UNKNOWN_RANK: Final = -2


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

    @property
    def applied_passes(self) -> tuple[str, ...]:
        """Of :attr:`pass_names` those that had an effect: none where the compiler notes that it undid the fusion.

        A real graph has 30 ops with a pass name and ``fusion_failed``, each still a single original op.
        """
        undone = bool(self.attrs.get("fusion_failed")) and not self.fused
        return () if undone else self.pass_names

    @property
    def kernel_name(self) -> str:
        """Name of the function that runs on the device, empty if the graph does not tell."""
        return _text_of(self.attrs.get(f"{self.name}_kernelname")) or _text_of(self.attrs.get("_kernelname"))

    @property
    def kernel_lib(self) -> str:
        """Engine that runs the op (``AIcoreEngine``, ``aicpu_tf_kernel``, ...), empty if the graph does not tell."""
        return _text_of(self.attrs.get("_ge_attr_op_kernel_lib_name"))

    @property
    def subgraph_names(self) -> tuple[str, ...]:
        """Sub-graphs that a device op calls, in the order of the file."""
        return tuple(str(name) for name in _as_list(self.attrs.get(SUBGRAPHS)))


@dataclass(frozen=True)
class Graph:
    """Ops by name, in the order of the file.

    Attributes:
        kind: ``ge`` for a device graph, ``tf`` for a TensorFlow graph.
        path: The file it was read from.
        arguments: Of a TensorFlow function: names of its inputs, which its ops read like ops of these names. A device
            sub-graph has ``Data`` ops instead; :meth:`calls` treats both alike.
        results: Of a TensorFlow function: where its outputs come from. A device sub-graph has a ``NetOutput`` op.
        library: All graphs that ops of this one may call, by name: the graphs of a device file, this one included; the
            functions of a TensorFlow file, and its main graph under the empty name. One mapping for all of them.
    """

    name: str
    ops: Mapping[str, Op]
    kind: Literal["ge", "tf"]
    path: Path | None = None
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    results: tuple[Source, ...] = ()
    library: Mapping[str, Graph] = field(default_factory=dict, repr=False, compare=False)

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

    @cached_property
    def dag(self) -> nx.DiGraph[str]:
        """:attr:`networkx` without the edges that lead back to the start of a loop: never a circle.

        Left out are the edges from ``NextIteration`` to ``Merge``, and of circles that remain (a compiled loop, a
        damaged file) the edge that closes each, found by a walk in the order of the file.
        """
        from dumpers.graph_frames import back_edges

        result = self.networkx.copy()
        result.remove_edges_from(back_edges(self))
        return result

    @cached_property
    def frames(self) -> Mapping[str, tuple[str, ...]]:
        """For each op the ``while`` frames around it, outermost first; empty for an op outside of any loop.

        These are the frames of ``Enter`` and ``Exit`` ops; an ``Enter`` counts to the frame it enters, an ``Exit`` to
        the one it leaves. A loop that calls its body as a sub-graph or function has no frame, see :meth:`calls`.
        """
        from dumpers.graph_frames import frames_of

        return frames_of(self)

    def calls(self, name: str) -> tuple[Call, ...]:
        """Returns the sub-graphs or functions that an op calls and that the file holds.

        Raises:
            KeyError: no such op.
        """
        from dumpers.graph_calls import calls_of

        return calls_of(self, self.ops[name])

    @cached_property
    def callers(self) -> tuple[Call, ...]:
        """The calls of this graph from anywhere in its file, in the order of the file."""
        from dumpers.graph_calls import calls_of

        found = (call for graph in self.library.values() for op in graph for call in calls_of(graph, op))
        return tuple(call for call in found if call.graph is self)


def _text_of(value: AttrValue) -> str:
    return value if isinstance(value, str) else ""


def _as_list(value: AttrValue) -> Sequence[AttrValue]:
    if value is None or value == "":
        return ()
    return (value,) if isinstance(value, (str, bytes, int, float, bool)) else tuple(value)

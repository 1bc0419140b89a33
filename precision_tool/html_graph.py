"""The neighbourhood of one op as SVG: boxes in columns from producers to consumers, drawn without any other program.

``ni`` draws with graphviz where it is installed. A report has to be the same file on every machine and may hold nobody
else's markup, so its picture is laid out here: layers by the longest way, edges over several layers through places
kept free for them, boxes ordered and set by the mean of their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from precision_tool.dot import neighbourhood
from precision_tool.html_charts import picture
from precision_tool.html_text import element, safe, short

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op, Port

MAX_BOXES = 36
"""More are no picture that anybody reads; the nearest are drawn."""

WIDE, TALL = 216, 62
_ACROSS, _DOWN = 56, 14
_THIN = 10
"""Height of the place that an edge over several layers keeps free."""

_SWEEPS = 6
_MAX_EDGE_LINES = 20
_SHOWN_PORTS = 16
_NAME = 27


@dataclass(frozen=True)
class Remark:
    """What is written into the box of an op.

    Attributes:
        text: One short line.
        kind: Class that gives the colour: ``bad``, ``ok`` or ``unknown``.
    """

    text: str
    kind: str = "unknown"


@dataclass(frozen=True)
class Drawing:
    """What was drawn.

    Attributes:
        svg: One element.
        boxes: Number of ops in it.
        cut: Number of ops of the neighbourhood that are left out.
    """

    svg: str
    boxes: int
    cut: int


Node = tuple[str, str, int]
"""An op (name, "", 0), or the place of an edge in one layer (source, target, layer)."""


@dataclass
class _Layout:
    """Nodes of each layer in their order, and where they stand."""

    layers: dict[int, list[Node]]
    links: list[tuple[Node, Node]]
    middle: dict[Node, float] = field(default_factory=dict)

    def beside(self) -> tuple[dict[Node, list[Node]], dict[Node, list[Node]]]:
        """Returns the neighbours of each node in the layer before and after."""
        before: dict[Node, list[Node]] = {}
        after: dict[Node, list[Node]] = {}
        for source, target in self.links:
            before.setdefault(target, []).append(source)
            after.setdefault(source, []).append(target)
        return before, after


def draw(
    graph: Graph, root: str, remarks: Mapping[str, Remark], *, depth: int = 2, max_boxes: int = MAX_BOXES
) -> Drawing:
    """Returns the picture of an op's neighbourhood.

    Args:
        graph: The graph.
        root: Name of an op in it; its box has a thick border.
        remarks: By op; an op without one is grey and says nothing.
        depth: How many edges far, in both directions.
        max_boxes: The nearest ops up to this number are drawn.
    """
    reached = neighbourhood(graph, root, depth)
    names = reached[:max_boxes]
    edges = _edges(graph, names)
    layer = _layers(graph, names)
    layout = _layout(names, edges, layer)
    _order(layout)
    _place(layout)
    lowest = min(layout.middle[node] - _tall(node) / 2 for node in layout.middle) - 8
    highest = max(layout.middle[node] + _tall(node) / 2 for node in layout.middle) + 8
    for node in layout.middle:
        layout.middle[node] -= lowest
    parts = [_edge(pair, lines, layout, layer) for pair, lines in edges.items()]
    parts += [_box(graph.ops[name], root, remarks, _left(layer[name]), layout.middle[name, "", 0]) for name in names]
    label = f"Neighbourhood of {short(root)}"
    told = f"{len(names)} ops at most {depth} edges from {short(root, 200)}, producers left, consumers right."
    size = (_left(max(layer.values())) + WIDE + 8.0, highest - lowest)
    return Drawing(picture(label, told, parts, size), len(names), len(reached) - len(names))


# ---------------------------------------------------------------------------------------------------------- layout


def _edges(graph: Graph, names: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """Returns what flows between each two of the ops, one line an input; ``control`` for an order only."""
    inside = set(names)
    found: dict[tuple[str, str], list[str]] = {}
    for name in names:
        op = graph.ops[name]
        for index, source in enumerate(op.inputs):
            if source.op in inside and source.op != name:
                found.setdefault((source.op, name), []).append(f"output {source.slot} to input {index}")
        for other in op.control_inputs:
            if other in inside and other != name and (other, name) not in found:
                found[other, name] = ["control"]
    return found


def _layers(graph: Graph, names: Sequence[str]) -> dict[str, int]:
    """Returns the layer of each op, from 0: behind all that it reads; what reads nothing just before its readers."""
    import networkx

    # Edges of a loop lead back and have no layer; they are drawn from right to left.
    part = graph.dag.subgraph(names)
    ahead: networkx.DiGraph[str] = networkx.DiGraph()
    ahead.add_nodes_from(names)
    ahead.add_edges_from(sorted(part.edges()))
    order = list(networkx.topological_sort(ahead))
    layer: dict[str, int] = {}
    for name in order:
        layer[name] = max((layer[other] + 1 for other in ahead.predecessors(name)), default=0)
    for name in reversed(order):
        if not ahead.in_degree(name) and ahead.out_degree(name):
            layer[name] = min(layer[other] for other in ahead.successors(name)) - 1
    first = min(layer.values())
    return {name: layer[name] - first for name in names}


def _layout(names: Sequence[str], edges: Mapping[tuple[str, str], list[str]], layer: Mapping[str, int]) -> _Layout:
    layers: dict[int, list[Node]] = {}
    for name in names:
        layers.setdefault(layer[name], []).append((name, "", 0))
    links: list[tuple[Node, Node]] = []
    for source, target in edges:
        way = _way(source, target, layer)
        for node in way[1:-1]:
            layers[node[2]].append(node)
        links += pairwise(way)
    return _Layout(dict(sorted(layers.items())), links)


def _way(source: str, target: str, layer: Mapping[str, int]) -> list[Node]:
    """Returns the nodes that an edge goes through; one that leads back goes straight."""
    between: list[Node] = [(source, target, at) for at in range(layer[source] + 1, layer[target])]
    return [(source, "", 0), *between, (target, "", 0)]


def _order(layout: _Layout) -> None:
    """Sorts each layer by the mean place of its neighbours in the one next to it, there and back."""
    before, after = layout.beside()
    keys = list(layout.layers)
    for sweep in range(_SWEEPS):
        beside = before if sweep % 2 == 0 else after
        for key in keys if sweep % 2 == 0 else reversed(keys):
            nodes = layout.layers[key]
            place = {n: i / max(1, len(ns)) for ns in layout.layers.values() for i, n in enumerate(ns)}
            means = {n: _mean([place[m] for m in beside.get(n, ())]) for n in nodes}
            wanted = {n: place[n] if (mean := means[n]) is None else mean for n in nodes}
            nodes.sort(key=wanted.__getitem__)


def _place(layout: _Layout) -> None:
    """Sets the nodes of each layer below each other, then draws them towards their neighbours as far as they go."""
    for nodes in layout.layers.values():
        _set(layout, nodes, dict.fromkeys(nodes, 0.0))
    before, after = layout.beside()
    keys = list(layout.layers)
    for sweep in range(_SWEEPS):
        beside = before if sweep % 2 == 0 else after
        for key in keys if sweep % 2 == 0 else reversed(keys):
            nodes = layout.layers[key]
            _set(layout, nodes, {n: _mean([layout.middle[m] for m in beside.get(n, ())]) for n in nodes})


def _set(layout: _Layout, nodes: Sequence[Node], wanted: Mapping[Node, float | None]) -> None:
    """Puts nodes at the wanted heights, in their order and without touching, where they were if nothing is wanted."""
    heights: list[float] = []
    lowest = float("-inf")
    for node in nodes:
        want = wanted[node]
        aim = layout.middle.get(node, 0.0) if want is None else want
        heights.append(max(aim, lowest + _tall(node) / 2))
        lowest = heights[-1] + _tall(node) / 2 + _DOWN
    aims = [layout.middle.get(n, 0.0) if (want := wanted[n]) is None else want for n in nodes]
    shift = sum(aim - height for aim, height in zip(aims, heights, strict=True)) / len(nodes)
    layout.middle.update({node: height + shift for node, height in zip(nodes, heights, strict=True)})


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _tall(node: Node) -> float:
    return _THIN if node[1] else TALL


def _left(layer: int) -> float:
    return 8.0 + layer * (WIDE + _ACROSS)


# ----------------------------------------------------------------------------------------------------------- parts


def _edge(pair: tuple[str, str], lines: Sequence[str], layout: _Layout, layer: Mapping[str, int]) -> str:
    source, target = pair
    way = _way(source, target, layer)
    points = [(_left(layer[source]) + WIDE, layout.middle[way[0]])]
    for node in way[1:-1]:
        points += [(_left(node[2]), layout.middle[node]), (_left(node[2]) + WIDE, layout.middle[node])]
    x, y = _left(layer[target]), layout.middle[way[-1]]
    points.append((x - 7, y))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        path += f"C{x0 + _ACROSS / 2:.1f} {y0:.1f} {x1 - _ACROSS / 2:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    more = f"; {len(lines) - _MAX_EDGE_LINES} more" if len(lines) > _MAX_EDGE_LINES else ""
    tip = f"{short(source, 80)} > {short(target, 80)}: {', '.join(lines[:_MAX_EDGE_LINES])}{more}"
    control = lines == ["control"]
    line = element("path", d=path, class_="order" if control else "edge")
    head = element("path", d=f"M{x:.1f} {y:.1f}l-8 -4v8z", class_="head")
    return element("g", element("title", safe(tip)) + line + head)


def _box(op: Op, root: str, remarks: Mapping[str, Remark], left: float, middle: float) -> str:
    remark = remarks.get(op.name, Remark(""))
    top = middle - TALL / 2
    ports = [f"in {i}: {_port(port)}" for i, port in enumerate(op.input_ports[:_SHOWN_PORTS])]
    ports += [f"out {i}: {_port(port)}" for i, port in enumerate(op.output_ports[:_SHOWN_PORTS])]
    tip = "; ".join([f"[{short(op.type, 80)}] {short(op.name, 200)}", *ports])
    border = f"box {remark.kind}{' root' if op.name == root else ''}"
    parts = [
        element("title", safe(tip)),
        element("rect", x=left, y=top, width=WIDE, height=TALL, rx=5, class_=border),
        element("text", safe(short(op.type, _NAME)), x=left + 10, y=top + 18, class_="type"),
        element("text", safe(short(op.name, _NAME)), x=left + 10, y=top + 35),
        element("text", safe(short(remark.text, _NAME)), x=left + 10, y=top + 52, class_=f"remark {remark.kind}"),
    ]
    return element("g", "".join(parts))


def _port(port: Port) -> str:
    shape = "?" if port.shape is None else ",".join(map(str, port.shape))
    return short(f"{port.dtype} [{shape}] {port.format}".rstrip(), 60)

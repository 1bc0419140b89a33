"""Loops of a graph: the frames that ops run in, and the edges that lead back to a loop's start.

A ``while`` loop is made of ``Enter`` (into the frame), ``Merge`` (first value or the last round's), ``Switch``
(on or out, by ``LoopCond``), ``NextIteration`` (back to the Merge) and ``Exit`` (out of the frame).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dumpers.graph import Graph, Op

_ENTER: Final = frozenset({"Enter", "RefEnter"})
_EXIT: Final = frozenset({"Exit", "RefExit"})
_MERGE: Final = frozenset({"Merge", "RefMerge"})
_NEXT: Final = frozenset({"NextIteration", "RefNextIteration"})


def back_edges(graph: Graph) -> list[tuple[str, str]]:
    """Returns edges (producer, consumer) without which the graph has no circle, in the order in which they are met.

    Edges from NextIteration to Merge first; then for each circle that remains the edge that closes it.
    """
    loops = [edge for edge in graph.networkx.edges if _leads_back(graph, *edge)]
    return [*loops, *_closing_edges(graph)]


def _leads_back(graph: Graph, producer: str, consumer: str) -> bool:
    return graph.ops[producer].type in _NEXT and graph.ops[consumer].type in _MERGE


def _closing_edges(graph: Graph) -> list[tuple[str, str]]:
    """Other edges that a depth-first walk in the order of the file meets while their end is still open."""
    edges = graph.networkx.adj
    found: list[tuple[str, str]] = []
    closed: set[str] = set()
    for root in graph.ops:
        if root in closed:
            continue
        opened: dict[str, Iterator[str]] = {root: iter(edges[root])}
        while opened:
            name, following = next(reversed(opened.items()))
            for other in following:
                if other in opened and not _leads_back(graph, name, other):
                    found.append((name, other))
                elif other not in closed and other not in opened and not _leads_back(graph, name, other):
                    opened[other] = iter(edges[other])
                    break
            else:
                del opened[name]
                closed.add(name)
    return found


def frames_of(graph: Graph) -> Mapping[str, tuple[str, ...]]:
    """Returns the frames of each op, outermost first, see :attr:`dumpers.graph.Graph.frames`."""
    import networkx

    if not any(op.type in _ENTER for op in graph):
        return dict.fromkeys(graph.ops, ())
    frames: dict[str, tuple[str, ...]] = {}
    for name in networkx.topological_sort(graph.dag):
        op = graph.ops[name]
        around: tuple[str, ...] = ()
        for producer in graph.dag.predecessors(name):
            passed = frames[producer][:-1] if graph.ops[producer].type in _EXIT else frames[producer]
            around = max(around, passed, key=len)
        frames[name] = (*around, _frame_name(op)) if op.type in _ENTER else around
    return {name: frames[name] for name in graph.ops}


def _frame_name(op: Op) -> str:
    name = op.attrs.get("frame_name")
    return name if isinstance(name, str) and name else op.name

"""The order in which ops ran, where clocks are not to be trusted.

Time stamps of a device tie (several ops within its clock's resolution) and go backward (several cores, a clock that was
set); a graph says which op must have run before which. The order is that of the times as far as the graph allows it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dumpers.graph import Graph

Moment = tuple[int, int]
"""Time stamp, and place among the records."""

_AT_ONCE: Moment = (-2, 0)
"""Of an op that was not dumped: it holds nobody up who comes after it."""


def execution_order_of(moments: Mapping[str, Moment], graph: Graph | None) -> list[str]:
    """Sorts ops: producers before consumers, then by time, then as the graph lists them, then by place.

    Args:
        moments: When each op was dumped.
        graph: The graph with their edges; edges through ops that were not dumped count as well, and of a loop those
            that lead back to its start do not. Ops that it does not have are placed by their time.
    """
    if graph is None or not len(graph):
        return sorted(moments, key=lambda name: moments[name])
    position = {name: number for number, name in enumerate(graph.ops)}
    edges = graph.dag
    waits = {name: edges.in_degree(name) for name in graph.ops}
    waits.update({name: 0 for name in moments if name not in waits})
    strangers = len(position)

    def key(name: str) -> tuple[int, int, int, str]:
        time, place = moments.get(name, _AT_ONCE)
        return time, position.get(name, strangers), place, name

    ready = [key(name) for name, count in waits.items() if not count]
    heapq.heapify(ready)
    found: list[str] = []
    while ready:
        name = heapq.heappop(ready)[-1]
        if name in moments:
            found.append(name)
        for follower in edges.successors(name) if name in position else ():
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, key(follower))
    return found

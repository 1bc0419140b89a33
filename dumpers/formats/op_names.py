"""From the flattened op name of a file to the full one, by the graph."""

from __future__ import annotations

from dumpers.graph import Graph, Op
from dumpers.names import flatten


class OpNames:
    """Looks flattened names up in a graph.

    Args:
        graph: Device or TensorFlow graph; None leaves every name as it is.
        originals: Look among the framework's names behind a device graph's ops too (for reference dumps).
    """

    def __init__(self, graph: Graph | None, *, originals: bool = False) -> None:
        self._graph = graph
        self._by_flat: dict[str, list[str]] = {}
        if graph is None:
            return
        names = graph.by_original if originals and graph.kind == "ge" else graph.ops
        for name in names:
            self._by_flat.setdefault(flatten(name), []).append(name)

    def full(self, name: str, op_type: str = "") -> str:
        """Returns the full name; the given one if the graph has none or several that flatten to it.

        Several are told apart by the op type where that helps.
        """
        if self._graph is None:
            return name
        exact = self._graph.ops.get(name)
        if exact is not None and op_type in ("", exact.type):
            return name
        found = self._by_flat.get(flatten(name), [])
        if len(found) > 1 and op_type:
            found = [other for other in found if other in self._graph.ops and self._graph.ops[other].type == op_type]
        return found[0] if len(found) == 1 else name

    def op(self, name: str) -> Op | None:
        """Returns the op of a full name."""
        return self._graph.ops.get(name) if self._graph else None


def declared_dtype(op: Op | None, io: str, slot: int) -> str | None:
    """Returns the dtype that a graph declares for a port; in a TensorFlow graph by the op's type attribute."""
    if op is None:
        return None
    ports = op.output_ports if io == "output" else op.input_ports
    if slot < len(ports) and ports[slot].dtype != "undefined":
        return ports[slot].dtype
    for key in ("DstT", "dtype", "T") if io == "output" else ("SrcT", "T"):
        value = op.attrs.get(key)
        if isinstance(value, str):
            return value
    return None

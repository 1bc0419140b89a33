"""The GraphDef that goes with a recorded function: the body as nodes, called functions put in place of their calls."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from .function_outputs import (
    Expanded,
    Find,
    FunctionDef,
    Inner,
    NodeDef,
    in_order,
    looked_into,
    named_functions,
    node_outputs,
    producer,
)
from .plan import How, Taken

_BESIDE = b"loc:@"


class InlinedBody:
    """Nodes of one executed function under the names that its record uses.

    Args:
        definition: The function as the user made it.
        prefix: What stands before each name, with a slash, or nothing.
        arguments: For each input of the function the tensor that went in, as ``op`` or ``op:slot``.
        find: Where called functions are.
    """

    def __init__(self, definition: FunctionDef, prefix: str, arguments: Sequence[str], find: Find) -> None:
        self._find = find
        self._nodes: List[NodeDef] = []
        self.key = (prefix, tuple(arguments))
        """What the names depend on."""
        self.results = self._body(definition, prefix, list(arguments), [])
        """The tensor behind each output."""
        self.names = [node.name for node in self._nodes]
        self.graph = graph_bytes(self._nodes, library_of(self._nodes, find))
        """Nodes, and functions that are still called by name, as part of a GraphDef."""
        self._nodes = []
        self._taken: Tuple[int, List[Taken]] = (-1, [])

    def taken(self, plan: Expanded, moment: int) -> List[Taken]:
        """Returns how the record names each inner tensor.

        Args:
            plan: The function with added outputs.
            moment: That of what ran before the function.
        """
        if self._taken[0] != moment:
            found: List[Taken] = []
            now, op = moment, ""
            for inner in plan.inner:
                now += inner.op != op
                op = inner.op
                found.append(_taken(inner, self.key[0] + op, now))
            self._taken = (moment, found)
        return self._taken[1]

    def _body(self, function: FunctionDef, prefix: str, arguments: List[str], controls: List[str]) -> List[str]:
        names = _Names(function, prefix, arguments, self._find)
        for node in in_order(function.node_def):
            called = looked_into(node, self._find)
            inputs = [names.of(source) for source in node.input]
            if called is None:
                new = type(node)()
                new.CopyFrom(node)
                new.name = prefix + node.name
                del new.input[:]
                new.input.extend(inputs or controls)
                names.colocate(new)
                self._nodes.append(new)
                continue
            data = [name for name in inputs if not name.startswith("^")]
            before = [name for name in inputs if name.startswith("^")] or (controls if not data else [])
            names.results[node.name] = self._body(called, names.place(node.name) + "/", data, before)
            ends = ["^" + names.place(node.name) + "/" + end for end in called.control_ret.values()]
            after = type(node)(name=names.place(node.name), op="NoOp")
            after.input.extend(sorted(set(ends)) or before)
            self._nodes.append(after)
        return [names.of(function.ret[argument.name]) for argument in function.signature.output_arg]


class _Names:
    """Names in a graph for the names in a function."""

    def __init__(self, function: FunctionDef, prefix: str, arguments: List[str], find: Find) -> None:
        self._prefix = prefix
        self._find = find
        self._nodes = {node.name: node for node in function.node_def}
        self._slots: Dict[str, Dict[str, int]] = {}
        self._arguments: Dict[str, List[str]] = {}
        self.results: Dict[str, List[str]] = {}
        """Outputs of calls that were replaced."""
        rest = iter(arguments)
        for argument in function.signature.input_arg:
            self._arguments[argument.name] = [next(rest)]

    def place(self, node: str) -> str:
        return self._prefix + node

    def colocate(self, node: NodeDef) -> None:
        """Renames the nodes that a node has to be beside; those outside of the function are nobody here."""
        if "_class" not in node.attr:
            return
        places = [place[len(_BESIDE) :].decode("utf-8") for place in node.attr["_class"].list.s]
        known = [self.place(name) for name in places if name in self._nodes and name not in self.results]
        del node.attr["_class"]
        if known:
            node.attr["_class"].list.s.extend([_BESIDE + name.encode("utf-8") for name in known])

    def of(self, source: str) -> str:
        """The graph's name of a node's input or of a returned tensor."""
        name = producer(source)
        if source.startswith("^"):
            return "^" + (producer(self._arguments[name][0]) if name in self._arguments else self.place(name))
        if name in self._arguments:
            return self._arguments[name][0]
        slot = self._slot(name, source)
        if name in self.results:
            return self.results[name][slot]
        return self.place(name) if slot == 0 else "{}:{}".format(self.place(name), slot)

    def _slot(self, name: str, source: str) -> int:
        if name not in self._slots:
            outputs = node_outputs(self._nodes[name], self._find)
            self._slots[name] = {"{}:{}".format(arg, i): slot for slot, (arg, i, _) in enumerate(outputs)}
        parts = source.split(":")
        return self._slots[name]["{}:{}".format(parts[1], parts[2] if len(parts) > 2 else "0")]


def _taken(inner: Inner, op: str, moment: int) -> Taken:
    return Taken(
        name="{}:{}".format(op, inner.slot),
        op=op,
        slot=inner.slot,
        op_type=inner.op_type,
        dtype=inner.dtype,
        shape=None,
        moment=moment,
        how=How.NOT if inner.output is None else How.FETCH,
        note=inner.note,
    )


def variable_node(name: str, dtype: int, shape: Optional[Sequence[Optional[int]]]) -> NodeDef:
    """A node for a variable that came in as a resource."""
    import tensorflow as tf

    node = tf.compat.v1.NodeDef(name=name, op="VarHandleOp")
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    node.attr["shared_name"].s = name.encode("utf-8")
    node.attr["container"].s = b""
    return node


def placeholder_node(name: str, dtype: int) -> NodeDef:
    """A node for a tensor that came from outside."""
    import tensorflow as tf

    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.unknown_rank = True
    return node


def graph_bytes(nodes: Sequence[NodeDef], library: Sequence[FunctionDef]) -> bytes:
    """Serializes a part of a GraphDef; parts put behind each other are one graph again."""
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef()
    graph.node.extend(nodes)
    graph.library.function.extend(library)
    return bytes(graph.SerializeToString(deterministic=True))


def library_of(nodes: Sequence[NodeDef], find: Find) -> List[FunctionDef]:
    """Definitions of the functions that nodes refer to: loops, branches, what XLA compiles; and all that those need."""
    found: Dict[str, FunctionDef] = {}
    waiting = [name for node in nodes for name in named_functions(node)]
    while waiting:
        name = waiting.pop()
        function = find(name) if name not in found else None
        if function is not None:
            found[name] = function
            waiting.extend(inner for node in function.node_def for inner in named_functions(node))
    return [found[name] for name in sorted(found)]

"""A TensorFlow function with its inner tensors as further outputs, made from its definition.

Nodes, their attributes and control edges stay as they are, so that what has an effect happens once and in its order.
Functions that the body calls are extended in the same way and hand their inner tensors up. Loops and branches
(``While``, ``If``) run as one op each. What XLA compiles as a whole is left alone: more outputs would change what it
fuses.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from .plan import WITHOUT_VALUE

FunctionDef = Any
NodeDef = Any
OpDef = Any
Find = Callable[[str], Optional[FunctionDef]]
"""Returns the definition of a function, None if there is no such function."""

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS_AND_BRANCHES = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")
_DEAD = ("Switch", "RefSwitch", "SwitchN", "Enter", "RefEnter")
_PREFIX = "__precision_tool_all_"
_OUTPUT = "precision_tool_{}"


@dataclass(frozen=True)
class Inner:
    """One tensor inside a function.

    Attributes:
        op: Name of its op, those of called functions behind the name of the call and a slash.
        dtype: TensorFlow's name of the type.
        output: Which of the added outputs it is, None if it is not taken.
        note: Why not, or what is odd.
    """

    op: str
    slot: int
    op_type: str
    dtype: str
    output: Optional[int]
    note: str = ""


@dataclass(frozen=True)
class Expanded:
    """A function with added outputs.

    Attributes:
        definition: The new function.
        plain_outputs: How many outputs the original has; the added ones follow.
        inner: Its tensors, producers first.
        needed: All new functions, called ones first, this one last.
        draws: Ops that draw random numbers from a state of their own.
    """

    definition: FunctionDef
    plain_outputs: int
    inner: Tuple[Inner, ...]
    needed: Tuple[FunctionDef, ...]
    draws: Tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the new function."""
        return str(self.definition.signature.name)

    @property
    def moments(self) -> int:
        """How many ops it has."""
        names = [tensor.op for tensor in self.inner]
        return sum(a != b for a, b in zip(names, ["", *names]))  # noqa: B905 - each with the one before; Python 3.7

    @property
    def added(self) -> int:
        """How many outputs were added."""
        return len(self.definition.signature.output_arg) - self.plain_outputs


class Expander:
    """Extends functions; remembers the results.

    Args:
        find: Where the definitions are.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._done: Dict[str, Expanded] = {}

    def expand(self, name: str) -> Expanded:
        """Returns the extended function.

        Raises:
            ValueError: there is no such function, or it has an op that this TensorFlow does not know.
        """
        if name not in self._done:
            definition = self._find(name)
            if definition is None:
                raise ValueError("function {} is not known".format(name))
            self._done[name] = self._expand(definition)
        return self._done[name]

    def _expand(self, plain: FunctionDef) -> Expanded:
        new = type(plain)()
        new.CopyFrom(plain)
        new.signature.name = _PREFIX + plain.signature.name
        nodes = {node.name: node for node in new.node_def}
        order = in_order(new.node_def)
        doubtful = _may_be_dead(new.node_def, order)
        inner: List[Inner] = []
        needed: List[FunctionDef] = []
        draws: List[str] = []
        for node in order:
            called = looked_into(node, self._find)
            if called is None:
                draws.extend(self._draws(node))
                self._add_outputs(new, node, inner, dead=node.name in doubtful)
                continue
            below = self.expand(called.signature.name)
            needed.extend(function for function in below.needed if function not in needed)
            draws.extend("{}/{}".format(node.name, name) for name in below.draws)
            self._add_called(new, nodes[node.name], below, inner, dead=node.name in doubtful)
        return Expanded(new, len(plain.signature.output_arg), tuple(inner), (*needed, new), tuple(draws))

    def _draws(self, node: NodeDef) -> List[str]:
        """Names of the ops that draw from a state of their own: the node itself, or those in its loop or branches."""
        if is_compiled(node, self._find):
            return []  # XLA has its own random numbers, others in each process
        if draws_from_its_state(node):
            return [node.name]
        found: List[str] = []
        seen: Set[str] = set()
        waiting = list(named_functions(node))
        while waiting:
            name = waiting.pop()
            function = self._find(name) if name not in seen else None
            seen.add(name)
            for inner in function.node_def if function is not None else ():
                if draws_from_its_state(inner):
                    found.append("{}/{}".format(node.name, inner.name))
                waiting.extend(named_functions(inner))
        return sorted(found)

    def _add_outputs(self, new: FunctionDef, node: NodeDef, inner: List[Inner], *, dead: bool) -> None:
        note = ""
        if node.op in _LOOPS_AND_BRANCHES:
            note = "ran as one op: the tensors inside its loop or branches are not recorded"
        elif is_compiled(node, self._find):
            note = "compiled by XLA as a whole: the tensors inside are not recorded"
        for slot, (argument, index, dtype) in enumerate(node_outputs(node, self._find)):
            name = _dtype_name(dtype)
            place: Optional[int] = None
            why = note
            if name in WITHOUT_VALUE:
                why = "no value: {}".format(name)
            elif name.endswith("_ref"):
                why = "a reference cannot leave the function: not recorded"
            elif dead:
                why = "behind a branch that may not run: not recorded"
            else:
                place = _add_output(new, "{}:{}:{}".format(node.name, argument, index), dtype)
            inner.append(Inner(node.name, slot, node.op, name, place, why))

    @staticmethod
    def _add_called(new: FunctionDef, node: NodeDef, below: Expanded, inner: List[Inner], *, dead: bool) -> None:
        """Lets a call use the extended function and passes on what that adds."""
        added = list(below.definition.signature.output_arg)[below.plain_outputs :]
        by_name = node.op not in CALLS
        if by_name:
            node.op = below.name
        else:
            node.attr["f"].func.name = below.name
            node.attr["Tout"].list.type.extend([argument.type for argument in added])
        if "_output_shapes" in node.attr:
            del node.attr["_output_shapes"]
        for tensor in below.inner:
            place: Optional[int] = None
            note = tensor.note
            if tensor.output is not None and dead:
                note = "behind a branch that may not run: not recorded"
            elif tensor.output is not None:
                argument = added[tensor.output]
                slot = below.plain_outputs + tensor.output
                source = "{}:{}:0".format(node.name, argument.name)
                place = _add_output(new, source if by_name else "{}:output:{}".format(node.name, slot), argument.type)
            name = "{}/{}".format(node.name, tensor.op)
            inner.append(Inner(name, tensor.slot, tensor.op_type, tensor.dtype, place, note))


def looked_into(node: NodeDef, find: Find) -> Optional[FunctionDef]:
    """Returns the function that a node calls, None if it calls none or one that has to stay closed."""
    called = _called(node, find)
    if called is None or is_compiled(node, find):
        return None
    # The rewriter replaces such a function by another one with the outputs of the original.
    return None if "api_implements" in called.attr else called


def is_compiled(node: NodeDef, find: Find) -> bool:
    """Whether XLA compiles the function that a node calls."""
    called = _called(node, find)
    return called is not None and (must_compile(called) or must_compile(node))


def must_compile(item: "FunctionDef | NodeDef") -> bool:
    """Whether a function or a call asks for XLA (``jit_compile=True``)."""
    return "_XlaMustCompile" in item.attr and bool(item.attr["_XlaMustCompile"].b)


def draws_from_its_state(node: NodeDef) -> bool:
    """Whether an op draws a fixed sequence of random numbers from a state that belongs to its place in the function.

    Without a seed the sequence is another one in each process and nothing has to be kept.
    """
    if "seed" not in node.attr or "seed2" not in node.attr or not (node.attr["seed"].i or node.attr["seed2"].i):
        return False
    known = _op_def(node.op)
    return known is not None and bool(known.is_stateful) and not node.op.endswith("Dataset")


def named_functions(node: NodeDef) -> List[str]:
    """Names of all functions that a node may run: what it calls, its loop, its branches."""
    found: Set[str] = {node.op} if _op_def(node.op) is None else set()
    for value in node.attr.values():
        if value.HasField("func"):
            found.add(value.func.name)
        elif value.HasField("list"):
            found.update(function.name for function in value.list.func)
    return sorted(found)


def node_outputs(node: NodeDef, find: Find) -> List[Tuple[str, int, int]]:
    """Returns for each output of a node the name in its definition, the index there and the dtype's number.

    Raises:
        ValueError: the op is not known.
    """
    known = _op_def(node.op)
    if known is None:
        function = find(node.op)
        if function is None:
            raise ValueError("op {} of type {} is not known".format(node.name, node.op))
        known = function.signature
    result: List[Tuple[str, int, int]] = []
    for argument in known.output_arg:
        types: Sequence[int]
        if argument.type_list_attr:
            types = _attr(node, known, argument.type_list_attr).list.type
        else:
            dtype = argument.type or _attr(node, known, argument.type_attr).type
            types = [dtype] * (_attr(node, known, argument.number_attr).i if argument.number_attr else 1)
        result.extend((argument.name, index, dtype) for index, dtype in enumerate(types))
    return result


def in_order(nodes: Sequence[NodeDef]) -> List[NodeDef]:
    """Sorts nodes so that producers come first, ties as in the function; nodes of a loop come last."""
    place = {node.name: index for index, node in enumerate(nodes)}
    users: Dict[str, List[int]] = {}
    waiting: List[int] = []
    for index, node in enumerate(nodes):
        needed = {name for name in map(producer, node.input) if name in place}
        waiting.append(len(needed))
        for name in needed:
            users.setdefault(name, []).append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    result: List[int] = []
    while ready:
        index = heapq.heappop(ready)
        result.append(index)
        for user in users.get(nodes[index].name, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    done = set(result)
    result.extend(index for index in range(len(nodes)) if index not in done)
    return [nodes[index] for index in result]


def producer(source: str) -> str:
    """Name of the node or argument that an input names."""
    return source.lstrip("^").split(":")[0]


def _may_be_dead(nodes: Sequence[NodeDef], order: Sequence[NodeDef]) -> Set[str]:
    """Names of the nodes behind a branch of TensorFlow 1's kind: without a value they would make the call fail."""
    if not any(node.op in _DEAD for node in nodes):
        return set()
    found: Set[str] = set()
    for node in order:
        if node.op in _DEAD or node.op in ("Merge", "RefMerge") or any(producer(s) in found for s in node.input):
            found.add(node.name)
    return found


def _called(node: NodeDef, find: Find) -> Optional[FunctionDef]:
    if node.op in CALLS:
        return find(node.attr["f"].func.name)
    return None if _op_def(node.op) is not None else find(node.op)


def _add_output(new: FunctionDef, source: str, dtype: int) -> int:
    added = sum(argument.name.startswith(_OUTPUT.format("")) for argument in new.signature.output_arg[-1:])
    place = int(new.signature.output_arg[-1].name[len(_OUTPUT.format("")) :]) + 1 if added else 0
    name = _OUTPUT.format(place)
    new.signature.output_arg.add(name=name, type=dtype)
    new.ret[name] = source
    return place


def _op_def(op_type: str) -> Optional[OpDef]:
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op_type)


def _attr(node: NodeDef, known: OpDef, name: str) -> Any:  # noqa: ANN401 - an AttrValue, which has no type here
    if name in node.attr:
        return node.attr[name]
    for attr in known.attr:
        if attr.name == name and attr.HasField("default_value"):
            return attr.default_value
    raise ValueError("op {} of type {} has no attribute {}".format(node.name, node.op, name))


def _dtype_name(number: int) -> str:
    import tensorflow as tf

    return str(tf.as_dtype(number).name)

"""Which ops of an old graph lie in a loop or in a branch, by the ops that open and close them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Sequence, Tuple

if TYPE_CHECKING:
    import tensorflow as tf

LOOP_BACK = frozenset({"NextIteration", "RefNextIteration"})
_SWITCH = frozenset({"Switch", "RefSwitch", "SwitchN"})
_MERGE = frozenset({"Merge", "RefMerge"})
ENTER = frozenset({"Enter", "RefEnter"})
_EXIT = frozenset({"Exit", "RefExit"})

_Test = Callable[[Any], bool]


def loop_depth(order: Sequence[tf.Operation]) -> Dict[str, int]:
    """Returns for each op, producers given first, how many loops its outputs lie in."""
    return _nesting(order, lambda op: op.type in ENTER, lambda op: op.type in _EXIT)


def branch_depth(order: Sequence[tf.Operation]) -> Dict[str, int]:
    """Returns for each op, producers given first, how many branches its outputs lie in."""
    return _nesting(order, _branches_off, _joins)


def _nesting(order: Sequence[tf.Operation], opens: _Test, closes: _Test) -> Dict[str, int]:
    """Returns for each op how many loops (or branches) its outputs lie in."""
    depth: Dict[str, int] = {}
    for op in order:
        producers = [source for source in _sources(op) if source.type not in LOOP_BACK]
        level = max([depth.get(producer.name, 0) for producer in producers] or [0])
        if opens(op):
            level += 1
        elif closes(op):
            level = max(level - 1, 0)
        depth[op.name] = level
    return depth


def _branches_off(op: tf.Operation) -> bool:
    """Whether the op starts branches; in a loop the same op sends values on or out."""
    return op.type in _SWITCH and op.inputs[1].op.type != "LoopCond"


def _joins(op: tf.Operation) -> bool:
    """Whether the op ends branches; in a loop the same op takes the first value or the one of the turn before."""
    return op.type in _MERGE and not any(tensor.op.type in LOOP_BACK for tensor in op.inputs)


def loop_groups(order: Sequence[tf.Operation], depth: Mapping[str, int]) -> Dict[str, int]:
    """Returns for each op in a loop the moment of the first op that leaves the loop, nested loops taken as one."""
    parent: Dict[str, str] = {op.name: op.name for op in order if depth[op.name]}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    exits: List[Tuple[int, str]] = []
    for moment, op in enumerate(order, start=1):
        before = [source.name for source in _sources(op) if source.name in parent]
        if op.name in parent:
            for name in before:
                parent[root(name)] = root(op.name)
        elif op.type in _EXIT and before:
            exits.append((moment, before[0]))
    first: Dict[str, int] = {}
    for moment, name in exits:
        first.setdefault(root(name), moment)
    # A loop that nothing leaves (it only has side effects) comes last.
    return {name: first.get(root(name), len(order) + 1) for name in parent}


def _sources(op: tf.Operation) -> List[tf.Operation]:
    return [tensor.op for tensor in op.inputs] + list(op.control_inputs)

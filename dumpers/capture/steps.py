"""Which runs of a graph are training steps, and which steps a user wants dumped.

Shared by the capture on the reference side and by the emulated device, so that step N is the same on both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Collection, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ..errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

MAX_ITEMS = 100
"""Items that a list of steps may have, as on the device."""

_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_REPLACING = ("Assign", "AssignVariableOp")
_SCATTER_REPLACING = ("ScatterUpdate", "ResourceScatterUpdate", "ScatterNdUpdate", "ResourceScatterNdUpdate")
_ONLY_READING = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp",
                 "IsVariableInitialized", "DestroyResourceOp")  # fmt: skip
_TABLE_PREFIX = "_embedding"
_SAVING = ("SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice")
_INPUTS = ("Placeholder", "IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional")


class Steps:
    """Steps that are wanted: ``step in steps``.

    Args:
        ranges: First and last step of each item; none at all means every step.
    """

    def __init__(self, ranges: Sequence[Tuple[int, int]] = ()) -> None:
        self._ranges = tuple(ranges)

    @property
    def last(self) -> Optional[int]:
        """The last wanted step, None when every step is."""
        return max(last for _, last in self._ranges) if self._ranges else None

    def __contains__(self, step: int) -> bool:
        return not self._ranges or any(first <= step <= last for first, last in self._ranges)

    def __repr__(self) -> str:
        items = [str(first) if first == last else "{}-{}".format(first, last) for first, last in self._ranges]
        return "Steps({!r})".format("|".join(items))


def parse_steps(text: str) -> Steps:
    """Parses ``0|3-5|10``, also with commas. The empty text means every step.

    Raises:
        UsageError: the text is no such list, or has more than 100 items.
    """
    if not text.strip():
        return Steps()
    items = text.replace(",", "|").split("|")
    if len(items) > MAX_ITEMS:
        raise UsageError("steps {!r}: {} items, at most {} are allowed".format(text[:60], len(items), MAX_ITEMS))
    return Steps([_parse_item(text, item.strip()) for item in items])


def _parse_item(text: str, item: str) -> Tuple[int, int]:
    first, dash, last = item.partition("-")
    numbers = [first, last] if dash else [first]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise UsageError("steps {!r}: {!r} is neither a step nor a range; write them as 0|3-5|10".format(text, item))
    low, high = int(numbers[0]), int(numbers[-1])
    if low > high:
        raise UsageError("steps {!r}: the range {!r} runs backwards".format(text, item))
    return low, high


def is_training_run(graph: tf.Graph, ops: Sequence[Any]) -> bool:
    """Tells whether running some ops is a training step.

    It is one if it updates a trainable variable or an embedding table, the new value depending on an earlier value of a
    variable. In a graph without trainable variables the update of any variable counts. So initialisers (their values
    depend on no variable), savers and restorers, evaluations, and counters that go up by themselves are none.

    Args:
        graph: The ``tf.Graph``.
        ops: The ``tf.Operation`` objects that the run's fetches name.
    """
    run = executed(ops)
    return any(written_variables(op) for op in run) and _updates(graph, run, _trained_names(graph))


def is_evaluation_run(graph: tf.Graph, ops: Sequence[Any]) -> bool:
    """Tells whether a run in a graph that cannot train is one over a batch: inference, or an update of metrics.

    Savers, restorers and initialisers are none. Nor is reading what the other runs have accumulated (the value of a
    metric), unless a batch comes with it.

    Args:
        graph: The ``tf.Graph``.
        ops: The ``tf.Operation`` objects that the run's fetches name.
    """
    run = executed(ops)
    if any(op.type in _SAVING for op in run):
        return False
    if any(written_variables(op) for op in run):
        return _updates(graph, run, ())
    if not any(op.outputs and not op.type.startswith("Queue") for op in ops):
        return False
    if any(op.type in _INPUTS or "Dequeue" in op.type for op in run):
        return True
    read = {op.name for op in run if op.type in _VARIABLES}
    return not (read and read & _accumulated(graph))


def _updates(graph: tf.Graph, ops: Iterable[Any], counted: Collection[str]) -> bool:
    """Tells whether ops give one of the counted variables (any if none is) a value that depends on a variable."""
    initialisers = _initialisers(graph)
    reads: Dict[str, bool] = {}
    return any(
        (not counted or variable.name in counted) and op.name not in initialisers and _depends_on_variable(op, reads)
        for op in ops
        for variable in written_variables(op)
    )


def _accumulated(graph: tf.Graph) -> Set[str]:
    """Names of the variables that some op of the graph adds to or otherwise updates."""
    return {
        variable.name
        for op in graph.get_operations()
        for variable in written_variables(op)
        if op.type not in _REPLACING
    }


def written_variables(op: tf.Operation) -> List[Any]:
    """Returns the ops of the variables that an op changes in place (``VarHandleOp``, ``VariableV2``)."""
    if op.type in _ONLY_READING or op.type in _VARIABLES:
        return []
    found = []
    for index, by_reference in enumerate(_takes_reference(op)):
        tensor = op.inputs[index]
        if by_reference or tensor.dtype.name == "resource":
            variable = variable_of(tensor)
            # Identity, RefIdentity and the like hand a handle on and have it as output.
            if variable is not None and not _hands_on(op):
                found.append(variable)
    return found


def variable_of(tensor: tf.Tensor) -> Optional[tf.Operation]:
    """Returns the op of the variable behind a resource handle or a reference, None if there is none."""
    while True:
        op = tensor.op
        if op.type in _VARIABLES:
            return op
        is_resource = tensor.dtype.name == "resource"
        if not op.inputs or not ((is_resource and op.type == "Identity") or tensor.dtype._is_ref_dtype):
            return None
        tensor = op.inputs[0]


def _hands_on(op: tf.Operation) -> bool:
    return op.type in ("Identity", "RefIdentity", "StopGradient")


def _takes_reference(op: tf.Operation) -> List[bool]:
    """Tells for each input whether the op wants the reference itself, not the value behind it."""
    result: List[bool] = []
    for arg in op.op_def.input_arg:
        count = 1
        if arg.number_attr:
            count = int(op.get_attr(arg.number_attr))
        elif arg.type_list_attr:
            count = len(op.get_attr(arg.type_list_attr))
        result.extend([bool(arg.is_ref)] * count)
    return result


def executed(ops: Iterable[Any], fed: Collection[str] = ()) -> Set[Any]:
    """Returns the ops that a run executes: those asked for and all that they need, not looking behind fed tensors.

    Args:
        ops: The ops that the run's fetches name.
        fed: Names of the fed tensors.
    """
    found: Set[Any] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting.extend(tensor.op for tensor in op.inputs if tensor.name not in fed)
            waiting.extend(op.control_inputs)
    return found


def _trained_names(graph: tf.Graph) -> Set[str]:
    """Returns the names of the variables whose update makes a run a training step."""
    names = {variable.op.name for variable in graph.get_collection("trainable_variables") if hasattr(variable, "op")}
    for op in graph.get_operations():
        # Only these can mark a table; the nodes of others (large constants) are costly to look at.
        may_mark = "Gather" in op.type or op.type in _VARIABLES
        if may_mark and any(attr.startswith(_TABLE_PREFIX) for attr in op.node_def.attr):
            names.update(variable.name for variable in _variables_behind(op))
    return names


def _variables_behind(op: tf.Operation) -> Iterator[Any]:
    """Yields the variables that a lookup reads, directly or through the read of a reference."""
    for tensor in op.inputs:
        source = tensor.op
        variable = variable_of(tensor)
        if variable is None and source.type in ("Identity", "ReadVariableOp") and source.inputs:
            variable = variable_of(source.inputs[0])
        if variable is not None:
            yield variable
    if op.type in _VARIABLES:
        yield op


def _initialisers(graph: tf.Graph) -> Set[str]:
    variables = graph.get_collection("variables") + graph.get_collection("local_variables")
    return {variable.initializer.name for variable in variables if getattr(variable, "initializer", None) is not None}


def _depends_on_variable(op: tf.Operation, reads: Dict[str, bool]) -> bool:
    """Tells whether the value that an op writes depends on a value that some variable had before."""
    if op.type in _REPLACING:
        sources = [op.inputs[1]]
    elif op.type in _SCATTER_REPLACING:
        sources = list(op.inputs[1:])
    else:
        return True  # adds to, scales or otherwise updates what is there
    return any(_reads_variable(tensor.op, reads) for tensor in sources)


def _reads_variable(op: tf.Operation, reads: Dict[str, bool]) -> bool:
    """Tells whether an op or anything that it reads has the value of a variable; ``reads`` remembers."""
    waiting = [op]
    seen: Set[str] = set()
    while waiting:
        current = waiting.pop()
        if current.name in seen or reads.get(current.name) is False:
            continue
        seen.add(current.name)
        if reads.get(current.name) or current.type in _VARIABLES:
            reads[op.name] = True
            return True
        waiting.extend(tensor.op for tensor in current.inputs)
    for name in seen:
        reads[name] = False
    return False

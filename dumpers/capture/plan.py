"""What a run executes and how each of its tensors is seen at the value that its consumer saw."""

from __future__ import annotations

import enum
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Collection, Dict, FrozenSet, List, Sequence, Set, Tuple

from .aliasing import is_reference, live_tensors
from .nesting import ENTER, LOOP_BACK, branch_depth, loop_depth, loop_groups
from .steps import executed, is_evaluation_run, is_training_run

if TYPE_CHECKING:
    import tensorflow as tf

WITHOUT_VALUE = frozenset({"resource", "variant"})
MAX_WATCHED_NAME_BYTES = 255 - len("_00_DebugIdentity_1234567890123456-999")
"""What the debugger's own file name leaves for the last part of an op's name; one byte more aborts the process."""

MAX_WATCHED_BYTES = 1 << 30
"""The debugger packs a tensor into one message, which must stay below 2 GiB."""

_EVALUATION_COUNTER = "eval_step"
"""Collection of the counter that Estimators put into a graph before they evaluate; the model may have its optimizer."""

_HARMLESS_STATE = frozenset(
    {"VariableV2", "Variable", "VarHandleOp", "ReadVariableOp", "ResourceGather", "Placeholder"}
)


class How(enum.Enum):
    """The way one tensor is taken."""

    FED = "fed"
    FETCH = "fetch"
    """Fetched with the run; exact since nothing changes it in place (or a debugger's copy stands before it)."""
    WATCH = "watch"
    """Copied by TensorFlow's debugger between producer and consumer."""
    BEFORE = "before"
    """Read right before the run; for what the debugger cannot name."""
    NOT = "not"
    """Has no value, or cannot be taken; the note says why."""


@dataclass(frozen=True)
class Taken:
    """One tensor of a run.

    Attributes:
        name: ``op:slot``.
        moment: Position of its op in the fixed order of execution.
        note: Why it is not taken, or what is odd about its value.
        group: For a tensor in a loop, the moment of what leaves the loop; 0 for others.
        node: Name of the op in the graph that runs, where TensorFlow put a function's body in the place of its call.
    """

    name: str
    op: str
    slot: int
    op_type: str
    dtype: str
    shape: "Tuple[int, ...] | None"
    moment: int
    how: How
    note: str = ""
    group: int = 0
    node: str = ""

    @property
    def watch_name(self) -> str:
        """``op:slot`` for the debugger."""
        return "{}:{}".format(self.node or self.op, self.slot)

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor as far as its shape is known, at eight an element."""
        size = 8
        for n in self.shape or ():
            size *= n
        return size


@dataclass(frozen=True)
class Plan:
    """How to record the runs that have the same fetches and feeds.

    Attributes:
        training: Whether such a run counts as a step.
        tensors: All outputs of all executed ops in one fixed topological order; empty when not a training run.
        copied: Names of tensors that are fetched and need a debugger's copy in front.
        shares_state: Whether the run sees reference variables, so that fetched arrays may be live buffers.
        can_watch: Whether TensorFlow's debugger can be used.
    """

    training: bool
    tensors: Tuple[Taken, ...] = ()
    copied: FrozenSet[str] = frozenset()
    shares_state: bool = False
    can_watch: bool = False

    def watched(self) -> Set[str]:
        """Names of all tensors that the debugger copies."""
        return {taken.watch_name for taken in self.tensors if taken.how is How.WATCH} | self.copied

    def loops(self) -> Set[str]:
        """Names, for the debugger, of the watched tensors that may have a value each turn."""
        return {taken.watch_name for taken in self.tensors if taken.how is How.WATCH and taken.group}

    def watched_bytes(self, keep: int) -> int:
        """Bytes of the debugger's files as far as shapes are known, with ``keep`` turns of each tensor in a loop."""
        watched = self.watched()
        return sum(t.size_bytes * (keep if t.group else 1) for t in self.tensors if t.watch_name in watched)

    def moments(self, keep: int) -> int:
        """Microseconds that the time stamps of a run take, with ``keep`` turns of each tensor in a loop."""
        last = max([0, *(taken.moment for taken in self.tensors)])
        return last + 1 + keep * sum(1 for taken in self.tensors if taken.group)

    def names(self, how: How) -> List[str]:
        """Names of the tensors taken in one way."""
        return [tensor.name for tensor in self.tensors if tensor.how is how]


def make_plan(graph: tf.Graph, roots: Sequence[tf.Operation], fed: Sequence[tf.Tensor], *, can_watch: bool) -> Plan:
    """Plans the runs of some fetches.

    Args:
        graph: The session's graph.
        roots: Ops that the fetches name.
        fed: Fed tensors.
        can_watch: Whether TensorFlow's debugger can be used; without it tensors that alias a variable are read before
            the run.
    """
    if not is_step(graph, roots):
        return Plan(training=False)
    fed_names = frozenset(tensor.name for tensor in fed)
    order = in_order(graph, executed(roots, fed_names), fed_names)
    live = live_tensors(order, fed_names)
    loops, branches = loop_depth(order), branch_depth(order)
    groups = loop_groups(order, loops)
    view = _View(graph, loops, branches, live, can_watch)
    impure = impure_ops(order, fed_names)
    tensors = [_taken(tensor, 0, How.FED, "fed") for tensor in fed]
    copied: Set[str] = set()
    for moment, op in enumerate(order, start=1):
        for tensor in op.outputs:
            if tensor.name in fed_names:
                continue
            how, note = view.way(tensor, pure=op.name not in impure)
            tensors.append(_taken(tensor, moment, how, note, groups.get(op.name, 0)))
            if how is How.FETCH and tensor.name in live and view.watchable(tensor):
                copied.add(tensor.name)
    return Plan(True, tuple(tensors), frozenset(copied), bool(live), can_watch)


def is_step(graph: tf.Graph, roots: Sequence[tf.Operation]) -> bool:
    """Tells whether a run counts as a step.

    In a graph that can train only its training runs count. A graph that cannot (inference, an imported frozen graph)
    would leave nothing to record: there every run over a batch counts. So it does in one that an Estimator evaluates.
    """
    if is_training_run(graph, roots):
        return True
    evaluates = bool(graph.get_collection(_EVALUATION_COUNTER))
    return is_evaluation_run(graph, roots) and (evaluates or not is_training_run(graph, graph.get_operations()))


def in_order(graph: tf.Graph, ops: Set[tf.Operation], fed: Collection[str] = ()) -> List[tf.Operation]:
    """Sorts ops so that producers come first, ties by the order in which the graph got them; the same every time."""
    place = {op: index for index, op in enumerate(graph.get_operations()) if op in ops}
    waiting: Dict[tf.Operation, int] = {}
    users: Dict[tf.Operation, List[tf.Operation]] = {op: [] for op in place}
    for op in place:
        needed = {t.op for t in op.inputs if t.name not in fed and t.op.type not in LOOP_BACK} | set(op.control_inputs)
        waiting[op] = len(needed)
        for producer in needed:
            users[producer].append(op)
    ready = [(place[op], op.name) for op in place if not waiting[op]]
    heapq.heapify(ready)
    by_name = {op.name: op for op in place}
    result: List[tf.Operation] = []
    while ready:
        op = by_name[heapq.heappop(ready)[1]]
        result.append(op)
        for user in users[op]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (place[user], user.name))
    done = set(result)
    return result + [op for op in place if op not in done]


class _View:
    """Decides how each tensor is taken."""

    def __init__(
        self, graph: tf.Graph, loops: Dict[str, int], branches: Dict[str, int], live: Set[str], can_watch: bool
    ) -> None:
        self._graph = graph
        self._loops = loops
        self._branches = branches
        self._live = live
        self._can_watch = can_watch

    def watchable(self, tensor: tf.Tensor) -> bool:
        """Whether the debugger can write the tensor."""
        return not self._obstacle(tensor)

    def way(self, tensor: tf.Tensor, *, pure: bool) -> Tuple[How, str]:
        """Returns how to take a tensor and what to note about it."""
        dtype = tensor.dtype.base_dtype.name
        if dtype in WITHOUT_VALUE:
            return How.NOT, "no value: {}".format(dtype)
        if tensor.op.type in ENTER and self._branches[tensor.op.name]:
            # Copies behind both the entry and the exit of a loop that does not run let TensorFlow fail the run.
            return How.NOT, "enters a loop in a branch: not recorded; it has the value of its input"
        obstacle = self._obstacle(tensor)
        watchable = not obstacle
        for depth, place in ((self._loops, "a loop"), (self._branches, "a branch that may not run")):
            if depth[tensor.op.name]:
                return (
                    (How.WATCH, "") if watchable else (How.NOT, "inside {}, {}: not recorded".format(place, obstacle))
                )
        if is_reference(tensor) and watchable:
            return How.WATCH, ""
        if not self._graph.is_fetchable(tensor):
            return How.NOT, "the graph forbids fetching it: not recorded"
        if tensor.name in self._live and not watchable:
            if pure:
                return How.BEFORE, "read right before the step"
            return How.FETCH, "value at the end of the step (shares memory with a variable)"
        return How.FETCH, ""

    def _obstacle(self, tensor: tf.Tensor) -> str:
        """What keeps the debugger from writing the tensor."""
        if not self._can_watch:
            return "and TensorFlow's debugger cannot be used"
        if _static_bytes(tensor) > MAX_WATCHED_BYTES:
            return "and it is too large for TensorFlow's debugger"
        if not watchable_name(tensor.op.name):
            return "and its name is too long for the debugger"
        return ""


def watchable_name(op: str) -> bool:
    """Whether the debugger's file names for an op fit a file system; it ends the process over one that does not."""
    parts = op.split("/")
    lengths = [len(part.encode("utf-8")) for part in parts]
    plain = not any(part in ("", ".", "..") for part in parts)
    return plain and max(lengths) <= 255 and lengths[-1] <= MAX_WATCHED_NAME_BYTES and sum(lengths) < 3000


def _taken(tensor: tf.Tensor, moment: int, how: How, note: str, group: int = 0) -> Taken:
    return Taken(
        name=tensor.name,
        op=tensor.op.name,
        slot=tensor.value_index,
        op_type=tensor.op.type,
        dtype=tensor.dtype.base_dtype.name,
        shape=_static_shape(tensor),
        moment=moment,
        how=how,
        note=note,
        group=group,
    )


def _static_shape(tensor: tf.Tensor) -> "Tuple[int, ...] | None":
    return tuple(int(n) for n in tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None


def _static_bytes(tensor: tf.Tensor) -> int:
    """Bytes of a tensor as far as the graph knows its shape; unknown dimensions count as one."""
    size = int(tensor.dtype.base_dtype.size or 1)
    if tensor.shape.rank is not None:
        for n in tensor.shape.as_list():
            size *= n if n is not None else 1
    return size


def impure_ops(order: Sequence[tf.Operation], fed: Collection[str]) -> Set[str]:
    """Names of ops that change state or use a generator, a queue or the like, or come after one that does."""
    found: Set[str] = set()
    for op in order:
        stateful = op.op_def.is_stateful and op.type not in _HARMLESS_STATE
        writes = any(is_reference(t) for t in op.outputs) and op.type not in _HARMLESS_STATE
        before = [t.op.name for t in op.inputs if t.name not in fed] + [c.name for c in op.control_inputs]
        if stateful or writes or any(name in found for name in before):
            found.add(op.name)
    return found

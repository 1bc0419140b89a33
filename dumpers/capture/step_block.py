"""What a recorded step of TensorFlow 2 executed: functions with their inner tensors, and the eager ops between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

import numpy as np

from .arrays import storable
from .eager_calls import Listener, Run
from .eager_nodes import eager_node, input_names
from .function_graph import graph_bytes, library_of, placeholder_node, variable_node
from .function_outputs import Expanded, node_outputs
from .plan import WITHOUT_VALUE, How, Taken
from .record import Item

if TYPE_CHECKING:
    from .function_steps import StepLog

Tensor = Any
_END_OF_DATA = ("OutOfRangeError", "StopIteration")


class StepBlock(Listener):
    """Collects one step and queues its record.

    Args:
        log: Whose step it is.
        main: Names of the functions whose tensors keep their names.
        run: Number of the run, from 1.
        step: Number of the step, from 0.
    """

    sees_ops = True

    def __init__(self, log: StepLog, main: FrozenSet[str], run: int, step: int) -> None:
        self._log = log
        self._main = main
        self._run = run
        self._step = step
        self._sources: Dict[int, str] = {}
        self._alive: List[Tensor] = []  # ids of tensors stay theirs as long as these live
        self._names: Set[str] = set()
        self._nodes: List[Any] = []
        self._graph: List[bytes] = []
        self._functions: List[str] = []
        self._taken: List[Tuple[Taken, Any, str]] = []
        self._moment = 0
        self._broken = ""

    def call(self, name: str, inputs: Sequence[Any], outputs: int, run: Run) -> Any:  # noqa: ANN401 - tensors
        """Runs a function with its inner tensors as outputs and keeps them; returns the function's own outputs."""
        import tensorflow as tf

        found = self._guarded(self._look_at, name, inputs)
        if found is None:
            return run(name, outputs)
        plan, definition, prefix, sources = found
        if plan is None:
            result = run(name, outputs)
            self._guarded(self._closed, definition, prefix, sources, result)
            return result
        try:
            every = run(plan.name, outputs + plan.added)
        except tf.errors.OpError as error:
            self._guarded(_rename, error, plan, name)
            raise
        self._guarded(self._opened, plan, name, prefix, sources, every)
        return every[:outputs]

    def op(self, op_type: str, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Keeps what an eager op returned."""
        self._guarded(self._keep_op, op_type, inputs, attrs, outputs)

    def close(self, error: Optional[BaseException]) -> None:
        """Queues the record.

        Args:
            error: What the step raised. The end of the data is no step, and nothing is left of it.
        """
        if error is not None and (type(error).__name__ in _END_OF_DATA or not isinstance(error, Exception)):
            return
        try:
            self._queue(error)
        except Exception as broken:  # whatever it is, the user's step went as it went
            self._log.say_once.fault("step {} could not be recorded".format(self._step), broken)

    def _guarded(self, action: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401 - whatever it returns
        """Does something for the record; what breaks in it ends the record, not the user's step. None then."""
        if self._broken:
            return None
        try:
            return action(*given)
        except Exception as error:
            start = "step {} could not be recorded completely".format(self._step)
            self._broken = self._log.say_once.fault(start, error)
            return None

    def _queue(self, error: Optional[BaseException]) -> None:
        self._flush_nodes()
        text = _short(str(error))
        reason = self._broken
        if error is not None:
            reason = "the step failed: {}: {}".format(type(error).__name__, text)
        items = [_item(*taken) for taken in self._taken]
        self._taken = []
        graph = b"".join((*self._graph, _versions()))
        self._log.queue(self._run, self._step, self._functions, graph, items, reason)

    def _look_at(self, name: str, inputs: Sequence[Any]) -> Tuple[Optional[Expanded], Any, str, List[str]]:
        """How a function is recorded, its definition, what stands before its names, and where its inputs come from."""
        plan = self._log.plans.plan(name)
        definition: Any = self._log.plans.find(name)
        prefix = self._prefix(name)
        arguments = [argument.name for argument in definition.signature.input_arg]
        sources = [self._source(t, prefix + a) for t, a in zip(inputs, arguments)]  # noqa: B905 - Python 3.7
        self._functions.append(name)
        return plan, definition, prefix, sources

    def _keep_op(self, op_type: str, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]) -> None:
        name = self._unique("eager/{}{}".format(_scope(), op_type))
        tensors = [tensor for tensor in inputs if hasattr(tensor, "dtype") and hasattr(tensor, "_id")]
        places = input_names(op_type, tensors)
        sources = [self._source(t, "{}/{}".format(name, p)) for t, p in zip(tensors, places)]  # noqa: B905
        returned = _tensors(outputs)
        self._nodes.append(eager_node(name, op_type, sources, tensors, attrs, returned))
        self._moment += 1
        for slot, tensor in enumerate(returned):
            self._remember(tensor, name if slot == 0 else "{}:{}".format(name, slot))
            self._take(name, slot, op_type, tensor)

    def _prefix(self, name: str) -> str:
        """What stands before the names of a function's tensors: nothing for the step's own function."""
        from .function_steps import short_name

        short = short_name(name)
        if short in self._main and "" not in self._names:
            self._names.add("")
            return ""
        return self._unique(short) + "/"

    def _unique(self, name: str) -> str:
        found, number = name, 0
        while found in self._names:
            number += 1
            found = "{}_{}".format(name, number)
        self._names.add(found)
        return found

    def _source(self, tensor: Tensor, name: str) -> str:
        """The graph's name of a tensor that goes into something; one from outside becomes a node and is kept."""
        if id(tensor) in self._sources:
            return self._sources[id(tensor)]
        variable = self._log.variables.of(tensor) if tensor.dtype.name == "resource" else None
        if variable is not None:
            name = self._unique(variable.name)
            self._nodes.append(variable_node(name, variable.dtype, variable.shape))
        else:
            name = self._unique(name)
            self._nodes.append(placeholder_node(name, tensor.dtype.as_datatype_enum))
        self._moment += 1
        self._remember(tensor, name)
        self._take(name, 0, "VarHandleOp" if variable is not None else "Placeholder", tensor, How.FED)
        return name

    def _remember(self, tensor: Tensor, name: str) -> None:
        self._sources[id(tensor)] = name
        self._alive.append(tensor)

    def _take(self, op: str, slot: int, op_type: str, tensor: Tensor, how: How = How.FETCH) -> None:
        dtype = tensor.dtype.base_dtype.name
        taken = Taken(
            name="{}:{}".format(op, slot),
            op=op,
            slot=slot,
            op_type=op_type,
            dtype=dtype,
            shape=None,
            moment=self._moment,
            how=how,
        )
        if dtype in WITHOUT_VALUE:
            self._taken.append((replace(taken, how=How.NOT), None, "no value: {}".format(dtype)))
        else:
            # What comes from outside may lie in memory that the caller fills again for the next step.
            value = np.array(_array(tensor)) if how is How.FED else tensor
            self._taken.append((taken, value, "fed" if how is How.FED else ""))

    def _opened(self, plan: Expanded, name: str, prefix: str, sources: List[str], every: Sequence[Tensor]) -> None:
        """Keeps what a function with added outputs returned."""
        body = self._log.plans.body(name, prefix, sources)
        self._flush_nodes()
        self._graph.append(body.graph)
        self._names.update(body.names)
        for tensor, result in zip(every, body.results):  # noqa: B905 - the added ones have no name; Python 3.7
            self._remember(tensor, result)
        for taken, inner in zip(body.taken(plan, self._moment), plan.inner):  # noqa: B905 - one an inner; Python 3.7
            value = every[plan.plain_outputs + inner.output] if inner.output is not None else None
            self._taken.append((taken, value, inner.note))
        self._moment += plan.moments

    def _closed(self, definition: Any, prefix: str, sources: List[str], result: Any) -> None:  # noqa: ANN401
        """Keeps the outputs of a function that runs as one op."""
        import tensorflow as tf

        signature = definition.signature
        node = tf.compat.v1.NodeDef(name=self._unique(prefix + "StatefulPartitionedCall"), op="StatefulPartitionedCall")
        node.input.extend(sources)
        node.attr["f"].func.name = signature.name
        node.attr["Tin"].list.type.extend([argument.type for argument in signature.input_arg])
        node.attr["Tout"].list.type.extend([argument.type for argument in signature.output_arg])
        self._nodes.append(node)
        self._graph.append(graph_bytes([], library_of([node], self._log.plans.find)))
        self._moment += 1
        slots = len(node_outputs(node, self._log.plans.find))
        for slot, tensor in zip(range(slots), _tensors(result)):  # noqa: B905 - Python 3.7
            self._remember(tensor, "{}:{}".format(node.name, slot) if slot else node.name)
            self._take(node.name, slot, node.op, tensor)

    def _flush_nodes(self) -> None:
        self._graph.append(graph_bytes(self._nodes, []))
        self._nodes = []


def _item(taken: Taken, value: Any, note: str) -> Item:  # noqa: ANN401 - a tensor, an array or none
    if value is None:
        return Item(taken, taken.moment, None, taken.dtype, note)
    try:
        array, dtype, odd = storable(value if isinstance(value, np.ndarray) else _array(value), taken.dtype)
    except ValueError as error:
        return Item(taken, taken.moment, None, taken.dtype, str(error))
    return Item(taken, taken.moment, array, dtype, "; ".join(text for text in (note, odd) if text))


def _short(text: str) -> str:
    """One line; what went wrong is at the end of TensorFlow's messages, behind the place in the user's program."""
    line = " ".join(text.split())
    return line if len(line) <= 700 else "{} ... {}".format(line[:100], line[-600:])


def _array(tensor: Tensor) -> Any:  # noqa: ANN401 - an array, or bytes
    """The value of an eager tensor, without a copy where it lies in the host's memory."""
    return tensor._numpy()


def _tensors(outputs: Any) -> List[Tensor]:  # noqa: ANN401 - None, one tensor, or several
    if outputs is None:
        return []
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _scope() -> str:
    from tensorflow.python.eager import context

    return str(context.context().scope_name or "")


def _versions() -> bytes:
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef()
    graph.versions.producer = tf.version.GRAPH_DEF_VERSION
    return bytes(graph.SerializeToString(deterministic=True))


def _rename(error: Any, plan: Expanded, name: str) -> None:  # noqa: ANN401 - a tf.errors.OpError
    """Puts the user's function back into an error message."""
    text = error.message
    for function in plan.needed:
        long = function.signature.name
        text = text.replace(long, long[len(long) - len(long.split("__precision_tool_all_", 1)[1]) :])
    if text != error.message:
        error._message = text
        error.args = tuple(text if i == 2 else a for i, a in enumerate(error.args))

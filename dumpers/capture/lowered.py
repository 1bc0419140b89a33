"""Tensors of ``While``, ``If`` and ``Case`` ops, whose bodies are functions (control flow of TensorFlow 2).

TensorFlow puts the bodies in the place of such an op before it runs a graph ("lowers" it), under names that it makes up
then: the product ``mul`` in the body of ``loop`` becomes ``loop/body/_1/mul``. To learn them the run is prepared with a
thread pool that does not exist: TensorFlow builds what it would run, hands it to the debugger, and refuses before the
first op. So the debugger can watch these tensors like those of an old graph.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from .plan import WITHOUT_VALUE, How, Plan, Taken, watchable_name

if TYPE_CHECKING:
    import tensorflow as tf

FUNCTIONAL = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
Prepare = Callable[[Any], object]
"""Asks for the run with some RunOptions; TensorFlow refuses these."""

_NO_POOL = 1 << 30
_NOBODY = "precision_tool_nobody"
_COUNTER = re.compile(r"/_\d+(?=/)")
_PLUMBING = re.compile(r"(Func/.*|.*/_\d+|.*__cf__\d+)\Z", re.DOTALL)
"""What TensorFlow adds to pass values on; they have the values of the bodies' own tensors."""

_SILENT = frozenset({"Const", "NoOp", "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv"})
_LOOP_BACK = "NextIteration"


def with_bodies(plan: Plan, graph: tf.Graph, prepare: Optional[Prepare]) -> Plan:
    """Adds the tensors of all bodies to a plan.

    Args:
        plan: What to take of the session's own graph.
        graph: That graph.
        prepare: Asks for the run that the plan is for; None where the debugger cannot be used.
    """
    calls = {taken.op: taken for taken in plan.tensors if taken.op_type in FUNCTIONAL}
    if not calls:
        return plan
    nodes = _running_nodes(prepare) if prepare is not None else []
    known = {op.name for op in graph.get_operations()}
    inner = [node for node in _in_order(nodes) if node.name not in known and not _PLUMBING.match(node.name)]
    found: List[Taken] = []
    reached: Set[str] = set()
    shown: Dict[str, str] = {}
    for moment, node in enumerate(inner, start=1):
        call = _call(node.name, calls)
        if call is None or node.op in _SILENT:
            continue
        reached.add(call.op)
        name = _COUNTER.sub("", node.name)
        if name in known or shown.setdefault(name, node.name) != node.name:
            name = node.name
        found.extend(_outputs(node, name, moment, call.moment))
    for call in calls.values():
        if call.op not in reached:
            found.extend(_listed(graph, call, lowered=any(node.name.startswith(call.op + "/") for node in nodes)))
    return replace(plan, tensors=plan.tensors + tuple(found))


def _running_nodes(prepare: Prepare) -> List[tf.compat.v1.NodeDef]:
    """The nodes that TensorFlow would run, from what it hands to its debugger; none if it does not."""
    import tensorflow as tf

    folder = Path(tempfile.mkdtemp(prefix="precision_tool_graph_"))
    try:
        options = tf.compat.v1.RunOptions(inter_op_thread_pool=_NO_POOL)
        watch = options.debug_options.debug_tensor_watch_opts.add()
        watch.node_name = _NOBODY
        watch.debug_ops.append("DebugIdentity")
        watch.debug_urls.append("file://{}".format(folder))
        # Refused, as it should be, or wrong anyway: then the run itself says so.
        with contextlib.suppress(tf.errors.OpError, TypeError, ValueError, RuntimeError):
            prepare(options)
        nodes: List[tf.compat.v1.NodeDef] = []
        for path in sorted(folder.rglob("_tfdbg_graph_*")):
            event = tf.compat.v1.Event.FromString(path.read_bytes())
            nodes.extend(tf.compat.v1.GraphDef.FromString(event.graph_def).node)
        return nodes
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)


def _in_order(nodes: Sequence[tf.compat.v1.NodeDef]) -> List[tf.compat.v1.NodeDef]:
    """The nodes, producers first; ties by name."""
    by_name = {node.name: node for node in nodes}
    state: Dict[str, bool] = {}
    result: List[tf.compat.v1.NodeDef] = []
    for start in sorted(by_name):
        stack = [start]
        while stack:
            name = stack[-1]
            if name in state:
                if not state[name]:
                    state[name] = True
                    result.append(by_name[name])
                stack.pop()
                continue
            state[name] = False
            stack.extend(source for source in _sources(by_name[name], by_name) if source not in state)
    return result


def _sources(node: tf.compat.v1.NodeDef, by_name: Mapping[str, tf.compat.v1.NodeDef]) -> Iterator[str]:
    for text in sorted(node.input, reverse=True):
        name = text.lstrip("^").rsplit(":", 1)[0]
        if name in by_name and by_name[name].op != _LOOP_BACK:
            yield name


def _call(name: str, calls: Mapping[str, Taken]) -> Optional[Taken]:
    """The op of the session's graph whose body holds a node."""
    while "/" in name:
        name = name.rpartition("/")[0]
        if name in calls:
            return calls[name]
    return None


def _outputs(node: tf.compat.v1.NodeDef, name: str, moment: int, group: int) -> Iterator[Taken]:
    for slot, dtype in enumerate(_dtypes(node)):
        if dtype in WITHOUT_VALUE:
            how, note = How.NOT, "no value: {}".format(dtype)
        elif not watchable_name(node.name):
            how, note = How.NOT, "in a function's body, and its name is too long for the debugger: not recorded"
        else:
            how, note = How.WATCH, ""
        yield Taken(
            name="{}:{}".format(name, slot),
            op=name,
            slot=slot,
            op_type=node.op,
            dtype=dtype,
            shape=None,
            moment=moment,
            how=how,
            note=note,
            group=group,
            node=node.name,
        )


def _dtypes(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    """Names of the dtypes of a node's outputs, from its attributes."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    registered = getattr(op_def_registry, "get_registered_ops", None)  # TensorFlow 1.15
    definition = registered().get(node.op) if registered is not None else op_def_registry.get(node.op)
    for argument in definition.output_arg if definition is not None else ():
        if argument.type_list_attr:
            types = list(node.attr[argument.type_list_attr].list.type)
        else:
            number = node.attr[argument.number_attr].i if argument.number_attr else 1
            types = [node.attr[argument.type_attr].type if argument.type_attr else argument.type] * number
        for code in types:
            yield str(tf.as_dtype(code).base_dtype.name)


def _listed(graph: tf.Graph, call: Taken, *, lowered: bool) -> Iterator[Taken]:
    """The ops in the bodies of a call that TensorFlow runs as a whole, as far as the session's graph has them."""
    if lowered:
        return
    op = graph.get_operation_by_name(call.op)
    library: Optional[Mapping[str, Any]] = None
    for attribute, value in sorted(op.node_def.attr.items()):
        for function in [value.func] if value.HasField("func") else value.list.func:
            if library is None:
                library = _library(graph)
            definition = library.get(function.name)
            for node in definition.node_def if definition is not None else ():
                yield _unseen(call, attribute, node)


def _unseen(call: Taken, attribute: str, node: tf.compat.v1.NodeDef) -> Taken:
    name = "{}/{}/{}".format(call.op, attribute, node.name)
    dtypes: Tuple[str, ...] = tuple(_dtypes(node))
    return Taken(
        name=name + ":0",
        op=name,
        slot=0,
        op_type=node.op,
        dtype=dtypes[0] if dtypes else "undefined",
        shape=None,
        moment=0,
        how=How.NOT,
        note="in a function that TensorFlow runs as a whole: not recorded",
        group=call.moment,
    )


def _library(graph: tf.Graph) -> Mapping[str, Any]:
    try:
        return {function.signature.name: function for function in graph.as_graph_def().library.function}
    except ValueError:  # more than a message holds
        return {}

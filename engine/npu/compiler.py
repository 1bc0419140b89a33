"""The device's compiler: from what a run asks of a TensorFlow graph to a program of device operators.

Passes in order: prune and put in order, translate op by op, fuse chains, insert the Casts of mixed precision, number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.errors import UnsupportedOpError
from engine.npu import optypes
from engine.npu.fusions import FusionSwitches, fuse
from engine.npu.host import HostGraph, is_handle
from engine.npu.numerics import Numerics
from engine.npu.precision import insert_casts
from engine.npu.prune import Request, pruned_ops
from engine.npu.state import takes_reference, variable_op
from engine.npu.tasks import Draft, Place, Program, Task
from engine.npu.translate import Translator
from engine.observe import DeviceGraph, DeviceOp

if TYPE_CHECKING:
    import tensorflow as tf

IsTraining = Callable[[Any, Sequence[Any]], bool]
"""Tells from a graph and the ops that a run names whether that run is a training step."""


class Compiler:
    """Compiles runs of one graph.

    Args:
        graph: The TensorFlow graph.
        numerics: Precision mode.
        switches: Which fusion passes are on.
        host: Runs what does not run on the device.
        is_training: Tells training steps from other runs.
    """

    def __init__(
        self, graph: tf.Graph, *, numerics: Numerics, switches: FusionSwitches, host: HostGraph, is_training: IsTraining
    ) -> None:
        self._graph = graph
        self._numerics = numerics
        self._switches = switches
        self._host = host
        self._is_training = is_training

    def compile(self, request: Request, *, name: str, graph_id: int) -> Program:
        """Returns the program for a request.

        Initialisation (variables are written from nothing but constants, random numbers and files) is computed as
        TensorFlow computes it, without fusion or reduced precision: two devices must start from the same bits.

        Raises:
            UnsupportedOpError: the device cannot execute one of the ops; the message names it.
        """
        for tensor in request.fetches:
            if is_handle(tensor):
                raise UnsupportedOpError(f"tensor {tensor.name!r} is a handle and has no value to fetch")
        ops = pruned_ops(self._graph, request)
        on_device = not _initialises(ops)
        translator = Translator(self._host, request.feeds, own_kernels=on_device)
        translator.add_all(ops)
        fetches = [translator.place(tensor) for tensor in request.fetches]
        drafts = translator.drafts
        if on_device:
            drafts = fuse(drafts, set(fetches), self._switches)
            if self._numerics is Numerics.MIX:
                drafts = insert_casts(drafts)
        drafts = _with_output(drafts, _follow(drafts, fetches))
        graph = DeviceGraph(name, tuple(_device_op(i, d, drafts) for i, d in enumerate(drafts.values())), graph_id)
        graph = DeviceGraph(graph.name, graph.ops, graph_id, self._graph_attrs(graph_id))
        return _program(graph, drafts, training=self._is_training(self._graph, request.ops))

    def _graph_attrs(self, graph_id: int) -> dict[str, Any]:
        return {"precision_mode": self._numerics.value, "_session_graph_id": f"0_{graph_id}"}


def _initialises(ops: Sequence[Any]) -> bool:
    """Tells whether ops write variables and read none."""
    writes = False
    for op in ops:
        if op.type in optypes.VARIABLES or op.type in optypes.ASK_INITIALIZED or op.type == "NoOp":
            continue
        wanted = takes_reference(op)
        for index, tensor in enumerate(op.inputs):
            if (is_handle(tensor) or tensor.dtype._is_ref_dtype) and variable_op(tensor) is not None:
                in_place = is_handle(tensor) or wanted[index]
                if not in_place or op.type not in optypes.OVERWRITING:
                    return False
                writes = True
    return writes


def _follow(drafts: dict[str, Draft], fetches: Sequence[Place]) -> list[Place]:
    """Returns where fetched places are found after fusion."""
    fused = {draft.originals[-1]: draft.name for draft in drafts.values() if draft.members and draft.originals}
    return [(fused.get(name, name), slot) for name, slot in fetches]


def _with_output(drafts: dict[str, Draft], fetches: Sequence[Place]) -> dict[str, Draft]:
    name = "Node_Output"
    while name in drafts:
        name = f"_{name}"
    ports = [drafts[source].output_ports[slot] for source, slot in fetches]
    output = Draft(name, "NetOutput", inputs=list(fetches), input_ports=ports, has_task=False, originals=())
    return {**drafts, name: output}


def _device_op(number: int, draft: Draft, drafts: dict[str, Draft]) -> DeviceOp:
    return DeviceOp(
        name=draft.name,
        type=draft.type,
        inputs=tuple(draft.inputs),
        control_inputs=tuple(dict.fromkeys(name for name in draft.controls if name in drafts and name != draft.name)),
        input_ports=tuple(draft.input_ports),
        output_ports=tuple(draft.output_ports),
        attrs=draft.attrs,
        originals=draft.originals,
        original_types=draft.original_types,
        pass_name=draft.pass_name,
        id=number,
        has_task=draft.has_task,
    )


def _program(graph: DeviceGraph, drafts: dict[str, Draft], *, training: bool) -> Program:
    tasks = []
    for op, draft in zip(graph.ops, drafts.values(), strict=True):
        tasks.append(
            Task(
                op=op,
                source=draft.source,
                kernel=draft.kernel,
                host=draft.host,
                host_inputs=tuple(draft.host_inputs),
                constant=draft.constant,
                feed=draft.feed,
                optional=draft.optional,
                writes=draft.writes,
                asks_initialized=draft.asks_initialized,
                members=draft.members,
            )
        )
    fetches = tasks[-1].op.inputs
    return Program(
        graph=graph,
        tasks=tuple(tasks),
        fetches=fetches,
        variables={draft.name: draft.variable for draft in drafts.values() if draft.variable},
        last_use=_last_uses(tasks),
        training=training,
    )


def _last_uses(tasks: Sequence[Task]) -> dict[int, tuple[Place, ...]]:
    last: dict[Place, int] = {}
    for number, task in enumerate(tasks):
        for slot in range(len(task.op.output_ports)):
            last[(task.op.name, slot)] = number
        for place in (*task.op.inputs, *task.host_inputs):
            last[place] = number
    kept = set(tasks[-1].op.inputs)
    result: dict[int, list[Place]] = {}
    for place, number in last.items():
        if place not in kept:
            result.setdefault(number, []).append(place)
    return {number: tuple(places) for number, places in result.items()}

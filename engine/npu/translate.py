"""From TensorFlow ops to device operators, one by one, before anything is fused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import tensor_util

from engine.npu import optypes
from engine.npu.attributes import device_attrs, dtype_name
from engine.npu.eager import EagerOp, EagerVariableOp
from engine.npu.host import HostGraph, is_handle
from engine.npu.kernels import FLOATS, ON_VARIABLES, OWN, Kernel, gather, identity
from engine.npu.state import takes_reference, variable_key, variable_op, variable_type
from engine.npu.tasks import Draft, Place
from engine.observe import DevicePort

if TYPE_CHECKING:
    import tensorflow as tf

Array = NDArray[np.generic]


class Translator:
    """Makes the drafts of one graph, in order.

    Args:
        host: Runs what does not run on the device.
        feeds: The fed tensors.
        own_kernels: False computes everything as TensorFlow does (initial values must be equal on all devices).
    """

    def __init__(self, host: HostGraph, feeds: Sequence[Any], *, own_kernels: bool) -> None:
        self.drafts: dict[str, Draft] = {}
        self._host = host
        self._own_kernels = own_kernels
        self._feeds = {tensor.name: tensor for tensor in feeds}
        self._fed_places: dict[str, Place] = {}

    def add_all(self, ops: Iterable[Any]) -> None:
        """Translates ops that are in order of execution."""
        ops = list(ops)
        running = {op.name for op in ops}
        for tensor in self._feeds.values():
            self._add_feed(tensor, running)
        for op in ops:
            draft = self._translate(op)
            draft.controls += [before.name for before in op.control_inputs]
            self.drafts[draft.name] = draft

    def place(self, tensor: tf.Tensor) -> Place:
        """Returns where the value of a tensor is found on the device."""
        if tensor.name in self._fed_places:
            return self._fed_places[tensor.name]
        if tensor.dtype._is_ref_dtype and not is_handle(tensor):
            variable = variable_op(tensor)
            if variable is not None:
                return variable.name, 0
        return tensor.op.name, tensor.value_index

    def _add_feed(self, tensor: tf.Tensor, running: set[str]) -> None:
        name = tensor.op.name
        if name in running or name in self.drafts:
            name = f"_arg_{tensor.op.name}_{tensor.value_index}"
        port = _port(tensor)
        data = Draft(name, "Data", output_ports=[port], has_task=False, feed=tensor.name, source=tensor.op)
        data.originals, data.original_types = (tensor.op.name,), (tensor.op.type,)
        self.drafts[name] = data
        self._fed_places[tensor.name] = (name, 0)

    def _translate(self, op: tf.Operation) -> Draft:
        if op.type in optypes.VARIABLES:
            return _variable(op)
        draft = self._with_inputs(op)
        variables = self._variable_inputs(op)
        if op.type == "Const":
            return _constant(draft, op)
        if op.type == "NoOp" or (op.outputs and all(is_handle(tensor) for tensor in op.outputs)):
            return _without_task(draft, op)
        if op.type == "Placeholder":
            draft.type, draft.has_task = "Data", False
            return draft
        if variables:
            return self._on_variables(draft, op, variables)
        if _on_host(op):
            return self._on_host(draft, op)
        draft.type = optypes.device_type(op.type)
        if op.type == "Gather":
            self._add_axis(draft)
        draft.kernel = self._kernel(draft, op)
        return _renamed(draft, op)

    def _with_inputs(self, op: tf.Operation) -> Draft:
        attrs = device_attrs(op)
        for tf_name, device_name in optypes.EXTRA_ATTRS.get(op.type, {}).items():
            attrs[device_name] = attrs[tf_name]
        draft = Draft(op.name, op.type, attrs=attrs, source=op)
        draft.inputs = [self.place(tensor) for tensor in op.inputs]
        draft.input_ports = [_port(tensor, origin=False) for tensor in op.inputs]
        draft.output_ports = [_port(tensor) for tensor in op.outputs]
        # A reference that an update hands on stands for the variable; the reader still comes after the update.
        draft.controls = [
            tensor.op.name
            for tensor, place in zip(op.inputs, draft.inputs, strict=True)
            if place != (tensor.op.name, tensor.value_index) and place not in self._fed_places.values()
        ]
        return draft

    def _variable_inputs(self, op: tf.Operation) -> dict[int, Any]:
        """Returns the ops of the variables that an op has by handle or reference, by input index."""
        wanted = takes_reference(op)
        found = {}
        for index, tensor in enumerate(op.inputs):
            if tensor.name not in self._feeds and (is_handle(tensor) or wanted[index]):
                variable = variable_op(tensor)
                if variable is not None:
                    found[index] = variable
        return found

    def _on_variables(self, draft: Draft, op: tf.Operation, variables: dict[int, Any]) -> Draft:
        for index, variable in variables.items():
            dtype, shape = variable_type(variable)
            draft.inputs[index] = (variable.name, 0)
            draft.input_ports[index] = DevicePort(dtype, shape)
        draft.type = optypes.variable_device_type(op.type)
        if op.type in optypes.ASK_INITIALIZED:
            draft.asks_initialized = draft.optional = True
            return _renamed(draft, op)
        is_written = op.type not in optypes.ONLY_READ
        draft.optional = op.type in optypes.OVERWRITING
        if is_written:
            self._add_written(draft, op, variables)
        plain_gather = draft.type != "GatherV2" or not draft.attrs.get("batch_dims")
        if draft.type in ON_VARIABLES and plain_gather:
            draft.kernel = ON_VARIABLES[draft.type]
        else:
            draft.kernel = EagerVariableOp(op, tuple(variables), writes=is_written)
        if draft.type == "GatherV2":
            self._add_axis(draft)
        return _renamed(draft, op)

    def _add_written(self, draft: Draft, op: tf.Operation, variables: dict[int, Any]) -> None:
        """Makes the written variables outputs; a reference that the op returns is the first of them."""
        reference = bool(op.outputs) and op.outputs[0].dtype._is_ref_dtype
        first = 0 if reference else len(op.outputs)
        written = list(variables.items())[:1] if draft.type in _FIRST_IS_WRITTEN else list(variables.items())
        ports = []
        for slot, (_, variable) in enumerate(written, start=first):
            dtype, shape = variable_type(variable)
            ports.append(DevicePort(dtype, shape, origin=(op.name, 0) if reference and slot == 0 else None))
            draft.writes[slot] = variable_key(variable)
        draft.output_ports[first:] = ports

    def _on_host(self, draft: Draft, op: tf.Operation) -> Draft:
        draft.type = optypes.FRAMEWORK_OP
        draft.attrs["original_type"] = op.type
        draft.host, read = self._host.prepare(op)
        draft.host_inputs = [self.place(tensor) for tensor in read]
        return _renamed(draft, op)

    def _kernel(self, draft: Draft, op: tf.Operation) -> Kernel:
        if op.type in optypes.PASS_THROUGH:
            return identity
        if draft.type == "GatherV2" and not draft.attrs.get("batch_dims"):
            return gather
        if self._own_kernels and draft.type in OWN and draft.attrs.get("T") in FLOATS:
            return OWN[draft.type]
        return EagerOp(op)

    def _add_axis(self, draft: Draft) -> None:
        """Gives a gather that has none its axis input, as the device's operator wants it."""
        name = "dynamic_const_axis_0"
        if name not in self.drafts:
            port = DevicePort("int32", ())
            axis = Draft(name, "Const", output_ports=[port], has_task=False, originals=())
            axis.constant = np.zeros((), np.int32)
            self.drafts[name] = axis
        draft.inputs.append((name, 0))
        draft.input_ports.append(DevicePort("int32", ()))


_FIRST_IS_WRITTEN = frozenset({"Assign", "AssignAdd", "AssignSub", "ScatterUpdate", "ScatterAdd", "ScatterSub"})


def _variable(op: tf.Operation) -> Draft:
    dtype, shape = variable_type(op)
    draft = Draft(op.name, "Variable", attrs=device_attrs(op), has_task=False, source=op, variable=variable_key(op))
    draft.output_ports = [DevicePort(dtype, shape, origin=(op.name, 0))]
    return _renamed(draft, op)


def _constant(draft: Draft, op: tf.Operation) -> Draft:
    draft.has_task = False
    draft.constant = np.asarray(tensor_util.MakeNdarray(op.node_def.attr["value"].tensor))
    if draft.constant.ndim == 0 and draft.output_ports[0].dtype in FLOATS:
        draft.attrs["value"] = float(draft.constant.item())
    return draft


def _without_task(draft: Draft, op: tf.Operation) -> Draft:
    draft.has_task = False
    if op.type != "NoOp":
        draft.type = optypes.FRAMEWORK_OP
        draft.attrs["original_type"] = op.type
        return _renamed(draft, op)
    return draft


def _on_host(op: tf.Operation) -> bool:
    handles = any(is_handle(tensor) for tensor in (*op.inputs, *op.outputs))
    return op.type in optypes.HOST or op.op_def.is_stateful or handles


def _renamed(draft: Draft, op: tf.Operation) -> Draft:
    """Notes the original where the device has another type than TensorFlow."""
    if draft.type != op.type:
        draft.originals, draft.original_types = (op.name,), (op.type,)
    return draft


def _port(tensor: tf.Tensor, *, origin: bool = True) -> DevicePort:
    shape = None
    if tensor.shape.rank is not None:
        shape = tuple(-1 if dim is None else int(dim) for dim in tensor.shape.as_list())
    return DevicePort(dtype_name(tensor.dtype), shape, origin=(tensor.op.name, tensor.value_index) if origin else None)

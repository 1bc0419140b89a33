"""Writes what an emulated device does as an NPU would: dump files and the compiled graph.

Layout: ``<dump>/<YYYYmmddHHMMSS>/<device>/<graph name>/<model id>/<step>/<type>.<name>.<task>.<stream>.<us>`` and
``<graph>/ge_proto_<number>_graph_<id>_Build.txt`` with its ``.json`` beside it.

A step's folder holds ``dump_incomplete.txt`` from the first file to the last one: where it stayed, something is missing
(a full disk, an error of the step, a killed process).
"""

from __future__ import annotations

import logging
import re
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from ..formats.dump_names import INCOMPLETE_FILE
from ..formats.ge_graph import write_ge_json, write_ge_text
from ..formats.npu_dump import short_file_name, write_npu_dump
from ..graph import AttrValue, Graph, Op, Port, Source
from ..names import flatten
from .record import make_private
from .steps import Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.observe import DeviceGraph, DeviceOp, DevicePort, OpRun

DEVICE_ID = 0

_LOG = logging.getLogger(__name__)
_GRAPH_FILE = re.compile(r"ge_proto_(\d+)_")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_\-]")


class NpuDumpWriter:
    """A DeviceObserver that writes genuine device files.

    A file that cannot be written never stops the training: there is one warning, the step is marked incomplete, and
    nothing half written is left.

    Args:
        dump_root: Parent of the ``<time>`` folder.
        graph_root: Folder of the graphs.
        steps: Which steps to dump.
        mode: ``all``, ``input`` or ``output``.
        layers: Names of the ops to dump (device or original names); empty means all.
    """

    def __init__(
        self,
        dump_root: Path,
        graph_root: Path,
        *,
        steps: Optional[Steps] = None,
        mode: str = "all",
        layers: Collection[str] = (),
    ) -> None:
        self._dump_root = Path(dump_root)
        self._graph_root = Path(graph_root)
        self._steps = Steps() if steps is None else steps
        self._mode = mode
        self._layers = frozenset(layers)
        self._time_folder: Optional[Path] = None
        self._step: Optional[_StepFolder] = None
        self._warned = False

    def graph_compiled(self, graph: "DeviceGraph") -> None:
        """Writes the graph as text and as JSON."""
        try:
            make_private(self._graph_root)
            number = 1 + max([-1] + [int(m.group(1)) for m in map(_GRAPH_FILE.match, _names(self._graph_root)) if m])
            path = self._graph_root / "ge_proto_{:08d}_graph_{}_Build.txt".format(number, graph.graph_id)
            converted = ge_graph(graph)
            write_ge_text(converted, path)
            write_ge_json(converted, path.with_name(path.name + ".json"))
        except OSError as error:
            self._warn(self._graph_root, error)

    def step_begin(self, graph: "DeviceGraph", step: int) -> bool:
        """Prepares the step's folder; False for a step that is not wanted."""
        self._step = None
        if step not in self._steps:
            return False
        try:
            if self._time_folder is None:
                self._time_folder = new_time_folder(self._dump_root)
            name = flatten(graph.name)
            folder = self._time_folder / str(DEVICE_ID) / name / str(graph.graph_id) / str(step)
            self._step = _StepFolder(folder, sum(op.has_task and self._wants(op) for op in graph.ops))
        except OSError as error:
            self._warn(self._dump_root, error)
            return False
        return True

    def op_executed(self, run: "OpRun") -> None:
        """Writes one operator's file."""
        if self._step is None or not self._wants(run.op):
            return
        try:
            self._step.write(
                run,
                run.inputs if self._mode in ("all", "input") else (),
                run.outputs if self._mode in ("all", "output") else (),
            )
        except OSError as error:
            self._warn(self._step.folder, error)

    def step_end(self, graph: "DeviceGraph", step: int) -> None:
        """Marks the step complete if all of it was written."""
        if self._step is not None:
            try:
                self._step.finish()
            except OSError as error:
                self._warn(self._step.folder, error)
            self._step = None

    def _wants(self, op: "DeviceOp") -> bool:
        return not self._layers or bool(self._layers.intersection([op.name, *(op.originals or ())]))

    def _warn(self, folder: Path, error: OSError) -> None:
        """Warns once in a session."""
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "%s: the dump cannot be written (%s); training goes on, the dump is incomplete. Free some space or dump"
                " fewer steps",
                folder,
                error.strerror or error,
            )


class _StepFolder:
    """The files of one step.

    Args:
        folder: Where they go; created here, and marked incomplete.
        expected: Number of files of a complete step.
    """

    def __init__(self, folder: Path, expected: int) -> None:
        self.folder = folder
        self._expected = expected
        self._written = 0
        make_private(folder)
        self._mark = folder / INCOMPLETE_FILE
        self._mark.write_text("This step was not written to its end; do not compare it as a whole.\n", encoding="utf-8")

    def write(
        self, run: "OpRun", inputs: "Sequence[NDArray[np.generic]]", outputs: "Sequence[NDArray[np.generic]]"
    ) -> None:
        """Writes one operator's file; text and handles have no bytes on the device."""
        write_task(self.folder, run, inputs, outputs)
        self._written += 1

    def finish(self) -> None:
        """Takes the mark away if every file was written."""
        if self._written == self._expected:
            self._mark.unlink()


def write_task(
    folder: Path, run: "OpRun", inputs: "Sequence[NDArray[np.generic]]", outputs: "Sequence[NDArray[np.generic]]"
) -> None:
    """Writes one operator's dump file.

    Raises:
        OSError: the file system does not take it.
    """
    name = ".".join([_field(run.type), _field(run.name), str(run.task_id), str(run.stream_id), str(run.timestamp_us)])
    write_npu_dump(
        folder / short_file_name(folder, name),
        op_name=run.name,
        inputs=[_storable(value) for value in inputs],
        outputs=[_storable(value) for value in outputs],
        dump_time_us=run.timestamp_us,
    )


def ge_graph(graph: "DeviceGraph") -> Graph:
    """Returns a device graph as its compiler writes it."""
    ops = {op.name: _ge_op(op) for op in graph.ops}
    return Graph(name=graph.name, ops=ops, kind="ge", attrs=_plain_attrs(graph.attrs))


def _ge_op(op: "DeviceOp") -> Op:
    attrs = _plain_attrs(op.attrs)
    if op.originals is not None:
        attrs["_datadump_original_op_names"] = tuple(op.originals)
        attrs["_datadump_original_op_types"] = tuple(op.original_types)
    if op.pass_name:
        attrs["pass_name"] = op.pass_name
    attrs.update(_kernel_attrs(op))
    return Op(
        name=op.name,
        type=op.type,
        inputs=tuple(Source(name, slot) for name, slot in op.inputs),
        control_inputs=tuple(op.control_inputs),
        input_ports=tuple(_ge_port(port) for port in op.input_ports),
        output_ports=tuple(_ge_port(port) for port in op.output_ports),
        attrs=attrs,
        id=op.id,
        stream_id=op.stream_id,
    )


def _kernel_attrs(op: "DeviceOp") -> Dict[str, AttrValue]:
    """Says which kernel runs an op, and whether there is a task at all."""
    if not op.has_task:
        return {"_no_task": True, "_ge_attr_op_kernel_lib_name": "DNN_VM_GE_LOCAL_OP_STORE"}
    if op.type == "FrameworkOp":
        return {"_ge_attr_op_kernel_lib_name": "aicpu_tf_kernel"}
    fused = len(op.originals or ()) > 1
    kernel = "te_fused_op_{}".format(op.type.lower()) if fused else "te_{}".format(op.type.lower())
    name = "{}_{:08x}__kernel0".format(kernel, zlib.crc32(op.name.encode("utf-8")))
    return {"_kernelname": name, "_ge_attr_op_kernel_lib_name": "AIcoreEngine"}


def _ge_port(port: "DevicePort") -> Port:
    attrs: Dict[str, AttrValue] = {"origin_format": port.format}
    if port.shape is not None:
        attrs["origin_shape"] = tuple(port.shape)
    if port.origin is not None:
        attrs["_datadump_origin_name"] = port.origin[0]
        attrs["_datadump_origin_output_index"] = port.origin[1]
        attrs["_datadump_origin_format"] = port.format
    return Port(dtype=port.dtype, shape=port.shape, format=port.format, attrs=attrs)


def _plain_attrs(attrs: Mapping[str, Any]) -> Dict[str, AttrValue]:
    """Returns attributes with lists as tuples, names in order."""
    return {name: tuple(attrs[name]) if isinstance(attrs[name], list) else attrs[name] for name in sorted(attrs)}


def _storable(value: "NDArray[np.generic]") -> "NDArray[np.generic]":
    """Returns an array as a device can hold it: text stays with the host."""
    return np.empty(0, np.uint8) if value.dtype.kind in "OSU" else value


def _field(text: str) -> str:
    """Returns a name as a field of a dump file's name: letters, digits, ``_`` and ``-``."""
    return _NOT_IN_NAMES.sub("_", flatten(text))


def new_time_folder(root: Path) -> Path:
    """Creates ``<YYYYmmddHHMMSS>``; the next free second if another session has that one."""
    make_private(root)
    moment = time.time()
    while True:
        folder = root / time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
        try:
            folder.mkdir(mode=0o700)
            return folder
        except FileExistsError:
            moment += 1


def _names(folder: Path) -> Tuple[str, ...]:
    return tuple(entry.name for entry in folder.iterdir())

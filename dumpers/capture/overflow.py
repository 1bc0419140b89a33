"""Writes what an emulated device does as an NPU with overflow detection: a record and the data of each op it hits.

Layout: ``<root>/<YYYYmmddHHMMSS>/<device>/<graph name>/<model id>/<step>/``; in it ``Opdebug.Node_OpDebug.*`` (the
record) and the op's own dump file. Nothing is written for a step without an overflow.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

import numpy as np

from ..formats.npu_dump import write_npu_dump
from ..names import flatten
from .npu import DEVICE_ID, new_time_folder, write_task
from .record import make_private

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.observe import DeviceGraph, OpRun

ADD_OVERFLOW = 0x10
FLOAT_OVERFLOW = 0x20
NEGATIVE_TO_UNSIGNED = 0x80
HALF_OVERFLOW = 0x100

_LOG = logging.getLogger(__name__)
_MAGIC = 0x5A5A5A5A
_AIC, _AICPU = 0, 2
_NO_ID = 65535
_DEBUG_TASK = 65535
"""Task of the record itself; its file name carries it, not the op's."""

_INTEGER_OPS: Dict[str, Callable[..., Any]] = {"Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply}


class OverflowWriter:
    """A DeviceObserver that writes a record for each op that makes an overflow out of sound inputs.

    A file that cannot be written never stops the training: there is one warning.

    Args:
        root: Parent of the ``<time>`` folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = Path(root)
        self._time_folder: Optional[Path] = None
        self._folder: Optional[Path] = None
        self._model_id = 0
        self._warned = False

    def graph_compiled(self, graph: DeviceGraph) -> None:
        """Takes no notice."""

    def step_begin(self, graph: DeviceGraph, step: int) -> bool:
        """Prepares; every step is wanted."""
        try:
            # Also without an overflow: the newest folder then says that there was none, and not what an older run met.
            self._time_folder = self._time_folder or new_time_folder(self._root)
        except OSError as error:
            self._warn(error)
            return False
        self._model_id = graph.graph_id
        self._folder = self._time_folder / str(DEVICE_ID) / flatten(graph.name) / str(graph.graph_id) / str(step)
        return True

    def op_executed(self, run: OpRun) -> None:
        """Looks at one operator."""
        status = overflow_status(run)
        if not status or self._folder is None:
            return
        try:
            make_private(self._folder)
            write_task(self._folder, run, run.inputs, run.outputs)
            write_npu_dump(
                self._folder / "Opdebug.Node_OpDebug.{}.{}.{}".format(_DEBUG_TASK, run.stream_id, run.timestamp_us),
                op_name="Node_OpDebug",
                inputs=[],
                outputs=[np.frombuffer(self._record(run, status), np.uint8)],
                dump_time_us=run.timestamp_us,
            )
        except OSError as error:
            self._warn(error)

    def step_end(self, graph: DeviceGraph, step: int) -> None:
        """Forgets the step's folder."""
        self._folder = None

    def _record(self, run: OpRun, status: int) -> bytes:
        """The record in the current layout, version 0 (one status word)."""
        task = [self._model_id, run.stream_id, run.task_id, 0]
        on_host = run.op.type == "FrameworkOp"
        unit, rest = (_AICPU, [_NO_ID, 0, _NO_ID]) if on_host else (_AIC, [_NO_ID, _NO_ID, 0, 0, 0, 0])
        words = [*task, *rest, status]
        return struct.pack("<6I{}Q".format(len(words)), _MAGIC, 0, 1, unit, 0, 8 * len(words), *words)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "%s: overflow records cannot be written (%s); training goes on. Free some space",
                self._root,
                error.strerror or error,
            )


def overflow_status(run: OpRun) -> int:
    """Returns the status word of an executed op, 0 if it did not overflow.

    A value that is not finite counts where it arises: an op that only hands one on, or got one, is not reported.
    """
    if _made_nonfinite(run):
        narrowed = run.op.type == "Cast" and run.outputs[0].dtype == np.float16
        return HALF_OVERFLOW if narrowed else FLOAT_OVERFLOW
    if run.op.type == "Cast" and run.inputs[0].dtype.kind == "f" and run.outputs[0].dtype.kind == "u":
        return NEGATIVE_TO_UNSIGNED if bool(np.any(run.inputs[0].astype(np.float64) <= -1)) else 0
    exact = _INTEGER_OPS.get(run.op.type)
    if exact is not None and _small_integers(run):
        wide = exact(run.inputs[0].astype(np.int64), run.inputs[1].astype(np.int64))
        return ADD_OVERFLOW if bool(np.any(wide != run.outputs[0])) else 0
    return 0


def _made_nonfinite(run: OpRun) -> bool:
    return not all(map(_finite, run.outputs)) and all(map(_finite, run.inputs))


def _finite(value: NDArray[np.generic]) -> bool:
    floating = value.dtype.kind in "fc" or value.dtype.name == "bfloat16"
    return not floating or bool(np.isfinite(value).all())


def _small_integers(run: OpRun) -> bool:
    values = [*run.inputs, *run.outputs]
    return len(values) == 3 and all(v.dtype.kind in "iu" and v.dtype.itemsize <= 4 for v in values)

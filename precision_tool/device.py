"""The emulated NPU, wired to TensorFlow sessions.

``import precision_tool.tf_config`` calls :func:`install`. From then on a ``tf.compat.v1.Session`` whose configuration
has the custom graph optimizer ``NpuOptimizer`` runs on an emulated device; any other session is left alone. Where a
real NPU plug-in is installed, that one is used and the emulation stays out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

    from dumpers.capture.npu import NpuDumpWriter
    from dumpers.capture.overflow import OverflowWriter
    from engine.npu.device import EmulatedDevice

PLUGINS = ("npu_bridge", "npu_device", "tf_adapter", "_tf_adapter")
"""Modules of the real NPU plug-ins for TensorFlow."""

GRAPH_PATH_VARIABLE = "DUMP_GRAPH_PATH"
DUMP_MODES = ("all", "input", "output")
OVERFLOW_MODES = ("all", "aicore_overflow", "atomic_overflow")


def install() -> bool:
    """Prepares TensorFlow sessions for the emulated device, once per process.

    Returns:
        Whether sessions can reach it: False where a real NPU plug-in is installed or the engine is not there.
    """
    if real_plugin() is not None or importlib.util.find_spec("engine") is None:
        return False
    from engine.npu.session import install as install_hooks

    install_hooks(_make_device)
    return True


def real_plugin() -> str | None:
    """Returns the name of an installed NPU plug-in, None if there is none. Our own stand-ins do not count."""
    return next((name for name in PLUGINS if _is_foreign(name)), None)


def device_of(session: tf.compat.v1.Session) -> EmulatedDevice | None:
    """Returns the emulated device of a session, None for a plain one.

    Args:
        session: A session, or one of TensorFlow's wrappers around one.
    """
    from engine.npu.session import session_device

    inner: Callable[[], Any] | None = getattr(session, "_tf_sess", None)
    return session_device(session if inner is None else inner())


def _is_foreign(name: str) -> bool:
    if name in sys.modules:
        place = getattr(sys.modules[name], "__file__", None)
    else:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return False
        place = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    tree = Path(__file__).resolve().parent.parent
    return place is None or tree not in Path(place).resolve().parents


def _make_device(config: tf.compat.v1.ConfigProto | None, graph: tf.Graph) -> EmulatedDevice | None:
    """Makes the device that a session's configuration asks for."""
    from dumpers.capture.steps import is_training_run
    from engine.npu.device import EmulatedDevice
    from engine.npu.options import optimizer_parameters, read_options, runs_on_device

    parameters = optimizer_parameters(config)
    if parameters is None or not runs_on_device(parameters):
        return None
    writers = (_dump_writer(parameters), _overflow_writer(parameters))
    observers = tuple(writer for writer in writers if writer is not None)
    return EmulatedDevice(graph, read_options(parameters), is_training=is_training_run, observers=observers)


def _overflow_writer(parameters: Mapping[str, Any]) -> OverflowWriter | None:
    """Makes what detects overflows, None if none is wanted."""
    if not parameters.get("enable_dump_debug"):
        return None
    from dumpers.capture.overflow import OverflowWriter
    from engine.npu.options import text_option

    if parameters.get("enable_dump"):
        raise UsageError("NpuOptimizer options enable_dump and enable_dump_debug exclude each other; set one of them")
    mode = text_option(parameters, "dump_debug_mode") or "all"
    if mode not in OVERFLOW_MODES:
        raise UsageError(f"NpuOptimizer option dump_debug_mode={mode!r}: there are {', '.join(OVERFLOW_MODES)}")
    dump_path = text_option(parameters, "dump_path")
    if not dump_path:
        raise UsageError("NpuOptimizer option dump_path: enable_dump_debug needs a folder for its overflow records")
    return OverflowWriter(Path(dump_path))


def _dump_writer(parameters: Mapping[str, Any]) -> NpuDumpWriter | None:
    """Makes what writes a session's dump, None if it wants none."""
    if not parameters.get("enable_dump"):
        return None
    from dumpers.capture.npu import NpuDumpWriter
    from dumpers.capture.steps import parse_steps
    from engine.npu.options import text_option

    dump_path = text_option(parameters, "dump_path")
    if not dump_path:
        raise UsageError("NpuOptimizer option dump_path: enable_dump needs a folder to dump to")
    mode = text_option(parameters, "dump_mode") or "output"
    if mode not in DUMP_MODES:
        raise UsageError(f"NpuOptimizer option dump_mode={mode!r}: there are {', '.join(DUMP_MODES)}")
    data = text_option(parameters, "dump_data") or "tensor"
    if data != "tensor":
        raise UsageError(f"NpuOptimizer option dump_data={data!r}: the emulated device dumps tensors only ('tensor')")
    graph_path = os.environ.get(GRAPH_PATH_VARIABLE)
    return NpuDumpWriter(
        Path(dump_path),
        Path(graph_path) if graph_path else Path(dump_path).parent / "graph",
        steps=parse_steps(text_option(parameters, "dump_step")),
        mode=mode,
        layers=frozenset(text_option(parameters, "dump_layer").split()),
    )

"""Dump options of the device where they do not go into a session's configuration: Estimators and TensorFlow 2."""

from __future__ import annotations

import importlib
from typing import Any, Optional

from ..settings import Settings
from ..workspace import Workspace
from .options import FUSION_OFF_FILE, FUSION_SWITCH_FILE
from .talk import say

_PLUGIN = "npu_bridge.npu_init"

PluginObject = Any
"""Something of the NPU plug-in, which is not here when this is checked."""


class DumpConfig:
    """What to dump, as the plug-in's class of the same name takes it; every argument is an attribute.

    Args:
        enable_dump: Dump tensors; excludes ``enable_dump_debug``.
        dump_path: Where to.
        dump_step: Which steps, ``0|3-5|10``; every step if None.
        dump_mode: ``input``, ``output`` or ``all``.
        enable_dump_debug: Detect overflows.
        dump_debug_mode: ``aicore_overflow``, ``atomic_overflow`` or ``all``.
        dump_data: ``tensor`` or ``stats``.
        dump_layer: Names of the ops to dump, separated by blanks; all if None.
    """

    def __init__(
        self,
        enable_dump: bool = False,
        dump_path: Optional[str] = None,
        dump_step: Optional[str] = None,
        dump_mode: str = "output",
        enable_dump_debug: bool = False,
        dump_debug_mode: str = "all",
        dump_data: str = "tensor",
        dump_layer: Optional[str] = None,
    ) -> None:
        self.enable_dump = enable_dump
        self.dump_path = dump_path
        self.dump_step = dump_step
        self.dump_mode = dump_mode
        self.enable_dump_debug = enable_dump_debug
        self.dump_debug_mode = dump_debug_mode
        self.dump_data = dump_data
        self.dump_layer = dump_layer

    def __repr__(self) -> str:
        given = ", ".join("{}={!r}".format(name, value) for name, value in sorted(vars(self).items()))
        return "DumpConfig({})".format(given)


def estimator_config(action: str, workspace: Workspace, settings: Settings) -> PluginObject:
    """Returns the ``DumpConfig`` of an action, None for one without a dump; overflow detection excludes the dump."""
    if "fusion_off" in action or "fusion_switch" in action:
        say(
            "estimator_dump_config does not switch fusions: give "
            "NPURunConfig(fusion_switch_file=precision_tool.tf_config.FUSION_OFF_FILE), or FUSION_SWITCH_FILE"
        )
    kind = _dump_config_class()
    if "overflow" in action:
        return kind(enable_dump_debug=True, dump_path=str(workspace.overflow), dump_mode="all")
    if "dump" in action:
        return kind(
            enable_dump=True,
            dump_path=str(workspace.npu_dump()),
            dump_step=settings.tf_dump_step or None,
            dump_mode="all",
        )
    return None


def fill_global_options(options: PluginObject, action: str, workspace: Workspace, settings: Settings) -> None:
    """Fills the options of the plug-in for TensorFlow 2; overflow detection excludes the dump there too.

    Args:
        options: What its ``global_options()`` returns.
        action: Words as for a session.
        workspace: Where to dump.
        settings: Which steps.
    """
    if "overflow" in action:
        options.dump_config.enable_dump_debug = True
        options.dump_config.dump_path = str(workspace.overflow)
        options.dump_config.dump_debug_mode = "all"
        options.op_debug_level = settings.op_debug_level
    elif "dump" in action:
        options.dump_config.enable_dump = True
        options.dump_config.dump_path = str(workspace.npu_dump())
        options.dump_config.dump_step = settings.tf_dump_step
        options.dump_config.dump_mode = "all"
        options.op_debug_level = settings.op_debug_level
    if "fusion_off" in action:
        options.fusion_switch_file = FUSION_OFF_FILE
    elif "fusion_switch" in action:
        options.fusion_switch_file = FUSION_SWITCH_FILE
    if "prof" in action:
        say("npu_device_dump_config does not switch profiling on: set npu_device.global_options().profiling_config")


def _dump_config_class() -> PluginObject:
    try:
        return importlib.import_module(_PLUGIN).DumpConfig
    except (ImportError, AttributeError):
        return DumpConfig

"""Dump options of the device: what goes into the ``NpuOptimizer`` of a session configuration, and the environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, MutableMapping

from ..errors import DataError, UsageError
from ..settings import Settings
from ..workspace import Workspace
from .record import make_private

if TYPE_CHECKING:
    import tensorflow as tf

DUMP_FLAG = "PRECISION_TOOL_DUMP"
OVERFLOW_FLAG = "PRECISION_TOOL_OVERFLOW"
NPU_OPTIMIZER = "NpuOptimizer"
FUSION_OFF_FILE = str(Path(__file__).resolve().parent / "config" / "fusion_off.cfg")
"""Switch file that turns every graph and UB fusion off."""

FUSION_SWITCH_FILE = str(Path(__file__).resolve().parent / "config" / "fusion_switch.cfg")
"""Switch file to be edited: lists no rule, so every fusion stays on."""

_ACTIONS = ("overflow", "dump", "fusion_off", "fusion_switch", "prof")


def action_from_environment(environ: Mapping[str, str]) -> str:
    """Returns the action that the environment flags ask for: ``overflow``, ``dump`` or nothing."""
    for flag, action in ((OVERFLOW_FLAG, "overflow"), (DUMP_FLAG, "dump")):
        if environ.get(flag, "").strip().lower() == "true":
            return action
    return ""


def check_action(action: str) -> None:
    """Refuses an action that would do nothing.

    Raises:
        UsageError: none of the known words is in it.
    """
    if action and not any(word in action for word in _ACTIONS):
        raise UsageError(
            "unknown action {!r}: use one of {}, or several joined by |".format(action, ", ".join(_ACTIONS))
        )


def without_dump(action: str) -> str:
    """Returns an action without the dump, for the plain side of the guard; overflow detection and fusions stay."""
    return "|".join(word for word in action.split("|") if word.strip() != "dump")


def prepare(workspace: Workspace, settings: Settings, environ: MutableMapping[str, str]) -> None:
    """Creates the directories that the device writes to and sets the environment that makes it write its graphs.

    Raises:
        DataError: a directory cannot be created.
    """
    run = workspace.npu_run()
    for folder in (run, workspace.npu_dump(), workspace.npu_graph(), run / "prof", workspace.overflow):
        try:
            make_private(folder)
        except OSError as error:
            raise DataError(
                "{}: cannot be created: {}; set ROOT_DIR to a folder that can be written".format(
                    folder, error.strerror or error
                )
            ) from error
    environ["DUMP_GE_GRAPH"] = settings.dump_ge_graph
    environ["DUMP_GRAPH_LEVEL"] = settings.dump_graph_level
    environ["DUMP_GRAPH_PATH"] = str(workspace.npu_graph())
    environ["NPU_DUMP_GRAPH"] = "true"


def npu_optimizer(config: tf.compat.v1.ConfigProto) -> tf.compat.v1.RewriterConfig.CustomGraphOptimizer:
    """Returns the device's optimizer in a session configuration, appended if it is not there."""
    optimizers = config.graph_options.rewrite_options.custom_optimizers
    for optimizer in optimizers:
        if optimizer.name == NPU_OPTIMIZER:
            return optimizer
    added = optimizers.add()
    added.name = NPU_OPTIMIZER
    return added


def fill_parameters(
    custom_op: tf.compat.v1.RewriterConfig.CustomGraphOptimizer,
    action: str,
    workspace: Workspace,
    settings: Settings,
) -> None:
    """Writes the options of an action into an optimizer's ``parameter_map``.

    Overflow detection excludes the dump, and switching all fusions off excludes the edited switch file.
    """
    parameters = custom_op.parameter_map
    parameters["debug_dir"].s = os.fsencode(str(workspace.npu_run()))
    if "overflow" in action:
        parameters["enable_dump_debug"].b = True
        parameters["dump_debug_mode"].s = b"all"
        parameters["dump_path"].s = os.fsencode(str(workspace.overflow))
        parameters["op_debug_level"].i = settings.op_debug_level
    elif "dump" in action:
        parameters["enable_dump"].b = True
        parameters["dump_mode"].s = b"all"
        parameters["dump_path"].s = os.fsencode(str(workspace.npu_dump()))
        parameters["op_debug_level"].i = settings.op_debug_level
        parameters["dump_step"].s = settings.tf_dump_step.replace(",", "|").encode("utf-8")
    if "fusion_off" in action:
        parameters["fusion_switch_file"].s = os.fsencode(FUSION_OFF_FILE)
    elif "fusion_switch" in action:
        parameters["fusion_switch_file"].s = os.fsencode(FUSION_SWITCH_FILE)
    if "prof" in action:
        parameters["profiling_mode"].b = True
        parameters["profiling_options"].s = _profiling_options(workspace).encode("utf-8")


def _profiling_options(workspace: Workspace) -> str:
    return json.dumps(
        {
            "output": str(workspace.npu_run() / "prof"),
            "storage_limit": "1000MB",
            "training_trace": "on",
            "l2": "on",
            "hccl": "on",
            "task_trace": "on",
            "aicpu": "on",
            "fp_point": "",
            "bp_point": "",
            "aic_metrics": "PipeUtilization",
            "msproftx": "on",
        }
    )

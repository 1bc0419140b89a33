"""Runs a saved step on TensorFlow and on the device, each in a graph and a session of its own, and dumps both."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.capture import options
from dumpers.errors import DataError, UsageError
from dumpers.workspace import Workspace, newest

if TYPE_CHECKING:
    import tensorflow as tf

    from dumpers.settings import Settings
    from precision_tool.commands.base import Progress
    from precision_tool.saved_graph import SavedStep

DEVICES = ("cpu", "npu")
STEP = "0"
"""Steps of the session that replays count from 0, whichever step was saved."""


@dataclass(frozen=True)
class Replayed:
    """What a replay left.

    Attributes:
        checkpoint: What was replayed.
        made_up: Placeholders that were fed with random values.
        folders: Device -> what it dumped into; None for an action without a dump.
        files: Device -> files there.
        overflows: Overflow records; None if they were not asked for.
        notes: What the user should know.
    """

    checkpoint: Path
    made_up: tuple[str, ...]
    folders: Mapping[str, Path | None]
    files: Mapping[str, int]
    overflows: int | None
    notes: tuple[str, ...]


def replay(settings: Settings, devices: tuple[str, ...], action: str, progress: Progress) -> Replayed:
    """Replays the saved step.

    Args:
        settings: Where it is saved and where to dump; which steps are dumped otherwise does not matter.
        devices: Of :data:`DEVICES`, in their order.
        action: What the device does, words of the session options.
        progress: Told of each device.

    Raises:
        UsageError: the action is unknown, or there is no device.
        DataError: nothing usable was saved, or the step fails.
    """
    from precision_tool.experiment import interrupts_held, quiet_environment

    options.check_action(action)
    settings = replace(settings, root_dir=settings.root_dir.resolve(), tf_dump_step=STEP)
    folders: dict[str, Path | None] = {}
    notes: list[str] = []
    overflows = None
    with quiet_environment():
        with interrupts_held():
            import tensorflow as tf
        tf.get_logger().setLevel("ERROR")
        from precision_tool.saved_graph import load_step

        workspace = Workspace(settings.data_root)
        for number, device in enumerate(devices):
            progress(f"replaying the step on {device}", number, len(devices))
            step = load_step(workspace.tf_checkpoints, settings.dump_seed)
            notes += [note for note in step.notes if note not in notes]
            if device == "cpu":
                folders[device] = _on_host(step, workspace, notes)
            else:
                folders[device], overflows = _on_device(step, workspace, settings, action, notes)
        progress("replaying the step", len(devices), len(devices))
    files = {device: _count(folder) for device, folder in folders.items()}
    return Replayed(step.checkpoint, step.made_up, folders, files, overflows, tuple(notes))


def _on_host(step: SavedStep, workspace: Workspace, notes: list[str]) -> Path:
    from dumpers.capture.selection import EVERYTHING
    from dumpers.capture.session import record_session
    from dumpers.capture.steps import parse_steps
    from dumpers.tf_dump import extract
    from precision_tool.training import golden_config

    def recorded(session: tf.compat.v1.Session) -> tf.compat.v1.Session:
        return record_session(session, workspace.tf_debug, parse_steps(STEP), keep="pack", selection=EVERYTHING)

    _run(step, golden_config(), "cpu", recorded)
    done = extract(workspace)
    notes += done.notes
    return workspace.tf_dump


def _on_device(
    step: SavedStep, workspace: Workspace, settings: Settings, action: str, notes: list[str]
) -> tuple[Path | None, int | None]:
    """Returns the folder of the new dump (None without) and how many overflow records there are (None without)."""
    from precision_tool.training import golden_config

    _reach_device()
    options.prepare(workspace, settings, os.environ)
    config = golden_config()
    custom_op = options.npu_optimizer(config)
    custom_op.parameter_map["use_off_line"].b = True
    options.fill_parameters(custom_op, action, workspace, settings)
    root = workspace.overflow if "overflow" in action else workspace.npu_dump() if "dump" in action else None
    before = newest(root) if root is not None else None
    _run(step, config, "npu", lambda session: session)
    if root is None:
        notes.append(f"action {action}: nothing is dumped on the device; join dump to it, as in 'dump|{action}'")
        return None, None
    after = newest(root)
    if after is None or after == before:
        raise DataError(f"{root}: the device wrote nothing; is the training op's update a step it counts?")
    return after, _overflow_records(after) if "overflow" in action else None


def _reach_device() -> None:
    """Makes sure that a session with ``NpuOptimizer`` runs on a device.

    Raises:
        UsageError: there is neither a plug-in nor the emulation.
    """
    from precision_tool import device

    plugin = device.real_plugin()
    if plugin is not None:
        importlib.import_module("npu_bridge.npu_init" if plugin == "npu_bridge" else plugin)
        return
    device.install()
    if importlib.util.find_spec("engine") is None:
        raise UsageError("train: no NPU plug-in is installed and the emulated device is not part of this installation")


def _run(
    step: SavedStep,
    config: tf.compat.v1.ConfigProto,
    device: str,
    wrap: Callable[[tf.compat.v1.Session], tf.compat.v1.Session],
) -> None:
    """Restores and runs the step once.

    Raises:
        DataError: the step fails, or the device cannot execute its graph.
    """
    import tensorflow as tf

    from engine.errors import EngineError
    from precision_tool.saved_graph import restore

    session = tf.compat.v1.Session(graph=step.graph, config=config)
    try:
        restore(step, session)
        used = wrap(session)
        try:
            used.run(step.train_ops, step.feeds)
        finally:
            used.close()
    except tf.errors.OpError as error:
        where = f" in {error.op.name}" if error.op is not None else ""
        reason = (error.message or "").strip().splitlines()[:1]
        raise DataError(f"the saved step fails on {device}{where}: {''.join(reason)[:300]}") from error
    except EngineError as error:
        raise DataError(f"the emulated device cannot run the saved step: {error}") from error
    finally:
        session.close()


def _overflow_records(folder: Path) -> int:
    from dumpers.formats.overflow import find_overflow_files
    from precision_tool.workbench import leaf_directories

    return sum(len(find_overflow_files(leaf)) for leaf in leaf_directories(folder))


def _count(folder: Path | None) -> int:
    return 0 if folder is None else sum(1 for path in folder.rglob("*") if path.is_file())

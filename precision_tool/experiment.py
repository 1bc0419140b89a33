"""The same training twice, on the golden side and on the emulated NPU, both dumped into one workspace."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dumpers.capture import options, steps
from dumpers.errors import DataError, UsageError
from dumpers.workspace import Workspace

if TYPE_CHECKING:
    import tensorflow as tf

    from dumpers.settings import Settings
    from precision_tool.commands.base import Progress
    from precision_tool.training import TrainingPlan, TrainingReport

PRECISION_MODES = {"fp32": "must_keep_origin_dtype", "mix": "allow_mix_precision"}
"""Numerics by the names of the command line -> what a session configuration says."""


@dataclass(frozen=True)
class Experiment:
    """What to run.

    Attributes:
        plan: Model, data and steps; the same for both devices.
        numerics: One of :data:`PRECISION_MODES`.
        fault: Text of the fault to inject, empty for none.
        settings: Where to dump, and which steps.
    """

    plan: TrainingPlan
    numerics: str
    fault: str
    settings: Settings


@dataclass(frozen=True)
class Outcome:
    """What the two devices reported.

    Attributes:
        fault_changed: Whether the fault changed a bit in a step that was dumped; None without a fault.
    """

    golden: TrainingReport
    npu: TrainingReport
    fault_changed: bool | None = None


def run_both(experiment: Experiment, progress: Progress) -> Outcome:
    """Trains on both devices; the dumps lie in the workspace of the settings.

    Raises:
        UsageError: the fault is misspelt, does not apply, or misbehaves; a real NPU plug-in is installed.
        DataError: a data file is wrong, or the device cannot run the model.
    """
    with quiet_environment():
        from engine.errors import EngineError, FaultError

        _prepare_sessions()
        try:
            _check_fault(experiment)
            golden = _golden(experiment, progress)
            npu, changed = _device(experiment, progress)
        except FaultError as error:
            raise UsageError(str(error)) from error
        except EngineError as error:
            raise DataError(str(error)) from error
    return Outcome(golden, npu, changed if experiment.fault else None)


def _check_fault(experiment: Experiment) -> None:
    """Finds a misspelt fault before anything is trained; whether it fits the graph shows when the device has one."""
    from engine.npu.device import make_fault

    make_fault(experiment.fault, experiment.plan.seed)


def _golden(experiment: Experiment, progress: Progress) -> TrainingReport:
    from dumpers.capture.selection import EVERYTHING
    from dumpers.capture.session import record_session
    from precision_tool.training import golden_config, train

    settings = experiment.settings
    wanted = steps.parse_steps(settings.tf_dump_step)
    folder = Workspace(settings.data_root).tf_debug

    def recorded(session: tf.compat.v1.Session) -> tf.compat.v1.Session:
        return record_session(session, folder, wanted, keep="pack", selection=EVERYTHING)

    return train(experiment.plan, session_config=golden_config(), wrap_session=recorded, progress=progress)


def _device(experiment: Experiment, progress: Progress) -> tuple[TrainingReport, bool]:
    """Trains on the device; also tells whether its fault changed anything in the dumped steps."""
    from precision_tool.device import device_of
    from precision_tool.training import train

    config = device_config(
        experiment.settings, numerics=experiment.numerics, fault=experiment.fault, seed=experiment.plan.seed
    )
    devices = []

    def remembered(session: tf.compat.v1.Session) -> tf.compat.v1.Session:
        devices.append(device_of(session))
        return session

    report = train(replace(experiment.plan), session_config=config, wrap_session=remembered, progress=progress)
    wanted = steps.parse_steps(experiment.settings.tf_dump_step)
    spoilt = [step for device in devices if device is not None for step in device.fault_steps]
    return report, any(step in wanted for step in spoilt)


def device_config(settings: Settings, *, numerics: str, fault: str = "", seed: int = 0) -> tf.compat.v1.ConfigProto:
    """Returns the session configuration of the emulated device that dumps into the workspace of the settings.

    Args:
        settings: Where to dump, and which steps.
        numerics: One of :data:`PRECISION_MODES`.
        fault: Text of the fault to inject, empty for none.
        seed: Of what the fault draws.
    """
    from precision_tool.training import golden_config

    config = golden_config()
    custom_op = options.npu_optimizer(config)
    workspace = Workspace(settings.data_root)
    options.prepare(workspace, settings, os.environ)
    options.fill_parameters(custom_op, "dump", workspace, settings)
    parameters = custom_op.parameter_map
    parameters["use_off_line"].b = True
    parameters["precision_mode"].s = PRECISION_MODES[numerics].encode()
    parameters["emulated_fault"].s = fault.encode("utf-8", "surrogateescape")
    parameters["emulated_seed"].i = seed
    return config


def _prepare_sessions() -> None:
    with interrupts_held():
        import tensorflow as tf

        from precision_tool import device

    tf.get_logger().setLevel("ERROR")
    plugin = device.real_plugin()
    if plugin is not None or not device.install():
        reason = f"the NPU plug-in {plugin} is installed" if plugin else "the engine is not part of this installation"
        raise UsageError(f"demo: {reason}; it runs on the emulated device only")


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Lets Ctrl-C wait until the block ends: TensorFlow's import swallows it in places, and the run would go on."""
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals, and may set handlers
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


@contextlib.contextmanager
def quiet_environment() -> Iterator[None]:
    """Keeps TensorFlow's own log off the screen, and takes back what the device options set."""
    before = dict(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

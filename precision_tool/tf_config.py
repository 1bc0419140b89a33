"""What a training script imports to be dumped: ``import precision_tool.tf_config as npu_tf_config``.

Importing the module seeds everything random and, on a machine without an NPU plug-in where the emulated device is
installed, lets sessions reach it through ``NpuOptimizer`` in their configuration. Runs on training hosts: Python 3.7,
TensorFlow 1.15 and up.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Tuple, TypeVar

from dumpers.capture import device_config as _device_config
from dumpers.capture import functions as _functions
from dumpers.capture import options as _options
from dumpers.capture import session as _session
from dumpers.capture.function_steps import StepLog, need_tensorflow_2
from dumpers.capture.options import FUSION_OFF_FILE, FUSION_SWITCH_FILE
from dumpers.capture.ranks import at_rank
from dumpers.capture.seeds import seed_everything
from dumpers.capture.selection import read_selection
from dumpers.capture.steps import Steps, parse_steps
from dumpers.settings import Settings, read_settings
from dumpers.workspace import Workspace

if TYPE_CHECKING:
    import tensorflow as tf

PluginObject = Any
"""Something of the NPU plug-in, which is not here when this is checked."""

_Fn = TypeVar("_Fn", bound=Callable[..., Any])

__all__ = [
    "FUSION_OFF_FILE",
    "FUSION_SWITCH_FILE",
    "NpuPrintLossScaleCallBack",  # noqa: F822 - made on demand, see __getattr__
    "eager_dump",
    "estimator_dump",
    "estimator_dump_config",
    "function_dump",
    "keras_dump",
    "npu_device_dump_config",
    "seed_everything",
    "sess_dump",
    "session_dump_config",
    "update_custom_op",
]


def sess_dump(sess: tf.compat.v1.Session) -> tf.compat.v1.Session:
    """Returns a session that behaves as ``sess`` and records the training steps that ``TF_DUMP_STEP`` chooses.

    The records go to ``tf/tf_debug`` below ``precision_data``; ``tf_dump`` extracts them. Steps count the runs that
    update trainable variables, from 0; the initializer does not count. ``TF_DUMP_MODE`` and the other settings say what
    of a step is recorded. Each rank of a job has a folder of its own, ``rank_<n>``.

    Args:
        sess: A ``tf.compat.v1.Session``, or one that has such a session inside.

    Raises:
        UsageError: it is no session, or ``TF_DUMP_STEP`` or another setting cannot be read.
        DataError: the data directories cannot be created.
    """
    return _session.record_session(sess, *_records())


def estimator_dump() -> tf.compat.v1.train.SessionRunHook:
    """Returns a hook that records the steps that ``TF_DUMP_STEP`` chooses, to the place of :func:`sess_dump`.

    For ``EstimatorSpec(training_hooks=[...])``, ``evaluation_hooks``, ``prediction_hooks``, the ``hooks`` of an
    Estimator's ``train``, ``evaluate`` and ``predict``, and those of ``MonitoredTrainingSession``. In a graph that
    trains the training runs are counted, else the runs over a batch; each session counts from 0.

    Raises:
        UsageError: ``TF_DUMP_STEP`` or another setting cannot be read.
        DataError: the data directories cannot be created.
    """
    from dumpers.capture.estimator import DumpHook

    return DumpHook(*_records())


def function_dump(function: _Fn) -> _Fn:
    """Returns a step function that behaves as ``function`` and records the steps that ``TF_DUMP_STEP`` chooses.

    TensorFlow 2 only. Each call is a step, from 0. Recorded are all tensors inside the ``tf.function`` objects that it
    runs, gradients and updates too, and what it runs eagerly.

    Args:
        function: A ``tf.function``, or a Python function that calls some.

    Raises:
        UsageError: this is TensorFlow 1, or ``TF_DUMP_STEP`` or another setting cannot be read.
        DataError: the data directories cannot be created.
    """
    need_tensorflow_2("function_dump")
    return _functions.record_function(function, _step_log("function_dump"))


def eager_dump() -> _functions.EagerBlock:
    """Returns a context manager that records what runs in its ``with`` block; the n-th time it is entered is step n.

    Raises:
        UsageError: this is TensorFlow 1, or ``TF_DUMP_STEP`` or another setting cannot be read.
        DataError: the data directories cannot be created.
    """
    need_tensorflow_2("eager_dump")
    return _functions.EagerBlock(_step_log("eager_dump"))


def keras_dump(model: Optional[Any] = None, on: str = "train") -> Any:  # noqa: ANN401 - a Keras callback
    """Returns a callback for ``model.fit(..., callbacks=[keras_dump()])`` that records steps, TensorFlow 2 only.

    Args:
        model: Recorded from now on without the callback too: ``train_on_batch``, ``evaluate``, ``predict``.
        on: What is recorded: ``train``, ``evaluate``, ``predict``, several joined by ``|``. Each counts its own steps,
            from 0, over all calls of ``fit`` and the like.

    Raises:
        UsageError: this is TensorFlow 1, ``on`` has another word, it is no model, or a setting cannot be read.
        DataError: the data directories cannot be created.
    """
    need_tensorflow_2("keras_dump")
    kinds = _functions.check_kinds(on)
    logs = {kind: _step_log("keras_dump") for kind in sorted(kinds)}

    def install(recorded: Any) -> None:  # noqa: ANN401 - a Keras model
        _functions.record_model(recorded, kinds, logs)

    def flush() -> None:
        for log in logs.values():
            log.flush()

    if model is not None:
        install(model)
    return _functions.keras_callback(install, flush)


def session_dump_config(
    session_config: Optional[tf.compat.v1.ConfigProto] = None, action: Optional[str] = None
) -> tf.compat.v1.ConfigProto:
    """Returns a session configuration that dumps on the device.

    Args:
        session_config: Extended in place; a new one if None.
        action: ``dump``, ``overflow``, ``fusion_off``, ``fusion_switch``, ``prof``, several joined by ``|``. None asks
            the environment: ``PRECISION_TOOL_OVERFLOW=True`` or ``PRECISION_TOOL_DUMP=True``.

    Raises:
        UsageError: the action has none of these words.
        DataError: the data directories cannot be created.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto() if session_config is None else session_config
    custom_op = _options.npu_optimizer(config)
    custom_op.parameter_map["use_off_line"].b = True
    update_custom_op(custom_op, action)
    rewrite = config.graph_options.rewrite_options
    rewrite.remapping = rewrite.OFF
    return config


def update_custom_op(
    custom_op: tf.compat.v1.RewriterConfig.CustomGraphOptimizer, action: Optional[str] = None
) -> tf.compat.v1.RewriterConfig.CustomGraphOptimizer:
    """Fills the ``parameter_map`` of an ``NpuOptimizer`` that the script has made itself, and returns it.

    Args:
        custom_op: The optimizer of the session configuration.
        action: As for :func:`session_dump_config`.

    Raises:
        UsageError: the action has none of the known words.
        DataError: the data directories cannot be created.
    """
    wanted, settings, workspace = _wanted(action)
    _options.fill_parameters(custom_op, wanted, workspace, settings)
    return custom_op


def estimator_dump_config(action: Optional[str] = None) -> PluginObject:
    """Returns the ``DumpConfig`` for ``NPURunConfig(dump_config=...)``, None for an action that dumps nothing.

    It is the plug-in's own class where ``npu_bridge`` is installed, else
    :class:`dumpers.capture.device_config.DumpConfig`, a record of the same options. Fusions are switched by
    ``NPURunConfig(fusion_switch_file=FUSION_OFF_FILE)``.

    Args:
        action: As for :func:`session_dump_config`.

    Raises:
        UsageError: the action has none of the known words.
        DataError: the data directories cannot be created.
    """
    wanted, settings, workspace = _wanted(action)
    return _device_config.estimator_config(wanted, workspace, settings)


def npu_device_dump_config(npu_device: PluginObject, action: Optional[str] = None) -> PluginObject:
    """Fills ``npu_device.global_options()`` of the plug-in for TensorFlow 2, and returns ``npu_device``.

    Args:
        npu_device: The plug-in's module.
        action: As for :func:`session_dump_config`.

    Raises:
        UsageError: the action has none of the known words.
        DataError: the data directories cannot be created.
    """
    wanted, settings, workspace = _wanted(action)
    _device_config.fill_global_options(npu_device.global_options(), wanted, workspace, settings)
    return npu_device


def __getattr__(name: str) -> type:
    """Makes the Keras callback when somebody asks for it: importing Keras takes seconds."""
    if name == "NpuPrintLossScaleCallBack":
        from dumpers.capture.loss_scale import NpuPrintLossScaleCallBack

        return NpuPrintLossScaleCallBack
    raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))


def _wanted(action: Optional[str]) -> Tuple[str, Settings, Workspace]:
    """The action, given or from the environment, with the places that it writes to, which are made."""
    wanted = _options.action_from_environment(os.environ) if action is None else action
    _options.check_action(wanted)
    if read_settings().guard_plain:
        wanted = _options.without_dump(wanted)
    settings, workspace = _place()
    _options.prepare(workspace, settings, os.environ)
    return wanted, settings, workspace


def _records() -> Tuple[Path, Steps]:
    """Where this process records, in a folder that is made, and which steps."""
    settings, workspace = _place()
    steps = parse_steps(settings.tf_dump_step)
    read_selection(settings)  # what it cannot read is said before the training starts
    _options.prepare(workspace, settings, os.environ)
    return at_rank(os.environ, workspace.tf_debug, steps, settings.dump_ranks)


def _place() -> Tuple[Settings, Workspace]:
    settings = read_settings()
    return settings, Workspace(settings.data_root.resolve())


def _step_log(kind: str) -> StepLog:
    return StepLog(*_records(), kind=kind)


def _install_emulated_device() -> None:
    """Wires the emulated device to new sessions, where engine is present; it stays out if a real plug-in is found."""
    if sys.version_info < (3, 11):
        return
    if importlib.util.find_spec("engine") and importlib.util.find_spec("precision_tool.device"):
        importlib.import_module("precision_tool.device").install()


seed_everything(read_settings().dump_seed)
_install_emulated_device()

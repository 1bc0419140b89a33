"""What the emulated device takes from the ``NpuOptimizer`` of a session's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.npu.fusions import FusionSwitches, read_fusion_switches
from engine.npu.numerics import Numerics, numerics_of

if TYPE_CHECKING:
    import tensorflow as tf

OPTIMIZER = "NpuOptimizer"
"""Name of the custom graph optimizer that sends a session to an NPU."""

Option = str | int | float | bool


@dataclass(frozen=True)
class DeviceOptions:
    """How a device computes.

    Attributes:
        numerics: Precision mode.
        switches: Which fusion passes are on.
        fault: Text of the fault to inject, empty or ``none`` for none.
        seed: Picks the rows and elements that a fault hits.
    """

    numerics: Numerics = Numerics.FP32
    switches: FusionSwitches = field(default_factory=FusionSwitches)
    fault: str = ""
    seed: int = 0


def optimizer_parameters(config: tf.compat.v1.ConfigProto | None) -> dict[str, Option] | None:
    """Returns the ``parameter_map`` of a ConfigProto's ``NpuOptimizer`` in plain types, None if it has none."""
    if config is None:
        return None
    for optimizer in config.graph_options.rewrite_options.custom_optimizers:
        if optimizer.name == OPTIMIZER:
            return {name: _plain(name, value) for name, value in optimizer.parameter_map.items()}
    return None


def _plain(name: str, value: tf.compat.v1.AttrValue) -> Option:
    kind = value.WhichOneof("value")
    if kind == "s":
        text: str = value.s.decode("utf-8", "surrogateescape")
        return text
    if kind in ("i", "f", "b"):
        plain: Option = getattr(value, kind)
        return plain
    raise EngineError(
        f"{OPTIMIZER} option {name}: a text, number or truth value is expected, not a {kind or 'nothing'}"
    )


def runs_on_device(parameters: Mapping[str, Option]) -> bool:
    """Tells whether the options want the device: ``use_off_line`` is on unless set to False."""
    return bool(parameters.get("use_off_line", True))


def read_options(parameters: Mapping[str, Option]) -> DeviceOptions:
    """Returns the device options of a ``parameter_map``.

    Raises:
        EngineError: an option has a value that the emulation does not know.
    """
    switch_file = text_option(parameters, "fusion_switch_file")
    seed = parameters.get("emulated_seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise EngineError(f"{OPTIMIZER} option emulated_seed must be an integer, 0 or more, not {seed!r}")
    return DeviceOptions(
        numerics=numerics_of(text_option(parameters, "precision_mode"), text_option(parameters, "precision_mode_v2")),
        switches=read_fusion_switches(Path(switch_file)) if switch_file else FusionSwitches(),
        fault=text_option(parameters, "emulated_fault"),
        seed=seed,
    )


def text_option(parameters: Mapping[str, Option], name: str, default: str = "") -> str:
    """Returns a text option.

    Raises:
        EngineError: it is set, but not as a text.
    """
    value = parameters.get(name, default)
    if not isinstance(value, str):
        raise EngineError(f"{OPTIMIZER} option {name} must be a text (.s), not {value!r}")
    return value

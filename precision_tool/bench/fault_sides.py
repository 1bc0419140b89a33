"""The two sides of a trial of ``bench faults``: a small reference model on plain TensorFlow and on the emulated device.

Weights, batch and seeds are the same on both; a :class:`Change` is what one side, or both, are given instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dumpers.settings import Settings
from dumpers.workspace import Workspace

if TYPE_CHECKING:
    from engine.npu.device import EmulatedDevice

Feeds = dict[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model with its variables and arithmetic.

    Attributes:
        model: Name in :data:`engine.models.plain.MODELS`.
        resource: Whether variables are resources, else references.
        numerics: Of the device, a key of ``PRECISION_MODES``.
    """

    model: str
    resource: bool
    numerics: str = "fp32"

    def __str__(self) -> str:
        return f"{self.model}, {'resource' if self.resource else 'reference'} variables, {self.numerics}"


@dataclass(frozen=True)
class Change:
    """What a side is given in place of what all are given.

    Attributes:
        feeds: Changes the batch of each step in place; gets the placeholders' names -> values.
        weights: Returns the variables to set, by name, from the values that they have; gets the first batch too.
        seed: Of the random ops, None for the model's own.
    """

    feeds: Callable[[Feeds], None] | None = None
    weights: Callable[[dict[str, Any], Feeds], dict[str, Any]] | None = None
    seed: int | None = None


def record_golden(case: Case, root: Path, step: int, change: Change = Change()) -> None:
    """Trains on plain TensorFlow up to a step, which is recorded into a workspace below ``root``."""
    import tensorflow as tf

    from dumpers.capture.selection import EVERYTHING
    from dumpers.capture.session import record_session
    from dumpers.capture.steps import parse_steps
    from precision_tool.training import golden_config

    settings = replace(Settings(), root_dir=root)
    folder = Workspace(settings.data_root).tf_debug
    made, batches = _built(case, step, change)
    plain = tf.compat.v1.Session(graph=made.graph, config=golden_config())
    with record_session(plain, folder, parse_steps(str(step)), keep="pack", selection=EVERYTHING) as session:
        _train(session, made, batches, change)


def dump_device(
    case: Case, root: Path, step: int, change: Change = Change(), *, fault: str = "", seed: int = 0
) -> EmulatedDevice:
    """Trains on the emulated device up to a step, which is dumped into a workspace below ``root``.

    Raises:
        FaultError: the fault does not fit the operator.
    """
    import tensorflow as tf

    from precision_tool import device
    from precision_tool.experiment import device_config

    device.install()
    settings = replace(Settings(), root_dir=root, tf_dump_step=str(step))
    config = device_config(settings, numerics=case.numerics, fault=fault, seed=seed)
    made, batches = _built(case, step, change)
    with tf.compat.v1.Session(graph=made.graph, config=config) as session:
        _train(session, made, batches, change)
        found = device.device_of(session)
    if found is None:
        raise AssertionError("the session ran without the emulated device")
    return found


def clear(root: Path) -> None:
    """Removes what a trial wrote."""
    shutil.rmtree(root, ignore_errors=True)


def _built(case: Case, step: int, change: Change) -> tuple[Any, list[Feeds]]:
    from engine.models import plain

    made = plain.build(case.model, case.resource, *([] if change.seed is None else [change.seed]))
    batches = plain.batches(made.placeholders, step + 1, -1)
    for batch in batches:
        by_name = {tensor.op.name: value for tensor, value in batch.items()}
        if change.feeds is not None:
            change.feeds(by_name)
        for tensor in batch:
            batch[tensor] = by_name[tensor.op.name]
    return made, batches


def _train(session: Any, made: Any, batches: list[Feeds], change: Change) -> None:  # noqa: ANN401
    session.run(made.init)
    if change.weights is not None:
        names = list(made.variables)
        values = dict(zip(names, session.run(list(made.variables.values())), strict=True))
        first = {tensor.op.name: value for tensor, value in batches[0].items()}
        for name, value in change.weights(values, first).items():
            made.variables[name].load(np.asarray(value), session)
    for batch in batches:
        session.run(made.fetches, batch)

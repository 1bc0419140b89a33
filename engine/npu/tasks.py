"""What the compiler makes: device operators together with what executing them takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.npu.kernels import Kernel
from engine.observe import DeviceGraph, DeviceOp, DevicePort

Array = NDArray[np.generic]
Place = tuple[str, int]
"""Output slot of a device operator."""


Host = Callable[[Sequence[Array]], list[Array]]
"""Executes one op of the graph on the host, from the arrays that it and the host ops behind its handles read."""


@dataclass(frozen=True)
class Member:
    """One original op inside a fused operator.

    Attributes:
        name, type: Of the original op.
        inputs: Where each input comes from: an index into the fused operator's inputs, or None for what the member
            before it wrote.
    """

    name: str
    type: str
    inputs: tuple[int | None, ...]


@dataclass
class Draft:
    """An operator while the compiler still works on it; fields as in DeviceOp and Task.

    Attributes:
        variable: Key of the variable that a Variable operator stands for, empty for others.
    """

    name: str
    type: str
    inputs: list[Place] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    input_ports: list[DevicePort] = field(default_factory=list)
    output_ports: list[DevicePort] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    originals: tuple[str, ...] | None = None
    original_types: tuple[str, ...] = ()
    pass_name: str = ""
    has_task: bool = True
    source: Any = None
    kernel: Kernel | None = None
    host: Host | None = None
    host_inputs: list[Place] = field(default_factory=list)
    constant: Array | None = None
    feed: str = ""
    variable: str = ""
    optional: bool = False
    writes: dict[int, str] = field(default_factory=dict)
    asks_initialized: bool = False
    members: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Task:
    """One operator of a program.

    Attributes:
        op: What the device graph says of it.
        source: The TensorFlow op behind it, for error messages; None for what the compiler inserted.
        kernel: What computes the outputs on the device.
        host: What computes them on the host instead.
        host_inputs: What ``host`` reads.
        constant: Value of a Const.
        feed: Name of the fed tensor of a Data op.
        optional: Whether variables it reads may be without a value still (they read as empty arrays then).
        writes: Output index -> variable that takes that output.
        asks_initialized: The operator asks whether its variable has a value.
        members: Original ops of a fused operator.
    """

    op: DeviceOp
    source: Any
    kernel: Kernel | None
    host: Host | None
    host_inputs: tuple[Place, ...]
    constant: Array | None
    feed: str
    optional: bool
    writes: Mapping[int, str]
    asks_initialized: bool
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Program:
    """A compiled graph.

    Attributes:
        graph: As reported to observers.
        tasks: In order of execution.
        fetches: Place of each fetched tensor.
        variables: Name of a Variable operator -> key of the variable that it stands for. Its value is read from the
            device's state whenever another operator reads it.
        last_use: Places that nobody reads after the task of this index.
        training: Whether a run of it is a training step.
    """

    graph: DeviceGraph
    tasks: tuple[Task, ...]
    fetches: tuple[Place, ...]
    variables: Mapping[str, str]
    last_use: Mapping[int, tuple[Place, ...]]
    training: bool

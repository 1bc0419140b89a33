"""Which operators each built-in fault kind applies to, by what the device graph says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.npu.optypes import FRAMEWORK_OP
from engine.observe import DeviceGraph, DeviceOp

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})

EPSILON_INPUTS: Mapping[str, int] = {
    "ApplyAdamD": 8,
    "ApplyAdagradV2": 3,
    "SparseApplyAdagradV2": 3,
    "ApplyAdadelta": 5,
    "SparseApplyAdadelta": 5,
    "ApplyRMSProp": 6,
    "SparseApplyRMSProp": 6,
    "ApplyCenteredRMSProp": 7,
    "SparseApplyCenteredRMSProp": 7,
    "ApplyAdaMax": 7,
    "ApplyAdamWithAmsgrad": 9,
}
"""Where optimizers have their epsilon: device type -> input."""

POWER_INPUTS: Mapping[str, tuple[int, ...]] = {
    "ApplyAdamD": (3, 4),
    "ApplyAdaMax": (3,),
    "ApplyAdamWithAmsgrad": (4, 5),
}
"""Where optimizers have the powers of beta that correct the bias: device type -> inputs."""

SUMMING = frozenset({"MatMulV2", "BatchMatMulV2", "ReduceSum", "ReduceMean", "BiasAddGrad", "UnsortedSegmentSum"})
"""Device types that add up products or values."""

MERGING: Mapping[str, tuple[int, int]] = {
    "UnsortedSegmentSum": (1, 0),
    "SegmentSum": (1, 0),
    "ScatterAdd": (1, 2),
    "ScatterSub": (1, 2),
    "ScatterNdAdd": (1, 2),
    "ScatterNdSub": (1, 2),
    "ScatterNd": (0, 1),
}
"""Operators that add up what goes to one place: device type -> inputs with the places and with the values."""

WRITING = ("Apply", "SparseApply", "Scatter", "Assign")
"""How the device types of updates begin."""

DIVIDING: Mapping[str, tuple[int, ...]] = {"RealDiv": (1,), "Div": (1,), "Mul": (0, 1)}
"""Divisions and products: device type -> inputs that can hold the divisor, or its reciprocal."""

LARGEST_EPSILON = 0.01
_AN_EPSILON = f"a constant above 0 and up to {LARGEST_EPSILON}"


class Rules:
    """What each kind asks of its operator."""

    def __init__(self, graph: DeviceGraph) -> None:
        tasks = {op.name for op in graph.ops if op.has_task}
        self._read = {place for op in graph.ops if op.name in tasks for place in op.inputs}
        self._variables = {op.name for op in graph.ops if op.type == "Variable"}
        self._scalars = {
            op.name: float(op.attrs["value"]) for op in graph.ops if op.type == "Const" and "value" in op.attrs
        }
        self._kinds: Mapping[str, Callable[[DeviceOp], str]] = {
            "wrong_row": _gathers,
            "zero_rows": _gathers,
            "fusion_drop": lambda op: "" if len(op.originals or ()) > 1 else "it is not fused",
            "overwrite": self._is_read,
            "bf16_inputs": _reads_floats,
            "row_swap": _has_rows,
            "stale_rows": _has_rows,
            "fp16_accumulate": lambda op: "" if op.type in SUMMING else "it adds nothing up",
            "eps": self._has_epsilon,
            "no_bias_correction": lambda op: "" if op.type in POWER_INPUTS else "it corrects no bias",
            "last_write_wins": lambda op: "" if op.type in MERGING else "it adds up no values of one place",
            "skip_update": self._updates,
            "no_world_divide": self._divides,
        }

    def reason(self, op: DeviceOp, kind: str) -> str:
        """Returns why a kind does not apply to an operator, empty if it does."""
        if not op.has_task:
            return "it has no task on the device"
        if op.type == FRAMEWORK_OP:
            return "it runs on the host, not on the device"
        if float_slot(op) is None:
            return "it writes no floating-point values"
        rule = self._kinds.get(kind)
        return "" if rule is None else rule(op)

    def _is_read(self, op: DeviceOp) -> str:
        read = (op.name, float_slot(op)) in self._read
        return "" if read else "no operator with a task reads its output"

    def _updates(self, op: DeviceOp) -> str:
        writes = op.type.startswith(WRITING) and bool(op.inputs) and op.inputs[0][0] in self._variables
        return "" if writes else "it updates no variable"

    def _has_epsilon(self, op: DeviceOp) -> str:
        added = op.type == "Add" and any(is_epsilon(self._scalars.get(source, 0.0)) for source, _ in op.inputs)
        return (
            "" if op.type in EPSILON_INPUTS or added else f"it is no optimizer with an epsilon, nor x + {_AN_EPSILON}"
        )

    def _divides(self, op: DeviceOp) -> str:
        divides = any(op.inputs[index][0] in self._scalars for index in DIVIDING.get(op.type, ()))
        return "" if divides else "it divides by no scalar constant, and multiplies by none"


def is_epsilon(value: float) -> bool:
    """Tells whether a constant that is added to something is small enough to keep it from zero and nothing else."""
    return 0.0 < value <= LARGEST_EPSILON


def float_slot(op: DeviceOp) -> int | None:
    """Returns the first output that holds floating-point values."""
    return next((slot for slot, port in enumerate(op.output_ports) if port.dtype in FLOATS), None)


def _gathers(op: DeviceOp) -> str:
    return "" if op.type == "GatherV2" else "it gathers no rows"


def _reads_floats(op: DeviceOp) -> str:
    return "" if any(port.dtype in FLOATS for port in op.input_ports) else "it reads no floating-point values"


def _has_rows(op: DeviceOp) -> str:
    return "it writes a scalar, which has no rows" if op.output_ports[float_slot(op) or 0].shape == () else ""

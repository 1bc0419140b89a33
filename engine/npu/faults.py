"""Faults that tests and demos inject into the emulated device: their texts, and which operators they apply to.

A fault is ``KIND@OP[:key=value,...]`` for the built-in kinds, ``package.module:callable`` for one's own, ``none`` for
no fault. OP is a device operator, an original op, or a table, which means the gather of its lookup.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.errors import FaultError
from engine.npu.optypes import FRAMEWORK_OP
from engine.observe import DeviceGraph, DeviceOp

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
TABLE_ATTR = "_embedding_table"

Value = float | int | str


@dataclass(frozen=True)
class Parameter:
    """One parameter of a fault kind.

    Attributes:
        parse: Makes the value of the text; a ValueError says what is wrong.
        default: Value without a text; None means chosen by what the operator computes.
    """

    parse: Callable[[str], Value]
    default: Value | None = None


@dataclass(frozen=True)
class FaultSpec:
    """A parsed text of a built-in fault.

    Attributes:
        text: The text itself.
        kind: Name of the kind.
        target: OP as written.
        parameters: Given values only.
    """

    text: str
    kind: str
    target: str
    parameters: Mapping[str, Value] = field(default_factory=dict)

    def get(self, name: str) -> Value | None:
        """Returns a parameter, its default where the text does not give it."""
        return self.parameters.get(name, KINDS[self.kind][name].default)

    def number(self, name: str) -> float:
        """Returns a numeric parameter that has a default."""
        value = self.get(name)
        if not isinstance(value, int | float):
            raise FaultError(f"fault {self.text!r}: {name} is not a number")
        return float(value)


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 < value <= 1.0:
        raise ValueError("must be above 0 and at most 1")
    return value


def _factor(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError("must be a number")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def _index(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


KINDS: Mapping[str, Mapping[str, Parameter]] = {
    "scale": {"factor": Parameter(_factor, 1.5)},
    "wrong_row": {"share": Parameter(_share, 0.005)},
    "zero_rows": {"share": Parameter(_share, 0.005)},
    "nan": {"index": Parameter(_index, 0)},
    "overwrite": {"share": Parameter(_share, 0.01), "count": Parameter(_count)},
    "fusion_drop": {"member": Parameter(str)},
    "drop_tail": {"count": Parameter(_count)},
    "bf16_inputs": {},
}
"""Parameters by kind; a lone value in a text is the first one."""


def is_builtin(text: str) -> bool:
    """Tells the text of a built-in fault from ``module:callable``: it has an ``@``, or is no such pair."""
    return "@" in text or ":" not in text


def parse_fault(text: str) -> FaultSpec | None:
    """Parses the text of a built-in fault; None for ``none`` and the empty text.

    Raises:
        FaultError: unknown kind or parameter, a bad value, no operator.
    """
    if text in ("", "none"):
        return None
    kind, at, rest = text.partition("@")
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FaultError(
            f"fault {text!r}: unknown kind {kind!r}{hint}; there are: {', '.join(KINDS)}, or module:callable"
        )
    target, _, options = rest.partition(":")
    if not at or not target:
        raise FaultError(f"fault {text!r}: say which operator, as {kind}@OP")
    return FaultSpec(text, kind, target, _parameters(text, kind, options))


def _parameters(text: str, kind: str, options: str) -> dict[str, Value]:
    known = KINDS[kind]
    values: dict[str, Value] = {}
    for number, part in enumerate(part for part in options.split(",") if part):
        name, equals, value = part.partition("=")
        if not equals:
            name, value = (next(iter(known), ""), part) if number == 0 else (part, "")
        if name not in known:
            takes = ", ".join(known) or "no parameters"
            raise FaultError(f"fault {text!r}: {kind} takes {takes}, not {part!r}")
        try:
            values[name] = known[name].parse(value)
        except ValueError as error:
            raise FaultError(f"fault {text!r}: {name}={value!r}: {error}") from error
    return values


def resolve(graph: DeviceGraph, spec: FaultSpec) -> DeviceOp:
    """Returns the operator that a fault hits.

    Raises:
        FaultError: there is none of that name (the nearest names are offered), or the kind does not apply to it.
    """
    op = find_op(graph, spec.target)
    if op is None:
        near = difflib.get_close_matches(spec.target, _names(graph), n=3, cutoff=0.4)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise FaultError(f"fault {spec.text!r}: the graph has no operator, original op or table {spec.target!r}{hint}")
    reason = _Rules(graph).reason(op, spec.kind)
    if reason:
        some = applicable(graph, spec.kind)[:3]
        hint = f"; it applies to {', '.join(some)}" if some else "; it applies to no operator of this graph"
        raise FaultError(f"fault {spec.text!r}: {spec.kind} does not apply to {op.name!r} ({op.type}): {reason}{hint}")
    return op


def find_op(graph: DeviceGraph, name: str) -> DeviceOp | None:
    """Returns the operator of a name: its own, else that of an original op, else that of a table's lookup.

    A table's variable may have the table's name; operators without a task therefore come last.
    """
    ways: tuple[Callable[[DeviceOp], bool], ...] = (
        lambda op: op.has_task and op.name == name,
        lambda op: op.has_task and name in (op.originals or ()),
        lambda op: op.type == "GatherV2" and op.attrs.get(TABLE_ATTR) == name,
        lambda op: op.name == name or name in (op.originals or ()),
    )
    return next((op for way in ways for op in graph.ops if way(op)), None)


def applicable(graph: DeviceGraph, kind: str) -> list[str]:
    """Returns the operators that a fault kind applies to, in order of execution."""
    rules = _Rules(graph)
    return [op.name for op in graph.ops if not rules.reason(op, kind)]


def float_slot(op: DeviceOp) -> int | None:
    """Returns the first output that holds floating-point values."""
    return next((slot for slot, port in enumerate(op.output_ports) if port.dtype in FLOATS), None)


def _names(graph: DeviceGraph) -> list[str]:
    tables = [str(op.attrs[TABLE_ATTR]) for op in graph.ops if TABLE_ATTR in op.attrs]
    originals = [name for op in graph.ops for name in op.originals or ()]
    return list(dict.fromkeys([*tables, *(op.name for op in graph.ops if op.has_task), *originals]))


class _Rules:
    """What each kind asks of its operator."""

    def __init__(self, graph: DeviceGraph) -> None:
        tasks = {op.name for op in graph.ops if op.has_task}
        self._read = {place for op in graph.ops if op.name in tasks for place in op.inputs}

    def reason(self, op: DeviceOp, kind: str) -> str:
        """Returns why a kind does not apply to an operator, empty if it does."""
        if not op.has_task:
            return "it has no task on the device"
        if op.type == FRAMEWORK_OP:
            return "it runs on the host, not on the device"
        slot = float_slot(op)
        if slot is None:
            return "it writes no floating-point values"
        if kind in ("wrong_row", "zero_rows"):
            return "" if op.type == "GatherV2" else "it gathers no rows"
        if kind == "fusion_drop":
            return "" if len(op.originals or ()) > 1 else "it is not fused"
        if kind == "overwrite":
            return "" if (op.name, slot) in self._read else "no operator with a task reads its output"
        if kind == "bf16_inputs":
            return "" if any(port.dtype in FLOATS for port in op.input_ports) else "it reads no floating-point values"
        return ""

"""Faults that tests and demos inject into the emulated device: their texts, and which operators they apply to.

A fault is ``KIND@OP[:key=value,...]`` for the built-in kinds, ``package.module:callable`` for one's own, ``none`` for
no fault. OP is a device operator, an original op, or a table, which means the gather of its lookup. ``intermittent`` is
another kind that acts in every k-th training step only.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.errors import FaultError
from engine.npu.fault_rules import Rules
from engine.observe import DeviceGraph, DeviceOp

TABLE_ATTR = "_embedding_table"

INTERMITTENT = "intermittent"

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
        kind: Name of the kind that acts; of an ``intermittent`` fault the other kind.
        target: OP as written.
        parameters: Given values only.
        every: The fault acts in the last of so many training steps each; 1 means in all of them.
    """

    text: str
    kind: str
    target: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    every: int = 1

    def acts(self, step: int) -> bool:
        """Tells whether the fault acts in a training step, counted from 0."""
        return (step + 1) % self.every == 0

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


def _number(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError("must be a number")
    return value


def _epsilon(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be in 0 .. 1")
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
    "scale": {"factor": Parameter(_number, 1.5)},
    "bias": {"value": Parameter(_number, 0.01)},
    "sign_flip": {"share": Parameter(_share, 1.0), "count": Parameter(_count)},
    "row_swap": {"count": Parameter(_count, 1)},
    "stale_rows": {"share": Parameter(_share, 1.0)},
    "wrong_row": {"share": Parameter(_share, 0.005)},
    "zero_rows": {"share": Parameter(_share, 0.005)},
    "nan": {"index": Parameter(_index, 0)},
    "inf": {"index": Parameter(_index, 0)},
    "overwrite": {"share": Parameter(_share, 0.01), "count": Parameter(_count)},
    "fusion_drop": {"member": Parameter(str)},
    "drop_tail": {"count": Parameter(_count)},
    "bf16_inputs": {},
    "fp16_accumulate": {},
    "eps": {"value": Parameter(_epsilon, 1e-5)},
    "no_bias_correction": {},
    "last_write_wins": {},
    "skip_update": {"share": Parameter(_share, 1.0)},
    "no_world_divide": {},
    INTERMITTENT: {"kind": Parameter(str, "scale"), "every": Parameter(_count, 2)},
}
"""Parameters by kind; a lone value in a text is the first one. ``intermittent`` takes those of its other kind too."""


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
    if kind == INTERMITTENT:
        return _intermittent(text, target, options)
    return FaultSpec(text, kind, target, _parameters(text, kind, options, KINDS[kind]))


def _intermittent(text: str, target: str, options: str) -> FaultSpec:
    """Splits the parameters into its own and those of the kind that acts."""
    own = KINDS[INTERMITTENT]
    parts = [part for part in options.split(",") if part]
    mine = [part for number, part in enumerate(parts) if part.partition("=")[0] in own or not (number or "=" in part)]
    values = _parameters(text, INTERMITTENT, ",".join(mine), own)
    kind = str(values.get("kind", own["kind"].default))
    if kind not in KINDS or kind == INTERMITTENT:
        there_are = ", ".join(name for name in KINDS if name != INTERMITTENT)
        raise FaultError(f"fault {text!r}: {INTERMITTENT} has no kind {kind!r} to repeat; there are: {there_are}")
    # A lone value among the rest is not the other kind's first one: it would be read as that of this kind.
    rest = ",".join(part if "=" in part else f"{part}=" for part in parts if part not in mine)
    every = values.get("every", own["every"].default)
    return FaultSpec(text, kind, target, _parameters(text, kind, rest, KINDS[kind]), int(every or 1))


def _parameters(text: str, kind: str, options: str, known: Mapping[str, Parameter]) -> dict[str, Value]:
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
    reason = Rules(graph).reason(op, spec.kind)
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
    rules = Rules(graph)
    return [op.name for op in graph.ops if not rules.reason(op, kind)]


def _names(graph: DeviceGraph) -> list[str]:
    tables = [str(op.attrs[TABLE_ATTR]) for op in graph.ops if TABLE_ATTR in op.attrs]
    originals = [name for op in graph.ops for name in op.originals or ()]
    return list(dict.fromkeys([*tables, *(op.name for op in graph.ops if op.has_task), *originals]))

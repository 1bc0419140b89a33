"""The first non-finite tensor that matters, and the op to blame.

With a graph the search walks data edges, so it does not depend on the order in which files were written: the origin is
an op whose output is not finite although all its inputs are, and whose bad values reach a result. Infinities that are
there on purpose (constants, and what passes them on) and bad values that end in finite ones (a mask before a softmax,
the branch that ``where`` did not take) are harmless and listed as such. Without a graph, order of execution and each
op's own recorded inputs must do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from compare.nan_flow import FlowOp, NanFlow
from compare.nan_scan import Finding, scan_records
from dumpers.errors import DataError

if TYPE_CHECKING:
    from dumpers.graph import Graph
    from dumpers.records import Dump, Io, TensorRecord


@dataclass(frozen=True)
class InputValue:
    """What an input held where the output went wrong.

    Attributes:
        tensor: Name of the input.
        value: The element; None where the op does not work element by element.
        clean: Whether the whole input is finite; None if it is not in the dump.
    """

    tensor: str
    value: str | None
    clean: bool | None


@dataclass(frozen=True)
class NanOrigin:
    """Where it began.

    Attributes:
        op, op_type, io, slot: The tensor; ``io`` is ``input`` only if the bad value came from outside the op.
        index: Place of the first bad element, empty where only recorded statistics tell of it (``finding.recorded``).
        kind: What stands there: ``nan``, ``inf`` or ``-inf``.
        cause: ``operator`` (finite inputs, bad output), ``source`` (a feed, a variable or a constant brings it),
            ``overwritten`` (the producer wrote finite values, the consumer read others) or ``outside`` (an input whose
            producer is not in the dump).
        record: The tensor's record.
        inputs: What the inputs held there.
        consequences: Bad tensors that follow, in order.
        others: Bad tensors of other, independent origins, in order.
        harmless: Bad tensors that reach no result, each with the reason.
        spreads: Ops where one bad number makes whole healthy tensors bad: (op, healthy inputs).
        hint: What usually causes this and what helps.
    """

    op: str
    op_type: str
    io: Io
    slot: int
    index: tuple[int, ...]
    kind: str
    cause: str
    record: TensorRecord
    finding: Finding
    inputs: tuple[InputValue, ...] = ()
    consequences: tuple[Finding, ...] = ()
    others: tuple[Finding, ...] = ()
    harmless: tuple[tuple[Finding, str], ...] = ()
    spreads: tuple[tuple[str, tuple[str, ...]], ...] = ()
    hint: str = ""

    @property
    def inputs_clean(self) -> bool | None:
        """Whether all inputs are finite; None where one is not in the dump."""
        states = [value.clean for value in self.inputs]
        return False if False in states else None if None in states or not states else True

    @property
    def explanation(self) -> tuple[str, ...]:
        """The finding in sentences, the answer first."""
        place = f"at [{','.join(map(str, self.index))}] of" if not self.finding.recorded else "somewhere in"
        lines = [f"{self.op} [{self.op_type or 'type unknown'}]: {self.kind} {place} {self.io} {self.slot}"]
        if self.finding.recorded:
            lines.append(f"recorded statistics only, element and value not known: {self.finding.describe()}")
        lines.append(_CAUSES[self.cause])
        lines += [f"{v.tensor} there: {v.value}" for v in self.inputs if v.value is not None]
        if self.consequences:
            lines.append(f"follows: {self.consequences[0].describe()}; {len(self.consequences)} tensor(s) in all")
        lines += [f"{op} spreads it to tensors that were finite: {', '.join(names)}" for op, names in self.spreads]
        lines += [f"harmless: {finding.describe()}: {reason}" for finding, reason in self.harmless]
        return tuple([*lines, self.hint] if self.hint else lines)


_CAUSES = {
    "operator": "its inputs are finite, so the op made it: run it on CPU from the same inputs",
    "source": "it comes from outside the graph (feed, variable or constant): look at the data",
    "overwritten": "the producer wrote finite values and this op read others: memory was overwritten in between",
    "outside": "it was read from outside; the producer is not in the dump, or memory was overwritten",
}

_HINTS = {
    "RealDiv": "0/0 or a division by zero: add an epsilon to the divisor or use a division that gives 0 there",
    "Div": "0/0 or a division by zero: add an epsilon to the divisor or use a division that gives 0 there",
    "Reciprocal": "a division by zero: keep the operand away from 0",
    "Log": "a logarithm of zero or of a negative number: clip its operand",
    "Exp": "an exponential beyond the range of the dtype: subtract the maximum first or clip",
    "Sqrt": "a root of a negative number: clip its operand at 0",
    "Rsqrt": "a root of a negative number or of 0: add an epsilon",
}
_DOUBLE_WHERE = (
    "a branch that `where` did not take still has a gradient, 0 times infinity: put a safe value into the operand "
    "before the function as well (double where)"
)


@dataclass(frozen=True)
class NanSearch:
    """Result of a search.

    Attributes:
        origin: None if nothing bad reaches a result.
        harmless: As in :class:`NanOrigin`, also when there is no origin.
        findings: All bad tensors in order of execution.
        unread: Tensors that could not be read or have no value.
        scanned: Tensors looked at.
    """

    origin: NanOrigin | None
    harmless: tuple[tuple[Finding, str], ...]
    findings: tuple[Finding, ...]
    unread: tuple[Finding, ...]
    scanned: int


def find_nan_origin(dump: Dump, graph: Graph | None = None, *, exclude: Sequence[str] = ()) -> NanOrigin | None:
    """Returns the origin of NaN and infinities in a dump, None if nothing bad reaches a result.

    Args:
        dump: One step of one side.
        graph: Graph of the same side; the dump's own if None.
        exclude: Patterns (``attn/*``) of ops whose bad values are not to be looked at.
    """
    return search_nan(dump, graph, exclude=exclude).origin


def search_nan(
    dump: Dump,
    graph: Graph | None = None,
    *,
    exclude: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> NanSearch:
    """Searches a dump; like :func:`find_nan_origin` with everything that was seen on the way."""
    findings = scan_records(dump.records, progress, len(dump.records))
    kept = [f for f in findings if not any(fnmatchcase(f.record.op, pattern) for pattern in exclude)]
    bad = tuple(f for f in kept if f.bad)
    flow = NanFlow(kept, graph if graph is not None else dump.graph)
    harmless = flow.harmless()
    origin = _origin(flow, harmless) if bad else None
    return NanSearch(origin, harmless, bad, tuple(f for f in findings if not f.known), len(findings))


def _origin(flow: NanFlow, harmless: tuple[tuple[Finding, str], ...]) -> NanOrigin | None:
    candidates = flow.candidates()
    if not candidates:
        return None
    op, finding, cause = candidates[0]
    follows = flow.after(op, finding)
    known = {id(f) for f in follows} | {id(finding)} | {id(f) for f, _ in harmless}
    record = finding.record
    inputs = _input_values(op, finding) if cause != "source" else ()
    return NanOrigin(
        op=op.name,
        op_type=op.type,
        io=record.io,
        slot=record.slot,
        index=finding.index or (),
        kind=finding.kind,
        cause=cause,
        record=record,
        finding=finding,
        inputs=inputs,
        consequences=follows,
        others=tuple(f for f in flow.bad_outputs() if id(f) not in known),
        harmless=harmless,
        spreads=flow.spreads(),
        hint=_hint(op, harmless),
    )


def _hint(op: FlowOp, harmless: Sequence[tuple[Finding, str]]) -> str:
    masked = any("Select" in reason or "Where" in reason for _, reason in harmless)
    if op.name.startswith("gradients") and masked:
        return _DOUBLE_WHERE
    return _HINTS.get(op.type, "")


def _input_values(op: FlowOp, finding: Finding) -> tuple[InputValue, ...]:
    if finding.record.io == "input":
        return ()
    values: list[InputValue] = []
    for slot, state in sorted(op.inputs.items()):
        if state is None:
            values.append(InputValue(op.input_name(slot), None, None))
            continue
        value = _element(state, finding) if state.known else None
        values.append(InputValue(state.record.name, value, not state.bad if state.known else None))
    return tuple(values)


def _element(state: Finding, finding: Finding) -> str | None:
    """Value of an input at the bad element: of equal or broadcast shape; None where positions do not correspond."""
    if finding.index is None or state.record.source is None:
        return None
    shape, index = state.shape, finding.index
    offset = len(index) - len(shape)
    if offset < 0 or any(size not in (1, want) for size, want in zip(shape, finding.shape[offset:], strict=True)):
        return None
    place = tuple(0 if size == 1 else at for size, at in zip(shape, index[offset:], strict=True))
    try:
        return str(np.asarray(state.record.load())[place])
    except (DataError, IndexError):
        return None

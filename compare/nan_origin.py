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

from compare.nan_flow import FlowOp, NanFlow
from compare.nan_inputs import InputValue, input_value
from compare.nan_scan import Finding, scan_records

if TYPE_CHECKING:
    from dumpers.graph import Graph
    from dumpers.records import Dump, Io, TensorRecord


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
        written: Of memory that was overwritten: what the producer wrote there.
        run, runs: Which run of the op it was, from 1, and how many the dump has.
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
    written: InputValue | None = None
    run: int = 1
    runs: int = 1
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
        else:
            lines.append(self.finding.describe())
        if self.runs > 1:
            lines.append(f"the op ran {self.runs} times in this dump: this is run {self.run}, the first that is bad")
        lines.append(self._why())
        if self.written is not None:
            lines.append(f"its producer wrote {self.written.describe()}")
        lines += [text for value in self.inputs if (text := value.describe())]
        if self.consequences:
            lines.append(f"follows: {self.consequences[0].describe()}; {len(self.consequences)} tensor(s) in all")
        lines += [f"{op} spreads it to tensors that were finite: {', '.join(names)}" for op, names in self.spreads]
        lines += [f"harmless: {finding.describe()}: {reason}" for finding, reason in self.harmless]
        return tuple([*lines, self.hint] if self.hint else lines)

    def _why(self) -> str:
        """What the cause means, as far as the inputs are known."""
        if self.cause == "source" and not self.op_type:
            return _UNKNOWN_INPUTS
        if self.cause == "operator" and self.inputs_clean is None:
            return _SOME_INPUTS if any(value.clean for value in self.inputs) else _UNKNOWN_INPUTS
        if self.cause == "operator" and self.inputs_clean is False:
            return "its inputs hold infinities on purpose, and it is the op that makes something else of them"
        return _CAUSES[self.cause]


_UNKNOWN_INPUTS = "nothing is known of its inputs: give the graph (-g), or dump inputs as well, to tell who made it"
_SOME_INPUTS = "the inputs that are in the dump are finite; the others are not known"

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
        findings: All bad tensors in order of execution: with a graph producers first, whatever the clock says.
        unread: Tensors that could not be read or have no value.
        scanned: Tensors looked at.
        padded: Tensors with bad elements in the padding of their layout.
    """

    origin: NanOrigin | None
    harmless: tuple[tuple[Finding, str], ...]
    findings: tuple[Finding, ...]
    unread: tuple[Finding, ...]
    scanned: int
    padded: tuple[Finding, ...] = ()


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
    threads: int | None = None,
) -> NanSearch:
    """Searches a dump; like :func:`find_nan_origin` with everything that was seen on the way.

    Args:
        dump: One step of one side.
        graph: Graph of the same side; the dump's own if None.
        exclude: Patterns of ops whose bad values are not to be looked at.
        progress: Told how much of the work is done, and of how much.
        threads: How many read at the same time; None for as many as there are processors.
    """
    findings = scan_records(dump.records, progress, threads=threads)
    unread = tuple(f for f in findings if not f.known)
    padded = tuple(f for f in findings if f.padding)
    kept = [f for f in findings if not any(fnmatchcase(f.record.op, pattern) for pattern in exclude)]
    bad = tuple(f for f in kept if f.bad)
    if not bad:
        return NanSearch(None, (), (), unread, len(findings), padded)
    flow = NanFlow(kept, graph if graph is not None else dump.graph)
    harmless = flow.harmless()
    return NanSearch(_origin(flow, harmless), harmless, flow.in_order(bad), unread, len(findings), padded)


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
        written=_written(flow, op, finding) if cause == "overwritten" else None,
        run=op.run,
        runs=op.runs,
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


def _written(flow: NanFlow, op: FlowOp, finding: Finding) -> InputValue | None:
    written = flow.written_for(op, finding.record.slot)
    return None if written is None else input_value(written, finding)


def _input_values(op: FlowOp, finding: Finding) -> tuple[InputValue, ...]:
    if finding.record.io == "input":
        return ()
    return tuple(
        InputValue(op.input_name(slot), None, None) if state is None else input_value(state, finding)
        for slot, state in sorted(op.inputs.items())
    )

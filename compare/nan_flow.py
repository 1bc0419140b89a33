"""How bad values flow through a graph: which are on purpose, which are absorbed, which begin something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compare.nan_order import execution_order_of
from compare.op_lookup import OpLookup, recorded_sources

if TYPE_CHECKING:
    from compare.nan_scan import Finding
    from dumpers.graph import Graph, Op
    from dumpers.records import Io

CONSTANTS = frozenset({"Const", "Constant", "HostConst"})
SOURCES = CONSTANTS | {"Placeholder", "Data", "Variable", "VariableV2", "VarHandleOp", "ReadVariableOp", "RefData", ""}
_RESULTS = frozenset({"NetOutput", "_Retval"})


@dataclass
class FlowOp:
    """One run of an op with what is known about its tensors.

    Attributes:
        inputs: Slot -> what was read: the op's own recorded input, else the producer's output, else None.
        read: Slot -> the op's own recorded inputs.
        outputs: Slot -> what was written.
        producers: Slot -> (op, output slot) that feeds it, where a graph tells.
        order: Place in order of execution; before the order is known, place of its first record.
        time: Time stamp of its first record, -1 without one.
        run, runs: Which run of the op this is, from 1, and how many the dump has (a loop runs an op again and again).
    """

    name: str
    type: str
    order: int
    time: int = -1
    run: int = 1
    runs: int = 1
    inputs: dict[int, Finding | None] = field(default_factory=dict)
    read: dict[int, Finding] = field(default_factory=dict)
    outputs: dict[int, Finding] = field(default_factory=dict)
    producers: dict[int, tuple[str, int]] = field(default_factory=dict)

    def side(self, io: Io) -> dict[int, Finding]:
        """What was read, or what was written."""
        return self.read if io == "input" else self.outputs

    @property
    def bad_outputs(self) -> list[Finding]:
        """Outputs with a NaN or infinity, by slot."""
        return [finding for _, finding in sorted(self.outputs.items()) if finding.bad]

    @property
    def bad_inputs(self) -> list[int]:
        """Slots of the inputs with a NaN or infinity."""
        return [slot for slot, finding in sorted(self.inputs.items()) if finding is not None and finding.bad]

    def input_name(self, slot: int) -> str:
        """Name of an input for a person."""
        return f"{self.name}:input:{slot}"


class NanFlow:
    """The ops of a dump, their edges where a graph tells them, and what follows about bad values."""

    def __init__(self, findings: Sequence[Finding], graph: Graph | None) -> None:
        self._graph = graph
        self._name_of: dict[int, str] = {}
        self._ops = {name: _first_bad(runs) for name, runs in self._all_runs(findings).items()}
        self._consumers: dict[tuple[str, int], list[str]] = {}
        for flow in self._ops.values():
            flow.inputs.update(flow.read)
            if graph is not None and flow.name in graph.ops:
                self._link(flow, graph.ops[flow.name])
        moments = {name: (op.time, op.order) for name, op in self._ops.items()}
        self._ordered = [self._ops[name] for name in execution_order_of(moments, graph)]
        for place, flow in enumerate(self._ordered):
            flow.order = place
        self._purpose = self._on_purpose()
        self._harmful = self._reaching_results()

    # ----------------------------------------------------------------------------------------------- building

    def _all_runs(self, findings: Sequence[Finding]) -> dict[str, list[FlowOp]]:
        """Ops by name, each with its runs: a new one begins where a tensor comes again."""
        lookup = OpLookup(self._graph) if self._graph is not None else None
        found: dict[str, list[FlowOp]] = {}
        for place, finding in enumerate(findings):
            record = finding.record
            op = lookup.find(record.op, record.op_type) if lookup else None
            name, kind = (op.name, op.type) if op is not None else (record.op, record.op_type)
            runs = found.setdefault(name, [])
            if not runs or record.slot in runs[-1].side(record.io):
                time = -1 if record.timestamp_us is None else record.timestamp_us
                runs.append(FlowOp(name, kind, place, time, run=len(runs) + 1))
            runs[-1].type = runs[-1].type or kind
            runs[-1].side(record.io)[record.slot] = finding
            self._name_of[id(finding)] = name
        return found

    def _link(self, flow: FlowOp, op: Op) -> None:
        recorded = 1 + max(flow.read, default=-1)
        for slot, source in enumerate(recorded_sources(op, recorded) if recorded else op.inputs):
            if not source.op:
                continue
            flow.producers[slot] = (source.op, source.slot)
            self._consumers.setdefault((source.op, source.slot), []).append(flow.name)
            if slot not in flow.read:
                producer = self._ops.get(source.op)
                flow.inputs[slot] = producer.outputs.get(source.slot) if producer else None

    def _type(self, name: str) -> str:
        if name in self._ops:
            return self._ops[name].type
        return self._graph.ops[name].type if self._graph is not None and name in self._graph.ops else ""

    # ----------------------------------------------------------------------------------------------- meaning

    def _on_purpose(self) -> set[str]:
        """Ops whose infinities are constants or come from nothing but constants, without a NaN."""
        found: set[str] = set()
        for op in self._ordered:
            bad = op.bad_outputs
            if not bad or any(finding.nan for finding in bad):
                continue
            passed_on = op.bad_inputs and all(self._from_purpose(op, slot, found) for slot in op.bad_inputs)
            if op.type in CONSTANTS or passed_on:
                found.add(op.name)
        return found

    def _from_purpose(self, op: FlowOp, slot: int, purpose: set[str]) -> bool:
        producer = op.producers.get(slot)
        finding = op.inputs[slot]
        if producer is None or finding is None or finding.nan:
            return False
        return producer[0] in purpose or self._type(producer[0]) in CONSTANTS

    def _reaching_results(self) -> set[str]:
        """Ops whose bad values end in a result that is bad: found backwards from the ends."""
        if self._graph is None:
            return {op.name for op in self._ops.values() if op.bad_outputs}
        waiting = [op.name for op in self._ops.values() if op.bad_outputs and self._is_end(op)]
        harmful: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in harmful:
                continue
            harmful.add(name)
            op = self._ops[name]
            feeders = {op.producers[slot][0] for slot in op.bad_inputs if slot in op.producers}
            waiting += [feeder for feeder in feeders if feeder in self._ops and self._ops[feeder].bad_outputs]
        return harmful

    def _is_end(self, op: FlowOp) -> bool:
        """Whether a bad output of the op is a result: nobody who was dumped reads it, or one who hides it does.

        The graph's result hides nothing. A cast to integers does: what it makes of a NaN is garbage, and finite.
        """
        ends = False
        for finding in op.bad_outputs:
            readers = self._readers(op.name, finding.record.slot)
            dumped = [name for name in readers if name in self._ops and self._ops[name].outputs]
            ends |= any(self._type(name) in _RESULTS for name in readers)
            if op.name not in self._purpose:
                ends |= not dumped or any(self._makes_integers(name) for name in readers)
        return ends

    def _makes_integers(self, name: str) -> bool:
        if self._type(name) != "Cast":
            return False
        written = [finding.record.dtype for finding in self._ops[name].outputs.values()] if name in self._ops else []
        if not written and self._graph is not None and name in self._graph.ops:
            written = [port.dtype for port in self._graph.ops[name].output_ports]
        return any(dtype.startswith(("int", "uint")) for dtype in written)

    def _readers(self, name: str, slot: int) -> list[str]:
        if self._graph is None or name not in self._graph.ops:
            return self._consumers.get((name, slot), [])
        return [consumer for consumer, _, output in self._graph.consumers.get(name, ()) if output == slot]

    # ----------------------------------------------------------------------------------------------- answers

    def in_order(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Sorts findings by the order of execution of their ops; those of one op stay as they are."""
        return tuple(sorted(findings, key=lambda finding: self._ops[self._name_of[id(finding)]].order))

    def written_for(self, op: FlowOp, slot: int) -> Finding | None:
        """What the producer of an input wrote, None where that is not in the dump."""
        producer = op.producers.get(slot)
        return self._ops[producer[0]].outputs.get(producer[1]) if producer and producer[0] in self._ops else None

    def bad_outputs(self) -> list[Finding]:
        """All bad outputs, producers first."""
        return [finding for op in self._ordered for finding in op.bad_outputs]

    def harmless(self) -> tuple[tuple[Finding, str], ...]:
        """Bad outputs that reach no result, with the reason."""
        found: list[tuple[Finding, str]] = []
        for op in self._ordered:
            if op.name not in self._harmful:
                found += [(finding, self._why_harmless(op, finding)) for finding in op.bad_outputs]
        return tuple(found)

    def _why_harmless(self, op: FlowOp, finding: Finding) -> str:
        if op.type in CONSTANTS:
            return "a constant"
        readers = dict.fromkeys(self._readers(op.name, finding.record.slot))
        names = [f"{name} [{self._type(name)}]" for name in readers if name in self._ops]
        return f"absorbed by {', '.join(names[:3])}" if names else "infinities of constants passed on"

    def candidates(self) -> list[tuple[FlowOp, Finding, str]]:
        """Beginnings of what is harmful: (op, tensor, cause), producers first; never empty while a result is bad."""
        found: list[tuple[FlowOp, Finding, str]] = []
        for op in self._ordered:
            found += [(op, op.read[slot], cause) for slot, cause in self._foreign_inputs(op)]
            if op.name in self._harmful and op.name not in self._purpose and not self._explained(op):
                cause = "source" if op.type in SOURCES and not op.inputs else "operator"
                found.append((op, op.bad_outputs[0], cause))
        if found:
            return found
        passed_on = [op for op in self._ordered if op.name in self._harmful]
        return [(op, op.bad_outputs[0], "source") for op in passed_on[:1]]

    def _explained(self, op: FlowOp) -> bool:
        """Whether a bad input that is not on purpose explains the op's bad output."""
        return any(not self._from_purpose(op, slot, self._purpose) for slot in op.bad_inputs)

    def _foreign_inputs(self, op: FlowOp) -> Iterable[tuple[int, str]]:
        """Recorded inputs that are bad although the producer's output is not, or whose producer is unknown."""
        for slot in op.bad_inputs:
            if slot not in op.read or op.read[slot] is not op.inputs[slot]:
                continue
            producer, written = op.producers.get(slot), self.written_for(op, slot)
            if written is None:
                if self._is_outside(op, slot):
                    yield slot, "source" if producer and self._type(producer[0]) in SOURCES else "outside"
            elif written.known and not written.bad:
                yield slot, "overwritten"

    def _is_outside(self, op: FlowOp, slot: int) -> bool:
        """Whether a bad input whose producer was not dumped begins something: no bad output came before it."""
        producer = op.producers.get(slot)
        if producer is not None:
            return self._type(producer[0]) not in CONSTANTS and op.name in self._harmful
        return not any(other.bad_outputs for other in self._ops.values() if other.order < op.order)

    def after(self, origin: FlowOp, finding: Finding) -> tuple[Finding, ...]:
        """Bad outputs that follow from the origin: reached along bad tensors, or later in time without a graph."""
        if self._graph is None or origin.name not in self._graph.ops:
            later = [op for op in self._ops.values() if op.order >= origin.order]
            return tuple(f for op in later for f in op.bad_outputs if f is not finding)
        reached: set[str] = set()
        waiting = [origin.name]
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            for bad in self._ops[name].bad_outputs:
                readers = self._readers(name, bad.record.slot)
                waiting += [r for r in readers if r in self._ops and self._ops[r].bad_outputs]
        ordered = [op for op in self._ordered if op.name in reached and op.name in self._harmful]
        return tuple(f for op in ordered for f in op.bad_outputs if f is not finding)

    def spreads(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Ops where a single bad number meets a healthy tensor and all of it turns bad."""
        found: list[tuple[str, tuple[str, ...]]] = []
        for op in self._ordered:
            if op.name not in self._harmful or not op.bad_inputs:
                continue
            states = [(slot, state) for slot, state in op.inputs.items() if state is not None and state.known]
            single = any(state.bad and not _sizes(state) for _, state in states)
            shape = op.bad_outputs[0].shape
            healthy = [slot for slot, state in states if not state.bad and _sizes(state) and state.shape == shape]
            if single and healthy:
                names = [op.producers[slot][0] if slot in op.producers else op.input_name(slot) for slot in healthy]
                found.append((op.name, tuple(names)))
        return tuple(found)


def _sizes(finding: Finding) -> list[int]:
    return [size for size in finding.shape if size != 1]


def _first_bad(runs: list[FlowOp]) -> FlowOp:
    """The run to look at: the first with anything bad, else the last."""
    for run in runs:
        run.runs = len(runs)
    bad = (run for run in runs if any(finding.bad for side in (run.read, run.outputs) for finding in side.values()))
    return next(bad, runs[-1])

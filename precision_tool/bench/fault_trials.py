"""Trials of ``bench faults``: one model, one kind of variables, in a process of its own.

The golden side is recorded once a step and kind of batch; each trial runs the device, and judges the two dumps as the
command ``verdict`` does.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dumpers.settings import Settings
from precision_tool.bench.fault_changes import drawn_change, variable_names
from precision_tool.bench.fault_classes import CLASSES, GROUPS, FaultClass, group_of, right_answers
from precision_tool.bench.fault_several import Several, draw, scored
from precision_tool.bench.fault_sides import Case, Change, clear, dump_device, record_golden

if TYPE_CHECKING:
    from compare.verdict import Verdict
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump
    from engine.npu.device import EmulatedDevice

DRAWS = 6
"""How often a trial draws again when a fault changed no bit of the dumped step."""

PRODUCTS_FAULT = "precision_tool.bench.fault_modules:products_in_bfloat16"


@dataclass(frozen=True)
class Outcome:
    """What was done wrong in one trial, and what the verdict made of it.

    Attributes:
        fault_class: Name of the class, ``clean`` for a pair without a fault.
        case: The model, for a person.
        fault: Text of the fault or change.
        hit: The op, variable or placeholder.
        answers: Right verdicts.
        verdict, named: Of the verdict: kind and op.
        first, among_three: Whether the op is the one named, and among the first three suspects.
        rivals: Rule -> whether it names the op first; of a clean pair whether it accuses any.
        seconds: Of the verdict, reading included.
        reason: First row of the evidence.
    """

    fault_class: str
    case: str
    fault: str
    hit: str
    answers: tuple[str, ...]
    verdict: str
    named: str
    first: bool
    among_three: bool
    rivals: Mapping[str, bool]
    seconds: float = field(compare=False)
    reason: str = ""

    @property
    def kind_right(self) -> bool:
        """Whether the verdict's kind is a right one."""
        return self.verdict in self.answers


@dataclass(frozen=True)
class Batch:
    """The trials of one process.

    Attributes:
        case: Model and variables; the arithmetic is drawn.
        seed: Of all that is drawn.
        wanted: Numbers of classes in :data:`CLASSES`, one a trial.
        clean: Pairs without a fault.
        several: Steps with several faults at once.
    """

    case: Case
    seed: int
    wanted: tuple[int, ...]
    clean: int
    several: int = 0


def run_batch(batch: Batch) -> tuple[list[Outcome], list[Several], list[str]]:
    """Runs the trials in order; also returns steps with several faults, and what could not be drawn, a line each."""
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as folder:
        bench = _Bench(batch, Path(folder))
        outcomes = [bench.clean(number) for number in range(batch.clean)]
        missing = []
        for number in batch.wanted:
            outcome = bench.trial(CLASSES[number])
            if outcome is None:
                missing.append(f"{CLASSES[number].name}: nothing to hit in {batch.case.model}")
            else:
                outcomes.append(outcome)
        many = [found for _ in range(batch.several) if (found := bench.several()) is not None]
        return outcomes, many, missing


class _Bench:
    def __init__(self, batch: Batch, folder: Path) -> None:
        self._batch, self._folder = batch, folder
        key = zlib.crc32(f"{batch.case.model}/{batch.case.resource}".encode())
        self._random = np.random.default_rng([batch.seed, key])
        self._golden: dict[object, tuple[Any, Any]] = {}
        self._graphs: dict[str, Any] = {}
        self._number = 0

    def clean(self, number: int) -> Outcome:
        """A pair without a fault: another arithmetic, another step each time."""
        case = replace(self._batch.case, numerics=("fp32", "mix")[number % 2])
        step = number // 2
        root, device = self._device(case, step, Change(), "")
        self._graphs[case.numerics] = device.graphs[0]
        return self._judged(_Hit("clean", str(case), f"step {step}", "", ()), root, self._reference(step, Change()))

    def trial(self, chosen: FaultClass) -> Outcome | None:
        """Draws until something changed; None where the class has nothing to hit in this model."""
        for _ in range(DRAWS):
            numerics = "fp32" if chosen.kind == "bfloat16" else str(self._random.choice(["fp32", "mix"]))
            case = replace(self._batch.case, numerics=numerics)
            size = str(self._random.choice(list(chosen.sizes)))
            if chosen.group:
                outcome = self._fault(chosen, case, size)
            elif chosen.kind == "bfloat16":
                outcome = self._undeclared(chosen, case)
            else:
                outcome = self._change(chosen, case, size)
            if outcome is not None:
                return outcome
        return None

    def several(self) -> Several | None:
        """Two to five faults in one step; None where fewer than two changed a bit in several draws."""
        from engine.errors import FaultError
        from engine.npu.fault_several import SEPARATOR

        for _ in range(DRAWS):
            case = replace(self._batch.case, numerics=str(self._random.choice(["fp32", "mix"])))
            texts = draw(self._graph(case), self._random)
            if len(texts) < 2:
                continue
            try:
                root, device = self._device(case, 0, Change(), SEPARATOR.join(texts))
            except FaultError:
                continue
            changed = [text for text in texts if 0 in device.steps_by_fault[text]]
            if len(changed) > 1:
                verdict, _, _ = self._verdict(root, self._reference(0, Change()))
                clear(root)
                return scored(str(case), changed, verdict)
            clear(root)
        return None

    def _fault(self, chosen: FaultClass, case: Case, size: str) -> Outcome | None:
        from engine.errors import FaultError
        from engine.npu.faults import applicable

        graph = self._graph(case)
        kind = "scale" if chosen.kind == "intermittent" else chosen.kind
        types = {op.name: group_of(op.type) for op in graph.ops}
        ops = [name for name in applicable(graph, kind) if types[name] in GROUPS[chosen.group]]
        if not ops:
            return None
        op = str(self._random.choice(ops))
        text = f"{chosen.kind}@{op}:{size}"
        try:
            root, device = self._device(case, chosen.step, Change(), text)
        except FaultError:
            return None  # no such element, or too small a tensor for the fault
        if chosen.step not in device.fault_steps:
            clear(root)
            return None
        hit = _Hit(chosen.name, str(case), text, op, (), chosen)
        return self._judged(hit, root, self._reference(chosen.step, Change()))

    def _undeclared(self, chosen: FaultClass, case: Case) -> Outcome:
        root, _ = self._device(case, 0, Change(), PRODUCTS_FAULT)
        hit = _Hit(chosen.name, str(case), PRODUCTS_FAULT, "", chosen.answers, chosen)
        return self._judged(hit, root, self._reference(0, Change()))

    def _change(self, chosen: FaultClass, case: Case, size: str) -> Outcome | None:
        drawn = drawn_change(chosen.kind, size, self._names(), self._random)
        if drawn is None:
            return None
        change, name = drawn
        root, _ = self._device(case, 0, change, "")
        both = change if chosen.kind == "nan_batch" else Change()
        hit = _Hit(chosen.name, str(case), f"{chosen.kind} {size} of {name}".replace("  ", " "), name, (), chosen)
        return self._judged(hit, root, self._reference(0, both, name if both.feeds else ""))

    def _names(self) -> dict[str, list[str]]:
        from engine.models import plain

        made = plain.build(self._batch.case.model, self._batch.case.resource)
        return {
            "integers": [t.op.name for t in made.placeholders if t.dtype.is_integer],
            "floats": [t.op.name for t in made.placeholders if t.dtype.is_floating and "label" not in t.op.name],
            "random": [op.name for op in made.graph.get_operations() if op.type == "RandomUniform"],
            **variable_names(list(made.variables)),
        }

    def _graph(self, case: Case) -> Any:  # noqa: ANN401
        if case.numerics not in self._graphs:
            root, device = self._device(case, 0, Change(), "")
            clear(root)
            self._graphs[case.numerics] = device.graphs[0]
        return self._graphs[case.numerics]

    def _device(self, case: Case, step: int, change: Change, fault: str) -> tuple[Path, EmulatedDevice]:
        self._number += 1
        root = self._folder / f"device{self._number}"
        try:
            device = dump_device(case, root, step, change, fault=fault, seed=self._batch.seed + self._number)
        except BaseException:
            clear(root)
            raise
        return root, device

    def _reference(self, step: int, change: Change, name: str = "") -> tuple[Any, Any]:
        """The golden dump and its graph, recorded the first time it is wanted."""
        key = (step, name)
        if key not in self._golden:
            from precision_tool.workbench import Workbench

            root = self._folder / f"golden{len(self._golden)}"
            record_golden(self._batch.case, root, step, change)
            workbench = Workbench(replace(Settings(), root_dir=root))
            run = workbench.last_reference_run()
            if run is None:
                raise AssertionError(f"{root}: the golden side recorded nothing")
            dump = workbench.read_dump(run)
            self._golden[key] = dump, dump.graph
        return self._golden[key]

    def _judged(self, hit: _Hit, root: Path, golden: tuple[Any, Any]) -> Outcome:
        from compare.pairing import pair_dumps
        from precision_tool.bench.fault_rivals import first_disliked

        start = time.perf_counter()
        verdict, left, graph = self._verdict(root, golden)
        seconds = time.perf_counter() - start
        disliked = first_disliked(pair_dumps(left, golden[0], graph))
        outcome = hit.outcome(verdict, graph, disliked, seconds)
        clear(root)
        return outcome

    @staticmethod
    def _verdict(root: Path, golden: tuple[Any, Any]) -> tuple[Verdict, Dump, Graph]:
        from compare.judge import judge
        from precision_tool.workbench import Workbench

        workbench = Workbench(replace(Settings(), root_dir=root))
        leaves, _ = workbench.latest_leaves()
        leaf = max(leaves, key=lambda one: len(workbench.read_dump(one)))
        left, graph = workbench.read_dump(leaf), workbench.graph_beside(leaf)
        if graph is None:
            raise AssertionError(f"{leaf}: no graph lies beside the dump")
        return judge(left, golden[0], left_graph=graph, right_graph=golden[1]), left, graph


@dataclass(frozen=True)
class _Hit:
    """What is done in a trial."""

    fault_class: str
    case: str
    fault: str
    target: str
    answers: tuple[str, ...]
    chosen: FaultClass | None = None

    def outcome(self, verdict: Verdict, graph: Graph, disliked: Mapping[str, str], seconds: float) -> Outcome:
        named = verdict.op or ""
        suspects = [named, *(s.op for s in verdict.suspects[:3])][:4]
        clean = self.chosen is None
        return Outcome(
            self.fault_class,
            self.case,
            self.fault,
            self.target,
            ("fine", "rounding") if clean else self._answers(graph),
            str(verdict.kind),
            named,
            named == "" if clean else self._is(named, graph),
            named == "" if clean else any(self._is(op, graph) for op in suspects),
            {rule: bool(op) if clean else self._is(op, graph) for rule, op in disliked.items()},
            seconds,
            str(verdict.evidence[0]["text"]) if verdict.evidence else "",
        )

    def _answers(self, graph: Graph) -> tuple[str, ...]:
        from compare.table_names import table_of

        if self.answers or self.chosen is None:
            return self.answers
        op = graph.ops.get(self.target)
        return self.chosen.answers if op is None else right_answers(self.chosen, op, table_of(op, graph))

    def _is(self, name: str, graph: Graph) -> bool:
        """Whether an op is the one that was hit, or reads the variable or placeholder that was changed."""
        op = graph.ops.get(name)
        if op is None or self.chosen is None:
            return False
        if self.chosen.kind == "bfloat16":
            return op.type in ("MatMulV2", "BatchMatMulV2")
        if self.chosen.kind == "seed":
            return self.target in name
        if self.chosen.group:
            return name == self.target
        return self.target in set(_behind(op, graph))


def _behind(op: Op, graph: Graph) -> Iterator[str]:
    """Names of an op, of what it reads, and of the variables behind that."""
    from compare.table_names import variable_of

    yield from (op.name, *op.originals)
    for index, source in enumerate(op.inputs):
        producer = graph.ops.get(source.op)
        yield from (source.op, *(producer.originals if producer is not None else ()))
        variable = variable_of(op, index, graph)
        if variable is not None:
            yield from (variable.name, *variable.originals)


def spread(
    classes: Sequence[int], cases: Sequence[Case], per_class: int, seed: int, clean: int, several: int = 0
) -> list[Batch]:
    """Deals trials onto models: each class ``per_class`` times, on another model each time.

    Args:
        classes: Numbers in :data:`CLASSES`.
        cases: Models and kinds of variables.
        per_class: Trials of each class.
        seed: Shifts who gets what.
        clean: Pairs without a fault of each model.
        several: Steps with several faults of each model.
    """
    wanted: dict[int, list[int]] = {number: [] for number in range(len(cases))}
    for place, chosen in enumerate(classes):
        for turn in range(per_class):
            wanted[(seed + place * 7 + turn * 5) % len(cases)].append(chosen)
    return [Batch(case, seed, tuple(wanted[number]), clean, several) for number, case in enumerate(cases)]

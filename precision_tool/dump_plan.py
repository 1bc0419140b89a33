"""What recording a step takes: its tensors and bytes, what a selection keeps of them, and the cut set of a budget."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.capture.plan import How, Taken
from dumpers.errors import DataError, UsageError
from dumpers.formats.lowfloat import stored_bytes
from dumpers.formats.tf_record import RECORD_FILE, TextSource, read_tf_record
from precision_tool.cut_set import CutSet, choose_cut

if TYPE_CHECKING:
    from dumpers.capture.selection import Selection
    from dumpers.graph import Graph
    from dumpers.records import Dump, TensorRecord

HANDLES = frozenset({"resource", "variant", "undefined"})
CONSTANTS = frozenset({"Const"})
"""Op types that are never suspects: their value is in the graph."""

DEFAULT_CUT = "2%"


@dataclass(frozen=True)
class StepTensor:
    """One output of an executed op.

    Attributes:
        taken: Its name, op and dtype, as a selection sees them.
        size_bytes: Of all its values of the step; a tensor in a loop has several.
    """

    taken: Taken
    size_bytes: int


@dataclass(frozen=True)
class OpTypeShare:
    """What the ops of one type take: tensors, bytes, and bytes as a share of all."""

    op_type: str
    tensors: int
    size_bytes: int
    share: float


@dataclass(frozen=True)
class Cut:
    """A cut set, by name.

    Attributes:
        budget: Most bytes it was allowed.
        names: ``op:output`` of the chosen tensors, in order of execution.
        size_bytes: Of their values.
        ops: Executed ops of the step that have a value and are no constants.
        largest_region, median_region: How many ops the first chosen tensor that differs leaves to suspect.
        unseen: Ops that lead to none of them.
    """

    budget: int
    names: tuple[str, ...]
    size_bytes: int
    ops: int
    largest_region: int
    median_region: float
    unseen: int


@dataclass(frozen=True)
class DumpPlan:
    """The plan of a step.

    Attributes:
        record: The record that it was read from.
        step: Number of the step, None if the record has none.
        tensors: All with a value, by name in order of execution.
        chosen: Those that the selection keeps within its budget.
        types: By op type, the largest first.
        cut: Made of the chosen ones.
        selection: The settings that chose what the record itself has, by name; empty if it has all.
    """

    record: Path
    step: int | None
    tensors: tuple[StepTensor, ...]
    chosen: tuple[StepTensor, ...]
    types: tuple[OpTypeShare, ...]
    cut: Cut
    selection: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Of all tensors; one that shares the memory of another counts again."""
        return sum(tensor.size_bytes for tensor in self.tensors)


def make_dump_plan(record: Path, selection: Selection, cut: str = DEFAULT_CUT) -> DumpPlan:
    """Reads a recorded step, values or shapes alone, and plans.

    Args:
        record: A ``run_*`` folder.
        selection: What is wanted.
        cut: Bytes of the cut set: ``64M``, or ``2%`` of the step's.

    Raises:
        DataError: no record, or one without a graph or a tensor with a size.
        UsageError: ``cut`` is neither bytes nor a share.
    """
    dump = read_tf_record(record)
    if dump.graph is None:
        raise DataError(f"{record}: has no graph, so nothing can be planned; record the step again")
    tensors = _tensors(dump)
    if not tensors:
        raise DataError(f"{record}: has no tensor of known size; record the step with TF_DUMP_MODE=shapes")
    total = sum(tensor.size_bytes for tensor in tensors)
    chosen = _within(selection, [tensor for tensor in tensors if selection.takes(tensor.taken)])
    return DumpPlan(
        record,
        next((found.step for found in dump.records if found.step is not None), None),
        tuple(tensors),
        tuple(chosen),
        _types(tensors, total),
        _cut(dump.graph, tensors, chosen, cut_bytes(cut, total)),
        _selection_of(record),
    )


def cut_bytes(text: str, total: int) -> int:
    """Parses ``2%`` of a total, or bytes as ``64M``.

    Raises:
        UsageError: it is neither.
    """
    from dumpers.capture.selection import parse_bytes

    if not text.strip().endswith("%"):
        return parse_bytes("--cut", text)
    try:
        share = float(text.strip()[:-1])
    except ValueError:
        share = math.nan
    if not 0 < share <= 100:
        raise UsageError(f"--cut {text[:60]!r}: give a share above 0 % and up to 100 %, or bytes as 64M")
    return int(total * share / 100)


def _selection_of(record: Path) -> dict[str, str]:
    """What the manifest says of the settings that chose its tensors."""
    found = json.loads((record / RECORD_FILE).read_bytes()).get("selection")
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}


def _tensors(dump: Dump) -> list[StepTensor]:
    """All tensors with a value; a name that is there several times is a tensor in a loop."""
    sizes: dict[str, int] = {}
    first: dict[str, Taken] = {}
    for moment, record in enumerate(dump.records):
        size = None if record.dtype in HANDLES else _size(record)
        if size is None:
            continue
        name = f"{record.op}:{record.slot}"
        sizes[name] = sizes.get(name, 0) + size
        if name not in first:
            first[name] = Taken(
                name, record.op, record.slot, record.op_type, record.dtype, record.shape, moment, How.FETCH
            )
    return [StepTensor(taken, sizes[name]) for name, taken in first.items()]


def _size(record: TensorRecord) -> int | None:
    if record.size_bytes is not None:
        return record.size_bytes
    if record.shape is None:
        return None
    if record.dtype == "string":
        width = record.source.width if isinstance(record.source, TextSource) else None
        return None if width is None else width * math.prod(record.shape)
    try:
        return stored_bytes(record.dtype, math.prod(record.shape))
    except ValueError:
        return None


def _within(selection: Selection, wanted: Iterable[StepTensor]) -> list[StepTensor]:
    """Those of a wanted size, the smallest first as far as the budget goes, in order of execution.

    Each is counted for itself. A run pays once for tensors that share memory, so its budget may reach a little further.
    """
    largest = math.inf if selection.largest is None else selection.largest
    fitting = [tensor for tensor in wanted if selection.smallest <= tensor.size_bytes <= largest]
    if selection.budget is None:
        return fitting
    left, kept = selection.budget, set()
    for tensor in sorted(fitting, key=lambda tensor: tensor.size_bytes):
        if tensor.size_bytes > left:
            break
        left -= tensor.size_bytes
        kept.add(tensor.taken.name)
    return [tensor for tensor in fitting if tensor.taken.name in kept]


def _types(tensors: Sequence[StepTensor], total: int) -> tuple[OpTypeShare, ...]:
    counts: dict[str, list[int]] = {}
    for tensor in tensors:
        found = counts.setdefault(tensor.taken.op_type or "-", [0, 0])
        found[0] += 1
        found[1] += tensor.size_bytes
    shares = (OpTypeShare(name, n, size, size / total if total else 0.0) for name, (n, size) in counts.items())
    return tuple(sorted(shares, key=lambda share: (-share.size_bytes, -share.tensors, share.op_type)))


def _cut(graph: Graph, tensors: Sequence[StepTensor], chosen: Sequence[StepTensor], budget: int) -> Cut:
    """The cut set over the executed ops, in order of execution; what is chosen of an op is chosen as a whole."""
    ops = list(dict.fromkeys(t.taken.op for t in tensors if t.taken.op_type not in CONSTANTS))
    position = {op: index for index, op in enumerate(ops)}
    names: dict[int, list[str]] = {}
    sizes: dict[int, int] = {}
    for tensor in chosen:
        at = position.get(tensor.taken.op)
        if at is None:
            continue
        names.setdefault(at, []).append(tensor.taken.name)
        sizes[at] = sizes.get(at, 0) + tensor.size_bytes
    found = choose_cut(_inputs(graph, position), sizes, budget)
    return _named(found, names, len(ops), budget)


def _named(found: CutSet, names: Mapping[int, Sequence[str]], ops: int, budget: int) -> Cut:
    return Cut(
        budget,
        tuple(name for at in found.chosen for name in names[at]),
        found.size_bytes,
        ops,
        max(found.regions, default=0),
        statistics.median(found.regions) if found.regions else 0.0,
        found.unseen,
    )


def _inputs(graph: Graph, position: Mapping[str, int]) -> list[list[int]]:
    """Which ops each op reads, through those without a tensor of their own (handles); loops are cut open."""
    through: dict[str, frozenset[int]] = {}
    found: list[list[int]] = []
    for op, at in position.items():
        sources = [source.op for source in graph.ops[op].inputs] if op in graph.ops else []
        reached = frozenset[int]().union(*(_reached(graph, source, position, through) for source in sources))
        found.append(sorted(index for index in reached if index < at))
    return found


def _reached(graph: Graph, start: str, position: Mapping[str, int], known: dict[str, frozenset[int]]) -> frozenset[int]:
    """Positions of the ops that an op stands for: itself, or what it reads where it has no tensor with a value."""
    if start in position:
        return frozenset((position[start],))
    if start not in known:
        found, waiting, visited = set(), [start], {start}
        while waiting:
            name = waiting.pop()
            if name in position:
                found.add(position[name])
                continue
            for source in graph.ops[name].inputs if name in graph.ops else ():
                if source.op not in visited:
                    visited.add(source.op)
                    waiting.append(source.op)
        known[start] = frozenset(found)
    return known[start]

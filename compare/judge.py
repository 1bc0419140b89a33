"""How a verdict is reached: the isolation procedure over one or two dumps.

In this order, the first that finds something decides: (1) both sides were fed the same; (2) no tensor of the left side
changed between writer and reader, every op of it is within its rounding bound; (3) the same for the right side;
(4) the same weights; (5) nothing that could not be replayed differs from equal inputs. Then what is left is rounding,
or nothing at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compare.blame import Blame, blame
from compare.bounds import RATIO_LIMIT
from compare.evidence import advice, confidence, difference_row, local_row, suspect
from compare.isolation import Examination, OpCheck, Overwrite, examine
from compare.metrics import compare_arrays
from compare.nan_origin import find_nan_origin
from compare.op_lookup import OpLookup, size_bytes
from compare.pairing import pair_dumps
from compare.preflight import (
    Difference,
    Partners,
    difference,
    is_random,
    unequal_feeds,
    unequal_weights,
    unjudged_differences,
)
from compare.verdict import Kind, Skipped, Suspect, Verdict
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.pairing import Pairing
    from dumpers.graph import Graph
    from dumpers.records import Dump, TensorRecord

Progress = Callable[[str, int, int], None]

USERS_THRESHOLD = 0.98
"""The cosine that users look for; quoted in evidence, never decisive."""

_MODE_SOURCES = 3
"""From so many sources with one signature on, the arithmetic is named instead of each op."""


@dataclass(frozen=True)
class _Case:
    """One judgement in progress."""

    left: Dump
    right: Dump | None
    left_graph: Graph | None
    right_graph: Graph | None
    pairing: Pairing | None
    partners: Partners | None
    step: int | None


def judge(
    left: Dump,
    right: Dump | None = None,
    *,
    left_graph: Graph | None = None,
    right_graph: Graph | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Says what makes ``left`` (the device under test) differ from ``right`` (the reference).

    Without ``right`` the left side is examined alone. Graphs default to those of the dumps. Without a graph of a side,
    nothing of that side can be replayed; the verdict then rests on equal inputs with unequal outputs and says so.
    """
    left_graph = left_graph or left.graph
    left = _in_full(left, left_graph)
    if right is not None:
        right_graph = right_graph or right.graph
        right = _in_full(right, right_graph)
    pairing = pair_dumps(left, right, left_graph) if right is not None else None
    case = _Case(left, right, left_graph, right_graph, pairing, Partners(pairing) if pairing else None, _step(left))
    unpaired = tuple(Skipped(u.tensor, u.reason) for u in pairing.unpaired) if pairing else ()
    verdict = _of_feeds(case)
    if verdict is None:
        verdict = _of_sides(case, threads, progress)
    return replace(verdict, step=case.step, skipped=(*_problems(case), *verdict.skipped, *unpaired))


def _in_full(dump: Dump, graph: Graph | None) -> Dump:
    """Gives records that only know a file-name form the op's full name, where the graph has one op of it."""
    if graph is None or all(name in graph.ops for name in dump.by_op):
        return dump
    lookup = OpLookup(graph)
    full = {name: op.name for name in dump.by_op if (op := lookup.find(name, dump.by_op[name][0].op_type)) is not None}
    return replace(dump, records=tuple(replace(r, op=full.get(r.op, r.op)) for r in dump))


def _of_feeds(case: _Case) -> Verdict | None:
    if case.right is None:
        return None
    found = list(unequal_feeds(case.left, case.right, case.left_graph))
    if not found:
        return None
    first = found[0]
    rows = [difference_row(d, "The two sides were not fed the same") for d in found]
    return Verdict(
        Kind.DATA,
        op=first.right.op,
        op_type=first.right.op_type or None,
        tensor=first.right.name,
        evidence=tuple(rows),
        next=("Feed both sides the same batch (same file, order, shuffle seed), dump again.",),
        compared_bytes=sum(size_bytes(d.left) for d in found),
    )


def _of_sides(case: _Case, threads: int | None, progress: Progress | None) -> Verdict:
    judged: list[Examination] = []
    for side, dump, graph in (("left", case.left, case.left_graph), ("right", case.right, case.right_graph)):
        if dump is None or graph is None:
            continue
        exam = examine(dump, graph, threads=threads, progress=partial(progress, f"replay {side}") if progress else None)
        judged.append(exam)
        verdict = _of_examination(case, exam, dump, graph, side)
        if verdict is not None:
            return verdict
    return _of_differences(case, judged)


def _of_examination(case: _Case, exam: Examination, dump: Dump, graph: Graph, side: str) -> Verdict | None:
    sources = exam.sources(RATIO_LIMIT)
    overwrites = exam.overwrites
    if not sources and not overwrites:
        return None
    base = Verdict(Kind.OPERATOR, side=side, compared_bytes=exam.judged_bytes, skipped=exam.skipped)
    if overwrites and (not sources or overwrites[0].position <= sources[0].position):
        return _overwritten(base, overwrites, sources)
    other = case.right if side == "left" else case.left
    blames = [_blame(check, dump, graph, other) for check in sources[:_BLAMED]]
    mode = _precision_mode(blames)
    verdict = _guilty(base, sources, blames)
    if mode is not None:
        text = f"{len(sources)} ops err alike: rounding their inputs to {mode} explains them; no side declares {mode}."
        row: Mapping[str, Any] = {"text": text, "arithmetic": mode, "ops": len(sources)}
        hint = f"Look for a setting that lets the device compute in {mode} (precision_mode, op_select_implmode, hf32)."
        verdict = replace(verdict, kind=Kind.PRECISION_MODE, evidence=(row, *verdict.evidence), next=(hint,))
    return replace(verdict, evidence=(*verdict.evidence, *_propagated(case, sources[0], side)))


_BLAMED = 20
"""Sources that are looked at closely; later ones are listed with their ratio."""


def _blame(check: OpCheck, dump: Dump, graph: Graph, other: Dump | None) -> Blame:
    try:
        return blame(check.op, dump, graph, other)
    except DataError:
        return Blame(Kind.OPERATOR)


def _guilty(base: Verdict, sources: Sequence[OpCheck], blames: Sequence[Blame]) -> Verdict:
    first, found = sources[0], blames[0]
    suspects = tuple(
        suspect(check, blames[i].member if i < len(blames) else None, base.side) for i, check in enumerate(sources)
    )
    worst = first.worst
    return replace(
        base,
        kind=found.kind,
        op=first.op.name,
        op_type=first.op.type,
        tensor=f"{first.op.name}:output:{worst.slot}" if worst else None,
        table=found.table,
        keys=found.keys,
        keys_total=len(found.rows),
        confidence=confidence(first),
        evidence=(local_row(first), *found.evidence),
        next=advice(first, found),
        suspects=suspects,
    )


def _overwritten(base: Verdict, overwrites: Sequence[Overwrite], sources: Sequence[OpCheck]) -> Verdict:
    first = overwrites[0]
    mine = [o for o in overwrites if o.producer.name == first.producer.name]
    rows = []
    for found in mine:
        text = (
            f"{found.consumer} read other bytes as input {found.index} than {found.producer.name} wrote as output "
            f"{found.slot}: {found.differing} of {found.elements} elements differ, the first at {found.first}."
        )
        rows.append(
            {
                "text": text,
                "producer": found.producer.name,
                "consumer": found.consumer,
                "input": found.index,
                "output": found.slot,
                "differing": found.differing,
                "elements": found.elements,
            }
        )
    names = dict.fromkeys((o.producer.name, o.producer.type) for o in overwrites)
    suspects = [Suspect(n, t, base.side, note="read differs from what was written") for n, t in names]
    return replace(
        base,
        kind=Kind.MEMORY_OVERWRITTEN,
        op=first.producer.name,
        op_type=first.producer.type,
        tensor=f"{first.producer.name}:output:{first.slot}",
        evidence=tuple(rows),
        next=(
            f"Something wrote into the output of {first.producer.name} before {first.consumer} read it: look at ops "
            "that run in between on other streams and at memory reuse.",
        ),
        suspects=(*suspects, *(suspect(check, None, base.side) for check in sources)),
    )


def _of_differences(case: _Case, judged: Sequence[Examination]) -> Verdict:
    size = sum(exam.judged_bytes for exam in judged)
    skipped = tuple(s for exam in judged for s in exam.skipped)
    base = Verdict(Kind.FINE, compared_bytes=size, skipped=skipped)
    if case.right is None or case.partners is None or case.pairing is None:
        return (_not_finite(case, base) or base) if judged else _nothing_to_judge(base)
    if not case.pairing.pairs:
        return _nothing_to_judge(base)
    weights = next((d for d in unequal_weights(case.left, case.left_graph, case.partners) if d.beyond_noise), None)
    if weights is not None:
        return _unequal_weights(base, weights)
    replayed = frozenset(c.op.name for exam in judged[:1] for c in exam.checks if not c.reason)
    found = [d for d in unjudged_differences(case.left, replayed, case.partners) if d.beyond_noise]
    if found:
        return _unreplayed(base, found, bool(judged))
    not_finite = _not_finite(case, base)
    if not_finite is not None:
        return not_finite
    if all(_equal(p.left, p.right) for p in case.pairing.pairs):
        return base
    text = "Outputs differ, and every op that could be run again is within its rounding bound."
    ratios = [c.ratio for exam in judged for c in exam.checks if c.ratio is not None]
    largest = max(ratios, default=0.0)
    row: Mapping[str, Any] = {"text": f"{text} Largest ratio of error to bound: {largest:.2g}.", "ratio": largest}
    if not judged:
        return replace(base, kind=Kind.UNKNOWN, confidence=0.3, evidence=(_no_graph_row(),), next=(_GIVE_GRAPH,))
    return replace(base, kind=Kind.ROUNDING, evidence=(row,))


def _not_finite(case: _Case, base: Verdict) -> Verdict | None:
    """A NaN that every op passes on correctly is still a finding: the data brought it, or the arithmetic makes it."""
    origin = find_nan_origin(case.left, case.left_graph)
    if origin is None:
        return None
    return replace(
        base,
        kind=Kind.NAN_INPUT,
        op=origin.op,
        op_type=origin.op_type or None,
        tensor=origin.record.name,
        confidence=0.9,
        evidence=tuple({"text": line} for line in origin.explanation),
        next=(f"`nan` shows the way of the {origin.kind}; mend the data or guard {origin.op}.",),
    )


_GIVE_GRAPH = "Give the graph of the device run (ge_proto_*_Build.txt or its json), so that ops can be run again."


def _no_graph_row() -> Mapping[str, Any]:
    return {"text": "Outputs differ within what rounding might do, but without a graph no op could be run again."}


def _nothing_to_judge(base: Verdict) -> Verdict:
    text = "No tensor of one side has a partner on the other, and no graph is there to run ops again."
    return replace(base, kind=Kind.NOT_COMPARABLE, confidence=1.0, evidence=({"text": text},), next=(_GIVE_GRAPH,))


def _unequal_weights(base: Verdict, found: Difference) -> Verdict:
    return replace(
        base,
        kind=Kind.CHECKPOINT,
        op=found.left.op,
        op_type=found.left.op_type or None,
        tensor=found.left.name,
        confidence=0.9,
        evidence=(difference_row(found, "The two sides did not start from the same weights"),),
        next=("Load the same checkpoint on both sides, or initialise with the same seed, and dump again.",),
    )


def _unreplayed(base: Verdict, found: Sequence[Difference], with_graph: bool) -> Verdict:
    first = found[0]
    random = is_random(first.left.op_type) or is_random(first.left.op)
    rows = tuple(difference_row(d, "Equal inputs, unequal output, and the op cannot be run again") for d in found[:10])
    hint = (
        "Fix the seeds on both sides (precision_tool.tf_config does) and dump again."
        if random
        else f"Run {first.left.op} on the CPU with the dumped inputs."
        if with_graph
        else _GIVE_GRAPH
    )
    return replace(
        base,
        kind=Kind.RANDOMNESS if random else Kind.OPERATOR,
        op=first.left.op,
        op_type=first.left.op_type or None,
        tensor=first.left.name,
        confidence=0.7,
        evidence=rows,
        next=(hint,),
        suspects=tuple(
            Suspect(d.left.op, d.left.op_type, note="equal inputs, unequal output; not replayable") for d in found
        ),
    )


def _propagated(case: _Case, check: OpCheck, side: str) -> list[Mapping[str, Any]]:
    """What the users' rule makes of the guilty op."""
    worst = check.worst
    if side != "left" or case.partners is None or worst is None:
        return []
    record = case.left.tensor(check.op.name, "output", worst.slot)
    partner = case.partners.of(record) if record is not None else None
    if record is None or partner is None:
        return []
    try:
        figures = compare_arrays(record.load(), partner.load())
    except DataError:
        return []
    if figures.cosine is None:
        why = figures.reasons.get("CosineSimilarity", "undefined")
        return [{"text": f"Cosine of this output against the reference: undefined ({why}).", "cosine": None}]
    seen = figures.cosine < USERS_THRESHOLD
    text = f"Cosine of this output against the reference is {figures.cosine:.6f}: the {USERS_THRESHOLD} rule " + (
        "sees it." if seen else "does not see it."
    )
    return [{"text": text, "cosine": figures.cosine, "seen_by_threshold": seen}]


def _precision_mode(blames: Sequence[Blame]) -> str | None:
    """Names the arithmetic if most of several sources bear its signature."""
    counts = Counter(b.arithmetic for b in blames if b.arithmetic)
    if len(blames) < _MODE_SOURCES or not counts:
        return None
    name, count = counts.most_common(1)[0]
    return name if count >= max(_MODE_SOURCES, 0.8 * len(blames)) else None


def _equal(left: TensorRecord, right: TensorRecord) -> bool:
    try:
        return difference(left, right) is None
    except DataError:
        return True  # Listed by the sweep as unreadable; no reason to call the rest different.


def _problems(case: _Case) -> tuple[Skipped, ...]:
    return tuple(
        Skipped(str(problem.path), problem.reason)
        for side in (case.left, case.right)
        if side is not None
        for problem in side.problems
    )


def _step(dump: Dump) -> int | None:
    steps = {record.step for record in dump if record.step is not None}
    return min(steps) if steps else None

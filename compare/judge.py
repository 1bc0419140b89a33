"""How a verdict is reached: the isolation procedure over one or two dumps.

In this order, the first that finds something decides: (1) both sides were fed the same; (2) no tensor of the left side
changed between writer and reader, every op of it is within its rounding bound; (3) the same for the right side;
(4) the same weights; (5) nothing that could not be replayed differs from equal inputs (:mod:`compare.conclusion`). Then
what is left is rounding, or nothing at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compare.blame import Blame, blame
from compare.bounds import RATIO_LIMIT
from compare.conclusion import SHOWN, Sides, assumed_rows, conclude, not_finite, nothing_to_judge
from compare.evidence import advice, confidence, difference_row, local_row, overwrite_row, suspect
from compare.isolation import WITHOUT_TASK, Examination, OpCheck, Overwrite, examine
from compare.metrics import compare_arrays
from compare.op_lookup import OpLookup, size_bytes
from compare.pairing import pair_dumps
from compare.preflight import Partners, unequal_feeds
from compare.verdict import Kind, Skipped, Suspect, Verdict
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.measured import Watch
    from compare.pairing import Pairing
    from dumpers.graph import Graph
    from dumpers.records import Dump

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
    watch: Watch | None = None


def judge(
    left: Dump,
    right: Dump | None = None,
    *,
    left_graph: Graph | None = None,
    right_graph: Graph | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Verdict:
    """Says what makes ``left`` (the device under test) differ from ``right`` (the reference).

    Without ``right`` the left side is examined alone. Graphs default to those of the dumps. Without a graph of a side,
    nothing of that side can be replayed; the verdict then rests on equal inputs with unequal outputs and says so.
    ``watch`` is told what is paired and measured on the way; the verdict is the same with and without.
    """
    left_graph = left_graph or left.graph
    left = _in_full(left, left_graph)
    if right is not None:
        right_graph = right_graph or right.graph
        right = _in_full(right, right_graph)
    pairing = pair_dumps(left, right, left_graph) if right is not None else None
    partners = Partners(pairing) if pairing else None
    case = _Case(left, right, left_graph, right_graph, pairing, partners, _step(left), watch)
    if watch is not None and pairing is not None:
        watch.paired(left, pairing)
    # An op without any tensor (a constant, a variable) is no gap; everything that is a tensor stays.
    missing = [u for u in pairing.unpaired if u.record or u.op_type not in WITHOUT_TASK] if pairing else []
    unpaired = tuple(Skipped(u.tensor, u.reason) for u in missing)
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
    found = list(unequal_feeds(case.left, case.right, case.left_graph, case.right_graph))
    if not found:
        return None
    op, first = found[0]
    rows = [difference_row(d, "The two sides were not fed the same") for _, d in found]
    return Verdict(
        Kind.DATA,
        op=op.name,
        op_type=op.type,
        tensor=first.right.name if first.right.op in op.originals else f"{op.name}:output:0",
        evidence=tuple(rows),
        next=("Feed both sides the same batch (same file, order, shuffle seed), dump again.",),
        compared_bytes=sum(size_bytes(d.left) for _, d in found),
    )


def _of_sides(case: _Case, threads: int | None, progress: Progress | None) -> Verdict:
    exams: dict[str, Examination] = {}
    for side, dump, graph in (("left", case.left, case.left_graph), ("right", case.right, case.right_graph)):
        if dump is None or graph is None:
            continue
        other = case.right if side == "left" else case.left
        told = partial(progress, f"replay {side}") if progress else None
        exams[side] = exam = examine(dump, graph, lender=other, threads=threads, progress=told)
        if case.watch is not None:
            case.watch.examined(side, exam)
        verdict = _of_examination(case, exam, dump, graph, side)
        if verdict is not None:
            return replace(_with(verdict, assumed_rows({side: exam})), replayed=_replayed(exams))
    return replace(_of_differences(case, exams), replayed=_replayed(exams))


def _replayed(exams: Mapping[str, Examination]) -> tuple[int, int]:
    checks = [check for exam in exams.values() for check in exam.checks]
    return sum(check.replayed_bytes for check in checks), sum(check.written_bytes for check in checks)


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
    if overwrites:
        verdict = _with(verdict, [overwrite_row(found) for found in overwrites[:SHOWN]])
        verdict = replace(verdict, suspects=(*verdict.suspects, *_spoilt(overwrites, side)))
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
    suspects = _spoilt(overwrites, base.side)
    return replace(
        base,
        kind=Kind.MEMORY_OVERWRITTEN,
        op=first.producer.name,
        op_type=first.producer.type,
        tensor=f"{first.producer.name}:output:{first.slot}",
        evidence=tuple(overwrite_row(found) for found in mine),
        next=(
            f"Something wrote into the output of {first.producer.name} before {first.consumer} read it: look at ops "
            "that run in between on other streams and at memory reuse.",
        ),
        suspects=(*suspects, *(suspect(check, None, base.side) for check in sources)),
    )


def _spoilt(overwrites: Sequence[Overwrite], side: str) -> list[Suspect]:
    """The producers whose output was read otherwise than written, each once."""
    names = dict.fromkeys((o.producer.name, o.producer.type) for o in overwrites)
    return [Suspect(n, t, side, note="read differs from what was written") for n, t in names]


def _of_differences(case: _Case, exams: Mapping[str, Examination]) -> Verdict:
    judged = exams.values()
    base = Verdict(
        Kind.FINE,
        compared_bytes=sum(exam.judged_bytes for exam in judged),
        skipped=tuple(s for exam in judged for s in exam.skipped),
    )
    if case.right is None or case.pairing is None:
        alone = not_finite(base, case.left, case.left_graph) or base
        return _with(alone, assumed_rows(exams)) if exams else nothing_to_judge(base)
    sides = Sides(case.left, case.right, case.left_graph, case.right_graph, exams, case.pairing, case.step)
    return _with(conclude(sides, base), assumed_rows(exams))


def _with(verdict: Verdict, rows: Sequence[Mapping[str, Any]]) -> Verdict:
    return replace(verdict, evidence=(*verdict.evidence, *rows))


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

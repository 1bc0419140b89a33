"""The verdict when no op is above its bound: weights, random numbers, ops that could not be run again, or rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.evidence import difference_row
from compare.nan_origin import find_nan_origin
from compare.preflight import Difference, Partners, unequal_weights, unrelated
from compare.unexplained import Side, Unexplained, unexplained
from compare.verdict import Kind, Suspect, Verdict
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.isolation import Examination
    from compare.pairing import Pairing
    from dumpers.graph import Graph
    from dumpers.records import Dump

GIVE_GRAPH = "Give the graph of the device run (ge_proto_*_Build.txt or its json), so that ops can be run again."

SHOWN = 10
"""Differences that stand in the evidence one by one."""

FEW_STEPS = 10
"""Up to this step honest weights keep something in common (docs/decisions/0005)."""

_SUSPECTED = "equal inputs, unequal output; not replayable"


@dataclass(frozen=True)
class Sides:
    """Both sides after their examination.

    Attributes:
        examinations: By side (``left``, ``right``); a side without a graph has none.
        step: Training step, None if the dumps do not tell.
    """

    left: Dump
    right: Dump
    left_graph: Graph | None
    right_graph: Graph | None
    examinations: Mapping[str, Examination]
    pairing: Pairing
    step: int | None

    def side(self, name: str) -> Side:
        """Returns one side with the ops that were judged there."""
        exam = self.examinations.get(name)
        judged = frozenset(c.op.name for c in exam.checks if c.ratio is not None) if exam else frozenset()
        dump, graph = (self.left, self.left_graph) if name == "left" else (self.right, self.right_graph)
        return Side(name, dump, graph, judged)


def conclude(sides: Sides, base: Verdict) -> Verdict:
    """Decides between ``fine``, ``rounding`` and what can be wrong without any op being caught at it."""
    if not sides.pairing.pairs:
        return nothing_to_judge(base)
    found_weights = unequal_weights(sides.left, sides.left_graph, Partners(sides.pairing), sides.right)
    weights = [d for d in found_weights if d.beyond_noise]
    found = unexplained(sides.side("left"), sides.side("right"), sides.pairing)
    return (
        _of_data(base, found)
        or _of_weights(base, weights, sides)
        or _of_sources(base, found, bool(sides.examinations))
        or not_finite(base, sides.left, sides.left_graph)
        or _of_unknown(base, found)
        or _clean(base, found, weights, sides)
    )


def nothing_to_judge(base: Verdict) -> Verdict:
    """The verdict on two dumps that have nothing in common."""
    text = "No tensor of one side has a partner on the other, and no graph is there to run ops again."
    return replace(base, kind=Kind.NOT_COMPARABLE, confidence=1.0, evidence=({"text": text},), next=(GIVE_GRAPH,))


def not_finite(base: Verdict, dump: Dump, graph: Graph | None) -> Verdict | None:
    """A NaN that every op passes on correctly is still a finding: the data brought it, or the arithmetic makes it."""
    origin = find_nan_origin(dump, graph)
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


def assumed_rows(examinations: Mapping[str, Examination]) -> list[Mapping[str, Any]]:
    """Says of a device dump that holds outputs only that what was read had to be taken from what was written."""
    rows: list[Mapping[str, Any]] = []
    for name, exam in examinations.items():
        assumed = [check.op.name for check in exam.checks if check.assumed_inputs]
        if assumed and exam.outputs_only:
            text = (
                f"The dump of the {name} side holds outputs only: {len(assumed)} ops were run again from what their "
                "producers wrote (constants from the other side). An overwritten tensor cannot be seen that way; "
                "dump_mode=all shows it."
            )
            rows.append({"text": text, "side": name, "assumed_inputs": len(assumed)})
    return rows


def _of_data(base: Verdict, found: Unexplained) -> Verdict | None:
    if found.data:
        hint = "Feed both sides the same batch (same file, order, shuffle seed), dump again."
        return _named(base, Kind.DATA, found.data, "The two sides read different batches", (0.9, hint))
    if found.random:
        hint = "Fix the seeds on both sides (precision_tool.tf_config does) and dump again."
        return _named(base, Kind.RANDOMNESS, found.random, "The two sides drew different random numbers", (0.8, hint))
    return None


def _of_weights(base: Verdict, weights: Sequence[Difference], sides: Sides) -> Verdict | None:
    """Other weights are a finding at the first step, later only where they have nothing in common (decision 0005)."""
    what = "The two sides did not start from the same weights"
    hint = "Load the same checkpoint on both sides, or initialise with the same seed, and dump again."
    if not weights:
        return None
    if sides.step != 0:
        if not unrelated(weights):
            return None
        text = f"{what} (most of what differs has nothing in common)"
        if sides.step is not None and sides.step <= FEW_STEPS:
            return _named(base, Kind.CHECKPOINT, weights, text, (0.6, hint))
        text = "The weights have nothing in common: another checkpoint, or the two trainings drifted apart"
        return _named(base, Kind.UNKNOWN, weights, text, (0.3, f"Dump step 0 as well. {hint}"))
    rows = _few_rows(weights[0], sides)
    if rows is not None:
        return _lookup(base, weights[0], rows, sides)
    return _named(base, Kind.CHECKPOINT, weights, what, (0.9, hint))


def _few_rows(found: Difference, sides: Sides) -> tuple[int, int] | None:
    """Differing and all rows of a lookup of which most rows are equal: then it is not the whole table."""
    op = sides.left_graph.ops.get(found.left.op) if sides.left_graph else None
    if op is None or "_embedding_table" not in op.attrs or found.differing is None:
        return None
    try:
        left, right = found.left.load(), found.right.load()
    except DataError:
        return None
    if left.shape != right.shape or left.ndim < 2:
        return None
    wrong = int(np.count_nonzero((left != right).reshape(len(left), -1).any(axis=1)))
    return (wrong, len(left)) if 2 * wrong <= len(left) else None


def _lookup(base: Verdict, found: Difference, rows: tuple[int, int], sides: Sides) -> Verdict:
    """A few rows of a table differ: the lookup's fault where it could not be run again, else nobody knows whose."""
    op = sides.left_graph.ops[found.left.op] if sides.left_graph else None
    table = str(op.attrs["_embedding_table"]) if op else None
    judged = found.left.op in sides.side("left").judged
    what = f"{rows[0]} of {rows[1]} rows that were fetched from {table} differ, for equal indices"
    hint = f"Dump the inputs of {found.left.op} too (dump_mode=all), and compare the table itself on both sides."
    kind = Kind.UNKNOWN if judged else Kind.TABLE_LOOKUP
    verdict = _named(base, kind, [found], what, (0.6, hint), accuse=not judged)
    return replace(verdict, table=table)


def _of_sources(base: Verdict, found: Unexplained, with_graph: bool) -> Verdict | None:
    if found.left:
        first = found.left[0].left.op
        hint = f"Run {first} on the CPU with the dumped inputs." if with_graph else GIVE_GRAPH
        what = "Equal inputs, unequal output, and the op cannot be run again"
        return _named(base, Kind.OPERATOR, found.left, what, (0.7, hint), accuse=True)
    if found.right:
        what = "Equal inputs, unequal output, and the left one is right"
        hint = f"Look at {found.right[0].right.op} on the reference side."
        right = [replace(d, left=d.right, right=d.left) for d in found.right]
        return replace(_named(base, Kind.OPERATOR, right, what, (0.8, hint), accuse=True, side="right"), side="right")
    if found.meaning:
        what = "Equal inputs, unequal output, and each side is right by its own graph: the graphs differ"
        hint = "Compare type and attributes of this op in both graphs (`ni`); dump the same model on both sides."
        return _named(base, Kind.NOT_COMPARABLE, found.meaning, what, (0.9, hint))
    return None


def _of_unknown(base: Verdict, found: Unexplained) -> Verdict | None:
    if not found.unknown:
        return None
    what = "Output beyond rounding, the op could not be run again, and its inputs are not known to be equal"
    hint = "Dump inputs and outputs (dump_mode=all) of these ops on the device, and all tensors of the reference."
    return _named(base, Kind.UNKNOWN, found.unknown, what, (0.3, hint))


def _clean(base: Verdict, found: Unexplained, weights: Sequence[Difference], sides: Sides) -> Verdict:
    if not found.differing:
        return base
    if not sides.examinations:
        text = "Outputs differ within what rounding might do, but without a graph no op could be run again."
        return replace(base, kind=Kind.UNKNOWN, confidence=0.3, evidence=({"text": text},), next=(GIVE_GRAPH,))
    checks = [c for exam in sides.examinations.values() for c in exam.checks]
    largest = max((c.ratio for c in checks if c.ratio is not None), default=0.0)
    text = (
        "Outputs differ, and every op that could be run again is within its rounding bound. "
        f"Largest ratio of error to bound: {largest:.2g}."
    )
    rows: list[Mapping[str, Any]] = [{"text": text, "ratio": largest}]
    if not weights:
        return replace(base, kind=Kind.ROUNDING, evidence=tuple(rows))
    known = sides.step is not None
    what = (
        f"Weights differ already before step {sides.step}; earlier steps can do that by rounding alone (an optimizer "
        "like Adam amplifies it), and only a dump of step 0 can exclude a fault there"
        if known
        else "Weights differ, and the dumps do not tell their step"
    )
    rows += [difference_row(d, what) for d in sorted(weights, key=lambda d: -(d.distance or 0.0))[:1]]
    hint = "Dump step 0 (TF_DUMP_STEP=0 and dump_step 0) as well."
    return replace(
        base, kind=Kind.ROUNDING if known else Kind.UNKNOWN, confidence=0.5, evidence=tuple(rows), next=(hint,)
    )


def _named(
    base: Verdict,
    kind: Kind,
    found: Sequence[Difference],
    what: str,
    how: tuple[float, str],
    *,
    accuse: bool = False,
    side: str = "left",
) -> Verdict:
    """A verdict that names the first of some differences; ``how`` is its confidence and what to do next."""
    first = found[0].left
    suspects = tuple(Suspect(d.left.op, d.left.op_type, side, note=_SUSPECTED) for d in found) if accuse else ()
    return replace(
        base,
        kind=kind,
        op=first.op,
        op_type=first.op_type or None,
        tensor=first.name,
        confidence=how[0],
        evidence=(*(difference_row(d, what) for d in found[:SHOWN]), *base.evidence),
        next=(how[1],),
        suspects=suspects,
    )

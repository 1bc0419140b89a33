"""Rows of evidence: what a person can check, each a sentence with the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compare.blame import Blame
from compare.bounds import RATIO_LIMIT
from compare.isolation import OpCheck, Overwrite, infinite
from compare.verdict import Kind, Suspect

if TYPE_CHECKING:
    from compare.preflight import Difference

Row = Mapping[str, Any]


def suspect(check: OpCheck, member: str | None, side: str) -> Suspect:
    """Returns the suspect of a source, with the figures of its worst output."""
    worst = check.worst
    note = ""
    if worst is not None and worst.non_finite:
        note = "NaN or infinity that the replay does not have"
    elif infinite(check.ratio):
        note = "an exact op: any differing bit counts"
    return Suspect(
        check.op.name,
        check.op.type,
        side,
        local_error=worst.max_error if worst else None,
        bound=worst.bound if worst else None,
        ratio=check.ratio,
        member=member,
        note=note,
    )


def local_row(check: OpCheck) -> Row:
    """Says what the op wrote, what it should have written, and what rounding explains."""
    worst = check.worst
    if worst is None:
        return {"text": f"{check.op.name} could not be judged."}
    place = list(worst.index) if worst.index is not None else []
    text = (
        f"Run again in float64 from the inputs it read, {check.op.name} should have written {worst.expected:.9g} at "
        f"{place} of output {worst.slot}; it wrote {worst.got:.9g}. "
    )
    if infinite(check.ratio):
        text += f"Rounding explains nothing there; {worst.differing} elements differ."
    else:
        text += (
            f"Rounding explains {worst.bound:.3g}: {check.ratio:.3g} times that. {worst.differing} elements are over."
        )
    if check.assumed_inputs:
        text += " (The dump lacks inputs of it; what their producers wrote was taken.)"
    return {
        "text": text,
        "op": check.op.name,
        "output": worst.slot,
        "index": place,
        "got": worst.got,
        "expected": worst.expected,
        "local_error": worst.max_error,
        "bound": worst.bound,
        "ratio": check.ratio,
        "differing": worst.differing,
    }


def overwrite_row(found: Overwrite) -> Row:
    """Says who read something else than what was written, and where."""
    text = (
        f"{found.consumer} read other bytes as input {found.index} than {found.producer.name} wrote as output "
        f"{found.slot}: {found.differing} of {found.elements} elements differ, the first at {found.first}."
    )
    return {
        "text": text,
        "producer": found.producer.name,
        "consumer": found.consumer,
        "input": found.index,
        "output": found.slot,
        "differing": found.differing,
        "elements": found.elements,
    }


def confidence(check: OpCheck) -> float:
    """Returns 1 where nothing may differ, else how far the ratio is above the limit, at least 0.5."""
    if check.ratio is None or infinite(check.ratio):
        return 1.0
    return max(0.5, 1.0 - RATIO_LIMIT / check.ratio)


def advice(check: OpCheck, found: Blame) -> tuple[str, ...]:
    """Says what to do next about a source."""
    if found.kind is Kind.FUSION:
        passes = ", ".join(check.op.pass_names) or "its fusion pass"
        return (f"Switch {passes} off in the fusion switch file (fusion_switch_file) and run again.",)
    if found.kind is Kind.TABLE_LOOKUP:
        return (
            f"Look at the row addresses of these keys of {found.table} on the device (lookup, tier swap, eviction).",
        )
    if found.kind is Kind.OPTIMIZER:
        return (
            f"Compare the optimizer's settings and slots of both sides; `replay {check.op.name}` shows the update.",
        )
    return (
        f"`replay {check.op.name}` shows the op alone; run it on the CPU or with op_select_implmode=high_precision.",
    )


def difference_row(found: Difference, what: str) -> Row:
    """Says which two tensors differ and by how much."""
    count = "shapes or types differ" if found.differing is None else f"{found.differing} of {found.elements} differ"
    distance = "" if found.distance is None else f", relative distance {found.distance:.3g}"
    return {
        "text": f"{what}: {found.left.name} against {found.right.name}, {count}{distance}.",
        "left": found.left.name,
        "right": found.right.name,
        "differing": found.differing,
        "elements": found.elements,
        "relative_distance": found.distance,
    }

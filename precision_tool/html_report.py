"""A verdict as one HTML file: what is wrong, the evidence, where the difference is born and where it is only carried.

The file needs nothing else: no script, no font, no picture from anywhere, and its own policy forbids them. The same
input gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compare.bounds import RATIO_LIMIT
from precision_tool.html_depth import carried_section, measured_section
from precision_tool.html_graph import Remark, draw
from precision_tool.html_style import POLICY, STYLE
from precision_tool.html_text import Value, element, number, safe, short, table

if TYPE_CHECKING:
    from compare.measured import Carried, Measured
    from compare.verdict import Suspect, Verdict
    from dumpers.graph import Graph

MEANINGS = {
    "fine": "Everything that was compared is equal.",
    "rounding": "The sides differ, and every operator that was run again is within what rounding explains.",
    "operator": "This operator's output does not follow from the inputs it read.",
    "fusion": "A fused operator lost a member of its chain.",
    "table_lookup": "Rows of an embedding table came back for the wrong keys, or as zeros.",
    "optimizer": "An optimizer's update does not follow from the gradient and the slots it read.",
    "memory_overwritten": "A consumer read other bytes than the producer wrote.",
    "upstream": "What the op was given is wrong already.",
    "nan_input": "A NaN or infinity came in with the data, or correct arithmetic makes it.",
    "precision_mode": "Many operators err alike, as an arithmetic that no side declares.",
    "data": "The two sides did not read the same batch.",
    "randomness": "The two sides drew different random numbers.",
    "nondeterminism": "Equal inputs do not give equal outputs on one side.",
    "checkpoint": "The two sides did not start from the same weights.",
    "not_comparable": "There is nothing to hold against each other.",
    "unknown": "There is not enough to tell.",
}

HEADLINE = 240
"""Characters of the large line; names are whole in the table below it."""

_REASONS = 8
"""Reasons why something was not judged that are counted by themselves."""

_KEYS = 50
"""Keys of a table that are listed."""


@dataclass(frozen=True)
class SideFacts:
    """What the report says of one dump.

    Attributes:
        name: ``left`` or ``right``.
        path: As it was given or found.
        tensors: Number of records.
        written: When the tensors were dumped, empty if the files do not tell.
    """

    name: str
    path: str
    tensors: int
    written: str = ""


@dataclass(frozen=True)
class Story:
    """What a report is made of.

    Attributes:
        verdict: The answer.
        sides: The dumps; empty where only a saved verdict is there.
        source: File of a saved verdict, empty otherwise.
        versions: Name -> version of what judged.
        notes: What was chosen, left out or damaged.
        measured: Ops that were run again, by side in order of execution; a side that was not examined is missing.
        unmeasured: By side how many ops could not be judged.
        carried: Outputs of both sides held against each other.
        graph: Graph of the side that is wrong.
    """

    verdict: Verdict
    sides: Sequence[SideFacts] = ()
    source: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    measured: Mapping[str, Sequence[Measured]] = field(default_factory=dict)
    unmeasured: Mapping[str, int] = field(default_factory=dict)
    carried: Sequence[Carried] = ()
    graph: Graph | None = None


def document(story: Story) -> str:
    """Returns the report as the text of an HTML file (ends with a line end, holds no lone surrogates)."""
    verdict = story.verdict
    title = f"{verdict.kind}: {short(verdict.op or 'no op', 60)} - PrecisionTool"
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        element("title", safe(title)),
        element("style", STYLE),
    ]
    body = [
        _head(story),
        _next(verdict),
        _evidence(verdict),
        _suspects(story),
        measured_section(story),
        carried_section(story),
        _graph(story),
        _coverage(story),
        _reading(),
    ]
    page = [element("head", "\n".join(["", *head, ""])), element("body", "\n".join(["", *body, ""]))]
    return "<!DOCTYPE html>\n" + element("html", "\n".join(["", *page, ""]), lang="en") + "\n"


# ------------------------------------------------------------------------------------------------------------ head


def _head(story: Story) -> str:
    verdict = story.verdict
    kind = element("span", safe(verdict.kind), class_="kind clean" if verdict.kind.clean else "kind")
    lines = [
        element("p", kind + " " + safe(MEANINGS[verdict.kind])),
        element("h1", safe(short(verdict.lines()[0], HEADLINE))),
    ]
    return element("header", "".join([*lines, _facts(_head_facts(story))]))


def _head_facts(story: Story) -> list[tuple[str, Value]]:
    verdict = story.verdict
    shown = ", ".join(map(str, verdict.keys[:_KEYS]))
    more = verdict.keys_total - len(verdict.keys[:_KEYS])
    facts: list[tuple[str, Value]] = [
        ("Operator", verdict.op),
        ("Type", verdict.op_type),
        ("Tensor", verdict.tensor),
        ("Table", verdict.table),
        ("Keys", f"{shown}{f' and {more} more' if more > 0 else ''}" if verdict.keys else None),
        ("Wrong side", None if verdict.kind.clean else verdict.side),
        ("Confidence", None if verdict.kind.clean else f"{verdict.confidence:.4g}"),
        ("Step", verdict.step),
    ]
    for side, role in zip(("left", "right"), ("Left (under test)", "Right (reference)"), strict=True):
        found = next((facts_of for facts_of in story.sides if facts_of.name == side), None)
        if found is not None:
            facts += [(role, found.path), ("", f"{found.tensors} tensors, {_written(found)}")]
    facts += [("Saved verdict", story.source or None)]
    told = {f"{side.name}: {side.path}" for side in story.sides}
    facts += [("Note", note) for note in story.notes if note not in told]
    return [*facts, ("Judged by", ", ".join(f"{name} {text}" for name, text in story.versions.items()) or None)]


def _written(side: SideFacts) -> str:
    return f"dumped {side.written}" if side.written else "the files do not tell when they were dumped"


def _facts(facts: Sequence[tuple[str, Value]]) -> str:
    told = [(name, value) for name, value in facts if value is not None]
    return element("dl", "".join(element("dt", safe(name)) + element("dd", safe(str(value))) for name, value in told))


def _next(verdict: Verdict) -> str:
    if not verdict.next:
        return ""
    steps = "".join(element("li", safe(step)) for step in verdict.next)
    return element("section", element("strong", "What to do next") + element("ol", steps), class_="next")


# ---------------------------------------------------------------------------------------------------------- tables


def _evidence(verdict: Verdict) -> str:
    heading = element("h2", "Evidence")
    if not verdict.evidence:
        return element("section", heading + element("p", "None: nothing that was looked at differs beyond rounding."))
    rows = [(at, str(row["text"]), _figures(row)) for at, row in enumerate(verdict.evidence, 1)]
    return element("section", heading + table("Findings", ("#", "Finding", "Figures"), rows).markup)


def _figures(row: Mapping[str, Any]) -> str:
    return "; ".join(f"{key} = {_figure(value)}" for key, value in row.items() if key != "text")


def _figure(value: object) -> str:
    if value is None or isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


SUSPECT_COLUMNS = ("#", "Place", "Op", "OpType", "Side", "LocalError", "Bound", "Ratio", "Member", "Note")


def _suspects(story: Story) -> str:
    suspects = story.verdict.suspects
    heading = element("h2", "Suspects")
    if not suspects:
        return element("section", heading + element("p", "No operator is accused."))
    places = {(op.side, op.op): op.position for ops in story.measured.values() for op in ops}
    rows = [_suspect_row(at, suspect, places) for at, suspect in enumerate(suspects, 1)]
    told = (
        f"Operators whose own error is above {RATIO_LIMIT:g} times what rounding explains, or that were caught "
        "otherwise (see the note); the first is the one that the verdict names."
    )
    more = "verdict --json lists all."
    made = table("Suspects in order of execution", SUSPECT_COLUMNS, rows, bad=frozenset({0}), more=more)
    return element("section", heading + element("p", safe(told)) + made.markup)


def _suspect_row(at: int, suspect: Suspect, places: Mapping[tuple[str, str], int]) -> tuple[Value, ...]:
    return (
        at,
        places.get((suspect.side, suspect.op)),
        suspect.op,
        suspect.op_type,
        suspect.side,
        suspect.local_error,
        suspect.bound,
        suspect.ratio,
        suspect.member,
        suspect.note or None,
    )


# ----------------------------------------------------------------------------------------------------------- graph


def _graph(story: Story) -> str:
    verdict = story.verdict
    heading = element("h2", "Around the operator")
    if verdict.op is None:
        return ""
    if story.graph is None or verdict.op not in story.graph.ops:
        what = "A saved verdict holds no graph" if story.source else "No graph of that side has the operator"
        return element("section", heading + element("p", safe(f"{what}: there is no picture of what is around it.")))
    drawing = draw(story.graph, verdict.op, _remarks(story))
    told = "Producers left, consumers right; dashed: an order without data. Pointing at a box shows its tensors."
    if drawing.cut:
        told += f" {drawing.cut} more ops are that near; the nearest {drawing.boxes} are drawn."
    caption = element("figcaption", safe(told))
    return element("section", heading + element("figure", drawing.svg + caption, class_="graph"))


def _remarks(story: Story) -> dict[str, Remark]:
    """Says in each box how the op fared, of the side that is wrong."""
    side = story.verdict.side
    remarks = {
        op.op: Remark(_ratio_words(op.ratio), "ok" if op.ratio <= RATIO_LIMIT else "bad")
        for op in story.measured.get(side, ())
    }
    for suspect in story.verdict.suspects:
        if suspect.side == side:
            remarks[suspect.op] = Remark(
                _ratio_words(suspect.ratio) if suspect.ratio is not None else suspect.note or "suspect", "bad"
            )
    if story.verdict.op is not None and story.verdict.op not in remarks:
        remarks[story.verdict.op] = Remark("named by the verdict", "bad")
    return remarks


def _ratio_words(ratio: float) -> str:
    if ratio == 0:
        return "no error"
    return f"error/bound {ratio:.3g}" if math.isfinite(ratio) else "error/bound infinite"


# -------------------------------------------------------------------------------------------------------- coverage


def _coverage(story: Story) -> str:
    verdict = story.verdict
    share = verdict.replayed_share
    rows: list[tuple[Value, ...]] = [
        ("Bytes of tensors that were judged", verdict.compared_bytes),
        ("Share of the bytes written by ops that were run again", "none" if share is None else f"{100 * share:.4g} %"),
    ]
    for side, ops in story.measured.items():
        rows.append((f"Ops of the {side} side that were run again and judged", len(ops)))
        rows.append((f"Ops of the {side} side that could not be", story.unmeasured.get(side, 0)))
    if story.carried:
        rows.append(("Outputs held against the other side", len(story.carried)))
    rows.append(("Tensors and ops that could not be judged", len(verdict.skipped)))
    parts = [element("h2", "What was judged, and what was not"), table("Coverage", ("What", "How much"), rows).markup]
    if verdict.skipped:
        reasons = _reasons(verdict)
        parts.append(table("Not judged, by reason", ("Reason", "Tensors or ops"), reasons).markup)
        listed = table(
            "Not judged",
            ("Tensor or op", "Reason"),
            [(s.tensor, s.reason) for s in verdict.skipped],
            more="verdict --json lists all.",
        )
        summary = element("summary", safe(f"List of what was not judged: {listed.shown} of {len(verdict.skipped)}"))
        parts.append(element("details", summary + listed.markup))
    return element("section", "".join(parts))


def _reasons(verdict: Verdict) -> list[tuple[str, int]]:
    """The most frequent reasons; those of one tensor each stand in the list only."""
    found = Counter(skipped.reason for skipped in verdict.skipped).most_common()
    rest = found[_REASONS:]
    return [
        *found[:_REASONS],
        *([(f"{len(rest)} other reasons, see the list", sum(n for _, n in rest))] if rest else []),
    ]


def _reading() -> str:
    told = (
        "How to read this: every operator was run again in float64 from the inputs that it read itself. Its local "
        "error is held against a bound, what rounding in its own precision may explain; the ratio of the two is at "
        f"most 1 for an honest operator, and above {RATIO_LIMIT:g} it is a suspect. An operator that only moves bits "
        "has bound 0: any difference is infinite. A carrier has a difference from the other side and a small ratio: "
        "it computes what it should from what it was given."
    )
    return element("footer", element("p", safe(told), class_="faint"))

"""The two charts of a report that show where a difference is born and where it is only carried, and their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from compare.bounds import RATIO_LIMIT
from compare.preflight import NOISE
from precision_tool.html_charts import Chart, Frame, Point, depth_chart, histogram
from precision_tool.html_text import element, number, safe, short, table

if TYPE_CHECKING:
    from compare.measured import Carried, Measured
    from precision_tool.html_report import Story

SHOWN = 100
"""Rows of the table of ops, and of the one of tensors."""

_TIP = 80
"""Characters of a name in a tooltip."""


# ----------------------------------------------------------------------------------------------------------- ratios


def measured_section(story: Story) -> str:
    """Returns error by depth and the histogram of each side that was examined, or why there is none."""
    heading = element("h2", "Local error by depth")
    if not story.measured:
        return element("section", heading + element("p", safe(_why_not_measured(story))))
    told = (
        "Each op was run again from its own inputs; the charts show its error over what rounding explains. A fault "
        "stands above the limit where it is born; what follows carries it and stays below."
    )
    parts = [_of_side(story, side, ops) for side, ops in story.measured.items()]
    return element("section", "".join([heading, element("p", safe(told)), *parts]))


def _why_not_measured(story: Story) -> str:
    if story.source:
        return "A saved verdict has no figures of single ops; report with the dumps themselves draws them."
    if str(story.verdict.kind) == "data":
        return "No op was run again: the two sides were not fed the same, so nothing beyond that was judged."
    return "No op was run again: there is no graph of either side (-g gives one)."


def _of_side(story: Story, side: str, ops: Sequence[Measured]) -> str:
    if not ops:
        return element("p", safe(f"No op of the {side} side could be run again; the reasons are listed below."))
    names = {suspect.op: at for at, suspect in enumerate(story.verdict.suspects, 1) if suspect.side == side}
    points = [_ratio_point(op, names) for op in ops]
    lines = [op.position for op in ops if op.op in names]
    chart = depth_chart(
        points,
        Frame(
            f"Local error over its bound by depth, {side} side",
            _ratio_words(side, ops),
            "error / bound (logarithmic)",
            "infinite",
            "no error",
            RATIO_LIMIT,
            f"limit {RATIO_LIMIT:g}: rounding explains what is below",
            float(_last(story, side)),
            lines,
        ),
    )
    unseen = len(names) - sum(point.mark != "" for point in points)
    notes = [_ratio_words(side, ops), _drawn(chart, len(points)), _labelled(chart, points)]
    if unseen:
        notes.append(f"{unseen} suspects could not be run again and have no place here.")
    told = f"{side.capitalize()} side: local error of {len(ops)} ops over its bound"
    label = f"Ratios of the {side} side"
    bars = histogram([op.ratio for op in ops], RATIO_LIMIT, label, _histogram_words(ops))
    return "".join(
        [
            element("h3", safe(told)),
            _figure(chart.svg, notes, {"bad": "suspect", "ok": "within the limit"}),
            element("h3", safe(f"{side.capitalize()} side: how many ops have which ratio")),
            _figure(bars.svg, [_histogram_words(ops)], {}),
            _ratio_table(side, ops, names),
        ]
    )


def _ratio_point(op: Measured, names: Mapping[str, int]) -> Point:
    suspect = op.op in names
    bound = "no bound needed" if op.bound is None else f"bound {op.bound:.6g}"
    error = "-" if op.error is None else f"{op.error:.6g}"
    tip = (
        f"{short(op.op, _TIP)} [{short(op.op_type, _TIP)}] at place {op.position}: error {error}, {bound}, "
        f"ratio {_value(op.ratio)}"
    )
    mark = f"{names[op.op]} {op.op}" if suspect else ""
    kind = "bad" if suspect or not op.ratio <= RATIO_LIMIT else "ok"
    return Point(float(op.position), op.ratio, tip, mark, kind)


def _ratio_words(side: str, ops: Sequence[Measured]) -> str:
    endless = sum(not math.isfinite(op.ratio) for op in ops)
    over = sum(not op.ratio <= RATIO_LIMIT for op in ops)
    zero = sum(op.ratio == 0 for op in ops)
    finite = [op for op in ops if math.isfinite(op.ratio) and op.ratio > 0]
    text = (
        f"{len(ops)} ops of the {side} side were run again. Above the limit of {RATIO_LIMIT:g}: {over}; infinite: "
        f"{endless} (a bit differs where none may, or a number is not finite); without any error: {zero}."
    )
    if finite:
        worst = max(finite, key=lambda op: op.ratio)
        text += f" The largest finite ratio is {worst.ratio:.3g}, {short(worst.op)} at place {worst.position}."
    return text


def _histogram_words(ops: Sequence[Measured]) -> str:
    below = sum(0 < op.ratio <= RATIO_LIMIT for op in ops)
    above = sum(RATIO_LIMIT < op.ratio < math.inf for op in ops)
    zero, endless = sum(op.ratio == 0 for op in ops), sum(not math.isfinite(op.ratio) for op in ops)
    return (
        f"Without any error {zero} ops, with one up to the limit {below}, above it {above}, infinite {endless}: "
        f"{len(ops)} in all."
    )


def _ratio_table(side: str, ops: Sequence[Measured], names: Mapping[str, int]) -> str:
    order = sorted(ops, key=lambda op: (-op.ratio if op.ratio == op.ratio else -math.inf, op.position))
    rows = [(op.position, op.op, op.op_type, op.slot, op.error, op.bound, op.ratio) for op in order[:SHOWN]]
    columns = ("Place", "Op", "OpType", "Output", "LocalError", "Bound", "Ratio")
    bad = frozenset(at for at, op in enumerate(order[:SHOWN]) if op.op in names)
    listed = table(f"Ops of the {side} side, largest ratio first", columns, rows, bad=bad)
    summary = f"The figures: {listed.shown} of {len(ops)} ops, largest ratio first"
    return element("details", element("summary", safe(summary)) + listed.markup)


# ------------------------------------------------------------------------------------------------------- distances


def carried_section(story: Story) -> str:
    """Returns the difference between the two sides by depth, or why there is none."""
    heading = element("h2", "Difference from the other side by depth")
    if not story.carried:
        return element("section", heading + element("p", safe(_why_not_carried(story))))
    suspects = {suspect.op for suspect in story.verdict.suspects if suspect.side == "left"}
    accused = {suspect.op for suspect in story.verdict.suspects if suspect.side == "right"}
    fine = {op.op for op in story.measured.get("left", ()) if op.ratio <= RATIO_LIMIT}
    points: list[Point] = []
    named: set[str] = set()
    for row in story.carried:
        guilty = _op_of(row.tensor) in suspects or _op_of(row.partner) in accused
        mark = row.op if guilty and row.op not in named else ""
        named |= {row.op} if guilty else set()
        points.append(_distance_point(row, mark, _kind(row, guilty, fine)))
    chart = depth_chart(
        points,
        Frame(
            "Relative distance of each output from the other side by depth",
            _distance_words(story.carried),
            "relative L2 distance (logarithmic)",
            "no number",
            "equal",
            last=float(_last(story, "left")),
            lines=[point.x for point in points if point.mark],
        ),
    )
    told = (
        "Each output of the left side against its partner on the right, in the same order as above. Here a fault goes "
        "on through all that reads it: born is it where the chart of local errors has a suspect."
    )
    notes = [_distance_words(story.carried), _drawn(chart, len(points)), _labelled(chart, points)]
    legend = {"bad": "suspect", "ok": "run again, within the limit", "unknown": "not run again"}
    parts = [heading, element("p", safe(told)), _figure(chart.svg, notes, legend), _distance_table(story.carried)]
    return element("section", "".join(parts))


def _why_not_carried(story: Story) -> str:
    if story.source:
        return "A saved verdict has no figures of single tensors."
    if len(story.sides) < 2:
        return "There is no other side: the left one was examined alone."
    return "No output of one side has a partner on the other."


def _op_of(tensor: str) -> str:
    return tensor.rsplit(":", 2)[0]


def _kind(row: Carried, guilty: bool, fine: set[str]) -> str:
    if guilty:
        return "bad"
    return "ok" if _op_of(row.tensor) in fine else "unknown"


def _distance_point(row: Carried, mark: str, kind: str) -> Point:
    cosine = "undefined" if row.cosine is None else f"{row.cosine:.6f}"
    what = row.reason or f"distance {_value(row.distance)}, cosine {cosine}"
    tip = f"{short(row.tensor, _TIP)} [{short(row.op_type, _TIP)}] at place {row.place:g}: {short(what, 160)}"
    return Point(row.place, row.distance, tip, mark, kind)


def _distance_words(rows: Sequence[Carried]) -> str:
    equal = sum(row.distance == 0 for row in rows)
    silent = sum(row.distance is None for row in rows)
    text = f"{len(rows)} outputs have a partner: {equal} are equal, {silent} have no distance that is a number."
    beyond = [row for row in rows if row.distance is not None and row.distance > NOISE]
    if not beyond:
        return f"{text} None is further than {NOISE:g} from its partner."
    first = min(beyond, key=lambda row: row.place)
    return (
        f"{text} {len(beyond)} are further than {NOISE:g} from their partner, the first {short(first.tensor)} at place "
        f"{first.place:g}."
    )


def _distance_table(rows: Sequence[Carried]) -> str:
    order = sorted(rows, key=lambda row: (-(math.inf if row.distance is None else row.distance), row.place))
    cells = [(r.place, r.tensor, r.partner, r.op_type, r.distance, r.cosine, r.reason or None) for r in order[:SHOWN]]
    columns = ("Place", "Tensor", "Partner", "OpType", "RelativeDistance", "Cosine", "Why no distance")
    listed = table("Outputs against the other side, largest distance first", columns, cells)
    summary = f"The figures: {listed.shown} of {len(rows)} outputs, largest distance first; vc writes all"
    return element("details", element("summary", safe(summary)) + listed.markup)


# ------------------------------------------------------------------------------------------------------------ both


def _last(story: Story, side: str) -> int:
    """Returns the greatest place; the two charts of the left side have the same axis."""
    places = [op.position for op in story.measured.get(side, ())]
    if side == "left":
        places += [math.ceil(row.place) for row in story.carried]
    return max([0, *places])


def _value(value: float | None) -> str:
    return f"{value:.6g}" if value is not None and math.isfinite(value) else number(value)


def _drawn(chart: Chart, of: int) -> str:
    if chart.drawn == of:
        return ""
    return f"{chart.drawn} of {of} points are drawn: every suspect, and the largest in each column of pixels."


def _labelled(chart: Chart, points: Sequence[Point]) -> str:
    marked = sum(point.mark != "" for point in points)
    return f"{chart.labelled} of {marked} suspects have their name beside them." if chart.labelled < marked else ""


def _figure(svg: str, notes: Sequence[str], legend: Mapping[str, str]) -> str:
    swatches = "".join(
        element("span", "", class_=f"swatch {kind}", aria_hidden="true") + safe(text) for kind, text in legend.items()
    )
    told = safe(" ".join(note for note in notes if note))
    caption = element("figcaption", told + (element("div", swatches) if swatches else ""))
    return element("figure", svg + caption)

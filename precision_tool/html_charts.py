"""Charts of a report: SVG by hand, drawn the same everywhere, with a text for whoever cannot see it.

Every value has a place: what a logarithmic axis cannot show stands in a band of its own, above (infinite, no number)
or below (zero). Where there are more points than pixels a column keeps its largest; marked points are always kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from precision_tool.html_text import element, safe, short

WIDTH, HEIGHT = 1000, 340
LEFT, RIGHT, TOP, BOTTOM = 92, 16, 14, 44
BAND = 26
COLUMNS = WIDTH - LEFT - RIGHT
"""Pixel columns of the drawing; from more points than twice that on, the smaller ones of a column are left out."""

TITLED = 1000
"""Marked points that have a tooltip each; more are drawn without."""

LABELS = 12
_LETTER, _LINE = 6.3, 14
"""Width of a letter and height of a line of a label, for finding room."""

_DECADES = 9
"""Labelled decades of an axis at most."""

LOWEST, HIGHEST = -10.0, 10.0
"""Ends of the bins of the histogram in decades; what lies beyond stands in the bin at the end."""

PER_DECADE = 4


@dataclass(frozen=True)
class Point:
    """One point of a chart.

    Attributes:
        x: Place on the axis of places.
        y: Value; not positive goes to the band below, None, infinite or NaN to the one above.
        tip: Tooltip.
        mark: Label of a point that must not be left out, empty for the others.
        kind: Class that gives the colour: ``bad``, ``ok`` or ``unknown``.
    """

    x: float
    y: float | None
    tip: str
    mark: str = ""
    kind: str = "ok"

    @property
    def above(self) -> bool:
        """Whether it is in the band above."""
        return self.y is None or not math.isfinite(self.y)

    @property
    def below(self) -> bool:
        """Whether it is in the band below."""
        return self.y is not None and math.isfinite(self.y) and self.y <= 0


@dataclass(frozen=True)
class Frame:
    """What a chart by depth has around its points.

    Attributes:
        label: Names the chart, for readers of the screen.
        description: The chart in words.
        axis: What is on the vertical axis.
        above, below: Names of the two bands.
        limit: Value of the line across, None for none.
        limit_name: What stands beside it.
        last: Greatest place; charts with the same one can be read below each other.
        lines: Places of upright lines.
    """

    label: str
    description: str
    axis: str
    above: str
    below: str
    limit: float | None = None
    limit_name: str = ""
    last: float = 0.0
    lines: Sequence[float] = field(default=())


@dataclass(frozen=True)
class Chart:
    """A drawn chart.

    Attributes:
        svg: One element.
        drawn: Number of points in it.
        labelled: Number of marked points with their name beside them.
    """

    svg: str
    drawn: int
    labelled: int


def depth_chart(points: Sequence[Point], frame: Frame) -> Chart:
    """Draws values (logarithmic) over the order of execution."""
    kept = thin(points, frame.last)
    positive = [p.y for p in points if p.y is not None and math.isfinite(p.y) and p.y > 0]
    low, high = _decades([*positive, *([frame.limit] if frame.limit else [])])
    top, floor = TOP + BAND, HEIGHT - BOTTOM - BAND

    def across(x: float) -> float:
        return LEFT + COLUMNS * (x + 0.5) / (frame.last + 1)

    def down(point: Point) -> float:
        if point.above or point.y is None:
            return TOP + BAND / 2
        return floor + BAND / 2 if point.below else _height(point.y, low, high, (top, floor))

    parts = [*_bands(frame), *_log_axis(low, high, (top, floor), frame.axis), _place_axis(frame.last, across)]
    for x in sorted(set(frame.lines))[:LABELS]:
        parts.append(element("line", x1=across(x), x2=across(x), y1=TOP, y2=HEIGHT - BOTTOM, class_="upright"))
    if frame.limit:
        y = _height(frame.limit, low, high, (top, floor))
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="limit"))
        text = safe(frame.limit_name)
        parts.append(element("text", text, x=WIDTH - RIGHT - 4, y=y - 4, class_="limit", text_anchor="end"))
    placed = [(across(p.x), down(p), p) for p in kept]
    parts += _dots(placed)
    labels = _labels(placed)
    return Chart(picture(frame.label, frame.description, [*parts, *labels]), len(kept), len(labels))


def thin(points: Sequence[Point], last: float) -> list[Point]:
    """Returns the points to draw: all, or the marked ones and the largest of each pixel column, in their order."""
    if len(points) <= 2 * COLUMNS:
        return list(points)
    largest: dict[int, int] = {}
    kept = set()
    for index, point in enumerate(points):
        if point.mark:
            kept.add(index)
            continue
        column = int(COLUMNS * (point.x + 0.5) / (last + 1))
        if column not in largest or _size(point) > _size(points[largest[column]]):
            largest[column] = index
    return [points[index] for index in sorted(kept | set(largest.values()))]


def histogram(ratios: Sequence[float], limit: float, label: str, description: str) -> Chart:
    """Draws how many ops have which ratio, in quarters of a decade counted from the limit.

    Args:
        ratios: Zero, positive or infinite; NaN counts as infinite.
        limit: From here on rounding explains nothing.
        label: Names the chart.
        description: The chart in words.
    """
    bins, zeros, endless = bins_of(ratios, limit)
    origin = math.log10(limit)
    tallest = max([1, zeros, endless, *bins.values()])
    top, floor = TOP + 16, HEIGHT - BOTTOM
    first = min([0, *bins]) - 1
    last = max([1, *bins]) + 1
    slot = COLUMNS / (last - first + 5)

    def across(place: float) -> float:
        return LEFT + slot * (place - first + 2)

    bars = [
        _bar((across(at), slot), n, (tallest, top, floor), _bin_name(at, origin), at >= 0) for at, n in bins.items()
    ]
    bars.append(_bar((LEFT + slot / 2, slot), zeros, (tallest, top, floor), "no error", bad=False))
    bars.append(_bar((WIDTH - RIGHT - 1.5 * slot, slot), endless, (tallest, top, floor), "infinite", bad=True))
    parts = [element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=floor, y2=floor, class_="axis")]
    for decade in _ticks(math.ceil(origin + first / PER_DECADE), math.floor(origin + last / PER_DECADE)):
        x = across((decade - origin) * PER_DECADE)
        parts.append(element("line", x1=x, x2=x, y1=floor, y2=floor + 4, class_="axis"))
        parts.append(_power(decade, x, floor + 18, "middle"))
    for text, x in (("0", LEFT + slot), ("infinite", WIDTH - RIGHT - slot)):
        parts.append(element("text", text, x=x, y=floor + 18, text_anchor="middle"))
    parts.append(element("line", x1=across(0), x2=across(0), y1=TOP, y2=floor, class_="limit"))
    parts.append(element("text", f"limit {limit:g}", x=across(0) + 5, y=TOP + 10, class_="limit"))
    parts.append(_axis_name("ops (logarithmic)"))
    parts.append(_below_axis("ratio of local error to bound, quarters of a decade"))
    return Chart(picture(label, description, [*parts, *bars]), sum(bins.values()) + zeros + endless, 0)


def bins_of(ratios: Iterable[float], limit: float) -> tuple[dict[int, int], int, int]:
    """Returns the number of ratios of each quarter of a decade (0 begins at the limit), of zeros, of infinite ones.

    A ratio that equals the limit is not above it and counts to the quarter below.
    """
    bins: Counter[int] = Counter()
    zeros = endless = 0
    for ratio in ratios:
        if not math.isfinite(ratio):
            endless += 1
        elif ratio <= 0:
            zeros += 1
        else:
            decades = min(max(math.log10(ratio) - math.log10(limit), LOWEST), HIGHEST)
            at = math.floor(decades * PER_DECADE)
            bins[max(at, 0) if ratio > limit else min(at, -1)] += 1
    return dict(sorted(bins.items())), zeros, endless


def picture(label: str, description: str, parts: Sequence[str], size: tuple[float, float] = (WIDTH, HEIGHT)) -> str:
    """Returns an SVG element of these parts that a reader of the screen can tell about."""
    return element(
        "svg",
        "\n".join(["", element("desc", safe(description)), *parts, ""]),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size[0]:g} {size[1]:g}",
        role="img",
        aria_label=label,
    )


# ----------------------------------------------------------------------------------------------------------- parts


def _size(point: Point) -> float:
    return math.inf if point.above or point.y is None else point.y


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of an axis in decades, at least two apart."""
    if not values:
        return -1.0, 1.0
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return float(low), float(max(high, low + 2))


def _height(value: float, low: float, high: float, span: tuple[float, float]) -> float:
    top, floor = span
    return floor - (floor - top) * (math.log10(value) - low) / (high - low)


def _ticks(low: int, high: int) -> range:
    return range(low, high + 1, max(1, math.ceil((high - low + 1) / _DECADES)))


def _power(decade: int, x: float, y: float, anchor: str) -> str:
    text = f"{10.0**decade:g}" if -3 <= decade <= 3 else f"1e{decade}"
    return element("text", text, x=x, y=y, text_anchor=anchor)


def _bands(frame: Frame) -> list[str]:
    parts = []
    for text, y in ((frame.above, TOP), (frame.below, HEIGHT - BOTTOM - BAND)):
        parts.append(element("rect", x=LEFT, y=y, width=COLUMNS, height=BAND, class_="band"))
        parts.append(element("text", safe(text), x=LEFT - 6, y=y + BAND / 2 + 4, text_anchor="end"))
    return parts


def _log_axis(low: float, high: float, span: tuple[float, float], name: str) -> list[str]:
    parts = []
    for decade in _ticks(int(low), int(high)):
        y = span[1] - (span[1] - span[0]) * (decade - low) / (high - low)
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(_power(decade, LEFT - 6, y + 4, "end"))
    return [*parts, _axis_name(name)]


def _axis_name(name: str) -> str:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return element(
        "text", safe(name), x=0, y=0, transform=f"translate(14 {middle:g}) rotate(-90)", text_anchor="middle"
    )


def _below_axis(name: str) -> str:
    return element("text", safe(name), x=LEFT + COLUMNS / 2, y=HEIGHT - 6, text_anchor="middle")


def _place_axis(last: float, across: Callable[[float], float]) -> str:
    whole = int(last)
    step = max(1, 10 ** max(0, len(str(whole)) - 1))
    step = next(s for s in (step // 10, step // 5, step // 2, step, 2 * step) if s and whole / s <= 12)
    base = HEIGHT - BOTTOM
    parts = [element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base, class_="axis")]
    for place in range(0, whole + 1, step):
        parts.append(element("line", x1=across(place), x2=across(place), y1=base, y2=base + 4, class_="axis"))
        parts.append(element("text", str(place), x=across(place), y=base + 18, text_anchor="middle"))
    return "".join([*parts, _below_axis("place in the order of execution")])


def _dots(placed: Sequence[tuple[float, float, Point]]) -> list[str]:
    """Draws unmarked points first, so that a mark is never hidden; beyond some thousand marks without a tooltip."""
    plain = [dot for dot in placed if not dot[2].mark]
    marked = [dot for dot in placed if dot[2].mark]
    parts = [_dot(*dot, radius=2.2) for dot in plain] + [_dot(*dot, radius=4.2) for dot in marked[:TITLED]]
    if marked[TITLED:]:
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y, _ in marked[TITLED:])
        parts.append(element("path", d=path, class_="dots"))
    return parts


def _dot(x: float, y: float, point: Point, radius: float) -> str:
    tip = element("title", safe(point.tip))
    return element("circle", tip, cx=round(x, 1), cy=round(y, 1), r=radius, class_=point.kind)


def _labels(placed: Sequence[tuple[float, float, Point]]) -> list[str]:
    """Writes names beside the first marked points, each where there is room for it, or not at all."""
    taken: list[tuple[float, float, float, float]] = []
    parts: list[str] = []
    for x, y, point in [dot for dot in placed if dot[2].mark][:LABELS]:
        text = short(point.mark, 44)
        width = len(text) * _LETTER
        for dx, dy in ((8, 4), (-8, 4), (8, 18), (-8, 18), (8, -10), (-8, -10), (8, 32), (-8, 32), (8, 46), (-8, 46)):
            start = x + dx if dx > 0 else x + dx - width
            box = (start, y + dy - _LINE + 3, start + width, y + dy + 3)
            inside = box[0] >= LEFT and box[2] <= WIDTH - RIGHT and box[1] >= 0 and box[3] <= HEIGHT - BOTTOM
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                parts.append(element("text", safe(text), x=start, y=y + dy, class_="mark"))
                break
    return parts


def _meet(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _bar(place: tuple[float, float], count: int, room: tuple[int, float, float], name: str, bad: bool) -> str:
    """Draws one bar with its number on top; a bar of nobody is nothing."""
    if not count:
        return ""
    (x, width), (tallest, top, floor) = place, room
    height = (floor - top) * (math.log10(count) + 0.4) / (math.log10(tallest) + 0.4)
    tip = element("title", safe(f"{name}: {count} ops"))
    bar = element(
        "rect",
        tip,
        x=x + 1,
        y=floor - height,
        width=max(width - 2, 1.0),
        height=height,
        class_="bad" if bad else "ok",
    )
    return bar + element("text", str(count), x=x + width / 2, y=floor - height - 3, text_anchor="middle")


def _bin_name(at: int, origin: float) -> str:
    low, high = (10 ** (origin + (at + k) / PER_DECADE) for k in (0, 1))
    if at <= LOWEST * PER_DECADE:
        return f"ratio below {high:.3g}"
    return f"ratio above {low:.3g}" if at >= HIGHEST * PER_DECADE else f"ratio {low:.3g} to {high:.3g}"

"""The report as a page: whole, safe whatever the names are, small, and with every number that was measured."""

from __future__ import annotations

import math

import pytest

from compare.measured import Carried, Measured
from compare.verdict import Kind, Skipped, Suspect, Verdict
from dumpers.graph import Graph, Op, Port, Source
from precision_tool.html_charts import COLUMNS, Frame, Point, bins_of, depth_chart, histogram, thin
from precision_tool.html_graph import Remark, draw
from precision_tool.html_report import MEANINGS, SideFacts, Story, document
from precision_tool.html_text import number, safe, short, table
from tests.precision_tool.html_page import SVG, check, marks, pictures

HOSTILE = [
    "<script>alert(1)</script>",
    '"onload="alert(1)',
    "' onmouseover='x",
    "line\nend\r",
    "nul\0byte",
    "right\u200fto\u202eleft",
    "&amp;&#60;b&#62;",
    "]]></svg><script>",
    "--><!--",
    "\ufffe\uffff\ufdd0\U0001ffff",
    "lone\udc80surrogate\ud800",
    "ה" * 20,
    "x" * 10_000,
    "",
]


def measured(at, ratio, op=None, *, side="left", bound=1e-6):
    error = None if math.isnan(ratio) else ratio * bound if bound else 1.0
    return Measured(at, f"op{at}" if op is None else op, "MatMul", side, 0, error, bound, ratio)


def carried(at, distance, op=None, reason=""):
    op = f"op{at}" if op is None else op
    return Carried(float(at), op, "MatMul", f"{op}:output:0", f"tf/{op}:output:0", distance, 0.5, reason)


def chain(names):
    ops = {}
    for index, name in enumerate(names):
        port = Port("float32", (2, 3), "ND")
        inputs = (Source(names[index - 1], 0),) if index else ()
        ops[name] = Op(name, "Relu", inputs, (), (port,) * len(inputs), (port,))
    return Graph("g", ops, "ge")


def story_of(names, ratios, **more):
    ops = [measured(at, ratio, name) for at, (name, ratio) in enumerate(zip(names, ratios, strict=True))]
    suspects = tuple(
        Suspect(op.op, op.op_type, "left", op.error, op.bound, op.ratio, note="note") for op in ops if op.ratio > 2
    )
    verdict = Verdict(
        Kind.OPERATOR if suspects else Kind.ROUNDING,
        op=suspects[0].op if suspects else None,
        op_type="Relu" if suspects else None,
        evidence=({"text": f"{names[0]} is wrong", "op": names[0], "ratio": math.inf},),
        next=(f"look at {names[0]}",),
        suspects=suspects,
        skipped=tuple(Skipped(name, f"because {name}") for name in names),
        **more.pop("verdict", {}),
    )
    given = {
        "sides": [SideFacts("left", "/l", 3, "2024-01-01"), SideFacts("right", "/r", 3)],
        "measured": {"left": ops},
        "unmeasured": {"left": 1},
        "carried": [
            carried(at, ratio if math.isfinite(ratio) else None, name)
            for at, (name, ratio) in enumerate(zip(names, ratios, strict=True))
        ],
        "graph": chain(names),
    }
    return Story(verdict, **{**given, **more})


# ---------------------------------------------------------------------------------------------------------- safety


def test_hostile_names_are_text_everywhere():
    page = check(document(story_of(HOSTILE, [math.inf] * len(HOSTILE), notes=HOSTILE)))
    ops = [row[2] for row in page.tables["Suspects in order of execution"][1:]]
    assert ops == [
        "<script>alert(1)</script>",
        '"onload="alert(1)',
        "' onmouseover='x",
        "line\\nend\\r",
        "nul\\x00byte",
        "right\\u200fto\\u202eleft",
        "&amp;&#60;b&#62;",
        "]]></svg><script>",
        "--><!--",
        "\\ufffe\\uffff\\ufdd0\\U0001ffff",
        "lone\\x80surrogate\\ud800",
        "ה" * 20,
        "x" * 10_000,
        "",
    ]


def test_each_hostile_name_as_the_guilty_op():
    for name in HOSTILE:
        page = check(document(story_of([name, "behind"], [5.0, 0.5])))
        assert page.tables["Suspects in order of execution"][1][2] == safe_text(name)


def safe_text(name):
    import html

    return html.unescape(safe(name))


def test_a_long_name_is_short_in_charts_and_whole_in_the_table():
    name = "a" * 5000 + "/MatMul"
    text = document(story_of([name, "b"], [5.0, 0.5]))
    assert check(text).tables["Suspects in order of execution"][1][2] == name
    for svg in pictures(text):
        assert max(len(word) for element in svg.iter() for word in (element.text or "").split()) < 250


def test_a_text_beyond_any_name_is_cut_with_its_length():
    assert safe("y" * 30_000).endswith("... (30000 characters)")
    assert len(safe("y" * 30_000)) < 21_000


@pytest.mark.parametrize("length", [1, 47, 48, 49, 1000])
def test_short_keeps_both_ends(length):
    name = "".join(chr(97 + k % 26) for k in range(length))
    shown = short(name)
    assert len(shown) <= 48
    assert (shown == name) == (length <= 48)
    assert (shown[0], shown[-1]) == (name[0], name[-1])


# ------------------------------------------------------------------------------------------------------------- size


def test_fourteen_thousand_ops_make_a_small_page():
    names = [f"network/tower_{k % 7}/layer_{k}/gradients/MatMul_{k}_grad/MatMul" for k in range(14_000)]
    ratios = [math.inf if k % 100 == 7 else 0.0 if k % 3 else 0.1 + (k % 17) / 10 for k in range(14_000)]
    text = document(story_of(names, ratios))
    assert len(text.encode()) < 5_000_000
    page = check(text)
    assert "14000 rows" not in page.tables["Suspects in order of execution"]
    guilty = [name for name, ratio in zip(names, ratios, strict=True) if ratio == math.inf]
    assert len(page.tables["Suspects in order of execution"]) - 1 == len(guilty) == 140
    assert len(marks(pictures(text)[0], "bad")) == 140
    assert "500 of 14000 rows are shown, 13500 are left out." in page.text
    assert "of 14000 points are drawn: every suspect, and the largest in each column of pixels." in page.text


@pytest.mark.parametrize(
    "name", ["op{}", "&\"'<>" * 2000 + "{}", "\u202e" * 10_000 + "{}"], ids=["plain", "marks", "rtl"]
)
def test_every_op_a_suspect_and_still_small(name):
    text = document(story_of([name.format(k) for k in range(14_000)], [3.0 + k for k in range(14_000)]))
    assert len(text.encode()) < 5_000_000
    page = check(text)
    rows = len(page.tables["Suspects in order of execution"]) - 1
    assert 1 <= rows <= 500
    assert f"{rows} of 14000 rows are shown, {14_000 - rows} are left out." in page.text
    svg = pictures(text)[0]
    dots = sum(path.get("d").count("M") for path in svg.iter(f"{SVG}path") if path.get("class") == "dots")
    assert len(marks(svg)) + dots == 14_000  # every suspect is drawn


def test_thinning_keeps_the_largest_of_a_column_and_all_marks():
    points = [Point(float(k), 1.0 + (k * 7919) % 1000, "t", "m" if k % 1000 == 0 else "") for k in range(20_000)]
    kept = thin(points, 19_999)
    assert [p for p in points if p.mark] == [p for p in kept if p.mark]
    assert len(kept) <= COLUMNS + 20
    best = {}
    for point in points:
        if not point.mark:
            column = int(COLUMNS * (point.x + 0.5) / 20_000)
            best[column] = max(best.get(column, 0.0), point.y)
    assert sorted(p.y for p in kept if not p.mark) == sorted(best.values())
    endless = [Point(float(k), math.inf if k == 5 else 1.0, "t") for k in range(20_000)]
    assert endless[5] in thin(endless, 19_999)


# ----------------------------------------------------------------------------------------------------------- charts


def test_every_op_is_one_point_with_its_numbers():
    ratios = [0.0, 0.5, 1.0, 2.0, 2.5, math.inf, 1e-300, 1e300]
    text = document(story_of([f"n{k}" for k in range(8)], ratios))
    svg = pictures(text)[0]
    found = marks(svg)
    assert len(found) == 8
    assert sorted(found) == sorted(set(found))
    assert len(marks(svg, "bad")) == 3
    assert any("n4 [MatMul] at place 4: error 2.5e-06, bound 1e-06, ratio 2.5" in tip for tip in found)


@pytest.mark.parametrize(("ratio", "bound"), [(math.inf, 0.0), (math.nan, None), (math.inf, 1e-6)])
def test_what_is_no_number_has_a_band_of_its_own(ratio, bound):
    ops = [measured(0, 1.0), measured(1, ratio, bound=bound), measured(2, 0.0)]
    text = document(story_of(["a"], [0.5], measured={"left": ops}))
    check(text)
    heights = {c.findtext(f"{SVG}title").split()[0]: float(c.get("cy")) for c in pictures(text)[0].iter(f"{SVG}circle")}
    assert len(heights) == 3
    assert heights["op1"] < 40 < heights["op0"] < heights["op2"]
    assert "infinite 1" in check(text).text


def test_a_distance_that_is_no_number_is_drawn_with_its_reason():
    rows = [carried(0, 0.0), carried(1, 0.5), carried(2, None, reason="left is zero")]
    text = document(story_of(["a"], [0.5], carried=rows))
    tips = marks(pictures(text)[2])
    assert len(tips) == 3
    assert any("left is zero" in tip for tip in tips)
    assert "3 outputs have a partner: 1 are equal, 1 have no distance that is a number." in check(text).text


def test_the_higher_value_stands_higher_and_the_limit_between():
    points = [Point(0.0, 1.0, "a"), Point(1.0, 4.0, "b"), Point(2.0, 400.0, "c")]
    svg = pictures(depth_chart(points, Frame("l", "d", "y", "up", "down", 2.0, "limit", 2.0)).svg)[0]
    a, b, c = (float(dot.get("cy")) for dot in svg.iter(f"{SVG}circle"))
    limit = next(float(line.get("y1")) for line in svg.iter(f"{SVG}line") if line.get("class") == "limit")
    assert c < b < limit < a
    assert (a - b) / (b - c) == pytest.approx(math.log10(4) / 2, rel=0.01)


def test_the_bins_hold_every_ratio_once_and_the_limit_divides_them():
    ratios = [0.0, 0.0, 2.0, math.nextafter(2.0, 3.0), 3.0, 4.0, 1.9, 1e-300, 1e300, math.inf, math.nan]
    bins, zeros, endless = bins_of(ratios, 2.0)
    assert (zeros, endless) == (2, 2)
    assert sum(bins.values()) == 7
    assert sum(n for at, n in bins.items() if at >= 0) == sum(2 < r < math.inf for r in ratios) == 4
    svg = pictures(histogram(ratios, 2.0, "l", "d").svg)[0]
    tips = [r.findtext(f"{SVG}title") for r in svg.iter(f"{SVG}rect")]
    assert sum(int(tip.rsplit(" ", 2)[1]) for tip in tips) == 11


@pytest.mark.parametrize("ratios", [[], [0.0], [math.inf], [5e-324], [1.7e308, 5e-324]])
def test_odd_sets_of_ratios_are_drawn(ratios):
    names = [f"n{k}" for k in range(len(ratios))] or ["none"]
    given = story_of(names, ratios or [0.5])
    text = document(given if ratios else Story(given.verdict, measured={"left": []}))
    check(text)
    if ratios:
        assert len(marks(pictures(text)[0])) == len(ratios)


# ------------------------------------------------------------------------------------------------------------ graph


def test_the_neighbourhood_is_drawn_with_every_op_and_edge():
    names = [f"n{k}" for k in range(9)]
    drawing = draw(chain(names), "n4", {"n4": Remark("error", "bad")})
    svg = pictures(drawing.svg)[0]
    boxes = list(svg.iter(f"{SVG}rect"))
    assert (drawing.boxes, drawing.cut, len(boxes)) == (5, 0, 5)
    assert [b.get("class") for b in boxes].count("box bad root") == 1
    titles = [g.findtext(f"{SVG}title") for g in svg.iter(f"{SVG}g")]
    edges = sorted(title for title in titles if ">" in title)
    assert edges == [f"n{k} > n{k + 1}: output 0 to input 0" for k in range(2, 6)]
    left = {t.text: float(t.get("x")) for t in svg.iter(f"{SVG}text") if t.text in names}
    assert sorted(left, key=left.get) == ["n2", "n3", "n4", "n5", "n6"]


def test_boxes_never_overlap():
    ops = {"a": Op("a", "Split")}
    ops |= {f"b{k}": Op(f"b{k}", "Relu", (Source("a", k),)) for k in range(9)}
    ops["sum"] = Op("sum", "AddN", (*(Source(f"b{k}", 0) for k in range(9)), Source("a", 9)), ("b3",))
    ops |= {f"c{k}": Op(f"c{k}", "Relu", (Source("sum", 0), Source("a", 0))) for k in range(5)}
    drawing = draw(Graph("g", ops, "ge"), "sum", {})
    rects = [
        [float(r.get(k)) for k in ("x", "y", "width", "height")] for r in pictures(drawing.svg)[0].iter(f"{SVG}rect")
    ]
    assert len(rects) == 16
    for k, (x, y, w, h) in enumerate(rects):
        assert y >= 0
        assert not [o for o in rects[k + 1 :] if x < o[0] + o[2] and o[0] < x + w and y < o[1] + o[3] and o[1] < y + h]


def test_circles_self_loops_and_hubs_are_drawn():
    ops = {"a": Op("a", "Merge", (Source("b", 0), Source("a", 0))), "b": Op("b", "NextIteration", (Source("a", 0),))}
    assert draw(Graph("g", ops, "ge"), "a", {}).boxes == 2
    hub = {"hub": Op("hub", "Split")} | {f"l{k}": Op(f"l{k}", "Relu", (Source("hub", 0),)) for k in range(1000)}
    drawing = draw(Graph("g", hub, "ge"), "hub", {})
    assert drawing.boxes + drawing.cut == 1001
    pictures(drawing.svg)


# ------------------------------------------------------------------------------------------------------------- rest


def test_every_kind_has_its_meaning():
    assert set(MEANINGS) == set(Kind)
    for kind in Kind:
        page = check(document(Story(Verdict(kind))))
        assert MEANINGS[kind] in page.text


def test_without_graph_other_side_or_dumps_a_sentence_says_so():
    story = story_of(["a"], [5.0], graph=None, carried=(), sides=[SideFacts("left", "/l", 1)])
    text = check(document(story)).text
    assert "No graph of that side has the operator" in text
    assert "the left one was examined alone" in text
    saved = check(document(Story(story.verdict, source="v.json"))).text
    assert "A saved verdict has no figures of single ops" in saved
    assert "No op was run again: there is no graph" in check(document(Story(story.verdict))).text


def test_numbers_have_all_digits_and_words_for_the_rest():
    assert [number(v) for v in (None, math.nan, math.inf, -math.inf, 0.1 + 0.2)] == [
        "-",
        "not a number",
        "infinite",
        "minus infinite",
        "0.30000000000000004",
    ]


def test_a_table_says_what_it_cuts():
    assert table("t", ("a",), [(k,) for k in range(501)]).shown == 500
    assert "500 of 501 rows are shown, 1 are left out." in table("t", ("a",), [(k,) for k in range(501)]).markup
    assert "left out" not in table("t", ("a",), [(k,) for k in range(500)]).markup


def test_the_same_story_gives_the_same_bytes():
    names = [f"n{k}" for k in range(200)]
    ratios = [0.01 * k for k in range(200)]
    assert document(story_of(names, ratios)) == document(story_of(names, ratios))

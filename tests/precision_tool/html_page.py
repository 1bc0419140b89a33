"""Reads a page strictly: every element closed, in its order, and what is in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "link", "img", "br", "hr", "input"}
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        open: Elements that are not closed yet; empty at the end of a whole page.
        seen: Every start tag with its attributes.
        tables: Caption -> rows of cell texts, the headings first.
        text: All text outside of the style.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._caption = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {attrs}"
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.tables.setdefault(self._caption, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._caption][-1].append("")

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if "caption" in self.open:
            self._caption += data
        elif self.open and self.open[-1] in ("td", "th"):
            self.tables[self._caption][-1][-1] += data


def pictures(text: str) -> list[ElementTree.Element]:
    """Returns every SVG, parsed as XML."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg .*?</svg>", text, re.DOTALL)]


def marks(svg: ElementTree.Element, kind: str | None = None) -> list[str]:
    """Returns the tooltips of the points of a chart."""
    found = [c for c in svg.iter(f"{SVG}circle") if kind is None or c.get("class") == kind]
    return [c.findtext(f"{SVG}title") or "" for c in found]


def check(text: str) -> Page:
    """Asserts what holds for every report, and returns the page."""
    page = Page(text)
    tags = {tag for tag, _ in page.seen}
    assert not tags & {
        "script",
        "link",
        "iframe",
        "object",
        "embed",
        "img",
        "a",
        "form",
        "base",
        "foreignobject",
        "use",
    }
    policy = next(a for t, a in page.seen if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    for tag, attributes in page.seen:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("href", "src", "style", "xlink:href")
        ]
        for name, value in attributes.items():
            assert "://" not in (value or "") or (tag, name) == ("svg", "xmlns"), (tag, name, value)
    assert "url(" not in text
    assert "@import" not in text
    for svg in pictures(text):
        assert svg.get("role") == "img"
        assert svg.get("aria-label")
        assert svg.findtext(f"{SVG}desc")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", text)
    text.encode("utf-8")
    return page

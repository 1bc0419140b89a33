"""``docs/reference/metrics.md`` against the engine: every figure has its section, every example is computed again."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from compare.figures import COLUMNS, Figures
from compare.metrics import compare_arrays
from compare.table import format_figure

PARTS = ("Formula", "Range", "Blind to", "Undefined")


@pytest.fixture(scope="module")
def page(project_root):
    return (project_root / "docs/reference/metrics.md").read_text(encoding="utf-8")


def sections(page):
    """Title -> text of every section of the second and third level."""
    pieces = re.split(r"^##+ (.+)$", page, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def examples(page):
    rows = re.findall(r"^\| `?(\w+)`? \| `(.+?)` \| `(.+?)` \| `(.+?)` \| (.+) \|$", page, flags=re.MULTILINE)
    return [row for row in rows if row[0] != "Figure"]


def array_of(text):
    """``float32 1 2*3 nan`` is four numbers of that type, the second one three times."""
    dtype, *words = text.split()
    numbers = []
    for word in words:
        value, _, count = word.partition("*")
        numbers += [value] * int(count or 1)
    if dtype == "bytes":
        return np.array([number.encode() for number in numbers], object)
    if dtype in ("int64", "uint64"):
        return np.array([int(number) for number in numbers], dtype)
    return np.array([complex(n) if "j" in n else float(n) for n in numbers]).astype(dtype)


def shown(figures, name):
    """A figure as the page prints it: columns as in a result file, text as it is, the rest as Python has it."""
    if name in COLUMNS:
        value = figures.column(name)
        return format_figure(value) if value is not None else f"undefined: {figures.reasons[name]}"
    value = getattr(figures, name)
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def test_every_column_says_what_it_is_what_it_can_be_and_what_it_cannot_see(page):
    found = sections(page)
    for column in COLUMNS:
        for part in PARTS:
            assert f"**{part}**" in found[column], (column, part)
        assert any(row[0] == column for row in examples(found[column])), f"{column} has no example"


def test_every_figure_is_explained_with_an_example(page):
    shapes_and_types = {"left_shape", "right_shape", "left_dtype", "right_dtype", "reasons", "flattened", "details"}
    shapes_and_types.add("estimated")  # of records without values: test_summary_pairs.py
    columns_beside = {"left_mean", "left_deviation", "right_mean", "right_deviation"}
    exampled = {row[0] for row in examples(page)}
    for field in dataclasses.fields(Figures):
        assert f"`{field.name}`" in page, field.name
        behind_a_column = field.name in {name for name, _ in fields_of_columns()} | columns_beside
        assert field.name in exampled | shapes_and_types or behind_a_column, f"{field.name} has no example"


def fields_of_columns():
    from compare.figures import FIELDS

    return [(name, column) for column, name in FIELDS.items()]


def test_examples_are_what_the_engine_says(page):
    rows = examples(page)
    assert len(rows) >= 40
    for name, left, right, value, _ in rows:
        figures = compare_arrays(array_of(left), array_of(right))
        assert shown(figures, name) == value, (name, left, right)


def test_each_example_shows_something(page):
    for name, left, right, _, says in examples(page):
        assert len(says.split()) >= 3, (name, left, right)


def test_links_lead_somewhere(page, project_root):
    for target in re.findall(r"\]\(([^)#]+)\)", page):
        assert "://" in target or (project_root / "docs/reference" / target).exists(), target


def test_the_order_of_suspicion_is_the_documented_one(page):
    """The numbered list under "Rank", one pair each, worst first."""
    pairs = re.findall(r"^\d+\. .+?: `(.+?)` against `(.+?)`", sections(page)["Rank"], flags=re.MULTILINE)
    ranks = [compare_arrays(array_of(left), array_of(right)).rank for left, right in pairs]
    assert len(ranks) >= 6
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)

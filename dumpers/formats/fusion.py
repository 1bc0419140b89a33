"""Fusion reports (``fusion_result.json``) of three generations of the device compiler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from dumpers.errors import DataError
from dumpers.formats.raw import regular_only

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_KEY: Final = "session_and_graph_id"
_LARGEST: Final = 256 << 20


@dataclass(frozen=True)
class FusionReport:
    """What fusion did to one compiled graph.

    Attributes:
        graph_id: ``graphId``, or the text of ``session_and_graph_id`` (``0_21``); ``NONE`` if the file has neither.
        graph_fusion: Rules that took effect, with their number of effects.
        ub_fusion: The same for buffer fusion.
        session_id: Empty if the file does not tell it apart.
        matched: How often each rule's pattern was found, those without effect included.
        repository_hits: How often a buffer fusion rule was answered from the tuning repository; newest compilers only.
    """

    graph_id: str
    graph_fusion: Mapping[str, int]
    ub_fusion: Mapping[str, int]
    session_id: str = ""
    matched: Mapping[str, int] = field(default_factory=dict)
    repository_hits: Mapping[str, int] = field(default_factory=dict)


def read_fusion_result(path: Path) -> list[FusionReport]:
    """Reads a report: objects written one after another, an array of them, or one object with the ids as keys.

    Raises:
        DataError: no such file, or no fusion report.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise DataError(f"{path}: is not a fusion report (more than {_LARGEST} bytes)")
        with open(path, encoding="utf-8-sig", opener=regular_only) as file:
            text = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not a fusion report: {error}") from error
    try:
        reports = [report for tree in _objects(text) for report in _reports(tree)]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not a fusion report: {error}") from error
    if not reports:
        raise DataError(f"{path}: is not a fusion report (no graph_fusion and no ub_fusion)")
    return reports


def _objects(text: str) -> Iterator[dict[str, Json]]:
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        tree, position = decoder.raw_decode(text, position)
        for item in tree if isinstance(tree, list) else [tree]:
            if not isinstance(item, dict):
                raise ValueError(f"{type(item).__name__} instead of an object")
            yield item


def _reports(tree: dict[str, Json]) -> Iterator[FusionReport]:
    if "graph_fusion" in tree or "ub_fusion" in tree or "graphId" in tree or _KEY in tree:
        graph_id = tree.get("graphId", tree.get(_KEY, "NONE"))
        yield _report(str(graph_id), str(tree.get("sessionId", "")), tree)
        return
    for key, value in tree.items():
        if key.startswith(_KEY) and isinstance(value, dict):
            yield _report(key.removeprefix(_KEY).removeprefix("_"), "", value)


def _report(graph_id: str, session_id: str, tree: dict[str, Json]) -> FusionReport:
    effects: dict[str, dict[str, int]] = {}
    matched: dict[str, int] = {}
    hits: dict[str, int] = {}
    for section in ("graph_fusion", "ub_fusion"):
        rules = tree.get(section)
        found = effects.setdefault(section, {})
        if rules is not None and not isinstance(rules, dict):
            raise ValueError(f"{section} is no list of rules")
        for name, counts in (rules or {}).items():
            if not isinstance(counts, dict):
                raise ValueError(f"{section} {ascii(name)[1:-1]}: no counts")
            effect = _count(counts.get("effect_times"), name)
            matched[name] = matched.get(name, 0) + _count(counts.get("match_times"), name)
            if "repository_hit_times" in counts:
                hits[name] = hits.get(name, 0) + _count(counts["repository_hit_times"], name)
            if effect > 0:
                found[name] = effect
    return FusionReport(graph_id, effects["graph_fusion"], effects["ub_fusion"], session_id, matched, hits)


def _count(value: Json, name: str) -> int:
    if value is None:
        return 0
    if isinstance(value, (int, str)) and not isinstance(value, bool) and (count := int(value)) >= 0:
        return count
    raise ValueError(f"{ascii(name)[1:-1]}: count {str(value)[:40]!r}")

"""Fusion switch files (``fusion_switch.cfg``): which fusion passes the device compiler may use.

JSON of the form ``{"Switch": {"GraphFusion": {pass: "on" | "off", ..., "ALL": "off"}, "UBFusion": {...}}}``. A pass
that is named beats ``ALL``; one that is not follows ``ALL``; without ``ALL`` everything is on. A few built-in passes
cannot be switched off, which the file does not tell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dumpers.errors import DataError
from dumpers.formats.raw import regular_only

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Kind: TypeAlias = Literal["graph", "ub"]

_SECTIONS: Final[Mapping[str, Kind]] = {"GraphFusion": "graph", "UBFusion": "ub"}
_ALL: Final = "ALL"
_LARGEST: Final = 16 << 20


@dataclass(frozen=True)
class FusionSwitch:
    """A fusion switch file.

    Attributes:
        graph: Passes of graph fusion that the file names, and whether each is on.
        ub: The same for buffer fusion.
        graph_default: Whether graph passes that are not named are on.
        ub_default: The same for buffer passes.
        unknown: Sections that are neither.
    """

    graph: Mapping[str, bool]
    ub: Mapping[str, bool]
    graph_default: bool = True
    ub_default: bool = True
    unknown: tuple[str, ...] = ()

    def is_on(self, name: str, kind: Kind) -> bool:
        """Tells whether a pass is on; its own entry beats ``ALL``."""
        named, default = (self.graph, self.graph_default) if kind == "graph" else (self.ub, self.ub_default)
        return named.get(name, default)

    def off(self, kind: Kind) -> tuple[str, ...]:
        """Returns the passes that the file names and switches off, in its order."""
        named = self.graph if kind == "graph" else self.ub
        return tuple(name for name, on in named.items() if not on)


def read_fusion_switch(path: Path) -> FusionSwitch:
    """Reads a fusion switch file.

    Raises:
        DataError: no such file, no fusion switch file, a switch that is neither on nor off, or one that is both.
    """
    path = Path(path)
    try:
        with open(path, "rb", opener=regular_only) as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(raw) > _LARGEST:
        raise DataError(f"{path}: is no fusion switch file (more than {_LARGEST} bytes)")
    try:
        tree: Json = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_once)
        switch = tree.get("Switch") if isinstance(tree, dict) else None
        if not isinstance(switch, dict):
            raise ValueError("no Switch at its top")
        sections = {_SECTIONS[name]: _section(name, value) for name, value in switch.items() if name in _SECTIONS}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no fusion switch file: {error}; check the file") from error
    graph, ub = sections.get("graph", {}), sections.get("ub", {})
    return FusionSwitch(
        {name: on for name, on in graph.items() if name != _ALL},
        {name: on for name, on in ub.items() if name != _ALL},
        graph.get(_ALL, True),
        ub.get(_ALL, True),
        tuple(name for name in switch if name not in _SECTIONS),
    )


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """A dict in which nothing is said twice in different ways; readers differ in which of two they take."""
    made: dict[str, Json] = {}
    for name, value in pairs:
        if made.setdefault(name, value) != value:
            raise ValueError(f"{name[:80]!r} is switched twice, differently")
    return made


def _section(name: str, value: Json) -> dict[str, bool]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no list of passes")
    return {rule: _switch(name, rule, state) for rule, state in value.items()}


def _switch(section: str, rule: str, state: Json) -> bool:
    text = state.strip().lower() if isinstance(state, str) else None
    if text not in ("on", "off"):
        raise ValueError(f"{section} {rule[:80]!r} is {str(state)[:40]!r}, neither on nor off")
    return text == "on"

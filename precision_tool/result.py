"""Result: what a command answers, whichever front asked."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Cell = str | int | float | bool | None
"""What may stand in a table. None prints as ``-``; a float prints with six digits."""


class ExitCode(enum.IntEnum):
    """Exit codes of every command."""

    CLEAN = 0
    FOUND = 1
    USAGE = 2
    DATA = 3
    INTERRUPTED = 130


@dataclass(frozen=True)
class Table:
    """A table to show.

    Attributes:
        title: Heading.
        columns: Column names.
        rows: Cells, one tuple a row, in the order to show.
        marks: Row index -> ``bad``, ``good``, ``warn``; fronts choose the colour.
        paged: Meant for a front that can scroll; line fronts only say how many rows there are.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marks: Mapping[int, str] = field(default_factory=dict)
    paged: bool = False


@dataclass(frozen=True)
class Panel:
    """Lines of text under a title (the ``ni`` panel, the ``vcs`` panels)."""

    title: str
    lines: tuple[str, ...]


Block = Table | Panel


@dataclass(frozen=True)
class Result:
    """What a command answers. Text here is plain: no markup, names literal.

    Attributes:
        title: One line that says what this is.
        blocks: Tables and panels in the order to show.
        notes: Lines of talk (stderr in the batch front): what was skipped, where something was written.
        data: The ``result`` object of ``--json``; plain data that ``json.dumps`` takes (NaN not allowed: use None).
        files: Files written.
        exit_code: See :class:`ExitCode`; ``run`` hands on whatever its shell command ended with.
        problems: What kept the answer from being whole (damaged or missing data); the ``error`` of ``--json``.
    """

    title: str
    blocks: Sequence[Block] = ()
    notes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    exit_code: int = ExitCode.CLEAN
    problems: Sequence[str] = ()

"""Reads the ladders of the observer guard, as :mod:`dumpers.capture.guard` describes them; no file is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from dumpers.capture.guard import FORMAT, HASH_BYTES
from dumpers.errors import DataError

MAX_FILES = 4096
MAX_LINE_BYTES = 64 << 20
MAX_LINES = 10_000_000
MAX_DIMENSIONS = 254
BEFORE_STEPS = -1
"""Number of the rung before the first step."""

NO_HOOK = (
    "the job wrote no ladder: it has none of our hooks, or made no training step. Add sess_dump(sess), "
    "estimator_dump(), keras_dump() or function_dump of precision_tool.tf_config"
)
_FILE = re.compile(r"(?:ladder|rank_(?P<rank>[0-9]{1,9}))_(?P<number>[0-9]{1,9})\.jsonl")
_HASH = re.compile(r"[0-9a-f]{%d}" % (2 * HASH_BYTES))  # noqa: UP031 - braces
_KINDS = (("fed", "fed"), ("fetched", "fetched"), ("variables", "variable"))

Name = tuple[str, str]
"""What it is (``fed``, ``fetched``, ``variable``) and its name."""


@dataclass(frozen=True)
class Mark:
    """What is known of a value: ``size`` in bytes, ``hash`` as hexadecimal digits."""

    dtype: str
    shape: tuple[int, ...]
    size: int
    hash: str


@dataclass(frozen=True)
class Rung:
    """One line of a ladder.

    Attributes:
        at: ``start``, ``step`` or ``settled``.
        step: Number of the step, :data:`BEFORE_STEPS` before the first.
        count: Steps in it.
        recorded: Whether the step was recorded.
        values: Marks by name; None for a variable that is not initialised.
        graph: Hash of the graph where it is new.
        added: Ops that came into the graph while the step ran.
    """

    at: str
    step: int
    count: int = 1
    recorded: bool = False
    values: dict[Name, Mark | None] = field(default_factory=dict)
    graph: str | None = None
    added: int = 0


class LadderFile:
    """A ladder; its lines are read one after the other.

    Args:
        path: The file.
        number: Its place among the ladders of its rank.
        rank: The rank, -1 without one.

    Attributes:
        header: The first line.
        ended: Whether the job went on to its end; known after :meth:`rungs`.

    Raises:
        DataError: it is no ladder.
    """

    def __init__(self, path: Path, number: int, rank: int) -> None:
        self.path = path
        self.number = number
        self.rank = rank
        self.ended = False
        self.header = next((line for _, line in self._lines()), {})
        if self.header.get("at") != "header" or self.header.get("format") != FORMAT:
            raise DataError(f"{path}: no ladder of format {FORMAT}: its first line is no header; record it again")

    @property
    def name(self) -> str:
        """Name of the file without its ending."""
        return self.path.stem

    def rungs(self) -> Iterator[Rung]:
        """Yields the rungs in their order.

        Raises:
            DataError: a line is not what it has to be.
        """
        self.ended = False
        for number, line in islice(self._lines(), 1, None):
            if self.ended:
                raise self._wrong(number, "stands behind the end")
            if line.get("at") == "end":
                self.ended = True
            else:
                yield self._rung(number, line)

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            with self.path.open("rb") as stream:
                number = 0
                while data := stream.readline(MAX_LINE_BYTES + 1):
                    number += 1
                    if len(data) > MAX_LINE_BYTES or number > MAX_LINES:
                        raise self._wrong(number, f"a ladder has {MAX_LINES} lines of {MAX_LINE_BYTES} bytes at most")
                    if not data.endswith(b"\n"):
                        raise self._wrong(number, "was cut short")
                    yield number, self._parsed(number, data)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _parsed(self, number: int, data: bytes) -> dict[str, Any]:
        try:
            line = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._wrong(number, "is no JSON") from error
        if not isinstance(line, dict):
            raise self._wrong(number, "is no object")
        return line

    def _rung(self, number: int, line: dict[str, Any]) -> Rung:
        at = line.get("at")
        if at == "start":
            step, kind = BEFORE_STEPS, "start"
        elif at == "settled":
            step, kind = self._natural(number, line, "step"), "settled"
        else:
            step, kind = self._natural(number, line, "at"), "step"
        graph = line.get("graph")
        if graph is not None and not isinstance(graph, str):
            raise self._wrong(number, "has a graph that is no hash")
        values: dict[Name, Mark | None] = {}
        for key, what in _KINDS:
            found = line.get(key, {})
            if not isinstance(found, dict):
                raise self._wrong(number, f"has {key} that are no object")
            values.update({(what, name): self._mark(number, name, mark) for name, mark in found.items()})
        return Rung(
            at=kind,
            step=step,
            count=self._natural(number, line, "count", 1),
            recorded=line.get("recorded") is True,
            values=values,
            graph=graph,
            added=self._natural(number, line, "added", 0),
        )

    def _mark(self, number: int, name: str, mark: object) -> Mark | None:
        if mark is None:
            return None
        if isinstance(mark, list) and len(mark) == 4:
            dtype, shape, size, digest = mark
            if (
                isinstance(dtype, str)
                and isinstance(shape, list)
                and len(shape) <= MAX_DIMENSIONS
                and all(_is_natural(n) for n in [*shape, size])
                and isinstance(digest, str)
                and _HASH.fullmatch(digest)
            ):
                return Mark(dtype, tuple(shape), size, digest)
        raise self._wrong(number, f"has no fingerprint for {name[:100]!r}")

    def _natural(self, number: int, line: dict[str, Any], key: str, default: int | None = None) -> int:
        value = line.get(key, default)
        if not _is_natural(value):
            raise self._wrong(number, f"has no number in {key!r}")
        return int(value)  # type: ignore[arg-type]  # just looked at

    def _wrong(self, number: int, what: str) -> DataError:
        return DataError(f"{self.path}: line {number} {what}; record this ladder again")


def open_ladders(folder: Path) -> list[LadderFile]:
    """Returns the ladders in a folder, in the order of their numbers, then ranks.

    Raises:
        DataError: there is none, there are too many, or they are of more than one run.
    """
    try:
        entries = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    matches = [match for match in map(_FILE.fullmatch, entries) if match]
    if not matches:
        raise DataError(f"{folder}: {NO_HOOK}")
    if len(matches) > MAX_FILES:
        raise DataError(f"{folder}: {len(matches)} ladders, at most {MAX_FILES} are read")
    found = [LadderFile(folder / m.group(), int(m["number"]), int(m["rank"] or -1)) for m in matches]
    runs: dict[int, set[str]] = {}
    for ladder in found:
        runs.setdefault(ladder.rank, set()).add(str(ladder.header.get("run")))
    if any(len(ids) > 1 for ids in runs.values()):
        raise DataError(f"{folder}: holds the ladders of several runs; give each run an empty folder in TF_DUMP_GUARD")
    return sorted(found, key=lambda ladder: (ladder.number, ladder.rank))


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63

r"""The user's own pairs of op names: a JSON object or a CSV of two columns, left name and right name.

A left part that begins with ``re:`` is a regular expression for the whole name; ``\1`` in the right part is then what
its first group matched. Plain lines go before patterns, patterns in the order of the file; the first that fits counts.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compare.map_patterns import MAX_NAME, check_template, compile_pattern, expand
from dumpers.errors import DataError
from dumpers.formats.raw import regular_only
from dumpers.names import flatten

_MAX_BYTES: Final = 16 << 20
_SECONDS: Final = 30.0
"""For all patterns on all names; a file that needs longer is refused, not waited for."""

_HEADS: Final = ("left", "right")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True)
class Line:
    """One entry of a map.

    Attributes:
        where: ``map.csv line 3``.
        left: Op name, or the text of a pattern.
        right: Op name, or a template.
        pattern: Compiled, None for a plain name.
    """

    where: str
    left: str
    right: str
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Target:
    """Op of the other side that a line leads to."""

    op: str
    where: str


@dataclass(frozen=True)
class Renames:
    """What a map says of given op names.

    Attributes:
        targets: By op name.
        unused: A message for each line that fits none of them.
    """

    targets: Mapping[str, Target]
    unused: tuple[str, ...]

    def target(self, op: str) -> Target | None:
        """Returns where a name leads, None if no line speaks of it."""
        return self.targets.get(op)

    def inverted(self) -> Inverted:
        """Returns the way back.

        Raises:
            DataError: two names lead to the same one.
        """
        back: dict[str, tuple[str, Target]] = {}
        for name, target in self.targets.items():
            key = flatten(target.op)
            other = back.setdefault(key, (name, Target(name, target.where)))
            if other[0] != name:
                raise DataError(
                    f"{other[1].where} and {target.where}: {other[0]} and {name} both lead to {target.op}; keep one"
                )
        return Inverted({key: found for key, (_, found) in back.items()}, self.unused)


@dataclass(frozen=True)
class Inverted(Renames):
    """Renames from right to left, by flattened names."""

    def target(self, op: str) -> Target | None:
        """Returns where a name leads, None if no line speaks of it."""
        return self.targets.get(flatten(op))


@dataclass(frozen=True)
class NameMap:
    """A map of op names; :func:`read_map` reads one."""

    path: Path
    lines: tuple[Line, ...]

    def resolve(self, names: Iterable[str]) -> Renames:
        """Applies the map to op names.

        A plain line fits the name itself, else the one name that is equal once flattened.

        Raises:
            DataError: the patterns take too long.
        """
        names = tuple(names)
        targets: dict[str, Target] = {}
        used = self._plain(names, targets)
        missing = self._patterns(names, targets, used)
        told = [f"{line.where}: {missing.get(number) or _fits_none(line)}" for number, line in enumerate(self.lines)]
        return Renames(targets, tuple(text for number, text in enumerate(told) if number not in used))

    def _plain(self, names: tuple[str, ...], targets: dict[str, Target]) -> set[int]:
        present = set(names)
        flat: dict[str, list[str]] = {}
        used: set[int] = set()
        for number, line in enumerate(self.lines):
            if line.pattern is not None:
                continue
            name: str | None = line.left
            if name not in present:
                if not flat:
                    for known in names:
                        flat.setdefault(flatten(known), []).append(known)
                found = flat.get(flatten(line.left), [])
                name = found[0] if len(found) == 1 else None
            if name is not None and targets.setdefault(name, Target(line.right, line.where)).where == line.where:
                used.add(number)
        return used

    def _patterns(self, names: tuple[str, ...], targets: dict[str, Target], used: set[int]) -> dict[int, str]:
        """Applies the patterns to names without a plain line; returns why one was not tried on long names."""
        lines = [(number, line) for number, line in enumerate(self.lines) if line.pattern is not None]
        end = time.monotonic() + _SECONDS
        missing: dict[int, str] = {}
        for name in names if lines else ():
            if name in targets:
                continue
            if len(name) > MAX_NAME:
                missing = {number: f"not tried on names of more than {MAX_NAME} characters" for number, _ in lines}
                continue
            for number, line in lines:
                found = line.pattern.fullmatch(name) if line.pattern else None
                if found:
                    targets[name] = Target(expand(line.right, found), line.where)
                    used.add(number)
                    break
            if time.monotonic() > end:
                raise DataError(f"{self.path}: its patterns take longer than {_SECONDS:.0f} s; make them more specific")
        return missing


def _fits_none(line: Line) -> str:
    return f"no op on the left fits {line.left}" if line.pattern else f"no op on the left is called {line.left}"


def read_map(path: Path) -> NameMap:
    """Reads a map of op names.

    Raises:
        DataError: it cannot be read, is neither JSON nor CSV of two columns, names a left op twice, or has a pattern
            that is refused.
    """
    try:
        with open(path, "rb", opener=regular_only) as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise DataError(f"{path}: has more than {_MAX_BYTES >> 20} MiB; it is no map of op names")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is no UTF-8 text (byte {error.start}); give JSON or CSV") from error
    entries = _json_entries(path, text) if text.lstrip()[:1] == "{" else _csv_entries(path, text)
    lines: list[Line] = []
    seen: dict[str, int] = {}
    for number, left, right in entries:
        where = f"{path.name} line {number}"
        if left in seen:
            raise DataError(f"{path}: line {number} has {left}, which line {seen[left]} has already; keep one")
        seen[left] = number
        lines.append(_line(path, number, where, left, right))
    if not lines:
        raise DataError(f"{path}: is empty; give lines of a left name, a comma and a right name")
    return NameMap(path, tuple(lines))


def _line(path: Path, number: int, where: str, left: str, right: str) -> Line:
    if not left or not right or left == "re:":
        raise DataError(f"{path}: line {number}: the {'right' if left and left != 're:' else 'left'} name is empty")
    if not left.startswith("re:"):
        return Line(where, left, right)
    try:
        pattern = compile_pattern(left[3:])
    except ValueError as error:
        raise DataError(f"{path}: line {number}: the pattern {left} {error}") from error
    try:
        check_template(right, pattern)
    except ValueError as error:
        raise DataError(f"{path}: line {number}: the right part {right} {error}") from error
    return Line(where, left, right, pattern)


def _csv_entries(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    """Yields line number, left and right of a CSV; a first line ``left,right`` and lines with ``#`` are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)  # lines end as in a file, not at U+2028
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if reader.line_num == 1 and tuple(cell.lower() for cell in cells) == _HEADS:
                continue
            if len(cells) != 2:
                raise DataError(
                    f"{path}: line {reader.line_num} has {len(cells)} columns; it takes two, the left name and the "
                    "right one (names with commas in quotes)"
                )
            yield reader.line_num, cells[0], cells[1]
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error


def _json_entries(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    """Yields line number, name and value of the entries of a JSON object of texts."""
    try:
        entries = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: line {error.lineno}: {error.msg}; it takes a JSON object of texts") from error
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path}: is no JSON object of texts") from error
    strings = _STRING.finditer(text)  # name, value, name, value, ... as long as every value is a text
    at, line = 0, 1
    for name, value in entries:
        found = next(strings)
        line += text.count("\n", at, found.start())
        at = found.start()
        if not isinstance(value, str):
            raise DataError(f"{path}: line {line}: {name} leads to something that is no name; give a text")
        next(strings)
        yield line, name.strip(), value.strip()

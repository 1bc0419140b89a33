"""A loss curve from whatever a training wrote: CSV, JSON, TensorFlow event files, or a text log.

CSV may have a header (TensorBoard's export, Keras' ``CSVLogger``), JSON may be our own ``--json`` document, a history
of Keras, TensorBoard's export, a list, or one object a line. What holds several curves needs the name of the one meant.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from dumpers.errors import DataError, UsageError, one_line
from dumpers.formats.event_file import read_scalar_log
from dumpers.formats.loss_json import Found, curves_in_json
from dumpers.formats.raw import open_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.event_file import ScalarSeries

STEP_NAMES: Final = ("step", "steps", "global_step", "iteration", "iter", "batch", "epoch")
"""Columns that number the points, the finest first."""

_TIME_NAMES: Final = ("wall time", "wall_time", "time", "timestamp")
_EMPTY: Final = ("", "NA", "-")
_MAX_BYTES: Final = 1 << 28
_SHOWN: Final = 12

_Curve = TypeVar("_Curve")


@dataclass(frozen=True, eq=False)
class LossCurve:
    """One curve, one value a step.

    Attributes:
        path: Where it comes from.
        name: Its column, key or tag; empty where the file has no names.
        steps: int64 [N], ascending, each once.
        values: float64 [N]; NaN and infinities kept.
        notes: What was left out on the way.
        problems: Damage in the file; what is here comes from before it.
    """

    path: Path
    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)


def read_loss_curve(
    path: Path, *, name: str | None = None, prefer: Sequence[str] = ("loss",), regex: str | None = None
) -> LossCurve:
    """Reads one curve.

    Args:
        path: File, or a folder of event files.
        name: Column, key or tag that is meant; the end of a dotted path will do (``losses.npu``).
        prefer: Names to look for, in this order, where none is given.
        regex: Reads the file as a text log: the group ``loss`` (else the first group) is the value, ``step`` its step.

    Raises:
        UsageError: several curves and no name, no curve of that name, or a wrong expression.
        DataError: the file cannot be read, or holds no curve.
    """
    path = Path(path)
    if regex is not None:
        return _from_log(path, regex)
    if path.is_dir() or "tfevents" in path.name:
        return _from_events(path, name, prefer)
    text = _text(path)
    found, notes = (curves_in_json(text, path), []) if text.lstrip()[:1] in ("{", "[") else _from_csv(text, path)
    chosen = _choose({one.name: one for one in found}, name, prefer, path)
    if chosen.problem:
        raise DataError(chosen.problem)
    return _curve(path, chosen.name, (chosen.steps, chosen.values), notes)


def _curve(
    path: Path,
    name: str,
    points: tuple[Sequence[int] | NDArray[np.int64], Sequence[float] | NDArray[np.float64]],
    notes: Iterable[str] = (),
    problems: Iterable[str] = (),
) -> LossCurve:
    """Puts points in order; of a step that was written twice the later one counts, as a restarted job means it."""
    try:
        steps, values = np.asarray(points[0], dtype=np.int64), np.asarray(points[1], dtype=np.float64)
    except OverflowError as error:
        raise DataError(f"{path}: a step or value is too large for a number; is it the right column?") from error
    if not len(steps):
        raise DataError(f"{path}: no value of a curve in it")
    unique, last = np.unique(steps[::-1], return_index=True)
    notes = list(notes)
    if len(unique) < len(steps):
        notes.append(f"{path}: {len(steps) - len(unique)} steps were written again; the later value counts")
    return LossCurve(path, name, unique, values[::-1][last], tuple(notes), tuple(problems))


def _choose(curves: dict[str, _Curve], name: str | None, prefer: Sequence[str], path: Path) -> _Curve:
    if name is not None:
        matching = [key for key in curves if key == name] or [key for key in curves if _ends_with(key, name)]
        if len(matching) == 1:
            return curves[matching[0]]
        raise UsageError(f"{path}: {len(matching) or 'no'} curves are called {name}; it has {_listed(curves)}")
    for wanted in prefer:
        matching = [key for key in curves if _ends_with(key.lower(), wanted)]
        if len(matching) == 1:
            return curves[matching[0]]
    if len(curves) == 1:
        return next(iter(curves.values()))
    if not curves:
        raise DataError(f"{path}: holds no curve of numbers; a text log needs --regex")
    raise UsageError(f"{path}: holds several curves ({_listed(curves)}); name one with --tag")


def _ends_with(key: str, name: str) -> bool:
    return key == name or key.endswith((f".{name}", f"/{name}"))


def _listed(names: Iterable[str]) -> str:
    known = sorted(names)
    shown = ", ".join(one_line(name) for name in known[:_SHOWN])
    return f"{shown} and {len(known) - _SHOWN} more" if len(known) > _SHOWN else shown or "none"


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES:
        raise DataError(f"{path}: more than {_MAX_BYTES >> 20} MiB; cut out the part that holds the curve")
    return data.decode("utf-8-sig", "backslashreplace")


# ----------------------------------------------------------------------------------------------------------- events


def _from_events(path: Path, name: str | None, prefer: Sequence[str]) -> LossCurve:
    log = read_scalar_log(path)
    curves: dict[str, ScalarSeries] = {f"{one.run}/{one.tag}".lstrip("/"): one for one in log.series}
    series = _choose(curves, name, prefer, path)
    problems = [f"{problem.path}: {problem.reason}" for problem in log.problems]
    return _curve(path, series.tag, (series.steps, series.values), (), problems)


# -------------------------------------------------------------------------------------------------------------- CSV


def _from_csv(text: str, path: Path) -> tuple[list[Found], list[str]]:
    lines = text.splitlines()
    notes = _unfinished(text, path)
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    try:
        rows = [(n, row) for n, row in enumerate(csv.reader(lines, delimiter=delimiter), 1) if any(map(str.strip, row))]
    except csv.Error as error:
        raise DataError(f"{path}: is no CSV: {error}") from error
    if not rows:
        raise DataError(f"{path}: is empty")
    head = [cell.strip() for cell in rows[0][1]]
    if all(_number(cell) is not None for cell in head):
        names = ["loss"] if len(head) == 1 else ["step", "loss"]
        if len(head) > 2:
            raise DataError(f"{path}: {len(head)} columns without a header; what they are cannot be told")
    else:
        names, rows = head, rows[1:]
    found, empty = _columns(path, names, rows)
    return found, [*notes, *empty]


def _unfinished(text: str, path: Path) -> list[str]:
    """Says that the last value may have lost digits: a number cut in its middle is still a number."""
    if text.endswith(("\n", "\r")):
        return []
    return [f"{path}: its last line has no end; if the file was cut there, the last value is not whole"]


def _columns(path: Path, names: list[str], rows: list[tuple[int, list[str]]]) -> tuple[list[Found], list[str]]:
    """Returns each column of numbers as a curve, and how many cells are empty."""
    lower = [name.lower() for name in names]
    at = next((lower.index(name) for name in STEP_NAMES if name in lower), None)
    places = [place for place, name in enumerate(lower) if name not in (*_TIME_NAMES, *STEP_NAMES)]
    found, empty = [], 0
    for place in places:
        column, missing = _column(path, rows, (place, at), names[place])
        empty += missing
        if column.values or (column.problem and ("loss" in lower[place] or len(places) == 1)):
            found.append(column)
    return found, [f"{path}: {empty} empty cells"] if empty else []


def _column(path: Path, rows: list[tuple[int, list[str]]], at: tuple[int, int | None], name: str) -> tuple[Found, int]:
    """Returns a column up to the first cell that is no number; an empty cell (``NA`` of Keras) has no point."""
    place, step_place = at
    steps: list[int] = []
    values: list[float] = []
    empty = 0
    for order, (line, row) in enumerate(rows):
        cell = row[place].strip() if place < len(row) else ""
        if cell in _EMPTY:
            empty += 1
            continue
        value = _number(cell)
        if value is None:
            problem = f"{path}: line {line}: {one_line(cell[:40])} is no number; a text log needs --regex"
            return Found(name, steps, values, problem), empty
        values.append(value)
        step = row[step_place] if step_place is not None and step_place < len(row) else ""
        steps.append(order if step_place is None else _step(step, path, line))
    return Found(name, steps, values), empty


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _step(text: str, path: Path, line: int) -> int:
    value = _number(text)
    if value is None or not value.is_integer() or abs(value) >= 2**53:
        raise DataError(f"{path}: line {line}: the step {one_line(text[:40].strip()) or '(empty)'} is no whole number")
    return int(value)


# --------------------------------------------------------------------------------------------------------- text log


def _from_log(path: Path, regex: str) -> LossCurve:
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise UsageError(f"--regex {regex}: {error}") from error
    if not pattern.groups:
        raise UsageError(f"--regex {regex}: has no group; put the value into (...) or (?P<loss>...)")
    group: str | int = "loss" if "loss" in pattern.groupindex else 1
    if group == 1 and pattern.groupindex.get("step") == 1:
        raise UsageError(f"--regex {regex}: has a step and no value; call the value's group (?P<loss>...)")
    steps: list[int] = []
    values: list[float] = []
    text = _text(path)
    for number, line in enumerate(text.splitlines(), 1):
        match = pattern.search(line)
        if match is None or match[group] is None:
            continue
        value = _number(match[group].strip())
        if value is None:
            raise DataError(f"{path}: line {number}: {one_line(match[group][:40])} is no number; narrow --regex")
        step = match["step"] if "step" in pattern.groupindex else None
        steps.append(len(steps) if step is None else _step(step, path, number))
        values.append(value)
    if not values:
        raise DataError(f"{path}: no line matches --regex {regex}")
    return _curve(path, "", (steps, values), _unfinished(text, path))

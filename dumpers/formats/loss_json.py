"""Curves inside a JSON document, or in a file of one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dumpers.errors import DataError

STEP_KEYS: Final = ("step", "global_step", "iteration", "iter", "batch", "epoch")
_MAX_DEPTH: Final = 12
_SPELT: Final = {"nan", "inf", "-inf", "+inf", "infinity", "-infinity"}


@dataclass(frozen=True)
class Found:
    """A curve before it is put in order.

    Attributes:
        name: Dotted path of its keys; empty at the top.
        steps: Of each point.
        values: Of each point; as many as steps.
        problem: What ended it too early, empty for one that is whole.
    """

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    problem: str = ""


def curves_in_json(text: str, path: Path) -> list[Found]:
    """Returns every curve of a document: lists of numbers, of ``[step, value]``, ``[time, step, value]``, of objects.

    A number that is not finite may be spelt as text (``"nan"``), as our own documents do.

    Raises:
        DataError: it is no JSON.
    """
    return list(_walk(_parse(text, path), (), _MAX_DEPTH))


def _parse(text: str, path: Path) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DataError(f"{path}: is nested too deeply to be a curve") from error
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise DataError(f"{path}: is no JSON: {error}") from error
    found = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number} is no JSON: {error}") from error
    return found


def _walk(value: object, keys: tuple[str, ...], depth: int) -> Iterator[Found]:
    if not depth:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, (*keys, str(key)), depth - 1)
    elif isinstance(value, list) and value:
        name = ".".join(keys)
        if all(isinstance(item, dict) for item in value):
            yield from _of_objects(value, name)
        elif all(isinstance(item, list) and len(item) in (2, 3) for item in value):
            yield from _of_points(value, name)
        else:
            numbers = [number(item) for item in value]
            kept = [item for item in numbers if item is not None]
            if len(kept) == len(numbers):
                yield Found(name, range(len(kept)), kept)


def _of_points(value: list[list[object]], name: str) -> Iterator[Found]:
    steps = [_whole(item[-2]) for item in value]
    values = [number(item[-1]) for item in value]
    if None not in steps and None not in values:
        yield Found(name, [step for step in steps if step is not None], [v for v in values if v is not None])


def _of_objects(value: list[dict[str, object]], name: str) -> Iterator[Found]:
    """One curve a key; an object without the key has no point."""
    keys = dict.fromkeys(key for item in value for key in item)
    at = next((key for key in STEP_KEYS if key in keys), None)
    for key in keys:
        if key in STEP_KEYS:
            continue
        points = [(order, item) for order, item in enumerate(value) if key in item]
        values = [number(item[key]) for _, item in points]
        steps = [order if at is None else _whole(item.get(at)) for order, item in points]
        if None not in values and None not in steps:
            found = [step for step in steps if step is not None], [v for v in values if v is not None]
            yield Found(f"{name}.{key}".lstrip("."), *found)


def number(value: object) -> float | None:
    """Returns a JSON value as a number, None for what is none (a truth value is none)."""
    if isinstance(value, str) and value.strip().lower() in _SPELT:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    found = number(value)
    return int(found) if found is not None and found.is_integer() and abs(found) < 2**53 else None

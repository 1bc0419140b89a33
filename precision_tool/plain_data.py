"""Any value a reader returns -> plain data that JSON takes, and short text for a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import TypeAlias

import numpy as np

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"

_LONG = 200
"""Characters of a text in a line; the JSON answer has all of it."""


def plain(value: object) -> Plain:
    """Returns dataclasses and mappings as dicts, sequences as lists, bytes as text, NaN and infinities as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, PurePath) else repr(value)


def lines(value: Plain, indent: str = "") -> list[str]:
    """Returns plain data as lines ``key: value``, nested data indented; long texts are cut with their length."""
    if isinstance(value, dict):
        found: list[str] = []
        for key, item in value.items():
            found += _entry(f"{indent}{key}:", item, indent)
        return found
    if isinstance(value, list):
        if all(not isinstance(item, (dict, list)) for item in value):
            return [indent + (", ".join(short(item) for item in value) or "none")]
        return [line for number, item in enumerate(value) for line in _entry(f"{indent}[{number}]", item, indent)]
    return [indent + short(value)]


def _entry(label: str, item: Plain, indent: str) -> list[str]:
    inner = lines(item, indent + "  ")
    flat = not isinstance(item, dict) and len(inner) == 1
    return [f"{label} {inner[0].strip()}"] if flat else [label, *inner]


def short(value: Plain) -> str:
    """Returns one value as text that fits a line."""
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"

"""A verdict from the JSON document that ``verdict --json`` printed. The file is anybody's: nothing in it is trusted.

What a verdict does not have is ignored; what it has must be of its type. Infinite figures, which JSON cannot hold, are
null there beside a bound that is not, and come back as infinite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.verdict import Kind, Skipped, Suspect, Verdict
from dumpers.errors import DataError

MAX_BYTES = 64 << 20
_SHARE = 1_000_000
"""The document has the share of replayed bytes with six digits, and no number of bytes."""

_HINT = "give a document that verdict --json printed"


def read_saved_verdict(path: Path) -> tuple[Verdict, str]:
    """Reads a document.

    Returns:
        The verdict, and why it is not to be relied upon (the document's ``error``), empty if it is.

    Raises:
        DataError: the file cannot be read, is too large, is no such document, or its verdict is not whole.
    """
    tree = _parsed(path)
    fields = _Fields(str(path), "", tree)
    error = fields.text("error", "")
    result = tree.get("result", tree)
    if not isinstance(result, dict) or "verdict" not in result:
        raise DataError(f"{path}: {error or 'has no verdict'}; {_HINT}")
    return _verdict(_Fields(str(path), "result", result)), error


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(raw) > MAX_BYTES:
        raise DataError(f"{path}: larger than any verdict ({MAX_BYTES} bytes); {_HINT}")
    try:
        tree = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON document: {error}; {_HINT}") from error
    if not isinstance(tree, dict):
        raise DataError(f"{path}: is no document but a single value or list; {_HINT}")
    return tree


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


class _Fields:
    """Values of an object in the document, each checked; errors name the place."""

    def __init__(self, path: str, place: str, values: Mapping[str, Any]) -> None:
        self._path, self._place, self._values = path, place, values

    def wrong(self, key: str, wanted: str) -> DataError:
        """Returns the error about one value."""
        place = f"{self._place}.{key}" if self._place else key
        what = "missing" if key not in self._values else f"not {wanted}"
        return DataError(f"{self._path}: {place} is {what}; {_HINT}")

    def text(self, key: str, default: str | None = None) -> str:
        """Returns a text; the default where it is missing or null."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def text_or_none(self, key: str) -> str | None:
        """Returns a text, None where there is none."""
        return None if self._values.get(key) is None else self.text(key)

    def whole(self, key: str, default: int = 0) -> int:
        """Returns a whole number from 0 on."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise self.wrong(key, "a whole number")
        return value

    def real(self, key: str) -> float | None:
        """Returns a finite number, None where there is none."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > _LARGEST:
            raise self.wrong(key, "a number")
        return float(value)

    def share(self, key: str) -> float | None:
        """Returns a number from 0 to 1, None where there is none."""
        value = self.real(key)
        if value is not None and not 0 <= value <= 1:
            raise self.wrong(key, "between 0 and 1")
        return value

    def items(self, key: str) -> Sequence[Any]:
        """Returns a list that must be there."""
        value = self._values.get(key)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def objects(self, key: str) -> list[_Fields]:
        """Returns the objects of a list."""
        found = []
        for number, item in enumerate(self.items(key)):
            if not isinstance(item, dict):
                raise DataError(f"{self._path}: {self._place}.{key}[{number}] is no object; {_HINT}")
            found.append(_Fields(self._path, f"{self._place}.{key}[{number}]", item))
        return found

    def object(self, key: str) -> _Fields:
        """Returns an object that must be there."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return _Fields(self._path, f"{self._place}.{key}", value)

    @property
    def all(self) -> Mapping[str, Any]:
        """The values as they are."""
        return self._values


_LARGEST = 1.7976931348623157e308


def _verdict(fields: _Fields) -> Verdict:
    kind = fields.text("verdict")
    if kind not in set(Kind):
        raise fields.wrong("verdict", f"a kind of verdict ({', '.join(Kind)})")
    side = fields.text("side", "left")
    if side not in ("left", "right"):
        raise fields.wrong("side", "left or right")
    keys = fields.items("keys") if fields.all.get("keys") is not None else []
    if not all(isinstance(key, int) and not isinstance(key, bool) for key in keys):
        raise fields.wrong("keys", "a list of whole numbers")
    steps = fields.items("next")
    if not all(isinstance(step, str) for step in steps):
        raise fields.wrong("next", "a list of texts")
    coverage = fields.object("coverage")
    share = coverage.share("replayed_share")
    confidence = fields.share("confidence")
    return Verdict(
        Kind(kind),
        op=fields.text_or_none("op"),
        op_type=fields.text_or_none("op_type"),
        tensor=fields.text_or_none("tensor"),
        table=fields.text_or_none("table"),
        keys=tuple(keys),
        keys_total=fields.whole("keys_total", len(keys)),
        step=None if fields.all.get("step") is None else fields.whole("step"),
        confidence=1.0 if confidence is None else confidence,
        side=side,
        evidence=tuple(map(_evidence, fields.objects("evidence"))),
        next=tuple(steps),
        suspects=tuple(map(_suspect, fields.objects("suspects"))),
        compared_bytes=coverage.whole("compared_bytes"),
        skipped=tuple(Skipped(s.text("tensor"), s.text("reason", "")) for s in coverage.objects("skipped")),
        replayed=(0, 0) if share is None else (round(share * _SHARE), _SHARE),
    )


def _evidence(row: _Fields) -> Mapping[str, Any]:
    row.text("text")
    found = dict(row.all)
    if "ratio" in found and found["ratio"] is None and row.real("bound") is not None:
        found["ratio"] = math.inf
    return found


def _suspect(row: _Fields) -> Suspect:
    bound, ratio = row.real("bound"), row.real("ratio")
    side = row.text("side", "left")
    if side not in ("left", "right"):
        raise row.wrong("side", "left or right")
    return Suspect(
        row.text("op"),
        row.text("op_type", ""),
        side,
        local_error=row.real("local_error"),
        bound=bound,
        ratio=math.inf if ratio is None and bound is not None else ratio,
        member=row.text_or_none("member"),
        note=row.text("note", ""),
    )

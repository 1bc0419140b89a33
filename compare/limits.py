"""How far an output may be off: the cosine that everybody knows, and limits by dtype and by op type from a small file.

The file is TOML. ``[default]`` holds for every output, ``[dtype.NAME]`` for those of one element type (of the left
side), ``[op_type.NAME]`` for those of one type of op; where several hold, each key is taken from the narrowest one that
has it: op type, dtype, default.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compare.figures import distance_at
from dumpers.dtypes import numpy_dtype
from dumpers.errors import UsageError
from dumpers.formats.raw import regular_only

if TYPE_CHECKING:
    from compare.figures import Figures
    from compare.table import ComparisonRow

COSINE: Final = 0.98
"""The limit of the cosine that users know."""

GREATEST: Final = (
    "max_abs_error",
    "mean_abs_error",
    "root_mean_square_error",
    "relative_distance",
    "max_relative_error",
    "mean_relative_error",
    "accumulated_relative_error",
    "divergence",
    "differing",
    "differing_share",
)
"""Figures with a greatest allowed value: fields of Figures, and the share of the elements that differ."""

_KEYS: Final = ("cosine", *GREATEST)
_TABLES: Final = ("default", "dtype", "op_type")
_LONGEST: Final = 1 << 20

Values = Mapping[str, float]


@dataclass(frozen=True)
class Limits:
    """Limits of the outputs of a comparison.

    Attributes:
        default: Figure -> limit. The cosine's is the least one allowed, all others the greatest.
        dtypes, op_types: The same for one element type and for one type of op.
        path: Where they were read from; None for the built-in ones.
    """

    default: Values = field(default_factory=dict)
    dtypes: Mapping[str, Values] = field(default_factory=dict)
    op_types: Mapping[str, Values] = field(default_factory=dict)
    path: Path | None = None

    def of(self, dtype: str, op_type: str) -> dict[str, float]:
        """Returns the limits of one output."""
        narrower = (self.dtypes.get(dtype, {}), self.op_types.get(op_type, {}))
        return {"cosine": COSINE, **self.default, **narrower[0], **narrower[1]}

    def broken(self, row: ComparisonRow) -> tuple[str, ...]:
        """Returns the limits that a row breaks, each as a phrase; none for what could not be compared.

        A figure that is undefined breaks nothing by itself (R1); :meth:`compare.figures.Figures.below` says what stands
        in for a cosine that is.
        """
        figures = row.figures
        if figures is None or not figures.comparable:
            return ()
        limits = self.of(figures.left_dtype, row.op_type)
        cosine = limits.pop("cosine")
        found = [_below(figures, cosine)] if figures.below(cosine) else []
        for name, limit in limits.items():
            value = _value(figures, name)
            if value is not None and value > limit:
                found.append(f"{name} {value:.6g} above {limit:g}")
        return tuple(found)

    def unused(self, rows: Iterable[ComparisonRow]) -> list[str]:
        """Returns a line for each table of the file that no row is subject to: a name may be mistyped."""
        known_types: set[str] = set()
        known_dtypes: set[str] = set()
        for row in rows:
            known_types.add(row.op_type)
            if row.figures is not None:
                known_dtypes.add(row.figures.left_dtype)
        lost = [f"op_type.{name}" for name in self.op_types if name not in known_types]
        lost += [f"dtype.{name}" for name in self.dtypes if name not in known_dtypes]
        return [f"{self.path}: nothing compared is subject to [{name}]" for name in lost]

    def as_dict(self) -> dict[str, object]:
        """The limits as JSON data."""
        return {
            "file": None if self.path is None else str(self.path),
            "default": self.of("", ""),
            "dtype": {name: dict(values) for name, values in self.dtypes.items()},
            "op_type": {name: dict(values) for name, values in self.op_types.items()},
        }


def _below(figures: Figures, limit: float) -> str:
    if figures.non_finite_mismatches:
        return f"{figures.non_finite_mismatches} elements are not finite on one side only"
    if figures.cosine is not None:
        return f"cosine {figures.cosine:.6f} below {limit:g}"
    if figures.scalar and figures.relative_distance is not None:
        return f"relative_distance {figures.relative_distance:.6g} of a scalar above {distance_at(limit):.6g}"
    reason = figures.reasons.get("CosineSimilarity", "undefined")
    return f"no cosine ({reason}) and {'some' if figures.differing is None else figures.differing} elements differ"


def _value(figures: Figures, name: str) -> float | None:
    if name == "differing_share":
        return None if figures.differing is None else figures.differing / max(figures.elements, 1)
    value: float | None = getattr(figures, name)
    return value


def read_limits(path: Path) -> Limits:
    """Reads a file of limits.

    Raises:
        UsageError: it cannot be read, is no TOML, or holds a table, key or value that means nothing.
    """
    try:
        with open(path, "rb", opener=regular_only) as file:
            raw = file.read(_LONGEST + 1)
    except OSError as error:
        raise UsageError(f"--thresholds {path}: cannot be read: {error.strerror}") from error
    if len(raw) > _LONGEST:
        raise UsageError(f"--thresholds {path}: larger than 1 MB, so it is no file of thresholds")
    try:
        data = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"--thresholds {path}: no TOML: {error}") from error
    for name in data:
        if name not in _TABLES:
            raise _unknown(path, f"table or key {name!r}", name, _TABLES, "put figures below [default]")
    tables = {name: _table(path, name, data.get(name, {})) for name in _TABLES}
    groups = {
        kind: {name: _values(path, f"{kind}.{name}", values) for name, values in tables[kind].items()}
        for kind in ("dtype", "op_type")
    }
    for name in groups["dtype"]:
        _check_dtype(path, name)
    return Limits(_values(path, "default", tables["default"]), groups["dtype"], groups["op_type"], path)


def _table(path: Path, name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"--thresholds {path}: {name} is a value; it has to be a table, [{name}...]")
    return value


def _values(path: Path, where: str, values: object) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in _table(path, where, values).items():
        if key not in _KEYS:
            raise _unknown(path, f"[{where}]: figure {key!r}", key, _KEYS, f"known are {', '.join(_KEYS)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise UsageError(f"--thresholds {path}: [{where}] {key} = {value!r}: has to be a number")
        if key == "cosine" and not -1 <= value <= 1:
            raise UsageError(f"--thresholds {path}: [{where}] cosine = {value:g}: a cosine is between -1 and 1")
        if value < 0 and key != "cosine":
            raise UsageError(f"--thresholds {path}: [{where}] {key} = {value:g}: an error is never negative")
        found[key] = float(value)
    return found


def _check_dtype(path: Path, name: str) -> None:
    try:
        known = numpy_dtype(name).name == name
    except ValueError:
        known = False
    if not known:
        raise UsageError(f"--thresholds {path}: [dtype.{name}]: no element type; for example float32, bfloat16, int64")


def _unknown(path: Path, what: str, name: str, known: Iterable[str], help_text: str) -> UsageError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else help_text
    return UsageError(f"--thresholds {path}: unknown {what}; {hint}")

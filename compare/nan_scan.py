"""Reading every tensor of a dump once and keeping what is known about its NaN and infinities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import BLOCK, element_kind, flat, to_float64
from compare.statistics import NonFinite
from dumpers.dtypes import WITHOUT_VALUE, is_float
from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord


@dataclass(frozen=True)
class Finding:
    """What one tensor holds.

    Attributes:
        nan, positive_inf, negative_inf: Number of such elements; all 0 for a clean tensor, and where old statistics say
            that there are some but not how many.
        index: Place of the first element that is not finite, None for a clean tensor and where only statistics tell.
        kind: ``nan``, ``inf`` or ``-inf``: what stands there; empty for a clean tensor.
        shape: As stored.
        problem: Why the tensor could not be read; nothing is known then.
    """

    record: TensorRecord
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    index: tuple[int, ...] | None = None
    kind: str = ""
    shape: tuple[int, ...] = ()
    problem: str = ""

    @property
    def bad(self) -> bool:
        """Whether there is a NaN or an infinity."""
        return bool(self.kind)

    @property
    def recorded(self) -> bool:
        """Whether only recorded statistics tell of it: which elements are bad, and their values, is not known."""
        return self.bad and self.index is None

    @property
    def known(self) -> bool:
        """Whether the tensor was read."""
        return not self.problem

    def describe(self) -> str:
        """Returns ``fc/MatMul:output:0 has nan at [0,1] (2 NaN, 0 Inf, 0 -Inf)``."""
        if not self.bad:
            return f"{self.record.name} is finite"
        counts = f"{self.nan} NaN, {self.positive_inf} Inf, {self.negative_inf} -Inf"
        if self.index is None:
            known = counts if self.nan or self.positive_inf or self.negative_inf else "number not known"
            return f"{self.record.name} has {self.kind} ({known}; from statistics, element and value not known)"
        place = ",".join(map(str, self.index))
        return f"{self.record.name} has {self.kind} at [{place}] ({counts})"


def scan_records(
    records: Iterable[TensorRecord], progress: Callable[[int, int], None] | None = None, total: int = 0
) -> list[Finding]:
    """Reads the tensors one after another; strings, integers and what has no value are clean without being read."""
    found: list[Finding] = []
    for done, record in enumerate(records, 1):
        found.append(scan_record(record))
        if progress is not None:
            progress(done, total)
    return found


def scan_record(record: TensorRecord) -> Finding:
    """Reads one tensor."""
    if record.source is None:
        return _scan_statistics(record)
    if record.dtype not in WITHOUT_VALUE and not is_float(record.dtype):
        return Finding(record, shape=record.shape or ())
    if record.dtype == "string":
        return Finding(record, shape=record.shape or ())
    try:
        array = record.load()
    except DataError as error:
        return Finding(record, problem=str(error))
    return _scan(record, array)


def _scan_statistics(record: TensorRecord) -> Finding:
    """Takes what the file states of a tensor that it has no values of."""
    statistics = record.statistics
    if statistics is None or statistics.finite is None:
        return Finding(record, problem=f"no value: {record.note.removeprefix('no value: ') or record.dtype}")
    if statistics.finite:
        return Finding(record, shape=record.shape or ())
    counts = (statistics.nan or 0, statistics.pos_inf or 0, statistics.neg_inf or 0)
    figures = [figure for figure in (statistics.min, statistics.max) if figure is not None]
    if counts[0] or (not any(counts) and any(math.isnan(figure) for figure in figures)):
        kind = "nan"
    else:
        kind = "inf" if counts[1] or (not any(counts) and math.inf in figures) else "-inf"
    return Finding(record, *counts, kind=kind, shape=record.shape or ())


def _scan(record: TensorRecord, array: NDArray[np.generic]) -> Finding:
    kind = element_kind(array.dtype)
    if kind not in ("float", "complex"):
        return Finding(record, shape=array.shape)
    counts = NonFinite()
    width = 2 if kind == "complex" else 1
    blocks = flat(array)
    with np.errstate(all="ignore"):
        for start in range(0, array.size, BLOCK):
            counts.add(start, to_float64(blocks[start : start + BLOCK], width), width)
    if counts.first is None:
        return Finding(record, shape=array.shape)
    index = tuple(int(i) for i in np.unravel_index(counts.first, array.shape)) if array.ndim else ()
    return Finding(record, counts.nan, counts.positive, counts.negative, index, _kind_of(array[index]), array.shape)


def _kind_of(value: np.generic) -> str:
    parts = np.atleast_1d(to_float64(np.atleast_1d(np.asarray(value)), 2 if np.iscomplexobj(value) else 1))
    if np.isnan(parts).any():
        return "nan"
    return "-inf" if (parts == -np.inf).any() and not (parts == np.inf).any() else "inf"

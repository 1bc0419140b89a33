"""Reading every tensor of a dump once and keeping what is known about its NaN and infinities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.nan_work import Outcome, scan_tensors
from compare.nonfinite import Counts, count_array, merged
from dumpers.errors import DataError
from dumpers.formats.layouts import is_private
from dumpers.formats.relayout import original

if TYPE_CHECKING:
    from dumpers.records import TensorRecord


@dataclass(frozen=True)
class Finding:
    """What one tensor holds.

    Attributes:
        nan, positive_inf, negative_inf: Number of such elements; all 0 for a clean tensor, and where old statistics say
            that there are some but not how many.
        index: Place of the first element that is not finite, None for a clean tensor and where only statistics tell.
        kind: ``nan``, ``inf`` or ``-inf``: what stands there; empty for a clean tensor.
        shape: As stored; of a bad tensor in a private layout that of the original, to which the index belongs.
        problem: Why the tensor could not be read; nothing is known then.
        padding: Bad elements that lie in the padding of a private layout: no part of the tensor, and not counted.
    """

    record: TensorRecord
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    index: tuple[int, ...] | None = None
    kind: str = ""
    shape: tuple[int, ...] = ()
    problem: str = ""
    padding: int = 0

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
        """Returns ``fc/MatMul:output:0 has nan at [0,1] (2 NaN, 0 Inf, 0 -Inf of 4)``."""
        if not self.bad:
            return f"{self.record.name} is finite"
        counts = f"{self.nan} NaN, {self.positive_inf} Inf, {self.negative_inf} -Inf"
        if self.index is None:
            known = counts if self.nan or self.positive_inf or self.negative_inf else "number not known"
            return f"{self.record.name} has {self.kind} ({known}; from statistics, element and value not known)"
        place = ",".join(map(str, self.index))
        return f"{self.record.name} has {self.kind} at [{place}] ({counts} of {math.prod(self.shape)})"


def scan_records(
    records: Iterable[TensorRecord],
    progress: Callable[[int, int], None] | None = None,
    *,
    threads: int | None = None,
    compiled: bool | None = None,
) -> list[Finding]:
    """Reads the tensors; strings, integers and what has no value are clean without being read.

    Args:
        records: The tensors.
        progress: Told how many pieces of work are done, and of how many; called in the calling thread only.
        threads: How many read at the same time; None for as many as there are processors, at most 8.
        compiled: Whether compiled kernels do it; None where that pays. The findings are the same.

    Returns:
        A finding for each record, in the order of the records.
    """
    found = list(records)
    outcomes = scan_tensors(found, progress, threads=threads, compiled=compiled)
    return [_finding(record, parts) for record, parts in zip(found, outcomes, strict=True)]


def scan_record(record: TensorRecord) -> Finding:
    """Reads one tensor."""
    return scan_records([record], threads=1)[0]


def _finding(record: TensorRecord, parts: Sequence[Outcome]) -> Finding:
    if record.source is None:
        return _of_statistics(record)
    for part in parts:
        if part.problem:
            return Finding(record, problem=part.problem)
    counts, shape = merged(part.counts for part in parts), parts[0].shape
    if counts.first is None:
        return Finding(record, shape=shape)
    if is_private(record.format) and record.original_shape is not None:
        return _of_original(record, counts, shape)
    return _bad(record, counts, shape)


def _bad(record: TensorRecord, counts: Counts, shape: tuple[int, ...], padding: int = 0) -> Finding:
    index = tuple(int(i) for i in np.unravel_index(counts.first or 0, shape)) if shape else ()
    return Finding(record, counts.nan, counts.positive, counts.negative, index, counts.kind, shape, padding=padding)


def _of_original(record: TensorRecord, stored: Counts, shape: tuple[int, ...]) -> Finding:
    """Counts a bad tensor again without its layout's padding, whose content is nobody's business."""
    try:
        array, done = original(record)
    except DataError as error:
        return Finding(record, problem=str(error))
    if not done.endswith("undone"):
        return _bad(record, stored, shape)
    counts = count_array(array)
    padding = sum((stored.nan, stored.positive, stored.negative))
    padding -= sum((counts.nan, counts.positive, counts.negative))
    if counts.first is None:
        return Finding(record, shape=shape, padding=padding)
    return _bad(record, counts, array.shape, padding)


def _of_statistics(record: TensorRecord) -> Finding:
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

"""Dump x Dump -> Comparison: every pair compared, in threads or processes, with bounded memory.

The result is the same byte for byte, whatever the number of threads or workers, and whether or not it was interrupted
in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compare.crew import Crew, ThreadCrew
from compare.figures import COLUMNS
from compare.metrics import compare_arrays, compare_sources, shape_text
from compare.op_lookup import size_bytes
from compare.outcomes import row_of
from compare.pairing import Pair, Unpaired, pair_dumps
from compare.parallel import threaded_map
from compare.schedule import run_units
from compare.selection import Selection
from compare.summary_pairs import compare_summaries, has_summaries
from compare.table import Comparison, ComparisonRow
from compare.units import Look, Unit, Wanted, units_of
from compare.views import align, as_stored
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.crew import Rows
    from compare.figures import Figures
    from compare.journal import Journal
    from compare.name_map import NameMap
    from compare.sums import Run
    from dumpers.graph import Graph
    from dumpers.records import Dump

Progress = Callable[[int, int], None]
"""Called with (pairs done, pairs in all) from the thread that called :func:`compare_dumps`, a few times a second."""

MEMORY_BYTES = 256 << 20
"""Arrays in memory at a time; one pair that is larger is compared alone."""

_MAX_THREADS = 8
_DIVERGENCE = "KullbackLeiblerDivergence"
_ALL = Wanted()

# Nothing is looked at or hashed to find out that two sides are equal. A hash reads every byte of both, as the
# comparison does, and runs no faster than it; two links to one file are read from the page cache the second time. Equal
# checksums in two checkpoints do not spare the reading either: means, deviations and NaN counts need the values, and
# reading is what finds damage (ckpt, which has no such columns, does skip them).


@dataclass(frozen=True)
class SweepOptions:
    """What is compared, and by whom.

    Attributes:
        workers: Processes instead of threads; 0 for none.
        metrics: Columns of the result, in their order; without KullbackLeiblerDivergence its second pass is spared.
        selection: Rows that are wanted; None for all.
        details: Which pairs that differ get a second look; the rest have no ``details``.
        journal: Keeps what is done, so that an interrupted sweep can go on; None for nothing.
    """

    workers: int = 0
    metrics: tuple[str, ...] = COLUMNS
    selection: Selection | None = None
    details: Look = "suspicious"
    journal: Journal | None = None


def compare_dumps(
    left: Dump,
    right: Dump,
    graph: Graph | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    memory_bytes: int = MEMORY_BYTES,
    names: NameMap | None = None,
    options: SweepOptions | None = None,
) -> Comparison:
    """Compares two dumps tensor by tensor.

    A damaged file spoils its own row only. An interrupt ends after the pairs in work, without a result.

    Args:
        left: Under test.
        right: Reference.
        graph: Device graph, needed for a device dump against a framework dump if the dump has none.
        threads: Number of threads; as many as there are processors, at most 8, if None.
        progress: Told what is done.
        memory_bytes: Bound on the arrays in memory.
        names: The user's own pairs of op names.
        options: Everything else.

    Raises:
        DataError: one side is empty, the graph does not belong to the dump, or a worker process died.
        UsageError: nothing fits the selection.
    """
    chosen = options or SweepOptions()
    for side, dump in (("left", left), ("right", right)):
        if not dump.records and not dump.problems:
            raise DataError(f"no tensors in the {side} dump {dump.path}: dump a step there first, or give another path")
    pairing, left_out = pair_dumps(left, right, graph, names), 0
    if chosen.selection is not None:
        pairing, left_out = chosen.selection.apply(pairing)
    count = threads or min(_MAX_THREADS, os.cpu_count() or 1)
    compared = iter(_compare_all(pairing.pairs, count, progress, memory_bytes, chosen))
    rows = tuple(next(compared) if isinstance(row, Pair) else _row_without_partner(row) for row in pairing.rows)
    judged = [row for row in rows if row.judged]
    return Comparison(
        left=left.path,
        right=right.path,
        rows=rows,
        unpaired=pairing.unpaired,
        coverage=pairing.coverage,
        map_notes=pairing.notes,
        problems=left.problems + right.problems,
        left_npy=_all_npy(left),
        right_npy=_all_npy(right),
        compared_bytes=sum(size_bytes(r) for row in judged for r in (row.left, row.right) if r is not None),
        metrics=chosen.metrics,
        left_out=left_out,
    )


def compare_pairs(
    pairs: Sequence[Pair],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    options: SweepOptions | None = None,
) -> list[ComparisonRow]:
    """Compares pairs that somebody has made, with bounded memory; returns their rows in the order of the pairs.

    A damaged file spoils its own row only. The arguments are those of :func:`compare_dumps`.
    """
    count = threads or min(_MAX_THREADS, os.cpu_count() or 1)
    return _compare_all(pairs, count, progress, MEMORY_BYTES, options or SweepOptions())


def _crew(threads: int, workers: int) -> Crew:
    if workers:
        from compare.workers import WorkerCrew

        return WorkerCrew(workers)
    return ThreadCrew(threads, compare_unit)


def _compare_all(
    pairs: Sequence[Pair], threads: int, progress: Progress | None, memory_bytes: int, options: SweepOptions
) -> list[ComparisonRow]:
    """Compares pairs that the journal does not have; returns the rows of all in their order."""
    journal = options.journal
    wanted = Wanted(_DIVERGENCE in options.metrics, options.details, options.workers or threads)
    rows: dict[int, ComparisonRow] = {}
    if journal is not None:
        rows = journal.begin(pairs, f"divergence={wanted.divergence} details={wanted.details}")

    def finished(unit: Unit, found: Rows) -> None:
        for number, pair, row in zip(unit.numbers, unit.pairs, found, strict=True):
            rows[number] = row
            if journal is not None:
                journal.add(pair, row)

    def beat() -> None:
        if progress is not None:
            progress(len(rows), len(pairs))

    missing = [(number, pair) for number, pair in enumerate(pairs) if number not in rows]
    units = units_of(missing, wanted)
    crew = _crew(threads, options.workers)
    run_units(units, crew, compare_unit, memory_bytes=memory_bytes, finished=finished, beat=beat)
    return [rows[number] for number in range(len(pairs))]


def compare_unit(unit: Unit) -> list[ComparisonRow]:
    """Compares the pairs of a unit, in its order. Needs nothing but the unit and the files that it names."""
    return [compare_pair(pair, unit.wanted) for pair in unit.pairs]


def compare_pair(pair: Pair, wanted: Wanted = _ALL) -> ComparisonRow:
    """Compares one pair; what cannot be read or held against each other is a reason in the row.

    Args:
        pair: Two records.
        wanted: What is to be found out.
    """
    if has_summaries(pair):
        return _by_summaries(pair)
    for record in (pair.left, pair.right):
        if record.source is None:
            reason = f"no value: {record.note.removeprefix('no value: ') or record.dtype}"
            return row_of(pair, shape=pair.left.shape, reason=reason)
    try:
        return _in_place(pair, wanted) if as_stored(pair) else _compared(pair, wanted)
    except DataError as error:
        return row_of(pair, shape=pair.left.shape, reason=f"unreadable: {error}", unreadable=True)


def _by_summaries(pair: Pair) -> ComparisonRow:
    try:
        return compare_summaries(pair)
    except DataError as error:
        return row_of(pair, shape=pair.left.shape, reason=f"unreadable: {error}", unreadable=True)


def _in_place(pair: Pair, wanted: Wanted) -> ComparisonRow:
    """Compares plain layouts where they lie in their files."""
    left, right = pair.left.source, pair.right.source
    if left is None or right is None:
        raise ValueError(f"{pair.op} has no value")
    run: Run = threaded_map(wanted.threads) if wanted.threads > 1 else map
    whole = compare_sources(left, right, with_divergence=wanted.divergence, run=run)
    figures, note = _in_one_order(whole)
    if _looked_at(whole, wanted):
        from compare.second_look import look_at_sources

        details, left_out = look_at_sources(left, right, whole)
        figures = replace(figures, details=details)
        note = "; ".join(filter(None, (note, left_out)))
    shape = (whole.elements,) if pair.by_original else whole.left_shape
    return row_of(pair, figures=figures, shape=shape, note=note)


def _compared(pair: Pair, wanted: Wanted) -> ComparisonRow:
    left, right = pair.left.load(), pair.right.load()
    stored = left.shape
    left, right, view_notes = align(pair, left, right)
    whole = compare_arrays(left, right, with_divergence=wanted.divergence)
    figures, shape_note = _in_one_order(whole)
    if _looked_at(whole, wanted):
        from compare.second_look import look

        figures = replace(figures, details=look(left, right, whole))
    flat = pair.by_original and left.shape == stored
    notes = [note for note in (*view_notes, shape_note) if note]
    return row_of(pair, figures=figures, shape=(left.size,) if flat else left.shape, note="; ".join(notes))


def _looked_at(figures: Figures, wanted: Wanted) -> bool:
    """Whether a pair gets a second look; of unlike shapes the flattened figures tell."""
    known = figures if figures.comparable else figures.flattened
    if known is None or not known.differing or wanted.details == "none":
        return False
    return wanted.details == "all" or known.suspicious or known is not figures


def _in_one_order(figures: Figures) -> tuple[Figures, str]:
    """Takes the flat figures where only the way of writing the shape differs; a transposed tensor has none (FC12)."""
    flattened = figures.flattened
    if flattened is None:
        return figures, ""
    shapes = (figures.left_shape, figures.right_shape)
    one_is_flat = min(len(shape) for shape in shapes) <= 1
    without_ones = [[size for size in shape if size != 1] for shape in shapes]
    if not one_is_flat and without_ones[0] != without_ones[1]:
        return figures, ""
    texts = [shape_text(shape) for shape in shapes]
    equal = "; the data are equal element for element" if flattened.differing == 0 else ""
    return flattened, f"shapes differ (same element count): {texts[0]} against {texts[1]} compared flat{equal}"


def _row_without_partner(row: Unpaired) -> ComparisonRow:
    record = row.record
    left, right = (record, None) if row.side == "left" else (None, record)
    return ComparisonRow(
        index=row.index,
        op=row.op,
        op_type=row.op_type,
        left_names=row.left_names,
        right_names=row.right_names,
        io=record.io if record else None,
        slot=record.slot if record else None,
        left=left,
        right=right,
        shape=record.shape if record else None,
        reason=f"[{row.op}] {row.reason}",
    )


def _all_npy(dump: Dump) -> bool:
    paths = [str(record.path) for record in dump if record.path is not None]
    return bool(paths) and all(path.endswith(".npy") for path in paths)

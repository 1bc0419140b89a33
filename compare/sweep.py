"""Dump x Dump -> Comparison: every pair compared, in threads, with bounded memory.

The result is the same for any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from compare.metrics import compare_arrays, compare_sources, shape_text
from compare.op_lookup import size_bytes
from compare.pairing import Pair, Unpaired, pair_dumps
from compare.table import Comparison, ComparisonRow
from compare.views import align, as_stored
from dumpers.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from compare.figures import Figures
    from compare.name_map import NameMap
    from dumpers.graph import Graph
    from dumpers.records import Dump

    Array = NDArray[np.generic]

Progress = Callable[[int, int], None]
"""Called with (pairs done, pairs in all) from the thread that called :func:`compare_dumps`."""

MEMORY_BYTES = 256 << 20
"""Arrays in memory at a time; one pair that is larger is compared alone."""

_BATCH_BYTES = 4 << 20
_BATCH_PAIRS = 64
_MAX_THREADS = 8


def compare_dumps(
    left: Dump,
    right: Dump,
    graph: Graph | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    memory_bytes: int = MEMORY_BYTES,
    names: NameMap | None = None,
) -> Comparison:
    """Compares two dumps tensor by tensor.

    A damaged file spoils its own row only. An interrupt ends after the pairs in work, without a result.

    Args:
        left: Under test.
        right: Reference.
        graph: Device graph, needed for a device dump against a framework dump if the dump has none.
        threads: Number of threads; as many as there are processors, at most 8, if None.
        progress: Told after each batch.
        memory_bytes: Bound on the arrays in memory.
        names: The user's own pairs of op names.

    Raises:
        DataError: one side is empty, or the graph does not belong to the dump.
    """
    for side, dump in (("left", left), ("right", right)):
        if not dump.records and not dump.problems:
            raise DataError(f"no tensors in the {side} dump {dump.path}: dump a step there first, or give another path")
    pairing = pair_dumps(left, right, graph, names)
    pairs = list(pairing.pairs)
    count = threads or min(_MAX_THREADS, os.cpu_count() or 1)
    compared = iter(_compare_all(pairs, count, progress, memory_bytes))
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
    )


def compare_pair(pair: Pair) -> ComparisonRow:
    """Compares one pair; what cannot be read or held against each other is a reason in the row."""
    row = ComparisonRow(
        index=pair.index,
        op=pair.op,
        op_type=pair.op_type,
        left_names=pair.left_names,
        right_names=pair.right_names,
        io=pair.io,
        slot=pair.slot,
        left=pair.left,
        right=pair.right,
        shape=pair.left.shape,
    )
    missing = [record for record in (pair.left, pair.right) if record.source is None]
    if missing:
        return replace(row, reason=f"no value: {missing[0].note.removeprefix('no value: ') or missing[0].dtype}")
    try:
        if as_stored(pair):
            return _in_place(row, pair)
        return _compared(row, pair, pair.left.load(), pair.right.load())
    except DataError as error:
        return replace(row, reason=f"unreadable: {error}", unreadable=True)


def _in_place(row: ComparisonRow, pair: Pair) -> ComparisonRow:
    """Compares plain layouts where they lie in their files."""
    if pair.left.source is None or pair.right.source is None:
        raise ValueError(f"{pair.op} has no value")
    whole = compare_sources(pair.left.source, pair.right.source)
    figures, note = _in_one_order(whole)
    shape = (whole.elements,) if pair.by_original else whole.left_shape
    return replace(row, figures=figures, shape=shape, note=note)


def _compared(row: ComparisonRow, pair: Pair, left: Array, right: Array) -> ComparisonRow:
    stored = left.shape
    left, right, view_notes = align(pair, left, right)
    figures, shape_note = _in_one_order(compare_arrays(left, right))
    flat = pair.by_original and left.shape == stored
    notes = [note for note in (*view_notes, shape_note) if note]
    return replace(row, figures=figures, shape=(left.size,) if flat else left.shape, note="; ".join(notes))


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


def _compare_all(
    pairs: Sequence[Pair], threads: int, progress: Progress | None, memory_bytes: int
) -> list[ComparisonRow]:
    """Runs batches in threads. Only this thread keeps books, so nothing needs a lock and the order cannot change."""
    results: list[list[ComparisonRow]] = []
    pending: dict[Future[list[ComparisonRow]], tuple[int, int]] = {}
    in_memory = done = 0

    def collect() -> None:
        nonlocal in_memory, done
        finished, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in finished:
            position, cost = pending.pop(future)
            results[position] = future.result()
            in_memory -= cost
            done += len(results[position])
        if progress is not None:
            progress(done, len(pairs))

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="compare") as pool:
        try:
            for batch, cost in _batches(pairs):
                while pending and (in_memory + cost > memory_bytes or len(pending) > 2 * threads):
                    collect()
                pending[pool.submit(_compare_batch, batch)] = (len(results), cost)
                results.append([])
                in_memory += cost
            while pending:
                collect()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [row for rows in results for row in rows]


def _compare_batch(batch: Sequence[Pair]) -> list[ComparisonRow]:
    return [compare_pair(pair) for pair in batch]


def _batches(pairs: Sequence[Pair]) -> Iterator[tuple[list[Pair], int]]:
    """Puts small neighbours together: handing over a thousand tiny pairs one by one costs more than comparing them."""
    batch: list[Pair] = []
    cost = 0
    for pair in pairs:
        size = size_bytes(pair.left) + size_bytes(pair.right)
        if batch and (cost + size > _BATCH_BYTES or len(batch) == _BATCH_PAIRS):
            yield batch, cost
            batch, cost = [], 0
        batch.append(pair)
        cost += size
    if batch:
        yield batch, cost


def _all_npy(dump: Dump) -> bool:
    paths = [record.path for record in dump if record.path is not None]
    return bool(paths) and all(path.suffix == ".npy" for path in paths)

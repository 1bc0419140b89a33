"""The reading behind a search for NaN: tensors cut into pieces, pieces taken by threads.

What lies plainly in a file is read in place, block by block and in pieces of large tensors, in several threads; the
rest is loaded, one tensor at a time. What is found does not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from compare.blocks import element_kind
from compare.nonfinite import BLOCK_BYTES, CLEAN, Counts, Scratch, count_array, form_of, merged
from compare.op_lookup import size_bytes
from dumpers.dtypes import WITHOUT_VALUE, is_float
from dumpers.errors import DataError
from dumpers.formats.extent import open_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.extent import TensorFile
    from dumpers.records import TensorRecord

PIECE: Final = 1 << 26
"""Bytes of a tensor that one thread reads at a time; the cut does not depend on the number of threads."""

SMALL: Final = 1 << 16
"""Bytes up to which opening a file costs more than reading it: such files are left to one thread."""

COMPILED_FROM: Final = 1 << 31
"""Bytes from which loading the compiled kernels (half a second) is worth it; below, NumPy is as quick."""

_MOST_THREADS: Final = 8
_TICK: Final = 0.1
"""Seconds between two looks at the progress, and at the keyboard."""


class Outcome(NamedTuple):
    """What a piece of a tensor holds, and the shape of the tensor; or why that is not known."""

    counts: Counts
    shape: tuple[int, ...]
    problem: str = ""


def scan_tensors(
    records: Sequence[TensorRecord],
    progress: Callable[[int, int], None] | None = None,
    *,
    threads: int | None = None,
    compiled: bool | None = None,
) -> list[list[Outcome]]:
    """Reads the tensors; what can hold no NaN is clean without being read.

    Args:
        records: The tensors.
        progress: Told how many pieces are done, and of how many; called in the calling thread only.
        threads: How many read at the same time; None for as many as there are processors, at most 8.
        compiled: Whether compiled kernels do it; None where that pays. What is found is the same.

    Returns:
        For each record the outcomes of its pieces, at least one.
    """
    sizes = [size_bytes(record) if _has_floats(record) else 0 for record in records]
    if compiled is None:
        compiled = "numba" in sys.modules or sum(sizes) >= COMPILED_FROM
    pieces = [piece for number, record in enumerate(records) for piece in _pieces(number, record, sizes[number])]
    outcomes = _Work(records, pieces, compiled).run(threads or default_threads(), progress)
    found: list[list[Outcome]] = [[] for _ in records]
    for piece, outcome in zip(pieces, outcomes, strict=True):
        found[piece.number].append(outcome)
    return found


def default_threads() -> int:
    """Returns how many processors this process may use, at most 8: more do not read faster."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)


def _has_floats(record: TensorRecord) -> bool:
    return record.source is not None and is_float(record.dtype)


class _Piece(NamedTuple):
    """Bytes ``start`` up to ``stop`` (None for the end) of a record's tensor; ``size`` is about how many."""

    number: int
    start: int
    stop: int | None
    size: int


def _pieces(number: int, record: TensorRecord, size: int) -> list[_Piece]:
    if size > PIECE:
        size = _held(record, size)
    starts = range(0, max(size, 1), PIECE)
    return [_Piece(number, at, at + PIECE if at != starts[-1] else None, min(PIECE, size - at)) for at in starts]


def _held(record: TensorRecord, claimed: int) -> int:
    """Bytes of a large tensor that can be read in pieces: no more than its file has, whatever is claimed."""
    source = record.source
    in_place = source is not None and hasattr(source, "open")
    try:
        return min(claimed, source.path.stat().st_size) if source is not None and in_place else PIECE
    except OSError:
        return PIECE


class _Work:
    """Pieces that threads take one after another, large ones first."""

    def __init__(self, records: Sequence[TensorRecord], pieces: Sequence[_Piece], compiled: bool) -> None:
        self._records = records
        self._pieces = pieces
        self._compiled = compiled
        self._outcomes: list[Outcome | None] = [None] * len(pieces)
        order = sorted(range(len(pieces)), key=lambda at: -pieces[at].size)
        self._large = iter([at for at in order if pieces[at].size > SMALL])
        self._small = iter([at for at in order if pieces[at].size <= SMALL])
        self._loading = threading.Lock()  # one loaded tensor at a time bounds the memory
        self._stop = False
        self._failure: BaseException | None = None

    def run(self, threads: int, progress: Callable[[int, int], None] | None) -> list[Outcome]:
        """Does all of it and returns the outcomes in the order of the pieces."""
        total = len(self._pieces)
        if threads == 1 or total < 2:
            self._take(itertools.chain(self._large, self._small), progress)
        else:
            self._in_threads(min(threads, total), progress)
        if self._failure is not None:
            raise self._failure
        if progress is not None and total:
            progress(total, total)
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _in_threads(self, threads: int, progress: Callable[[int, int], None] | None) -> None:
        # Opening small files holds the interpreter's lock most of the time: a second thread at it would only wait.
        lines = [itertools.chain(self._small, self._large), *([self._large] * (threads - 1))]
        if self._compiled:
            _load_kernels()
        workers = [threading.Thread(target=self._guarded, args=(line,), daemon=True) for line in lines]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                while worker.is_alive():
                    worker.join(_TICK)
                    if progress is not None:
                        progress(len(self._outcomes) - self._outcomes.count(None), len(self._pieces))
        finally:
            self._stop = True
            for worker in workers:
                if worker.is_alive():
                    worker.join()

    def _guarded(self, line: Iterable[int]) -> None:
        try:
            self._take(line, None)
        except BaseException as error:  # goes on in the thread that asked
            self._failure = error
            self._stop = True

    def _take(self, line: Iterable[int], progress: Callable[[int, int], None] | None) -> None:
        scratch = Scratch()
        for done, at in enumerate(line):
            if self._stop:
                return
            piece = self._pieces[at]
            try:
                self._outcomes[at] = self._scan(self._records[piece.number], piece, scratch)
            except DataError as error:
                self._outcomes[at] = Outcome(CLEAN, (), str(error))
            if progress is not None:
                progress(done, len(self._pieces))

    def _scan(self, record: TensorRecord, piece: _Piece, scratch: Scratch) -> Outcome:
        if not _is_to_read(record) or record.source is None:
            return Outcome(CLEAN, record.shape or ())
        file = open_tensor(record.source)
        if file is not None:
            with file:
                return Outcome(self._in_place(file, piece, scratch), file.shape)
        if piece.start:  # the first piece loads all of it
            return Outcome(CLEAN, record.shape or ())
        with self._loading:
            array = record.load()
            return Outcome(self._in_memory(array, scratch), array.shape)

    def _in_place(self, file: TensorFile, piece: _Piece, scratch: Scratch) -> Counts:
        if element_kind(file.dtype) not in ("float", "complex"):
            return CLEAN
        item, size = file.dtype.itemsize, file.nbytes
        stop = size if piece.stop is None else min(piece.stop, size)
        if piece.start >= stop:
            return CLEAN
        form = form_of(file.dtype)
        if self._compiled and form is not None:
            from compare.onepass.nonfinite import scan_file

            at, wanted = file.offset + piece.start, stop - piece.start
            counts, read = scan_file(file.fd, at, wanted, piece.start // item, form, scratch)
            if read < wanted:
                raise _shorter(file)
            return counts
        return merged(_blocks_in_place(file, piece.start, stop, scratch))

    def _in_memory(self, array: NDArray[np.generic], scratch: Scratch) -> Counts:
        if element_kind(array.dtype) not in ("float", "complex"):
            return CLEAN
        form = form_of(array.dtype)
        if self._compiled and form is not None:
            from compare.onepass.nonfinite import scan_memory

            return scan_memory(array, form, scratch)
        return count_array(array)


def _is_to_read(record: TensorRecord) -> bool:
    return record.dtype != "string" and (record.dtype in WITHOUT_VALUE or is_float(record.dtype))


def _load_kernels() -> None:
    """Compiles or loads them once, before threads ask for them all at the same time."""
    from compare.onepass.nonfinite import scan_memory

    values = np.zeros(1, np.float32)
    form = form_of(values.dtype)
    if form is not None:
        scan_memory(values, form, Scratch())


def _blocks_in_place(file: TensorFile, start: int, stop: int, scratch: Scratch) -> Iterable[Counts]:
    item = file.dtype.itemsize
    for at in range(start, stop, BLOCK_BYTES):
        size = min(BLOCK_BYTES, stop - at)
        _fill(file, scratch.raw[:size], at)
        yield scratch.count(size, at // item, file.dtype)


def _fill(file: TensorFile, target: NDArray[np.uint8], at: int) -> None:
    """Reads bytes ``at`` and following of a tensor.

    Raises:
        DataError: the file has become shorter, or cannot be read.
    """
    done, view = 0, target.data
    while done < target.size:
        try:
            got = os.preadv(file.fd, [view[done:]], file.offset + at + done)
        except OSError as error:
            raise DataError(f"{file.where}: cannot be read: {error.strerror or error}") from error
        if not got:
            raise _shorter(file)
        done += got


def _shorter(file: TensorFile) -> DataError:
    return DataError(f"{file.where}: became shorter while it was read, or cannot be read; dump it again")

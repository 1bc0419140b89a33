"""Who does the work of a sweep: threads of this process. :mod:`compare.workers` has processes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from compare.table import ComparisonRow
    from compare.units import Unit

Rows = Sequence["ComparisonRow"]
Work = Callable[["Unit"], Rows]

_LAST_WAIT_SECONDS = 5.0
"""How long an interrupted sweep waits for threads in the middle of a large pair. They die with the program."""


class Crew(Protocol):
    """Takes units, gives their rows back in any order. A context manager; leaving it stops everything."""

    room: int
    """Units that may be in its hands at a time."""

    inline: bool
    """Whether small units are better done by the caller itself."""

    def submit(self, unit: Unit) -> None:
        """Takes one unit."""

    def collect(self, seconds: float) -> list[tuple[Unit, Rows]]:
        """Returns what is finished; waits for it up to so many seconds.

        Raises:
            Exception: what a unit raised.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


class ThreadCrew:
    """Daemon threads that start with the first units.

    Not an executor of the standard library: one of those keeps the program alive until its threads are done, and an
    interrupt during a pair of 60 GB would not be heard for a minute.

    Args:
        count: Number of threads.
        work: Compares a unit.
    """

    inline = True

    def __init__(self, count: int, work: Work) -> None:
        self.room = 2 * count
        self._count = count
        self._work = work
        self._threads: list[threading.Thread] = []
        self._orders: queue.SimpleQueue[Unit | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Unit, Rows | BaseException]] = queue.SimpleQueue()

    def submit(self, unit: Unit) -> None:
        """Takes one unit."""
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._serve, name=f"compare-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._orders.put(unit)

    def _serve(self) -> None:
        while (unit := self._orders.get()) is not None:
            try:
                self._done.put((unit, self._work(unit)))
            except BaseException as error:
                self._done.put((unit, error))

    def collect(self, seconds: float) -> list[tuple[Unit, Rows]]:
        """Returns what is finished; see :class:`Crew`."""
        found: list[tuple[Unit, Rows]] = []
        try:
            while True:
                unit, rows = self._done.get(timeout=0 if found else seconds) if seconds else self._done.get_nowait()
                if isinstance(rows, BaseException):
                    raise rows
                found.append((unit, rows))
        except queue.Empty:
            return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while True:  # nobody starts what is still in the queue
            try:
                self._orders.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._orders.put(None)
        end = time.monotonic() + _LAST_WAIT_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()) if kind is not None else None)

"""Background threads whose queue is bounded in bytes, so that dumping never takes more memory than it may."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Callable, Deque, Dict, Optional

QUEUE_BYTES = 256 << 20
"""What may wait to be written when more is about to come; the training thread then waits too."""

LANES = 2
"""Threads that write. A file system takes one file's data in turn, so each lane has files of its own."""


class BoundedWorker:
    """Runs actions in the background, those of one lane one after the other.

    The interpreter waits for the threads before it exits, so nothing that was handed in is lost. Where there can be no
    thread (the interpreter is about to exit, the system has no more) the caller does the action itself.

    Args:
        queue_bytes: Most bytes that may wait when others are admitted; a single larger amount is admitted when nothing
            else waits.
    """

    def __init__(self, queue_bytes: int = QUEUE_BYTES) -> None:
        self._limit = queue_bytes
        self._waiting_bytes = 0
        self._most_bytes = 0
        self._change = threading.Condition()
        self._pools: Dict[int, ThreadPoolExecutor] = {}
        self._pending: Deque[Future[None]] = deque()

    @property
    def most_bytes(self) -> int:
        """The most bytes that ever waited."""
        return self._most_bytes

    def admit(self, size_bytes: int) -> None:
        """Waits until there is room for ``size_bytes``, which the caller is about to make and to submit."""
        with self._change:
            while self._waiting_bytes and self._waiting_bytes + size_bytes > self._limit:
                self._change.wait()

    def submit(self, size_bytes: int, action: Callable[..., None], *args: object, lane: int = 0) -> None:
        """Queues ``action(*args)``, which holds ``size_bytes`` of memory, behind what its lane has to do already."""
        with self._change:
            self._waiting_bytes += size_bytes
            self._most_bytes = max(self._most_bytes, self._waiting_bytes)
            try:
                self._pending.append(self._pool(lane).submit(self._run, size_bytes, action, args))
            except RuntimeError:  # no thread can be started
                before = list(self._pending)
            else:
                while len(self._pending) > 1 and self._pending[0].done() and self._pending[0].exception() is None:
                    self._pending.popleft()
                return
        wait(before)
        self._run(size_bytes, action, args)

    def flush(self) -> None:
        """Waits until everything handed in so far is done.

        Raises:
            Exception: whatever an action raised.
        """
        while True:
            with self._change:
                if not self._pending:
                    return
                future = self._pending.popleft()
            future.result()

    def _pool(self, lane: int) -> ThreadPoolExecutor:
        found: Optional[ThreadPoolExecutor] = self._pools.get(lane)
        if found is None:
            found = ThreadPoolExecutor(max_workers=1, thread_name_prefix="precision_tool_writer")
            found.submit(_nothing)  # starts the thread; a pool that cannot would keep what it was handed all the same
            self._pools[lane] = found
        return found

    def _run(self, size_bytes: int, action: Callable[..., None], args: "tuple[object, ...]") -> None:
        try:
            action(*args)
        finally:
            with self._change:
                self._waiting_bytes -= size_bytes
                self._change.notify_all()


def _nothing() -> None:
    """What a thread is started with."""

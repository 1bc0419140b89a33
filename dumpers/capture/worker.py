"""A background thread whose queue is bounded in bytes, so that dumping never takes more memory than it may."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Callable, Deque, Optional, Tuple

QUEUE_BYTES = 256 << 20
"""What may wait to be written; the training thread then waits too."""


class BoundedWorker:
    """Runs actions one after the other in a thread of its own.

    The interpreter waits for the thread before it exits, so nothing that was handed in is lost.

    Args:
        queue_bytes: Most bytes that wait at a time; a single larger action is taken when nothing else waits.
    """

    def __init__(self, queue_bytes: int = QUEUE_BYTES) -> None:
        self._limit = queue_bytes
        self._waiting_bytes = 0
        self._most_bytes = 0
        self._change = threading.Condition()
        self._pool: Optional[ThreadPoolExecutor] = None
        self._pending: Deque[Future[None]] = deque()

    @property
    def most_bytes(self) -> int:
        """The most bytes that ever waited."""
        return self._most_bytes

    def submit(self, size_bytes: int, action: Callable[..., None], *args: object) -> None:
        """Queues ``action(*args)``, which holds ``size_bytes`` of memory; waits while the queue is full."""
        with self._change:
            while self._waiting_bytes and self._waiting_bytes + size_bytes > self._limit:
                self._change.wait()
            self._waiting_bytes += size_bytes
            self._most_bytes = max(self._most_bytes, self._waiting_bytes)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="precision_tool_writer")
            self._pending.append(self._pool.submit(self._run, size_bytes, action, args))
            while len(self._pending) > 1 and self._pending[0].done() and self._pending[0].exception() is None:
                self._pending.popleft()

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

    def _run(self, size_bytes: int, action: Callable[..., None], args: Tuple[object, ...]) -> None:
        try:
            action(*args)
        finally:
            with self._change:
                self._waiting_bytes -= size_bytes
                self._change.notify_all()

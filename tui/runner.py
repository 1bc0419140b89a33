"""Runs commands in a thread, one at a time, and posts what becomes of them."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from textual.message import Message
from textual.worker import Worker, get_current_worker

from dumpers.errors import PrecisionToolError
from precision_tool.workbench import Workbench
from tui.messages import Broke, Failed, Finished, Progressed, Stopped, Task

Post = Callable[[Message], object]

_REDRAW_SECONDS = 0.05
_TURN_SECONDS = 0.1


class Runner:
    """Runs tasks on one workbench. Its caches are not made for two threads, so tasks wait for each other.

    Args:
        workbench: What the commands work on.
    """

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._lock = threading.Lock()

    def run(self, task: Task, post: Post) -> None:
        """Runs one task and posts its end. Call it in a Textual thread worker: cancelling that stops the task.

        A command hears of it at its next step of progress, as the KeyboardInterrupt that Ctrl-C is in the other
        fronts; so it leaves no half-written file behind.
        """
        worker = get_current_worker()
        drawn = 0.0

        def progress(what: str, done: int, total: int) -> None:
            nonlocal drawn
            _check(worker)
            now = time.monotonic()
            if now - drawn >= _REDRAW_SECONDS:
                drawn = now
                post(Progressed(task, what, done, total))

        try:
            with self._turn(worker):
                result = task.call.run(self._workbench, progress)
        except PrecisionToolError as error:
            post(Failed(task, str(error)))
        except OSError as error:
            post(Failed(task, f"{error.filename}: {error.strerror}" if error.filename else str(error)))
        except KeyboardInterrupt:
            post(Stopped(task))
        except Exception:  # the outermost loop of this front: a bug is shown, the session goes on
            post(Broke(task, tuple(traceback.format_exc().rstrip("\n").split("\n"))))
        else:
            post(Stopped(task) if worker.is_cancelled else Finished(task, result))

    @contextmanager
    def _turn(self, worker: Worker[object]) -> Iterator[None]:
        while not self._lock.acquire(timeout=_TURN_SECONDS):
            _check(worker)
        try:
            _check(worker)
            yield
        finally:
            self._lock.release()


def _check(worker: Worker[object]) -> None:
    if worker.is_cancelled:
        raise KeyboardInterrupt

"""Processes that compare: for many tensors whose cost is Python's, and for machines with many cores.

A worker is a fresh Python that runs :mod:`compare.worker` and nothing else: it never imports the caller's main
program, which may be a training script with TensorFlow in it. It is in a session of its own, so Ctrl-C at a terminal
reaches only the program, which ends the workers; when the program is killed, a worker reads the end of its pipe and
ends too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from compare.outcomes import dressed
from dumpers.errors import DataError

if TYPE_CHECKING:
    from compare.crew import Rows
    from compare.units import Unit

_ROOT = Path(__file__).resolve().parent.parent
_END_SECONDS = 2.0


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    unit: Unit | None = None


class WorkerCrew:
    """Worker processes, started with the first units.

    Args:
        count: Number of processes.
    """

    inline = False

    def __init__(self, count: int) -> None:
        self.room = count
        self._workers: list[_Worker] = []

    def submit(self, unit: Unit) -> None:
        """Gives a unit to a worker that has none; see :class:`compare.crew.Crew`."""
        worker = next((worker for worker in self._workers if worker.unit is None), None)
        if worker is None:
            worker = _start()
            self._workers.append(worker)
        worker.unit = unit
        try:
            worker.pipe.send(unit)
        except OSError as error:
            raise _died(worker) from error

    def collect(self, seconds: float) -> list[tuple[Unit, Rows]]:
        """Returns what is finished; see :class:`compare.crew.Crew`.

        Raises:
            DataError: a worker was killed.
            MemoryError: one had too little memory.
            RuntimeError: one met a bug; its traceback is the message.
        """
        busy = {worker.pipe: worker for worker in self._workers if worker.unit is not None}
        return [self._taken(busy[pipe]) for pipe in wait(list(busy), seconds) if isinstance(pipe, Connection)]

    def _taken(self, worker: _Worker) -> tuple[Unit, Rows]:
        unit = worker.unit
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError) as error:
            raise _died(worker) from error
        worker.unit = None
        if unit is None or isinstance(answer, MemoryError):
            raise MemoryError
        if isinstance(answer, str):
            raise RuntimeError(f"in a worker: {answer}")
        return unit, [dressed(pair, row) for pair, row in zip(unit.pairs, answer, strict=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            worker.pipe.close()
            if kind is not None:
                worker.process.terminate()
        for worker in self._workers:
            try:
                worker.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def _start() -> _Worker:
    ours, theirs = Pipe()
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "compare.worker", str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return _Worker(process, ours)


def _died(worker: _Worker) -> DataError:
    """Says how a worker ended; killed ones mostly had too little memory."""
    try:
        code = worker.process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        code = 0
    tensor = worker.unit.pairs[0].left.name if worker.unit else "nothing"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return DataError(
        f"a worker process ended ({how}) while it compared {tensor} and its neighbours; if memory is short give fewer "
        "--workers, then the same command again"
    )

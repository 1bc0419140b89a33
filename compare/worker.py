"""A worker process: ``python -m compare.worker FD`` compares the units that come through a pipe.

The pipe is one end of ``multiprocessing.Pipe``; :mod:`compare.workers` starts workers and holds the other end.
"""

from __future__ import annotations

import sys
import traceback
from multiprocessing.connection import Connection

from compare.outcomes import bare
from compare.sweep import compare_unit


def serve(pipe: Connection) -> None:
    """Answers each unit with its rows, in its order; ends when the other end is closed."""
    while True:
        try:
            unit = pipe.recv()
        except (EOFError, OSError):
            return
        answer: object
        try:
            answer = [bare(row) for row in compare_unit(unit)]
        except MemoryError:
            answer = MemoryError()
        except Exception:  # a bug of ours: the caller shows it
            answer = traceback.format_exc()
        try:
            pipe.send(answer)
        except OSError:
            return


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as end:
        serve(end)

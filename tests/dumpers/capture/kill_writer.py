"""Writes records without TensorFlow, in processes that end by SIGKILL at each moment of the writing in turn.

``python kill_writer.py FOLDER KEEP`` prints the number of moments; folder ``<n>`` has what a process left that was
killed at moment n, and beside it the record that the next process wrote there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dumpers.capture import pack
from dumpers.capture.plan import How, Taken
from dumpers.capture.record import FORMAT, GraphFile, Item, RunRecord
from dumpers.capture.summaries import MODES, summarise
from dumpers.capture.talk import SayOnce
from dumpers.capture.worker import BoundedWorker

RESUMED = 7
STEPS = 2


def arrays_of(step: int) -> dict[str, Any]:
    """Values of a step by ``op:output``; no two steps have the same."""
    random = np.random.RandomState(100 + step)
    found = {
        "floats": random.standard_normal((40, 20)).astype(np.float32),
        "ids": random.randint(0, 1 << 40, size=300).astype(np.int64),
        "texts": np.array([b"a%d" % step, b"", b"longer %d" % step]),
        "scalar": np.float32(step + 0.5).reshape(()),
        "empty": np.zeros((0, 4), np.float32),
        "halves": random.standard_normal(700).astype(np.float16),
        "more": random.standard_normal((30, 33)),
    }
    return {f"net/{name}:0": value for name, value in found.items()}


def truth_of(step: int, keep: str) -> dict[str, Any]:
    """What a whole record of a step has of each tensor: a value, a summary, or None."""
    if keep in MODES:
        return {item.taken.name: summarise(item.value, item.dtype, keep) for item in items_of(step)}
    return arrays_of(step) if keep != "shapes" else dict.fromkeys(arrays_of(step))


def items_of(step: int) -> list[Item]:
    items = []
    for at, (name, value) in enumerate(arrays_of(step).items()):
        dtype = "string" if value.dtype.kind == "S" else value.dtype.name
        taken = Taken(name, name[:-2], 0, "Const", dtype, None, at, How.FED if "ids" in name else How.FETCH)
        items.append(Item(taken, 1000 * step + at, value, dtype))
    return items


def write(folder: Path, keep: str, steps: list[int], before: Any = None) -> None:
    """Writes records one behind the other; ``before`` is called with the number of each, when all others are done."""
    worker, graph, say_once = BoundedWorker(), GraphFile(b""), SayOnce()
    # A GraphDef with one node "n" of type "Const", by hand, since protobuf is TensorFlow's.
    graph.content = b"\x0a\x0a\x0a\x01n\x12\x05Const"
    for step in steps:
        if before is not None:
            worker.flush()
            before(step)
        header = {"format": FORMAT, "run": step + 1, "step": step, "start_us": 1000 * step, "graph": None}
        RunRecord(folder, dict(header, fetches=[]), say_once, keep).submit(worker, graph, items_of(step))
    worker.flush()


def in_a_process(action: Any, *given: Any) -> int:
    """How a process ended that did it."""
    pid = os.fork()
    if pid == 0:
        try:
            action(*given)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def counted(folder: Path, keep: str, pipe: int) -> None:
    moments = fault_points.Numbered(lambda *given: None)
    fault_points.install(moments)
    write(folder, keep, list(range(STEPS)))
    os.write(pipe, str(moments.count).encode())


def killed(folder: Path, keep: str, at: int) -> None:
    def kill(number: int, name: str, moment: str) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    fault_points.install(fault_points.Numbered(kill))
    write(folder, keep, list(range(STEPS)))


def main(folder: Path, keep: str) -> None:
    pack.GROUP_BYTES = 3000
    folder.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    assert in_a_process(counted, folder / "whole", keep, writing) == 0
    count = int(os.read(reading, 100))
    for at in range(count):
        place = folder / str(at)
        assert in_a_process(killed, place, keep, at) == signal.SIGKILL, at
        assert in_a_process(write, place, keep, [RESUMED]) == 0, at
    print(count)  # noqa: T201


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import fault_points

    main(Path(sys.argv[1]), sys.argv[2])

"""``bench dump``: what recording costs a training job, in plain steps.

Plain steps, steps under a hook that does not record, and recorded steps in every mode take turns in one process, each
kind in a session of its own over one graph; TensorFlow's own dumping session follows. A recorded step is timed twice:
until ``run`` returns, which is what the job sees, and until all of it is written.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from dumpers.capture.worker import BoundedWorker
from precision_tool.bench.dump_model import Model, Shape, build, config
from precision_tool.bench.measure import Plain, Report, Row, machine

if TYPE_CHECKING:
    import tensorflow as tf

KEEPS: Final = ("pack", "npy", "shapes", "stats", "sketch", "hash")
"""What is kept, as :data:`dumpers.capture.record.KEEPS`; ``pack`` and ``npy`` are the two formats of full values."""

_NEVER: Final = "999999"
_MEMORY_STEPS: Final = 4

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        shape: Of the model.
        rounds: Repetitions of each recorded step.
        plain: Plain steps, and steps under an idle hook, of a round.
        stock_rounds: Repetitions of a step under TensorFlow's dumping session, which takes seconds.
    """

    shape: Shape
    rounds: int
    plain: int
    stock_rounds: int


FULL: Final = Sizes(Shape(), rounds=9, plain=12, stock_rounds=3)
SMALL: Final = Sizes(Shape(features=3, dim=4, rows=50, units=8, batch=16), rounds=2, plain=3, stock_rounds=1)


def run(*, small: bool, seed: int, progress: Progress) -> Report:
    """Measures in a temporary folder that is gone afterwards.

    Args:
        small: Sizes that take seconds; the figures then say little.
        seed: Of the model's initial values and its batch.
        progress: Told what is being done.

    Raises:
        OSError: no room for the temporary files (about 2 GB; ``TMPDIR`` says where).
    """
    sizes = SMALL if small else FULL
    model = build(sizes.shape, seed)
    with tempfile.TemporaryDirectory(prefix="bench-dump-") as name:
        folder = Path(name)
        times, step = _in_turns(model, sizes, folder, progress)
        progress("TensorFlow's dumping session", sizes.rounds, sizes.rounds + 2)
        times["stock"] = _stock(model, sizes.stock_rounds, folder)
        progress("memory", sizes.rounds + 1, sizes.rounds + 2)
        memory = {keep: peak_mb(keep, folder, small=small, seed=seed) for keep in ("", "pack", "sketch")}
    progress("done", sizes.rounds + 2, sizes.rounds + 2)
    rows = _rows({case: statistics.median(taken) for case, taken in times.items()}, step)
    setup: dict[str, Plain] = {
        **machine(("numpy", "tensorflow")),
        "small": small,
        "seed": seed,
        "rounds": sizes.rounds,
        "tensors": step["tensors"],
        "bytes": step["bytes"],
        "figures": "medians of rounds in which all take turns, after one that does not count",
    }
    return Report(tuple(rows), summarise(rows, memory), setup)


def summarise(rows: Sequence[Row], memory: Mapping[str, float | None]) -> dict[str, Plain]:
    """Returns the published figures: times as multiples of a plain step, megabytes above the plain job's peak."""
    seconds = {row.case: row.seconds for row in rows}
    plain = seconds["plain"]
    found: dict[str, Plain] = {"plain_step_ms": plain * 1e3, "idle_hook": seconds["idle hook"] / plain}
    for keep in KEEPS:
        found[f"{keep}_seen"] = seconds[f"{keep}, seen"] / plain
        found[f"{keep}_drained"] = seconds[f"{keep}, drained"] / plain
    found["stock_session"] = seconds["stock"] / plain
    found["stock_over_pack_drained"] = seconds["stock"] / seconds["pack, drained"]
    base = memory[""]
    for keep in ("pack", "sketch"):
        peak = memory[keep]
        found[f"{keep}_extra_peak_mb"] = None if peak is None or base is None else peak - base
    return found


def _rows(seconds: Mapping[str, float], step: Mapping[str, int]) -> list[Row]:
    plain = seconds["plain"]
    return [
        Row("step", case, step["bytes"], "bytes", taken, "" if case == "plain" else "plain step", plain)
        for case, taken in seconds.items()
    ]


def _in_turns(
    model: Model, sizes: Sizes, folder: Path, progress: Progress
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Returns the seconds of each case, and tensors and bytes of a step."""
    times: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:

        def opened(steps: str | None, keep: str, worker: BoundedWorker | None) -> tf.compat.v1.Session:
            session = _session(model)
            if steps is not None:
                session = record_session(session, folder / keep, parse_steps(steps), worker=worker, keep=keep)
            stack.enter_context(session)
            session.run(model.init)
            return session

        plain, idle = opened(None, "", None), opened(_NEVER, "pack", None)
        workers = {keep: BoundedWorker() for keep in KEEPS}
        recorded = {keep: opened("", keep, workers[keep]) for keep in KEEPS}
        step = {"tensors": 0, "bytes": 0}
        for number in range(sizes.rounds + 1):
            progress("steps in turns", number, sizes.rounds + 3)
            for _ in range(sizes.plain):
                times.setdefault("plain", []).append(_timed(plain, model))
                times.setdefault("idle hook", []).append(_timed(idle, model))
            for keep in KEEPS:
                seen, drained = _recorded(recorded[keep], workers[keep], model)
                times.setdefault(f"{keep}, seen", []).append(seen)
                times.setdefault(f"{keep}, drained", []).append(drained)
                if keep == "shapes":
                    step = _measured(folder / keep)
                shutil.rmtree(folder / keep)
            if not number:
                times.clear()
    return times, step


def _session(model: Model) -> tf.compat.v1.Session:
    import tensorflow as tf

    return tf.compat.v1.Session(graph=model.graph, config=config())


def _timed(session: tf.compat.v1.Session, model: Model) -> float:
    start = time.perf_counter()
    session.run(model.step, model.feeds)
    return time.perf_counter() - start


def _recorded(session: tf.compat.v1.Session, worker: BoundedWorker, model: Model) -> tuple[float, float]:
    """Seconds until the job goes on, and until all is written."""
    start = time.perf_counter()
    session.run(model.step, model.feeds)
    seen = time.perf_counter() - start
    worker.flush()
    return seen, time.perf_counter() - start


def _measured(folder: Path) -> dict[str, int]:
    """Tensors with a value and bytes, each memory once, of the step recorded there."""
    (manifest,) = folder.glob("*/record.json")
    tree = json.loads(manifest.read_bytes())
    return {"tensors": sum("bytes" in entry for entry in tree["tensors"]), "bytes": tree["bytes"]}


def _stock(model: Model, rounds: int, folder: Path) -> list[float]:
    """Seconds of a step under TensorFlow's own dumping session."""
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    times = []
    with _session(model) as session:
        session.run(model.init)
        wrapped: Any = DumpingDebugWrapperSession(session, session_root=str(folder / "stock"))
        for _ in range(rounds + 1):
            times.append(_timed(wrapped, model))
            shutil.rmtree(folder / "stock")
            (folder / "stock").mkdir()
    return times[1:]


def peak_mb(keep: str, folder: Path, *, small: bool, seed: int) -> float | None:
    """Returns the peak resident megabytes of a process that trains a few steps, recorded unless ``keep`` is empty.

    None where the system does not tell.
    """
    if not Path("/proc/self/status").exists():
        return None
    program = (
        f"from precision_tool.bench.dump import child; child({keep!r}, {str(folder / 'memory')!r}, {small}, {seed})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-2]) / 1024


def child(keep: str, folder: str, small: bool, seed: int) -> None:
    """Trains, and prints the peak in megabytes; the process that :func:`peak_mb` starts."""
    sizes = SMALL if small else FULL
    model = build(sizes.shape, seed)
    session = _session(model)
    if keep:
        session = record_session(session, Path(folder), parse_steps(""), keep=keep)
    with session:
        session.run(model.init)
        for _ in range(_MEMORY_STEPS):
            session.run(model.step, model.feeds)
    shutil.rmtree(folder, ignore_errors=True)
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    sys.stdout.write("".join(f"{line}\n" for line in lines if line.startswith("VmHWM:")))

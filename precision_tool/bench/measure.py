"""How benches measure: what is compared runs in turns within one process, and medians are reported.

A ratio of two medians that were taken in turns holds on a busy machine, where single times move by half.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

Plain: TypeAlias = "str | int | float | bool | Mapping[str, Plain] | Sequence[Plain] | None"
"""What ``json.dumps`` takes."""

_COUNTERS: Final = Path("/proc/self/io")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        measure: What kind of work (``layout``, ``list``, ``tfdbg``, ``read``).
        case: Which case of it, for a person.
        amount: How much was worked off.
        unit: Of what: ``bytes``, ``files``, ``tensors``.
        seconds: Median of the time for all of it.
        baseline: What it is held against, empty if nothing.
        baseline_seconds: Median of the baseline's time for the same amount, taken in turns.
        facts: Further figures of this measure, by key.
    """

    measure: str
    case: str
    amount: int
    unit: str
    seconds: float
    baseline: str = ""
    baseline_seconds: float | None = None
    facts: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Amount a second."""
        return self.amount / self.seconds

    @property
    def ratio(self) -> float | None:
        """Speed as a multiple of the baseline's, None without one."""
        return None if self.baseline_seconds is None else self.baseline_seconds / self.seconds

    def as_dict(self) -> dict[str, Plain]:
        """The row as JSON data."""
        return {
            "measure": self.measure,
            "case": self.case,
            "amount": self.amount,
            "unit": self.unit,
            "seconds": self.seconds,
            "per_s": self.per_s,
            "baseline": self.baseline,
            "baseline_seconds": self.baseline_seconds,
            "ratio": self.ratio,
            **self.facts,
        }


@dataclass(frozen=True)
class Report:
    """What a bench answers.

    Attributes:
        rows: All measurements.
        summary: The figures that are published and that issues bind.
        setup: Versions, threads, sizes, seed.
    """

    rows: tuple[Row, ...]
    summary: Mapping[str, Plain]
    setup: Mapping[str, Plain]


def interleaved(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns the median seconds of each action; every round runs each once, after one round that does not count.

    What an action returns is freed outside of its time.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            result = action()
            taken = time.perf_counter() - start
            del result
            if number:
                times[name].append(taken)
    return {name: statistics.median(taken) for name, taken in times.items()}


def bytes_read(action: Callable[[], object]) -> int | None:
    """Returns how many bytes the process read from files while an action ran; None where the system does not count."""
    before = _read_counter()
    action()
    after = _read_counter()
    return None if before is None or after is None else after - before


def _read_counter() -> int | None:
    try:
        lines = _COUNTERS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), None)


def machine(packages: Sequence[str]) -> dict[str, Plain]:
    """Returns what a figure depends on: processors and what else keeps them busy, interpreter, packages."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "processors": os.cpu_count(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        **{name: importlib.metadata.version(name) for name in packages},
    }

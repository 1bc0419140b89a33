"""Starts workers and gathers what they find; a worker that dies or hangs is a finding of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Outcome:
    """What a campaign found.

    Attributes:
        cases: Files opened.
        seconds: Of the worker.
        peak_mb: Most resident memory that any case took, the interpreter with its libraries included.
        findings: Broken rules, each with its kind and case.
    """

    cases: int = 0
    seconds: float = 0
    peak_mb: int = 0
    findings: list[str] = field(default_factory=list)


def run(
    kinds: Sequence[str], *, seed: int, count: int, first: int = 0, seconds: float | None = None, fixed: bool = True
) -> Outcome:
    """Runs the fixed cases of some kinds and ``count`` random cases for each of their files in one worker.

    Args:
        kinds: Names of samples.
        seed: Of the random cases.
        count: Of random cases for each file.
        first: Number of the first one.
        seconds: Stop after so long.
        fixed: Whether the fixed cases run.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_place()) as place:
        job = {"kinds": list(kinds), "seed": seed, "first": first, "count": count, "seconds": seconds}
        words = [sys.executable, "-m", "tests.fuzzing.worker", json.dumps({**job, "fixed": fixed, "place": place})]
        limit = 300 + (seconds or 0)
        try:
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return Outcome(findings=[f"the worker hangs at {_current(Path(place))}"])
        outcome = _outcome(done.stdout)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [""]
            outcome.findings.append(f"the worker ended with {done.returncode} at {_current(Path(place))}: {last[0]}")
        return outcome


def _fast_place() -> str | None:
    """Memory instead of a disk, where making a small file costs a millisecond."""
    memory = Path("/dev/shm")
    return str(memory) if os.access(memory, os.W_OK) else None


def _outcome(text: str) -> Outcome:
    outcome = Outcome()
    for line in text.splitlines():
        found = json.loads(line)
        if "case" in found:
            outcome.findings.append(f"{found['kind']}: {found['case']}: {found['finding']}")
        else:
            outcome.cases, outcome.seconds, outcome.peak_mb = found["cases"], found["seconds"], found["peak_mb"]
    return outcome


def _current(place: Path) -> str:
    found = list(place.glob("*/current"))
    return found[0].read_text() if found else "its start"

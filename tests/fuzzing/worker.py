"""Runs cases in a process of its own: with a limit of memory and of time a case, and the reason of each failure.

``python -m tests.fuzzing.worker JOB`` with a JSON job; writes one JSON line for each finding and a last one with
totals.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzzing import mutations
from tests.fuzzing.openers import OPENERS, open_sample

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "samples"
CASE_SECONDS = 5.0
MEMORY = 1 << 30
"""Address space beyond what the process has at its start: a claim of more must fail here, not swap."""

PEAK = 200 << 20
"""Resident memory that a hostile case may reach."""

SMALL = 1024


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes:
        kinds: Kinds of samples.
        seed: Of the random cases.
        first, count: Numbers of the random cases for each file.
        seconds: Stop after so long; None runs all.
        fixed: Whether the cuts, the odd and the hostile files run too.
        place: Scratch folder.
    """

    kinds: tuple[str, ...]
    seed: int
    first: int
    count: int
    seconds: float | None
    fixed: bool
    place: Path


@dataclass(frozen=True)
class Case:
    """One damaged file.

    Attributes:
        kind: Of the sample.
        name: Which case; with the kind and the seed it can be run again.
        prepare: Damages a copy of the sample and returns the damaged file.
        only: The one file that is written, relative to the sample; None if more may be different afterwards.
    """

    kind: str
    name: str
    prepare: Callable[[Path], Path]
    only: Path | None = None


class TimeUp(BaseException):
    """A case took too long; no ``except Exception`` of a reader swallows it."""


def files_of(kind: str) -> list[Path]:
    """The files of a sample, relative to its folder, in order of names.

    Raises:
        FileNotFoundError: no such sample.
    """
    folder = SAMPLES / kind
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def fixed_cases(kind: str) -> Iterator[Case]:
    """Cuts at every byte of the header, what else may lie in a file's place, and the files made to hurt."""
    from tests.fuzzing.hostile import HOSTILE
    from tests.fuzzing.hostile_basics import odd_files

    for file in files_of(kind):
        raw = (SAMPLES / kind / file).read_bytes()
        for size in mutations.cuts(len(raw)):
            yield Case(kind, f"{file} cut to {size}", _written(file, raw[:size]), file)
        for number, (name, _) in enumerate(odd_files(file)):
            yield Case(kind, f"{file} is {name}", _odd(file, number))
    made = HOSTILE.get(kind)
    for name, prepare in made() if made else ():
        yield Case(kind, f"hostile: {name}", prepare)


def random_cases(kind: str, seed: int, number: int) -> Iterator[Case]:
    """One random case for each file of a kind."""
    files = files_of(kind)
    for file in files:
        rng = random.Random(f"{seed}:{kind}:{file}:{number}")
        raw = (SAMPLES / kind / file).read_bytes()
        donor = rng.choice(sorted(OPENERS))
        other = (SAMPLES / donor / rng.choice(files_of(donor))).read_bytes()
        deep = mutations.below_checksums(file, raw, other, rng) if rng.random() < 0.7 else None
        damaged = mutations.mutated(raw, other, rng) if deep is None else deep
        yield Case(kind, f"{file} seed {seed} number {number}", _written(file, damaged), file)


def _written(file: Path, content: bytes) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        path = folder / file
        path.write_bytes(content)
        return path

    return prepare


def _odd(file: Path, number: int) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        from tests.fuzzing.hostile_basics import odd_files

        path = folder / file
        path.unlink()
        list(odd_files(path))[number][1]()
        return path

    return prepare


class Runner:
    """Runs cases one after the other and writes what breaks a rule."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.end = None if job.seconds is None else time.monotonic() + job.seconds
        self.cases = 0
        self.findings = 0
        self.peak = 0

    def run(self) -> None:
        """All cases of the job, or as many as the time allows."""
        if self.job.fixed:
            for kind in self.job.kinds:
                for case in fixed_cases(kind):
                    self._one(case)
        for number in range(self.job.first, self.job.first + self.job.count):
            for kind in self.job.kinds:
                if self.end is not None and time.monotonic() > self.end:
                    return
                for case in random_cases(kind, self.job.seed, number):
                    self._one(case)

    def _one(self, case: Case) -> None:
        folder = self.job.place / case.kind
        if not folder.exists():
            shutil.copytree(SAMPLES / case.kind, folder)
        file = case.prepare(folder)
        self.job.place.joinpath("current").write_text(f"{case.kind}: {case.name}")
        _reset_peak()
        finding = _reason(lambda: open_sample(case.kind, folder, file))
        peak = _peak()
        self.peak = max(self.peak, peak)
        if not finding and peak > PEAK:
            size = file.stat().st_size if file.is_file() else 0
            finding = f"{peak >> 20} MB of memory for a file of {size} bytes"
        if case.only is None:
            shutil.rmtree(folder)
        else:
            shutil.copyfile(SAMPLES / case.kind / case.only, file)
        self.cases += 1
        if finding:
            self.findings += 1
            _say({"kind": case.kind, "case": case.name, "finding": finding})


def _reason(action: Callable[[], None]) -> str:
    try:
        signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS)
        try:
            action()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeUp:
        return f"took more than {CASE_SECONDS:g} seconds: {_where()}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}: {_where()}"
    return ""


def _where() -> str:
    frames = traceback.extract_tb(sys.exc_info()[2])
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:]))


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def _say(line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _time_up(*_: object) -> None:
    raise TimeUp


def main() -> None:
    """Runs the job of the command line."""
    words = json.loads(sys.argv[1])
    job = Job(**{**words, "kinds": tuple(words["kinds"]), "place": Path(words["place"])})
    warnings.simplefilter("error")
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _time_up)
    import h5py  # noqa: F401  its libraries are no part of what a case takes
    import numpy  # noqa: F401
    from google.protobuf import text_format  # noqa: F401

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=job.place) as place:
        runner = Runner(dataclasses.replace(job, place=Path(place)))
        try:
            runner.run()
        finally:
            totals = {"cases": runner.cases, "findings": runner.findings, "peak_mb": runner.peak >> 20}
            _say({**totals, "seconds": time.monotonic() - start})


if __name__ == "__main__":
    main()

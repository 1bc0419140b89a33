"""``bench nan``: how fast a dump is searched for NaN and infinities.

Held against two things in the same run: only reading the same files (each opened, read in blocks into memory that is
used again, closed; as many threads), which no search can beat, and what migration guides have users run: load each npy
file and ask ``numpy.isnan`` and ``numpy.isinf`` of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from precision_tool.bench.measure import Plain, Report, Row, interleaved, machine

if TYPE_CHECKING:
    from dumpers.records import Dump

_TIME_US: Final = 1_700_000_000_000_000
_HALF_EVERY: Final = 4
"""Every fourth tensor is float16, the others are float32."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        files: Tensors of the dump.
        smallest, largest: Bytes of a tensor; sizes are spread evenly by their logarithm.
        rounds: Repetitions.
    """

    files: int
    smallest: int
    largest: int
    rounds: int


FULL: Final = Sizes(files=250, smallest=4096, largest=32 << 20, rounds=11)
SMALL: Final = Sizes(files=20, smallest=4096, largest=1 << 18, rounds=3)

Progress = Callable[[str, int, int], None]


def run(*, small: bool, seed: int, progress: Progress) -> Report:
    """Measures in a temporary folder that is gone afterwards.

    Args:
        small: Sizes that take seconds; the figures then say little.
        seed: Of the values and sizes.
        progress: Told what is being done.

    Raises:
        OSError: no room for the temporary files (about 1 GB; ``TMPDIR`` says where).
    """
    from compare.nan_work import default_threads

    sizes, threads = SMALL if small else FULL, default_threads()
    with tempfile.TemporaryDirectory(prefix="bench-nan-") as name:
        folder = Path(name)
        progress("writing", 0, 3)
        write_dump(folder, sizes, seed)
        progress("searching", 1, 3)
        rows = _search(folder, sizes.rounds, threads)
        progress("memory", 2, 3)
        memory = peak_memory(folder, threads)
    progress("done", 3, 3)
    setup: dict[str, Plain] = {
        **machine(("numpy", "numba")),
        "threads": threads,
        "small": small,
        "seed": seed,
        "rounds": sizes.rounds,
        "files": sizes.files,
        "figures": "medians of rounds in which all take turns; page cache warm",
    }
    return Report(tuple(rows), summarise(rows, memory), setup)


def summarise(rows: Sequence[Row], peak_mb: float | None) -> dict[str, Plain]:
    """Returns the published figures."""
    by_case = {row.case: row for row in rows}
    limit, guide, command = by_case["scan, read limit"], by_case["scan, guide's script"], by_case["listing and scan"]
    return {
        "gb_per_s": limit.per_s / 1e9,
        "read_limit_gb_per_s": limit.amount / (limit.baseline_seconds or 1) / 1e9,
        "ratio_to_limit": limit.ratio,
        "ratio_to_guide_script": guide.ratio,
        "command_ratio_to_guide_script": command.ratio,
        "numpy_only_ratio_to_guide_script": by_case["scan, NumPy only"].ratio,
        "peak_rss_mb": peak_mb,
    }


def write_dump(folder: Path, sizes: Sizes, seed: int) -> None:
    """Writes finite tensors under the names of a reference dump."""
    from dumpers.formats.npy import write_npy

    random = np.random.default_rng(seed)
    pool = random.random(sizes.largest // 4, np.float32)
    for number in range(sizes.files):
        size = int(np.exp(random.uniform(np.log(sizes.smallest), np.log(sizes.largest)))) // 4
        values = pool[:size].astype(np.float16).repeat(2) if number % _HALF_EVERY == 0 else pool[:size]
        write_npy(folder / f"layer_{number}_MatMul.0.{_TIME_US + number}.npy", values)


def _search(folder: Path, rounds: int, threads: int) -> list[Row]:
    from compare.nan_origin import search_nan
    from compare.nan_scan import scan_records
    from dumpers.formats.registry import read_dump

    dump = read_dump(folder)
    paths = [str(record.path) for record in dump]
    if scan_of(dump, threads) or len(dump) != len(list(folder.iterdir())):
        raise AssertionError("the dump of the bench is not the clean one that was written")
    actions: dict[str, Callable[[], object]] = {
        "scan": lambda: scan_of(dump, threads),
        "limit": lambda: read_only(paths, threads),
        "guide": lambda: guide_script(paths),
        "command": lambda: search_nan(read_dump(folder), threads=threads),
        "numpy": lambda: scan_records(dump.records, threads=threads, compiled=False),
    }
    medians = interleaved(actions, rounds)
    amount = sum(os.path.getsize(path) for path in paths)
    facts: dict[str, Plain] = {"files": len(paths), "threads": threads}
    return [
        Row("nan", case, amount, "bytes", medians[ours], baseline, medians[theirs], facts)
        for case, ours, baseline, theirs in (
            ("scan, read limit", "scan", "only reading", "limit"),
            ("scan, guide's script", "scan", "guide's script", "guide"),
            ("listing and scan", "command", "guide's script", "guide"),
            ("scan, NumPy only", "numpy", "guide's script", "guide"),
        )
    ]


def scan_of(dump: Dump, threads: int) -> int:
    """Searches as the command does, with compiled kernels, and returns how many tensors are bad."""
    from compare.nan_scan import scan_records

    return sum(finding.bad for finding in scan_records(dump.records, threads=threads, compiled=True))


def guide_script(paths: Sequence[str]) -> list[str]:
    """Searches as migration guides have it: load each file, ask NumPy, keep the names of the bad ones."""
    found = []
    for path in paths:
        array = np.load(path)
        if np.isnan(array).any() or np.isinf(array).any():
            found.append(path)
    return found


def read_only(paths: Sequence[str], threads: int) -> None:
    """Opens and reads every file whole, large ones first, into a block of memory a thread; looks at nothing."""
    from compare.nonfinite import Scratch
    from compare.onepass.reading import read_through

    ordered = iter(sorted(paths, key=lambda path: -os.path.getsize(path)))

    def work() -> None:
        scratch = Scratch()
        for path in ordered:
            fd = os.open(path, os.O_RDONLY)
            try:
                read_through(fd, os.fstat(fd).st_size, scratch.raw)
            finally:
                os.close(fd)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def peak_memory(folder: Path, threads: int) -> float | None:
    """Returns the peak resident megabytes of a process of its own that searches the dump, libraries included.

    None where the system does not tell. (``ru_maxrss`` would count the parent's memory, which a child starts with.)
    """
    program = (
        "import sys; from pathlib import Path; from dumpers.formats.registry import read_dump\n"
        "from precision_tool.bench.nan import scan_of\n"
        "scan_of(read_dump(Path(sys.argv[1])), int(sys.argv[2]))\n"
        "status = Path('/proc/self/status')\n"
        "print(status.read_text() if status.exists() else '')"
    )
    words = [sys.executable, "-c", program, str(folder), str(threads)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    kilobytes = (int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("VmHWM:"))
    return next((1024 * size / 1e6 for size in kilobytes), None)

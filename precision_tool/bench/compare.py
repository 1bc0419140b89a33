"""``bench compare``: how fast two dumps are compared, for a few large tensors and for many small ones.

Held against three things in the same run: only reading both sides (each file opened, read in blocks into memory that is
used again, closed; as many threads), which no comparison can beat; the script that anybody would write with NumPy; and
our own figures with the Kullback-Leibler divergence, which needs both ranges first and so reads everything twice more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from precision_tool.bench.measure import Plain, Report, Row, interleaved, machine
from precision_tool.bench.nan import read_only

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.table import Comparison
    from dumpers.records import Dump

_TIME_US: Final = 1_700_000_000_000_000
_TYPES: Final = (
    "float32",
    "float32",
    "float32",
    "float16",
    "float32",
    "float32",
    "int64",
    "float32",
    "float32",
    "float64",
)
"""Element types of every ten tensors: what a step of a recommendation model holds, by number of tensors."""

_NOISE: Final = 1e-3
"""Relative difference of every element of a float tensor; ids differ in one element of a thousand."""

_ZERO: Final = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        large: Number of tensors of the large set, and the smallest and greatest of their sizes in bytes.
        small: The same of the set of small tensors. Sizes are spread evenly by their logarithm.
        rounds: Repetitions with the large set; fewer of the naive script, which is slow.
        small_rounds: Repetitions with the small set.
    """

    large: tuple[int, int, int]
    small: tuple[int, int, int]
    rounds: int
    small_rounds: int


FULL: Final = Sizes((300, 1 << 10, 64 << 20), (50_000, 1 << 10, 64 << 10), 5, 3)
SMALL: Final = Sizes((20, 1 << 10, 1 << 18), (50, 1 << 10, 1 << 14), 2, 2)

Progress = Callable[[str, int, int], None]


def run(*, small: bool, seed: int, progress: Progress) -> Report:
    """Measures in a temporary folder that is gone afterwards.

    Args:
        small: Sizes that take seconds; the figures then say little.
        seed: Of the values and sizes.
        progress: Told what is being done.

    Raises:
        OSError: no room for the temporary files (about 6 GB; ``TMPDIR`` says where).
    """
    sizes = SMALL if small else FULL
    threads = min(8, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="bench-compare-") as name:
        folder = Path(name)
        progress("writing large tensors", 0, 5)
        write_pair(folder / "large", sizes.large, seed)
        progress("comparing large tensors", 1, 5)
        rows = _measure(folder / "large", "large", sizes.rounds, threads)
        progress("memory", 2, 5)
        memory = peak_memory(folder / "large", threads)
        progress("writing small tensors", 3, 5)
        write_pair(folder / "small", sizes.small, seed + 1)
        progress("comparing small tensors", 4, 5)
        rows += _measure(folder / "small", "small", sizes.small_rounds, threads)
    progress("done", 5, 5)
    setup: dict[str, Plain] = {
        **machine(("numpy", "numba")),
        "threads": threads,
        "small": small,
        "seed": seed,
        "rounds": [sizes.rounds, sizes.small_rounds],
        "tensors": [sizes.large[0], sizes.small[0]],
        "figures": "medians of rounds in which all take turns; page cache warm",
    }
    return Report(tuple(rows), summarise(rows, memory), setup)


def summarise(rows: Sequence[Row], memory: Mapping[str, Plain]) -> dict[str, Plain]:
    """Returns the published figures."""
    by_case = {row.case: row for row in rows}
    limit, script = by_case["large, read limit"], by_case["large, NumPy script"]
    pairs, whole = by_case["small, NumPy script"], by_case["small, listed and paired too"]
    count = int(str(pairs.facts["pairs"]))
    return {
        "gb_per_s": limit.per_s / 1e9,
        "read_limit_gb_per_s": limit.amount / (limit.baseline_seconds or 1) / 1e9,
        "ratio_to_limit": limit.ratio,
        "ratio_to_numpy": script.ratio,
        "with_divergence_ratio_to_limit": by_case["large, with divergence"].ratio,
        "equal_ratio_to_limit": by_case["large, equal sides"].ratio,
        "pairs_per_s_small": count / pairs.seconds,
        "small_ratio_to_numpy": pairs.ratio,
        "small_with_listing_ratio_to_numpy": whole.ratio,
        **memory,
    }


def write_pair(folder: Path, sizes: tuple[int, int, int], seed: int) -> None:
    """Writes two dumps under the names of reference dumps into ``left`` and ``right``."""
    from dumpers.formats.npy import write_npy

    count, smallest, largest = sizes
    random = np.random.default_rng(seed)
    pool = random.standard_normal(largest // 4, np.float32)
    noise = 1 + np.float32(_NOISE) * random.standard_normal(largest // 4, np.float32)
    ids = random.integers(0, 1 << 40, largest // 8)
    for side in ("left", "right"):
        (folder / side).mkdir(parents=True)
    for number in range(count):
        size = int(np.exp(random.uniform(np.log(smallest), np.log(largest))))
        name = f"layer_{number}_MatMul.0.{_TIME_US + number}.npy"
        for side, array in zip(("left", "right"), _two_sides(number, size, pool, noise, ids), strict=True):
            write_npy(folder / side / name, array)


def _two_sides(
    number: int, size: int, pool: NDArray[np.float32], noise: NDArray[np.float32], ids: NDArray[np.int64]
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    dtype = np.dtype(_TYPES[number % len(_TYPES)])
    count = max(1, size // dtype.itemsize)
    if dtype.kind == "i":
        left = ids[:count]
        right = left.copy()
        right[::1000] += 1
        return left, right
    values = np.resize(pool, count)
    return values.astype(dtype), (values * np.resize(noise, count)).astype(dtype)


def _measure(folder: Path, name: str, rounds: int, threads: int) -> list[Row]:
    from dumpers.formats.registry import read_dump

    left, right = read_dump(folder / "left"), read_dump(folder / "right")
    paths = [(str(one.path), str(two.path)) for one, two in zip(left, right, strict=True)]
    _check(compare_all(left, right, threads), paths)
    flat = [path for pair in paths for path in pair]
    actions: dict[str, Callable[[], object]] = {
        "ours": lambda: compare_all(left, right, threads),
        "limit": lambda: read_only(flat, threads),
        "script": lambda: [naive_script(*pair) for pair in paths],
    }
    cases: list[tuple[str, str, str, str]] = [
        ("read limit", "ours", "only reading", "limit"),
        ("NumPy script", "ours", "NumPy script", "script"),
    ]
    if name == "large":
        actions["divergence"] = lambda: compare_all(left, right, threads, divergence=True)
        actions["equal"] = lambda: compare_all(left, left, threads)
        cases += [
            ("with divergence", "divergence", "only reading", "limit"),
            ("equal sides", "equal", "only reading", "limit"),
        ]
    else:
        actions["whole"] = lambda: compare_all(read_dump(folder / "left"), read_dump(folder / "right"), threads)
        cases += [
            ("listed and paired too", "whole", "NumPy script", "script"),
        ]
    medians = interleaved(actions, rounds)
    amount = sum(os.path.getsize(path) for path in flat)
    facts: dict[str, Plain] = {"pairs": len(paths), "threads": threads}
    return [
        Row("compare", f"{name}, {case}", amount, "bytes", medians[ours], baseline, medians[theirs], facts)
        for case, ours, baseline, theirs in cases
    ]


def compare_all(left: Dump, right: Dump, threads: int, *, divergence: bool = False) -> Comparison:
    """Compares as the command does."""
    from compare.figures import COLUMNS
    from compare.sweep import SweepOptions, compare_dumps

    metrics = tuple(name for name in COLUMNS if divergence or name != "KullbackLeiblerDivergence")
    return compare_dumps(left, right, threads=threads, options=SweepOptions(metrics=metrics, details="none"))


def _check(comparison: Comparison, paths: Sequence[tuple[str, str]]) -> None:
    """Holds our figures against the script's, so that nothing fast and wrong is measured."""
    rows = [row for row in comparison.rows if row.figures is not None]
    if len(rows) != len(paths):
        raise AssertionError(f"{len(rows)} of the bench's {len(paths)} pairs were compared")
    for row, pair in list(zip(rows, paths, strict=True))[:: max(1, len(rows) // 20)]:
        script = naive_script(*pair)
        if row.figures is None or row.figures.cosine is None:
            continue
        if abs(row.figures.cosine - script[0]) > 1e-4:
            raise AssertionError(f"{row.op}: cosine {row.figures.cosine}, by the script {script[0]}")


def naive_script(left: str, right: str) -> tuple[float, ...]:
    """Returns the nine figures as anybody would take them: load, convert to float32, one NumPy expression each."""
    x = np.load(left).astype(np.float32, copy=False).reshape(-1)
    y = np.load(right).astype(np.float32, copy=False).reshape(-1)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(x) * np.linalg.norm(y)
        distance = np.abs(x - y)
        relative = np.where(np.abs(y) > _ZERO, np.abs(x / y - 1), 0)
        return (
            float(np.dot(x, y) / norms),
            float(distance.max()),
            float(relative.sum()),
            float(np.sqrt(((x - y) ** 2).sum() / (y**2).sum())),
            float(x.mean(dtype=np.float64)),
            float(x.std(dtype=np.float64)),
            float(y.mean(dtype=np.float64)),
            float(y.std(dtype=np.float64)),
            float(distance.mean()),
            float(np.sqrt(np.mean((x - y) ** 2))),
            float(relative.max()),
            float(relative.mean()),
        )


def peak_memory(folder: Path, threads: int) -> dict[str, Plain]:
    """Returns the peak megabytes of a process of its own that compares, libraries included: resident, and anonymous.

    Anonymous memory is sampled while it works. Both are None where the system does not tell. (``ru_maxrss`` would count
    the parent's memory, which a child starts with.)
    """
    program = (
        "import sys, threading, re; from pathlib import Path; from dumpers.formats.registry import read_dump\n"
        "from precision_tool.bench.compare import compare_all\n"
        "status, peak, done = Path('/proc/self/status'), [0], threading.Event()\n"
        "def found(name): return int(re.search(name + r':\\s+(\\d+)', status.read_text())[1])\n"
        "def watch():\n"
        "    while not done.wait(0.005): peak[0] = max(peak[0], found('RssAnon'))\n"
        "if status.exists():\n"
        "    left, right = (read_dump(Path(sys.argv[1]) / side) for side in ('left', 'right'))\n"
        "    watcher = threading.Thread(target=watch); watcher.start()\n"
        "    compare_all(left, right, int(sys.argv[2])); done.set(); watcher.join()\n"
        "    print(max(peak[0], found('RssAnon')), found('VmHWM'))\n"
    )
    words = [sys.executable, "-c", program, str(folder), str(threads)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    found = [1024 * int(word) / 1e6 for word in done.stdout.split()]
    return dict(zip(("peak_anonymous_mb", "peak_rss_mb"), found or (None, None), strict=True))

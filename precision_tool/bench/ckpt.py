"""``bench ckpt``: how fast two checkpoints that TensorFlow wrote are compared.

Held against two things in the same run: only reading both data files (blocks into memory that is used again, as many
threads), which no comparison can beat, and what migration guides have users run: TensorFlow's own reader and a NumPy
cosine for each variable. Both on the data alone, and as whole processes from the command line.
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
    from numpy.typing import NDArray

    from compare.checkpoints import CheckpointDiff

SIDES: Final = ("left", "all", "half")
"""Checkpoints: the one under test, one that differs everywhere, one with half of its bytes equal."""

_SLOTS: Final = ("", "/Adam", "/Adam_1")
_CHUNK: Final = 16 << 20
_BLOCK: Final = 1 << 18

GUIDE_SCRIPT: Final = """
import sys
import numpy as np
import tensorflow as tf


def cosines(left, right):
    one, two = tf.train.load_checkpoint(left), tf.train.load_checkpoint(right)
    found = []
    for name in one.get_variable_to_shape_map():
        x, y = one.get_tensor(name).flatten(), two.get_tensor(name).flatten()
        found.append((float(np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y))), name))
    return sorted(found)


if __name__ == "__main__":
    for cosine, name in cosines(sys.argv[1], sys.argv[2]):
        print(name, cosine)
"""
"""What the guides' ``ckpt_compare`` does."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        tables: Embedding tables, each with two slots.
        table_bytes: Of a table on average; they go from half of it to one and a half.
        layers: Dense variables, each with two slots, from 256 bytes to ``layer_bytes``.
        layer_bytes: Of the largest of them.
        rounds: Repetitions on the data.
        process_rounds: Repetitions of whole processes.
    """

    tables: int
    table_bytes: int
    layers: int
    layer_bytes: int
    rounds: int
    process_rounds: int


FULL: Final = Sizes(tables=8, table_bytes=40_000_000, layers=60, layer_bytes=1 << 20, rounds=9, process_rounds=3)
SMALL: Final = Sizes(tables=2, table_bytes=400_000, layers=6, layer_bytes=1 << 14, rounds=2, process_rounds=1)


def run(*, small: bool, seed: int, progress: Progress) -> Report:
    """Measures in a temporary folder that is gone afterwards.

    Args:
        small: Sizes that take seconds; the figures then say little.
        seed: Of the values.
        progress: Told what is being done.

    Raises:
        OSError: no room for the temporary files (about 3 GB; ``TMPDIR`` says where).
    """
    from compare.nan_work import default_threads

    sizes, threads = SMALL if small else FULL, default_threads()
    with tempfile.TemporaryDirectory(prefix="bench-ckpt-") as name:
        folder = Path(name)
        progress("writing", 0, 4)
        write_checkpoints(folder, sizes, seed)
        progress("comparing", 1, 4)
        rows = _on_the_data(folder, sizes.rounds, threads)
        progress("whole processes", 2, 4)
        rows.append(_processes(folder, sizes.process_rounds, threads))
        progress("memory", 3, 4)
        memory = peak_memory(folder, threads)
    progress("done", 4, 4)
    setup: dict[str, Plain] = {
        **machine(("numpy", "numba", "crc32c", "tensorflow")),
        "threads": threads,
        "small": small,
        "seed": seed,
        "rounds": sizes.rounds,
        "process_rounds": sizes.process_rounds,
        "variables": len(names_of(sizes)),
        "figures": "medians of rounds in which all take turns; page cache warm",
    }
    return Report(tuple(rows), summarise(rows, memory), setup)


def summarise(rows: Sequence[Row], peak_mb: float | None) -> dict[str, Plain]:
    """Returns the published figures."""
    ratios = {(row.case, row.baseline): row.ratio for row in rows}
    limit = next(row for row in rows if (row.case, row.baseline) == ("all different", "only reading"))
    return {
        "gb_per_s": limit.per_s / 1e9,
        "read_limit_gb_per_s": limit.amount / (limit.baseline_seconds or 1) / 1e9,
        "ratio_to_limit": limit.ratio,
        "ratio_to_guide_script": ratios["all different", "guide's script"],
        "process_ratio_to_guide_script": ratios["whole process", "guide's script"],
        "half_equal_ratio_to_limit": ratios["half equal", "only reading"],
        "half_equal_trusted_ratio_to_limit": ratios["half equal, --trust-index", "only reading"],
        "half_equal_ratio_to_guide_script": ratios["half equal", "guide's script"],
        "peak_rss_mb": peak_mb,
    }


def names_of(sizes: Sizes) -> list[tuple[str, int]]:
    """Returns the variables and their numbers of float32 values."""
    found = []
    for number in range(sizes.tables):
        share = 0.5 + (number + 0.5) / sizes.tables
        found.append((f"table_{number}/embedding", int(sizes.table_bytes * share) // 4))
    for number in range(sizes.layers):
        share = number / max(1, sizes.layers - 1)
        found.append((f"layer_{number}/kernel", int(256 * (sizes.layer_bytes / 256) ** share) // 4))
    return [(f"{name}{slot}", count) for name, count in found for slot in _SLOTS]


def write_checkpoints(folder: Path, sizes: Sizes, seed: int) -> None:
    """Lets TensorFlow write the checkpoints; of ``half`` every second variable is that of ``left``."""
    random = np.random.default_rng(seed)
    variables = {name: random.standard_normal(count, np.float32) for name, count in names_of(sizes)}
    _save(folder / SIDES[0], variables)
    noise = random.standard_normal(max(array.size for array in variables.values()), np.float32)
    changed = {name: array + np.float32(0.01) * noise[: array.size] for name, array in variables.items()}
    _save(folder / SIDES[1], changed)
    kept = {name: array if at % 2 else changed[name] for at, (name, array) in enumerate(variables.items())}
    _save(folder / SIDES[2], kept)


def _save(prefix: Path, variables: dict[str, NDArray[np.float32]]) -> None:
    import tensorflow as tf

    names = sorted(variables)
    with tf.device("/CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[variables[name] for name in names],
        )


def _on_the_data(folder: Path, rounds: int, threads: int) -> list[Row]:
    left, every, half = (folder / side for side in SIDES)
    guide: dict[str, Callable[[str, str], list[tuple[float, str]]]] = {"__name__": "guide"}  # type: ignore[dict-item]
    exec(GUIDE_SCRIPT, guide)  # the same text that is measured as a process
    script = guide["cosines"]
    _check(diff_of(left, every, threads), script(str(left), str(every)))
    actions: dict[str, Callable[[], object]] = {
        "all": lambda: diff_of(left, every, threads),
        "limit": lambda: read_only((left, every), threads),
        "guide": lambda: script(str(left), str(every)),
        "half": lambda: diff_of(left, half, threads),
        "trusted": lambda: diff_of(left, half, threads, trust_index=True),
        "half guide": lambda: script(str(left), str(half)),
    }
    medians = interleaved(actions, rounds)
    amount = sum(os.path.getsize(data_of(prefix)) for prefix in (left, every))
    return [
        Row("ckpt", case, amount, "bytes", medians[ours], baseline, medians[theirs], {"threads": threads})
        for case, ours, baseline, theirs in (
            ("all different", "all", "only reading", "limit"),
            ("all different", "all", "guide's script", "guide"),
            ("half equal", "half", "only reading", "limit"),
            ("half equal, --trust-index", "trusted", "only reading", "limit"),
            ("half equal", "half", "guide's script", "half guide"),
        )
    ]


def _check(diff: CheckpointDiff, cosines: Sequence[tuple[float, str]]) -> None:
    """Both must tell the same of the same data, or a ratio of their times means nothing."""
    ours = {row.name: row.cosine for row in diff.rows}
    wrong = [name for cosine, name in cosines if abs((ours[name] or 0.0) - cosine) > 1e-4]
    if wrong or len(ours) != len(cosines):
        raise AssertionError(f"the cosines of {wrong[:3]} differ from those of the guides' script")


def diff_of(left: Path, right: Path, threads: int, *, trust_index: bool = False) -> CheckpointDiff:
    """Compares as the command does, the indexes read anew."""
    from compare.checkpoints import compare_checkpoints
    from dumpers.formats.checkpoint import read_checkpoint

    sides = (read_checkpoint(left), read_checkpoint(right))
    return compare_checkpoints(*sides, trust_index=trust_index, threads=threads)


def data_of(prefix: Path) -> Path:
    """Returns the only data file of a checkpoint."""
    from dumpers.formats.checkpoint_files import data_file

    return data_file(prefix, 0, 1)


def read_only(prefixes: Sequence[Path], threads: int) -> int:
    """Reads the data files, large pieces over the threads, blocks into memory that is used again; looks at nothing."""
    from compare.onepass.reading import read_range

    opened = [os.open(data_of(prefix), os.O_RDONLY) for prefix in prefixes]
    sizes = {fd: os.fstat(fd).st_size for fd in opened}
    pieces = iter([(fd, at, min(_CHUNK, size - at)) for fd, size in sizes.items() for at in range(0, size, _CHUNK)])
    lock, totals = threading.Lock(), []

    def work() -> None:
        buffer, total = np.empty(_BLOCK, np.uint8), 0
        while True:
            with lock:
                piece = next(pieces, None)
            if piece is None:
                break
            total += int(read_range(*piece, buffer))
        totals.append(total)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for fd in opened:
        os.close(fd)
    return sum(totals)


def _processes(folder: Path, rounds: int, threads: int) -> Row:
    """The command and the script, each as a process of its own, from its start to its end."""
    paths = [str(folder / side) for side in SIDES[:2]]
    root = Path(__file__).resolve().parents[2]
    ours = [sys.executable, str(root / "cli.py"), "ckpt", *paths]
    theirs = [sys.executable, "-c", GUIDE_SCRIPT, *paths]

    def start(words: list[str], expected: int) -> None:
        done = subprocess.run(words, capture_output=True, check=False)
        if done.returncode != expected:
            raise AssertionError(f"{words[1]} ended with {done.returncode}: {done.stderr.decode()[-300:]}")

    medians = interleaved({"ours": lambda: start(ours, 1), "guide": lambda: start(theirs, 0)}, rounds)
    amount = sum(os.path.getsize(data_of(Path(path))) for path in paths)
    facts: dict[str, Plain] = {"threads": threads}
    return Row("ckpt", "whole process", amount, "bytes", medians["ours"], "guide's script", medians["guide"], facts)


def peak_memory(folder: Path, threads: int) -> float | None:
    """Returns the peak resident megabytes of a process of its own that compares, libraries included.

    None where the system does not tell.
    """
    program = (
        "import sys; from pathlib import Path; from precision_tool.bench.ckpt import diff_of\n"
        "diff_of(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))\n"
        "status = Path('/proc/self/status')\n"
        "print(status.read_text() if status.exists() else '')"
    )
    words = [sys.executable, "-c", program, *(str(folder / side) for side in SIDES[:2]), str(threads)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    kilobytes = (int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("VmHWM:"))
    return next((1024 * size / 1e6 for size in kilobytes), None)

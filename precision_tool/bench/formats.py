"""``bench formats``: how fast files are listed, read and brought back from the device's layouts.

Every figure is held against plain work on the same bytes in the same run: a copy in memory for the layouts, a read of
the file for the readers, TensorFlow's own reader for its debug directories.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from precision_tool.bench.measure import Plain, Report, Row, bytes_read, interleaved, machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord

DTYPES: Final = ("float16", "float32")
MEGABYTE: Final = 1_000_000
_RUN_ELEMENTS: Final = (64, 4096)
"""Of the tensors in the debugger's runs: a scalar's neighbourhood, and a small batch."""


@dataclass(frozen=True)
class LayoutCase:
    """One private layout with the shape it is stored in and the shape that comes out.

    Attributes:
        layout: Stored layout.
        stored: Stored shape.
        original: Shape before the device's conversion; neither channels nor columns fill the last block.
        target: Layout of the original shape.
    """

    layout: str
    stored: tuple[int, ...]
    original: tuple[int, ...]
    target: str


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        layouts: Stored tensors; two and four bytes an element.
        files: Numbers of dump files to list, the smaller first.
        tensors: Tensors of each of the debugger's runs, about; half of them scalars.
        read_bytes: Size of the files that are read whole.
        rounds: Repetitions of the fast measurements.
        slow_rounds: Repetitions of listing and of the debugger's run.
    """

    layouts: tuple[LayoutCase, ...]
    files: tuple[int, int]
    tensors: int
    read_bytes: int
    rounds: int
    slow_rounds: int


FULL: Final = Sizes(
    layouts=(
        LayoutCase("NC1HWC0", (16, 16, 64, 64, 16), (16, 250, 64, 64), "NCHW"),
        LayoutCase("NC1HWC0", (16, 16, 64, 64, 16), (16, 64, 64, 250), "NHWC"),
        LayoutCase("FRACTAL_NZ", (256, 256, 16, 16), (4090, 4093), "ND"),
        LayoutCase("NDC1HWC0", (4, 8, 8, 64, 64, 16), (4, 125, 8, 64, 64), "NCDHW"),
        LayoutCase("FRACTAL_Z", (1024, 64, 16, 16), (1020, 1017, 4, 4), "NCHW"),
    ),
    files=(2000, 20000),
    tensors=4000,
    read_bytes=64 * MEGABYTE,
    rounds=9,
    slow_rounds=5,
)
SMALL: Final = Sizes(
    layouts=(
        LayoutCase("NC1HWC0", (4, 8, 32, 32, 16), (4, 125, 32, 32), "NCHW"),
        LayoutCase("NC1HWC0", (4, 8, 32, 32, 16), (4, 32, 32, 125), "NHWC"),
        LayoutCase("FRACTAL_NZ", (64, 32, 16, 16), (510, 1020), "ND"),
        LayoutCase("NDC1HWC0", (2, 4, 4, 32, 32, 16), (2, 60, 4, 32, 32), "NCDHW"),
        LayoutCase("FRACTAL_Z", (64, 32, 16, 16), (510, 250, 2, 2), "NCHW"),
    ),
    files=(50, 500),
    tensors=100,
    read_bytes=MEGABYTE,
    rounds=3,
    slow_rounds=1,
)

Progress = Callable[[str, int, int], None]


def run(*, small: bool, seed: int, progress: Progress) -> Report:
    """Measures everything in a temporary folder that is gone afterwards.

    Args:
        small: Sizes that take seconds; the figures then say little.
        seed: Of the values.
        progress: Told what is being measured.

    Raises:
        OSError: no room for the temporary files (about 400 MB; ``TMPDIR`` says where).
    """
    sizes = SMALL if small else FULL
    rows: list[Row] = []
    steps = ("layouts", "read", "list", "tfdbg")
    with tempfile.TemporaryDirectory(prefix="bench-formats-") as name:
        folder = Path(name)
        for number, step in enumerate(steps):
            progress(step, number, len(steps))
            rows += _STEPS[step](sizes, seed, folder)
    progress("done", len(steps), len(steps))
    return Report(tuple(rows), summarise(rows), _setup(sizes, small=small, seed=seed))


def _setup(sizes: Sizes, *, small: bool, seed: int) -> dict[str, Plain]:
    return {
        **machine(("numpy", "protobuf", "tensorflow")),
        "threads": 1,
        "small": small,
        "seed": seed,
        "rounds": sizes.rounds,
        "slow_rounds": sizes.slow_rounds,
        "figures": "medians of rounds in which measure and baseline take turns",
    }


def summarise(rows: list[Row]) -> dict[str, Plain]:
    """Returns the published figures; of the cases of a layout or reader the one with the lowest ratio stands for it."""
    summary: dict[str, Plain] = {}
    for row in sorted((row for row in rows if row.measure == "layout"), key=lambda row: -(row.ratio or 0)):
        figures: dict[str, Plain] = {"gb_per_s": row.per_s / 1e9, "ratio_to_copy": row.ratio}
        summary[str(row.facts["layout"])] = figures
    listed = sorted((row for row in rows if row.measure == "list"), key=lambda row: row.amount)
    few, many = listed[0], listed[-1]
    tfdbg = min((row for row in rows if row.measure == "tfdbg"), key=lambda row: row.ratio or 0)
    return {
        **summary,
        "list_files_per_s": many.per_s,
        "list_time_per_file_growth": few.per_s / many.per_s,
        "list_bytes_read_per_file": many.facts["bytes_read_per_file"],
        "tfdbg_tensors_per_s": tfdbg.per_s,
        "tfdbg_ratio": tfdbg.ratio,
        "tfdbg_highest_ratio": tfdbg.facts["highest_ratio"],
        "read_ratio": {row.case: row.ratio for row in rows if row.measure == "read"},
    }


def _layouts(sizes: Sizes, seed: int, _: Path) -> list[Row]:
    return [_layout(case, dtype, sizes.rounds, seed) for case in sizes.layouts for dtype in DTYPES]


def _layout(case: LayoutCase, dtype: str, rounds: int, seed: int) -> Row:
    from dumpers.formats.layouts import to_original

    stored = np.random.default_rng(seed).random(case.stored, np.float32).astype(dtype)
    target, result = np.zeros_like(stored), np.zeros(case.original, dtype)

    def decode() -> NDArray[np.generic]:
        # Both sides write to memory that is there already: clearing new pages is the kernel's work, not the layout's.
        return to_original(stored, case.layout, case.original, original_format=case.target, out=result)

    if decode() is not result or not result.any():
        raise AssertionError(f"{case.layout} was not decoded into the array that was given")
    medians = interleaved({"decode": decode, "copy": lambda: np.copyto(target, stored)}, rounds)
    return Row(
        "layout",
        f"{case.layout} to {case.target} {dtype}",
        stored.nbytes,
        "bytes",
        medians["decode"],
        "copy",
        medians["copy"],
        {"layout": case.layout, "target": case.target, "dtype": dtype, "stored_shape": case.stored},
    )


def _list(sizes: Sizes, seed: int, folder: Path) -> list[Row]:
    from dumpers.formats.registry import read_dump
    from precision_tool.bench.format_files import write_dump_files

    leaves = {count: write_dump_files(folder / f"list{count}", count, seed) for count in sizes.files}
    actions: dict[str, Callable[[], object]] = {}
    for count, leaf in leaves.items():
        actions[str(count)] = lambda leaf=leaf: read_dump(leaf)  # type: ignore[misc]
    medians = interleaved(actions, sizes.slow_rounds)
    rows = []
    for count, leaf in leaves.items():
        read = bytes_read(actions[str(count)])
        found = read_dump(leaf)
        facts: dict[str, Plain] = {
            "records": len(found),
            "problems": len(found.problems),
            "bytes_read_per_file": None if read is None else read / count,
            "bytes_per_file": sum(file.stat().st_size for file in leaf.iterdir()) / count,
        }
        rows.append(Row("list", f"{count} device dump files", count, "files", medians[str(count)], facts=facts))
    return rows


def _tfdbg(sizes: Sizes, seed: int, folder: Path) -> list[Row]:
    return [_tfdbg_case(elements, sizes, seed, folder) for elements in _RUN_ELEMENTS]


def _tfdbg_case(elements: int, sizes: Sizes, seed: int, folder: Path) -> Row:
    from dumpers.formats.tfdbg import read_tfdbg_run
    from precision_tool.bench.format_files import read_plainly, read_with_tensorflow, write_tfdbg_run

    place = write_tfdbg_run(folder / f"tfdbg{elements}", sizes.tensors, elements, seed)

    def ours() -> list[NDArray[np.generic]]:
        return [record.load() for record in read_tfdbg_run(place)]

    count = len(ours())
    theirs = len(read_with_tensorflow(place))
    if count != theirs:
        raise AssertionError(f"{count} tensors read, TensorFlow reads {theirs} of the same run")
    actions: dict[str, Callable[[], object]] = {
        "ours": ours,
        "theirs": lambda: read_with_tensorflow(place),
        "plain": lambda: read_plainly(place),
    }
    medians = interleaved(actions, sizes.slow_rounds)
    # A file a tensor: no reader can be faster than opening and reading each, so this is the highest ratio there is.
    limits: dict[str, Plain] = {
        "plain_read_seconds": medians["plain"],
        "highest_ratio": medians["theirs"] / medians["plain"],
    }
    case = f"run with sums of {elements} float32"
    return Row("tfdbg", case, count, "tensors", medians["ours"], "DebugDumpDir", medians["theirs"], limits)


def _read(sizes: Sizes, seed: int, folder: Path) -> list[Row]:
    from precision_tool.bench.format_files import write_read_cases

    rows = []
    for case in write_read_cases(folder / "read", sizes.read_bytes, seed):

        def load(find: Callable[[], list[TensorRecord]] = case.find) -> list[NDArray[np.generic]]:
            return [record.load() for record in find()]

        def plain(files: tuple[Path, ...] = case.files) -> list[NDArray[np.uint8]]:
            return [np.fromfile(file, np.uint8) for file in files]

        size = sum(file.stat().st_size for file in case.files)
        medians = interleaved({"load": load, "plain": plain}, sizes.rounds)
        rows.append(Row("read", case.name, size, "bytes", medians["load"], "plain read", medians["plain"]))
    return rows


_STEPS: Final = {"layouts": _layouts, "read": _read, "list": _list, "tfdbg": _tfdbg}

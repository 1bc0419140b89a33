"""Two dumps in npy files, for tests of a sweep that need real ones: workers and journals look at files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from dumpers.formats.npy import NpySource
from dumpers.records import Dump, TensorRecord


def write_side(folder: Path, arrays) -> Dump:
    """Writes arrays as outputs ``op0``, ``op1``, ... of types Relu and MatMul in turn."""
    folder.mkdir()
    records = []
    for number, array in enumerate(arrays):
        path = folder / f"op{number}.npy"
        np.save(path, array)
        source, kind = NpySource(path, None, array.shape), ("Relu", "MatMul")[number % 2]
        records.append(
            TensorRecord(f"op{number}", kind, "output", 0, array.dtype.name, array.shape, source, timestamp_us=number)
        )
    return Dump(folder, tuple(records))


def settle(folder: Path) -> None:
    """Makes files old: those that were written while a sweep runs are not kept in its journal."""
    for path in folder.rglob("*.npy"):
        os.utime(path, (time.time() - 3600,) * 2)
    time.sleep(0.06)  # the time of the change itself cannot be set


def two_sides(folder: Path, count: int) -> tuple[Dump, Dump]:
    """Tensors of many sizes with a NaN, zeros, an equal one, another shape, integers and one that is not small."""
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=int(n)).astype(np.float32) for n in rng.integers(2, 4000, count)]
    arrays[4] = rng.integers(-5, 5, (40, 50))
    arrays[5][0] = np.nan
    arrays[6][:] = 0
    arrays[7] = rng.normal(size=(300, 300)).astype(np.float32)
    noisy = [
        array + rng.normal(size=array.shape).astype(np.float32) * np.float32(1e-3) if array.dtype.kind == "f" else array
        for array in arrays
    ]
    noisy[4] = arrays[4] + (arrays[4] == 2)
    noisy[8] = arrays[8].copy()
    noisy[9] = arrays[9][:-1]
    dumps = write_side(folder / "left", noisy), write_side(folder / "right", arrays)
    settle(folder)
    return dumps

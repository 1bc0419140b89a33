"""Sparse trees written as the engine's specification says, whole or still in the slices of single ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_column(folder: Path, array, *, slices: int = 0) -> None:
    """Writes ``slice.data`` with its attribute, or the slices of so many ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    array = np.ascontiguousarray(array, "<i8" if array.dtype.kind == "i" else "<f4")
    attribute = [*array.shape, array.itemsize]
    if not slices:
        (folder / "slice.data").write_bytes(array.tobytes())
        (folder / "slice.attribute").write_bytes(np.array(attribute, "<i8").tobytes())
        return
    for name, part in zip(
        sorted(f"slice_{rank}.data" for rank in range(slices)), np.array_split(array, slices), strict=True
    ):
        (folder / name).write_bytes(part.tobytes())


def write_table(folder: Path, keys, slices: int = 0, **columns) -> Path:
    """Writes one table."""
    write_column(folder / "key", np.asarray(keys, np.int64), slices=slices)
    for name, rows in columns.items():
        write_column(folder / name, np.asarray(rows, np.float32), slices=slices)
    return folder

"""``python -m compare`` compiles the kernels ahead of their first use; it takes about a minute, once an installation.

They are kept beside the source, or in the user's cache where that cannot be written, and made anew where the source or
the processor changed. Without this the first comparison, search or checkpoint of an installation waits for its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from compare.metrics import compare_arrays, compare_sources
from compare.nan_scan import scan_records
from compare.second_look import look
from compare.sides import Side
from compare.sums import accumulate
from dumpers.formats.crc32c import RunningChecksum
from dumpers.formats.extent import open_tensor
from dumpers.formats.npy import NpySource, write_npy
from dumpers.records import TensorRecord

TYPES = ("float16", "float32", "float64", "int64", "complex64")
"""One of each way in which numbers are decoded, added and looked at."""


def compile_kernels() -> None:
    """Compares, looks at and searches small tensors of every sort."""
    with tempfile.TemporaryDirectory() as name:
        for dtype in TYPES:
            values = np.arange(1, 49).reshape(6, 8).astype(dtype)
            other = values[::-1].copy()
            figures = compare_arrays(values, other)
            look(values, other, figures)
            sources = [NpySource(Path(name) / f"{dtype}_{number}.npy") for number in range(2)]
            for source, array in zip(sources, (values, other), strict=True):
                write_npy(source.path, array)
            compare_sources(*sources)
            _add_with_checksums(*sources)
            records = [TensorRecord(dtype, "", "output", 0, dtype, values.shape, source) for source in sources]
            scan_records(records, threads=1, compiled=True)


def _add_with_checksums(left: NpySource, right: NpySource) -> None:
    """Adds two tensors as those of checkpoints are."""
    one, two = open_tensor(left), open_tensor(right)
    if one is None or two is None:
        raise ValueError(f"{left.path} cannot be read in place")
    with one, two:
        for file in (one, two):
            file.checksum = RunningChecksum(lambda: None)
        accumulate(Side.of_file(one), Side.of_file(two), relative=False)


if __name__ == "__main__":
    compile_kernels()

"""What kernels may call of the system."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from compare.onepass.native import exact_kernel, kernel, pread


@exact_kernel
def read_into(fd, buffer, begin, size, offset):
    return pread(fd, buffer, begin, size, offset)


@kernel
def total(values):
    result = 0.0
    for i in range(values.size):
        result += values[i]
    return result


def test_reading_inside_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(100)))
    buffer = np.full(64, 255, np.uint8)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert read_into(fd, buffer, 2, 10, 5) == 10
        assert bytes(buffer[:13]) == bytes([255, 255, *range(5, 15), 255])
        assert read_into(fd, buffer, 0, 64, 95) == 5, "the file ends"
        assert read_into(fd, buffer, 60, 50, 0) == 4, "the buffer ends"
        assert read_into(fd, buffer, 80, 50, 0) == 0, "never before or behind the buffer"
    finally:
        os.close(fd)
    assert read_into(-1, buffer, 0, 8, 0) == 0


def test_reordered_sums_keep_nan() -> None:
    assert total(np.arange(1000.0)) == 499500
    assert np.isnan(total(np.array([1.0, np.nan, 2.0])))

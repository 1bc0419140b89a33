"""What kernels may call of the system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from compare.onepass import native
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


def test_a_change_of_what_a_kernel_calls_is_compiled_anew(tmp_path: Path) -> None:
    package = tmp_path / "kernels"
    package.mkdir()
    shutil.copy(native.__file__, package / "native.py")
    (package / "__init__.py").write_text("")
    (package / "outer.py").write_text(
        "from kernels import inner\nfrom kernels.native import exact_kernel\n\n\n"
        "@exact_kernel\ndef outer(x):\n    return inner.inner(x) + 1\n"
    )
    program = "import kernels.outer as k; print(k.outer(1.0), k.outer.stats.cache_hits.values())"

    def run(factor: int) -> str:
        (package / "inner.py").write_text(
            f"from kernels.native import exact_kernel\n\n\n@exact_kernel\ndef inner(x):\n    return {factor} * x\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        words = [sys.executable, "-B", "-c", program]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert run(2).startswith("3.0")
    assert run(2) == "3.0 dict_values([1])\n", "the second run loads what the first compiled"
    assert run(5).startswith("6.0"), "what the kernel calls has changed, its own file has not"

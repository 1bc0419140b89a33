"""Compiling ahead reaches every kernel that a comparison, a second look or a search compiles on first use."""

from __future__ import annotations

import sys

from compare.__main__ import compile_kernels


def test_kernels_are_compiled_ahead() -> None:
    compile_kernels()
    from compare.onepass import checksum, difference, drive, nonfinite

    assert "compare.onepass.shares" in sys.modules
    for module in (difference, drive, nonfinite):
        compiled = [value for value in vars(module).values() if hasattr(value, "signatures")]
        assert compiled
        assert any(function.signatures for function in compiled), module.__name__
    sweeps = [drive.sweep_single, drive.sweep_double, drive.sweep_integer]
    if checksum.HARDWARE:
        sweeps.append(checksum.sweep_single)
    for sweep in sweeps:
        assert len(sweep.signatures) == 1, "one way to be called, so one compilation"

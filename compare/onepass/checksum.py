"""The checksums of both sides taken beside their sums, so that threads need not meet in Python after every block.

Only where the processor has an instruction for CRC-32C that this module knows; elsewhere a package takes them
(:mod:`dumpers.formats.crc32c`), which costs the same time but the interpreter's lock three times a block.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

from compare.onepass import drive
from compare.onepass.native import exact_kernel

HARDWARE: Final = bool(binding.get_host_cpu_features().get("sse4.2") and not (config.CPU_NAME or config.CPU_FEATURES))
"""Whether :func:`sweep_single` may be called: not where a user has Numba compile for another processor."""

INVERSE: Final = 0xFFFFFFFF
"""The instruction works on checksums with all bits turned."""


@intrinsic
def _by_word(typing_context: Any, crc: Any, word: Any) -> Any:
    """The turned checksum after eight more bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(64)
        name = "llvm.x86.sse42.crc32.64.64"
        return builder.call(builder.module.declare_intrinsic(name, fnty=ir.FunctionType(wide, [wide, wide])), arguments)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _by_byte(typing_context: Any, crc: Any, byte: Any) -> Any:
    """The turned checksum after one more byte."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        narrow, wide = ir.IntType(32), ir.IntType(64)
        kind = ir.FunctionType(narrow, [narrow, ir.IntType(8)])
        instruction = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.32.8", fnty=kind)
        crc = builder.call(instruction, [builder.trunc(arguments[0], narrow), arguments[1]])
        return builder.zext(crc, wide)

    return types.uint64(types.uint64, types.uint8), generate


@exact_kernel
def _add_rest(block, begin, crc):
    words = block[begin : begin + (block.size - begin) // 8 * 8].view(np.uint64)
    for i in range(words.size):
        crc = _by_word(crc, words[i])
    for i in range(begin + 8 * words.size, block.size):
        crc = _by_byte(crc, block[i])
    return crc


@exact_kernel
def add(block_x, block_y, checksums):
    """Adds the bytes of two blocks to two turned checksums (uint64 of 2); side by side neither waits for its own."""
    both = min(block_x.size, block_y.size) // 8
    words_x = block_x[: 8 * both].view(np.uint64)
    words_y = block_y[: 8 * both].view(np.uint64)
    crc_x = checksums[0]
    crc_y = checksums[1]
    for i in range(both):
        crc_x = _by_word(crc_x, words_x[i])
        crc_y = _by_word(crc_y, words_y[i])
    checksums[0] = _add_rest(block_x, 8 * both, crc_x)
    checksums[1] = _add_rest(block_y, 8 * both, crc_y)


@exact_kernel
def sweep_single(
    left, right, relative, begin, end, raw_x, raw_y, room_x, room_y, kept_x, kept_y, places, sums, counts, checksums
):
    """The same as :func:`compare.onepass.drive.sweep_single`, with the checksums of what it reads; see :func:`add`."""
    size_x = left[3]
    size_y = right[3]
    block = drive.RAW // max(size_x, size_y)
    for start in range(begin, end, block):
        stop = min(start + block, end)
        status = drive.sweep_single(
            left, right, relative, start, stop, raw_x, raw_y, room_x, room_y, kept_x, kept_y, places, sums, counts
        )
        if status != drive.DONE:
            return status
        add(raw_x[: (stop - start) * size_x], raw_y[: (stop - start) * size_y], checksums)
    return drive.DONE

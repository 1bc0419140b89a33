"""The checksums of both sides taken beside their sums, so that threads need not meet in Python after every block.

Only where the processor multiplies polynomials over GF(2) (x86-64); elsewhere a package takes them
(:mod:`dumpers.formats.crc32c`), which takes more than twice as long and the interpreter's lock three times a block.

Folding as in V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009):
a piece of the data is replaced by its product with a power of x, taken modulo the polynomial, and added to the piece
that lies so far behind it. The pieces that remain are bytes with the same checksum, which the processor's own
instruction takes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from compare.onepass import drive
from compare.onepass.native import exact_kernel

_FEATURES: Final = {} if config.CPU_NAME or config.CPU_FEATURES else binding.get_host_cpu_features()
"""Nothing where a user has Numba compile for another processor."""

HARDWARE: Final = all(_FEATURES.get(name) for name in ("sse4.2", "pclmul"))
"""Whether :func:`sweep_single` may be called."""

LANES: Final = 4 if all(_FEATURES.get(name) for name in ("vpclmulqdq", "avx512f")) else 1
"""Multiplications that the processor makes at once."""

INVERSE: Final = 0xFFFFFFFF
"""The instruction works on checksums with all bits turned."""

_POLYNOMIAL: Final = 0x11EDC6F41
_CHAINS: Final = 4
"""Registers folded side by side: as many as hide that a multiplication takes some cycles."""


def _power(exponent: int) -> int:
    """Power of x modulo the polynomial, the lowest of 64 coefficients first: as the bytes of data have them."""
    found = 1
    for _ in range(exponent):
        found <<= 1
        found ^= _POLYNOMIAL if found >> 32 else 0
    return int(f"{found:064b}"[::-1], 2)


def folding(lanes: int) -> Any:
    """Returns the intrinsic ``(address, pieces, crc)`` that adds pieces to a turned checksum.

    Args:
        lanes: Multiplications at once, 1 or 4; a piece has ``lanes`` times 64 bytes, and there must be one.
    """

    @intrinsic
    def folded(typing_context: Any, address: Any, pieces: Any, crc: Any) -> Any:
        return types.uint64(types.uintp, types.intp, types.uint64), lambda *given: _fold(lanes, *given)

    return folded


def _fold(lanes: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    address, pieces, crc = arguments
    word, byte, number = ir.IntType(64), ir.IntType(8), ir.IntType(32)
    register = ir.VectorType(word, 2 * lanes)
    suffix = "" if lanes == 1 else f".{128 * lanes}"
    multiply = builder.module.declare_intrinsic(
        f"llvm.x86.pclmulqdq{suffix}", fnty=ir.FunctionType(register, [register, register, byte])
    )
    checksum = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=ir.FunctionType(word, [word, word]))
    distance = 128 * lanes * _CHAINS
    # The product of two numbers whose lowest coefficient comes first is one place short: hence the one less.
    constants = [_power(distance + 64 - 1), _power(distance - 1)] * lanes
    factor = ir.Constant(register, [ir.Constant(word, value) for value in constants])

    def load(at: Any, chain: int) -> Any:
        place = builder.add(at, ir.Constant(word, 16 * lanes * chain))
        loaded = builder.load(builder.inttoptr(place, register.as_pointer()))
        loaded.align = 1
        return loaded

    first = builder.insert_element(ir.Constant(register, [ir.Constant(word, 0)] * 2 * lanes), crc, number(0))
    chains = [cgutils.alloca_once_value(builder, load(address, chain)) for chain in range(_CHAINS)]
    builder.store(builder.xor(builder.load(chains[0]), first), chains[0])
    with cgutils.for_range(builder, builder.sub(pieces, word(1))) as loop:
        at = builder.add(address, builder.mul(builder.add(loop.index, word(1)), word(distance // 8)))
        for chain, kept in enumerate(chains):
            held = builder.load(kept)
            moved = [builder.call(multiply, [held, factor, byte(halves)]) for halves in (0x00, 0x11)]
            builder.store(builder.xor(builder.xor(*moved), load(at, chain)), kept)
    found = word(0)
    for kept in chains:
        held = builder.load(kept)
        for at in range(2 * lanes):
            found = builder.call(checksum, [found, builder.extract_element(held, number(at))])
    return found


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


_folded: Final = folding(LANES)
_PIECE: Final = 16 * LANES * _CHAINS


@exact_kernel
def add(block, crc):
    """Adds the bytes of a block, a contiguous uint8 array, to a turned checksum."""
    done = block.size // _PIECE * _PIECE
    if done:
        crc = _folded(types.uintp(block.ctypes.data), done // _PIECE, crc)
    words = block[done : block.size // 8 * 8].view(np.uint64)
    for i in range(words.size):
        crc = _by_word(crc, words[i])
    for i in range(done + 8 * words.size, block.size):
        crc = _by_byte(crc, block[i])
    return crc


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
        checksums[0] = add(raw_x[: (stop - start) * size_x], checksums[0])
        checksums[1] = add(raw_y[: (stop - start) * size_y], checksums[1])
    return drive.DONE

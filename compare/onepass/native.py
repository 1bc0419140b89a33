"""How kernels are compiled, and what of the system they may call.

Two ways to compile: :func:`kernel` lets the compiler reorder sums, which is what makes it use wide registers;
:func:`exact_kernel` keeps every operation as written. A function that is called by a kernel is compiled into it and
takes over its licence to reorder, so code that must be exact has to be called from Python or from an exact kernel.
Reordering does not include assuming that there is no NaN; still, tests for NaN and infinity are made on the bits.

Compiled code is kept beside the source, or in a folder of the user's where that cannot be written.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import numba
from llvmlite import ir
from numba import types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

REORDER: Final = frozenset({"reassoc", "contract", "nsz"})


@intrinsic
def bits64(typing_context: Any, value: Any) -> Any:  # Numba's calling convention
    """The bits of a float64 as int64: for numbers that are not negative the order is the same, NaN above infinity."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def bits32(typing_context: Any, value: Any) -> Any:
    """The bits of a float32 as int32; see :func:`bits64`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def float_of(typing_context: Any, value: Any) -> Any:
    """The float64 or float32 behind an int64 or int32: the way back from :func:`bits64` and :func:`bits32`."""
    wide = value == types.int64
    kind = ir.DoubleType() if wide else ir.FloatType()

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], kind)

    return (types.float64(types.int64) if wide else types.float32(types.int32)), generate


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """The float64 nearest to ``a * b + c``, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@intrinsic
def half(typing_context: Any, bits: Any) -> Any:
    """The float32 with the value of the float16 behind a uint16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def widest_registers(typing_context: Any) -> Any:
    """Asks for the widest registers in the function that calls this; the compiler is shy of those of 512 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # not among the names llvmlite knows
        return context.get_dummy_value()

    return types.none(), generate


def _digest() -> str:
    """Hash of all sources beside this one."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


_SOURCES: Final = _digest()


class _Cache(FunctionCache):  # type: ignore[misc]  # Numba has no types
    """Compiled code on disk that is made anew when any kernel source changes.

    Numba's own looks at the file of the function alone, and would keep what was compiled into it from other files.
    """

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return (*super()._index_key(signature, codegen), _SOURCES)


def kernel(function: Any) -> Any:
    """Compiles a function whose sums may be taken in any order. The order is the same on every call."""
    return _compiled(function, set(REORDER))


def exact_kernel(function: Any) -> Any:
    """Compiles a function operation by operation."""
    return _compiled(function, False)


def _compiled(function: Any, fastmath: Any) -> Any:
    dispatcher = numba.njit(function, nogil=True, fastmath=fastmath, error_model="numpy")
    dispatcher._cache = _Cache(function)  # what its own enable_caching does, with another class
    return dispatcher


_pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.uintp, types.uintp, types.int64))

_memcpy: Any = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))


@exact_kernel
def pread(fd: Any, buffer: Any, begin: Any, size: Any, offset: Any) -> Any:
    """Reads ``size`` bytes at ``offset`` of an open file into a byte array from ``begin`` on.

    Args:
        fd: File descriptor.
        buffer: Contiguous uint8 array; nothing is written outside of it.
        begin: Where in the buffer.
        size: Number of bytes.
        offset: In the file.

    Returns:
        Bytes read; fewer than ``size`` where the file ends or cannot be read.
    """
    size = min(size, buffer.size - begin)
    done = 0
    while done < size:
        address = buffer.ctypes.data + types.uintp(begin + done)
        got = _pread(types.int32(fd), address, types.uintp(size - done), offset + done)
        if got <= 0:
            break
        done += got
    return done


@exact_kernel
def fetch(fd: Any, address: Any, offset: Any, size: Any, buffer: Any) -> Any:
    """Fills the start of a byte array from a file, or from memory where ``fd`` is negative.

    Args:
        fd: File descriptor, negative for memory.
        address: Of the memory, which must hold ``offset + size`` bytes.
        offset: Of the first byte wanted.
        size: Number of bytes; at most that of the buffer.
        buffer: Contiguous uint8 array.

    Returns:
        Bytes fetched; fewer than ``size`` where a file ends.
    """
    if fd >= 0:
        return pread(fd, buffer, 0, size, offset)
    size = min(size, buffer.size)
    _memcpy(buffer.ctypes.data, types.uintp(address) + types.uintp(offset), types.uintp(size))
    return size

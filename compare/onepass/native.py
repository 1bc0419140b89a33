"""How kernels are compiled, and what of the system they may call.

Two ways to compile: :func:`kernel` lets the compiler reorder sums, which is what makes it use wide registers;
:func:`exact_kernel` keeps every operation as written. A function that is called by a kernel is compiled into it and
takes over its licence to reorder, so code that must be exact has to be called from Python or from an exact kernel.
Reordering does not include assuming that there is no NaN; still, tests for NaN and infinity are made on the bits.

Compiled code is kept beside the source, or in a folder of the user's where that cannot be written.
"""

from __future__ import annotations

from typing import Any, Final

import numba
from numba import types

REORDER: Final = frozenset({"reassoc", "contract", "nsz", "arcp"})


def kernel(function: Any) -> Any:
    """Compiles a function whose sums may be taken in any order. The order is the same on every call."""
    return numba.njit(function, nogil=True, cache=True, fastmath=set(REORDER))


def exact_kernel(function: Any) -> Any:
    """Compiles a function operation by operation."""
    return numba.njit(function, nogil=True, cache=True, fastmath=False)


_pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.uintp, types.uintp, types.int64))


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

"""Reading a file and nothing else: the limit that sweeps are measured against."""

from __future__ import annotations

from typing import Any

from compare.onepass.native import exact_kernel, pread


@exact_kernel
def read_through(fd: Any, size: Any, buffer: Any) -> Any:
    """Reads the first ``size`` bytes of a file, block by block over each other, and returns how many there were."""
    done = 0
    while done < size:
        got = pread(fd, buffer, 0, min(buffer.size, size - done), done)
        if got <= 0:
            break
        done += got
    return done


@exact_kernel
def read_range(fd: Any, begin: Any, size: Any, buffer: Any) -> Any:
    """Reads ``size`` bytes of a file from ``begin`` on, block by block over each other, and returns how many came."""
    done = 0
    while done < size:
        got = pread(fd, buffer, 0, min(buffer.size, size - done), begin + done)
        if got <= 0:
            break
        done += got
    return done

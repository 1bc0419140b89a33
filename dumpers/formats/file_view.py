"""A file's bytes by position without reading it whole: mapped into memory, or in small blocks."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, overload

from dumpers.errors import DataError
from dumpers.formats.raw import regular_only

_BLOCK: Final = 4096


@contextmanager
def mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """Gives a file's bytes for the time of a ``with`` block.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with open(path, "rb", opener=regular_only) as file:
            empty = not file.seek(0, 2)
            view = None if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read: {reason}") from error
    if view is None:
        yield b""
        return
    with view:
        yield view


class FileWindow:
    """Bytes of an open file, for :func:`dumpers.formats.wire.fields`. The caller keeps the file open.

    Unlike a memory map it does not end the process when the file becomes shorter meanwhile.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = 0
        self._block = b""

    @overload
    def __getitem__(self, key: int, /) -> int: ...

    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...

    def __getitem__(self, key: int | slice, /) -> int | bytes:
        """Returns a byte, or those between two positions (both must be given and not negative).

        Raises:
            IndexError: the file ends before that byte.
            OSError: the file cannot be read.
        """
        if isinstance(key, slice):
            return os.pread(self._descriptor, max(key.stop - key.start, 0), key.start)
        offset = key - self._start
        if not 0 <= offset < len(self._block):
            self._start, offset = key, 0
            self._block = os.pread(self._descriptor, _BLOCK, key)
        return self._block[offset]

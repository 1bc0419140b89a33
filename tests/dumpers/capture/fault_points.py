"""Every moment at which the writer of a record touches the file system, so that tests can stop it or fail it there.

Stands in for ``os`` and ``open`` in the modules that write; the real calls are made. ``act`` gets the
name of each call and the moment: ``before`` it, ``half`` of its bytes written, or ``after`` it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from dumpers.capture import arrays, manifest, pack, record

CALLS = ("mkdir", "open", "close", "writev", "link", "unlink", "replace")
MODULES = (arrays, manifest, pack, record)


class Numbered:
    """Numbers the moments from 0, in all threads, and hands each on with its number."""

    def __init__(self, act: Callable[[int, str, str], None]) -> None:
        self._act = act
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, name: str, moment: str) -> None:
        with self._lock:
            number = self.count
            self.count += 1
        self._act(number, name, moment)


class _System:
    """``os`` with moments around the calls of a writer."""

    def __init__(self, act: Callable[[str, str], None]) -> None:
        self._act = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*given: Any) -> Any:
            self._act(name, "before")
            if name == "writev":
                self._write_half(*given)
                return self._write_rest(*given)
            result = real(*given)
            self._act(name, "after")
            return result

        return call

    def _write_half(self, number: int, pieces: Any) -> None:
        """Half of the bytes at their place, where the rest follows once more from the start."""
        whole = b"".join(bytes(piece) for piece in pieces)
        start = os.lseek(number, 0, os.SEEK_CUR)
        os.write(number, whole[: len(whole) // 2])
        self._act("writev", "half")
        os.lseek(number, start, os.SEEK_SET)

    def _write_rest(self, number: int, pieces: Any) -> int:
        count = os.writev(number, pieces)
        self._act("writev", "after")
        return count


class _File:
    """A file with moments around each write and before it is closed, which is when the last bytes go to the disk."""

    def __init__(self, act: Callable[[str, str], None], file: Any) -> None:
        self._act = act
        self._file = file

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *given: Any) -> None:
        try:
            self._act("close", "before")
        finally:
            self._file.close()
        self._act("close", "after")

    def write(self, content: Any) -> int:
        self._act("write", "before")
        content = bytes(content)
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        self._act("write", "half")
        self._file.write(content[len(content) // 2 :])
        return len(content)

    def truncate(self) -> None:
        self._act("truncate", "before")
        self._file.truncate()
        self._act("truncate", "after")


def install(act: Callable[[str, str], None], put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Puts the moments into the modules that write."""

    def opened(*given: Any) -> _File:
        act("open", "before")
        file = _File(act, open(*given))  # noqa: SIM115 - closed by who opens it
        act("open", "after")
        return file

    for module in MODULES:
        if hasattr(module, "os"):
            put(module, "os", _System(act))
    for module in (arrays, manifest):
        put(module, "open", opened)

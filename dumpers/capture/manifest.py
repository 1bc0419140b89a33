"""``record.json``: written last, into room that was kept for it, so that on a full disk it can say what is missing.

As long as it is not whole its folder has a file ``.reserve`` instead, which no reader takes for a record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from .arrays import write_bytes

MANIFEST = "record.json"
RESERVE = ".reserve"


class ManifestFile:
    """The manifest of one record.

    Args:
        folder: Of the record.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / MANIFEST
        self._reserve = folder / RESERVE

    def keep_room(self, size_bytes: int) -> None:
        """Takes the room on disk.

        Raises:
            OSError: the file system does not have it.
        """
        write_bytes(self._reserve, b"\0" * size_bytes)

    def write(self, content: bytes) -> None:
        """Writes the manifest, whole or not at all.

        Raises:
            OSError: the file system does not take it.
        """
        try:
            # Within the kept room, which other programs would take if it were given back for a moment.
            with open(str(self._reserve), "r+b") as file:
                file.write(content)
                file.truncate()
            os.replace(str(self._reserve), str(self._path))
        except OSError:  # no room was kept, it is too small, or the file system writes every change to a new place
            with contextlib.suppress(OSError):
                os.unlink(str(self._reserve))
            write_bytes(self._path, content)


def free_bytes(place: Path) -> "int | str":
    """Returns the free bytes of the file system on which a folder lies or will lie."""
    for folder in (place, *place.parents):
        try:
            return shutil.disk_usage(str(folder)).free
        except OSError:
            continue
    return "unknown"

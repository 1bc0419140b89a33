"""Writing a file so that it is either whole or not there."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file in the target's folder and renames it to ``path`` when the block ends well.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; nothing is left behind then. It names the
            target also where the system names no file (a write to a full disk).
    """
    temporary = path.parent / f".{os.getpid()}-{threading.get_ident()}.part"
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

"""The temporary folders of TensorFlow's debugger, kept from step to step.

A folder's name is in the options of a run, and TensorFlow makes an executor for each set of options that it has not met
and keeps it as long as the session lives. With a folder of its own each step would cost such an executor. So a recorder
keeps the folder, empty, for its next step; two steps at the same time have two.

While its process lives, a folder has a file that is locked (``flock``), which the system lets go when the process is
killed. Folders of dead processes are removed by the next process of the same user that records. The file names the boot
of the system: a lock tells nothing of a process on another machine that shares the directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Dict, List, Optional, Set, Tuple

PREFIX = "precision_tool_watch_"
OWNER = "_tfdbg_owner"
"""Name of the locked file; nothing that the debugger writes into the folder itself has another start."""

_BOOT = "/proc/sys/kernel/random/boot_id"
_ATTEMPTS = 8
_cleaned: Set[Tuple[int, str]] = set()


class KeptFolder:
    """A private folder with a lock; use :meth:`WatchFolders.take`.

    Args:
        place: Directory that gets it.

    Raises:
        OSError: the system does not allow it.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._pid = os.getpid()
        for attempt in range(_ATTEMPTS):
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            try:
                self._owner = os.open(str(self.path / OWNER), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except OSError as error:
                shutil.rmtree(str(self.path), ignore_errors=True)
                # A process that cleans up may take a folder for a leftover as long as it is empty.
                if error.errno != errno.ENOENT or attempt == _ATTEMPTS - 1:
                    raise
        if _lock(self._owner):  # without a lock or without its content nobody takes it for a leftover
            with contextlib.suppress(OSError):
                os.write(self._owner, _boot())

    def _there(self) -> bool:
        """Whether the folder is still the one that was made."""
        try:
            return os.path.samestat(os.fstat(self._owner), os.stat(str(self.path / OWNER)))
        except OSError:
            return False

    def empty(self) -> bool:
        """Removes what the debugger wrote. Returns whether the folder can be used again."""
        if not self._there():
            return False
        with contextlib.suppress(OSError):
            for name in os.listdir(str(self.path)):
                if name != OWNER:
                    _remove(self.path / name)
            return os.listdir(str(self.path)) == [OWNER]
        return False

    def remove(self) -> None:
        """Removes the folder; in another process than the one that made it only its hold on it."""
        if self._owner < 0:
            return
        if self._pid == os.getpid() and self._there():
            shutil.rmtree(str(self.path), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._owner)
        self._owner = -1


class WatchFolders:
    """The folders of one recorder; they go with it, and at the end of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: Dict[str, List[KeptFolder]] = {}
        self._end = weakref.finalize(self, _remove_all, self._idle)

    def take(self, place: Optional[str] = None) -> KeptFolder:
        """Returns an empty folder that nobody else uses until it is given back.

        Args:
            place: The directory that has it; by default that for temporary files.

        Raises:
            OSError: there is none and none can be made.
        """
        place = tempfile.gettempdir() if place is None else place
        self._leave_parent()
        while True:
            with self._lock:
                known = self._idle.get(place)
                folder = known.pop() if known else None
            if folder is None:
                break
            if folder.empty():
                return folder
            folder.remove()  # somebody cleans the temporary directory, or will not let us
        remove_leftovers(place)
        return KeptFolder(place)

    def give_back(self, folder: KeptFolder) -> None:
        """Keeps the folder, empty, for the next step."""
        if not folder.empty() or not self._end.alive:
            folder.remove()
            return
        with self._lock:
            self._idle.setdefault(folder.place, []).append(folder)

    def _leave_parent(self) -> None:
        """In a process that was forked, forgets the folders: they are the parent's."""
        if self._pid != os.getpid():
            self._lock = threading.Lock()  # a thread of the parent may hold it
            self._pid = os.getpid()
            _remove_all(self._idle)


def remove_leftovers(place: str) -> None:
    """Removes the folders that killed processes left in a directory; once a process.

    Only folders of this user are looked at, no links, and only those go whose lock nobody on this system holds.
    """
    if (os.getpid(), place) in _cleaned:
        return
    _cleaned.add((os.getpid(), place))
    boot = _boot()
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            if name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(os.path.join(place, name), boot)


def _remove_if_left(folder: str, boot: bytes) -> None:
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    try:
        owner = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        os.rmdir(folder)  # only an empty one goes; if its process lives after all, it makes another
        return
    try:
        if _lock(owner) and boot and os.read(owner, len(boot) + 1) == boot:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(owner)


def _lock(file: int) -> bool:
    """Locks a file until it is closed; False where somebody else has, or where there are no locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _boot() -> bytes:
    """What names this start of the system; nothing where that is not known."""
    try:
        with open(_BOOT, "rb") as file:
            return file.read(100)
    except OSError:
        return b""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(str(path), ignore_errors=True)
    else:
        os.unlink(str(path))


def _remove_all(idle: Dict[str, List[KeptFolder]]) -> None:
    while idle:
        for folder in idle.popitem()[1]:
            folder.remove()

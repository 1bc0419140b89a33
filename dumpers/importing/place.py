"""Carrying out a plan: links or copies, each whole or not there, all undone when one fails or the user interrupts."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.importing.plan import Plan, Step

_PRIVATE: Final = 0o700
_BLOCK: Final = 1 << 22


def carry_out(plan: Plan, *, copy: bool, progress: Callable[[int, int], None]) -> tuple[Path, ...]:
    """Puts everything in place that is not there yet.

    Args:
        plan: What to do.
        copy: Copy instead of linking.
        progress: Called with how many steps are done and of how many.

    Returns:
        What was made, in order.

    Raises:
        DataError: something cannot be linked or written; nothing of this call is left behind then.
    """
    return put_in_place([step for p in plan.placements for step in p.todo], copy=copy, progress=progress)


def put_in_place(steps: Sequence[Step], *, copy: bool, progress: Callable[[int, int], None]) -> tuple[Path, ...]:
    """Links or copies; whatever happens, all of it or nothing.

    Raises:
        DataError: as for :func:`carry_out`.
    """
    undo = _Undo()
    try:
        for done, step in enumerate(steps):
            progress(done, len(steps))
            undo.folders(step.target.parent)
            _put(step, copy=copy)
            undo.made.append(step.target)
    except OSError as error:
        undo.all()
        raise DataError(_explained(error, copy=copy)) from error
    except BaseException:  # an interrupt too
        undo.all()
        raise
    return tuple(undo.made)


def _explained(error: OSError, *, copy: bool) -> str:
    where = error.filename2 or error.filename or "a file"
    what = "copied" if copy else "linked"
    hint = "free some space, or check the rights" if copy else "--copy copies instead, or check the rights"
    return f"{where}: cannot be {what}: {error.strerror or error}; nothing was imported, {hint}"


class _Undo:
    """What has been made, to take it away again."""

    def __init__(self) -> None:
        self.made: list[Path] = []
        self._folders: list[Path] = []

    def folders(self, folder: Path) -> None:
        """Creates a folder with those above it, private to the user as the whole tree is."""
        missing: list[Path] = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(mode=_PRIVATE)
            self._folders.append(new)

    def all(self) -> None:
        """Takes everything away, last first."""
        for path in reversed(self.made):
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for folder in reversed(self._folders):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _put(step: Step, *, copy: bool) -> None:
    if step.source is None:
        with atomic_file(step.target):
            pass
        os.utime(step.target, (0, 0))  # older than the JSON beside it
    elif not (copy or step.copy):
        os.symlink(os.path.abspath(step.source), step.target)
    elif step.source.is_dir():
        _copy_folder(step.source, step.target)
    else:
        _copy_file(step.source, step.target)


def _copy_file(source: Path, target: Path) -> None:
    with open(source, "rb") as content, atomic_file(target) as out:
        shutil.copyfileobj(content, out, _BLOCK)
    shutil.copystat(source, target)


def _copy_folder(source: Path, target: Path) -> None:
    """Copies a folder under another name first; links that lead out of it, pipes and devices are left out."""
    staging = target.parent / f".{target.name}-{os.getpid()}.part"
    root = os.path.realpath(source)

    def left_out(folder: str, names: Sequence[str]) -> set[str]:
        return {name for name in names if not _copied(os.path.join(folder, name), root)}

    try:
        shutil.copytree(source, staging, ignore=left_out)
        os.rename(staging, target)
    except shutil.Error as error:
        raise OSError(None, str(error.args[0][0][2]), str(error.args[0][0][0])) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _copied(path: str, root: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and Path(os.path.realpath(path)).is_relative_to(root)

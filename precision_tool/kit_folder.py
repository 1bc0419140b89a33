"""Writing the kit's folder: whole or not at all, and never in place of files that are not the kit's own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dumpers.errors import DataError, UsageError
from precision_tool.kit import NAME

MARKER: Final = "KIT"
"""File by which a kit is known; ``sha256sum -c`` reads it."""

_FIRST_LINE: Final = "# PrecisionTool kit 1"
_LONGEST_MARKER: Final = 1 << 20
_STAGING: Final = ".precision_tool.kit"
_OLD: Final = "replaced"
_PATIENCE_S: Final = 30.0
_SHOWN: Final = 3


def write_kit(target: Path, files: Mapping[str, bytes]) -> tuple[Path, bool]:
    """Writes ``target/precision_tool`` and returns it, and whether an earlier kit was there and is replaced.

    Args:
        target: Folder to write into; made if missing.
        files: Content by path below the folder.

    Raises:
        UsageError: ``target`` is no folder, lies inside the tool's own packages, or has a ``precision_tool`` that is no
            kit or holds files that the kit did not write.
        DataError: the folder cannot be written; what was there before is still there.
    """
    _refuse_our_own(target)
    folder = target / NAME
    try:
        target.mkdir(parents=True, exist_ok=True)
        with _only_one(target):
            replaced = _may_be_replaced(folder)
            _replace(folder, {**files, MARKER: _marker(files)})
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{target}: is no folder; kit writes into one") from error
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return folder, replaced


def _refuse_our_own(target: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    parts = target.resolve().parts[len(root.parts) :] if target.resolve().is_relative_to(root) else ()
    if parts and (root / parts[0] / "__init__.py").exists():
        raise UsageError(f"{target}: lies inside the tool's own package {parts[0]}; give a folder of yours")


@contextlib.contextmanager
def _only_one(target: Path) -> Iterator[None]:
    """Holds the folder's lock: a second kit waits for the first."""
    number = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise DataError(f"{target}: another kit has been writing to it for {_PATIENCE_S:.0f} s") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(number)


def _marker(files: Mapping[str, bytes]) -> bytes:
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(files.items())]
    return "\n".join([_FIRST_LINE, *lines, ""]).encode()


def _may_be_replaced(folder: Path) -> bool:
    """Tells whether an untouched kit is there.

    Raises:
        UsageError: something else is there.
    """
    if not os.path.lexists(folder):
        return False
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{folder}: is in the way (no folder); move it away or give another DIR")
    if not any(folder.iterdir()):
        return False
    sums = _sums(folder)
    if sums is None:
        raise UsageError(f"{folder}: is no kit (it has no file {MARKER} of one); move it away or give another DIR")
    foreign = sorted(name for name in _files_of(folder) if not _is_ours(folder / name, sums.get(name)))
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        names = ", ".join(foreign[:_SHOWN])
        raise UsageError(f"{folder}: added or changed since the kit was written: {names}{more}; move them away first")
    return True


def _sums(folder: Path) -> dict[str, str] | None:
    """SHA-256 by path, as the marker has them; None without a marker."""
    path = folder / MARKER
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST_MARKER:
        return None
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if lines[:1] != [_FIRST_LINE]:
        return None
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines[1:])}


def _files_of(folder: Path) -> Iterator[str]:
    """Yields the paths below a folder, without the marker and what Python compiled of the kit's modules."""

    def unreadable(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=unreadable):
        below = Path(place).relative_to(folder)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in [*names, *links]:
            path = (below / name).as_posix()
            if path != MARKER and not (below.name == "__pycache__" and name.endswith(".pyc")):
                yield path


def _is_ours(path: Path, digest: str | None) -> bool:
    if digest is None or path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files beside the folder and renames; a failure leaves what was there before."""
    staging = folder.parent / _STAGING
    new, old = staging / NAME, staging / _OLD
    if staging.exists():
        _clear_up(staging, folder)
    try:
        for name, content in files.items():
            _write(new / name, content)
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except OSError:
            if old.exists():
                os.rename(old, folder)
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _clear_up(staging: Path, folder: Path) -> None:
    """Removes what a kit left that was killed (the lock is ours); what it was replacing goes back first.

    Raises:
        UsageError: there are other things in it.
    """
    if not {entry.name for entry in staging.iterdir()} <= {NAME, _OLD}:
        raise UsageError(f"{staging}: is in the way and not of a kit; move it away or give another DIR")
    if (staging / _OLD).exists() and not folder.exists():
        os.rename(staging / _OLD, folder)
    shutil.rmtree(staging)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())

"""Walking through dump trees: links are followed, loops are not, order does not depend on the file system."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)

TIME_NAME: Final = re.compile(r"\d{14}\Z")
"""Folder of one start of a device dump: year to second."""

_NUMBERS: Final = re.compile(r"(\d+)")


def walk_folders(root: Path, enter: Callable[[Path], bool] | None = None) -> Iterator[tuple[Path, list[str]]]:
    """Yields every folder with the sorted names of its files, a folder that links make reachable twice only once.

    Args:
        root: Where to begin.
        enter: Asked for each folder, the root included; one that it refuses is left out with all below it.
    """
    seen: set[tuple[int, int]] = set()
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            if enter is not None and not enter(folder):
                continue
            files, folders = _entries(folder)
        except OSError as error:
            if folder == root:
                raise
            _LOG.warning("%s: left out, cannot be read: %s", folder, error.strerror or error)
            continue
        yield folder, files
        pending.extend(folder / name for name in reversed(folders))


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            (folders if is_folder(entry) else files).append(entry.name)
    return sorted(files), sorted(folders)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Tells whether an entry is a folder or a link to one; a link that leads to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that takes the numbers in a text as numbers: ``10`` comes after ``2``."""
    parts = _NUMBERS.split(text)
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part)


def choose_leaf(root: Path, counts: Mapping[Path, int]) -> tuple[Path, tuple[Path, ...]]:
    """Chooses one of several folders that hold dump files; different models, steps and devices are never merged.

    Of several time folders (14 digits) the newest; then the folder with most files; of several with as many the one
    whose path has the lowest numbers (device 0 before 1, step 0 before 1).

    Args:
        root: Where the walk began.
        counts: Number of dump files by folder, at least one folder.

    Returns:
        The folder, and the others in order of their names.
    """
    times = {folder: _time_of(folder.relative_to(root)) for folder in counts}
    newest = max(times.values())
    chosen = min(
        (folder for folder in counts if times[folder] == newest),
        key=lambda folder: (-counts[folder], natural(folder.relative_to(root).as_posix())),
    )
    others = sorted((folder for folder in counts if folder != chosen), key=lambda folder: natural(folder.as_posix()))
    return chosen, tuple(others)


def _time_of(relative: Path) -> int:
    return next((int(part) for part in relative.parts if TIME_NAME.match(part)), -1)


def step_of(leaf: Path) -> int | None:
    """Returns the step of a leaf folder ``.../<model id>/<step>``, None where the layout has no step level."""
    leaf = Path(os.path.abspath(leaf))
    numeric = leaf.name.isdigit() and leaf.name.isascii() and leaf.parent.name.isdigit()
    return int(leaf.name) if numeric and not TIME_NAME.match(leaf.parent.name) else None

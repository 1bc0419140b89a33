"""Which checkpoint a path means: a prefix, one of its files, or a folder with its state file.

The state file ``checkpoint`` of a training run names the newest checkpoint, often by an absolute path. After the run
was moved that path is wrong, or worse, right: it leads to another run. So it is followed only inside its own folder;
else the checkpoint with the highest step number is taken, and what the state file said is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dumpers.errors import DataError
from dumpers.formats.raw import open_regular
from dumpers.formats.schema import tf_message
from dumpers.formats.sstable import is_table
from dumpers.formats.walk import natural

STATE_FILE: Final = "checkpoint"
_STATE_LIMIT: Final = 1 << 20

DATA_FILE: Final = re.compile(r"(?P<prefix>.+)\.data-\d{5,}-of-\d{5,}", re.DOTALL)
_SHARD: Final = re.compile(r"(?P<prefix>.+)-(?P<shard>\d{5}|\?{5})-of-\d{5}", re.DOTALL)
_STEP: Final = re.compile(r"-([0-9]+)\Z")
_OTHER_KINDS: Final = (".index", ".meta", ".pb", ".pbtxt", ".txt", ".json", ".npy", ".csv")


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint found.

    Attributes:
        prefix: Path of the checkpoint as TensorFlow's users name it, without a suffix.
        version: 2 for an index with data files, 1 for tables that hold the values themselves.
        tables: The index file, or the tables of version 1.
        notes: What was chosen and why, where there was a choice.
        all: Every checkpoint of the folder, oldest first; just this one where a file or prefix was given.
    """

    prefix: Path
    version: Literal[1, 2]
    tables: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    all: tuple[Path, ...] = ()


def find_checkpoint(path: Path) -> Path:
    """Returns the prefix of the checkpoint that a path means (:func:`locate_checkpoint`).

    Raises:
        DataError: there is none.
    """
    return locate_checkpoint(path).prefix


def locate_checkpoint(path: Path) -> CheckpointFiles:
    """Finds the checkpoint that a path means.

    Args:
        path: A prefix (``model.ckpt-100``), any file of a checkpoint, a folder (the newest one in it: by its state file
            where that stays inside the folder, else by step number), a state file, or a SavedModel.

    Raises:
        DataError: there is none; the message says what is there instead.
    """
    path = Path(path)
    if os.path.isdir(path):
        return _in_folder(path)
    if path.name == STATE_FILE and os.path.isfile(path) and not is_table(path):
        return _in_folder(path.parent)
    prefix = _prefix_of(path)
    version, tables = _tables(prefix)
    if not tables:
        raise DataError(_missing(path, prefix))
    return CheckpointFiles(prefix, version, tables, all=(prefix,))


def list_checkpoints(folder: Path) -> tuple[Path, ...]:
    """Returns the prefixes of all checkpoints of a folder, by step number (9, 10, 100).

    Raises:
        DataError: the folder cannot be read.
    """
    try:
        found = set(_prefixes(folder))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    return tuple(sorted(found, key=_age))


def step_of(prefix: Path) -> int | None:
    """Returns the step number at the end of a prefix, None without one."""
    found = _STEP.search(prefix.name)
    return int(found[1]) if found and len(found[1]) <= 20 else None


def _age(prefix: Path) -> tuple[int, tuple[tuple[int, int, str], ...]]:
    step = step_of(prefix)
    return (-1 if step is None else step, natural(prefix.name))


def _prefix_of(path: Path) -> Path:
    if found := DATA_FILE.fullmatch(path.name):
        return path.with_name(found["prefix"])
    found = _SHARD.fullmatch(path.name)
    if found and (found["shard"][0] == "?" or os.path.isfile(path)):  # question marks: as TensorFlow names all shards
        return path.with_name(found["prefix"])
    return path.with_name(path.name.removesuffix(path.suffix)) if path.suffix in (".index", ".meta") else path


def _tables(prefix: Path) -> tuple[Literal[1, 2], tuple[Path, ...]]:
    """Version and table files of a prefix; no files if there is no checkpoint of that name."""
    index = prefix.with_name(prefix.name + ".index")
    if os.path.isfile(index):
        return 2, (index,)
    if os.path.isfile(prefix):
        return 1, (prefix,) if is_table(prefix) else ()
    shards = [path for path in _siblings(prefix) if is_table(path)]
    return 1, tuple(sorted(shards))


def _siblings(prefix: Path) -> Iterator[Path]:
    try:
        names = os.listdir(prefix.parent)
    except OSError:
        return
    for name in names:
        if name.startswith(prefix.name) and (found := _SHARD.fullmatch(name)) and found["prefix"] == prefix.name:
            yield prefix.with_name(name)


def _prefixes(folder: Path) -> Iterator[Path]:
    """Prefixes of all checkpoints at the top of a folder; one of several shards may come several times."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".index") and name != ".index":
            if is_table(folder / name) or next(_data_files(folder, name.removesuffix(".index")), None):
                yield folder / name.removesuffix(".index")
        elif not name.endswith(_OTHER_KINDS) and not DATA_FILE.fullmatch(name) and is_table(folder / name):
            yield _prefix_of(folder / name)


def _data_files(folder: Path, name: str) -> Iterator[str]:
    """A cut index still is one where data files of its name lie beside it."""
    return (entry for entry in os.listdir(folder) if (found := DATA_FILE.fullmatch(entry)) and found["prefix"] == name)


def _missing(path: Path, prefix: Path) -> str:
    if os.path.lexists(path) and prefix == path:
        return f"{path}: is no checkpoint; give its prefix, its .index file, or the folder that holds it"
    index = prefix.with_name(prefix.name + ".index")
    there = list_checkpoints(prefix.parent) if os.path.isdir(prefix.parent) else ()
    shown = f" (there are {', '.join(p.name for p in there[-3:])})" if there else ""
    return f"{index}: no such file{shown}; check the path of the checkpoint"


# ---------------------------------------------------------------------------------------------------------- folders


def _in_folder(folder: Path) -> CheckpointFiles:
    there = list_checkpoints(folder)
    if not there and os.path.isdir(folder / "variables"):
        folder = folder / "variables"
        there = list_checkpoints(folder)
    if not there:
        why = _by_state_file(folder)[1] or "no .index file"
        raise DataError(f"{folder}: holds no checkpoint ({why}); give the folder that TensorFlow saved into")
    wanted, note = _by_state_file(folder)
    notes = [note] if note else []
    prefix = wanted or there[-1]
    if len(there) > 1 or notes:
        reason = "its state file names it" if wanted else "the highest step number"
        notes.append(f"{folder}: took {prefix.name} ({reason}; {len(there)} there)")
    version, tables = _tables(prefix)
    return CheckpointFiles(prefix, version, tables, tuple(notes), there)


def _by_state_file(folder: Path) -> tuple[Path | None, str]:
    """Returns the checkpoint that the state file names and that lies in the folder, else None and what is wrong."""
    state = folder / STATE_FILE
    if not os.path.lexists(state):
        return None, ""
    try:
        named, *_ = read_checkpoint_state(state)
    except DataError as error:
        return None, f"{error}; ignored"
    target = _inside(folder, named)
    if target is None:
        return None, f"{state}: names {named}, outside its folder (a moved run?): not opened"
    prefix = _prefix_of(target)
    if not _tables(prefix)[1]:
        if os.path.isfile(prefix):
            size = os.path.getsize(prefix)
            return None, f"{state}: names {named}, which does not end as a table does at byte {size} (cut off?)"
        return None, f"{state}: names {named}, which is not there"
    return prefix, ""


def _inside(folder: Path, named: str) -> Path | None:
    """Returns the named path if it lies in the folder; a foreign one is not even looked at."""
    root = os.path.abspath(folder)
    target = os.path.abspath(os.path.join(root, named))
    homes = [home for home in dict.fromkeys((root, os.path.realpath(root))) if _contains(home, target)]
    if not homes:
        return None
    target = os.path.join(root, os.path.relpath(target, homes[0]))
    parent, real = os.path.realpath(os.path.dirname(target)), os.path.realpath(root)
    inside = parent == real or _contains(real, parent)
    return folder / os.path.relpath(target, root) if inside else None


def _contains(home: str, path: str) -> bool:
    return os.path.commonpath((home, path)) == home and path != home


def read_checkpoint_state(path: Path) -> tuple[str, ...]:
    """Reads a state file: the newest checkpoint first, then the others that it lists.

    Raises:
        DataError: it cannot be read, or names none.
    """
    from google.protobuf import text_format

    message = tf_message("CheckpointState")
    try:
        with open_regular(path) as file:
            raw = file.read(_STATE_LIMIT + 1)
        if len(raw) > _STATE_LIMIT:
            raise DataError(f"{path}: too long for a state file")
        text_format.Merge(raw.decode("utf-8"), message, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError, OSError) as error:
        raise DataError(f"{path}: is no state file of checkpoints ({_first_line(str(error))})") from error
    named = [os.fsdecode(raw) for raw in (message.model_checkpoint_path, *message.all_model_checkpoint_paths)]
    if not named[0] or "\x00" in named[0]:
        raise DataError(f"{path}: names no checkpoint")
    return tuple(dict.fromkeys(named))


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def data_file(prefix: Path, shard: int, shards: int) -> Path:
    """Returns the path of a data file of version 2."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")

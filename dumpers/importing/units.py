"""Recognising what a user gives: paths -> units, each of which goes to one place as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dumpers.formats.dump_names import INCOMPLETE_FILE, MAPPING_FILE, is_alias, read_mapping
from dumpers.formats.kinds import Identified, Kind, identify, kind_named
from dumpers.formats.npy_dir import INDEX_FILE
from dumpers.formats.walk import walk_folders

WHOLE_FOLDERS: Final = frozenset({"tf_record", "tfdbg_run", "tfdbg_v2", "msprobe", "saved_model"})
"""Folders that are one thing, whatever lies in them."""

_DEVICE: Final = ("npu_dump", "npu_statistics", "npu_converted_npy")
"""Files of a device dump, the best form first: where a folder has several, the others are copies of it."""

_BY_HAND: Final = {
    "tfdbg_tensor": "one tensor of a run; give the folder run_* that holds it",
    "tfdbg_part": "a part of a run; give the folder run_* that holds it",
    "tfdbg_v2_file": "a part of a Debugger V2 run; give the folder that holds all tfdbg_events.* files",
    "record_json": "the manifest of a raw record; give the folder run_* that holds it",
    "msprobe_json": "the index of an msprobe dump; give the folder that holds it",
    "msprobe_part": "a part of an msprobe dump; give the folder that holds dump.json",
    "mapping_csv": "belongs to files with short names that are not beside it",
    "overflow_json": "decoded already; give the dump file Opdebug.* it was made from",
}


@dataclass(frozen=True)
class Unit:
    """Something that is placed as a whole, or not at all.

    Attributes:
        kind: What it is.
        why: How it was recognised.
        folder: The folder it lies in (of a folder that is one thing: that folder).
        files: Names in the folder; empty for a folder that is one thing.
        argument: Which of the user's paths it was found under.
    """

    kind: Kind
    why: str
    folder: Path
    files: tuple[str, ...]
    argument: int

    @property
    def shown(self) -> Path:
        """What the user is told it is: the file, or the folder."""
        return self.folder / self.files[0] if len(self.files) == 1 else self.folder


@dataclass
class Found:
    """What was recognised, and what was not."""

    units: list[Unit] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recognise(paths: Sequence[Path], *, inside: Path, progress: Callable[[int], None]) -> Found:
    """Walks through the user's paths.

    Args:
        paths: Files and folders of any kind, mixed.
        inside: The data tree; what lies in it already is refused.
        progress: Called with the number of files seen.
    """
    found = Found()
    loose: dict[tuple[int, Path], list[str]] = {}
    for number, path in enumerate(paths):
        place = Path(os.path.abspath(path))
        if not place.exists():
            found.refused.append((path, "no such file or folder; check the path"))
        elif place.resolve().is_relative_to(inside.resolve()):
            found.refused.append((path, f"lies in {inside} already"))
        elif place.is_dir():
            _walk(place, number, found, progress)
        else:
            first = next((key for key in loose if key[1] == place.parent), (number, place.parent))
            loose.setdefault(first, []).append(place.name)
    for (number, folder), names in loose.items():
        _folder(folder, list(dict.fromkeys(names)), number, found)
    return found


def _walk(root: Path, number: int, found: Found, progress: Callable[[int], None]) -> None:
    def enter(folder: Path) -> bool:
        known = identify(folder)
        if known is None or known.kind.name not in WHOLE_FOLDERS:
            return True
        found.units.append(Unit(known.kind, known.why, folder, (), number))
        return False

    seen = 0
    try:
        for folder, names in walk_folders(root, enter):
            seen += len(names)
            progress(seen)
            _folder(folder, names, number, found)
    except OSError as error:
        found.refused.append((root, f"cannot be read: {error.strerror or error}"))


def _folder(folder: Path, names: Iterable[str], number: int, found: Found) -> None:
    """Sorts the files of one folder into units."""
    names = list(names)
    mapping: Mapping[str, str] = read_mapping(folder) if any(map(is_alias, names)) else {}
    by_kind: dict[str, list[Identified]] = {}
    for name in names:
        known = identify(folder / name, mapping=mapping)
        if known is None:
            if name != INCOMPLETE_FILE:
                found.refused.append((folder / name, "not recognised; info shows its first bytes"))
            continue
        by_kind.setdefault(known.kind.name, []).append(known)
    beside = [name for name in (MAPPING_FILE, INCOMPLETE_FILE) if (folder / name).is_file()]
    taken = _device(folder, by_kind, beside, number, found) | _reference(folder, by_kind, beside, number, found)
    _checkpoints(folder, by_kind, number, found)
    for kind, known_files in by_kind.items():
        for known in known_files:
            if kind == "mapping_csv" and taken:
                continue
            if kind in _BY_HAND:
                found.refused.append((known.path, f"{known.kind.title}: {_BY_HAND[kind]}"))
            else:
                found.units.append(Unit(known.kind, known.why, folder, (known.path.name,), number))


def _device(folder: Path, by_kind: dict[str, list[Identified]], beside: list[str], number: int, found: Found) -> bool:
    """Takes the device's files out of a folder: as overflow records with their ops, or as a dump."""
    records = by_kind.pop("overflow_record", [])
    forms = {name: by_kind.pop(name) for name in _DEVICE if name in by_kind}
    if records:
        files = [known.path.name for group in (records, *forms.values()) for known in group]
        kind = kind_named("overflow_folder" if len(files) > 1 else "overflow_record")
        found.units.append(Unit(kind, f"{len(records)} overflow records", folder, (*files, *beside), number))
        return True
    if not forms:
        return False
    best = next(name for name in _DEVICE if name in forms)
    chosen = forms.pop(best)
    if best == "npu_dump":
        chosen += forms.pop("npu_statistics", [])
    for rest in forms.values():
        found.notes.append(f"{folder}: {len(rest)} {rest[0].kind.title}s beside the dump files, not needed")
    names = tuple(known.path.name for known in chosen)
    found.units.append(Unit(chosen[0].kind, chosen[0].why, folder, (*names, *beside), number))
    return True


def _reference(
    folder: Path, by_kind: dict[str, list[Identified]], beside: list[str], number: int, found: Found
) -> bool:
    """Takes reference tensors with their index; an index may name npy files that no rule of names covers."""
    index = by_kind.pop("tensor_index", [])
    tensors = by_kind.pop("tf_npy", [])
    if index and index[0].path.name == INDEX_FILE:
        tensors += by_kind.pop("npy", [])
    if not tensors:
        by_kind.update({"tensor_index": index} if index else {})
        return False
    names = tuple(known.path.name for known in (*tensors, *index))
    found.units.append(Unit(kind_named("tf_npy"), tensors[0].why, folder, (*names, *beside), number))
    return True


def _checkpoints(folder: Path, by_kind: dict[str, list[Identified]], number: int, found: Found) -> None:
    """Takes checkpoints with the graph beside them (``model.ckpt-7.meta``) and the file that names the newest."""
    parts = [known for name in ("checkpoint_v2", "checkpoint_v1") for known in by_kind.pop(name, [])]
    state = by_kind.pop("checkpoint_state", [])
    if not parts and not state:
        return
    prefixes = {known.path.name.split(".data-")[0].removesuffix(".index") for known in parts}
    graphs = by_kind.pop("meta_graph", [])
    beside = [known for known in graphs if known.path.name.removesuffix(".meta") in prefixes]
    rest = [known for known in graphs if known not in beside]
    if rest:
        by_kind["meta_graph"] = rest
    first = (parts or state)[0]
    names = tuple(known.path.name for known in (*parts, *beside, *state))
    found.units.append(Unit(first.kind, first.why, folder, names, number))

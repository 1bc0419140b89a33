"""Where a unit goes: the part of the path below ``precision_data`` that its own path and names tell."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Final

from dumpers.formats.dump_names import full_name, is_alias, parse_converted_name, parse_dump_name, read_mapping
from dumpers.formats.sniff import RUN_NAME
from dumpers.formats.walk import TIME_NAME
from dumpers.importing.units import Unit
from dumpers.names import shorten

_GE_FILE: Final = re.compile(r"ge_proto_\d+_[A-Za-z0-9_-]+\.txt(\.json)?\Z")
_RESULT_TIME: Final = re.compile(r"result_(\d{14})\.csv\Z")
_METADATA: Final = re.compile(r"_tfdbg_core_metadata_sessionrun(\d+)_(\d{10,20})\Z")
_FIRST_SECOND: Final = 10**15
_LAST_SECOND: Final = 10**16
"""Microseconds between 2001 and 2286: what is outside is no time."""

_ROOM: Final = 120


def device_place(unit: Unit) -> tuple[Path, Path]:
    """Returns (the dump that the unit belongs to, its path below the run's dump folder).

    ``.../<time>/<device>/<graph>/<model>/<step>`` keeps its levels and belongs to the folder above the time. Files
    without such folders get a time from the first time stamp of their folder, device 0, model 1, step 0.
    """
    for above in (unit.folder, *unit.folder.parents):
        if TIME_NAME.match(above.name):
            return above.parent, unit.folder.relative_to(above.parent)
    return unit.folder, Path(folder_time(unit.folder), "0", "graph", "1", "0")


def overflow_place(unit: Unit) -> Path:
    """Returns the path of overflow records below ``overflow/dump``."""
    root, below = device_place(unit)
    return Path(below.parts[0], "0") if root == unit.folder else below


def folder_time(folder: Path) -> str:
    """Returns ``YYYYmmddHHMMSS`` of the earliest time stamp in the names of a folder's dump files, else of the folder.

    All files of the folder count, whichever of them are imported, so that a second import finds the same place.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    mapping = read_mapping(folder) if any(map(is_alias, names)) else {}
    moments = []
    for name in names:
        full = full_name(name, mapping) or name
        parsed = parse_converted_name(full) or parse_dump_name(full)
        if parsed is not None and _FIRST_SECOND <= parsed.timestamp_us < _LAST_SECOND:
            moments.append(parsed.timestamp_us / 1e6)
    return stamp(min(moments, default=folder.stat().st_mtime))


def stamp(seconds: float) -> str:
    """Returns a moment as folder name, in UTC: the same for the same file wherever it is imported."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds))


def run_in_path(folder: Path) -> str | None:
    """Returns the run that a path names, ``.../npu/<run>/dump/...`` or ``.../npu/<run>/graph``; None without one."""
    parts = folder.parts
    for index in range(len(parts) - 1, 1, -1):
        if parts[index] in ("dump", "graph") and parts[index - 2] == "npu":
            return parts[index - 1]
    return None


def graph_names(unit: Unit) -> tuple[str, str | None]:
    """Returns the name under which a device graph is found there, and that of an empty file that has to lie beside it.

    Graphs are looked for as ``ge_proto_<number>_<name>_Build.txt``, a JSON as ``.txt.json`` beside its text.
    """
    name = unit.files[0]
    as_json = unit.kind.name == "ge_json"
    if _GE_FILE.match(name):
        return name, name.removesuffix(".json") if name.endswith(".json") else None
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", name.split(".")[0]) or "graph"
    stem = shorten(stem.removesuffix("_Build"), _ROOM)
    text = f"ge_proto_00000000_{stem}_Build.txt"
    return (f"{text}.json", text) if as_json else (text, None)


def result_place(unit: Unit) -> tuple[str, str]:
    """Returns (folder, file name) of a comparison result below ``temp/vector_compare``."""
    name = unit.files[0]
    match = _RESULT_TIME.match(name)
    if match:
        return match[1], name
    moment = stamp((unit.folder / name).stat().st_mtime)
    return moment, f"result_{moment}.csv"


def run_folder_name(folder: Path) -> str:
    """Returns ``run_<us>_<number>`` for a raw run under another name: from its metadata, else its time."""
    if RUN_NAME.match(folder.name):
        return folder.name
    with os.scandir(folder) as entries:
        found = next((match for entry in entries if (match := _METADATA.match(entry.name))), None)
    if found:
        return f"run_{int(found[2])}_{int(found[1])}"
    return f"run_{folder.stat().st_mtime_ns // 1000}_0"

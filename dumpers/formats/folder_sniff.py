"""Sniffers of folders: one listing, and at most one small file in it; see :mod:`dumpers.formats.sniff`."""

from __future__ import annotations

import re
from typing import Final

from dumpers.formats.checkpoint_files import DATA_FILE
from dumpers.formats.sniff import RUN_NAME, Look, Sniffer, checkpoint_state, msprobe_json
from dumpers.formats.walk import TIME_NAME

_STEP_OR_RANK: Final = re.compile(r"(?:step|rank|proc)_?\d*\Z")
_TREE_FOLDERS: Final = frozenset({"npu", "tf", "pt", "overflow", "fusion", "temp"})


def data_tree(look: Look) -> str:
    """A ``precision_data`` folder."""
    found = sorted(_TREE_FOLDERS & set(look.folders))
    if look.files or not found or (len(found) < 2 and look.name != "precision_data"):
        return ""
    return f"holds {', '.join(found)}"


def tf_record(look: Look) -> str:
    """Our own raw record, finished or not."""
    if "record.json" in look.files:
        return "holds record.json"
    return "holds graph.pb and tensors, and no record.json yet" if _unfinished(look) else ""


def _unfinished(look: Look) -> bool:
    return "graph.pb" in look.files and "tensors" in look.folders


def tfdbg_run(look: Look) -> str:
    """One run of TensorFlow's debugger; the folder of one device in it is none."""
    if look.name.startswith("_tfdbg_device_"):
        return ""
    found = next((name for name in (*look.files, *look.folders) if name.startswith("_tfdbg_")), "")
    return f"holds {found}" if found else ""


def tfdbg_runs(look: Look) -> str:
    """Several runs, of TensorFlow's debugger or ours."""
    count = sum(1 for name in look.folders if RUN_NAME.match(name))
    return f"holds {count} folders run_<time>_<number>" if count else ""


def tfdbg_v2(look: Look) -> str:
    """A Debugger V2 run."""
    found = any(name.startswith("tfdbg_events.") for name in look.files)
    return "holds tfdbg_events.*" if found else ""


def saved_model(look: Look) -> str:
    """A SavedModel."""
    found = [name for name in ("saved_model.pb", "saved_model.pbtxt") if name in look.files]
    return f"holds {found[0]}" if found else ""


def checkpoint_folder(look: Look) -> str:
    """A folder of checkpoints."""
    if any(DATA_FILE.fullmatch(name) for name in look.files):
        return "holds <checkpoint>.data-*-of-*"
    indexes = [name for name in look.files if name.endswith(".index")]
    if "checkpoint" in look.files and (indexes or checkpoint_state(Look(look.path / "checkpoint"))):
        return "holds a file checkpoint"
    return f"holds {indexes[0]}" if indexes else ""


def msprobe(look: Look) -> str:
    """A dump of msprobe, or a folder of its steps and ranks."""
    for name in ("dump.json", "debug.json"):
        if name in look.files and msprobe_json(Look(look.path / name)):
            return f"holds {name} with task, level"
    if not any(_STEP_OR_RANK.match(name) for name in look.folders):
        return ""
    from dumpers.formats.msprobe import is_msprobe

    return "holds steps or ranks with dump.json" if is_msprobe(look.path) else ""


def npu_tree(look: Look) -> str:
    """A folder of device dumps by the time they were started, or the folder of one time with those of its devices."""
    if look.files or not look.folders:
        return ""
    if TIME_NAME.match(look.name) and all(name.isdecimal() for name in look.folders):
        return f"named by time, holds folders named by device ({', '.join(look.folders[:3])})"
    found = [name for name in look.folders if TIME_NAME.match(name)]
    return f"holds folders named by time ({found[-1]})" if found else ""


def holds(sort: str, what: str) -> Sniffer:
    """Returns a sniffer for folders with files whose names are of one sort."""
    return lambda look: f"holds {look.census[sort]} {what}" if look.census[sort] else ""

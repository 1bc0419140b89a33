"""What a path looks like: sniffers that read at most 4 KB of a file, or one listing of a folder.

Each answers why a path is of its kind, an empty text if it is not. Names decide before bytes do, so that a folder of
twenty thousand dump files is told apart without opening one of them. Nothing
here reads with a reader or imports a library; marks and names come from the modules that own them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats import npy as npy_file
from dumpers.formats import sstable
from dumpers.formats.checkpoint_files import DATA_FILE
from dumpers.formats.dump_names import (
    full_name,
    is_alias,
    parse_converted_name,
    parse_dump_name,
    parse_stored_reference,
    parse_tf_name,
    read_mapping,
)
from dumpers.formats.raw import regular_only
from dumpers.formats.torch_file import OLD_MARK
from dumpers.formats.zip_members import first_member_name

HEAD: Final = 4096
"""Bytes of a file that are looked at."""

RUN_NAME: Final = re.compile(r"run_\d+_\d+\Z")
_RESULT_COLUMNS: Final = ("Index", "TensorIndex", "CosineSimilarity")
_STATE: Final = re.compile(rb"\A\s*model_checkpoint_path\s*:")
_OVERFLOW_KEYS: Final = frozenset({"DHA Atomic Add", "L2 Atomic Add", "AI Core", "acc_list"})
_JSON_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]')
_OLD_TAGS: Final = (0x0A, 0x10, 0x1A, 0x22)


@dataclass
class Look:
    """One path under the eye; bytes and listings are fetched when a sniffer asks for them.

    Attributes:
        path: The path.
        is_folder: Whether it is a folder, links followed.
        size: Bytes of a file.
        mapping: The ``mapping.csv`` beside the file where the caller knows it.
    """

    path: Path
    is_folder: bool = False
    size: int = 0
    mapping: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.name

    @cached_property
    def meaning(self) -> str:
        """The file's name, or the long name that a short one stands for."""
        if not is_alias(self.name):
            return self.name
        try:
            known = read_mapping(self.path.parent) if self.mapping is None else self.mapping
        except DataError:  # told by whoever reads the folder
            return self.name
        return full_name(self.name, known) or self.name

    @cached_property
    def head(self) -> bytes:
        """First bytes of a file; empty where it cannot be read."""
        return self._bytes(0, HEAD)

    @cached_property
    def tail(self) -> bytes:
        """Last eight bytes of a file."""
        return self._bytes(max(0, self.size - 8), 8)

    def _bytes(self, offset: int, count: int) -> bytes:
        try:
            with open(self.path, "rb", opener=regular_only, buffering=0) as file:
                file.seek(offset)
                return file.read(count)
        except OSError:
            return b""

    @cached_property
    def entries(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Sorted names of a folder's files and of its sub-folders; empty where it cannot be read."""
        files: list[str] = []
        folders: list[str] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    (folders if entry.is_dir() else files).append(entry.name)
        except OSError:
            pass
        return tuple(sorted(files)), tuple(sorted(folders))

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the folder's files."""
        return self.entries[0]

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the folder's sub-folders."""
        return self.entries[1]

    @cached_property
    def census(self) -> Counter[str]:
        """How many of the folder's files have a name of each sort, see :func:`name_sort`."""
        return Counter(name_sort(name) for name in full_names(self.path, self.files))

    @cached_property
    def json_keys(self) -> tuple[str, ...]:
        """Keys of the outermost JSON object, as far as the first bytes show them; of the first object of an array."""
        return tuple(_top_keys(self.head.decode("utf-8-sig", "replace")))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Cells of the first line of a text with commas."""
        line = self.head.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
        return tuple(cell.strip().strip('"') for cell in line.split(","))


Sniffer = Callable[[Look], str]


def look_at(path: Path, mapping: Mapping[str, str] | None = None) -> Look | None:
    """Returns what there is to look at, None for nothing, a pipe or a device (which are never opened)."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return Look(path, is_folder=True)
    return Look(path, size=status.st_size, mapping=mapping) if stat.S_ISREG(status.st_mode) else None


def full_names(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Yields names as they are meant: short ones looked up, those that no ``mapping.csv`` has as they are."""
    mapping: Mapping[str, str] = {}
    if any(is_alias(name) for name in names):
        with contextlib.suppress(DataError):  # told by whoever reads the folder
            mapping = read_mapping(folder)
    for name in names:
        yield full_name(name, mapping) or name


@functools.lru_cache(maxsize=1 << 16)
def name_sort(name: str) -> str:
    """Says what a file name alone tells: ``npu overflow statistics converted tf npy`` or an empty text."""
    if name.endswith(".npy"):
        if parse_converted_name(name):
            return "converted"
        return "tf" if parse_tf_name(name) else "npy"
    if parse_stored_reference(name):
        return "tf"
    parsed = parse_dump_name(name)
    if parsed is None:
        return ""
    if parsed.statistics:
        return "" if parsed.is_overflow else "statistics"
    return "overflow" if parsed.is_overflow else "npu"


def looks_like_dump(head: bytes, size: int) -> bool:
    """Tells whether bytes begin like a device dump: a length that fits the file, then a protobuf header."""
    length = int.from_bytes(head[:8], "little")
    return len(head) > 10 and 1 < length <= size - 8 and head[8] in _OLD_TAGS


def _top_keys(text: str) -> Iterator[str]:
    depth = 0
    base = 2 if text.lstrip().startswith("[") else 1
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
            if depth < base:
                return
        elif match[2] and depth == base:
            yield match[1]


# ------------------------------------------------------------------------------------------------------- tensors


def by_name(sort: str, reason: str) -> Sniffer:
    """Returns a sniffer for files whose name alone tells."""
    return lambda look: reason if name_sort(look.meaning) == sort else ""


def npy(look: Look) -> str:
    """Any npy file."""
    if look.head.startswith(npy_file.MAGIC):
        return "starts with the npy mark"
    return "its name ends in .npy" if look.name.endswith(".npy") else ""


def npz(look: Look) -> str:
    """A zip archive of npy files."""
    if look.head[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
        return ""
    if look.name.endswith(".npz"):
        return "a zip archive with the name of an npz"
    return "a zip archive whose first member is an npy" if first_member_name(look.head).endswith(".npy") else ""


def torch(look: Look) -> str:
    """A file of PyTorch: a zip archive with ``data.pkl``, or the older stream of pickles."""
    if first_member_name(look.head).endswith("/data.pkl"):
        return "a zip archive that begins with data.pkl, as torch.save writes it"
    return "begins with the mark of torch.save's older form" if look.head.startswith(OLD_MARK) else ""


def hdf5(look: Look) -> str:
    """HDF5 files; the mark may stand behind a block of the user's."""
    at = next((at for at in (0, 512, 1024, 2048) if look.head[at : at + 8] == b"\x89HDF\r\n\x1a\n"), None)
    if at is None:
        return ""
    return f"has the HDF5 mark at byte {at}" if at else "starts with the HDF5 mark"


def npu_dump(look: Look) -> str:
    """A device dump by its name; under another name by its bytes."""
    if name_sort(look.meaning) == "npu":
        return "named <type>.<op>.<task>[.<stream>].<time>"
    if not looks_like_dump(look.head, look.size):
        return ""
    if is_alias(look.name):
        return "a name of digits that stands for a longer one, and the header of a dump"
    head = look.head[8:13]
    return "begins with the header of a device dump, version 2.0" if head == b"\n\x032.0" else ""


def statistics(look: Look) -> str:
    """Statistics of an op's tensors instead of their values."""
    if look.columns[:2] == ("Input/Output", "Index"):
        return "its columns are Input/Output, Index, ..."
    return "named like a dump, with .csv" if name_sort(look.meaning) == "statistics" else ""


# ----------------------------------------------------------------------------------------------------- TensorFlow


def tfdbg_tensor(look: Look) -> str:
    """One tensor of a run of TensorFlow's debugger."""
    return "named <op>_<output>_DebugIdentity_<time>" if "_DebugIdentity_" in look.name else ""


def tfdbg_part(look: Look) -> str:
    """What else lies in such a run."""
    return "named _tfdbg_*: a part of a run of TensorFlow's debugger" if look.name.startswith("_tfdbg_") else ""


def tfdbg_v2_file(look: Look) -> str:
    """One file of a Debugger V2 run."""
    return "named tfdbg_events.*: a part of a Debugger V2 run" if look.name.startswith("tfdbg_events.") else ""


def event_file(look: Look) -> str:
    """Summaries of TensorFlow: the framing of a record, and an Event that begins with its wall time."""
    if len(look.head) < 13 or look.head[4:8] != b"\0\0\0\0":
        return ""
    length = int.from_bytes(look.head[:8], "little")
    if length < 10 or length + 16 > look.size or look.head[12] != 0x09:
        return ""
    return "begins with a TensorFlow record that holds an Event"


def checkpoint_state(look: Look) -> str:
    """The text file that names the newest checkpoint."""
    return "names a model_checkpoint_path" if _STATE.match(look.head) else ""


def checkpoint_v2(look: Look) -> str:
    """The index of a checkpoint, or one of its data files."""
    if DATA_FILE.fullmatch(look.name):
        return "named <checkpoint>.data-<shard>-of-<shards>"
    if look.name.endswith(".index") and (look.tail == sstable.MAGIC or _has_shard(look)):
        return "the index of a checkpoint"
    return ""


def _has_shard(look: Look) -> bool:
    prefix = look.name.removesuffix(".index")
    try:
        with os.scandir(look.path.parent) as entries:
            return any(entry.name.startswith(prefix + ".data-") for entry in entries)
    except OSError:
        return False


def checkpoint_v1(look: Look) -> str:
    """A checkpoint of the first version: one sorted string table."""
    return "ends with the mark of a sorted string table" if look.size > 48 and look.tail == sstable.MAGIC else ""


# -------------------------------------------------------------------------------------------------------- reports


def result_csv(look: Look) -> str:
    """The result of a whole-network comparison."""
    return "its columns are Index, ..., TensorIndex, ..., CosineSimilarity" if _has_columns(look) else ""


def _has_columns(look: Look) -> bool:
    return all(name in look.columns for name in _RESULT_COLUMNS)


def mapping_csv(look: Look) -> str:
    """Short names and the long ones they stand for."""
    if look.name == "mapping.csv":
        return "named mapping.csv"
    return "two columns, the first a name of digits" if len(look.columns) == 2 and is_alias(look.columns[0]) else ""


def tensor_index(look: Look) -> str:
    """Our own index of reference tensors."""
    return "its columns are file, op, output, ..." if look.columns[:3] == ("file", "op", "output") else ""


def fusion_result(look: Look) -> str:
    """What fusion did to the graphs of a run."""
    marks = ("graph_fusion", "ub_fusion", "graphId", "session_and_graph_id")
    found = [key for key in look.json_keys if key.startswith(marks)]
    return f"a JSON object with {found[0]}" if found else ""


def fusion_switch(look: Look) -> str:
    """Which fusions are on."""
    return "a JSON object with Switch" if look.json_keys[:1] == ("Switch",) else ""


def overflow_json(look: Look) -> str:
    """A decoded overflow record."""
    found = [key for key in look.json_keys if key in _OVERFLOW_KEYS]
    return f"a JSON object with {found[0]}" if found else ""


def msprobe_json(look: Look) -> str:
    """The index of a dump of msprobe."""
    return "a JSON object with task, level" if {"task", "level"} <= set(look.json_keys) else ""


def msprobe_part(look: Look) -> str:
    """What lies beside the index of an msprobe dump."""
    beside = look.name in ("stack.json", "construct.json", "dump_error_info.log")
    return f"named {look.name}, beside dump.json" if beside and (look.path.parent / "dump.json").is_file() else ""


def record_json(look: Look) -> str:
    """The manifest of our own raw record."""
    return "named record.json, with format" if look.name == "record.json" and "format" in look.json_keys else ""

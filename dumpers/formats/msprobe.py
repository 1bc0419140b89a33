"""Dumps of msprobe: ``dump.json`` (``debug.json`` for single values) and, in tensor mode, ``dump_tensor_data/`` beside.

``dump.json`` holds ``task``, ``level``, ``framework``, ``dump_data_dir`` and ``data``, which maps the name of each call
(``Functional.conv2d.0.forward``, ``Module.conv1.Conv2d.backward.0``, ``Cell...``) to its ``input_args``,
``input_kwargs``, ``input``, ``output``, ``parameters`` and so on. Below these stand lists and dicts as passed,
whose leaves are ``{"type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "data_name", ...}`` for tensors and
``{"type", "value"}`` for the rest. The order of calls is that of execution. One file is one step of one rank:
``step0/rank0/dump.json``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from dumpers.dtypes import WITHOUT_VALUE, numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.npy import NpySource, read_npy_header
from dumpers.formats.raw import bad_shape, element_count, regular_only
from dumpers.formats.torch_file import TorchFileSource
from dumpers.formats.walk import natural, walk_folders
from dumpers.formats.zip_members import shown_name
from dumpers.records import Dump, Io, Problem, RecordedStatistics, TensorRecord, TensorSource

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

INDEX_FILES: Final = ("dump.json", "debug.json")
TENSOR_FOLDER: Final = "dump_tensor_data"
_BESIDE: Final = frozenset({*INDEX_FILES, "stack.json", "construct.json", "dump_error_info.log"})

_LEVELS: Final = ("rank*", "proc*", "step*/rank*", "step*/proc*")
_LARGEST: Final = 512 << 20
_HEAD: Final = 4096
_MOST_DEPTH: Final = 200
_PLAIN: Final = ("", "input_args", "input", "output")
"""Groups whose positions are the slots; of any other one the note tells the way."""

_STEP: Final = re.compile(r"step_?(\d{1,9})")
_STAGES: Final = ("forward", "backward", "parameters_grad")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_OTHER_NAMES: Final = {
    "half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8", "bool_": "bool", "cfloat": "complex64", "cdouble": "complex128", "str": "string",
}  # fmt: skip


@dataclass
class _Reading:
    """What is gathered of one index file."""

    index: Path
    step: int | None
    files: Mapping[str, bool]
    records: list[TensorRecord] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        return self.index.parent / TENSOR_FOLDER


@dataclass(frozen=True)
class _Place:
    """Where a leaf stands: call, direction, position and the way there."""

    op: str
    io: Io
    slot: int
    way: str
    plain: bool


def is_msprobe(path: Path) -> bool:
    """Tells whether a path is an index file of msprobe, or a folder that holds one at its top or in ``step*/rank*``."""
    path = Path(path)
    if path.is_dir():
        found = (path / name for name in INDEX_FILES)
        nested = (inner for deep in _LEVELS for name in INDEX_FILES for inner in path.glob(f"{deep}/{name}"))
        return any(_looks_like(file) for file in (*found, *nested))
    return _looks_like(path)


def _looks_like(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    try:
        with open(path, "rb", opener=regular_only) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return b'"dump_data_dir"' in head and b'"task"' in head and b'"data"' in head


def msprobe_indexes(path: Path) -> tuple[Path, ...]:
    """Returns the index files at or below a path, steps and ranks in the order of their numbers.

    Raises:
        DataError: there is none.
    """
    path = Path(path)
    if path.is_file():
        return (path,)
    try:
        found = [folder / name for folder, names in walk_folders(path) for name in names if name in INDEX_FILES]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not found:
        raise DataError(f"{path}: holds no dump.json of msprobe; give the folder that holds step<N>/rank<N>/dump.json")
    return tuple(sorted(found, key=lambda file: (natural(file.parent.as_posix()), INDEX_FILES.index(file.name))))


def read_msprobe(path: Path) -> Dump:
    """Reads one step of one rank; steps and ranks are never merged.

    Below a folder with several of them the first is read, and the other index files are named in ``Dump.ignored``.
    ``op`` is the name of the call, ``slot`` the position of the value among those of its direction, nested ones counted
    one by one. In statistics mode records have figures and no source.

    Args:
        path: ``dump.json``, ``debug.json``, or a folder above.

    Raises:
        DataError: there is no such file, or it is no index of msprobe.
    """
    path = Path(path)
    index, *others = msprobe_indexes(path)
    tree = _load(index)
    data = tree.get("data")
    if not isinstance(data, dict):
        raise DataError(f"{index}: is no dump of msprobe (it has no data); check the path")
    reading = _Reading(index, _step_of(index), _tensor_files(index.parent / TENSOR_FOLDER))
    for op, call in data.items():
        for place, leaf in _leaves(op, call, reading):
            _add(reading, place, leaf)
    unused = [reading.folder / name for name in sorted(reading.files) if name not in reading.used]
    ignored = (*others, *unused, *_strangers(index.parent))
    return Dump(index.parent if path.is_dir() else index, tuple(reading.records), tuple(reading.problems), ignored)


def _load(index: Path) -> dict[str, Json]:
    try:
        size = index.stat().st_size
        if size > _LARGEST:
            raise DataError(f"{index}: has {size} bytes, at most {_LARGEST} are read; dump fewer steps or calls")
        with open(index, "rb", opener=regular_only) as file:
            tree: Json = json.loads(file.read())
    except OSError as error:
        raise DataError(f"{index}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{index}: is not whole JSON ({error}); the dump was cut off or is damaged") from error
    if not isinstance(tree, dict):
        raise DataError(f"{index}: is no dump of msprobe (it holds a {type(tree).__name__})")
    return tree


def _step_of(index: Path) -> int | None:
    """The step of ``.../step<N>/rank<M>/dump.json``."""
    parts = Path(os.path.abspath(index)).parts[-4:-1]
    return next((int(match[1]) for part in reversed(parts) if (match := _STEP.fullmatch(part))), None)


def _tensor_files(folder: Path) -> dict[str, bool]:
    """Names of the tensor files; False for a link that leads out of the folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: _stays(entry, folder) for entry in entries}
    except OSError:
        return {}


def _stays(entry: os.DirEntry[str], folder: Path) -> bool:
    if not entry.is_symlink():
        return entry.is_file()
    target = os.path.realpath(entry.path)
    return os.path.isfile(target) and os.path.dirname(target) == os.path.realpath(folder)


def _strangers(folder: Path) -> tuple[Path, ...]:
    try:
        return tuple(folder / name for name in sorted(os.listdir(folder)) if _is_stranger(folder, name))
    except OSError:
        return ()


def _is_stranger(folder: Path, name: str) -> bool:
    return name not in _BESIDE and name != TENSOR_FOLDER and not (folder / name).is_dir()


def _leaves(op: str, call: Json, reading: _Reading) -> Iterator[tuple[_Place, dict[str, Json]]]:
    """Yields the tensors of a call: its inputs in order, then its outputs."""
    if not isinstance(call, dict) or _is_tensor(call):
        call = {"": call}
    counts: dict[Io, int] = {"input": 0, "output": 0}
    groups = sorted(call.items(), key=lambda item: _io(item[0]))
    for group, value in groups:
        io = _io(group)
        try:
            for way, leaf in _walk(value, ""):
                slot = counts[io]
                counts[io] += 1
                if leaf is not None:
                    plain = group in _PLAIN and way in (f"[{slot}]", "" if slot == 0 else None)
                    yield _Place(op, io, slot, shown_name(f"{group}{way}")[:200], plain), leaf
        except DataError as error:
            reading.problems.append(Problem(reading.index, f"{shown_name(op):.200}: {shown_name(group):.40}: {error}"))


def _io(group: str) -> Io:
    return "input" if group.startswith("input") or group == "parameters" else "output"


def _walk(value: Json, way: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Json] | None]]:
    """Yields every value in order, with the way to it; None instead of one that is no tensor."""
    if depth > _MOST_DEPTH:
        raise DataError(f"values nested deeper than {_MOST_DEPTH}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, f"{way}[{number}]", depth + 1)
    elif value is None or (isinstance(value, dict) and "type" in value and not _is_tensor(value)):
        yield way, None
    elif isinstance(value, dict):
        if _is_tensor(value):
            yield way, value
        else:
            for key, item in value.items():
                yield from _walk(item, f"{way}.{key}", depth + 1)


def _is_tensor(value: Mapping[str, Json]) -> bool:
    return "dtype" in value and "shape" in value


def _add(reading: _Reading, place: _Place, leaf: dict[str, Json]) -> None:
    where = f"{shown_name(place.op):.200}: {place.way:.80}"
    try:
        shape = _shape(leaf["shape"])
    except DataError as error:
        reading.problems.append(Problem(reading.index, f"{where}: {error}"))
        return
    said = str(leaf["dtype"])[:80]
    dtype = _dtype(said)
    notes = [] if place.plain else [place.way]
    if dtype == "undefined":
        notes.append(f"dtype {shown_name(said)}")
    if isinstance(crc := leaf.get("md5"), str):
        notes.append(f"crc32 {shown_name(crc):.40}")
    source, stored, problem = _source(reading, leaf.get("data_name"), dtype, shape)
    if problem:
        reading.problems.append(Problem(reading.index, f"{where}: {problem}"))
        notes.append(problem)
    elif source is None:
        notes.append("statistics only")
    elif stored != dtype:
        notes.append(f"was {shown_name(said.removeprefix('torch.'))} in the run, saved as {stored}")
    reading.records.append(
        TensorRecord(
            op=place.op,
            op_type=_op_type(place.op),
            io=place.io,
            slot=place.slot,
            dtype=stored,
            shape=shape,
            source=source,
            step=reading.step,
            note="; ".join(notes),
            statistics=_statistics(leaf, shape),
        )
    )


def _source(reading: _Reading, name: Json, dtype: str, shape: tuple[int, ...]) -> tuple[TensorSource | None, str, str]:
    """Returns source, dtype of what it loads, and what is wrong."""
    if name is None or name == "-1":
        return None, dtype, ""
    if not isinstance(name, str) or not name or os.path.basename(name) != name or "\\" in name or name in (".", ".."):
        return None, dtype, f"data_name {str(name)[:80]!r} is no plain file name; it is not followed"
    if name not in reading.files:
        return None, dtype, f"{shown_name(name):.300} is not in {TENSOR_FOLDER}"
    reading.used.add(name)
    if not reading.files[name]:
        return None, dtype, f"{shown_name(name):.300} leads out of {TENSOR_FOLDER}; it is not followed"
    path = reading.folder / name
    if name.endswith(".pt"):
        return TorchFileSource(path, None if dtype == "undefined" else dtype, shape), dtype, ""
    if not name.endswith(".npy"):
        return None, dtype, f"{shown_name(name):.300} is neither .pt nor .npy"
    try:
        header = read_npy_header(path)
        if header.shape != shape:
            raise DataError(f"has shape {header.shape}, dump.json says {shape}")
        if header.dtype in WITHOUT_VALUE and dtype != "bfloat16":
            raise DataError(f"holds {header.unknown or header.dtype}")
    except DataError as error:
        return None, dtype, f"{shown_name(name):.300}: {str(error).removeprefix(f'{path}: ')}"
    raw = dtype if header.unknown else None
    return NpySource(path, raw, shape), raw or header.dtype, ""


def _shape(value: Json) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [int(dim) for dim in re.findall(r"-?\d{1,19}", value[:1000])]
    if not isinstance(value, list):
        raise DataError("its shape is no list")
    shape = tuple(dim for dim in value if isinstance(dim, int) and not isinstance(dim, bool))
    if len(shape) != len(value):
        raise DataError("its shape holds something other than numbers")
    if reason := bad_shape(shape[:33]):
        raise DataError(reason[:120])
    return shape


def _dtype(text: str) -> str:
    """The name behind ``torch.float32``, ``Float32``, ``<dtype: 'float32'>`` or ``<class 'numpy.float32'>``."""
    words = _WORD.findall(text)
    name = words[-1].lower() if words else ""
    name = _OTHER_NAMES.get(name, name)
    try:
        known = numpy_dtype(name).kind in "biufcV"
    except ValueError:
        known = name in WITHOUT_VALUE
    return name if known else "undefined"


def _op_type(op: str) -> str:
    """``conv2d`` of ``Functional.conv2d.0.forward``, ``Conv2d`` of ``Module.conv1.Conv2d.forward.0``."""
    parts = op.split(".")
    if len(parts) < 4 or not {parts[-1], parts[-2]} & set(_STAGES):
        return ""
    return parts[-3]


def _statistics(leaf: Mapping[str, Json], shape: tuple[int, ...]) -> RecordedStatistics | None:
    figures = [_figure(leaf.get(key)) for key in ("Min", "Max", "Mean", "Norm")]
    if all(figure is None for figure in figures):
        return None
    low, high, mean, norm = figures
    return RecordedStatistics(count=element_count(shape), min=low, max=high, mean=mean, l2=norm)


def _figure(value: Json) -> float | None:
    """A figure, which older versions wrote as text; None for a complex one and for N/A."""
    if isinstance(value, (bool, int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None if isinstance(value, str) else math.inf if value > 0 else -math.inf
    return None

"""Scalars (loss curves) in TensorFlow's event files, ``events.out.tfevents.*``, read without TensorFlow.

Both ways to write a scalar are read: the old ``simple_value``, and a tensor of one element that the ``scalars`` plugin
marks. Everything else in a file is stepped over unread, so that images cost nothing.

Files of a folder are one run in order of their time; sub-folders are runs of their own. A restart is told by a second
``SessionLog`` with the status START: what the earlier session wrote for that step and later ones is superseded and left
out, as TensorBoard does it. A file that does not tell its version is from before that record; there a step that goes
back supersedes what was written for later steps under the same tag.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.file_view import FileWindow
from dumpers.formats.raw import open_regular
from dumpers.formats.record_file import DamagedRecordError, Record, read_records, verify_record
from dumpers.formats.tf_tensor import array_from_bytes, walk_tensor
from dumpers.formats.walk import walk_folders
from dumpers.formats.wire import ByteSource, Field, WireError, few_fields, signed64
from dumpers.records import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME: Final = re.compile(r"(?:.*\.)?tfevents\.(?P<time>\d{1,15})(?:\.|\Z)", re.DOTALL)
_VERSION: Final = re.compile(rb"brain\.Event:(\d{1,9})\Z")
_START: Final = 1
_MAX_NAME: Final = 1 << 16
_MAX_SCALAR_BYTES: Final = 1 << 12
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")


@dataclass(frozen=True, eq=False)
class ScalarSeries:
    """One curve.

    Attributes:
        tag: Its name in the file.
        steps: int64, in the order they were written; a step may occur twice.
        wall_times: float64, seconds since 1970.
        values: float64, NaN and infinities kept; an integer beyond 2^53 is rounded.
        run: Sub-folder it came from, empty for the files at the top.
    """

    tag: str
    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    values: NDArray[np.float64]
    run: str = ""

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class ScalarLog:
    """What event files say.

    Attributes:
        series: All curves, by run and tag.
        problems: Damaged files, each with the byte where reading stopped; what comes before is in the series.
        files: What was read, in this order.
        superseded: Number of points that a restart replaced.
    """

    series: tuple[ScalarSeries, ...]
    problems: tuple[Problem, ...] = ()
    files: tuple[Path, ...] = ()
    superseded: int = 0


class _Point(NamedTuple):
    step: int
    wall_time: float
    value: float


@dataclass
class _Run:
    """Curves of one folder while they are read."""

    keep_superseded: bool
    points: dict[str, list[_Point]] = field(default_factory=dict)
    scalar_tags: set[str] = field(default_factory=set)
    version: int = 0
    started: bool = False
    latest: int = -1
    superseded: int = 0

    def purge(self, step: int, tags: list[str]) -> None:
        """Drops what was written for this step and later ones."""
        if self.keep_superseded:
            return
        for tag in tags:
            before = self.points.get(tag, [])
            kept = [point for point in before if point.step < step]
            self.superseded += len(before) - len(kept)
            if before:
                self.points[tag] = kept


def read_scalars(path: Path) -> tuple[ScalarSeries, ...]:
    """Reads the curves of an event file, or of all event files of a folder. See :func:`read_scalar_log`.

    Raises:
        DataError: no such file, no event files, or not one readable record in them.
    """
    return read_scalar_log(path).series


def read_scalar_log(path: Path, *, keep_superseded: bool = False) -> ScalarLog:
    """Reads the curves of an event file, or of all event files of a folder, and what is damaged.

    Args:
        path: File or folder.
        keep_superseded: Keep points that a later session wrote again.

    Raises:
        DataError: no such file, no event files, or not one readable record in them.
    """
    path = Path(path)
    groups = _files(path)
    if not groups:
        raise DataError(f"{path}: holds no event files (*.tfevents.*); give the folder that the summary writer used")
    series: list[ScalarSeries] = []
    problems: list[Problem] = []
    records = superseded = 0
    for run, files in groups.items():
        state = _Run(keep_superseded)
        for file in files:
            records += _read_file(file, state, problems)
        series.extend(_series(tag, points, run) for tag, points in sorted(state.points.items()) if points)
        superseded += state.superseded
    if not records and problems:
        raise DataError(f"{problems[0].path}: {problems[0].reason}")
    return ScalarLog(
        tuple(series), tuple(problems), tuple(file for files in groups.values() for file in files), superseded
    )


def _files(path: Path) -> dict[str, list[Path]]:
    """Event files by run, in order of their time."""
    if not path.is_dir():
        return {"": [path]}
    groups: dict[str, list[Path]] = {}
    try:
        for folder, names in walk_folders(path):
            found = [folder / name for name in names if _NAME.match(name)]
            if found:
                run = folder.relative_to(path).as_posix()
                groups["" if run == "." else run] = sorted(found, key=_time_of)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return dict(sorted(groups.items()))


def _time_of(path: Path) -> tuple[int, str]:
    match = _NAME.match(path.name)
    return (int(match["time"]) if match else 0, path.name)


def _read_file(path: Path, run: _Run, problems: list[Problem]) -> int:
    """Reads one file up to its end, or up to where it is damaged; returns the number of good records."""
    count = 0
    try:
        with open_regular(path) as file:
            window = FileWindow(file.fileno())
            for record in read_records(path):
                _read_event(path, record, file, window, run)
                count += 1
    except DamagedRecordError as error:
        note = f"; the {count} records before it are read" if count else "; is it an event file?"
        problems.append(Problem(path, str(error).removeprefix(f"{path}: ") + note))
    except WireError as error:
        problems.append(Problem(path, f"record {count} is no event: {error}; the {count} records before it are read"))
    except (DataError, OSError, IndexError) as error:
        problems.append(Problem.of(path, error))
    return count


class _Event(NamedTuple):
    """An event without its values."""

    step: int
    wall_time: float
    summaries: list[Field]
    starts: bool


def _read_event(path: Path, record: Record, file: BinaryIO, window: FileWindow, run: _Run) -> None:
    """Takes the scalars out of one event. A large one is walked over first and verified if it has any."""
    data: ByteSource = window if record.data is None else record.data
    base = record.start if record.data is None else 0
    event = _event(data, base, base + record.length, run)
    if event.starts and run.version >= 2:
        if run.started:
            run.purge(event.step, list(run.points))
        run.started = True
    points = [point for item in event.summaries for point in _scalars(data, item, run)]
    if points and record.data is None:
        verify_record(path, file, record)
    if event.summaries:
        if run.version < 2 and event.step < run.latest:
            run.purge(event.step, [tag for tag, _ in points])
        run.latest = event.step
    for tag, value in points:
        run.points.setdefault(tag, []).append(_Point(event.step, event.wall_time, value))


def _event(data: ByteSource, start: int, end: int, run: _Run) -> _Event:
    wall_time, step, starts, summaries = 0.0, 0, False, list[Field]()
    for item in few_fields(data, start, end):
        kind = (item.number, item.kind)
        if kind == (1, 1):
            wall_time = float(_DOUBLE.unpack(data[item.start : item.end])[0])
        elif kind == (2, 0):
            step = signed64(item.value)
        elif kind == (3, 2):
            match = _VERSION.match(data[item.start : min(item.end, item.start + 64)])
            run.version = int(match[1]) if match else run.version
        elif kind == (5, 2):
            summaries.append(item)
        elif kind == (7, 2):
            starts = any(part.number == 1 and part.value == _START for part in few_fields(data, item.start, item.end))
    return _Event(step, wall_time, summaries, starts)


def _scalars(data: ByteSource, summary: Field, run: _Run) -> Iterator[tuple[str, float]]:
    for value in few_fields(data, summary.start, summary.end):
        if value.number == 1 and value.kind == 2:
            found = _scalar(data, value, run)
            if found is not None:
                yield found


def _scalar(data: ByteSource, value: Field, run: _Run) -> tuple[str, float] | None:
    tag, number, tensor, plugin = "", None, None, b""
    for item in few_fields(data, value.start, value.end):
        if item.number == 1 and item.kind == 2:
            tag = _short(data, item).decode("utf-8", "backslashreplace")
        elif item.number == 2 and item.kind == 5:
            number = float(_FLOAT.unpack(data[item.start : item.end])[0])
        elif item.number == 8 and item.kind == 2:
            tensor = item
        elif item.number == 9 and item.kind == 2:
            plugin = _plugin(data, item)
    if number is not None:
        return tag, number
    if plugin == b"scalars":  # a writer may say it with the first point only
        run.scalar_tags.add(tag)
    if tensor is None or tag not in run.scalar_tags:
        return None
    found = _tensor_value(data, tensor)
    return None if found is None else (tag, found)


def _tensor_value(data: ByteSource, tensor: Field) -> float | None:
    """Value of a tensor of one number, None for anything else."""
    if tensor.end - tensor.start > _MAX_SCALAR_BYTES:
        return None
    shape = walk_tensor(data, tensor.start, tensor.end).shape
    if shape is None or any(dim != 1 for dim in shape):
        return None
    array = array_from_bytes(data[tensor.start : tensor.end])
    return None if array.dtype.kind in "OcSU" else float(array.astype(np.float64).reshape(()))


def _plugin(data: ByteSource, metadata: Field) -> bytes:
    for item in few_fields(data, metadata.start, metadata.end):
        if item.number == 1 and item.kind == 2:
            for part in few_fields(data, item.start, item.end):
                if part.number == 1 and part.kind == 2:
                    return _short(data, part)
    return b""


def _short(data: ByteSource, item: Field) -> bytes:
    if item.end - item.start > _MAX_NAME:
        raise DataError(f"name of {item.end - item.start} bytes at byte {item.start}")
    return data[item.start : item.end]


def _series(tag: str, points: list[_Point], run: str) -> ScalarSeries:
    return ScalarSeries(
        tag,
        np.array([point.step for point in points], dtype=np.int64),
        np.array([point.wall_time for point in points], dtype=np.float64),
        np.array([point.value for point in points], dtype=np.float64),
        run,
    )

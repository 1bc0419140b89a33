"""TensorFlow's own debug directories (``run_*`` of the tfdbg wrapper and hook), read without TensorFlow.

Layout: ``_tfdbg_device_<device>/<scopes>/<op>_<slot>_<debug op>_<us>``, one file a tensor; a number behind the time
(``-1``) tells apart what was dumped in the same microsecond. The graph, the feeds, the fetches and the step counters
stand in files of their own (:mod:`dumpers.formats.tfdbg_run` has those). What a debug op other than ``DebugIdentity``
wrote is listed as the output of ``<op>:<slot>:<debug op>``, so that it is never taken for the tensor itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from dumpers.errors import DataError
from dumpers.formats.raw import element_count
from dumpers.formats.tf_tensor import plain_type
from dumpers.formats.tfdbg_event import Chunk, ChunkedSource, TensorEvent, find_piece, read_tensor_event
from dumpers.formats.tfdbg_run import read_graphs, read_run_facts
from dumpers.records import Dump, Problem, RecordedStatistics, TensorRecord, execution_order

METADATA: Final = "_tfdbg_"
_DEVICE: Final = "_tfdbg_device_"
_GRAPH: Final = "_tfdbg_graph_"
_RUN: Final = re.compile(r"run_(\d+)_(\d+)\Z")
_IDENTITY: Final = "DebugIdentity"
_SUMMARY: Final = "DebugNumericSummary"


class _File(NamedTuple):
    """A tensor file of a run.

    Attributes:
        number: Behind the time, 0 without one.
        path: The file.
        timestamp_us: From its name.
        name: Path below the device's folder, without time and number: ``<op>_<slot>_<debug op>``.
    """

    number: int
    path: str
    timestamp_us: int
    name: str


@dataclass
class _Listing:
    """Files of a run, sorted out by their names."""

    tensors: list[_File] = field(default_factory=list)
    graphs: list[Path] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    devices: int = 0


def is_tfdbg_run(folder: Path) -> bool:
    """Tells whether a folder is one run of TensorFlow's debugger."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.startswith(METADATA) for entry in entries)
    except OSError:
        return False


def read_tfdbg_run(path: Path) -> Dump:
    """Reads one run directory. Tensors of all devices of the run are in the dump.

    Records have the full op name; a fed placeholder appears under the name that TensorFlow gives it
    (``_arg_x_0_0``). Resource handles and what was not initialised are listed without a value. A tensor that ran
    several times is listed once a time. The graph is the largest of the run's (each device part is stored once), merged
    with the others.

    Raises:
        DataError: no such directory, or no run of TensorFlow's debugger.
    """
    path = Path(path)
    if not is_tfdbg_run(path):
        raise DataError(f"{path}: is no run directory of TensorFlow's debugger (no _tfdbg_* in it)")
    listing = _list_run(path)
    graph = read_graphs(path, listing.graphs, listing.problems)
    records = _read_tensors(listing, graph.types if graph else {})
    return Dump(
        path,
        execution_order(records),
        tuple(listing.problems),
        tuple(listing.ignored),
        graph.graph if graph else None,
    )


def read_tfdbg_runs(folder: Path) -> Dump:
    """Reads all runs of a ``tf_debug`` folder as one dump, oldest first.

    A record's step is its run's global step where all runs were given one and no two the same; else the position of
    the run in the folder. The graph is that of the last run that has one.

    Raises:
        DataError: no such folder, or no run of TensorFlow's debugger in it.
    """
    folder = Path(folder)
    runs = [run for run in run_folders(folder) if is_tfdbg_run(run)]
    if not runs:
        raise DataError(f"{folder}: holds no run of TensorFlow's debugger (run_<us>_<n> with _tfdbg_* files)")
    steps = run_steps(runs)
    dumps = [read_tfdbg_run(run) for run in runs]
    return Dump(
        folder,
        tuple(replace(record, step=step) for dump, step in zip(dumps, steps, strict=True) for record in dump),
        tuple(problem for dump in dumps for problem in dump.problems),
        tuple(path for dump in dumps for path in dump.ignored),
        next((dump.graph for dump in reversed(dumps) if dump.graph), None),
    )


def run_folders(folder: Path) -> list[Path]:
    """Returns the ``run_<us>_<n>`` folders in a ``tf_debug`` folder, oldest first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    runs = [(int(match[1]), int(match[2]), name) for name in names if (match := _RUN.match(name))]
    return [folder / name for _, _, name in sorted(runs)]


def run_steps(runs: Iterable[Path]) -> list[int]:
    """Returns a step for each run: its global step where every run has one of its own, else its position."""
    steps: list[int] = []
    for run in runs:
        try:
            steps.append(read_run_facts(run).global_step)
        except DataError:
            steps.append(-1)
    distinct = len(set(steps)) == len(steps) and min(steps, default=0) >= 0
    return steps if distinct else list(range(len(steps)))


def read_tfdbg_tensor(path: Path) -> TensorRecord:
    """Reads one tensor file of a run.

    Raises:
        DataError: no such file, no tensor file, or one that holds a piece of a tensor.
    """
    path = Path(path)
    file = _tensor_file(path.name, str(path), path.name)
    if file is None:
        raise DataError(f"{path}: is no tensor file of TensorFlow's debugger")
    event = read_tensor_event(str(path))
    if event.chunk:
        raise DataError(f"{path}: is piece {event.chunk.position + 1} of {event.chunk.total} of a tensor; give the run")
    return _record(event, file, {})


def _list_run(run: Path) -> _Listing:
    listing = _Listing()
    with os.scandir(run) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if not entry.name.startswith(METADATA):
            listing.ignored.append(Path(entry.path))
        elif entry.name.startswith(_DEVICE):
            listing.devices += 1
            _list_device(entry, listing)
    listing.tensors.sort(key=lambda file: (file.number, file.path))
    return listing


def _tensor_file(name: str, path: str, below: str) -> _File | None:
    """Takes a file name apart, None if it is not that of a tensor."""
    parts = name.rsplit("_", 3)
    if len(parts) != 4 or not parts[0] or not _is_number(parts[1]):
        return None
    debug_op, moment = parts[2], parts[3]
    if not debug_op.isalnum() or not debug_op[0].isupper():
        return None
    time, dash, number = moment.partition("-")
    if not _is_number(time, 19) or (dash and not _is_number(number)):
        return None
    return _File(int(number) if dash else 0, path, int(time), below[: -len(moment) - 1])


def _is_number(text: str, digits: int = 10) -> bool:
    return text.isdecimal() and len(text) < digits


def _list_device(device: os.DirEntry[str], listing: _Listing) -> None:
    """Lists a device's files; links are not followed, since the debugger makes none."""
    if not device.is_dir(follow_symlinks=False):
        listing.problems.append(Problem(Path(device.path), "is no folder of a device (links are not followed)"))
        return
    skip = len(device.path) + 1
    pending = [device.path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = entry.path
                    if not entry.is_file(follow_symlinks=False):
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(path)
                        else:
                            reason = "is no regular file (links are not followed)"
                            listing.problems.append(Problem(Path(path), reason))
                    elif file := _tensor_file(entry.name, path, path[skip:]):
                        listing.tensors.append(file)
                    elif entry.name.startswith(_GRAPH):
                        listing.graphs.append(Path(path))
                    elif not entry.name.startswith(METADATA):
                        listing.ignored.append(Path(path))
        except OSError as error:
            listing.problems.append(Problem(Path(folder), f"cannot be read: {error.strerror or error}"))


def _read_tensors(listing: _Listing, types: Mapping[str, str]) -> list[TensorRecord]:
    records: list[TensorRecord] = []
    pieces: dict[tuple[str, str, float], dict[int, tuple[_File, TensorEvent, Chunk]]] = {}
    for file in listing.tensors:
        try:
            event = read_tensor_event(file.path)
            if event.chunk is None:
                records.append(_record(event, file, types))
                continue
        except DataError as error:
            listing.problems.append(Problem(Path(file.path), str(error).removeprefix(f"{file.path}: ")))
            continue
        group = pieces.setdefault((os.path.dirname(file.path), event.node_name, event.chunk.wall_time), {})
        if event.chunk.position in group:
            listing.problems.append(Problem(Path(file.path), f"piece {event.chunk.position + 1} of a tensor twice"))
        else:
            group[event.chunk.position] = (file, event, event.chunk)
    for group in pieces.values():
        try:
            records.append(_assemble(group, types))
        except DataError as error:
            first = next(iter(group.values()))[0]
            listing.problems.append(Problem(Path(first.path), str(error)))
    return records


def _record(event: TensorEvent, file: _File, types: Mapping[str, str]) -> TensorRecord:
    op, slot, debug_op = _names(event.node_name, file)
    tensor, timestamp = event.tensor, file.timestamp_us
    if debug_op == _IDENTITY:
        return TensorRecord(
            op=op,
            op_type=types.get(op, ""),
            io="output",
            slot=slot,
            dtype=tensor.dtype,
            shape=tensor.shape,
            source=tensor.source,
            timestamp_us=timestamp,
            device="tf",
            note=tensor.note,
        )
    return TensorRecord(
        op=f"{op}:{slot}:{debug_op}",
        op_type=debug_op,
        io="output",
        slot=0,
        dtype=tensor.dtype,
        shape=tensor.shape,
        source=tensor.source,
        timestamp_us=timestamp,
        device="tf",
        note="; ".join(filter(None, (f"what {debug_op} wrote of {op}:{slot}", tensor.note))),
        statistics=_statistics(event, debug_op),
    )


def _names(node_name: str, file: _File) -> tuple[str, int, str]:
    """``op:slot:debug op`` as the Event has it, else as the path does."""
    parts = node_name.rsplit(":", 2)
    if len(parts) == 3 and parts[0] and _is_number(parts[1]):
        return parts[0], int(parts[1]), parts[2].partition("(")[0]
    op, slot, debug_op = file.name.rsplit("_", 2)
    return op, int(slot), debug_op


def _statistics(event: TensorEvent, debug_op: str) -> RecordedStatistics | None:
    """Figures of ``DebugNumericSummary``: initialised, elements, NaN, -inf, <0, 0, >0, inf, min, max, mean, ...

    Its infinite counts take in what lies beyond bounds that the user may have set; the file does not tell.
    """
    shape, source = event.tensor.shape, event.tensor.source
    if debug_op != _SUMMARY or source is None or event.tensor.dtype != "float64":
        return None
    if shape is None or len(shape) != 1 or not 14 <= shape[0] <= 14 + 254:
        return None
    values = [float(value) for value in source.load().tolist()]
    if values[0] != 1:
        return None
    count, nan, low, high = (_count(values[index]) for index in (1, 2, 3, 7))
    finite = count is not None and None not in (nan, low, high) and count > (nan or 0) + (low or 0) + (high or 0)
    least, most, mean = values[8:11] if finite else (None, None, None)
    return RecordedStatistics(count=count, nan=nan, pos_inf=high, neg_inf=low, min=least, max=most, mean=mean)


def _count(value: float) -> int | None:
    return int(value) if 0 <= value < 1 << 63 else None


def _assemble(group: Mapping[int, tuple[_File, TensorEvent, Chunk]], types: Mapping[str, str]) -> TensorRecord:
    """Puts the pieces of a tensor together."""
    file, event, chunk = min(group.values(), key=lambda item: item[2].position)
    tensor, shape = event.tensor, event.tensor.shape
    if {item[2].total for item in group.values()} != {chunk.total} or max(group) >= chunk.total:
        raise DataError(f"pieces of {event.node_name!r} disagree about their number")
    if len(group) != chunk.total:
        missing = next(index for index in range(chunk.total) if index not in group)
        raise DataError(
            f"{event.node_name!r}: {len(group)} of {chunk.total} pieces, number {missing + 1} is missing; dump it again"
        )
    if any((other.tensor.dtype, other.tensor.shape) != (tensor.dtype, shape) for _, other, _ in group.values()):
        raise DataError(f"pieces of {event.node_name!r} disagree about dtype or shape")
    if tensor.note or shape is None:
        return _record(event, file, types)
    found = [find_piece(group[index][0].path) for index in range(chunk.total)]
    dtype, size = plain_type(found[0].number), sum(piece.size for piece in found)
    if dtype is not None and size != element_count(shape) * dtype.itemsize:
        raise DataError(f"pieces of {event.node_name!r} hold {size} bytes for a {tensor.dtype} tensor of shape {shape}")
    source = ChunkedSource(tuple(found), shape)
    return _record(event._replace(tensor=tensor._replace(source=source)), file, types)

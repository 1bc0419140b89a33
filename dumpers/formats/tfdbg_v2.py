"""Logs of TensorFlow's Debugger V2 (``tf.debugging.experimental.enable_dump_debug_info``), read without TensorFlow.

A run is a set of record files with one prefix, ``tfdbg_events.<seconds>.<host>``: ``.metadata``, ``.graphs``,
``.execution`` (what ran eagerly, whole functions included), ``.graph_execution_traces`` (what ran inside functions),
``.source_files`` and ``.stack_frames``. Several hosts of one run share a run id. The trace buffers are circular by
default, so a log has the last executions only, and none at all if the program never flushed them.

Names: an op inside a function has its own name, with the function's name in front where several functions have an op
of that name. What ran eagerly has no name; it is ``eager/<op type>``, with ``_1``, ``_2``, ... in order of execution.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.file_view import FileWindow
from dumpers.formats.raw import regular_only
from dumpers.formats.record_file import DamagedRecordError, Record, RecordSource, read_records
from dumpers.formats.tf_tensor import array_from_bytes, value_dtype, walk_tensor, without_value
from dumpers.formats.tfdbg_v2_graphs import V2Graphs, plain_function_name, read_first_metadata, text
from dumpers.formats.tfdbg_v2_values import FULL_TENSOR, mode_name, summary_of
from dumpers.formats.wire import ByteSource, Field, WireError, few_fields, signed64
from dumpers.records import Dump, Problem, TensorRecord

_FILE: Final = re.compile(
    r"(?P<prefix>tfdbg_events\..+?)"
    r"(?:\.(?P<part>metadata|source_files|stack_frames|graphs|execution|graph_execution_traces))?\Z",
    re.DOTALL,
)
_MAX_OUTPUTS: Final = 1 << 12
_MAX_NAME: Final = 1 << 16


@dataclass
class _Run:
    """File sets of one run, the first host's first."""

    prefixes: list[Path]
    wall_time: float


@dataclass
class _Reading:
    """What has been read of a run so far."""

    graphs: V2Graphs
    problems: list[Problem] = field(default_factory=list)
    records: list[tuple[float, TensorRecord]] = field(default_factory=list)
    eager: Counter[str] = field(default_factory=Counter)

    def add(self, wall_time: float, record: TensorRecord) -> None:
        self.records.append((wall_time, record))


def read_tfdbg_v2(path: Path) -> Dump:
    """Reads one run: the newest of a folder, or the one whose prefix or file is given.

    Records of the modes with values have a source; those of the health modes have
    :attr:`~dumpers.records.TensorRecord.statistics` and no source. A log that was cut off is read up to there.

    Raises:
        DataError: no such folder, or no log of Debugger V2 in it.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    runs, problems = _runs(folder)
    if path.is_dir():
        run = max(runs, key=lambda found: (found.wall_time, str(found.prefixes[0])), default=None)
    else:
        match = _FILE.match(path.name)
        run = next((found for found in runs if match and folder / match["prefix"] in found.prefixes), None)
    if run is None:
        raise DataError(f"{path}: holds no run of Debugger V2 (tfdbg_events.*.metadata); check the path")
    ignored = sorted(_files_of(folder, {prefix for other in runs if other is not run for prefix in other.prefixes}))
    graphs = V2Graphs()
    reading = _Reading(graphs, problems)
    for prefix in run.prefixes:
        _read_part(reading, _file(prefix, "graphs"), "graphs")
    graphs.finish()
    for prefix in run.prefixes:
        _read_part(reading, _file(prefix, "execution"), "execution")
        _read_part(reading, _file(prefix, "graph_execution_traces"), "traces")
    # Sorting by time alone keeps the order of the file within a microsecond.
    records = tuple(record for _, record in sorted(reading.records, key=lambda item: item[0]))
    return Dump(path, records, tuple(reading.problems), tuple(ignored), graphs.graph(run.prefixes[0]))


def _part(name: str) -> str:
    match = _FILE.match(name)
    return (match["part"] or "") if match else ""


def _file(prefix: Path, part: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{part}")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error


def _files_of(folder: Path, prefixes: set[Path]) -> list[Path]:
    return [
        folder / name
        for name in _names(folder)
        if (match := _FILE.match(name)) and match["part"] and folder / match["prefix"] in prefixes
    ]


def _runs(folder: Path) -> tuple[list[_Run], list[Problem]]:
    """File sets by run id; one without readable metadata is a run of its own."""
    names = {_FILE.match(name)["prefix"] for name in _names(folder) if _part(name)}  # type: ignore[index]
    problems: list[Problem] = []
    runs: dict[str, _Run] = {}
    found: list[tuple[float, Path, str]] = []
    for name in sorted(names):
        prefix = folder / name
        try:
            wall_time, run_id = read_first_metadata(_file(prefix, "metadata"))
        except DataError as error:
            problems.append(Problem.of(_file(prefix, "metadata"), error))
            number = re.search(r"\.(\d{1,15})\.", name)
            wall_time, run_id = float(number[1]) if number else 0.0, ""
        found.append((wall_time, prefix, run_id or f"?{name}"))
    for wall_time, prefix, run_id in sorted(found):
        runs.setdefault(run_id, _Run([], wall_time)).prefixes.append(prefix)
    return list(runs.values()), problems


def _read_part(reading: _Reading, path: Path, part: str) -> None:
    """Reads one file up to its end, or up to where it is damaged."""
    if not path.exists():
        reading.problems.append(Problem(path, "is missing; the log is not complete"))
        return
    try:
        with open(path, "rb", opener=regular_only) as file:
            window = FileWindow(file.fileno())
            for record in read_records(path, whole=1 << 24 if part == "graphs" else 1 << 16):
                _read_event(reading, path, record, window, part)
    except DamagedRecordError as error:
        reading.problems.append(Problem(path, f"{_bare(error, path)}; what comes before is read"))
    except DataError as error:
        reading.problems.append(Problem.of(path, error))
    except OSError as error:
        reading.problems.append(Problem(path, f"cannot be read: {error.strerror or error}"))


def _bare(error: Exception, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")


def _read_event(reading: _Reading, path: Path, record: Record, window: FileWindow, part: str) -> None:
    event = _Event(path, record, window)
    try:
        if part == "graphs":
            reading.graphs.add(record)
        elif part == "execution":
            _execution(reading, event)
        else:
            _trace(reading, event)
    except (WireError, DataError, IndexError) as error:
        reading.problems.append(Problem(path, f"record at byte {record.offset}: {_bare(error, path)}"))


class _Event:
    """A ``DebugEvent`` on the wire: its time, and one of its messages."""

    def __init__(self, path: Path, record: Record, window: FileWindow) -> None:
        self.path = path
        self.record = record
        self.data: ByteSource = window if record.data is None else record.data
        self.base = record.start if record.data is None else 0

    def message(self, number: int) -> tuple[float, dict[int, list[Field]]] | None:
        """Returns the time in seconds and the fields of the message, None if the event has another one."""
        found = self.fields(self.base, self.base + self.record.length)
        if number not in found:
            return None
        body = found[number][-1]
        time = found.get(1)
        moment = float(np.frombuffer(self.data[time[0].start : time[0].end], "<f8")[0]) if time else 0.0
        if not 0 <= moment < 1e12:
            raise DataError(f"time stamp {moment}")
        return moment, self.fields(body.start, body.end)

    def fields(self, start: int, end: int) -> dict[int, list[Field]]:
        """Fields of a message by number."""
        found: dict[int, list[Field]] = {}
        for item in few_fields(self.data, start, end):
            found.setdefault(item.number, []).append(item)
        return found

    def text(self, found: Mapping[int, list[Field]], number: int) -> str:
        """Text of a field, empty without."""
        if number not in found or found[number][-1].kind != 2:
            return ""
        item = found[number][-1]
        if item.end - item.start > _MAX_NAME:
            raise DataError(f"name of {item.end - item.start} bytes")
        return text(self.data[item.start : item.end])

    def tensor(self, item: Field, mode: int) -> dict[str, object]:
        """What a record says about the tensor of a trace."""
        if item.kind != 2:
            raise DataError("tensor is no message")
        if mode != FULL_TENSOR:
            return self._summary(item, mode)
        found = walk_tensor(self.data, item.start, item.end)
        dtype = value_dtype(found.number)
        reason = without_value(found.number, found.shape, has_values=found.typed or found.content is not None)
        content = found.content and (found.content[0] - self.base, found.content[1] - self.base)
        source = RecordSource(
            self.path, self.record.offset, item.start - self.base, item.end - self.base, found._replace(content=content)
        )
        return {"dtype": dtype, "shape": found.shape, "source": None if reason else source, "note": reason}

    def _summary(self, item: Field, mode: int) -> dict[str, object]:
        if item.end - item.start > 4096:
            raise DataError(f"{item.end - item.start} bytes for the figures of {mode_name(mode)}")
        raw = self.data[item.start : item.end]
        # Mode 1 writes an empty float tensor for everything, and a type that a mode passes over an empty message.
        with np.errstate(invalid="ignore"):  # a NaN of another width is no error
            values = array_from_bytes(raw).astype(np.float64).ravel().tolist() if raw and mode != 1 else []
        found = summary_of(mode, values)
        return {"dtype": found.dtype, "shape": found.shape, "source": None, "note": found.note,
                "statistics": found.statistics}  # fmt: skip


def _number(found: Mapping[int, list[Field]], number: int) -> int:
    """A field of type int32 or int64, 0 without."""
    if number not in found:
        return 0
    return signed64(found[number][-1].value)


def _trace(reading: _Reading, event: _Event) -> None:
    message = event.message(10)
    if message is None:
        return
    wall_time, found = message
    op = reading.graphs.op(event.text(found, 1), event.text(found, 2))
    slot = _number(found, 3)
    if not op.name or not 0 <= slot < 1 << 31:
        raise DataError(f"trace of op {op.name!r}, output {slot}")
    tensors = found.get(5, [])
    facts = event.tensor(tensors[-1], _number(found, 4)) if tensors else _nothing(_number(found, 4))
    reading.add(wall_time, _record(op.name, op.type, slot, wall_time, facts))


def _nothing(mode: int) -> dict[str, object]:
    return {"dtype": "undefined", "shape": None, "source": None, "note": summary_of(mode, ()).note}


def _record(op: str, op_type: str, slot: int, wall_time: float, facts: dict[str, object]) -> TensorRecord:
    return TensorRecord(
        op=op,
        op_type=op_type,
        io="output",
        slot=slot,
        timestamp_us=round(wall_time * 1e6),
        device="tf",
        **facts,  # type: ignore[arg-type]
    )


def _execution(reading: _Reading, event: _Event) -> None:
    message = event.message(9)
    if message is None:
        return
    wall_time, found = message
    op_type = event.text(found, 1)
    name = f"eager/{reading.graphs.name_of(event.text(found, 3)) or plain_function_name(op_type)}"
    op = f"{name}_{reading.eager[name]}" if reading.eager[name] else name
    reading.eager[name] += 1
    mode, tensors, outputs = _number(found, 6), found.get(7, []), _number(found, 2)
    fewer = f"output unknown: {len(tensors)} of {outputs} outputs were recorded" if 0 < len(tensors) < outputs else ""
    for slot, item in enumerate(tensors):
        facts = event.tensor(item, mode)
        facts["note"] = "; ".join(filter(None, (str(facts["note"]), fewer)))
        reading.add(wall_time, _record(op, op_type, slot, wall_time, facts))
    if tensors:
        return
    facts = _nothing(mode)
    if mode != 1:
        facts["note"] = f"no value: {mode_name(mode)} was not asked for ops or types like this one"
    if outputs > _MAX_OUTPUTS:
        raise DataError(f"{op_type!r} claims {outputs} outputs")
    for slot in range(outputs):
        reading.add(wall_time, _record(op, op_type, slot, wall_time, facts))

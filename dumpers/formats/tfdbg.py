"""TensorFlow's own debug directories (``run_*`` of the tfdbg wrapper and hook), read without TensorFlow.

Every tensor is one file with a serialized Event. Only the first bytes of it are read when a run is listed: the raw
content of a tensor is found by its offset and loaded when asked for.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.lowfloat import decoded_dtype, stored_bytes
from dumpers.formats.raw import RawSource, bad_shape, element_count
from dumpers.formats.schema import decode_error, tf_message
from dumpers.formats.tf_graph import graph_from_bytes, read_ops
from dumpers.formats.tf_tensor import ProtoSource, parse_shape, value_dtype
from dumpers.formats.walk import walk_files
from dumpers.formats.wire import Field, WireError, fields
from dumpers.graph import Graph
from dumpers.records import Dump, Problem, TensorRecord, TensorSource, execution_order

_METADATA: Final = "_tfdbg_"
_DEVICE: Final = "_tfdbg_device_"
_GRAPH: Final = "_tfdbg_graph_"
_FILE_NAME: Final = re.compile(r"(?P<op>.+)_(?P<slot>\d+)_DebugIdentity_(?P<time>\d+)\Z", re.DOTALL)


@dataclass(frozen=True)
class _Head:
    """What an Event says about its tensor before the values."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    source: TensorSource | None
    note: str = ""


def is_tfdbg_run(folder: Path) -> bool:
    """Tells whether a folder is one run of TensorFlow's debugger."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.startswith(_METADATA) for entry in entries)
    except OSError:
        return False


def read_tfdbg_run(path: Path) -> Dump:
    """Reads one run directory. Tensors of all devices of the run are in the dump.

    Records have the full op name; a fed placeholder appears under the name that TensorFlow gives it
    (``_arg_x_0_0``). Resource handles are listed without a value. The graph is the largest of the run's (each device
    part is stored once), merged with the others.

    Raises:
        DataError: no such directory, or no run of TensorFlow's debugger.
    """
    path = Path(path)
    if not is_tfdbg_run(path):
        raise DataError(f"{path}: is no run directory of TensorFlow's debugger (no _tfdbg_* in it)")
    records: list[TensorRecord] = []
    problems: list[Problem] = []
    ignored: list[Path] = []
    graphs: list[Path] = []
    for device in sorted(entry for entry in path.iterdir() if entry.name.startswith(_DEVICE) and entry.is_dir()):
        for file in walk_files(device):
            name = file.relative_to(device).as_posix()
            match = _FILE_NAME.match(name)
            if match:
                try:
                    records.append(_record(file, match))
                except DataError as error:
                    problems.append(Problem(file, str(error)))
            elif file.name.startswith(_GRAPH):
                graphs.append(file)
            elif not file.name.startswith(_METADATA):
                ignored.append(file)
    graph = _graph(path, graphs, problems)
    if graph:
        records = [replace(r, op_type=graph.ops[r.op].type) if r.op in graph.ops else r for r in records]
    return Dump(path, execution_order(records), tuple(problems), tuple(ignored), graph)


def read_tfdbg_tensor(path: Path) -> TensorRecord:
    """Reads one tensor file of a run.

    Raises:
        DataError: no such file, or no tensor file.
    """
    path = Path(path)
    match = _FILE_NAME.match(path.name)
    if match is None:
        raise DataError(f"{path}: is no tensor file of TensorFlow's debugger")
    return _record(path, match)


def _record(path: Path, match: re.Match[str]) -> TensorRecord:
    head = _read_head(path)
    op, slot = match["op"], int(match["slot"])
    node, _, rest = head.name.partition(":")  # op:slot:DebugIdentity; names hold no colon
    if node and rest.partition(":")[0].isdigit():
        op, slot = node, int(rest.partition(":")[0])
    return TensorRecord(
        op=op,
        op_type="",
        io="output",
        slot=slot,
        dtype=head.dtype,
        shape=head.shape,
        source=head.source,
        timestamp_us=int(match["time"]),
        device="tf",
        note=head.note,
    )


def _read_head(path: Path) -> _Head:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise DataError(f"{path}: is empty; the dump was interrupted or the disk full")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse_event(path, data, size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except WireError as error:
        raise DataError(f"{path}: is no tensor file, or was cut off: {error}") from error


def _parse_event(path: Path, data: mmap.mmap, size: int) -> _Head:
    summary = _find(fields(data, 0, size), 5)
    value = _find(fields(data, summary.start, summary.end), 1) if summary else None
    if value is None:
        raise DataError(f"{path}: holds no tensor (no summary value)")
    name, tensor = "", None
    for field in fields(data, value.start, value.end):
        if field.number == 7:
            name = data[field.start : field.end].decode("utf-8", "backslashreplace")
        elif field.number == 8 and field.kind == 2:
            tensor = field
    if tensor is None:
        return _Head(name, "undefined", None, None, "TensorFlow recorded no value (uninitialised or unconvertible)")
    return _parse_tensor(path, data, tensor, name)


def _parse_tensor(path: Path, data: mmap.mmap, tensor: Field, name: str) -> _Head:
    number, content = 0, None
    shape: tuple[int, ...] | None = ()
    for field in fields(data, tensor.start, tensor.end):
        if field.number == 1:
            number = field.value
        elif field.number == 2 and field.kind == 2:
            shape = parse_shape(data, field.start, field.end)
        elif field.number == 4 and field.kind == 2:
            content = field
    dtype = value_dtype(number)
    if dtype in ("resource", "variant", "undefined") or dtype.startswith("type_"):
        return _Head(name, dtype, shape, None, f"no value: {dtype}")
    if shape is None or bad_shape(shape):
        raise DataError(f"{path}: tensor of shape {shape}; the file is damaged")
    if dtype == "string" or content is None:
        return _Head(name, dtype, shape, ProtoSource(path, tensor.start, tensor.end))
    try:
        needed = stored_bytes(decoded_dtype(dtype), element_count(shape))
    except ValueError:
        return _Head(name, dtype, shape, None, f"type {dtype} is not decoded")
    if needed != content.end - content.start:
        raise DataError(
            f"{path}: {content.end - content.start} bytes for a {dtype} tensor of shape {shape}; the file is damaged"
        )
    return _Head(name, dtype, shape, RawSource(path, content.start, dtype, shape))


def _find(found: Iterator[Field], number: int) -> Field | None:
    return next((field for field in found if field.number == number and field.kind == 2), None)


def _graph(run: Path, files: list[Path], problems: list[Problem]) -> Graph | None:
    parts = []
    for file in files:
        event = tf_message("Event")
        try:
            event.ParseFromString(file.read_bytes())
            parts.append(read_ops(graph_from_bytes(event.graph_def).node))
        except decode_error():
            problems.append(Problem(file, "is no graph, or was cut off"))
        except (OSError, DataError) as error:
            problems.append(Problem(file, str(error)))
    if not parts:
        return None
    parts.sort(key=len)
    ops = {name: op for part in parts for name, op in part.items()}
    return Graph(name=run.name, ops=ops, kind="tf", path=run)

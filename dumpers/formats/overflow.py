"""Overflow records (``Opdebug.Node_OpDebug.*``): which task overflowed and what its status bits mean."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from dumpers.errors import DataError
from dumpers.formats.dump_names import full_name, parse_dump_name, read_mapping
from dumpers.formats.npu_dump import read_npu_dump
from dumpers.formats.raw import RawSource, regular_only
from dumpers.records import Dump, TensorRecord

Value: TypeAlias = "int | str | list[int] | Mapping[str, Value]"

_MAGIC: Final = 0x5A5A5A5A
_NO_ID: Final = 65535
_OLD_SIZE: Final = 2048
_INFO: Final = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_HEX: Final = frozenset({"pc_start", "para_base", "kernel_code", "src_addr", "dst_addr"})

_TASK: Final = ("model_id", "stream_id", "task_id", "task_type")
_NEW_FIELDS: Final = {
    "AIC": (*_TASK, "context_id", "thread_id", "pc_start", "para_base", "core_id", "block_id", "status"),
    "AIV": (*_TASK, "context_id", "thread_id", "pc_start", "para_base", "core_id", "block_id", "status"),
    "AICPU": (*_TASK, "context_id", "cpu_id", "thread_id", "status"),
    "SDMA": (*_TASK, "context_id", "thread_id", "src_addr", "dst_addr", "channel_id", "status"),
}
_ACC_TYPES: Final = ("AIC", "AIV", "AICPU", "SDMA")

_OLD_UNITS: Final = {"DHA Atomic Add": ("status",), "L2 Atomic Add": ("status",)}
_OLD_CORE: Final = ("kernel_code", "block_idx", "status")
_LARGEST_JSON: Final = 1 << 20
_JSON_NAME: Final = re.compile(r"(?P<dump>.+)\.output\.(?P<slot>\d{1,6})\.json")

_CORE_BITS: Final = {
    0x8: "integer sign inversion overflow",
    0x10: "integer add, sub, mul or mac overflow",
    0x20: "floating-point overflow",
    0x80: "negative float converted to unsigned",
    0x100: "overflow converting FP32 or int32 to FP16",
    0x400: "cube accumulation overflow",
}
_DHA: Final = {0x9: "overflow", 0xA: "underflow", 0xB: "source NaN", 0xC: "destination NaN", 0xD: "both NaN"}
_L2: Final = {1: "overflow", 2: "underflow", 3: "source NaN", 4: "destination NaN", 5: "both NaN"}


@dataclass(frozen=True)
class OverflowEvent:
    """One unit that reported something.

    Attributes:
        unit: ``AI Core``, ``DHA Atomic Add``, ``L2 Atomic Add``, or ``AIC``, ``AIV``, ``AICPU``, ``SDMA``.
        task_id: Task of the op that overflowed.
        stream_id: Its stream.
        status: Status words, one on all but the newest records.
        meanings: What the bits mean, in words.
        context_id: Context in the FFTS+ layout, None if there is none.
        thread_id: Thread, likewise.
    """

    unit: str
    task_id: int
    stream_id: int
    status: tuple[int, ...]
    meanings: tuple[str, ...]
    context_id: int | None = None
    thread_id: int | None = None


@dataclass(frozen=True)
class OverflowRecord:
    """One output of an overflow file.

    Attributes:
        path: The file.
        slot: Output of the file.
        timestamp_us: From the file name, None if it has none.
        data: The record in the JSON form of the public converter.
        events: Units with a status that is not 0.
    """

    path: Path
    slot: int
    timestamp_us: int | None
    data: Mapping[str, Value]
    events: tuple[OverflowEvent, ...]


def read_overflow(path: Path) -> list[OverflowRecord]:
    """Reads an overflow file; mostly one record, one for each of its outputs.

    Raises:
        DataError: no dump file, or its outputs are no overflow records.
    """
    path = Path(path)
    found = read_npu_dump(path)
    if not found.outputs:
        raise DataError(f"{path}: holds no overflow record (no outputs)")
    records = []
    for output in found.outputs:
        if output.source is None:
            raise DataError(f"{path}: output {output.slot} has no value: {output.note}")
        raw = output.load().tobytes()
        try:
            data, events = _decode(raw)
        except struct.error as error:
            raise DataError(f"{path}: record at byte {_place(output)} of {len(raw)} bytes was cut off") from error
        except DataError as error:
            raise DataError(f"{path}: record at byte {_place(output)}: {error}") from error
        records.append(OverflowRecord(path, output.slot, output.timestamp_us, data, tuple(events)))
    return records


def _place(output: TensorRecord) -> int:
    return output.source.offset if isinstance(output.source, RawSource) else 0


def read_overflow_json(path: Path) -> list[OverflowRecord]:
    """Reads a record that the public converter has turned into JSON (``<dump name>.output.<slot>.json``).

    The events are those that :func:`read_overflow` finds in the binary.

    Raises:
        DataError: no such file, or no overflow record.
    """
    path = Path(path)
    try:
        with open(path, "rb", opener=regular_only) as file:
            raw = file.read(_LARGEST_JSON + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(raw) > _LARGEST_JSON:
        raise DataError(f"{path}: is no overflow record (more than {_LARGEST_JSON} bytes)")
    try:
        tree = json.loads(raw.decode("utf-8-sig"))
        if not isinstance(tree, dict):
            raise ValueError(f"it holds a {type(tree).__name__}")
        events = _events_of_new(tree) if "acc_list" in tree else _events_of_old(tree)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no overflow record: {error}") from error
    name = _JSON_NAME.fullmatch(full_name(path.name, read_mapping(path.parent)) or path.name)
    parsed = parse_dump_name(name["dump"]) if name else None
    slot = int(name["slot"]) if name else 0
    return [OverflowRecord(path, slot, parsed.timestamp_us if parsed else None, tree, events)]


def find_overflow_files(folder: Path) -> list[Path]:
    """Returns the overflow files of a folder in order of time; their names may be shortened to digits.

    Raises:
        DataError: the folder cannot be read.
    """
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_file()]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    mapping = read_mapping(folder)
    found = []
    for name in names:
        parsed = parse_dump_name(full_name(name, mapping) or "")
        if parsed and parsed.is_overflow and not parsed.statistics:
            found.append((parsed.timestamp_us, name))
    return [folder / name for _, name in sorted(found)]


def find_op(event: OverflowEvent, dump: Dump) -> tuple[TensorRecord, ...]:
    """Returns the tensors of the op behind an event: same task and stream, earliest time. Empty if not dumped.

    A dump without stream ids is matched by task alone.
    """
    for record in dump:
        if record.task_id == event.task_id and record.stream_id in (event.stream_id, None):
            return tuple(
                other
                for other in dump
                if (other.task_id, other.timestamp_us, other.op) == (record.task_id, record.timestamp_us, record.op)
            )
    return ()


def status_meaning(unit: str, status: int) -> tuple[str, ...]:
    """Returns what a status word says; bits that no document explains are named as such."""
    if status == 0:
        return ()
    if unit == "DHA Atomic Add":
        return (_DHA.get(status >> 8 & 0xFF, f"unknown status 0x{status:x}"),)
    if unit == "L2 Atomic Add":
        return (_L2.get(status >> 16 & 0x7, f"unknown status 0x{status:x}"),)
    if unit not in ("AI Core", "AIC", "AIV"):
        return (f"status 0x{status:x} (not documented for {unit})",)
    found = tuple(text for bit, text in _CORE_BITS.items() if status & bit)
    rest = status & ~sum(_CORE_BITS)
    return (*found, f"unknown bits 0x{rest:x}") if rest else found


def _decode(raw: bytes) -> tuple[dict[str, Value], list[OverflowEvent]]:
    if len(raw) >= 24 and int.from_bytes(raw[:4], "little") == _MAGIC:
        return _decode_new(raw)
    if len(raw) == _OLD_SIZE:
        return _decode_old(raw)
    raise DataError(f"is no overflow record: {len(raw)} bytes, neither the old size {_OLD_SIZE} nor the new mark")


def _decode_old(raw: bytes) -> tuple[dict[str, Value], list[OverflowEvent]]:
    data: dict[str, Value] = {}
    events: list[OverflowEvent] = []
    status_fields = {"AI Core": (1024, ("kernel_code", "block_idx", "status"))}
    for unit, info, status_at in (("DHA Atomic Add", 0, 512), ("L2 Atomic Add", 128, 768), ("AI Core", 256, 1024)):
        values = dict(zip(_INFO, struct.unpack_from("<6Q", raw, info), strict=True))
        where, names = status_fields.get(unit, (status_at, ("status",)))
        values.update(zip(names, struct.unpack_from(f"<{len(names)}Q", raw, where), strict=True))
        data[unit] = {name: _shown(name, value) for name, value in values.items()}
        events.extend(_event(unit, values, (values["status"],)))
    return data, events


def _decode_new(raw: bytes) -> tuple[dict[str, Value], list[OverflowEvent]]:
    magic, version, valid, kind, reserved, length = struct.unpack_from("<6I", raw)
    if kind >= len(_ACC_TYPES):
        raise DataError(f"overflow record of unknown unit {kind}")
    unit = _ACC_TYPES[kind]
    names = _NEW_FIELDS[unit]
    words = 4 if version == 1 and unit in ("AIC", "AIV") else 1
    count = len(names) - 1 + words
    if length != 8 * count:
        raise DataError(f"{unit} overflow record with {length} bytes of fields instead of {8 * count}")
    numbers = struct.unpack_from(f"<{count}Q", raw, 24)
    values = dict(zip(names, numbers[: len(names)], strict=True))
    status = numbers[len(names) - 1 :]
    shown: dict[str, Value] = {name: _shown(name, value) for name, value in values.items()}
    shown["status"] = status[0] if words == 1 else list(status)
    accelerator: dict[str, Value] = {
        "valid": valid,
        "acc_type": unit,
        "rsv": reserved,
        "data_len": length,
        "data": shown,
    }
    data: dict[str, Value] = {"magic": f"0x{magic:x}", "version": version, "acc_list": accelerator}
    return data, list(_event(unit, values, status))


def _events_of_old(tree: Mapping[str, object]) -> tuple[OverflowEvent, ...]:
    units = {**_OLD_UNITS, "AI Core": _OLD_CORE}
    if not any(unit in tree for unit in units):
        raise ValueError(f"it has none of {', '.join(units)} and no acc_list")
    events: list[OverflowEvent] = []
    for unit, names in units.items():
        if unit in tree:
            values = _values(tree[unit], (*_INFO, *names), unit)
            events.extend(_event(unit, values, (values["status"],)))
    return tuple(events)


def _events_of_new(tree: Mapping[str, object]) -> tuple[OverflowEvent, ...]:
    accelerator = tree["acc_list"]
    unit = accelerator.get("acc_type") if isinstance(accelerator, dict) else None
    if not isinstance(accelerator, dict) or unit not in _ACC_TYPES:
        raise ValueError(f"its unit is {str(unit)[:40]!r}, none of {', '.join(_ACC_TYPES)}")
    data = accelerator.get("data")
    values = _values(data, _NEW_FIELDS[unit][:-1], unit)
    status = data.get("status") if isinstance(data, dict) else None
    words = tuple(_value(word, "status") for word in (status if isinstance(status, list) else [status]))
    return tuple(_event(unit, values, words))


def _values(part: object, names: tuple[str, ...], unit: str) -> dict[str, int]:
    if not isinstance(part, dict):
        raise ValueError(f"{unit} is no list of fields")
    return {name: _value(part.get(name), name) for name in names}


def _value(value: object, name: str) -> int:
    """A field: a number, or text of one (addresses are written in hexadecimal)."""
    if isinstance(value, str) and len(value) <= 40:
        value = int(value, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number of 64 bits")
    return value


def _shown(name: str, value: int) -> Value:
    return f"0x{value:x}" if name in _HEX else value


def _event(unit: str, values: Mapping[str, int], status: tuple[int, ...]) -> Iterator[OverflowEvent]:
    if not any(status):
        return
    meanings = tuple(dict.fromkeys(text for word in status for text in status_meaning(unit, word)))
    context, thread = values.get("context_id", _NO_ID), values.get("thread_id", _NO_ID)
    yield OverflowEvent(
        unit=unit,
        task_id=values["task_id"],
        stream_id=values["stream_id"],
        status=status,
        meanings=meanings,
        context_id=None if context == _NO_ID else context,
        thread_id=None if thread == _NO_ID else thread,
    )

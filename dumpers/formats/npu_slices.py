"""The whole tensors of operators that ran in slices, put together from the dump files of the slices.

Each thread or slice of such an operator has a dump file of its own; :mod:`dumpers.formats.npu_slice_info` knows what
their headers say. A joined tensor is read only when asked for. Slices that do not cover the whole exactly once are not
joined: they stay single, with a problem.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dumpers.dtypes import numpy_dtype
from dumpers.formats.dump_names import DumpName
from dumpers.formats.npu_slice_info import Box, SliceInfo, without_slice
from dumpers.formats.raw import RawSource
from dumpers.records import Io, Problem, TensorRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class SliceFile:
    """One file of a sliced op with its records."""

    path: Path
    name: DumpName
    op: str
    info: SliceInfo
    records: tuple[TensorRecord, ...]


@dataclass(frozen=True)
class SliceSource:
    """A tensor put together from its slices when it is loaded.

    Attributes:
        path: File of the first slice.
        parts: Source and first index (of each axis) of every slice.
        shape: Of the whole tensor.
        dtype: Of the array.
        groups, layout: As in :class:`dumpers.formats.raw.RawSource`.
    """

    path: Path
    parts: tuple[tuple[RawSource, tuple[int, ...]], ...]
    shape: tuple[int, ...]
    dtype: str
    groups: int = 1
    layout: str = ""

    def load(self) -> NDArray[np.generic]:
        """Returns the whole array, read-only.

        Raises:
            DataError: the file of a slice vanished or became shorter.
        """
        whole = np.empty(self.shape, numpy_dtype(self.dtype))
        for source, start in self.parts:
            part = source.load()
            whole[tuple(slice(at, at + size) for at, size in zip(start, part.shape, strict=True))] = part
        whole.flags.writeable = False
        return whole


def join_slices(
    files: Iterable[SliceFile], full_name: Callable[[str, str], str]
) -> tuple[list[TensorRecord], list[Problem]]:
    """Returns the whole tensors of sliced ops; those whose slices do not fit stay single, with a problem.

    Args:
        files: Files of one folder, each with ``info.index``.
        full_name: Gets (name without the slice's part, op type) and returns the op's full name.
    """
    groups: dict[tuple[object, ...], list[SliceFile]] = defaultdict(list)
    for file in files:
        key = (file.name.op_type, without_slice(file.op), file.info.threads, file.info.count)
        groups[key].append(file)
    records: list[TensorRecord] = []
    problems: list[Problem] = []
    for group in groups.values():
        op = full_name(without_slice(group[0].op), group[0].name.op_type)
        runs, reason = _runs(group)
        if reason:
            problems.append(Problem(group[0].path, f"{op}: {reason}; its slices are listed singly"))
            records += [_single(record, file) for file in group for record in file.records]
        for run in runs:
            _join_run(run, op, records, problems)
    return records, problems


def _runs(group: Sequence[SliceFile]) -> tuple[list[list[SliceFile]], str]:
    """Returns the files of each execution in order of their index; or none, and why they do not make up whole ones."""
    by_index: dict[int, list[SliceFile]] = defaultdict(list)
    for file in sorted(group, key=lambda one: one.name.timestamp_us):
        by_index[file.info.index or 0].append(file)
    count = group[0].info.count
    missing = [str(index) for index in range(count) if index not in by_index]
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        return [], f"slice(s) {shown} of {count} are missing"
    times = {len(found) for found in by_index.values()}
    if len(times) > 1:
        return [], f"some of its {count} slices are there {max(times)} times, others {min(times)}"
    return [[by_index[index][run] for index in range(count)] for run in range(times.pop())], ""


def _join_run(run: Sequence[SliceFile], op: str, records: list[TensorRecord], problems: list[Problem]) -> None:
    slots: dict[tuple[Io, int], list[TensorRecord]] = defaultdict(list)
    for file in run:
        for record in file.records:
            slots[record.io, record.slot].append(record)
    for (io, slot), parts in slots.items():
        try:
            if len(parts) != len(run):
                raise ValueError(f"only {len(parts)} of {len(run)} slices have it")
            joined = _joined(run, parts)
        except ValueError as error:
            problems.append(Problem(run[0].path, f"{op}: {io} {slot}: {error}; its slices are listed singly"))
            joined = None
        if joined is None:
            owners = {id(record): file for file in run for record in file.records}
            records += [_single(record, owners[id(record)]) for record in parts]
        else:
            records.append(replace(joined, op=op))


def _single(record: TensorRecord, file: SliceFile) -> TensorRecord:
    note = f"slice {file.info.index} of {file.info.count}"
    return replace(record, note="; ".join(filter(None, (note, record.note))))


def _joined(run: Sequence[SliceFile], parts: Sequence[TensorRecord]) -> TensorRecord | None:
    """Returns the whole tensor; None where the header does not say how an input was cut.

    Raises:
        ValueError: the slices do not fit, or it does not say it of an output.
    """
    first, info = parts[0], run[0].info
    last = max((record.timestamp_us for record in parts if record.timestamp_us is not None), default=None)
    if any(record.source is None for record in parts):
        if all(record.source is None for record in parts):
            return replace(first, timestamp_us=last)
        raise ValueError("a slice has no value")
    if len({(record.dtype, record.format, len(_shape(record))) for record in parts}) > 1:
        raise ValueError("its slices differ in dtype, layout or rank")
    starts = _starts(info, parts)
    if starts is None:
        if first.io == "input":
            return None
        raise ValueError("its header does not say how it was cut")
    if not starts:
        return replace(first, timestamp_us=last, note=_note(first, f"the same in {info.count} slices, slice 0 shown"))
    return _whole(parts, starts, last, info.count)


def _whole(
    parts: Sequence[TensorRecord], starts: Sequence[tuple[int, ...]], last: int | None, count: int
) -> TensorRecord:
    first = parts[0]
    boxes = [_box(part, start) for part, start in zip(parts, starts, strict=True)]
    shape = tuple(max(high for _, high in axis) for axis in zip(*boxes, strict=True))
    _check_tiling(boxes, shape)
    sources = [part.source for part in parts]
    placed = tuple((s, at) for s, at in zip(sources, starts, strict=True) if isinstance(s, RawSource))
    axes = [axis for axis in range(len(shape)) if len({start[axis] for start in starts}) > 1]
    return replace(
        first,
        shape=shape,
        source=SliceSource(placed[0][0].path, placed, shape, first.dtype, placed[0][0].groups, placed[0][0].layout),
        timestamp_us=last,
        original_shape=_original_shape(parts, axes, shape),
        note=_note(first, f"joined from {count} slices along axis {', '.join(map(str, axes))}"),
    )


def _starts(info: SliceInfo, parts: Sequence[TensorRecord]) -> list[tuple[int, ...]] | None:
    """Returns the first index of every slice; an empty list if each holds the whole tensor, None if nothing tells."""
    first = parts[0]
    boxes = [info.box(first.io, first.slot, index) for index in range(info.count)]
    ranges = [box for box in boxes if box is not None]
    fitting = len(ranges) == len(parts) and all(
        tuple(high - low for low, high in box) == part.shape for box, part in zip(ranges, parts, strict=True)
    )
    by_range = [tuple(low for low, _ in box) for box in ranges] if fitting else None
    cut = info.cut(first.io, first.slot)
    axes = [axis for axis, number in enumerate(cut or ()) if number != 1]
    if cut and not axes:
        if len({part.shape for part in parts}) > 1:
            raise ValueError("it is said not to be cut, but its slices differ in shape")
        return []
    if cut and len(axes) == 1:
        by_cut = _starts_along(axes[0], cut, parts)
        if by_range is not None and by_range != by_cut and len(set(by_range)) > 1:
            raise ValueError("its list of cuts and its ranges disagree")
        return by_cut
    if cut and by_range is None:
        raise ValueError(f"it is cut along {len(axes)} axes, and no ranges tell where its slices lie")
    if by_range is not None and len(set(ranges)) == 1:
        return []
    if by_range is None and len(ranges) == len(parts):
        raise ValueError("its ranges are not those of its slices")
    return by_range


def _starts_along(axis: int, cut: Sequence[int], parts: Sequence[TensorRecord]) -> list[tuple[int, ...]]:
    shapes = [_shape(part) for part in parts]
    if cut[axis] != len(parts) or axis >= len(shapes[0]):
        raise ValueError(f"it is cut {cut[axis]} times along axis {axis} into {len(parts)} slices of shape {shapes[0]}")
    starts, at = [], 0
    for shape in shapes:
        if shape[:axis] + shape[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :]:
            raise ValueError(f"its slices do not fit along axis {axis}: {shapes[0]} and {shape}")
        starts.append((0,) * axis + (at,) + (0,) * (len(shape) - axis - 1))
        at += shape[axis]
    return starts


def _box(part: TensorRecord, start: tuple[int, ...]) -> Box:
    return tuple((at, at + size) for at, size in zip(start, _shape(part), strict=True))


def _check_tiling(boxes: Sequence[Box], shape: tuple[int, ...]) -> None:
    """Checks that slices cover the whole once.

    Raises:
        ValueError: two overlap, or something is left over.
    """
    covered = sum(math.prod(high - low for low, high in box) for box in boxes)
    total = math.prod(shape)
    if covered > total or (covered == total and _any_overlap(boxes)):
        raise ValueError("its slices overlap")
    if covered < total:
        raise ValueError(f"its slices leave gaps: they hold {covered} of {total} elements of shape {shape}")


def _any_overlap(boxes: Sequence[Box]) -> bool:
    """Tells whether two boxes share an element: sorted by the axis that is cut most, only neighbours need a look."""
    full = [box for box in boxes if all(high > low for low, high in box)]
    if len(full) < 2 or not full[0]:
        return len(full) > 1
    axis = max(range(len(full[0])), key=lambda one: len({box[one] for box in full}))
    full.sort(key=lambda box: box[axis])
    for number, one in enumerate(full):
        for other in full[number + 1 :]:
            if other[axis][0] >= one[axis][1]:
                break
            if all(a[0] < b[1] and b[0] < a[1] for a, b in zip(one, other, strict=True)):
                return True
    return False


def _original_shape(
    parts: Sequence[TensorRecord], axes: Sequence[int], whole: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Original shape of the whole: what every slice states if a slice is too small for it, else the sum along axis 0.

    None where neither is certain: in a private layout the cut axis need not be the same axis of the original.
    """
    shapes = [part.original_shape for part in parts if part.original_shape is not None]
    if len(shapes) != len(parts):
        return None
    largest = max(math.prod(_shape(part)) for part in parts)
    if len(set(shapes)) == 1 and largest < math.prod(shapes[0]) <= math.prod(whole):
        return shapes[0]
    pairs = zip(shapes, parts, strict=True)
    same = all(shape[:1] == _shape(part)[:1] and shape[1:] == shapes[0][1:] for shape, part in pairs)
    return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if same and axes == [0] else None


def _note(record: TensorRecord, text: str) -> str:
    return "; ".join(filter(None, (text, record.note)))


def _shape(record: TensorRecord) -> tuple[int, ...]:
    return record.shape or ()

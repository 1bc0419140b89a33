"""What the header of a device dump file says of an operator that ran in slices (FFTS+, L1 and L2 fusion).

A header attribute holds JSON text: ``threadMode`` (true: threads that the device made, told apart by the thread number
of the file name; false: ops ``..._lxslice<N>`` of the graph), ``slice_instance_num``, ``outputCutList`` and
``inputCutList`` (number of cuts of each axis of each tensor), ``output_tensor_slice`` and ``input_tensor_slice`` (per
thread, tensor and axis ``lower`` and ``higher``, in the stored layout).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dumpers.formats.dump_names import DumpName
from dumpers.records import Io

Box = tuple[tuple[int, int], ...]
"""One slice of a tensor: (lower, higher) of each axis."""

_SLICE_IN_NAME: Final = re.compile(r"_lxslice(\d{1,6})(?=\Z|_)")
_SUB_GRAPH: Final = re.compile(r"(?:\A|[/_])sgt_graph_\d{1,6}[/_](?=.)")
_MAX_SLICES: Final = 1024
_THREAD_FIELD: Final = 2
"""Of the numbers behind the time stamp: task type, context, thread, device."""


@dataclass(frozen=True)
class SliceInfo:
    """What a header says of the cuts.

    Attributes:
        threads: Whether the slices are threads of one op; otherwise they are ops ``..._lxslice<N>``.
        count: Number of slices.
        index: Which one this file is, from 0; None if neither name tells.
        cuts: Number of cuts by side, tensor and axis, where the header has them.
        boxes: Ranges by side, slice and tensor, where the header has them.
    """

    threads: bool
    count: int
    index: int | None
    cuts: Mapping[Io, tuple[tuple[int, ...], ...]]
    boxes: Mapping[Io, tuple[tuple[Box, ...], ...]]

    def box(self, io: Io, slot: int, index: int | None = None) -> Box | None:
        """Returns the range of one tensor in one slice (in this one by default), None if the header has none."""
        index = self.index if index is None else index
        boxes = self.boxes.get(io, ())
        if index is None or len(boxes) != self.count or slot >= len(boxes[index]):
            return None
        return boxes[index][slot]

    def cut(self, io: Io, slot: int) -> tuple[int, ...] | None:
        """Returns the number of cuts of each axis of a tensor, None if the header does not tell."""
        cuts = self.cuts.get(io, ())
        return cuts[slot] if slot < len(cuts) else None


def slice_info(attrs: Mapping[str, str], op: str, name: DumpName | None) -> SliceInfo | None:
    """Returns the cuts of a file, None for an op that was not cut.

    Args:
        attrs: Header attributes; the one that has the keys is found by them.
        op: Name from the header, which may end in ``_lxslice<N>``.
        name: Fields of the file name.

    Raises:
        ValueError: an attribute speaks of slices and makes no sense.
    """
    for text in attrs.values():
        if "slice_instance_num" in text and "threadMode" in text:
            try:
                facts = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError("its slice attribute is no JSON") from error
            if isinstance(facts, dict):
                return _info(facts, op, name)
    return None


def _info(facts: Mapping[str, object], op: str, name: DumpName | None) -> SliceInfo | None:
    count = facts.get("slice_instance_num")
    if not isinstance(count, int) or not 0 <= count <= _MAX_SLICES:
        raise ValueError(f"its slice attribute has slice_instance_num {str(count)[:20]}")
    if count < 2:
        return None
    threads = bool(facts.get("threadMode"))
    index: int | None = None
    if threads:
        index = name.extra[_THREAD_FIELD] if name and len(name.extra) > _THREAD_FIELD else None
    else:
        found = _SLICE_IN_NAME.search(name.op_name if name else "") or _SLICE_IN_NAME.search(op)
        index = int(found[1]) if found else None
    if index is not None and index >= count:
        raise ValueError(f"is slice {index}, its header knows of {count} slices, 0 to {count - 1}")
    sides: tuple[Io, Io] = ("input", "output")
    return SliceInfo(
        threads,
        count,
        index,
        {io: _cuts(facts.get(f"{io}CutList")) for io in sides},
        {io: _boxes(facts.get(f"{io}_tensor_slice")) for io in sides},
    )


def _cuts(value: object) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(_number(cut) for cut in _list(tensor)) for tensor in _list(value))


def _boxes(value: object) -> tuple[tuple[Box, ...], ...]:
    return tuple(tuple(tuple(_range(axis) for axis in _list(box)) for box in _list(thread)) for thread in _list(value))


def _range(value: object) -> tuple[int, int]:
    if not isinstance(value, dict):
        raise ValueError("its slice attribute has a range that is none")
    low, high = _number(value.get("lower")), _number(value.get("higher"))
    if not 0 <= low <= high:
        raise ValueError(f"its slice attribute has the range {low} to {high}")
    return low, high


def _number(value: object) -> int:
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("its slice attribute has a number that is none")
    return value


def _list(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("its slice attribute has something else where a list belongs")
    return value


def without_slice(name: str) -> str:
    """Returns the name of the op that ``..._lxslice<N>`` is a slice of."""
    return _SLICE_IN_NAME.sub("", name)


def without_sub_graph(name: str) -> str:
    """Returns an op's name without the ``..._sgt_graph_<n>_`` that the cutting into threads put in front of it."""
    last = 0
    for found in _SUB_GRAPH.finditer(name):
        last = found.end()
    return name[last:]


def as_slice(
    info: SliceInfo | None, io: Io, slot: int, shape: tuple[int, ...], fits: Callable[[int], bool]
) -> tuple[int, ...]:
    """Returns the shape of what one thread's file holds: its header may state that of the whole tensor.

    Args:
        info: What the header says of the cuts, None for an op that was not cut.
        io: Side of the tensor.
        slot: Its position.
        shape: As the header states it.
        fits: Whether a number of elements fits into the tensor's bytes.
    """
    box = info.box(io, slot) if info is not None and info.threads else None
    if box is None:
        return shape
    sliced = tuple(high - low for low, high in box)
    count = math.prod(sliced)
    return sliced if count == math.prod(shape) or (not fits(math.prod(shape)) and fits(count)) else shape

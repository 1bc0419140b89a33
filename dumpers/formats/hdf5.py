"""HDF5 files of the old PyTorch dump tools, and others of numeric datasets.

The dump of the 2021 PyTorch adapter has ``/<op type>/<call>/<input|output>/<argument>``, a list argument one level more
(``<argument>/<argument>_<i>``). Half precision was saved as float32 and bool and uint8 as int8; the attributes
``DataType``, ``FormatType`` and ``Stride`` tell what the tensor was in the run.

Nothing is followed that leads out of the file: external and soft links, external storage and virtual datasets are named
as problems. Datasets are listed by their headers; compressed ones that claim to swell beyond reason are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.enums import FORMATS
from dumpers.formats.raw import bad_shape, element_count, regular_only
from dumpers.formats.walk import natural
from dumpers.formats.zip_members import shown_name
from dumpers.records import Dump, Io, Problem, TensorRecord

if TYPE_CHECKING:
    import h5py
    from numpy.typing import NDArray

_MOST_DEPTH: Final = 32
_MOST_OBJECTS: Final = 1 << 20
_SWELL: Final = 1000
_SWELL_FROM: Final = 64 << 20
"""A dataset of this many bytes and more must not claim over ``_SWELL`` times the bytes that the file stores for it."""

_SORTED: Final = 4000
"""Characters of a name that decide about its place; Python refuses to count beyond 4300 digits."""

_NO_NUMBERS: Final = "holds no plain numbers"
_NO_SHAPE: Final = "is empty (no shape)"
_SLOT: Final = re.compile(r"(?:.*_)?(\d{1,6})")
_IO: Final = re.compile(r"(?:grads?_|gradient_)?(input|output)s?(?:_grads?)?(?:_\d{1,6})?")
_GRADIENT: Final = re.compile(r"grad(?:s|ients?)?|.*_grads?|grads?_.*")

_RUN_DTYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
}  # fmt: skip
"""What the ``DataType`` attribute of the old adapter says."""


@dataclass(frozen=True)
class Hdf5Source:
    """One dataset of an HDF5 file.

    Attributes:
        path: The file.
        name: Path of the dataset in it.
        dtype, shape: As listed; anything else later is an error.
    """

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]

    def load(self) -> NDArray[np.generic]:
        """Returns the array, native and row-major.

        Raises:
            DataError: the file vanished or changed, or the data are damaged or packed in a way that is not known here.
        """
        where = f"{self.path}: {shown_name(self.name.lstrip('/'))}"
        with _open(self.path) as file:
            try:
                dataset = _hard_dataset(file, self.name)
                if reason := _unreadable(dataset, self.path.stat().st_size):
                    raise DataError(f"{where}: {reason}")
                array = np.asarray(dataset[()])
            except (OSError, KeyError, ValueError, RuntimeError, TypeError, MemoryError) as error:
                raise DataError(f"{where}: cannot be read: {_line(error)}") from error
        if array.shape != self.shape or array.dtype.newbyteorder("=").name != self.dtype:
            raise DataError(f"{where}: is {array.dtype} {array.shape} now, was {self.dtype} {self.shape} when listed")
        native = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(self.shape)
        native.flags.writeable = False
        return native


@dataclass
class _Walk:
    """What was found in one file."""

    path: Path
    size: int
    records: list[TensorRecord] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def problem(self, name: str, reason: str) -> None:
        self.problems.append(Problem(self.path, f"{shown_name(name.lstrip('/')) or '/'}: {reason}"))


def read_hdf5(path: Path) -> Dump:
    """Lists the datasets of an HDF5 file: one record each, ops in the order of their call numbers.

    Where the path of a dataset has an ``input`` or ``output`` part, ``op`` is what stands before it, else the whole
    path; ``grad`` stays in the op, so that gradients are never taken for values. ``slot`` is the number at the end of
    the dataset's name if that tells all values of an op apart, else the place in natural order. Datasets without
    numbers (text, references, structures) are listed without value.

    Raises:
        DataError: no such file, no HDF5 file, or one that was cut short.
    """
    path = Path(path)
    with _open(path) as file:
        walk = _Walk(path, path.stat().st_size)
        try:
            for name, dataset in _datasets(file, walk):
                try:
                    record = _record(walk, name, dataset)
                    number = _SLOT.fullmatch(name.rpartition("/")[2])
                    walk.records.append(record)
                    walk.numbers.append(int(number[1]) if number else None)
                except (OSError, KeyError, ValueError, RuntimeError, TypeError, OverflowError) as error:
                    walk.problem(name, f"cannot be read: {_line(error)}")
        except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
            walk.problem("/", f"cannot be listed to its end: {_line(error)}")
    order = sorted(range(len(walk.records)), key=lambda at: (_call(walk.records[at].op), walk.records[at].io, at))
    records = _with_slots([walk.records[at] for at in order], [walk.numbers[at] for at in order])
    return Dump(path, tuple(sorted(records, key=lambda r: (_call(r.op), r.io, r.slot))), tuple(walk.problems))


def _open(path: Path) -> h5py.File:
    import h5py

    try:
        with open(path, "rb", opener=regular_only) as file:  # h5py says a missing file in three lines
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise DataError(f"{path}: cannot be opened as HDF5: {error.strerror or error}") from error
    try:
        return h5py.File(path, "r", locking=False)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, MemoryError) as error:
        raise DataError(f"{path}: cannot be opened as HDF5: {_line(error)}; the file ends at byte {size}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _datasets(file: h5py.File, walk: _Walk) -> Iterator[tuple[str, h5py.Dataset]]:
    """Walks over hard links only; an object that several links make reachable comes once."""
    import h5py

    walk.seen.add(h5py.h5o.get_info(file.id).addr)
    pending: list[tuple[str, h5py.h5g.GroupID]] = [("", h5py.h5g.open(file.id, b"/"))]
    while pending:
        prefix, group = pending.pop()
        if prefix.count("/") > _MOST_DEPTH or len(walk.seen) > _MOST_OBJECTS:
            walk.problem(prefix, f"left out: deeper than {_MOST_DEPTH} groups, or more than {_MOST_OBJECTS} objects")
            continue
        names: list[bytes] = []
        group.links.iterate(names.append)
        groups: list[tuple[str, h5py.h5g.GroupID]] = []
        for name, key in sorted(((_text(key), key) for key in names), key=lambda pair: natural(pair[0][:_SORTED])):
            full = f"{prefix}/{name}"
            item = _once(group, key, full, walk)
            if isinstance(item, h5py.h5d.DatasetID):
                yield full, h5py.Dataset(item)
            elif isinstance(item, h5py.h5g.GroupID):
                groups.append((full, item))
        pending.extend(reversed(groups))


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _once(group: h5py.h5g.GroupID, key: bytes, full: str, walk: _Walk) -> object:
    """Opens what a hard link leads to, None if that has been met; other links become problems."""
    import h5py

    try:
        kind = group.links.get_info(key).type
        if kind != h5py.h5l.TYPE_HARD:
            walk.problem(full, f"{_target(group, key, kind)}; it is not followed")
            return None
        item = h5py.h5o.open(group, key)
        address = h5py.h5o.get_info(item).addr
    except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
        walk.problem(full, f"cannot be read: {_line(error)}")
        return None
    if address in walk.seen:
        return None
    walk.seen.add(address)
    return cast("object", item)


def _target(group: h5py.h5g.GroupID, key: bytes, kind: int) -> str:
    import h5py

    if kind == h5py.h5l.TYPE_EXTERNAL:
        return f"leads to another file ({shown_name(_text(group.links.get_val(key)[0])):.200})"
    if kind == h5py.h5l.TYPE_SOFT:
        return f"is a soft link ({shown_name(_text(group.links.get_val(key))):.200})"
    return f"is a link of kind {kind}"


def _hard_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Returns a dataset over hard links only, as it was listed."""
    import h5py

    item: object = h5py.h5g.open(file.id, b"/")
    for part in name.strip("/").split("/"):
        key = part.encode("utf-8", "surrogateescape")
        if (
            not isinstance(item, h5py.h5g.GroupID)
            or not item.links.exists(key)
            or item.links.get_info(key).type != h5py.h5l.TYPE_HARD
        ):
            raise KeyError(f"{shown_name(part)} is no object of this file any more")
        item = h5py.h5o.open(item, key)
    if not isinstance(item, h5py.h5d.DatasetID):
        raise KeyError("is no dataset any more")
    return h5py.Dataset(item)


def _unreadable(dataset: h5py.Dataset, file_size: int) -> str:
    """Says why a dataset must not be read, empty if it may; nothing of its data is touched."""
    plan = dataset.id.get_create_plist()
    if plan.get_external_count():
        return "its data lie in another file; it is not followed"
    if dataset.is_virtual:
        return "is put together from other datasets (virtual); they are not followed"
    if dataset.shape is None:
        return _NO_SHAPE
    if dataset.dtype.kind not in "biufc" or dataset.dtype.subdtype is not None:
        return _NO_NUMBERS
    if reason := bad_shape(dataset.shape):
        return f"{reason}; the file is damaged"
    claimed = element_count(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    offset = dataset.id.get_offset()
    if stored > file_size or (offset is not None and offset + claimed > file_size):
        return f"claims {max(stored, claimed)} bytes of a file of {file_size}; it is damaged or cut short"
    if claimed > _SWELL_FROM and claimed > _SWELL * max(stored, 1):
        return (
            f"claims {claimed} bytes and stores {stored}, over {_SWELL} times less; if that is meant, "
            "unpack it first (h5repack -f NONE)"
        )
    return ""


def _record(walk: _Walk, name: str, dataset: h5py.Dataset) -> TensorRecord:
    op, io, value = _place(name)
    notes = [shown_name(value)] if value and not value.isdigit() else []
    reason = _unreadable(dataset, walk.size)
    dtype = _dtype(dataset)
    if reason:
        notes.append(f"no value: {_kind(dataset) if reason == _NO_NUMBERS else reason}")
        if reason not in (_NO_NUMBERS, _NO_SHAPE):
            walk.problem(name, reason)
    run_dtype = _RUN_DTYPES.get(_number(dataset, "DataType"), dtype)
    if run_dtype != dtype:
        notes.append(f"was {run_dtype} in the run, saved as {dtype}")
    if strides := _odd_strides(dataset):
        notes.append(f"had strides {strides} in the run, its values may stand in the order of storage")
    layout = FORMATS.get(_number(dataset, "FormatType"), "")
    return TensorRecord(
        op=shown_name(op),
        op_type=parts[0] if len(parts := op.split("/")) > 1 and parts[1].isdigit() else "",
        io=io,
        slot=0,
        dtype=dtype,
        shape=dataset.shape,
        source=None if reason else Hdf5Source(walk.path, name, dtype, dataset.shape),
        note="; ".join(filter(None, (*notes, f"{layout} on the device" if layout not in ("", "NCHW", "ND") else ""))),
    )


def _place(name: str) -> tuple[str, Io, str]:
    """Splits ``/Add/3/input/self`` into op ``Add/3``, direction and the name of the value, empty if it has none."""
    parts = name.strip("/").split("/")
    for number, part in enumerate(parts):
        if match := _IO.fullmatch(part.lower()):
            before = parts[:number] or parts[number + 1 :] or [part]
            gradient = any(_GRADIENT.fullmatch(p.lower()) for p in parts[: number + 1])
            op = "/".join([*before, "grad"] if gradient and "grad" not in before else before)
            return op, "input" if match[1] == "input" else "output", "/".join(parts[number + 1 :] or [part])
    for number, part in enumerate(parts[:-1]):
        if _GRADIENT.fullmatch(part.lower()):
            return "/".join(parts[: number + 1]), "output", "/".join(parts[number + 1 :])
    return "/".join(parts), "output", ""


def _with_slots(records: list[TensorRecord], numbers: list[int | None]) -> Iterator[TensorRecord]:
    """Gives records their slots: the numbers in their names if each has another one, else their places in order."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, record in enumerate(records):
        groups.setdefault((record.op, record.io), []).append(place)
    slots: dict[int, int] = {}
    for places in groups.values():
        found = [number for place in places if (number := numbers[place]) is not None]
        distinct = len(set(found)) == len(places)
        slots.update(zip(places, found if distinct else range(len(places)), strict=True))
    return (replace(record, slot=slots[place]) for place, record in enumerate(records))


def _call(op: str) -> tuple[int, tuple[tuple[int, int, str], ...]]:
    """Sort key: the number of the call, then the name."""
    number = next((int(part) for part in op.split("/") if part.isascii() and part.isdigit() and len(part) < 10), -1)
    return number, natural(op[:_SORTED])


def _dtype(dataset: h5py.Dataset) -> str:
    dtype = dataset.dtype
    if dtype.kind in "biufc" and dtype.subdtype is None:
        return str(dtype.newbyteorder("=").name)
    return "string" if dtype.kind in "SU" or _is_text(dtype) else "undefined"


def _is_text(dtype: np.dtype[np.generic]) -> bool:
    import h5py

    return h5py.check_string_dtype(dtype) is not None


def _kind(dataset: h5py.Dataset) -> str:
    dtype = dataset.dtype
    if _is_text(dtype) or dtype.kind in "SU":
        return "text"
    if dtype.names is not None:
        return f"structure of {len(dtype.names)} fields"
    return "references or lists of varying length" if dtype.kind == "O" else f"type {dtype}"


def _number(dataset: h5py.Dataset, attribute: str) -> int:
    """A number from an attribute, -1 if there is none; an attribute of any other kind is not read."""
    if attribute not in dataset.attrs:
        return -1
    found = dataset.attrs.get_id(attribute)
    if found.shape != () or found.dtype.kind not in "iu":
        return -1
    return int(dataset.attrs[attribute])


def _odd_strides(dataset: h5py.Dataset) -> tuple[int, ...]:
    """The strides that the old adapter recorded, if they are not the usual ones: it wrote such storages as they lay."""
    shape = dataset.shape
    if "Stride" not in dataset.attrs or not shape or 0 in shape:
        return ()
    found = dataset.attrs.get_id("Stride")
    if found.shape != (len(shape),) or found.dtype.kind not in "iu":
        return ()
    strides = tuple(int(step) for step in dataset.attrs["Stride"])
    usual = [element_count(shape[axis + 1 :]) for axis in range(len(shape))]
    odd = any(dim > 1 and step != right for dim, step, right in zip(shape, strides, usual, strict=True))
    return strides if odd else ()

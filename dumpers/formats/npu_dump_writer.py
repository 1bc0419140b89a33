"""Writing device dump files, byte for byte as a device lays them out, for the emulation and for tests.

Current form of :mod:`dumpers.formats.npu_header`: length, header, then inputs, outputs, buffers and workspaces, sizes
padded to 32 bytes and 32 more. The same input gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from dumpers.formats.atomic import atomic_file
from dumpers.formats.dump_names import MAPPING_FILE, read_mapping
from dumpers.formats.enums import DUMP_NUMBER_OF, FORMAT_NUMBER_OF
from dumpers.formats.lowfloat import decoded_dtype, encode
from dumpers.formats.schema import Message, dump_data
from dumpers.names import MAX_FILE_NAME_BYTES, flatten

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAD: Final = b"\xee"
"""Filler of our own padding: visible at once where a reader takes it for data."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor to write, with what a plain array does not tell.

    Attributes:
        array: The values, in stored layout (:func:`dumpers.formats.layouts.from_original` makes one).
        dtype: Element type on the device (``hifloat8``, ``int4``); that of the array if None.
        format: Stored layout.
        original_shape: Shape before the layout; that of the array if None.
        groups: Group count of a grouped convolution's filter.
        address: Device address, 0 for none.
        size: Bytes in the payload; padded as on a device if None, 0 for a tensor that was not written.
        shape: Shape in the header if it is not the array's (packed bits may count bytes; a thread states the whole).
    """

    array: NDArray[np.generic]
    dtype: str | None = None
    format: str = "ND"
    original_shape: tuple[int, ...] | None = None
    groups: int = 1
    address: int = 0
    size: int | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class HeaderExtras:
    """What a dump file holds beside its tensors.

    Attributes:
        attrs: Header attributes (JSON text for operators cut into slices).
        buffers: Contents of L1 buffers.
        spaces: Contents of workspaces.
        dfx_message: Text of the newest devices.
    """

    attrs: Mapping[str, str] = field(default_factory=dict)
    buffers: Sequence[bytes] = ()
    spaces: Sequence[bytes] = ()
    dfx_message: str = ""


def write_npu_dump(
    path: Path,
    *,
    op_name: str,
    inputs: Sequence[NDArray[np.generic] | TensorSpec],
    outputs: Sequence[NDArray[np.generic] | TensorSpec],
    dump_time_us: int,
    extras: HeaderExtras | None = None,
) -> None:
    """Writes a dump file as a device does, sizes padded; whole or not at all.

    Args:
        path: The file; its name is the caller's business (:func:`dump_file_name`, :func:`short_file_name`).
        op_name: Full name for the header.
        inputs: Arrays in slot order (format ND), or more exactly as :class:`TensorSpec`.
        outputs: The same for what the op wrote.
        dump_time_us: Time for the header.
        extras: Attributes, buffers and workspaces.

    Raises:
        ValueError: an array's type does not exist on the device (text, objects) or cannot be written, a format that
            does not exist, a size that is smaller than the elements, values that do not fit into a packed type.
        OSError: as for :func:`dumpers.formats.atomic.atomic_file`.
    """
    extras = extras or HeaderExtras()
    header = dump_data()
    header.version = b"2.0"
    header.dump_time = dump_time_us
    header.op_name = _raw_text(op_name)
    tensors: list[_Stored] = []
    for descriptors, values in ((header.input, inputs), (header.output, outputs)):
        for value in values:
            tensors.append(_Stored(value if isinstance(value, TensorSpec) else TensorSpec(value)))
            tensors[-1].describe(descriptors.add())
    _add_extras(header, extras)
    raw = header.SerializeToString(deterministic=True)
    with atomic_file(Path(path)) as file:
        file.write(len(raw).to_bytes(8, "little"))
        file.write(raw)
        for tensor in tensors:
            tensor.write(file)
        for block in (*extras.buffers, *extras.spaces):
            file.write(block)


def _add_extras(header: Message, extras: HeaderExtras) -> None:
    for name in sorted(extras.attrs):
        header.attr.add(name=_raw_text(name), value=_raw_text(extras.attrs[name]))
    for block in extras.buffers:
        header.buffer.add(buffer_type=0, size=len(block))
    for block in extras.spaces:
        header.space.add(type=0, size=len(block))
    header.dfx_message = _raw_text(extras.dfx_message)


class _Stored:
    """A tensor with its number of bytes; a plain array's own memory is what gets written, never a copy of it."""

    def __init__(self, spec: TensorSpec) -> None:
        self._spec = spec
        dtype = spec.array.dtype.name if spec.dtype is None else spec.dtype
        number = DUMP_NUMBER_OF.get(dtype)
        if number is None:
            raise ValueError(f"a device has no type for {dtype if spec.dtype else spec.array.dtype}")
        if spec.format not in FORMAT_NUMBER_OF:
            raise ValueError(f"a device has no format {spec.format}")
        self._number = number
        plain = dtype == spec.array.dtype.name and decoded_dtype(dtype) == dtype
        self._bytes = None if plain else _encoded(spec.array, dtype)
        self._count = spec.array.nbytes if self._bytes is None else self._bytes.nbytes
        self._size = _natural_size(spec, dtype, self._count) if spec.size is None else spec.size
        if 0 < self._size < self._count:
            raise ValueError(f"{self._count} bytes do not fit into a size of {self._size}")

    def describe(self, descriptor: Message) -> None:
        """Fills the header's entry."""
        spec = self._spec
        shape = spec.array.shape if spec.shape is None else spec.shape
        descriptor.data_type = self._number
        descriptor.format = FORMAT_NUMBER_OF[spec.format]
        descriptor.shape.SetInParent()
        descriptor.shape.dim.extend(shape)
        descriptor.original_shape.SetInParent()
        descriptor.original_shape.dim.extend(shape if spec.original_shape is None else spec.original_shape)
        descriptor.size = self._size
        descriptor.address = spec.address
        if spec.groups > 1:
            descriptor.sub_format = spec.groups

    def write(self, file: BinaryIO) -> None:
        """Writes the bytes and the padding."""
        if self._size == 0:
            return
        if self._bytes is not None:
            file.write(self._bytes.data)
        else:
            array = self._spec.array
            native = array if array.dtype.byteorder not in (">", "!") else array.astype(array.dtype.newbyteorder("<"))
            file.write(np.ascontiguousarray(native).reshape(-1).view(np.uint8).data)
        file.write(_PAD * (self._size - self._count))


def _natural_size(spec: TensorSpec, dtype: str, count: int) -> int:
    """Returns the size of a tensor: padded, and never one that lets a reader take a count of bits for one of bytes."""
    size = padded_size(count)
    bits = spec.array.size
    return size + 32 if dtype == "uint1" and spec.shape is None and size in (bits, padded_size(bits)) else size


def _encoded(array: NDArray[np.generic], dtype: str) -> NDArray[np.uint8]:
    if array.dtype.name == dtype:  # a packed type of ml_dtypes, which has a byte for each element
        array = array.astype(decoded_dtype(dtype))
    return encode(array, dtype)


def padded_size(size: int) -> int:
    """Returns the size that a device gives to so many bytes: rounded up to 32, and 32 more."""
    return -(-size // 32) * 32 + 32 if size else 0


def dump_file_name(op_type: str, op_name: str, task_id: int, stream_id: int, timestamp_us: int) -> str:
    """Returns ``<type>.<flat name>.<task>.<stream>.<us>``, the current layout; it may be too long for a file system.

    :func:`short_file_name` makes one that is not.
    """
    return f"{op_type}.{flatten(op_name)}.{task_id}.{stream_id}.{timestamp_us}"


def short_file_name(folder: Path, name: str) -> str:
    """Returns the name under which a dump file goes into a folder: its own, or digits where that is too long.

    The folder's ``mapping.csv`` gets a line then, before any file has the short name; the same name gets the same
    digits again.

    Raises:
        DataError: there is a mapping that cannot be read.
        OSError: it cannot be written.
    """
    if len(_raw_text(name)) <= MAX_FILE_NAME_BYTES:
        return name
    mapping = dict(read_mapping(folder))
    number = zlib.crc32(_raw_text(name))
    while mapping.setdefault(str(number), name) != name:
        number += 1
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\n").writerows(sorted(mapping.items()))
    with atomic_file(folder / MAPPING_FILE) as file:
        file.write(_raw_text(lines.getvalue()))
    return str(number)


def _raw_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

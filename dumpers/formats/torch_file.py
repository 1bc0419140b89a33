"""PyTorch tensor files (``.pt``, ``.pth``, since 1.6 a zip file), read without PyTorch and without running anything.

Such a file holds, below one folder name: ``data.pkl`` (what there is, see :mod:`dumpers.formats.torch_pickle`), the
storages ``data/<key>`` as plain uncompressed bytes, ``version``, and in newer files ``byteorder``. A tensor is a window
into a storage: offset, sizes and strides. Since storages are not compressed, a tensor is read straight from its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dumpers.dtypes import numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.raw import bad_shape, element_count, regular_only
from dumpers.formats.torch_pickle import TorchStorage, TorchTensor, Value, interpret
from dumpers.formats.zip_members import ZipMember, read_members, shown_name
from dumpers.records import Dump, Problem, TensorRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

OLD_MARK: Final = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""A file of before 1.6 starts with this number as a pickle."""

_PROGRAM: Final = "data.pkl"
_MOST_PROGRAM: Final = 64 << 20
_MOST_DEPTH: Final = 64
_VALUES_PER_BYTE: Final = 4
"""A small program may name the same list again and again; one without such tricks has a value a byte at the most."""


_STRETCH: Final = 1024
_STRETCH_FROM: Final = 64 << 20
"""A view that repeats elements (stride 0) is not made from this size on, if it is so many times its storage."""

_STORAGE_DTYPES: Final[Mapping[str, str]] = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_READ: Final = frozenset(
    {*_STORAGE_DTYPES.values(), "uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"}
)


_WALKED: Final = (TorchTensor, dict, list, tuple)


@dataclass(frozen=True)
class TorchSource:
    """One tensor of a PyTorch file: a window into a storage.

    Attributes:
        path: The file.
        offset: Of the storage's first byte in the file.
        dtype: Of the elements.
        shape: Of the tensor.
        strides: Steps in elements, none negative.
        first: Number of the first element in the storage.
        big_endian: Whether the file was written on a big-endian machine.
    """

    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int = 0
    big_endian: bool = False

    def load(self) -> NDArray[np.generic]:
        """Returns the array, row-major; only the part of the storage that the tensor touches is read.

        Raises:
            DataError: the file vanished or became shorter.
        """
        stored, itemsize = _stored_dtype(self.dtype), _itemsize(self.dtype)
        count = _extent(self.shape, self.strides)
        try:
            raw = np.fromfile(self.path, np.uint8, count * itemsize, offset=self.offset + self.first * itemsize)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if raw.size != count * itemsize:
            raise DataError(
                f"{self.path}: ends after {raw.size} of {count * itemsize} bytes of a tensor; copy it again"
            )
        flat = raw.view(stored.newbyteorder(">") if self.big_endian and itemsize > 1 else stored)
        steps = tuple(step * itemsize for step in self.strides)
        view = np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)
        array = np.ascontiguousarray(view).reshape(self.shape)
        array = _understood(array, self.dtype)
        array.flags.writeable = False
        return array


def _stored_dtype(dtype: str) -> np.dtype[np.generic]:
    """As what the bytes are moved about: bfloat16 as numbers, since NumPy swaps only those."""
    if dtype == "bool" or dtype.startswith("float8"):
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if dtype == "bfloat16" else numpy_dtype(dtype)


def _itemsize(dtype: str) -> int:
    return _stored_dtype(dtype).itemsize


def _understood(array: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if dtype == "bool":
        return cast("NDArray[np.generic]", array != 0)
    if dtype == "float8_e8m0fnu":
        from dumpers.formats.lowfloat import decode

        return decode(array.reshape(-1).view(np.uint8), dtype, array.size).reshape(array.shape)
    return array.view(numpy_dtype(dtype))


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements of the storage from the tensor's first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True))


@dataclass(frozen=True)
class TorchFileSource:
    """The only tensor of a PyTorch file; the file is opened and understood when it is loaded.

    Attributes:
        path: The file.
        dtype, shape: What another file says of it; anything else is an error.
    """

    path: Path
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def load(self) -> NDArray[np.generic]:
        """Returns the array.

        Raises:
            DataError: see :func:`read_torch_file`; or it holds more than one tensor, or not what was promised.
        """
        dump = read_torch_file(self.path)
        if len(dump) != 1:
            raise DataError(f"{self.path}: holds {len(dump)} tensors instead of one")
        record = dump.records[0]
        if self.shape is not None and record.shape != self.shape:
            raise DataError(f"{self.path}: has shape {record.shape}, its index says {self.shape}")
        if self.dtype is not None and record.dtype != self.dtype:
            raise DataError(f"{self.path}: holds {record.dtype}, its index says {self.dtype}")
        return record.load()


def read_torch_file(path: Path) -> Dump:
    """Lists the tensors of a PyTorch file, in the order in which the file names them.

    A tensor alone has the file's name as its op; one in a dict the keys joined by ``.``; one in a list the op of the
    list, and its place as slot. Values that are no tensors are left out.

    Raises:
        DataError: no such file, one of before PyTorch 1.6, one that holds Python objects, or a damaged one.
    """
    path = Path(path)
    archive = _Archive.open(path)
    try:
        program = archive.program()
        tensors = _tensors(interpret(program), path.stem, 1000 + _VALUES_PER_BYTE * len(program))
        records = tuple(_record(archive, *item) for item in tensors)
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    return Dump(path, records, tuple(archive.problems))


@dataclass
class _Archive:
    path: Path
    members: Mapping[str, ZipMember]
    prefix: str
    problems: list[Problem] = field(default_factory=list)
    big_endian: bool = False

    @classmethod
    def open(cls, path: Path) -> _Archive:
        try:
            with open(path, "rb", opener=regular_only) as file:
                head = file.read(len(OLD_MARK))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        if head == OLD_MARK:
            raise DataError(
                f"{path}: was written by a PyTorch before 1.6, which is not read; save it again with a newer one"
            )
        problems: list[Problem] = []
        members: dict[str, ZipMember] = {}
        for member in read_members(path):
            if isinstance(member, str):
                problems.append(Problem(path, member))
            elif member.name in members:
                raise DataError(f"{path}: member {shown_name(member.name)} occurs twice; the file is damaged")
            else:
                members[member.name] = member
        programs = [name for name in members if name == _PROGRAM or name.endswith("/" + _PROGRAM)]
        if len(programs) != 1:
            raise DataError(f"{path}: is no PyTorch file: it holds {len(programs)} members data.pkl instead of one")
        archive = cls(path, members, programs[0].removesuffix(_PROGRAM), problems)
        archive.check_names()
        archive.big_endian = archive.small_text("byteorder") == "big"
        return archive

    def check_names(self) -> None:
        """Names that lead out of a folder occur in no file of PyTorch's; they are told, and nothing is done."""
        for name in self.members:
            if name.startswith("/") or ".." in name.split("/"):
                self.problems.append(Problem(self.path, f"member {shown_name(name)} is named like a path out of here"))

    def program(self) -> bytes:
        member = self.members[self.prefix + _PROGRAM]
        if member.size > _MOST_PROGRAM:
            raise DataError(f"data.pkl has {member.size} bytes, at most {_MOST_PROGRAM} are read")
        with open(self.path, "rb", opener=regular_only) as file:
            return b"".join(member.chunks(file, f"{self.path}: {_PROGRAM}"))

    def small_text(self, name: str) -> str:
        member = self.members.get(self.prefix + name)
        if member is None or member.size > 64:
            return ""
        with open(self.path, "rb", opener=regular_only) as file:
            return b"".join(member.chunks(file, f"{self.path}: {name}")).decode("ascii", "replace").strip()

    def storage(self, storage: TorchStorage, itemsize: int) -> ZipMember:
        """Returns where a storage lies, checked against what the tensor's file says of it."""
        member = self.members.get(f"{self.prefix}data/{storage.key}")
        if member is None:
            raise DataError(f"storage {shown_name(storage.key):.80} is not in the file")
        if member.deflated:
            raise DataError(f"storage {shown_name(storage.key):.80} is compressed, which PyTorch's files never are")
        if storage.count * itemsize > member.size:
            raise DataError(
                f"storage {shown_name(storage.key):.80} has {member.size} bytes instead of {storage.count * itemsize}"
            )
        return member


def _tensors(value: Value, stem: str, most: int) -> Iterator[tuple[str, int, TorchTensor]]:
    """Walks through the containers, over no more values than ``most``."""
    seen = 0
    pending: list[tuple[Value, tuple[str, ...], int]] = [(value, (), 0)]
    while pending:
        item, keys, slot = pending.pop()
        if isinstance(item, TorchTensor):
            yield ".".join(keys) or stem, slot, item
            continue
        inner = list(_inner(item, keys))
        seen += 1 + len(item) if isinstance(item, (dict, list, tuple)) else 1
        if seen > most or len(keys) > _MOST_DEPTH:
            raise DataError(f"holds more than {most} values, or containers deeper than {_MOST_DEPTH}")
        pending.extend(reversed(inner))


def _inner(item: Value, keys: tuple[str, ...]) -> Iterator[tuple[Value, tuple[str, ...], int]]:
    """Yields the tensors and containers in a container, with the keys that lead there and the slot."""
    if isinstance(item, dict):
        for key, part in item.items():
            if isinstance(part, _WALKED):
                yield part, (*keys, str(key)), 0
    elif isinstance(item, (list, tuple)):
        for number, part in enumerate(item):
            if isinstance(part, TorchTensor):
                yield part, keys, number
            elif isinstance(part, _WALKED):
                yield part, (*keys, str(number)), 0


def _record(archive: _Archive, op: str, slot: int, tensor: TorchTensor) -> TensorRecord:
    note, source, dtype = tensor.note, None, "undefined"
    shape = tensor.shape if tensor.storage else None
    if tensor.storage is not None:
        dtype = tensor.dtype or _STORAGE_DTYPES.get(tensor.storage.kind, "undefined")
        if dtype in _READ:
            try:
                source = _source(archive, tensor, tensor.storage, dtype)
            except DataError as error:
                note, shape = str(error), None
                archive.problems.append(Problem(archive.path, f"{op}: {error}"))
        else:
            note = f"elements of type {tensor.dtype or tensor.storage.kind:.40} are not read"
    return TensorRecord(
        op=op,
        op_type="",
        io="output",
        slot=slot,
        dtype="float32" if dtype == "float8_e8m0fnu" else dtype if dtype in _READ else "undefined",
        shape=shape,
        source=source,
        device="tf",
        note=note,
    )


def _source(archive: _Archive, tensor: TorchTensor, storage: TorchStorage, dtype: str) -> TorchSource:
    itemsize = _itemsize(dtype)
    untyped = storage.kind == "UntypedStorage"
    member = archive.storage(storage, 1 if untyped else itemsize)
    count = storage.count // itemsize if untyped else storage.count
    if len(tensor.shape) != len(tensor.strides):
        raise DataError(f"shape {tensor.shape} with {len(tensor.strides)} strides; the file is damaged")
    if reason := bad_shape(tensor.shape):
        raise DataError(f"{reason}; the file is damaged")
    end = tensor.offset + _extent(tensor.shape, tensor.strides)
    if end > count:
        raise DataError(f"reaches to element {end} of a storage of {count}; the file is damaged")
    size = element_count(tensor.shape) * itemsize
    if size > _STRETCH_FROM and size > _STRETCH * member.size:
        raise DataError(f"repeats {member.size} stored bytes up to {size}; it is not made")
    return TorchSource(
        archive.path, member.offset, dtype, tensor.shape, tensor.strides, tensor.offset, archive.big_endian
    )

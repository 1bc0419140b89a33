"""npy files: a reader that trusts nothing in them, and a writer.

The header is checked against the file's size before any memory is taken, pickled objects are refused unread, and raw
two-byte data (how bfloat16 arrives) is given a meaning only by a record or a user.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from dumpers.dtypes import WITHOUT_VALUE, numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.formats.raw import bad_shape, element_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC: Final = b"\x93NUMPY"
_USUAL_HEADER: Final = 256
"""Bytes read at once; enough for nearly every header."""

_MAX_HEADER: Final = 1 << 16
"""Longest header accepted; real ones have about 100 bytes."""


@dataclass(frozen=True)
class NpyHeader:
    """What an npy file says about itself.

    Attributes:
        descr: NumPy's type text, ``<f4``.
        shape: Dimensions.
        fortran: Column-major order.
        offset: Of the first data byte.
    """

    descr: str
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def dtype(self) -> str:
        """Dtype name; ``undefined`` for raw bytes, ``string`` for fixed-width text."""
        return _dtype_name(self.descr)

    @property
    def unknown(self) -> str:
        """Why the data have no type, empty if they have one."""
        if self.dtype != "undefined":
            return ""
        size = np.dtype(self.descr).itemsize
        return f"{ {1: 'one', 2: 'two'}.get(size, size) }-byte data of unknown type"


@dataclass(frozen=True)
class NpySource:
    """The tensor of one npy file. Nothing is read before :meth:`load`.

    Attributes:
        path: The file.
        dtype: What the data are where the file cannot say it (``bfloat16`` in raw two-byte data, or data that the TF2
            dump library labels float16); else None, or the dtype the file must have.
        shape: The shape it must have, None if any.
    """

    path: Path
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def load(self) -> NDArray[np.generic]:
        """Returns the array in native byte order and row-major.

        Raises:
            DataError: no file, no npy, damaged, Python objects, raw data without a dtype, or not what was promised.
        """
        try:
            with open(self.path, "rb") as file:
                header = _read_header(file, self.path)
                target = self._target(header)
                file.seek(header.offset)
                count = element_count(header.shape)
                raw = np.fromfile(file, dtype=np.dtype(header.descr), count=count) if count else np.empty(0, target)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if raw.size != count:
            raise DataError(f"{self.path}: became shorter while it was read")
        native = raw.view(target) if target.itemsize == raw.dtype.itemsize and target != raw.dtype else raw
        if not native.dtype.isnative:
            native = native.astype(native.dtype.newbyteorder("="))
        array = native.reshape(header.shape, order="F" if header.fortran else "C")
        array = np.ascontiguousarray(array).reshape(header.shape)
        array.flags.writeable = False
        return array

    def _target(self, header: NpyHeader) -> np.dtype[np.generic]:
        stored = np.dtype(header.descr)
        if self.shape is not None and self.shape != header.shape:
            raise DataError(f"{self.path}: has shape {header.shape}, its index says {self.shape}")
        if self.dtype is None or self.dtype == header.dtype:
            if header.unknown:
                raise DataError(f"{self.path}: {header.unknown}; say which, for example dtype bfloat16")
            return stored
        if self.dtype in WITHOUT_VALUE:
            raise DataError(f"{self.path}: has dtype {header.dtype}, its index says {self.dtype}")
        try:
            wanted = numpy_dtype(self.dtype)
        except ValueError as error:
            raise DataError(f"{self.path}: {error}") from error
        relabelled = header.dtype == "float16" and self.dtype == "bfloat16"
        if (stored.kind == "V" or relabelled) and wanted.itemsize == stored.itemsize:
            return wanted
        raise DataError(f"{self.path}: holds {header.unknown or header.dtype}, which is not {self.dtype}")


def read_npy_header(path: Path) -> NpyHeader:
    """Reads and checks the header only.

    Raises:
        DataError: no npy file, or its header and its size disagree.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return _read_header(file, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_npy(path: Path, dtype: str | None = None) -> NDArray[np.generic]:
    """Returns the array of an npy file, read-only; see :class:`NpySource`.

    Raises:
        DataError: see :meth:`NpySource.load`.
    """
    return NpySource(Path(path), dtype).load()


def write_npy(path: Path, array: NDArray[np.generic]) -> None:
    """Writes one array, whole or not at all. Types that npy lacks (bfloat16, eight-bit floats) become raw bytes.

    Raises:
        ValueError: the array holds Python objects.
        OSError: as for :func:`dumpers.formats.atomic.atomic_file`.
    """
    if array.dtype.hasobject:
        raise ValueError("an array of Python objects does not go into an npy file")
    if array.dtype.type.__module__ != "numpy":  # a type of ml_dtypes
        array = _as_raw(array)
    with atomic_file(Path(path)) as file:
        np.save(file, array, allow_pickle=False)


def _as_raw(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(array).reshape(array.shape).view(f"V{array.dtype.itemsize}")


def _read_header(file: BinaryIO | FileIO, path: Path) -> NpyHeader:
    size = os.fstat(file.fileno()).st_size
    start = file.read(_USUAL_HEADER)
    if start[:6] != _MAGIC or len(start) < 10:
        raise DataError(f"{path}: is not an npy file (does not start with the npy mark); check the path")
    if start[6] not in (1, 2, 3):
        raise DataError(f"{path}: npy version {start[6]}.{start[7]} is not known")
    begin = 10 if start[6] == 1 else 12
    length = int.from_bytes(start[8:begin], "little")
    offset = begin + length
    if offset > size or length > _MAX_HEADER:
        raise DataError(f"{path}: claims a header of {length} bytes, the file has {size} bytes; it is damaged")
    raw = start[begin:offset]
    if len(raw) < length:
        raw += file.read(length - len(raw))
    try:
        descr, shape, fortran = _parse_header(raw, start[6] == 3)
        header = NpyHeader(descr, shape, fortran, offset)
        _check_claim(header, size)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return header


@functools.lru_cache(maxsize=1024)  # the tensors of a dump have few different headers
def _parse_header(raw: bytes, utf8: bool) -> tuple[str, tuple[int, ...], bool]:
    text = raw.decode("utf-8" if utf8 else "latin-1", "replace").strip()
    text = re.sub(r"(?<=\d)L\b", "", text)  # Python 2 wrote its long integers like this
    try:
        fields = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise DataError(f"npy header cannot be read: {text[:60]!r}; the file is damaged") from error
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise DataError("npy header lacks descr, fortran_order or shape; the file is damaged")
    descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    if not isinstance(descr, str):
        raise DataError("holds a structured type, not a tensor")
    if not isinstance(shape, tuple) or not all(type(dim) is int for dim in shape) or not isinstance(fortran, bool):
        raise DataError(f"npy header with shape {shape!r} and order {fortran!r}; the file is damaged")
    _check_type(descr)
    return descr, shape, fortran


def _check_type(descr: str) -> None:
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError) as error:
        raise DataError(f"unknown npy type {descr!r}") from error
    if dtype.hasobject:
        raise DataError("holds Python objects, not a tensor; it is not opened, since that could run code")
    if dtype.kind not in "biufcVSU" or dtype.itemsize == 0 or dtype.names:
        raise DataError(f"npy type {descr!r} is not that of a tensor")


def _check_claim(header: NpyHeader, size: int) -> None:
    if any(dim < 0 for dim in header.shape):
        raise DataError(f"negative dimension in shape {header.shape}; the file is damaged")
    claimed = element_count(header.shape) * np.dtype(header.descr).itemsize
    if claimed > size - header.offset:
        raise DataError(
            f"header claims {claimed} bytes of data (shape {header.shape}, {header.descr}), "
            f"the file holds {size - header.offset}; it is damaged or cut short"
        )
    if reason := bad_shape(header.shape):
        raise DataError(f"{reason}; the file is damaged")


@functools.lru_cache(maxsize=256)
def _dtype_name(descr: str) -> str:
    kind = np.dtype(descr)
    if kind.kind == "V":
        return "undefined"
    return "string" if kind.kind in "SU" else kind.name

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
from dumpers.formats.raw import bad_shape, element_count, open_descriptor, regular_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dumpers.formats.extent import TensorFile

MAGIC: Final = b"\x93NUMPY"
_USUAL_HEADER: Final = 256
"""Bytes read at once; enough for nearly every header."""

_MAX_HEADER: Final = 1 << 16
"""Longest header accepted; real ones have about 100 bytes."""

_TYPE: Final = re.compile(r"[<>|=]?[A-Za-z]{1,12}\d{0,6}(\[\w{1,9}\])?")
"""Type texts accepted; NumPy itself wraps round at sizes beyond 32 bits, and reads ``f4,f4`` as a structure."""

_USUAL: Final = re.compile(
    rb"\{'descr': '([<>|=]?[A-Za-z]\d{1,6})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19},)?|\d{1,19}(?:, \d{1,19})+)\), \} *\n"
)
"""The header as NumPy writes it, which is read faster than as a Python expression; others take the long way."""

_MAX_DIMS: Final = 64
"""More than any NumPy has; beyond, not even the product is worth taking."""

_MAPPED: Final = 1 << 24
"""Column-major files from this size on are mapped instead of read, so that turning them takes one copy, not two."""


@dataclass(frozen=True)
class NpyHeader:
    """What an npy file says about itself.

    Attributes:
        descr: NumPy's type text, ``<f4``.
        shape: Dimensions.
        fortran: Column-major order.
        offset: Of the first data byte.
        stored: Type of the elements as they lie in the file.
        dtype: Dtype name; ``undefined`` for raw bytes, ``string`` for fixed-width text.
        data_bytes: How many bytes of data the header claims, exactly.
        impossible: Why NumPy could not hold such a shape, empty if it can.
    """

    descr: str
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    stored: np.dtype[np.generic]
    dtype: str
    data_bytes: int
    impossible: str

    @property
    def unknown(self) -> str:
        """Why the data have no type, empty if they have one."""
        if self.dtype != "undefined":
            return ""
        size = self.stored.itemsize
        return f"{ {1: 'one', 2: 'two'}.get(size, size) }-byte data of unknown type"

    def target(self, dtype: str | None, where: str) -> np.dtype[np.generic]:
        """Returns the dtype of the elements as they are to be understood.

        Args:
            dtype: What raw data are (or what data labelled float16 really are), or the dtype they must have.
            where: Of the file, for messages.

        Raises:
            DataError: raw data and nobody says what they are, or another dtype than promised.
        """
        stored = self.stored
        if dtype is None or dtype == self.dtype:
            if self.unknown:
                raise DataError(f"{where}: {self.unknown}; say which, for example dtype bfloat16")
            return stored
        if dtype in WITHOUT_VALUE:
            raise DataError(f"{where}: has dtype {self.dtype}, its index says {dtype}")
        try:
            wanted = numpy_dtype(dtype)
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
        relabelled = self.dtype == "float16" and dtype == "bfloat16"
        if (stored.kind == "V" or relabelled) and wanted.itemsize == stored.itemsize:
            return wanted
        raise DataError(f"{where}: holds {self.unknown or self.dtype}, which is not {dtype}")

    def array(self, raw: NDArray[np.generic], dtype: str | None, where: str) -> NDArray[np.generic]:
        """Returns the tensor, native byte order, row-major and read-only, of its elements in stored order.

        Raises:
            DataError: see :meth:`target`.
        """
        target = self.target(dtype, where)
        stored = self.stored
        array = raw.view(stored).reshape(self.shape, order="F" if self.fortran else "C")
        if not stored.isnative:
            array = array.astype(stored.newbyteorder("="), order="C")
        if target != stored:
            array = array.view(target)
        array = np.ascontiguousarray(array).reshape(self.shape)
        array.flags.writeable = False
        return array


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
            with open(self.path, "rb", opener=regular_only) as file:
                header = _read_header(file, self.path)
                if self.shape is not None and self.shape != header.shape:
                    raise DataError(f"{self.path}: has shape {header.shape}, its index says {self.shape}")
                header.target(self.dtype, str(self.path))
                raw = _raw(file, header)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if raw.size != element_count(header.shape):
            raise DataError(f"{self.path}: became shorter while it was read")
        return header.array(raw, self.dtype, str(self.path))

    def open(self) -> TensorFile | None:
        """Opens the tensor in place; None for text, another byte order, or column-major data that are no vector.

        Raises:
            DataError: as for :meth:`load`.
        """
        from dumpers.formats.extent import TensorFile

        where = str(self.path)
        try:
            fd, size = open_descriptor(self.path)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        try:
            header = npy_header(_reader(fd), size, where)
            if self.shape is not None and self.shape != header.shape:
                raise DataError(f"{self.path}: has shape {header.shape}, its index says {self.shape}")
            dtype = header.target(self.dtype, where)
        except OSError as error:
            os.close(fd)
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        except BaseException:
            os.close(fd)
            raise
        if (
            not header.stored.isnative
            or dtype.kind in "SU"
            or (header.fortran and sum(dim > 1 for dim in header.shape) > 1)
        ):
            os.close(fd)
            return None
        return TensorFile(fd, header.offset, dtype, header.shape, where)


def _reader(fd: int) -> Callable[[int], bytes]:
    """Reads on from the start of a file, whatever its position."""
    at = 0

    def read(size: int) -> bytes:
        nonlocal at
        got = os.pread(fd, size, at)
        at += len(got)
        return got

    return read


def read_npy_header(path: Path) -> NpyHeader:
    """Reads and checks the header only.

    Raises:
        DataError: no npy file, or its header and its size disagree.
    """
    try:
        fd, size = open_descriptor(path)
        try:
            return npy_header(_reader(fd), size, str(path))
        finally:
            os.close(fd)
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


def _raw(file: FileIO | BinaryIO, header: NpyHeader) -> NDArray[np.generic]:
    """The elements in stored order."""
    stored, count = header.stored, element_count(header.shape)
    if count == 0:
        return np.empty(0, stored)
    if header.fortran and header.data_bytes >= _MAPPED:
        return np.memmap(file, dtype=stored, mode="r", offset=header.offset, shape=(count,))
    file.seek(header.offset)
    return np.fromfile(file, dtype=stored, count=count)


def _read_header(file: BinaryIO | FileIO, path: Path) -> NpyHeader:
    return npy_header(file.read, os.fstat(file.fileno()).st_size, str(path))


def npy_header(read: Callable[[int], bytes], size: int, where: str) -> NpyHeader:
    """Reads and checks a header from the start of npy data, wherever they lie.

    Args:
        read: Reads on by a number of bytes; called with no more than the header needs.
        size: How many bytes of npy data there are.
        where: For messages.

    Raises:
        DataError: these are no npy data, or the header claims more than there is.
    """
    start = read(_USUAL_HEADER)
    if start[:6] != MAGIC or len(start) < 10:
        raise DataError(f"{where}: is not an npy file (does not start with the npy mark at byte 0); check the path")
    if start[6] not in (1, 2, 3):
        raise DataError(f"{where}: npy version {start[6]}.{start[7]} at byte 6 is not known")
    begin = 10 if start[6] == 1 else 12
    length = int.from_bytes(start[8:begin], "little")
    offset = begin + length
    if offset > size or length > _MAX_HEADER:
        raise DataError(f"{where}: claims a header of {length} bytes at byte {begin}, the file has {size}; damaged")
    raw = start[begin:offset]
    if len(raw) < length:
        raw += read(length - len(raw))
    try:
        parse = _parse_header if length <= _USUAL_HEADER else _parse_header.__wrapped__  # long ones are not kept
        header = parse(raw, start[6] == 3, offset)
        if header.data_bytes > size - offset:
            raise DataError(
                f"header claims {header.data_bytes} bytes of data (shape {header.shape}, {header.descr}), "
                f"the file holds {size - offset}; it is damaged or cut short"
            )
        if header.impossible:
            raise DataError(f"{header.impossible}; the file is damaged")
    except DataError as error:
        raise DataError(f"{where}: {error} (header at byte {begin})") from error
    return header


@functools.lru_cache(maxsize=4096)  # the tensors of a dump have few different headers
def _parse_header(raw: bytes, utf8: bool, offset: int) -> NpyHeader:
    descr, shape, fortran = _fields(raw, utf8)
    stored, name = _type_of(descr)
    _check_shape(shape)
    size = element_count(shape) * stored.itemsize
    return NpyHeader(descr, shape, fortran, offset, stored, name, size, bad_shape(shape))


def _fields(raw: bytes, utf8: bool) -> tuple[str, tuple[int, ...], bool]:
    usual = _USUAL.fullmatch(raw)
    if usual:
        dims = tuple(int(dim) for dim in usual[3].split(b",") if dim.strip())
        return usual[1].decode(), dims, usual[2] == b"True"
    text = raw.decode("utf-8" if utf8 else "latin-1", "replace").strip()
    text = re.sub(r"(?<=\d)L\b", "", text)  # Python 2 wrote its long integers like this
    fields = _literal(text)
    if set(fields) != {"descr", "fortran_order", "shape"}:
        raise DataError("npy header lacks descr, fortran_order or shape, or has more than these; the file is damaged")
    descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    if not isinstance(descr, str):
        raise DataError("holds a structured type, not a tensor")
    if not isinstance(shape, tuple) or not all(type(dim) is int for dim in shape) or not isinstance(fortran, bool):
        raise DataError(f"npy header with shape {shape!r:.80} and order {fortran!r:.80}; the file is damaged")
    return descr, shape, fortran


def _literal(text: str) -> dict[object, object]:
    """The header's dict; each key may stand in it once, since readers differ in which of two they take."""
    problem = f"npy header cannot be read: {text[:60]!r}; the file is damaged"
    if "\\" in text:  # real headers have none, and Python warns of wrong ones aloud
        raise DataError(problem)
    try:
        body = ast.parse(text, mode="eval").body
        if not isinstance(body, ast.Dict):
            raise DataError(problem)
        fields: dict[object, object] = ast.literal_eval(body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise DataError(problem) from error
    if len(fields) != len(body.keys):
        raise DataError("npy header says the same thing twice; the file is damaged")
    return fields


@functools.lru_cache(maxsize=256)
def _type_of(descr: str) -> tuple[np.dtype[np.generic], str]:
    """The type and its name."""
    try:
        dtype = np.dtype(descr) if _TYPE.fullmatch(descr) else None
    except (TypeError, ValueError, SyntaxError) as error:
        raise DataError(f"unknown npy type {descr!r}") from error
    if dtype is not None and dtype.hasobject:
        raise DataError("holds Python objects, not a tensor; it is not opened, since that could run code")
    if dtype is None or dtype.type.__module__ != "numpy":
        raise DataError(f"unknown npy type {descr[:60]!r}")
    if dtype.kind not in "biufcVSU" or dtype.itemsize <= 0 or (dtype.kind in "fc" and dtype.type(0).real.itemsize > 8):
        raise DataError(f"npy type {descr!r} is not that of a tensor")
    if dtype.kind == "V":
        return dtype, "undefined"
    return dtype, "string" if dtype.kind in "SU" else dtype.name


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) > _MAX_DIMS or max(shape, default=0) >= 1 << 63:
        raise DataError(f"impossible shape {shape!r:.80}; the file is damaged")
    if min(shape, default=0) < 0:
        raise DataError(f"negative dimension in shape {shape!r:.80}; the file is damaged")

"""RawSource: a tensor whose bytes lie somewhere inside a file."""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.lowfloat import decode, decoded_dtype, is_plain, stored_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.extent import TensorFile

_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
_CLOSE: Final = getattr(os, "O_CLOEXEC", 0)


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading, unbuffered; refuses what is none, so that a pipe in a tree is never waited for.

    Raises:
        DataError: it cannot be opened, or it is a folder, a pipe or a device.
    """
    try:
        return open(path, "rb", buffering=0, opener=regular_only)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def regular_only(path: str, flags: int) -> int:
    """The opener that readers hand to ``open``: a pipe or device in an unpacked tree is an error, never waited for.

    Raises:
        OSError: it cannot be opened, or it is no regular file.
    """
    return _descriptor(path, flags)[0]


def open_descriptor(path: Path) -> tuple[int, int]:
    """Opens a regular file for reading; returns the descriptor, which the caller closes, and the file's size.

    Raises:
        OSError: it cannot be opened, or it is no regular file.
    """
    return _descriptor(str(path), os.O_RDONLY | _CLOSE)


def _descriptor(path: str, flags: int) -> tuple[int, int]:
    number = os.open(path, flags | _NO_WAIT)
    found = os.fstat(number)
    if stat.S_ISREG(found.st_mode):
        return number, found.st_size
    os.close(number)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "is a pipe or a device, no regular file", path)


@dataclass(frozen=True)
class RawSource:
    """Bytes of one tensor at an offset of a file; reads only those.

    Attributes:
        path: The file.
        offset: Of the first byte.
        encoding: Dtype name, or an encoding of :mod:`dumpers.formats.lowfloat`.
        shape: Of the array that comes out.
        groups: Group count of a grouped convolution's filter, 1 otherwise; undoing its layout needs it.
        layout: Original shape's layout (``NHWC``) where a graph told it, else empty.
    """

    path: Path
    offset: int
    encoding: str
    shape: tuple[int, ...]
    groups: int = 1
    layout: str = ""

    def load(self) -> NDArray[np.generic]:
        """Returns the array in stored shape, read-only.

        Raises:
            DataError: the file vanished or became shorter.
        """
        count = element_count(self.shape)
        size = stored_bytes(self.encoding, count)
        if size == 0:
            empty = np.zeros(self.shape, _numpy_type(self.encoding))
            empty.flags.writeable = False
            return empty
        with open_regular(self.path) as file:
            try:
                raw = np.fromfile(file, dtype=np.uint8, count=size, offset=self.offset)
            except OSError as error:
                raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if raw.size != size:
            raise DataError(
                f"{self.path}: ends after {raw.size} of {size} bytes of the tensor at {self.offset}; dump it again"
            )
        array = decode(raw, self.encoding, count).reshape(self.shape)
        array.flags.writeable = False
        return array

    def open(self) -> TensorFile | None:
        """Opens the tensor in place; None where its elements have to be decoded.

        Raises:
            DataError: as for :meth:`load`.
        """
        from dumpers.formats.extent import TensorFile

        if not is_plain(self.encoding) or sys.byteorder != "little":
            return None
        try:
            fd, size = open_descriptor(self.path)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        found = TensorFile(fd, self.offset, _numpy_type(self.encoding), self.shape, str(self.path))
        held = size - self.offset
        if held < found.nbytes:
            found.close()
            raise DataError(
                f"{self.path}: ends after {max(held, 0)} of {found.nbytes} bytes of the tensor at {self.offset}; "
                "dump it again"
            )
        return found


def _numpy_type(encoding: str) -> np.dtype[np.generic]:
    from dumpers.dtypes import numpy_dtype

    return numpy_dtype(decoded_dtype(encoding))


def element_count(shape: tuple[int, ...]) -> int:
    """Returns the number of elements, exactly, whatever a damaged header claims."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def bad_shape(shape: tuple[int, ...]) -> str:
    """Says why NumPy could not hold such a shape, empty if it can."""
    if len(shape) <= 32 and min(shape, default=0) > 0 and element_count(shape) < 1 << 56:
        return ""
    if any(dim < 0 for dim in shape):
        return f"negative dimension in shape {shape}"
    if len(shape) > 32:
        return f"{len(shape)} dimensions"
    if element_count(tuple(dim for dim in shape if dim)) >= 1 << 56:
        return f"impossible shape {shape}"
    return ""


def read_into(descriptor: int, room: NDArray[np.uint8], offset: int, where: str) -> None:
    """Fills an array of bytes from a place in an open file.

    Raises:
        DataError: the file ends before, or cannot be read.
    """
    done = 0
    while done < room.size:
        try:
            got = os.preadv(descriptor, [room[done:].data], offset + done)
        except OSError as error:
            raise DataError(f"{where}: cannot be read: {error.strerror or error}") from error
        if not got:
            raise DataError(f"{where}: ends at byte {offset + done}; it became shorter while it was read")
        done += got

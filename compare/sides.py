"""One side of a comparison: elements of a tensor in memory or in an open file, for kernels and block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import BLOCK
from compare.onepass.decode import code_of, table_of
from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.extent import TensorFile

    Array = NDArray[np.generic]
    Spec = tuple[int, int, int, int, int, NDArray[np.float32]]


class Side:
    """A flat tensor.

    Attributes:
        dtype: Of the elements.
        count: Number of elements.
        code: How a kernel decodes them, None if it cannot.
        spec: What a kernel needs: descriptor, address, offset, element size, code, table.
        checksum: Takes the checksum of what a sweep reads; None where nobody wants it.
    """

    __slots__ = ("_array", "_file", "checksum", "code", "count", "dtype", "spec")

    def __init__(
        self, dtype: np.dtype[np.generic], count: int, array: Array | None = None, file: TensorFile | None = None
    ) -> None:
        self.dtype = dtype
        self.count = count
        self.code = code_of(dtype)
        self._array = array
        self._file = file
        self.checksum = file.checksum if file is not None else None
        fd, address, offset = (-1, array.ctypes.data, 0) if array is not None else (-1, 0, 0)
        if file is not None:
            fd, offset = file.fd, file.offset
        code = -1 if self.code is None else self.code
        self.spec: Spec = (fd, address, offset, dtype.itemsize, code, table_of(dtype))

    @classmethod
    def of_array(cls, array: Array) -> Side:
        """Takes an array of any shape; it is copied only where it is not in C order or not in native byte order."""
        dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
        if dtype.name.startswith(("int", "uint")) and dtype.kind not in "iu":  # types narrower than a byte
            dtype = np.dtype(np.uint8 if dtype.name.startswith("u") else np.int8)
        return cls(dtype, array.size, np.ascontiguousarray(array, dtype=dtype).reshape(-1))

    @classmethod
    def of_file(cls, file: TensorFile) -> Side:
        """Takes a tensor in an open file, which must stay open."""
        return cls(file.dtype, file.count, None, file)

    def block(self, start: int, stop: int) -> Array:
        """Returns elements ``start`` to ``stop``.

        Raises:
            DataError: the file became shorter.
        """
        if self._array is not None:
            return self._array[start:stop]
        if self._file is None:
            raise ValueError("a side without data")
        size, offset = (stop - start) * self.dtype.itemsize, self._file.offset + start * self.dtype.itemsize
        raw = np.empty(size, np.uint8)
        room, done = raw.data, 0
        while done < size:
            try:
                got = os.preadv(self._file.fd, [room[done:]], offset + done)
            except OSError as error:
                raise DataError(f"{self._file.where}: cannot be read: {error.strerror or error}") from error
            if got <= 0:
                raise self.cut_short()
            done += got
        return raw.view(self.dtype)

    def cut_short(self) -> DataError:
        """Returns the error of a file that ended too early."""
        where = self._file.where if self._file is not None else "array"
        return DataError(f"{where}: became shorter while it was read, or cannot be read; dump it again")


def pair_blocks(left: Side, right: Side, size: int = BLOCK) -> Iterator[tuple[int, Array, Array]]:
    """Yields the index of the first element and the elements of both sides, block by block."""
    for start in range(0, left.count, size):
        stop = min(start + size, left.count)
        yield start, left.block(start, stop), right.block(start, stop)

"""Tensors that can be read in place: plain bytes, in this machine's order and row-major, somewhere in one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from dumpers.formats.raw import element_count

if TYPE_CHECKING:
    from dumpers.formats.crc32c import RunningChecksum
    from dumpers.records import TensorSource


@dataclass(slots=True)
class TensorFile:
    """An open file and where in it a tensor lies. A context manager, which closes the file.

    Attributes:
        fd: File descriptor; positions do not matter, it is read with ``pread``.
        offset: Of the first byte of the first element.
        dtype: Of the elements, in this machine's byte order.
        shape: Of the tensor.
        where: The file's path, for messages.
        checksum: Takes the checksum of what a sweep of the whole tensor reads; None where nobody wants it. Does not see
            what is read beside a sweep.
        count: Number of elements.
    """

    fd: int
    offset: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    where: str = ""
    checksum: RunningChecksum | None = None
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = element_count(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the tensor."""
        return self.count * self.dtype.itemsize

    def close(self) -> None:
        """Closes the file; again does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open_tensor(source: TensorSource) -> TensorFile | None:
    """Opens a tensor in place; None where it has to be loaded.

    Sources whose bytes may lie plainly in a file have a method ``open`` that does it; others cannot.

    Raises:
        DataError: as for loading.
    """
    opener: Callable[[], TensorFile | None] | None = getattr(source, "open", None)
    return None if opener is None else opener()

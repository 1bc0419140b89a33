"""Values in the data files of a checkpoint: numbers as they lie in memory, strings behind their lengths."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.dtypes import WITHOUT_VALUE, numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.crc32c import crc32c, masked, unmasked
from dumpers.formats.extent import TensorFile
from dumpers.formats.raw import element_count, open_regular, read_into, regular_only
from dumpers.formats.sstable import read_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNREADABLE: Final = "unreadable: "
"""How the note of a variable begins whose values are lost."""

_NARROW: Final = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
"""Types narrower than a byte lie in one byte an element, as in memory; the upper bits mean nothing."""

_BLOCK: Final = 1 << 18
"""Bytes that are in hand at once while a checksum is taken."""


def stored_as(dtype: str) -> tuple[str, str]:
    """Returns the dtype name of the array that comes out, empty if there is none, and a note."""
    if dtype == "string":
        return dtype, ""
    if dtype in WITHOUT_VALUE:
        return "", f"no value: {dtype}"
    if dtype in _NARROW:
        return ("uint8" if dtype.startswith("u") else "int8"), f"stored as {dtype}"
    try:
        numpy_dtype(dtype)
    except ValueError as error:
        return "", f"no value: {error}"
    return dtype, ""


def stored_size(dtype: str, count: int) -> int:
    """Returns how many bytes so many numbers take in a data file."""
    return count if dtype in _NARROW else count * numpy_dtype(dtype).itemsize


@dataclass(frozen=True)
class BundleSource:
    """The numbers of a variable, or of one slice of it.

    Attributes:
        path: The data file.
        offset, size: Where the bytes lie.
        encoding: Dtype name as the index has it.
        shape: Of the array.
        checksum: Masked CRC-32C of the bytes.
        name: Of the variable, for messages.
        big_endian: Byte order of the machine that saved it.
    """

    path: Path
    offset: int
    size: int
    encoding: str
    shape: tuple[int, ...]
    checksum: int
    name: str = ""
    big_endian: bool = False

    def load(self) -> NDArray[np.generic]:
        """Returns the array, read-only.

        Raises:
            DataError: the file vanished, became shorter, or its checksum differs.
        """
        return self.decode(self.read())

    def read(self, *, check: bool = True) -> NDArray[np.uint8]:
        """Returns the bytes as they lie in the file.

        Raises:
            DataError: the file vanished, became shorter, or (if asked for) its checksum differs.
        """
        with open_regular(self.path) as file:
            try:
                raw = np.fromfile(file, np.uint8, count=self.size, offset=self.offset)
            except OSError as error:
                raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if raw.size != self.size:
            raise DataError(self._too_short(raw.size))
        if check:
            self.check(crc32c(raw.data))
        return raw

    @property
    def plain(self) -> bool:
        """Whether the bytes in the file are those of the array on this machine."""
        turned = self.big_endian != (sys.byteorder == "big") and numpy_dtype(self.encoding).itemsize > 1
        return not (turned or self.encoding == "bool" or self.encoding in _NARROW)

    def open(self) -> TensorFile | None:
        """Opens the data file where the numbers lie; None where they have to be decoded.

        The bytes are read once, for their checksum: whoever compares in place does not see it.

        Raises:
            DataError: the file vanished, became shorter, or its checksum differs.
        """
        if not self.plain:
            return None
        self.verify()
        return self.in_place()

    def in_place(self) -> TensorFile | None:
        """Opens the data file where the numbers lie, without a look at them; None where they have to be decoded.

        Raises:
            DataError: the file vanished or became shorter.
        """
        if not self.plain:
            return None
        return replace(self.place(), dtype=numpy_dtype(self.encoding), shape=self.shape)

    def verify(self) -> None:
        """Reads the bytes for their checksum.

        Raises:
            DataError: the file vanished, became shorter, or its checksum differs.
        """
        room, crc = np.empty(min(_BLOCK, self.size), np.uint8), 0
        with self.place() as file:
            for at in range(0, self.size, _BLOCK):
                block = room[: min(_BLOCK, self.size - at)]
                read_into(file.fd, block, self.offset + at, str(self.path))
                crc = crc32c(block.data, crc)
        self.check(crc)

    def place(self) -> TensorFile:
        """Opens the data file at the bytes as they are, without a look at them.

        Raises:
            DataError: the file vanished or became shorter.
        """
        try:
            descriptor = regular_only(os.fspath(self.path), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        file = TensorFile(descriptor, self.offset, np.dtype(np.uint8), (self.size,), str(self.path))
        there = os.fstat(descriptor).st_size
        if self.offset + self.size > there:
            file.close()
            raise DataError(self._too_short(max(0, there - self.offset)))
        return file

    def _too_short(self, there: int) -> str:
        return (
            f"{self.path}: ends after {there} of the {self.size} bytes of {self.name} at {self.offset}; "
            "copy it or save the checkpoint again"
        )

    def check(self, found: int) -> None:
        """Holds a checksum against the one in the index.

        Raises:
            DataError: they differ.
        """
        if masked(found) != self.checksum:
            raise DataError(
                f"{self.path}: {self.name} at byte {self.offset}: checksum {found:08x} instead of "
                f"{unmasked(self.checksum):08x}; damaged, copy it or save the checkpoint again"
            )

    def decode(self, raw: NDArray[np.uint8]) -> NDArray[np.generic]:
        """Returns the array behind the bytes."""
        array = self.numbers(raw).reshape(self.shape)
        array.flags.writeable = False
        return array

    def numbers(self, raw: NDArray[np.uint8]) -> NDArray[np.generic]:
        """Returns the elements behind some of the bytes, one after the other."""
        if self.encoding in _NARROW:
            return _widened(raw, _NARROW[self.encoding], signed=not self.encoding.startswith("u"))
        if self.encoding == "bool":
            return np.not_equal(raw, 0)
        return _numbers(raw, numpy_dtype(self.encoding), self.big_endian)


def _numbers(raw: NDArray[np.uint8], dtype: np.dtype[np.generic], big_endian: bool) -> NDArray[np.generic]:
    """Turns the byte order round where it is not this machine's; parts of complex numbers each for itself."""
    width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    if width > 1:
        swapped = raw.view(f"{'>' if big_endian else '<'}u{width}")
        raw = swapped.astype(f"=u{width}", copy=False).view(np.uint8)
    return raw.view(dtype)


def _widened(raw: NDArray[np.uint8], bits: int, *, signed: bool) -> NDArray[np.generic]:
    shift = 8 - bits
    high = raw << np.uint8(shift)
    return high.view(np.int8) >> np.int8(shift) if signed else high >> np.uint8(shift)


@dataclass(frozen=True)
class StringSource:
    """The strings of a variable: all lengths, a checksum over them, then all bytes.

    Attributes:
        place: Where they lie.
    """

    place: BundleSource

    @property
    def path(self) -> Path:
        """The data file."""
        return self.place.path

    def load(self) -> NDArray[np.generic]:
        """Returns an array of objects of type bytes, read-only.

        Raises:
            DataError: the file vanished or is damaged.
        """
        place = self.place
        raw = place.read(check=False).tobytes()
        where = f"{place.path}: {place.name} at byte {place.offset}"
        lengths, position = _lengths(raw, element_count(place.shape), where)
        end = position + 4
        crc = self._check_lengths(lengths, raw[position:end], where)
        if end + sum(lengths) != len(raw):
            raise DataError(f"{where}: strings take {sum(lengths)} bytes where {len(raw) - end} are; damaged")
        place.check(crc32c(memoryview(raw)[position:], crc))
        found = np.empty(len(lengths), dtype=object)
        for index, length in enumerate(lengths):
            found[index] = raw[end : end + length]
            end += length
        found = found.reshape(place.shape)
        found.flags.writeable = False
        return found

    def _check_lengths(self, lengths: list[int], stored: bytes, where: str) -> int:
        """The checksum is over the lengths as numbers of four bytes (eight where four are not enough)."""
        order = self.place.big_endian
        numbers = b"".join(_length_bytes(length, big_endian=order) for length in lengths)
        crc = crc32c(numbers)
        if len(stored) < 4 or int.from_bytes(stored, "big" if order else "little") != masked(crc):
            raise DataError(f"{where}: checksum of the lengths of its strings differs; damaged, copy or save it again")
        return crc


def _length_bytes(length: int, *, big_endian: bool) -> bytes:
    return length.to_bytes(4 if length < 1 << 32 else 8, "big" if big_endian else "little")


def _lengths(raw: bytes, count: int, where: str) -> tuple[list[int], int]:
    position, lengths = 0, []
    for _ in range(count):
        length, position = read_varint(raw, position, 63, where)
        lengths.append(length)
    return lengths, position

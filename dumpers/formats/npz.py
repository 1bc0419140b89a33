"""npz files (``numpy.savez`` and ``savez_compressed``): a zip file of npy members, read one at a time.

Members are listed by their headers: of a compressed one only its first bytes are inflated. Loading inflates into the
array that the checked header asks for, piece by piece, and compares the checksum at the end.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.npy import NpyHeader, npy_header
from dumpers.formats.raw import regular_only
from dumpers.formats.zip_members import ZipMember, read_members, shown_name
from dumpers.records import Dump, Problem, TensorRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class NpzSource:
    """One member of an npz file.

    Attributes:
        path: The npz file.
        member: Where the member lies in it.
        header: What the member's npy header says, already checked against the member's size.
        dtype: What raw data are, see :class:`dumpers.formats.npy.NpySource`.
    """

    path: Path
    member: ZipMember
    header: NpyHeader
    dtype: str | None = None

    def load(self) -> NDArray[np.generic]:
        """Returns the array, native and row-major.

        Raises:
            DataError: the file vanished or changed, is damaged, or holds raw data without a dtype.
        """
        where = _where(self.path, self.member.name)
        self.header.target(self.dtype, where)
        begin, count = self.header.offset, self.header.data_bytes
        data = np.empty(count, np.uint8)
        crc = at = 0
        try:
            with open(self.path, "rb", opener=regular_only) as file:
                for chunk in self.member.chunks(file, where):
                    crc = zlib.crc32(chunk, crc)
                    low, high = max(begin - at, 0), min(begin + count - at, len(chunk))
                    if high > low:
                        data[at + low - begin : at + high - begin] = np.frombuffer(chunk, np.uint8)[low:high]
                    at += len(chunk)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        self.member.check(crc, where)
        return self.header.array(data, self.dtype, where)


def read_npz(path: Path) -> Dump:
    """Lists the arrays of an npz file: one record a member, in the order of the file; op is the member's name.

    Raises:
        DataError: no such file, or no zip file. A single bad member is a problem of the dump.
    """
    path = Path(path)
    problems: list[Problem] = []
    members: dict[str, ZipMember] = {}
    for member in read_members(path):
        if isinstance(member, str):
            problems.append(Problem(path, member))
        else:
            if member.name in members:
                problems.append(Problem(path, f"member {shown_name(member.name)} occurs twice; the last one is read"))
            members[member.name] = member
    records: list[TensorRecord] = []
    try:
        with open(path, "rb", opener=regular_only) as file:
            for member in members.values():
                try:
                    records.append(_record(file, path, member))
                except DataError as error:
                    problems.append(Problem.of(path, error))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return Dump(path, tuple(records), tuple(problems))


def _record(file: BinaryIO, path: Path, member: ZipMember) -> TensorRecord:
    where = f"{_where(path, member.name)} at byte {member.offset}"
    header = npy_header(_Reader(member.chunks(file, where)).read, member.size, where)
    unknown = header.unknown
    return TensorRecord(
        op=shown_name(member.name.removesuffix(".npy")),
        op_type="",
        io="output",
        slot=0,
        dtype=header.dtype,
        shape=header.shape,
        source=None if unknown else NpzSource(path, member, header),
        device="tf",
        note=unknown,
    )


def _where(path: Path, name: str) -> str:
    return f"{path}: member {shown_name(name)}"


class _Reader:
    """Reads on through chunks; asks for no chunk more than is needed."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._kept = b""

    def read(self, count: int) -> bytes:
        """Returns the next bytes, fewer at the end."""
        while len(self._kept) < count:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._kept += chunk
        out, self._kept = self._kept[:count], self._kept[count:]
        return out

"""Members of a zip file, located and checked without unpacking any; for npz and PyTorch files.

Nothing here writes a file, so a name that leads out of a folder can do no harm; it is still shown escaped.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from dumpers.errors import DataError
from dumpers.formats.raw import regular_only

LOCAL_MARK: Final = b"PK\x03\x04"
"""First bytes of a zip file that has members."""

_LOCAL_HEADER: Final = 30
_ENCRYPTED: Final = 1
_STORED: Final = 0
_DEFLATED: Final = 8

_MOST_DEFLATE: Final = 1040
"""Deflate makes no more than 1032 bytes of one; a bit more allows for the first block."""

_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class ZipMember:
    """One member whose place in the file was checked.

    Attributes:
        name: As it stands in the file; never a path to write to.
        offset: Of its first byte in the file.
        stored: Bytes it takes in the file.
        size: Bytes once inflated, no more than the stored bytes can hold.
        deflated: Whether it is compressed.
        crc: Checksum of the inflated bytes.
    """

    name: str
    offset: int
    stored: int
    size: int
    deflated: bool
    crc: int

    def chunks(self, file: BinaryIO, where: str) -> Iterator[bytes]:
        """Yields its bytes, inflated, never more than :attr:`size` of them and few at a time.

        Raises:
            DataError: the file ends early, or the compressed bytes are damaged.
        """
        file.seek(self.offset)
        left, made, tail = self.stored, 0, b""
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if self.deflated else None
        while made < self.size:
            piece = tail or file.read(min(_CHUNK, left))
            left -= 0 if tail else len(piece)
            if not piece:
                raise DataError(f"{where}: ends after {made} of {self.size} bytes at byte {file.tell()}; cut short")
            if inflater:
                try:
                    out = inflater.decompress(piece, _CHUNK)
                except zlib.error as error:
                    raise DataError(f"{where}: damaged before byte {file.tell()}: {error}") from error
                tail = inflater.unconsumed_tail
            else:
                out = piece
            out = out[: self.size - made]
            made += len(out)
            yield out

    def read(self, file: BinaryIO, where: str) -> bytes:
        """Returns all its bytes and checks them against their checksum; for small members.

        Raises:
            DataError: see :meth:`chunks`, or the checksum is wrong.
        """
        data = b"".join(self.chunks(file, where))
        self.check(zlib.crc32(data), where)
        return data

    def check(self, crc: int, where: str) -> None:
        """Compares a checksum.

        Raises:
            DataError: it is not that of the directory.
        """
        if crc != self.crc:
            raise DataError(
                f"{where}: checksum of the bytes from {self.offset} on is {crc:08x} instead of {self.crc:08x}; damaged"
            )


def read_members(path: Path) -> tuple[ZipMember | str, ...]:
    """Returns the members of a zip file in the order of its directory; a text says what is wrong with one.

    Raises:
        DataError: no such file, or its directory cannot be read.
    """
    try:
        with open(path, "rb", opener=regular_only) as file, zipfile.ZipFile(file) as archive:
            size = path.stat().st_size
            return tuple(_member(file, info, size) for info in archive.infolist() if not info.is_dir())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, IndexError) as error:
        reason = f"is not a whole zip file ({error}) before byte {_size(path)}; damaged or cut short"
        raise DataError(f"{path}: {reason}") from error
    except (struct.error, RuntimeError, MemoryError, UnicodeError) as error:
        raise DataError(f"{path}: its zip directory is damaged ({error})") from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _member(file: BinaryIO, info: zipfile.ZipInfo, size: int) -> ZipMember | str:
    shown = shown_name(info.filename)
    if info.flag_bits & _ENCRYPTED:
        return f"member {shown} is encrypted"
    if info.compress_type not in (_STORED, _DEFLATED):
        return f"member {shown} uses compression method {info.compress_type}, only stored and deflate are read"
    if not 0 <= info.header_offset <= size - _LOCAL_HEADER:
        return f"member {shown} lies at byte {info.header_offset}, outside the file of {size} bytes"
    file.seek(info.header_offset)
    local = file.read(_LOCAL_HEADER)
    if local[:4] != LOCAL_MARK or len(local) < _LOCAL_HEADER:
        return f"member {shown}: no member begins at byte {info.header_offset}"
    offset = info.header_offset + _LOCAL_HEADER + sum(struct.unpack_from("<2H", local, 26))
    if info.compress_size < 0 or offset + info.compress_size > size:
        return f"member {shown} claims {info.compress_size} bytes at {offset}, the file has {size}"
    deflated = info.compress_type == _DEFLATED
    most = info.compress_size * _MOST_DEFLATE if deflated else info.compress_size
    if info.file_size > most or (not deflated and info.file_size != most):
        return f"member {shown} claims to hold {info.file_size} bytes, {info.compress_size} stored ones cannot hold it"
    return ZipMember(info.filename, offset, info.compress_size, info.file_size, deflated, info.CRC)


def first_member_name(head: bytes) -> str:
    """Returns the name of the first member from the first bytes of a zip file, empty if it is none."""
    if not head.startswith(LOCAL_MARK) or len(head) < _LOCAL_HEADER:
        return ""
    length = int.from_bytes(head[26:28], "little")
    return head[_LOCAL_HEADER : _LOCAL_HEADER + length].decode("utf-8", "replace")


def shown_name(name: str) -> str:
    """Returns a name from a file as it may be shown: control characters and steps out of a folder are escaped."""
    inner = name.replace("\\", "\\\\").lstrip("/")
    text = "\\x2f" * (len(name) - len(name.lstrip("/")))
    text += "/".join("\\x2e\\x2e" if part == ".." else part for part in inner.split("/"))
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode("ascii") for c in text)

"""What an interrupted sweep has done already, in a file beside its result.

A line for each pair: a checksum, a key, and what was found out. The key is a digest of everything that the outcome
depends on: how the tensors are read, sizes and times of their files, the program's code, the machine. A line that is
damaged, cut short, or belongs to files that changed since fits no pair and is passed over, so nothing in the file is
trusted. Tensors whose files changed while the sweep ran are not kept, nor are those that could not be read.

Lines are written once a second, so a sweep of a second has no journal at all, one that is killed loses a second, and
one that is interrupted nothing. Only pairs of a megabyte and more have a line: for a pair of two 4 KB tensors writing
one and reading it again took 0.2 ms, as much as comparing it did, so small ones are compared again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from compare.outcomes import decode, encode
from compare.units import pair_bytes
from dumpers.errors import one_line

if TYPE_CHECKING:
    from compare.pairing import Pair
    from compare.table import ComparisonRow

INTERVAL_SECONDS = 1.0
WORTH_BYTES = 1 << 20
"""Pairs below it (both sides together) have no line."""

_MARGIN_NS: Final = 50_000_000
"""File systems stamp with a clock that lags behind by some milliseconds."""

_LONGEST_LINE: Final = 1 << 22
_OF_PAIR: Final = frozenset({"index", "op", "op_type", "left_names", "right_names", "left", "right"})
_OF_RECORD: Final = (
    "op", "io", "slot", "dtype", "shape", "format", "original_shape", "note", "source", "statistics", "summary",
)  # fmt: skip


class Journal:
    """A journal; a context manager, which removes it when the work is done and keeps it when it was interrupted.

    Args:
        path: The file. It is made when there is something to keep.
        about: What is compared, for a reader of the file.
        interval: Seconds between two writes.

    Attributes:
        notes: What was gone on with, and what could not be used.
    """

    def __init__(self, path: Path, *, about: str = "", interval: float = INTERVAL_SECONDS) -> None:
        self.path = path
        self.notes: list[str] = []
        self._about = about
        self._interval = interval
        self._number = -1
        self._usable = True
        self._pending: list[tuple[Pair, ComparisonRow]] = []
        self._keys = _Keys("", 0)
        self._next = 0.0
        self._total = self._kept = 0

    def begin(self, pairs: Sequence[Pair], wanted: str) -> dict[int, ComparisonRow]:
        """Starts a sweep and returns the rows that are known already, by the number of their pair.

        Args:
            pairs: All pairs of the sweep.
            wanted: What is to be found out about each; other figures, other keys.
        """
        self._total = len(pairs)
        self._keys = _Keys(wanted, time.time_ns() - _MARGIN_NS)
        self._next = time.monotonic() + self._interval
        if not self._usable or not self.path.exists() or not self._open():
            return {}
        rows = self._read(pairs)
        self._kept = len(rows)
        if rows:
            self.notes.append(f"{len(rows)} of {len(pairs)} pairs were compared before an interruption: {self.path}")
        return rows

    def add(self, pair: Pair, row: ComparisonRow) -> None:
        """Takes one outcome; writes what has come together when it is time to."""
        if not self._usable or row.figures is None or pair_bytes(pair) < WORTH_BYTES:
            return
        self._pending.append((pair, row))
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Writes what has come together and makes sure that it is on the disk."""
        if not self._usable or not self._pending:
            return
        pending, self._pending = self._pending, []
        keys = self._keys.fresh()
        lines = [_line(f"{key} {encode(row)}") for pair, row in pending if (key := keys.of(pair, unchanged=True))]
        try:
            if lines and (self._number >= 0 or self._open()):
                # The line end in front closes what an interrupted write may have left.
                _write(self._number, "\n".join(["", *lines, ""]).encode())
                os.fsync(self._number)
                self._kept += len(lines)
        except OSError as error:
            self._give_up(f"{self.path}: cannot be written ({error.strerror or error}), so an interruption loses all")
        self._next = time.monotonic() + self._interval

    def remove(self) -> None:
        """Removes the file; the work is done, or is to be done again from the start."""
        if self._number < 0 and self._usable and self.path.exists():
            self._open()
        if self._number >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.remove()
            return
        interrupted = issubclass(kind, KeyboardInterrupt)
        if interrupted or self._number >= 0:
            self.flush()
        kept = self._kept if self._number >= 0 else 0
        self._close()
        if interrupted and kept and not (error and error.args):
            raise KeyboardInterrupt(
                f"interrupted: {kept} of {self._total} pairs are compared and kept in {self.path}; the same command "
                "goes on from there (with --fresh it starts over)"
            ) from error

    # ------------------------------------------------------------------------------------------------------ file

    def _open(self) -> bool:
        """Opens the file for this program alone."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._number = os.open(self.path, flags, 0o600)
        except OSError as error:
            return self._give_up(f"{self.path}: cannot be opened ({error.strerror}), so an interruption loses all")
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._number).st_size == 0:
                about = one_line(self._about)
                _write(self._number, f"# unfinished: {about}; the same command goes on from here\n".encode())
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            reason = "the same comparison is running already" if busy else str(error.strerror)
            return self._give_up(f"{self.path}: {reason}, so an interruption of this one loses all")
        return True

    def _give_up(self, note: str) -> bool:
        self.notes.append(note)
        self._usable = False
        self._close()
        return False

    def _close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
        self._number = -1

    def _read(self, pairs: Sequence[Pair]) -> dict[int, ComparisonRow]:
        wanted: dict[str, list[int]] = {}
        for number, pair in enumerate(pairs):
            wanted.setdefault(self._keys.of(pair), []).append(number)
        wanted.pop("", None)
        rows: dict[int, ComparisonRow] = {}
        damaged = foreign = 0
        for line in _lines(self._number):
            found = _checked(line)
            key, _, text = found.partition(" ")
            try:
                for number in wanted.get(key, ()):
                    rows[number] = decode(pairs[number], text)
            except ValueError:
                found = ""
            damaged += not found
            foreign += bool(found) and key not in wanted
        if damaged:
            self.notes.append(f"{self.path}: {damaged} damaged lines were passed over")
        if foreign:
            self.notes.append(f"{self.path}: {foreign} pairs are compared again: their files or the program changed")
        return rows


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


def _lines(number: int) -> Iterator[str]:
    """Yields lines but comments and empty ones; of a line without end no more than a bounded part is in memory."""
    with open(os.dup(number), "rb") as file:
        file.seek(0)
        while raw := file.readline(_LONGEST_LINE):
            line = raw.decode("ascii", "replace").rstrip("\n")
            if line and not line.startswith("#"):
                yield line


def _line(text: str) -> str:
    return f"{_digest(text)} {text}"


def _checked(line: str) -> str:
    """Returns a line without its checksum, empty if it is damaged."""
    checksum, _, text = line.partition(" ")
    return text if checksum == _digest(text) else ""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# ------------------------------------------------------------------------------------------------------------- keys


class _Keys:
    """Keys of pairs. Files are looked at once for each object.

    Args:
        salt: What else the figures depend on.
        newest_ns: A file that changed since is changing; nanoseconds since 1970.
    """

    def __init__(self, salt: str, newest_ns: int) -> None:
        self._salt = salt
        self._newest_ns = newest_ns
        self._stats: dict[str, str] = {}

    def fresh(self) -> _Keys:
        """The same keys, with a new look at the files."""
        return _Keys(self._salt, self._newest_ns)

    def of(self, pair: Pair, *, unchanged: bool = False) -> str:
        """Returns the key of a pair; empty if there is none: a file is gone, or the source holds what no digest takes.

        Args:
            pair: The pair.
            unchanged: Whether a pair whose file changed since the start has none either.
        """
        parts = [self._salt, code_version()]
        try:
            for field in dataclasses.fields(pair):
                if field.name not in _OF_PAIR:
                    parts.append(f"{field.name}={self._text(getattr(pair, field.name), unchanged)}")
            for record in (pair.left, pair.right):
                parts += [f"{name}={self._text(getattr(record, name), unchanged)}" for name in _OF_RECORD]
                if record.source is not None:
                    parts.append(self._file(record.source.path, unchanged))
        except (OSError, TypeError):
            return ""
        text = "\n".join(parts)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _text(self, value: object, unchanged: bool) -> str:
        if value is None or isinstance(value, (str, int, float, bool)):
            return repr(value)
        if isinstance(value, np.dtype):
            return f"{value.name} {value.str}"
        if isinstance(value, Path):
            return self._file(value, unchanged)
        if isinstance(value, (bytes, np.ndarray)):
            return hashlib.blake2b(value.tobytes() if isinstance(value, np.ndarray) else value).hexdigest()
        if isinstance(value, (tuple, list)):
            return f"({','.join(self._text(item, unchanged) for item in value)})"
        if isinstance(value, Mapping):
            return f"({','.join(f'{key!r}:{self._text(item, unchanged)}' for key, item in value.items())})"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            fields = ",".join(f"{name}={self._text(getattr(value, name), unchanged)}" for name in names)
            return f"{type(value).__name__}({fields})"
        raise TypeError(type(value).__name__)

    def _file(self, path: Path, unchanged: bool) -> str:
        name = str(path)
        if name not in self._stats:
            found = os.stat(name)
            if unchanged and max(found.st_mtime_ns, found.st_ctime_ns) >= self._newest_ns:
                raise OSError(f"{name} changed while it was compared")
            self._stats[name] = f"{name!r}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_ino}"
        return self._stats[name]


_version: list[str] = []


def code_version() -> str:
    """Returns what identifies the code that computes the figures, and the machine, whose vectors order sums."""
    if not _version:
        digest = hashlib.blake2b(digest_size=16)
        root = Path(__file__).resolve().parent.parent
        for path in sorted(path for package in ("compare", "dumpers") for path in (root / package).rglob("*.py")):
            digest.update(path.read_bytes())
        parts = [platform.node(), platform.machine(), platform.python_version(), np.__version__]
        for name in ("precision-tool", "numba", "ml-dtypes"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                parts.append(f"{name} {metadata.version(name)}")
        digest.update("\n".join(parts).encode())
        _version.append(digest.hexdigest())
    return _version[0]

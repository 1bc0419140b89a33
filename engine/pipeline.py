"""Batches for the reference models: from a random generator or from a Criteo-format text file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.keys import hash_tokens

GENERATED_USER_IDS = 8
GENERATED_ITEM_IDS = 16
GENERATED_CATEGORY_IDS = 3
CATEGORY_RANGE = 5000

FILE_USER_IDS = 13
FILE_ITEM_IDS = 13
CRITEO_COLUMNS = ("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27)))
_FIRST_TOKEN = CRITEO_COLUMNS.index("C1")


class BatchFileError(EngineError):
    """A data file is missing or not what its format says; the message names file and line."""


@dataclass(frozen=True)
class Batch:
    """What one training step is fed.

    Attributes:
        user_ids: int64 [B, n].
        item_ids: int64 [B, m].
        label_0: float32 [B], each 0 or 1 (a file may have values between).
        label_1: float32 [B].
    """

    user_ids: NDArray[np.int64]
    item_ids: NDArray[np.int64]
    label_0: NDArray[np.float32]
    label_1: NDArray[np.float32]


def random_batches(batch_size: int, *, user_range: int, item_range: int, seed: int) -> Iterator[Batch]:
    """Yields batches without end, the same ones for the same arguments.

    Per batch ``np.random.RandomState(seed)`` draws ``item_ids`` [B, 16], ``user_ids`` [B, 8], ``category_ids`` [B, 3],
    ``label_0``, ``label_1``, in that order. The categories are no input of the model; they are drawn to keep the
    published sequence.

    Args:
        batch_size: Samples B.
        user_range: Users are 0 .. user_range-1.
        item_range: Items are 0 .. item_range-1.
        seed: Of the generator, 0 .. 2**32-1.
    """
    draw = np.random.RandomState(seed)
    while True:
        item_ids = draw.randint(0, item_range, size=(batch_size, GENERATED_ITEM_IDS), dtype=np.int64)
        user_ids = draw.randint(0, user_range, size=(batch_size, GENERATED_USER_IDS), dtype=np.int64)
        draw.randint(0, CATEGORY_RANGE, size=(batch_size, GENERATED_CATEGORY_IDS), dtype=np.int64)
        label_0 = draw.randint(0, 2, size=batch_size, dtype=np.int64).astype(np.float32)
        label_1 = draw.randint(0, 2, size=batch_size, dtype=np.int64).astype(np.float32)
        yield Batch(user_ids, item_ids, label_0, label_1)


def criteo_batches(path: Path, batch_size: int) -> Iterator[Batch]:
    """Yields batches of a Criteo-format text file without end: after its last line the file starts again.

    The file has a header line and 40 comma-separated columns, ``label,I1..I13,C1..C26``. C1..C13 become ``user_ids``
    [B, 13], C14..C26 ``item_ids`` [B, 13]: the key of a token is ``hash_tokens([token], prefix="C5=")`` with the name
    of its column, so equal tokens of two columns are two keys and a blank is a key of its own per column. ``label`` is
    ``label_0``, ``label_1`` is zero; the numbers I1..I13 are not used.

    Args:
        path: The file.
        batch_size: Samples B. Lines repeat within a batch where the file has fewer.

    Raises:
        BatchFileError: The file cannot be read, has no data line, or a line is wrong.
    """
    rows: list[list[str]] = []
    labels: list[float] = []
    while True:
        for label, tokens in read_criteo(path):
            labels.append(label)
            rows.append(tokens)
            if len(rows) == batch_size:
                yield _criteo_batch(rows, labels)
                rows, labels = [], []


def read_criteo(path: Path) -> Iterator[tuple[float, list[str]]]:
    """Yields the label and the 26 tokens of each data line, once through the file.

    Raises:
        BatchFileError: As :func:`criteo_batches`.
    """
    count = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            _check_header(path, next(lines, []))
            for cells in lines:
                count += 1
                yield _parse_line(path, lines.line_num, cells)
    except OSError as error:
        raise BatchFileError(f"{path}: cannot be read ({error.strerror or error}); give a Criteo text file") from error
    except UnicodeDecodeError as error:
        raise BatchFileError(
            f"{path}: not a text file, byte {error.object[error.start]:#04x} after data line {count}; give UTF-8 text"
        ) from error
    except csv.Error as error:
        raise BatchFileError(f"{path}:{lines.line_num}: not comma-separated text ({error})") from error
    if not count:
        raise BatchFileError(f"{path}: has a header but no data line")


def _check_header(path: Path, cells: list[str]) -> None:
    if tuple(cells) == CRITEO_COLUMNS:
        return
    if not cells:
        raise BatchFileError(f"{path}: is empty; its first line must be label,I1,...,I13,C1,...,C26")
    shown = ",".join(cells)[:60]
    raise BatchFileError(f"{path}:1: the header must be label,I1,...,I13,C1,...,C26 (40 names), found {shown!r}")


def _parse_line(path: Path, line: int, cells: list[str]) -> tuple[float, list[str]]:
    if len(cells) != len(CRITEO_COLUMNS):
        raise BatchFileError(f"{path}:{line}: {len(cells)} columns, the header has {len(CRITEO_COLUMNS)}")
    try:
        label = float(cells[0])
    except ValueError:
        raise BatchFileError(f"{path}:{line}: the label {cells[0]!r} is not a number; it must be 0 or 1") from None
    if not 0.0 <= label <= 1.0:
        raise BatchFileError(f"{path}:{line}: the label {cells[0]!r} is not between 0 and 1")
    return label, cells[_FIRST_TOKEN:]


def _criteo_batch(rows: list[list[str]], labels: list[float]) -> Batch:
    columns = [
        hash_tokens(tokens, prefix=f"{name}=")
        for name, tokens in zip(CRITEO_COLUMNS[_FIRST_TOKEN:], zip(*rows, strict=True), strict=True)
    ]
    label_0 = np.array(labels, dtype=np.float32)
    return Batch(
        user_ids=np.stack(columns[:FILE_USER_IDS], axis=1),
        item_ids=np.stack(columns[FILE_USER_IDS:], axis=1),
        label_0=label_0,
        label_1=np.zeros_like(label_0),
    )

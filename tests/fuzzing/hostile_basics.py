"""What all hostile files are made of; none of them is longer than 1 KB."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

Place = Callable[[Path], Path]
"""Changes a copy of the sample and returns the file that is hostile."""

Cases = Iterator[tuple[str, Place]]
"""Names and what they put into a copy."""

MANY = 1 << 62
NESTED_JSON = b"[" * 1000
ODD_NAMES = ("../../../../etc/passwd", "/etc/passwd", "a\x00b", "a\nb\x1b[2J", "x" * 300, "..", "")


def odd_files(file: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What may lie in place of any file; every action expects the place to be free."""
    yield "empty", file.touch
    yield "folder", file.mkdir
    yield "dangling link", lambda: file.symlink_to(file.with_name("nowhere"))
    yield "link to itself", lambda: file.symlink_to(file)
    yield "link out of the tree", lambda: file.symlink_to("/etc/hostname")
    yield "endless device", lambda: file.symlink_to("/dev/zero")
    yield "pipe", lambda: os.mkfifo(file)


def put(name: str, content: bytes) -> Place:
    def place(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return place


def json_texts(file: str, *objects: object) -> Iterator[tuple[str, Place]]:
    texts = [json.dumps(item).encode() for item in objects]
    for number, text in enumerate(
        (*texts, NESTED_JSON, b'{"a":' * 200, b"null", b"[]", b"{}", b"1", b"\xff", b"NaN", b"\0" * 9)
    ):
        yield f"text {number}", put(file, text)


def csv_rows(file: str, header: str, rows: tuple[str, ...]) -> Cases:
    """One row each below a header."""
    for number, row in enumerate((*rows, "\0", '"', "," * 500, "\xff", "9" * 400 + "," * 20)):
        yield f"row {number}", put(file, f"{header}\n{row}\n".encode("latin-1"))

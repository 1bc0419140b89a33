"""Damage to files: cut off, flipped, spliced, inflated. Every case follows from its seed and number alone."""

from __future__ import annotations

import io
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.table_files import masked_crc, varint

HEADER = 96
"""Bytes of a file that are cut at every place."""

_NUMBERS = re.compile(rb"\d+")
_WORDS = re.compile(rb"[A-Za-z_/]{3,}")
_HUGE = (0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TEXTS = (b"-1", b"0", b"1e999", b"NaN", b"99999999999", b"18446744073709551616", b"9" * 400, b"1" * 5000, b"null")
_NAMES = (b"../../../../etc/passwd", b"/etc/passwd", b"..", b"a\x00b", b"a\nb\x1b[2J", b"\xff\xfe", b"x" * 300, b"")


def cuts(size: int) -> list[int]:
    """Where a file is cut off: at every byte of its beginning and end, and at steps between."""
    step = max(1, size // 48)
    places = {*range(min(size, HEADER)), *range(0, size, step), *range(max(0, size - 16), size)}
    return sorted(places)


def mutated(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    """Returns the bytes with one to three kinds of damage; ``other`` is a file to splice from."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        raw = rng.choice(_DAMAGES)(raw, other, rng)
    return raw


def _place(raw: bytes, rng: random.Random) -> int:
    """Mostly near the beginning, where headers are."""
    limit = min(len(raw), 200) if rng.random() < 0.5 else len(raw)
    return rng.randrange(limit) if limit else 0


def _flip(raw: bytes, _: bytes, rng: random.Random) -> bytes:
    result = bytearray(raw or b"\0")
    for _count in range(rng.choice((1, 1, 2, 8))):
        result[_place(result, rng)] ^= 1 << rng.randrange(8)
    return bytes(result)


def _run(raw: bytes, _: bytes, rng: random.Random) -> bytes:
    at, size = _place(raw, rng), rng.choice((1, 2, 4, 8, 16, 64))
    return raw[:at] + rng.choice((b"\xff", b"\0", b"\x80", b"\x7f")) * size + raw[at + size :]


def _number(raw: bytes, _: bytes, rng: random.Random) -> bytes:
    at, number = _place(raw, rng), rng.choice(_HUGE)
    if rng.random() < 0.5:
        return raw[:at] + varint(number) + raw[at + rng.choice((0, 1, 2)) :]
    packed = struct.pack("<Q", number)[: rng.choice((2, 4, 8))]
    return raw[:at] + packed + raw[at + len(packed) :]


def _splice(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    source = other if rng.random() < 0.5 else raw
    start, at = _place(source, rng), _place(raw, rng)
    block = source[start : start + rng.choice((1, 4, 16, 64, 256))]
    return raw[:at] + block + raw[at + rng.choice((0, len(block))) :]


def _remove(raw: bytes, _: bytes, rng: random.Random) -> bytes:
    at = _place(raw, rng)
    return raw[:at] + raw[at + rng.choice((1, 2, 8, 32)) :]


def _cut(raw: bytes, _: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _retext(pattern: re.Pattern[bytes], texts: tuple[bytes, ...]) -> Callable[[bytes, bytes, random.Random], bytes]:
    def damage(raw: bytes, other: bytes, rng: random.Random) -> bytes:
        found = list(pattern.finditer(raw))
        if not found:
            return _flip(raw, other, rng)
        match = rng.choice(found)
        return raw[: match.start()] + rng.choice(texts) + raw[match.end() :]

    return damage


_DAMAGES = (_flip, _run, _number, _splice, _remove, _cut, _retext(_NUMBERS, _TEXTS), _retext(_WORDS, _NAMES))


# Files with checksums: damage below the checksum, which is then made right again.


def below_checksums(path: Path, raw: bytes, other: bytes, rng: random.Random) -> bytes | None:
    """Returns the file damaged inside its members, records or blocks with right checksums; None where it has none."""
    if raw[:4] == b"PK\x03\x04":
        return _in_zip(raw, other, rng)
    if ".tfevents." in path.name or path.name.startswith("tfdbg_events."):
        return _in_records(raw, other, rng)
    if raw[-8:] == struct.pack("<Q", 0xDB4775248B80FB57):
        return _in_table(raw, other, rng)
    return None


def _in_zip(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    victim = rng.randrange(len(members))
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        for number, (info, content) in enumerate(members):
            new = zipfile.ZipInfo(info.filename)
            new.compress_type = info.compress_type
            archive.writestr(new, mutated(content, other, rng) if number == victim else content)
    return result.getvalue()


def records(raw: bytes) -> Iterator[bytes]:
    """The payloads of TFRecord framing."""
    at = 0
    while at + 12 <= len(raw):
        (size,) = struct.unpack_from("<Q", raw, at)
        yield raw[at + 12 : at + 12 + size]
        at += 16 + size


def framed(payload: bytes) -> bytes:
    """One payload in TFRecord framing."""
    length = struct.pack("<Q", len(payload))
    return length + _checksum(length) + payload + _checksum(payload)


def _in_records(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    payloads = list(records(raw))
    victim = rng.randrange(len(payloads))
    payloads[victim] = mutated(payloads[victim], other, rng)
    return b"".join(framed(payload) for payload in payloads)


def _in_table(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    """One data block lies first; metaindex and index follow, the footer says where."""
    numbers, at = [], len(raw) - 48
    for _ in range(4):
        number, at = _read_varint(raw, at)
        numbers.append(number)
    meta_at, meta_size, index_at, index_size = numbers
    blocks = [(0, meta_at - 5), (meta_at, meta_size), (index_at, index_size)]
    victim, size = rng.choice(blocks)
    damaged = mutated(raw[victim : victim + size], other, rng)[:size].ljust(size, b"\0")
    trailer = raw[victim + size : victim + size + 1]
    return raw[:victim] + damaged + trailer + _checksum(damaged + trailer) + raw[victim + size + 5 :]


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc(data))

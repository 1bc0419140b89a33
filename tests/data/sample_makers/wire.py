"""Bytes of protobuf messages and device files, put together by hand.

On purpose independent of the project's own schema and writers: what they have wrong must not be wrong here too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ND, NCHW, NHWC, HWCN = 2, 0, 1, 16
NC1HWC0, FRACTAL_Z, FRACTAL_NZ, NDC1HWC0, NCDHW = 3, 4, 29, 32, 30
FLOAT, FLOAT16, INT32, INT64, BFLOAT16, INT4 = 1, 2, 7, 8, 27, 28
HIFLOAT8, FLOAT8_E5M2, FLOAT8_E4M3FN = 33, 34, 35

NUMBERS = {"float32": FLOAT, "float16": FLOAT16, "int32": INT32, "int64": INT64, "int8": 3, "uint8": 4}


def varint(number: int) -> bytes:
    """A base-128 number; a negative one as its 64-bit complement."""
    number &= (1 << 64) - 1
    result = b""
    while number > 0x7F:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


def field(number: int, value: int | float | bytes | str) -> bytes:
    """One field: an integer as varint, a float in four bytes, bytes and text with their length."""
    if isinstance(value, bool | int):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def message(*parts: tuple[int, int | float | bytes | str]) -> bytes:
    """A message of fields in the given order."""
    return b"".join(field(number, value) for number, value in parts)


def shape(dims: Sequence[int]) -> bytes:
    """A shape, its dimensions packed into one field as newer writers do."""
    return field(1, b"".join(varint(dim) for dim in dims)) if dims else b""


@dataclass(frozen=True)
class Stored:
    """A tensor as a device file has it."""

    data: bytes
    dtype: int
    shape: tuple[int, ...]
    format: int = ND
    original: tuple[int, ...] | None = None
    size: int | None = None

    @classmethod
    def of(cls, array: np.ndarray, format: int = ND, original: tuple[int, ...] | None = None) -> Stored:  # noqa: A002
        """A plain NumPy array."""
        return cls(array.tobytes(), NUMBERS[array.dtype.name], array.shape, format, original)

    @property
    def padded(self) -> int:
        """What the device says as size: rounded up to 32, and 32 more."""
        return (-(-len(self.data) // 32) * 32 + 32 if self.data else 0) if self.size is None else self.size

    def descriptor(self, output: bool, inline: bool = False) -> bytes:
        """``OpOutput`` or ``OpInput``: they number data, size and original shape differently."""
        data, size, original = (5, 6, 7) if output else (4, 5, 6)
        parts = [(1, self.dtype), (2, self.format), (3, shape(self.shape))]
        parts += [(data, self.data)] if inline else [(size, self.padded)]
        return message(*parts, (original, shape(self.shape if self.original is None else self.original)))


def dump_header(
    name: str, inputs: Sequence[Stored], outputs: Sequence[Stored], attrs: Sequence[tuple[str, str]]
) -> bytes:
    """The ``DumpData`` message of a current file."""
    parts: list[tuple[int, int | float | bytes | str]] = [(1, "2.0"), (2, 1706168000000000)]
    parts += [(3, tensor.descriptor(True)) for tensor in outputs]
    parts += [(4, tensor.descriptor(False)) for tensor in inputs]
    parts += [(6, name)] if name else []
    return message(*parts, *((7, message((1, key), (2, value))) for key, value in attrs))


def dump_file(
    name: str, inputs: Sequence[Stored], outputs: Sequence[Stored], attrs: Sequence[tuple[str, str]] = ()
) -> bytes:
    """A whole dump file; the padding is 0xEE, so that a reader that takes it for data is caught."""
    header = dump_header(name, inputs, outputs, attrs)
    fillers = (
        min(tensor.padded - len(tensor.data), 64) for tensor in (*inputs, *outputs)
    )  # a claimed size may be huge
    payload = b"".join(tensor.data + b"\xee" * size for tensor, size in zip((*inputs, *outputs), fillers, strict=True))
    return struct.pack("<Q", len(header)) + header + payload


def old_dump_file(inputs: Sequence[Stored], outputs: Sequence[Stored]) -> bytes:
    """The very old form: one message, the bytes inside the descriptors."""
    parts: list[tuple[int, int | float | bytes | str]] = [(1, "1.0"), (2, 1706168000000000)]
    parts += [(3, tensor.descriptor(True, inline=True)) for tensor in outputs]
    parts += [(4, tensor.descriptor(False, inline=True)) for tensor in inputs]
    return message(*parts)


def overflow_old(status: int, task: int, stream: int) -> bytes:
    """The 2048-byte overflow record with an AI core status."""
    raw = bytearray(2048)
    struct.pack_into("<6Q", raw, 256, 1, stream, task, 0, 0x1000, 0x2000)
    struct.pack_into("<3Q", raw, 1024, 0x77, 0, status)
    return bytes(raw)


def overflow_new(status: int, task: int, stream: int) -> bytes:
    """The newer overflow record of an AIV unit, version 0."""
    words = (1, stream, task, 0, 65535, 65535, 0x1000, 0x2000, 3, 0, status)
    return struct.pack("<6I", 0x5A5A5A5A, 0, 1, 1, 0, 8 * len(words)) + struct.pack(f"<{len(words)}Q", *words)


def om_container(model: bytes, weights: bytes, name: bytes = b"sample") -> bytes:
    """An ``.om`` file with two partitions: the model and its weights."""
    table = (
        struct.pack("<I", 2) + struct.pack("<III", 0, 0, len(model)) + struct.pack("<III", 1, len(model), len(weights))
    )
    header = bytearray(256)
    header[:4] = b"IMOD"
    struct.pack_into("<II", header, 4, 256, 0x10000000)
    struct.pack_into("<I", header, 76, len(table) + len(model) + len(weights))
    header[84 : 84 + len(name)] = name
    return bytes(header) + table + model + weights


def attr(key: str, value: bytes) -> tuple[int, bytes]:
    """An op attribute; ``value`` is an encoded ``AttrDef``."""
    return 10, message((1, key), (2, value))


def text_list(texts: Sequence[str]) -> bytes:
    """An ``AttrDef`` that holds a list of texts."""
    return field(1, message(*((2, text) for text in texts), (20, 1)))

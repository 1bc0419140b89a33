"""CRC-32C against the definition, known values, and buffers of every kind that readers hand over."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from dumpers.formats.crc32c import crc32c, masked, unmasked
from tests.table_files import crc, masked_crc

KNOWN = {
    b"": 0x00000000,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}
"""The last four are the examples of RFC 3720."""


@pytest.mark.parametrize(("data", "value"), KNOWN.items())
def test_known_values(data, value):
    assert crc32c(data) == value


def slow(data, value=0):
    """Byte by byte, with a table made from the definition."""
    steps = [crc(bytes([byte])) ^ crc(b"\0") for byte in range(256)]
    register = value ^ 0xFFFFFFFF
    for byte in data:
        register = steps[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 7, 8, 255, 256, 1000, 4096, 3 * 8192 + 5, 100_003])
@pytest.mark.parametrize("before", [0, 0x12345678])
def test_every_length_gives_the_definition(size, before):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data, before) == slow(data, before)


def test_pieces_give_the_whole():
    data = np.random.default_rng(1).bytes(300_000)
    whole = crc32c(data)
    for cut in (0, 1, 1000, 123_457, 299_999, 300_000):
        assert crc32c(memoryview(data)[cut:], crc32c(data[:cut])) == whole


def test_a_flipped_bit_is_seen_wherever_it_is():
    data = bytearray(np.random.default_rng(2).bytes(200_000))
    right = crc32c(data)
    for bit in np.random.default_rng(3).integers(0, 8 * len(data), 40):
        data[bit // 8] ^= 1 << bit % 8
        assert crc32c(data) != right
        data[bit // 8] ^= 1 << bit % 8
    assert crc32c(data) == right


def test_any_buffer_of_bytes(tmp_path):
    data = np.arange(5000, dtype=np.float32)
    (tmp_path / "file").write_bytes(data.tobytes())
    with open(tmp_path / "file", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert crc32c(mapped) == crc32c(data.tobytes()) == crc32c(data.data) == crc32c(bytearray(data.tobytes()))
    assert crc32c(np.empty(0, np.uint8).data) == 0


def test_masking():
    assert masked(crc(b"foo")) == masked_crc(b"foo")
    for value in (0, 1, 0xFFFFFFFF, 0x80000000, 0x12345678):
        assert unmasked(masked(value)) == value
        assert masked(value) != value

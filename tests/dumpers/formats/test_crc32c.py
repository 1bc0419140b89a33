"""CRC-32C against the definition, TensorFlow's own files and known values."""

from __future__ import annotations

import mmap
import time

import numpy as np
import pytest

from dumpers.formats import crc32c as module
from dumpers.formats.crc32c import crc32c, masked, unmasked
from tests.table_files import crc, masked_crc

POLYNOMIAL = 0x11EDC6F41

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
    table = np.array([crc(bytes([byte])) ^ crc(b"\0") for byte in range(256)], dtype=np.uint64)
    register = value ^ 0xFFFFFFFF
    steps = [int(step) for step in table]
    for byte in data:
        register = steps[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


FOLDED = 8 * (2 * module._FAR + 1)
"""From so many bytes on words are folded."""


@pytest.mark.parametrize(
    "size",
    [1, 7, 8, 511, 512, 513, 519, 1000, 4096, 8 * module._FAR, FOLDED - 8, FOLDED, FOLDED + 5]
    + [8 * (module._ROUND + k) for k in (-1, 0, 1)],
)
@pytest.mark.parametrize("before", [0, 0x12345678])
def test_every_way_of_computing_it_gives_the_definition(size, before):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data, before) == slow(data, before)


def test_pieces_give_the_whole():
    data = np.random.default_rng(1).bytes(300_000)
    whole = crc32c(data)
    for cut in (0, 1, 1000, 123_457, 299_999):
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


def test_the_sparse_multiple_that_folding_rests_on_is_one():
    def power(exponent):
        value = 1
        for _ in range(exponent):
            value <<= 1
            value ^= POLYNOMIAL if value >> 32 else 0
        return value

    far, near, middle = module._FAR, module._NEAR, module._MIDDLE
    assert power(far) ^ power(far - near) ^ power(far - middle) ^ 1 == 0


def test_masking():
    assert masked(crc(b"foo")) == masked_crc(b"foo")
    for value in (0, 1, 0xFFFFFFFF, 0x80000000, 0x12345678):
        assert unmasked(masked(value)) == value
        assert masked(value) != value


def test_speed_is_far_from_that_of_a_loop():
    data = np.random.default_rng(4).bytes(16 << 20)
    crc32c(data[: 1 << 20])
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        crc32c(data)
        seconds.append(time.perf_counter() - begin)
    assert len(data) / min(seconds) > 50e6  # a loop in Python makes 10; 2000 were measured on a quiet machine

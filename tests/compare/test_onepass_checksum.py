"""Folding of CRC-32C in compiled code, against the package that takes it by other means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from numba import njit, types

from compare.onepass import checksum

pytestmark = pytest.mark.skipif(not checksum.HARDWARE, reason="this processor has no instruction that the kernel knows")


@pytest.mark.parametrize("start", [0, 0x12345678, 0xFFFFFFFF])
def test_blocks_of_any_size_and_place(start: int) -> None:
    room = np.random.default_rng(start).integers(0, 256, 1200, np.uint8)
    for size in range(1100):
        block = room[size % 64 : size % 64 + size]
        found = int(checksum.add(block, np.uint64(start ^ checksum.INVERSE))) ^ checksum.INVERSE
        assert found == crc32c(block.tobytes(), start), size


@pytest.mark.parametrize("lanes", sorted({1, checksum.LANES}))
@pytest.mark.parametrize("pieces", [1, 2, 3, 1000])
def test_every_width_of_register(lanes: int, pieces: int) -> None:
    folded = checksum.folding(lanes)

    @njit  # type: ignore[untyped-decorator]
    def call(block: Any, crc: Any) -> Any:
        return folded(types.uintp(block.ctypes.data), block.size // (64 * lanes), crc)

    block = np.random.default_rng(pieces).integers(0, 256, 64 * lanes * pieces, np.uint8)
    assert int(call(block, np.uint64(checksum.INVERSE))) ^ checksum.INVERSE == crc32c(block.tobytes())


def test_a_turned_bit_anywhere_is_seen() -> None:
    block = np.zeros(700, np.uint8)
    start = np.uint64(checksum.INVERSE)
    found = {int(checksum.add(block, start))}
    for at in range(block.size):
        block[at] = 1 << (at % 8)
        found.add(int(checksum.add(block, start)))
        block[at] = 0
    assert len(found) == block.size + 1

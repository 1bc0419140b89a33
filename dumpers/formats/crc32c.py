"""CRC-32C (Castagnoli), the checksum of TensorFlow's tables, checkpoints and record files.

The sum itself is taken by the package ``crc32c``: with the processor's own instruction where there is one, by tables
where there is none. Long data are worked off without the interpreter's lock.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from crc32c import crc32c as _crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap

_MASK_DELTA: Final = 0xA282EAD8


def crc32c(data: Buffer, value: int = 0) -> int:
    """Returns the CRC-32C of bytes, or of bytes before them (whose checksum is ``value``) and these.

    Args:
        data: Contiguous bytes.
        value: Checksum of what came before.
    """
    return int(_crc32c(data, value))


@dataclass(slots=True)
class RunningChecksum:
    """Takes the checksum of bytes that somebody else reads from first to last.

    Attributes:
        check: Called now and then; raises to end the reading.
        value: Checksum so far.
        seen: Bytes so far.
    """

    check: Callable[[], None]
    value: int = 0
    seen: int = 0

    def add(self, block: memoryview) -> None:
        """Takes the next bytes."""
        self.check()
        self.value = crc32c(block, self.value)
        self.seen += block.nbytes

    def went_on(self, value: int, size: int) -> None:
        """Takes what somebody else made of the checksum by the next ``size`` bytes."""
        self.check()
        self.value = value
        self.seen += size


def masked(crc: int) -> int:
    """Returns a checksum as files store it: turned and shifted, so that a checksum over checksums stays useful."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def unmasked(crc: int) -> int:
    """Returns the checksum behind a stored one."""
    turned = (crc - _MASK_DELTA) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF

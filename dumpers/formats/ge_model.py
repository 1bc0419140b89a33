"""The container of compiled models (``.om``): where the graph and the weights lie."""

from __future__ import annotations

import struct
from typing import Final

from dumpers.errors import DataError

_MAGIC: Final = b"IMOD"
_GRAPH: Final = 0
_WEIGHTS: Final = 1


def is_model_container(raw: bytes) -> bool:
    """Tells whether bytes begin like an ``.om`` file."""
    return raw[:4] == _MAGIC


def model_bytes(raw: bytes) -> bytes:
    """Returns the serialized graph of an ``.om`` file; other bytes are returned as they are.

    Raises:
        DataError: the container's table points outside the file.
    """
    return _partition(raw, _GRAPH) if is_model_container(raw) else raw


def weight_bytes(raw: bytes) -> bytes:
    """Returns the weights partition of an ``.om`` file; a constant's ``data_offset`` counts from its start.

    Raises:
        DataError: no such container, or its table points outside the file.
    """
    if not is_model_container(raw):
        raise DataError("is not an .om file")
    return _partition(raw, _WEIGHTS)


def _partition(raw: bytes, wanted: int) -> bytes:
    try:
        (header,) = struct.unpack_from("<I", raw, 4)
        (count,) = struct.unpack_from("<I", raw, header)
        if count > 64:
            raise DataError(f"has a table of {count} partitions; the .om version is not known")
        table = [struct.unpack_from("<III", raw, header + 4 + 12 * index) for index in range(count)]
    except struct.error as error:
        raise DataError("was cut off inside the .om header") from error
    start = header + 4 + 12 * count
    for kind, offset, size in table:
        if kind == wanted:
            if start + offset + size > len(raw):
                raise DataError(f"partition {kind} reaches past the end; the .om file was cut off")
            return raw[start + offset : start + offset + size]
    raise DataError(f"has no partition {wanted}; the .om version is not known")

"""The file beside each slice of a sparse tree that says how many rows it has, how wide, and how large a value is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.raw import open_regular

KEY_BYTES: Final = 8
"""Of a key, int64."""

VALUE_BYTES: Final = 4
"""Of a value, float32."""

_ATTRIBUTE_LIMIT: Final = 1 << 16


def read_attribute(path: Path, *, keys: bool) -> tuple[int, int]:
    """Returns the number of rows and the values of each that an attribute claims.

    Args:
        path: The file.
        keys: Whether it belongs to keys, else to rows.

    Raises:
        DataError: it is none, or claims what cannot be.
    """
    with open_regular(path) as file:
        raw = file.read(_ATTRIBUTE_LIMIT + 1)
    binary = 2 if keys else 3  # numbers; no JSON that says enough is as short, and 123 rows begin with a brace too
    in_json = raw[:1] == b"{" and len(raw) != binary * KEY_BYTES
    numbers = _json_attribute(path, raw) if in_json else _binary_attribute(path, raw, binary)
    item = numbers[-1]
    rows, width = numbers[0], 1 if keys else numbers[1]
    if min(rows, width) < 0 or max(rows, width) >= 1 << 48:
        raise DataError(f"{path}: claims {rows} rows of {width}; damaged, save the model again")
    expected = KEY_BYTES if keys else VALUE_BYTES
    if item != expected:
        raise DataError(f"{path}: claims {item} bytes a value, which are {expected} here; damaged, or another format")
    return rows, width


def _binary_attribute(path: Path, raw: bytes, count: int) -> list[int]:
    if len(raw) != count * KEY_BYTES:
        raise DataError(f"{path}: {len(raw)} bytes, an attribute here has {count * KEY_BYTES}; save the model again")
    return [int(number) for number in np.frombuffer(raw, "<i8")]


def _json_attribute(path: Path, raw: bytes) -> list[int]:
    """An attribute of the older generation: ``data_type`` and ``shape``."""
    try:
        found = json.loads(raw)
        shape, dtype = found["shape"], str(found["data_type"])
        numbers = [number for number in shape if type(number) is int]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: is no attribute (data_type and shape as JSON); save the model again") from error
    if not 1 <= len(numbers) <= 2 or len(numbers) != len(shape):
        raise DataError(f"{path}: claims shape {shape}; damaged, save the model again")
    sizes = {"int64": KEY_BYTES, "float32": VALUE_BYTES}
    return [numbers[0], numbers[-1] if len(numbers) == 2 else 1, sizes.get(dtype, 0)]

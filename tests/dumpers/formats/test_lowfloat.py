"""Eight-bit floats and packed bits against the rules of their formats, written down a second time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from dumpers.formats.lowfloat import decode, decoded_dtype, hifloat8_value, stored_bytes


def hifloat8_by_text(code: int) -> float:
    """The table of the format, read from the bit string."""
    if code == 0x80:
        return math.nan
    sign, bits = (-1 if code >> 7 else 1), f"{code & 127:07b}"
    if code & 127 == 0x6F:
        return sign * math.inf
    if bits.startswith("0000"):
        m = int(bits[4:], 2)
        return sign * 2.0 ** (m - 23) if m else 0.0
    for prefix, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if bits.startswith(prefix):
            rest = bits[len(prefix) :]
            field, fraction = rest[:width], rest[width:]
            exponent = int("1" + field[1:], 2) * (-1 if field[0] == "1" else 1) if width else 0
            return sign * 2.0**exponent * (1 + int(fraction, 2) / 2 ** len(fraction))
    raise AssertionError(bits)


@pytest.mark.parametrize("code", range(256))
def test_hifloat8_every_code(code: int):
    expected, got = hifloat8_by_text(code), hifloat8_value(code)
    assert got == expected or (math.isnan(got) and math.isnan(expected))


def test_hifloat8_values_are_distinct():
    values = [hifloat8_value(code) for code in range(256)]
    finite = [value for value in values if math.isfinite(value)]
    assert len(set(finite)) == len(finite) == 253


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "int16"])
def test_plain_encodings_are_views(dtype: str):
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    raw = np.arange(8, dtype=np.uint8)
    assert decode(raw, dtype, 8 // wanted.itemsize).tobytes() == raw.tobytes()
    assert decoded_dtype(dtype) == dtype
    assert stored_bytes(dtype, 4) == 4 * wanted.itemsize


def test_e8m0():
    got = decode(np.array([0, 126, 127, 130, 255], np.uint8), "float8_e8m0fnu", 5)
    assert got[:4].tolist() == [2.0**-127, 0.5, 1, 8]
    assert np.isnan(got[4])


def test_packed_bits_most_significant_first():
    got = decode(np.array([0xB1, 0x01], np.uint8), "uint1", 16)
    assert got.tolist() == [1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert stored_bytes("uint1", 9) == 2


def test_types_without_a_reading():
    for name in ("int2", "string", "resource", "hifloat4", "type_99"):
        with pytest.raises(ValueError, match="dtype"):
            decoded_dtype(name)

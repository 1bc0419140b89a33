"""Element encodings against the rules of their formats, written down a second time, and against ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpers.formats.enums import DTYPE_OF
from dumpers.formats.lowfloat import decode, decoded_dtype, encode, hifloat8_value, stored_bytes


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


def test_hifloat8_codes_of_the_format_description():
    named = {0x08: 1, 0x0C: 1.5, 0x10: 2, 0x18: 0.5, 0x20: 4, 0x40: 16, 0x60: 256, 0x88: -1, 0x6F: math.inf, 0x00: 0}
    got = decode(np.array(list(named), np.uint8), "hifloat8", len(named))
    assert got.tolist() == list(named.values())
    assert encode(np.array(list(named.values())), "hifloat8").tolist() == list(named)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "int16", "float64", "bool"])
def test_plain_encodings_are_views(dtype: str):
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    raw = np.array([0, 1] * 4 if dtype == "bool" else range(8), np.uint8)
    got = decode(raw, dtype, 8 // wanted.itemsize)
    assert got.dtype == wanted
    assert got.tobytes() == raw.tobytes()
    assert encode(got, dtype).tobytes() == raw.tobytes()
    assert decoded_dtype(dtype) == dtype
    assert stored_bytes(dtype, 4) == 4 * wanted.itemsize


def bits_of(raw: bytes, width: int) -> list[int]:
    """Elements of less than a byte, the first in the low bits."""
    return [byte >> place & ((1 << width) - 1) for byte in raw for place in range(0, 8, width)]


@pytest.mark.parametrize(
    ("encoding", "width", "signed"), [("int4", 4, 1), ("uint4", 4, 0), ("int2", 2, 1), ("uint2", 2, 0)]
)
def test_packed_integers_of_every_byte(encoding: str, width: int, signed: int):
    raw = bytes(range(256))
    expected = [code - (1 << width) if signed and code >> (width - 1) else code for code in bits_of(raw, width)]
    got = decode(np.frombuffer(raw, np.uint8), encoding, len(expected))
    assert got.tolist() == expected
    assert got.dtype.name == decoded_dtype(encoding) == ("int8" if signed else "uint8")
    assert encode(got, encoding).tobytes() == raw
    if hasattr(ml_dtypes, encoding):  # one element a byte there
        plain = np.array(expected, np.int32).astype(getattr(ml_dtypes, encoding))
        assert plain.astype(np.int32).tolist() == got.tolist()


@given(st.sampled_from(["int4", "uint4", "int2", "uint2", "uint1"]), st.data())
@settings(max_examples=60, deadline=None)
def test_packed_elements_of_any_number(encoding: str, data: st.DataObject):
    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3), "uint1": (0, 1)}[encoding]
    values = np.array(data.draw(st.lists(st.integers(low, high), max_size=19)), decoded_dtype(encoding))
    raw = encode(values, encoding)
    assert raw.size == stored_bytes(encoding, values.size)
    np.testing.assert_array_equal(decode(raw, encoding, values.size), values, strict=True)
    for wrong in (low - 1, high + 1):
        with pytest.raises(ValueError, match="reach"):
            encode(np.array([wrong]), encoding)


FLOAT4 = {
    "float4_e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6],
    "float4_e1m2": [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75],
    "hifloat4": [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75],
}


@pytest.mark.parametrize("encoding", FLOAT4)
def test_float4_of_every_byte(encoding: str):
    values = [*FLOAT4[encoding], *(-value for value in FLOAT4[encoding])]
    raw = bytes(range(256))
    got = decode(np.frombuffer(raw, np.uint8), encoding, 511)  # the last half byte is not an element
    expected = np.array([values[code] for code in bits_of(raw, 4)], np.float32)[:511]
    np.testing.assert_array_equal(got, expected, strict=True)
    assert (
        np.signbit(got).tolist() == np.signbit([-1.0 if code & 8 else 1.0 for code in bits_of(raw, 4)])[:511].tolist()
    )
    assert encode(got, encoding).tobytes() == raw[:-1] + b"\x0f"
    assert stored_bytes(encoding, 511) == 256


def nearest(value: float, table: list[float], away: bool) -> set[float]:
    """All values of a table that a number may be rounded to."""
    best = min(abs(entry - value) for entry in table)
    found = {entry for entry in table if abs(entry - value) == best}
    return {max(found, key=abs)} if away else found


@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=30), st.sampled_from(sorted(FLOAT4)))
@settings(max_examples=60, deadline=None)
def test_float4_rounds_to_nearest(values: list[float], encoding: str):
    table = [*FLOAT4[encoding], *(-value for value in FLOAT4[encoding])]
    got = decode(encode(np.array(values), encoding), encoding, len(values))
    for value, rounded in zip(values, got.tolist(), strict=True):
        assert rounded in nearest(value, table, away=False)
        assert math.copysign(1, rounded) == math.copysign(1, value)


def test_float4_ties_go_to_even_and_large_values_stop():
    got = decode(
        encode(np.array([0.25, 0.75, 1.25, 2.5, 3.5, 5, 7, math.inf, -math.inf]), "float4_e2m1"), "float4_e2m1", 9
    )
    assert got.tolist() == [0, 1, 1, 2, 4, 4, 6, 6, -6]
    with pytest.raises(ValueError, match="NaN"):
        encode(np.array([1, math.nan]), "float4_e2m1")


def test_float4_and_e8m0_as_ml_dtypes_has_them():
    if not hasattr(ml_dtypes, "float4_e2m1fn"):
        pytest.skip("this ml_dtypes has neither float4_e2m1fn nor float8_e8m0fnu")
    values = np.concatenate([np.linspace(-7, 7, 2001), [0.0, -0.0]]).astype(np.float32)
    codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(
        encode(values, "float4_e2m1"), codes[::2] | np.append(codes[1::2], 0)[: -(-codes.size // 2)] << 4
    )
    powers = np.ldexp(np.linspace(1, 2, 9), np.arange(-120, 120)[:, None]).ravel()
    np.testing.assert_array_equal(
        encode(powers, "float8_e8m0fnu"), powers.astype(np.float32).astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    )


@given(st.lists(st.floats(width=32), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_hifloat8_rounds_to_nearest_with_ties_away_from_zero(values: list[float]):
    table = [49152.0, -49152.0, *(v for v in map(hifloat8_by_text, range(256)) if math.isfinite(v))]
    got = decode(encode(np.array(values), "hifloat8"), "hifloat8", len(values)).tolist()
    for value, rounded in zip(values, got, strict=True):
        if math.isnan(value):
            assert math.isnan(rounded)
        elif abs(value) >= 40960:  # the middle between the largest value and what would come next
            assert rounded == math.copysign(math.inf, value)
        else:
            assert {rounded} == nearest(value, table, away=True)


def test_every_code_of_the_eight_bit_encodings_survives():
    for encoding in ("hifloat8", "float8_e8m0fnu", "float8_e5m2", "float8_e4m3fn"):
        codes = np.arange(256, dtype=np.uint8)
        values = decode(codes, encoding, 256)
        again = encode(values, encoding)
        same = (again == codes) | np.isnan(values.astype(np.float32))
        assert same.all(), encoding
        assert (
            np.isnan(decode(again, encoding, 256).astype(np.float32)).tolist()
            == np.isnan(values.astype(np.float32)).tolist()
        )


def fp8_by_rule(code: int, exponent_bits: int, bias: int, infinite: bool) -> float:
    """E5M2 and E4M3FN by their description."""
    fraction_bits = 7 - exponent_bits
    sign = -1.0 if code & 128 else 1.0
    exponent, fraction = (code & 127) >> fraction_bits, code & ((1 << fraction_bits) - 1)
    if infinite and exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if not infinite and code & 127 == 127:
        return math.nan
    part = fraction / (1 << fraction_bits)
    return sign * (2.0 ** (exponent - bias) * (1 + part) if exponent else 2.0 ** (1 - bias) * part)


@pytest.mark.parametrize(("encoding", "rule"), [("float8_e5m2", (5, 15, True)), ("float8_e4m3fn", (4, 7, False))])
def test_fp8_of_every_code(encoding: str, rule: tuple[int, int, bool]):
    got = decode(np.arange(256, dtype=np.uint8), encoding, 256).astype(np.float32)
    np.testing.assert_array_equal(got, np.array([fp8_by_rule(code, *rule) for code in range(256)], np.float32))


def test_e8m0():
    got = decode(np.array([0, 126, 127, 130, 254, 255], np.uint8), "float8_e8m0fnu", 6)
    assert got[:5].tolist() == [2.0**-127, 0.5, 1, 8, 2.0**127]
    assert np.isnan(got[5])
    values = np.array([1, 1.4, 1.5, 2.9, 3, 2.0**-140, 1.5 * 2.0**127, 0, -1, math.nan, math.inf])
    assert encode(values, "float8_e8m0fnu").tolist() == [127, 127, 128, 128, 129, 0, 255, 255, 255, 255, 255]


def test_packed_bits_most_significant_first():
    got = decode(np.array([0xB1, 0x01], np.uint8), "uint1", 16)
    assert got.tolist() == [1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert encode(got, "uint1").tolist() == [0xB1, 0x01]
    assert stored_bytes("uint1", 9) == 2


def test_complex32_is_two_halves():
    parts = np.array([1.5, -2, 0, 65504, math.inf, 2.0**-24], np.float16)
    got = decode(parts.view(np.uint8), "complex32", 3)
    assert got.dtype == np.complex64
    assert got.tolist() == [1.5 - 2j, 65504j, complex(math.inf, 2.0**-24)]
    assert encode(got, "complex32").tobytes() == parts.tobytes()
    assert stored_bytes("complex32", 3) == 12


@pytest.mark.parametrize(
    ("encoding", "plain"),
    [("qint8", "int8"), ("qint16", "int16"), ("qint32", "int32"), ("quint8", "uint8"), ("quint16", "uint16"),
     ("dual_sub_int8", "int8"), ("dual_sub_uint8", "uint8")],
)  # fmt: skip
def test_quantised_types_are_plain_integers(encoding: str, plain: str):
    values = np.array([np.iinfo(plain).min, 0, 1, np.iinfo(plain).max], plain)
    raw = encode(values, encoding)
    assert raw.tobytes() == values.tobytes()
    np.testing.assert_array_equal(decode(raw, encoding, 4), values, strict=True)
    assert decoded_dtype(encoding) == plain
    with pytest.raises(ValueError, match="reach"):
        encode(values.astype(np.int64) + 1, encoding)


def test_integers_are_not_made_of_fractions():
    with pytest.raises(ValueError, match="no integers"):
        encode(np.array([0.5]), "int8")
    with pytest.raises(ValueError, match="no integers"):
        encode(np.array([0.5]), "int4")


WITHOUT_A_READING = {
    "float6_e3m2": "packed", "float6_e2m3": "packed", "hifloat4_scale": "public", "dual": "public",
    "string": "no reading", "resource": "no reading", "type_99": "no reading",
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_A_READING)
def test_types_without_a_reading_say_why(name: str):
    for call in (lambda: decoded_dtype(name), lambda: stored_bytes(name, 3), lambda: encode(np.zeros(3), name)):
        with pytest.raises(ValueError, match=WITHOUT_A_READING[name]):
            call()


def test_every_type_of_the_dump_enum_has_a_reading_or_is_named_here():
    without = {*WITHOUT_A_READING, "string_ref", "variant", "undefined"}
    for dtype in DTYPE_OF.values():
        if dtype not in without:
            one = decode(np.zeros(16, np.uint8), dtype, 16 * 16 // stored_bytes(dtype, 16))
            assert one.dtype.name == decoded_dtype(dtype), dtype

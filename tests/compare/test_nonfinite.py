"""NaN and infinities are counted by their bits: against what the numbers are, for every pattern of the small types."""

from __future__ import annotations

import math
import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.nonfinite import BLOCK_BYTES, CLEAN, Counts, Scratch, count_array, count_values, form_of, merged
from compare.onepass.nonfinite import scan_file, scan_memory

SMALL = ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3", "float8_e3m4"]
WIDE = {"float32": "uint32", "float64": "uint64"}


def dtype_of(name):
    if hasattr(ml_dtypes, name):
        return np.dtype(getattr(ml_dtypes, name))
    if name.startswith("float8"):
        pytest.skip(f"this ml_dtypes has no {name}")
    return np.dtype(name)


def plain_kind(value) -> str:
    """What a Python number is; of a complex one the worse part."""
    if isinstance(value, complex):
        kinds = {plain_kind(value.real), plain_kind(value.imag)}
        return next(kind for kind in ("nan", "inf", "-inf", "") if kind in kinds)
    return "nan" if math.isnan(value) else "" if math.isfinite(value) else "inf" if value > 0 else "-inf"


def expected(values) -> Counts:
    with np.errstate(all="ignore"):
        plain = values.reshape(-1).astype(np.complex128 if values.dtype.kind == "c" else np.float64).tolist()
    kinds = [plain_kind(value) for value in plain]
    first = next((at for at, kind in enumerate(kinds) if kind), None)
    return Counts(*(kinds.count(k) for k in ("nan", "inf", "-inf")), first, "" if first is None else kinds[first])


def all_ways(values, tmp_path=None):
    """Every way there is to count, each with fresh or used memory."""
    form, scratch = form_of(values.dtype), Scratch()
    found = [count_array(values), count_values(values.reshape(-1))]
    scratch.raw[:] = 255  # rests of an earlier block must not count
    if form is not None:
        found.append(scan_memory(values, form, scratch))
    if values.nbytes <= BLOCK_BYTES:
        scratch.raw[:] = 255
        scratch.raw[: values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        found.append(scratch.count(values.nbytes, 0, values.dtype))
    if tmp_path is not None:
        path = tmp_path / "data"
        path.write_bytes(b"\xff" * 7 + np.ascontiguousarray(values).tobytes())
        fd = os.open(path, os.O_RDONLY)
        counts, read = scan_file(fd, 7, values.nbytes, 0, form, scratch)
        os.close(fd)
        assert read == values.nbytes
        found.append(counts)
    return found


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_of_a_small_type(name):
    dtype = dtype_of(name)
    patterns = np.arange(1 << dtype.itemsize * 8, dtype=f"uint{dtype.itemsize * 8}").view(dtype)
    truth = expected(patterns)
    assert truth.nan >= 2
    assert all_ways(patterns) == [truth] * 4
    for at in range(0, patterns.size, 1 if patterns.size == 256 else 97):  # all of them are in the line above
        one = patterns[at : at + 1]
        assert all_ways(one) == [expected(one)] * 4


@given(st.data())
def test_words_of_wide_types(data):
    name = data.draw(st.sampled_from(sorted(WIDE)))
    bits = int(name[-2:])
    exponent = {32: 0x7F800000, 64: 0x7FF0000000000000}[bits]
    pattern = st.one_of(
        st.integers(0, 2**bits - 1),
        st.sampled_from([exponent, exponent - 1, exponent + 1, 2**bits - 1, 2 ** (bits - 1), 0]),
        st.integers(0, 2**bits - 1).map(lambda number: number | exponent),
    )
    patterns = data.draw(st.lists(pattern, min_size=1, max_size=40))
    values = np.array(patterns, WIDE[name]).view(name)
    if data.draw(st.booleans()) and values.size % 2 == 0:
        values = values.view({"float32": "complex64", "float64": "complex128"}[name])
    assert all_ways(values) == [expected(values)] * 4


@pytest.mark.parametrize(
    "name", ["float32", "float64", "complex64", "complex128", "float16", "bfloat16", "float8_e5m2"]
)
def test_first_bad_element_at_edges_of_blocks(name, tmp_path):
    dtype = dtype_of(name)
    block = BLOCK_BYTES // dtype.itemsize
    values = np.zeros(2 * block + 3, dtype)
    assert all_ways(values, tmp_path) == [CLEAN] * 4
    for at in (0, block - 1, block, 2 * block - 1, 2 * block, 2 * block + 2):
        bad = values.copy()
        bad[at] = -np.inf
        bad[-1] = np.nan if at != bad.size - 1 else -np.inf
        truth = Counts(int(at != bad.size - 1), 0, 1, at, "-inf")
        assert all_ways(bad, tmp_path) == [truth] * 4


def test_complex_parts():
    inf, nan = math.inf, math.nan
    values = np.array(
        [1, complex(inf, -inf), complex(-inf, inf), complex(1, -inf), complex(-inf, nan), complex(nan, 1)]
    )
    for dtype in (np.complex64, np.complex128):
        assert all_ways(values.astype(dtype)) == [Counts(2, 2, 1, 1, "inf")] * 4


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_types_without_a_sign_bit_to_spare_count_by_their_own_test(name):
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"this ml_dtypes has no {name}")
    patterns = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))
    assert form_of(patterns.dtype) is None
    assert all_ways(patterns) == [expected(patterns)] * 3
    assert expected(patterns).nan == 1


def test_numbers_beyond_float64_are_finite():
    big = np.array([np.longdouble(10) ** 400, 1, -np.inf, np.nan], np.longdouble)
    if not np.isfinite(big[0]):
        pytest.skip("long double is float64 here")
    assert count_array(big) == Counts(1, 0, 1, 2, "-inf")


def test_memory_order_and_no_elements():
    values = np.zeros((3, 4), np.float32)
    values[1, 2] = np.nan
    assert count_array(np.asfortranarray(values)).first == 6
    assert scan_memory(np.asfortranarray(values), form_of(values.dtype), Scratch()).first == 6
    assert count_array(values[:0]) == scan_memory(values[:0], form_of(values.dtype), Scratch()) == CLEAN
    assert count_array(np.float32(np.nan).reshape(())) == Counts(1, first=0, kind="nan")


def test_a_file_that_ends_early_says_how_far_it_was_read(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(np.full(1000, np.nan, np.float32).tobytes())
    fd = os.open(path, os.O_RDONLY)
    try:
        counts, read = scan_file(fd, 0, 8000, 0, form_of(np.dtype(np.float32)), Scratch())
    finally:
        os.close(fd)
    assert (counts, read) == (CLEAN, 4000), "a block that is not whole is not looked at"


def test_merging_does_not_depend_on_the_order():
    parts = [Counts(1, 0, 0, 9, "nan"), CLEAN, Counts(0, 2, 1, 3, "-inf")]
    assert merged(parts) == merged(reversed(parts)) == Counts(1, 2, 1, 3, "-inf")
    assert merged([]) == CLEAN

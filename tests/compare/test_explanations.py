"""What is said of a difference: each explanation once, and what is nearly one and must not be called so."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.difference import places, rows
from compare.metrics import compare_arrays
from compare.second_look import look

RNG = np.random.default_rng(0)
BASE = RNG.normal(size=(100, 64)).astype(np.float32)
CUBE = RNG.normal(size=(6, 5, 4)).astype(np.float32)
IDS = RNG.integers(2**40, 2**60, size=1000)
BIG = BASE * 70000


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def told(left, right) -> str:
    found = look(left, right, compare_arrays(left, right))
    assert found is not None
    return found.explanation


def changed(array, where, value):
    """The array with some elements replaced, by a value or by what a function makes of them."""
    copy = array.copy()
    copy[where] = value(copy[where]) if callable(value) else value
    return copy


def order(length: int, **moves: int) -> np.ndarray:
    found = np.arange(length)
    for place, number in moves.items():
        found[int(place[1:])] = number
    return found


def bits_cut(array, kept: int):
    return (array.view(np.uint32) & np.uint32(0xFFFFFFFF << (23 - kept) & 0xFFFFFFFF)).view(np.float32)


# --------------------------------------------------------------------------------------------- one value, elementwise

VALUES = {
    "left all zero": (BASE * 0, BASE),
    "right all zero": (BASE, BASE * 0),
    "left constant (0.5 everywhere)": (BASE * 0 + 0.5, BASE),
    "right constant (inf everywhere)": (BASE, BASE * 0 + np.inf),
    "left all NaN": (BASE * np.nan, BASE),
    "both constant: left 2, right 3": (np.full(5, 2.0), np.full(5, 3.0)),
    "sign flipped (left = -right)": (-BASE, BASE),
    "sign lost (left = |right|)": (abs(BASE), BASE),
    "sign lost (right = |left|)": (BASE, abs(BASE)),
    "negative values are zero (left = max(right, 0))": (np.maximum(BASE, 0), BASE),
    "rounded to bfloat16 (left = bfloat16(right))": (BASE.astype(ml_dtypes.bfloat16).astype(np.float32), BASE),
    "rounded to bfloat16 (right = bfloat16(left))": (BASE, BASE.astype(ml_dtypes.bfloat16)),
    "rounded to float16 (left = float16(right))": (BASE.astype(np.float16), BASE),
    "rounded to float8_e4m3fn (left = float8_e4m3fn(right))": (BASE.astype(ml_dtypes.float8_e4m3fn), BASE),
    "rounded to float32 (left = float32(right))": (BASE / np.float32(3), BASE.astype(np.float64) / 3),
    "mantissa cut to 10 bits like tf32 (left = right truncated)": (bits_cut(BASE, 10), BASE),
    "mantissa cut to 11 bits like hf32 (right = left truncated)": (BASE, bits_cut(BASE, 11)),
    "mantissa cut to 7 bits like bfloat16 (left = right truncated)": (bits_cut(BASE, 7), BASE),
    "mantissa cut to 15 bits (left = right truncated)": (bits_cut(BASE, 15), BASE),
    "saturated at 65504 (left = right limited there)": (np.minimum(BIG, 65504), BIG),
    "saturated at -65504 and 65504 (left = right limited there)": (np.clip(BIG, -65504, 65504), BIG),
    "saturated at 65504 (right = left limited there)": (
        changed(abs(BIG), (0, slice(0, 3)), np.inf),
        np.minimum(changed(abs(BIG), (0, slice(0, 3)), np.inf), 65504),
    ),
    "fraction lost (left = right cut to a whole number)": (np.trunc(BASE * 9), BASE * 9),
    "rounded to whole numbers (left = rint(right))": (np.rint(BASE * 9), BASE * 9),
    "float32's subnormal numbers are zero in left": (
        np.where(abs(BASE) < 1, 0, BASE),
        np.where(abs(BASE) < 1, BASE * 1e-39, BASE),
    ),
    "byte-swapped": (BASE.byteswap(), BASE),
    "inverted (left = not right)": (~(BASE > 0), BASE > 0),
    "shifted by 1 (left = right + 1)": (IDS + 1, IDS),
    "shifted by 7 (left = right + 7)": ((IDS % 100 + 7).astype(np.uint8), (IDS % 100).astype(np.uint8)),
    "rounded through float32 (left = right as float32 and back)": (IDS.astype(np.float32).astype(np.int64), IDS),
    "wrapped to int32 (left = int32(right))": (IDS.astype(np.int32).astype(np.int64), IDS),
    "wrapped to uint8 (right = uint8(left))": (IDS, IDS.astype(np.uint8)),
    "conjugated (left = conj(right))": ((BASE[:50] + 1j * BASE[50:]).conj(), BASE[:50] + 1j * BASE[50:]),
}
# A tie tells the roundings apart: the nearest even number is not the one away from zero.
TIED = changed(BASE, (0, 0), np.float32(1 + 2**-11))
VALUES["mantissa cut to 10 bits like tf32 (left = right rounded, ties away from zero)"] = (
    bits_cut((TIED.view(np.uint32) + np.uint32(1 << 12)).view(np.float32), 10),
    TIED,
)


@pytest.mark.parametrize("expected", VALUES)
def test_values(expected):
    assert told(*VALUES[expected]) == expected


@pytest.mark.parametrize("expected", [name for name in VALUES if name not in ("byte-swapped",)])
def test_one_element_off_is_not_explained_so(expected):
    left, right = VALUES[expected]
    swap = expected.startswith(("right all", "right constant"))
    if swap:
        left, right = right, left
    if left.dtype == bool:
        left = changed(left, (3, 3), lambda v: ~v)
    elif left.dtype.kind in "iu":
        left = changed(left, 3, lambda v: v ^ 4)
    else:
        flat = left.astype(np.complex128 if left.dtype.kind == "c" else np.float64).copy()
        flat.reshape(-1)[flat.size // 2] = 0.3
        left = flat.astype(left.dtype)
    assert (told(right, left) if swap else told(left, right)) != expected


# --------------------------------------------------------------------------------------------------------- fits

FITS = {
    "scaled by 2 (left = 2 x right)": (BASE * 2, BASE),
    "scaled by 2 (right = 2 x left)": (BASE, BASE * 2),
    "scaled by -3 (right = -3 x left)": (BASE, BASE * -3),
    "scaled by 1.001 (left = 1.001 x right)": (BASE.astype(float) * 1.001, BASE.astype(float)),
    "shifted by 2 (left = right + 2)": (BASE + 2, BASE),
    "shifted by -1 (left = right - 1)": (BASE - 1, BASE),
    "scaled by 2 and shifted by -5 (left = 2 x right - 5)": (BASE.astype(float) * 2 - 5, BASE.astype(float)),
    "scaled by 3 (left = 3 x right)": (np.arange(50) * 3, np.arange(50)),
    "scaled by 4 (right = 4 x left)": (BASE.astype(float) * 1e-300, BASE.astype(float) * 4e-300),
    "scaled by 5 (left = 5 x right)": (BASE.astype(float) * 5e200, BASE.astype(float) * 1e200),
    "shifted by 1e+200 (left = right + 1e+200)": ((BASE.astype(float) + 1) * 1e200, BASE.astype(float) * 1e200),
}


@pytest.mark.parametrize("expected", FITS)
def test_fits(expected):
    left, right = FITS[expected]
    assert told(left, right) == expected


def test_a_fit_with_noise_says_how_near():
    noisy = BASE * np.float32(1.5) + RNG.normal(size=BASE.shape).astype(np.float32) * np.float32(1e-4)
    text = told(noisy, BASE)
    assert text.startswith("scaled by 1.5")
    assert "x right, within 0.000" in text
    assert told((BASE * 1.5).astype(ml_dtypes.bfloat16), BASE.astype(ml_dtypes.bfloat16)).startswith("scaled by 1.5")


def test_the_same_is_true_of_float16_scaled_and_shifted():
    half = BASE.astype(np.float16)
    left = (half.astype(np.float32) * 2 + 1).astype(np.float16)
    assert told(left, half) == "scaled by 2 and shifted by 1 (left = 2 x right + 1)"


def test_scale_and_shift_do_not_pass_for_each_other():
    near = 100 + RNG.normal(size=1000) * 0.02
    assert told(near, near + 1) == "shifted by -1 (left = right - 1)"
    assert told(near, near * 1.01) == "scaled by 1.01 (right = 1.01 x left)"
    noise = RNG.normal(size=1000) * 1e-6
    assert told(near + noise, near + 1).startswith("shifted by -1 (left = right - 1, within ")
    assert told(near + noise, near * 1.01).startswith("scaled by 1.01 (right = 1.01 x left, within ")


def test_a_value_that_most_elements_have_is_no_explanation():
    assert told(np.array([1, 1, 1, 1, 0]), np.ones(5, int)).startswith("1 element differs")


NOT_FITS = {
    "two noises, one 1000 higher": (RNG.normal(size=1000) + 1000, RNG.normal(size=1000)),
    "two noises of different size": (RNG.normal(size=1000) * 100, RNG.normal(size=1000)),
    "two noises about 100 and 200": (200 + RNG.normal(size=1000), 100 + RNG.normal(size=1000)),
    "noise": (BASE * (1 + 1e-3 * RNG.normal(size=BASE.shape)).astype(np.float32), BASE),
    "rounding": (BASE * np.float32(1 + 1e-6), BASE),
    "one huge pair": (np.array([2e6, 7, 8, 9, 11, 13]), np.array([1e6, 1, 2, 3, 5, 4])),
    "one element apart": (changed(BASE * 2, (5, 5), lambda v: v + 1), BASE),
    "one element of another sign": (changed(BASE * 2, (5, 5), lambda v: -v), BASE),
    "two elements": (np.array([2.0, 4.0]), np.array([1.0, 2.0])),
    "two values to two others": (np.where(BASE > 0, 3.0, 5.0), np.where(BASE > 0, 7.0, 1.0)),
    "half scaled": (changed(BASE, slice(0, 55), lambda v: v * 2), BASE),
}


@pytest.mark.parametrize("case", NOT_FITS)
def test_not_fits(case):
    text = told(*NOT_FITS[case])
    assert "scaled" not in text
    assert "shifted" not in text


def test_an_infinity_does_not_shift_the_rest():
    text = told(np.float32([np.inf, 1, 2, 3]), np.float32([70000, 1, 2, 3]))
    assert text == "1 element differs, the rest equal: first at index 0"


# -------------------------------------------------------------------------------------------------------- places

PLACES = {
    "rows 5 and 6 swapped": (BASE[order(100, _5=6, _6=5)], BASE),
    "columns 0 and 63 swapped": (BASE[:, order(64, _0=63, _63=0)], BASE),
    "slices 1 and 4 swapped": (CUBE[order(6, _1=4, _4=1)], CUBE),
    "rows 3 and 29 swapped": (CUBE.reshape(30, 4)[order(30, _3=29, _29=3)].reshape(6, 5, 4), CUBE),
    "elements 2 and 70 swapped": (BASE.ravel()[order(6400, _2=70, _70=2)], BASE.ravel()),
    "rows reversed": (BASE[::-1], BASE),
    "columns reversed": (BASE[:, ::-1], BASE),
    "reversed": (BASE.ravel()[::-1], BASE.ravel()),
    "reversed along axis 1": (CUBE[:, ::-1], CUBE),
    "rows rolled by 3 (left[i] = right[i - 3], cyclic)": (np.roll(BASE, 3, 0), BASE),
    "columns rolled by -2 (left[i] = right[i + 2], cyclic)": (np.roll(BASE, -2, 1), BASE),
    "elements rolled by 5 (left[i] = right[i - 5], cyclic)": (np.roll(BASE.ravel(), 5), BASE.ravel()),
    "transposed": (BASE.T, BASE),
    "transposed, the shape not": (np.ascontiguousarray(BASE.T).reshape(100, 64), BASE),
    "axes permuted (left = right.transpose(0, 2, 1))": (CUBE.transpose(0, 2, 1), CUBE),
    "shuffled (the same elements in another order)": (RNG.permutation(BASE.ravel()).reshape(BASE.shape), BASE),
    "row 5 of left holds row 7 of right": (changed(BASE, 5, BASE[7]), BASE),
    "rows 4..7 of left hold rows 0..3 of right": (changed(BASE, slice(4, 8), BASE[:4]), BASE),
    "2 rows of left hold other rows of right: row 5 holds row 7": (changed(BASE, [5, 50], BASE[[7, 3]]), BASE),
    "left holds row 3 of right in every row": (np.tile(BASE[3], (100, 1)), BASE),
    "left holds one row in every row": (np.tile(BASE[3] + 1, (100, 1)), BASE),
    "left holds slice 0 of right in every slice": (np.tile(CUBE[:1], (6, 1, 1)), CUBE),
    "moved by 1 place (left[i] = right[i - 1], all but 1 at the beginning)": (
        np.append([9], BASE.ravel()[:-1]),
        BASE.ravel(),
    ),
    "moved by -2 rows (left[i] = right[i + 128], all but 128 at the end)": (
        np.concatenate([BASE[2:], RNG.normal(size=(2, 64)).astype(np.float32)]),
        BASE,
    ),
}


@pytest.mark.parametrize("expected", PLACES)
def test_places(expected):
    assert told(*PLACES[expected]) == expected


def test_permuted_rows_and_columns():
    assert told(BASE[RNG.permutation(100)], BASE).startswith("rows permuted (")
    assert told(BASE[:, RNG.permutation(64)], BASE).startswith("columns permuted (")


@pytest.mark.parametrize("expected", PLACES)
@pytest.mark.parametrize("at", [0, 333])
def test_one_element_off_is_not_the_same_places(expected, at):
    left, right = PLACES[expected]
    left = left.copy()
    spot = 100 if left.size < 1000 and at else at
    if expected.startswith("moved"):
        spot = left.size // 2 + at
    left.reshape(-1)[spot] += 1e-3
    assert told(left, right) != expected


def test_nearly_swapped_rows_are_rows_that_differ():
    left = BASE[order(100, _5=6, _6=5)].copy()
    left[5, 3] += 1
    assert told(left, BASE) == "rows 5..6 differ (128 elements, the rest equal)"


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float16", "bfloat16", "float64", "complex64", "bool"])
def test_places_of_any_type(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
    base = (BASE * 50 + 100).astype(kind) if dtype != "bool" else BASE > 0
    assert told(base[order(100, _5=6, _6=5)], base) == "rows 5 and 6 swapped"
    assert told(base.T, base) == "transposed"
    assert told(np.roll(base, 7, axis=0), base).startswith("rows rolled by 7")


def test_nan_and_zero_signs_do_not_hide_a_permutation():
    base = changed(changed(BASE, (slice(None), 3), np.nan), (slice(None), 4), 0.0)
    left = changed(base[::-1], (slice(0, 50), 4), -0.0)
    assert told(left, base) == "rows reversed"


def test_large_integers_of_two_types():
    base = RNG.integers(2**62, 2**63 - 1, size=(20, 8)).astype(np.uint64) * np.uint64(2)
    other = (base // np.uint64(2)).astype(np.int64)
    assert told(other[::-1], other.astype(np.uint64)) == "rows reversed"
    assert "permuted" not in told(other, base)


def test_what_is_too_large_to_look_for_is_named(monkeypatch):
    monkeypatch.setattr(places, "SORTED", 100)
    monkeypatch.setattr(rows, "LARGEST", 10)
    left = RNG.permutation(BASE.ravel()).reshape(BASE.shape)
    found = look(left, BASE, compare_arrays(left, BASE))
    assert found.explanation == ""
    assert any("more than 100 elements" in text for text in found.skipped)
    assert any(text.startswith("rows that changed places") for text in found.skipped)


def test_few_kinds_of_rows_are_no_evidence():
    base = RNG.integers(0, 2, size=(200, 2))
    left = changed(base, 7, 1 - base[7])
    assert "holds" not in told(left, base)


# -------------------------------------------------------------------------------------------------------- regions

REGIONS = {
    "row 5 differs (64 elements, the rest equal)": (changed(BASE, 5, lambda v: v * 3 + 1), BASE),
    "rows 3..7 differ (320 elements, the rest equal)": (changed(BASE, slice(3, 8), lambda v: v * v), BASE),
    "rows 3..4, 90 differ (192 elements, the rest equal)": (changed(BASE, [3, 4, 90], lambda v: v * v), BASE),
    "column 7 differs (100 elements, the rest equal)": (changed(BASE, (slice(None), 7), lambda v: v * v), BASE),
    "rows 3..7, columns 2..3 differ (10 elements, the rest equal)": (
        changed(BASE, (slice(3, 8), slice(2, 4)), lambda v: v * v),
        BASE,
    ),
    "rows 3..7 differ (320 elements, the rest equal, left is zero there)": (changed(BASE, slice(3, 8), 0), BASE),
    "row 99 differs (64 elements, the rest equal, left is NaN there)": (changed(BASE, 99, np.nan), BASE),
    "elements 6390..6399 differ (10 elements, the rest equal, right is zero there)": (
        BASE.ravel(),
        changed(BASE.ravel(), slice(6390, None), 0),
    ),
    "axis 0 2, axis 2 1..2 differ (10 elements, the rest equal)": (
        changed(CUBE, (2, slice(None), slice(1, 3)), lambda v: v * v),
        CUBE,
    ),
    "2 elements differ, the rest equal: first at index (7, 7)": (
        changed(changed(BASE, (7, 7), 9), (70, 3), 8),
        BASE,
    ),
    "1 element differs, the rest equal: first at index 500": (changed(IDS, 500, 3), IDS),
    "1 element differs, the rest equal: first at index (7, 7), left is NaN there": (
        changed(BASE, (7, 7), np.nan),
        BASE,
    ),
}


@pytest.mark.parametrize("expected", REGIONS)
def test_regions(expected):
    assert told(*REGIONS[expected]) == expected


def test_rounding_somewhere_is_no_region():
    left = BASE.copy()
    left[:20] = np.nextafter(left[:20], np.float32(9))
    assert told(left, BASE) == ""


def test_spread_over_the_whole_is_no_region():
    mask = RNG.random(BASE.shape) < 0.4
    assert told(np.where(mask, BASE * 2 + 3, BASE), BASE) == ""


# --------------------------------------------------------------------------------------------------- never a guess


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["float32", "float16", "int64"]),
    st.sampled_from([(40, 8), (3, 4, 5), (64,)]),
)
def test_unrelated_arrays_are_not_explained(seed, dtype, shape):
    rng = np.random.default_rng(seed)
    one, two = ((rng.normal(size=shape) * 1000).astype(dtype) for _ in range(2))
    assert told(one, two) == ""


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(2, 9))
def test_any_permutation_of_rows_is_found(seed, count, width):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(count, width)).astype(np.float32)
    mixed = base[rng.permutation(count)]
    if not np.array_equal(mixed, base):
        text = told(mixed, base)
        assert text.startswith(("rows ", "transposed", "axes", "reversed")), text

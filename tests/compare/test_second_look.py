"""The figures of the second look against brute force: sorted lists of all values, Python integers, fractions."""

from __future__ import annotations

import math
import struct
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from compare.difference.details import HISTOGRAM
from compare.difference.pair import BLOCK
from compare.difference.ulp import usual_rtol
from compare.metrics import compare_arrays
from compare.second_look import look, with_details

NAN, INF = math.nan, math.inf
SMALL_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def details(left, right):
    return look(left, right, compare_arrays(left, right))


def type_of(name: str):
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def pairs(*names: str, size: int = 12):
    """Arrays of any bits, so NaN, infinities, subnormal numbers and both zeros are among them."""

    def both(name: str):
        dtype = type_of(name)
        bits = hnp.arrays(f"u{dtype.itemsize}", st.integers(1, size).map(lambda n: (n,)))
        near = st.tuples(bits, st.integers(0, 3)).map(
            lambda t: (t[0].view(dtype), (t[0] ^ t[0].dtype.type(t[1])).view(dtype))
        )
        apart = bits.flatmap(lambda a: hnp.arrays(a.dtype, a.shape).map(lambda b: (a.view(dtype), b.view(dtype))))
        return st.one_of(near, apart)

    return st.sampled_from(names).flatmap(both)


def finite(left, right):
    x, y = left.astype(np.float64), right.astype(np.float64)
    return [
        (i, a, b)
        for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
        if math.isfinite(a) and math.isfinite(b)
    ]


# ----------------------------------------------------------------------------------------------------------- ULP


@settings(deadline=None, max_examples=80)  # compiling takes its time
@given(pairs(*SMALL_FLOATS))
@example((np.array([np.inf, 0], np.float16), np.array([0, 0], np.float16)))
@example((np.array([np.inf, np.nan, 1, 2], np.float16), np.array([0, 0, 1, 4], np.float16)))
def test_steps_are_counted_in_the_sorted_list_of_all_values(both):
    left, right = both
    found = details(left, right)
    values = finite(left, right)
    if found is None or not values:
        return
    ladder = np.arange(1 << (8 * left.dtype.itemsize)).astype(f"u{left.dtype.itemsize}").view(left.dtype)
    with np.errstate(all="ignore"):
        ladder = ladder.astype(np.float64)
    steps = sorted(set(ladder[np.isfinite(ladder)].tolist()))
    distances = {i: abs(steps.index(a) - steps.index(b)) for i, a, b in values}
    assert found.ulp_dtype == left.dtype.name
    assert found.max_ulp == max(distances.values())
    assert found.max_ulp_index == min(i for i, d in distances.items() if d == found.max_ulp)
    assert found.within_one_ulp == sum(d <= 1 for d in distances.values()) / len(distances)


def ordinal(value: float, code: str) -> int:
    """Number of a float from zero on, in Python's integers."""
    (bits,) = struct.unpack({"f": ">I", "d": ">Q"}[code], struct.pack(">" + code, abs(value)))
    return bits if value > 0 else -bits


@settings(deadline=None, max_examples=80)  # compiling takes its time
@given(pairs("float32", "float64"))
def test_steps_of_wide_floats(both):
    left, right = both
    found = details(left, right)
    values = finite(left, right)
    if found is None or not values:
        return
    code = "f" if left.dtype == np.float32 else "d"
    distances = [abs(ordinal(a, code) - ordinal(b, code)) for _, a, b in values]
    assert found.max_ulp == max(distances)
    assert found.within_one_ulp == sum(d <= 1 for d in distances) / len(distances)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("begin", [1.0, -5e-324, 0.0, 3.4e38, -1.17549435e-38])
def test_steps_are_those_of_nextafter(dtype, begin):
    start = dtype(begin)
    walked = start
    for _ in range(7):
        walked = np.nextafter(walked, dtype(-INF))
    assert details(np.array([start, 1], dtype), np.array([walked, 1], dtype)).max_ulp == 7


def test_largest_distance_fits():
    top = np.finfo(np.float64).max
    assert details(np.array([top]), np.array([-top])).max_ulp == 2 * 0x7FEFFFFFFFFFFFFF


def test_zeros_are_one_value():
    found = details(np.float32([0.0, -0.0, 1.0]), np.float32([-0.0, 1e-45, 2.0]))
    assert (found.differing, found.first_index, found.within_one_ulp) == (2, 1, 2 / 3)


def test_the_narrower_type_counts_and_the_wider_is_rounded_to_it():
    left = np.float16([1.0, 2.0, 65504.0])
    right = np.float32([1.0004, 2.0, 70000.0])
    found = details(left, right)
    assert (found.ulp_dtype, found.max_ulp, found.max_ulp_index) == ("float16", 1, 2)
    mixed = details(np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.02], np.float16))
    assert (mixed.ulp_dtype, mixed.max_ulp) == ("bfloat16", 1)
    beyond = details(np.array([448, 1], ml_dtypes.float8_e4m3fn), np.float32([1e6, 1]))
    assert (beyond.ulp_dtype, beyond.max_ulp) == ("float8_e4m3fn", 1)


def test_integers_have_no_steps_but_beside_floats():
    assert details(np.int64([1]), np.int64([2])).max_ulp is None
    assert "integers" in details(np.int64([1]), np.int64([2])).reasons["max_ulp"]
    assert details(np.int32([1, 2]), np.float32([1, np.nextafter(np.float32(2), np.float32(3))])).max_ulp == 1


def test_nothing_finite_has_no_steps_and_no_tolerance():
    found = details(np.float32([NAN, 1]), np.float32([1, INF]))
    assert (found.max_ulp, found.within_one_ulp, found.tolerance.atol) == (None, None, None)
    assert {"max_ulp", "within_one_ulp", "tolerance.atol", "tolerance.rtol"} <= found.reasons.keys()


# -------------------------------------------------------------------------------------- signs, kinds, histogram

KINDS = {
    ("nan", "finite"): "nan against finite",
    ("finite", "nan"): "finite against nan",
    ("inf", "finite"): "inf against finite",
    ("finite", "inf"): "finite against inf",
    ("nan", "inf"): "nan against inf",
    ("inf", "nan"): "inf against nan",
    ("inf", "inf"): "opposite infinities",
}


def class_of(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if math.isinf(value) else "finite"


@settings(deadline=None, max_examples=80)  # compiling takes its time
@given(pairs("float64", "float32", "float16", "bfloat16", "float8_e5m2", size=40))
def test_kinds_signs_and_counts(both):
    left, right = both
    found = details(left, right)
    kinds: dict[str, int] = {}
    differing, flips = [], 0
    for i, (a, b) in enumerate(zip(left.astype(float).tolist(), right.astype(float).tolist(), strict=True)):
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        differing.append(i)
        classes = (class_of(a), class_of(b))
        if classes in KINDS:
            kinds[KINDS[classes]] = kinds.get(KINDS[classes], 0) + 1
        else:
            flips += (a > 0 > b) or (a < 0 < b)
    if not differing:
        assert found is None
        return
    assert (found.differing, found.first_index) == (len(differing), differing[0])
    assert (dict(found.non_finite), found.sign_flips) == (kinds, flips)


def decade(error: Fraction) -> str:
    if not error:
        return "0"
    if error < Fraction(1e-20):
        return "below 1e-20"
    if error >= 10**20:
        return "from 1e20"
    return f"1e{max(e for e in range(-20, 20) if error >= Fraction(float(f'1e{e}')))}"


@settings(deadline=None, max_examples=80)  # compiling takes its time
@given(pairs("float64", "float32", "float16", size=40))
def test_histogram_by_fractions(both):
    left, right = both
    found = details(left, right)
    if found is None:
        return
    expected: dict[str, int] = {}
    for _, a, b in finite(left, right):
        error = a - b  # the float64 number nearest to it is what is counted
        name = "from 1e20" if math.isinf(error) else decade(abs(Fraction(error)))
        expected[name] = expected.get(name, 0) + 1
    assert dict(found.histogram) == expected
    assert list(found.histogram) == [name for name in HISTOGRAM if name in expected]


def test_each_power_of_ten_begins_its_own_bin():
    bounds = [float(f"1e{e}") for e in range(-20, 21)]
    below = [math.nextafter(bound, 0) for bound in bounds]
    found = details(np.array([*bounds, *below, 0.0, 5e-324]), np.zeros(84))
    assert found.histogram["0"] == 1
    assert found.histogram["below 1e-20"] == 2
    assert found.histogram["from 1e20"] == 1
    assert {n for name, n in found.histogram.items() if name not in ("0", "below 1e-20", "from 1e20")} == {2}


INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint64", "bool")


@settings(deadline=None, max_examples=80)  # compiling takes its time
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_integers_are_exact(one, two, data):
    n = data.draw(st.integers(1, 10))
    left, right = data.draw(hnp.arrays(one, (n,))), data.draw(hnp.arrays(two, (n,)))
    found = details(left, right)
    errors = [abs(int(a) - int(b)) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    if not any(errors):
        assert found is None
        return
    expected: dict[str, int] = {}
    for error in errors:
        name = f"1e{len(str(error)) - 1}" if error else "0"
        expected[name] = expected.get(name, 0) + 1
    assert dict(found.histogram) == expected
    assert found.differing == sum(error != 0 for error in errors)
    assert found.tolerance.atol == float(max(errors))
    assert found.sign_flips == sum(
        (a > 0 > b) or (a < 0 < b) for a, b in zip(map(int, left.tolist()), map(int, right.tolist()), strict=True)
    )


def test_decades_of_large_integers_are_not_rounded():
    found = details(np.int64([10**18 - 1, 10**18, 0]), np.int64([0, 0, 0]))
    assert dict(found.histogram) == {"0": 1, "1e17": 1, "1e18": 1}


# ----------------------------------------------------------------------------------------------- required tolerance


def passes(left, right, *, atol: float, rtol: float) -> bool:
    with np.errstate(all="ignore"):
        x, y = left.astype(np.float64), right.astype(np.float64)
        return bool(np.isclose(x, y, atol=atol, rtol=rtol, equal_nan=True).all())


@settings(deadline=None, max_examples=250)
@given(pairs("float64", "float32", "float16", "bfloat16", "int32", "uint8"))
def test_isclose_passes_at_the_tolerance_and_fails_just_below(both):
    left, right = both
    found = details(left, right)
    if found is None:
        return
    needed, usual = found.tolerance, found.tolerance.usual_rtol
    assert usual == usual_rtol(None if left.dtype.kind in "iu" else left.dtype)
    for name, atol, rtol in (
        ("atol", needed.atol, 0.0),
        ("rtol", 0.0, needed.rtol),
        ("atol_with_usual", needed.atol_with_usual, usual),
    ):
        if None in (atol, rtol):
            assert f"tolerance.{name}" in found.reasons
            continue
        assert passes(left, right, atol=atol, rtol=rtol), name
        lower_atol = atol if name == "rtol" else math.nextafter(atol, -INF)
        lower_rtol = math.nextafter(rtol, -INF) if name == "rtol" else rtol
        if lower_atol >= 0 and lower_rtol >= 0:
            assert not passes(left, right, atol=lower_atol, rtol=lower_rtol), name


def test_why_a_tolerance_does_not_exist():
    zero = details(np.float32([1, 2, 3]), np.float32([1, 0, 3]))
    assert (zero.tolerance.atol, zero.tolerance.rtol) == (2.0, None)
    assert "reference is zero" in zero.reasons["tolerance.rtol"]
    assert "first at element 1" in zero.reasons["tolerance.rtol"]
    huge = details(np.array([1.7e308, 1]), np.array([-1.7e308, 1]))
    assert (huge.tolerance.atol, huge.reasons["tolerance.atol"]) == (None, "beyond the range of float64")
    assert huge.histogram["from 1e20"] == 1
    odd = details(np.float32([NAN, 2]), np.float32([1, 2]))
    assert odd.tolerance.atol is None
    assert "1 element(s) are not finite" in odd.reasons["tolerance.atol"]


def test_equal_nan_and_infinities_need_no_tolerance():
    found = details(np.float32([NAN, INF, 1]), np.float32([NAN, INF, 1.5]))
    assert (found.tolerance.atol, dict(found.non_finite), found.max_ulp_index) == (0.5, {}, 2)


def test_a_product_below_the_normal_numbers():
    found = details(np.array([1e-323, 1.0]), np.array([5e-324, 1.0]))
    assert found.tolerance.rtol == math.nextafter(0.5, 1)
    assert passes(np.array([1e-323]), np.array([5e-324]), atol=0, rtol=found.tolerance.rtol)


# ---------------------------------------------------------------------------------------------- beyond one block


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "complex64"])
def test_many_blocks_are_one_array(dtype):
    rng = np.random.default_rng(0)
    size = 3 * BLOCK + 17
    left = (rng.normal(size=size) * 1000).astype(type_of(dtype))
    right = left.copy()
    at = [5, BLOCK - 1, BLOCK, 2 * BLOCK + 9, size - 1]
    right[at] = right[at] + right.dtype.type(512)
    whole = details(left, right)
    assert (whole.differing, whole.first_index) == (5, 5)
    parts = [details(left[i : i + 1], right[i : i + 1]) for i in at]
    assert whole.max_ulp == (None if dtype == "int64" else max(part.max_ulp for part in parts))
    assert whole.tolerance.atol == max(part.tolerance.atol for part in parts)
    assert whole.tolerance.rtol == max(part.tolerance.rtol for part in parts)
    assert sum(whole.histogram.values()) == size
    assert whole.histogram["0"] == size - 5


def test_memory_order_and_maps_do_not_matter(tmp_path):
    rng = np.random.default_rng(1)
    left = rng.normal(size=(60, 70)).astype(np.float32)
    right = left + rng.normal(size=(60, 70)).astype(np.float32)
    plain = details(left, right)
    assert details(np.asfortranarray(left), right) == plain
    assert details(np.repeat(left, 2, axis=1)[:, ::2], right) == plain
    assert details(left.astype(">f4"), right) == plain
    np.save(tmp_path / "l.npy", left)
    assert details(np.load(tmp_path / "l.npy", mmap_mode="r"), right) == plain


def test_complex_numbers_count_as_one_element():
    left = np.complex64([1 + 1j, complex(NAN, 1), complex(INF, 2), 3, 5])
    right = np.complex64([1 - 1j, 1, complex(INF, 3), 3, 5.5])
    found = details(left, right)
    assert (found.elements, found.differing, found.sign_flips) == (5, 4, 1)
    assert dict(found.non_finite) == {"nan against finite": 1, "parts of a complex number": 1}
    assert dict(found.histogram) == {"0": 1, "1e-1": 1, "1e0": 1}
    finite_only = details(left[[0, 3, 4]], right[[0, 3, 4]])
    assert finite_only.tolerance.atol == 2.0
    assert np.isclose(left[[0, 3, 4]].astype(complex), right[[0, 3, 4]].astype(complex), atol=2.0, rtol=0).all()


def test_only_pairs_that_differ_are_looked_at():
    same = np.float32([1, NAN])
    figures = compare_arrays(same, same)
    assert look(same, same, figures) is None
    assert with_details(figures, same, same) is figures
    assert details(np.zeros(3), np.zeros(4)) is None
    assert details(np.zeros((0, 3)), np.zeros((0, 3))) is None
    other = np.float32([1, 2])
    assert with_details(compare_arrays(same, other), same, other).details == details(same, other)


def test_text_tells_where():
    found = details(np.array([b"a", b"b", b"c", b"d"], object), np.array([b"a", b"b", b"x", b"d"], object))
    assert (found.differing, found.first_index, found.max_ulp) == (1, 2, None)
    assert found.reasons["max_ulp"] == "strings have no figures"
    assert "index 2" in found.explanation


def test_scalars_and_single_elements_have_figures_and_no_explanation():
    found = details(np.float32(3), np.float32(1))
    assert (found.tolerance.atol, found.tolerance.rtol, found.explanation) == (2.0, 2.0, "")


NAMES = (
    "bool",
    "int8",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    ">f4",
    ">i8",
    ">c8",
)
ODD_NAMES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4")
TYPES = [np.dtype(name) for name in NAMES] + [type_of(name) for name in ODD_NAMES if hasattr(ml_dtypes, name)]


@pytest.mark.parametrize("shape", [(), (2,), (1, 1, 1), (2, 3), (7, 1), (2, 1, 3, 1, 2), (2, 2, 2, 2, 2, 2)])
@pytest.mark.parametrize("one", TYPES, ids=str)
def test_every_pair_of_types(one, shape):
    rng = np.random.default_rng(3)
    for two in TYPES:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the casts that make the input
            left, right = (np.asarray(rng.normal(size=shape) * 30).astype(dtype) for dtype in (one, two))
        figures = compare_arrays(left, right)
        found = look(left, right, figures)
        if not figures.comparable:
            assert found is None
        elif figures.differing:
            assert found.differing == figures.differing
            assert sum(found.histogram.values()) == figures.finite
            assert sum(found.non_finite.values()) == figures.non_finite_mismatches
            assert found.tolerance.atol is None or found.tolerance.atol == figures.max_abs_error

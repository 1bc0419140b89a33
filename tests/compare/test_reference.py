"""The compare engine against exact arithmetic: a thousand pairs of tensors of every dtype, size and hostility.

610 pairs are drawn number by number, 360 are recipes (constant, one element apart, cancelling, huge, tiny ...),
30 are longer than a block. Each figure is held to the allowance of ``tests/compare/reference.py``.
"""

from __future__ import annotations

import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from compare.metrics import COLUMNS, compare_arrays
from tests.compare.reference import BEYOND, Reference, reference

NAN, INF = math.nan, math.inf

SMALL_FLOATS = [
    *("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"),
]
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = [
    *map(np.dtype, [*FLOATS, *INTEGERS, "bool"]),
    *(np.dtype(getattr(ml_dtypes, name)) for name in (*SMALL_FLOATS, "int4", "uint4")),
]

SYMMETRIC = ("cosine", "max_abs_error", "mean_abs_error", "root_mean_square_error", "max_abs_index", "max_abs_exact")
COLUMN_OF = {
    "cosine": "CosineSimilarity",
    "max_abs_error": "MaxAbsoluteError",
    "accumulated_relative_error": "AccumulatedRelativeError",
    "relative_distance": "RelativeEuclideanDistance",
    "divergence": "KullbackLeiblerDivergence",
    "left_mean": "StandardDeviation",
    "left_deviation": "StandardDeviation",
    "right_mean": "StandardDeviation",
    "right_deviation": "StandardDeviation",
    "mean_abs_error": "MeanAbsoluteError",
    "root_mean_square_error": "RootMeanSquareError",
    "max_relative_error": "MaxRelativeError",
    "mean_relative_error": "MeanRelativeError",
}


def check(left: np.ndarray, right: np.ndarray) -> None:
    """Holds every figure of a pair against the reference, and the pair against itself swapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures, swapped = compare_arrays(left, right), compare_arrays(right, left)
        without = compare_arrays(left, right, with_divergence=False)
    if left.size == 0:
        assert (figures.elements, figures.differing) == (0, 0)
        assert dict(figures.reasons) == dict.fromkeys(COLUMNS, "both sides are empty")
        return
    exact = reference(left, right)
    assert {name: getattr(figures, name) for name in exact.counts} == exact.counts
    for name, column in COLUMN_OF.items():
        _check_figure(name, getattr(figures, name), figures.reasons.get(column), exact)
        assert name == "divergence" or getattr(without, name) == getattr(figures, name), name
    for name in SYMMETRIC:
        assert getattr(swapped, name) == getattr(figures, name), name
    assert (swapped.left_mean, swapped.right_deviation) == (figures.right_mean, figures.left_deviation)
    assert figures.cosine is None or abs(figures.cosine) <= 1
    if not figures.differing:
        assert figures.cosine in (None, 1.0)


def _check_figure(name: str, found: float | None, reason: str | None, exact: Reference) -> None:
    assert (found is None) == bool(reason), name
    right = exact.figures.get(name)
    if right is None:
        assert reason == exact.reasons[name], name
    elif found is None:
        assert reason == BEYOND, name
        assert not right.surely_in_range, f"{name} exists: {float(right.value)!r}"
    else:
        assert not right.surely_beyond, name
        assert right.admits(found), f"{name}: {found!r}, exact {float(right.value)!r} +- {float(right.allowance):.3g}"


# --------------------------------------------------------------------------------------------------- number by number


@st.composite
def drawn_pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one shape, dtypes equal or mixed, every number of its own."""
    one = draw(st.sampled_from(DTYPES))
    two = draw(st.one_of(st.just(one), st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6).filter(lambda s: math.prod(s) <= 300))
    left = draw(drawn(one, shape))
    if one == two and draw(st.integers(0, 4)) == 0:
        return left, left.copy()
    return left, draw(drawn(two, shape))


def drawn(dtype: np.dtype, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    if dtype.name in ("int4", "uint4"):
        low = -8 if dtype.name == "int4" else 0
        return hnp.arrays(np.int8, shape, elements=st.integers(low, low + 15)).map(lambda a: a.astype(dtype))
    if dtype.name in (*FLOATS, *INTEGERS, "bool"):
        return hnp.arrays(dtype, shape)
    bits = np.uint16 if dtype.itemsize == 2 else np.uint8
    return hnp.arrays(bits, shape).map(lambda a: a.view(dtype))


@settings(max_examples=610, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_pairs())
def test_figures_of_drawn_tensors(pair):
    check(*pair)


# ------------------------------------------------------------------------------------------------------------- recipes


def ordinary(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left = rng.normal(size=shape)
    return left, left + rng.normal(size=shape) * 10.0 ** rng.integers(-12, 2)


def unrelated(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=shape), rng.uniform(-3, 3, size=shape)


def far_from_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left = rng.normal(size=shape) + 10.0 ** rng.integers(2, 9)
    return left, left + rng.normal(size=shape) * 1e-3


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    half = rng.normal(size=shape).reshape(-1)
    half[len(half) // 2 :] = -half[: len(half) - len(half) // 2]
    return half.reshape(shape), np.abs(half).reshape(shape)


def constant(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([0.1, -3.0, 7.5, 0.0, 1e5, 1 / 3])
    return np.full(shape, rng.choice(values)), np.full(shape, rng.choice(values))


def half_constant(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.full(shape, rng.normal()), rng.normal(size=shape)


def equal(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left = rng.normal(size=shape) * 10.0 ** rng.integers(-200, 200)
    return left, left.copy()


def one_apart(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left = rng.normal(size=shape)
    right = left.copy()
    right.reshape(-1)[rng.integers(left.size)] += 10.0 ** rng.integers(-15, 3)
    return left, right


def huge(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    scale = 10.0 ** rng.integers(150, 309)
    with np.errstate(over="ignore"):
        return rng.uniform(-1, 1, size=shape) * scale, rng.uniform(-1, 1, size=shape) * scale


def tiny(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    scale = 10.0 ** rng.integers(-323, -150)
    return rng.normal(size=shape) * scale, rng.normal(size=shape) * scale


def every_size(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    sizes = [10.0 ** rng.integers(-40, 40, size=shape) for _ in range(2)]
    return rng.normal(size=shape) * sizes[0], rng.normal(size=shape) * sizes[1]


def zero_heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left, right = (rng.normal(size=shape) * (rng.random(shape) < 0.1) for _ in range(2))
    return left, right * rng.choice([0.0, -0.0, 1.0, 1e-16])


def riddled(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left, right = ordinary(rng, shape)
    for side in (left, right):
        for value in (NAN, INF, -INF):
            side[rng.random(shape) < 0.05] = value
    both = rng.random(shape) < 0.1
    right[both] = left[both]
    return left, right


def clipped(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    left, right = unrelated(rng, shape)
    return np.maximum(left, 0), np.minimum(np.maximum(right, 0), 1)


RECIPES = [
    *(ordinary, unrelated, far_from_zero, cancelling, constant, half_constant, equal, one_apart, huge, tiny),
    *(every_size, zero_heavy, riddled, clipped),
]


def as_stored(values: np.ndarray, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Stores real numbers as a dtype; integers get their own range, complex numbers a second part."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dtype.kind == "b":
            return values > 0
        if dtype.kind == "c":
            return (values + 1j * rng.permutation(values.reshape(-1)).reshape(values.shape)).astype(dtype)
        if dtype.kind in "iu" or dtype.name in ("int4", "uint4"):
            bits = {"int4": 4, "uint4": 4}.get(dtype.name, 8 * dtype.itemsize)
            signed = dtype.name.startswith("int")
            low = -(2 ** (bits - 1)) if signed else 0
            size = np.nan_to_num(np.tanh(np.nan_to_num(values)))  # -1..1 to the whole range
            span = 2.0 ** (bits - signed) * (1 - 2.0**-52)
            whole = [max(low, min(low + 2**bits - 1, int(v * span))) for v in np.abs(size).reshape(-1).tolist()]
            signs = np.sign(size).reshape(-1).astype(int).tolist() if signed else [1] * len(whole)
            numbers = [max(low, sign * number) for sign, number in zip(signs, whole, strict=True)]
            carrier = np.uint64 if dtype.name == "uint64" else np.int64
            return np.array(numbers, carrier).reshape(values.shape).astype(dtype)
        return values.astype(dtype)


@st.composite
def recipe_pairs(draw: st.DrawFn, *, shapes: st.SearchStrategy[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays made by a recipe from a seed, in one dtype or in two."""
    recipe, shape = draw(st.sampled_from(RECIPES)), draw(shapes)
    one = draw(st.sampled_from(DTYPES))
    two = draw(st.one_of(st.just(one), st.just(one), st.sampled_from(DTYPES)))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    left, right = recipe(rng, shape)
    sides = [as_stored(left, one, np.random.default_rng(seed)), as_stored(right, two, np.random.default_rng(seed))]
    turned = draw(st.sampled_from(LAYOUTS))
    sides[seed % 2] = turned(sides[seed % 2])
    return sides[0], sides[1]


def plain(array: np.ndarray) -> np.ndarray:
    return array


def strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def backwards(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1]


def foreign_order(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder(">")) if array.dtype.name in (*FLOATS, *INTEGERS) else array


def unaligned(array: np.ndarray) -> np.ndarray:
    """The same numbers one byte off, read-only: a tensor in the middle of a mapped file."""
    raw = b"\0" + np.ascontiguousarray(array).tobytes()
    return np.frombuffer(raw, array.dtype, offset=1).reshape(array.shape)


LAYOUTS = [plain, plain, plain, np.asfortranarray, strided, backwards, foreign_order, unaligned]


SHAPES = st.one_of(
    st.tuples(st.integers(1, 400)),
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7).filter(lambda shape: math.prod(shape) <= 400),
)


@settings(max_examples=360, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe_pairs(shapes=SHAPES))
def test_figures_of_recipes(pair):
    check(*pair)


# --------------------------------------------------------------------------------------------------------------- blocks


LENGTHS = st.one_of(
    st.sampled_from([32767, 32768, 32769, 16384, 16385, 8193, 2**15 + 2**12 + 1]), st.integers(5000, 40_000)
)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe_pairs(shapes=LENGTHS.map(lambda n: (n,))))
def test_figures_of_tensors_longer_than_a_block(pair):
    left, right = pair
    check(_tiled(left), _tiled(right))


def _tiled(array: np.ndarray) -> np.ndarray:
    """Few distinct numbers, so that logarithms stay cheap: every stretch of 509 repeats, turned a little each time."""
    places = np.arange(array.size)
    return array[(places + places // 509 * 7) % 509]


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
def test_sums_of_many_terms_that_cancel(dtype):
    """More terms than are added one by one exactly: the dot product and the means are a millionth of a term."""
    half = np.resize(np.random.default_rng(3).normal(size=499).astype(np.float32), 70_001).astype(dtype)
    left, right = np.concatenate([half, half]), np.concatenate([half, -half])
    left[5] += 1e-6
    right[6] += 1e-6
    check(left, right)


@pytest.mark.parametrize("place", [0, 1, 8191, 8192, 16383, 16384, 32767, 32768, 65535, 65536, 99_998, 99_999])
@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64", "float16"])
def test_one_element_anywhere_is_found_and_weighed(place, dtype):
    left = np.resize(np.array([1, 2, 3, 5, 7, 11, 13], dtype), 100_000)
    right = left.copy()
    right[place] += 4
    figures = compare_arrays(left, right, with_divergence=False)
    assert (figures.differing, figures.max_abs_index, figures.max_abs_error) == (1, place, 4.0)
    width = 2 if dtype == "complex64" else 1
    assert figures.mean_abs_error == pytest.approx(4 / 100_000 / width, rel=1e-12, abs=0)
    assert figures.root_mean_square_error == pytest.approx(math.sqrt(16 / 100_000 / width), rel=1e-12, abs=0)
    assert figures.cosine < 1


# ---------------------------------------------------------------------------------------------------- chosen by hand


@pytest.mark.parametrize(
    "array",
    [
        np.float32([0.1] * 7),
        np.float32([1e-30, 3e-30]),
        np.float64([1e-300, 3e-310, 5e-324]),
        np.float64([1.7e308, -1.7e308, 3e307]),
        np.float16([65504, 6e-8]),
        np.array([3, -5], np.complex128) * 1e200j,
        np.array([2**64 - 1, 2**63 + 1], np.uint64),
        np.linspace(0.1, 0.9, 40_001, dtype=np.float32),
        np.random.default_rng(5).normal(size=33_333),
        np.random.default_rng(6).normal(size=33_333).astype(ml_dtypes.bfloat16),
    ],
    ids=lambda array: f"{array.dtype}-{array.size}",
)
def test_equal_bytes_have_a_cosine_of_exactly_one(array):
    figures = compare_arrays(array, array.copy())
    assert figures.cosine == 1.0
    assert (figures.max_abs_error, figures.relative_distance, figures.divergence) == (0.0, 0.0, 0.0)
    if array.dtype.kind == "f":
        wider = array.astype(np.float64)
        assert compare_arrays(array, wider).cosine == 1.0


BY_HAND = [
    (np.float64([1e308, -1e308]), np.float64([-1e308, 1e308])),  # a difference beyond float64, a mean of them too
    (np.float64([1.7e308, 0, 0, 0]), np.float64([-1.7e308, 0, 0, 0])),  # only the greatest is beyond
    (np.float64([1e-320, 2e-320]), np.float64([2e-320, 1e-320])),
    (np.float64([5e-324, 0]), np.float64([0, 5e-324])),
    (np.float64([1, 1e-170]), np.float64([1e-170, 1])),
    (np.float64([1e300, 1e-300]), np.float64([1e-300, 1e300])),
    (np.float64([1, 2, 3]) + 2.0**52, np.float64([3, 2, 1]) + 2.0**52),
    (np.array([2**53 + 1, 5]), np.float64([2**53, 5])),
    (np.array([2**63 + 5, 7], np.uint64), np.array([-1, 7], np.int64)),
    (np.array([True, False, True]), np.array([255, 0, 1], np.uint8)),
    (np.array([1 + 1j, complex(NAN, 1), complex(INF, NAN)]), np.array([1 - 1j, complex(NAN, 2), complex(INF, NAN)])),
    (np.array([1j, 2]), np.array([1, 2], np.int64)),
    (np.float32([2.2e-16, 1]), np.float32([2.2e-16, 2])),
    (np.float64([1, 5]), np.float64([2.220446049250313e-16, 2.220446049250314e-16])),
    (np.float64([1e300, 1]), np.float64([1e-10, 1])),  # a quotient beyond float64
    (np.float16([INF, 65504]), np.float16([65504, INF])),
    (np.float64([1e8, 1, -1e8]), np.float64([1e8, 1e-9, 1e8])),  # a dot product of 1e-9 under terms of 1e16
    (np.float64([1e16, 1, -1e16]), np.float64([1, 1e16, -1e16])),
    (np.float64([1e300, 1e280, -1e300]), np.float64([1e300, 1e-300, 1e300])),
    (np.float64([1e-300, 1e-310, -1e-300]), np.float64([1e-300, 1e-312, 1e-300])),
    (np.float64([1e-60, 1e-100, -1e-60]), np.float64([1, 1e-100, 1])),
    (np.float64([1 + 2.0**-52, 1, 1]) * 3e15, np.float64([1, 1 - 2.0**-53, 1]) * 7e-290),
    (np.float32([16777216, 16777214, 16777216]), np.float32([0.1, 0.1, 0.10000001])),
    (np.float32(NAN), np.float32(NAN)),
    (np.float32(3), np.float32(-3)),
    (np.float32([0.0]), np.float32([-0.0])),
]


@pytest.mark.parametrize("number", range(len(BY_HAND)))
def test_figures_of_chosen_pairs(number):
    check(*BY_HAND[number])


def test_the_greatest_difference_of_ids_is_the_exactly_greatest_one():
    check(np.array([2**60, 2**60 + 1, 5]), np.array([0, 0, 5]))


def test_a_mean_exists_where_only_the_sum_is_beyond_float64():
    check(np.full(40, 1e307), np.full(40, 1.0))


@pytest.mark.parametrize("value", [1e306, 1e-300, -5.0, 1e5])
def test_a_constant_side_is_a_uniform_distribution_whatever_its_size(value):
    check(np.full(40, value), np.linspace(0, 1, 40))
    check(np.linspace(0, 1, 40), np.full(40, value))
    check(np.full(40, value), np.full(40, 0.1))


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, st.integers(2, 20), elements=st.floats(width=64)), st.integers(0, 1))
@example(np.float64([1.7e308, 3.0]), 0)
def test_swapping_and_negating_change_no_distance(array, side):
    other = np.roll(array, 1)
    pair = (array, other) if side else (other, array)
    plain, turned = compare_arrays(*pair), compare_arrays(-pair[1], -pair[0])
    for name in (*SYMMETRIC, "differing", "non_finite_mismatches", "mismatch_index"):
        assert getattr(plain, name) == getattr(turned, name), name

"""Summaries of tensors, held against sums of exact fractions and against the values themselves."""

from __future__ import annotations

import base64
import json
import math
import threading
import warnings
from fractions import Fraction

import numpy as np
import pytest

from dumpers.capture.arrays import storable
from dumpers.capture.summaries import BLOCK, summarise, summarise_all
from dumpers.capture.summary_hash import order_free_hash, positional_hash, random_words
from dumpers.capture.summary_numbers import numbers_of
from dumpers.capture.summary_sketch import _BUCKETS, _ROWS, GROUP, SIZE, signs

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def projection(summary):
    return np.frombuffer(base64.b64decode(summary["projection"]), "<f8")


def root(value: Fraction) -> float:
    """The square root of a fraction of any size."""
    shift = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(value / Fraction(2) ** (2 * shift)), shift)


def expected(numbers, least):
    """The figures of some numbers by exact arithmetic; ``least`` is the exponent of the smallest normal number."""
    exact = [Fraction(x) for x in numbers if math.isfinite(x)]
    exponents = {}
    zero = subnormal = 0
    for value in exact:
        exponent = None if value == 0 else math.frexp(float(abs(value)))[1] - 1
        zero += exponent is None
        if exponent is not None and least is not None and exponent < least:
            subnormal += 1
        elif exponent is not None:
            exponents[exponent] = exponents.get(exponent, 0) + 1
    return {
        "min": min(exact, default=None),
        "max": max(exact, default=None),
        "mean": sum(exact) / len(exact) if exact else None,
        "spread": sum(abs(x) for x in exact),
        "l1": sum(abs(x) for x in exact) if exact else None,
        "l2": root(sum(x * x for x in exact)) if exact else None,
        "zero": zero,
        "subnormal": subnormal,
        "exponents": exponents,
    }


def histogram(found):
    first = found["first"]
    return {} if first is None else {first + i: n for i, n in enumerate(found["counts"]) if n}


def check(array, dtype, least, numbers=None):
    """Holds the summary of an array against exact figures of its numbers."""
    numbers = [x.item() for x in array.reshape(-1)] if numbers is None else numbers
    known = expected(numbers, least)
    found = summarise(array, dtype, "stats")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == sorted(found)
    for name in ("min", "max"):
        assert (None if found[name] is None else Fraction(found[name])) == known[name]
    if known["mean"] is None:
        assert found["mean"] is found["l1"] is found["l2"] is None
        return found
    count = sum(1 for x in numbers if math.isfinite(x))
    assert abs(Fraction(found["mean"]) - known["mean"]) <= Fraction(1e-14) * known["spread"] / count
    assert found["l1"] == pytest.approx(float(known["l1"]), rel=1e-13, abs=0)
    assert found["l2"] == pytest.approx(known["l2"], rel=1e-13, abs=0)
    assert found["zero_share"] == known["zero"] / len(numbers)
    shape = found["exponents"]
    assert (shape["of"], shape["zero"], shape["subnormal"]) == (count, known["zero"], known["subnormal"])
    assert histogram(shape) == known["exponents"]
    return found


# ---------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 3e4, 1e-7])
def test_figures_of_floats_are_those_of_exact_sums(dtype, scale):
    rng = np.random.RandomState(1)
    array = np.clip(rng.standard_normal((31, 17)) * scale, -6e4, 6e4).astype(dtype)
    array[::5, ::3] = 0
    array[1, 2] = -0.0
    check(array, dtype, {"float16": -14, "float32": -126, "float64": -1022}[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_of_floats(dtype):
    info = np.finfo(dtype)
    least = {"float16": -14, "float32": -126, "float64": -1022}[dtype]
    tiny = np.array([info.tiny, info.tiny / 2, -info.tiny / 4, 0, -0.0], dtype)
    check(tiny, dtype, least)
    check(np.array([info.max / 4, -info.max / 8, info.tiny], dtype), dtype, least)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_figures_of_integers_are_exact_at_both_ends(dtype):
    info = np.iinfo(dtype)
    array = np.array([info.min, info.max, 0, 1, 3, 4, 100], dtype)
    # The histogram sees 2^63 - 1 and 2^64 - 1 as their nearest float64.
    found = check(array, dtype, None, [x.item() for x in array] if info.bits < 64 else None)
    assert (found["min"], found["max"]) == (info.min, info.max)
    assert type(found["min"]) is int


def test_no_square_leaves_float64():
    array = np.array([1e300, -1e300, 3e300, 1.0])
    found = summarise(array, "float64", "stats")
    assert found["l2"] == pytest.approx(math.sqrt(11.0) * 1e300, rel=1e-14)
    assert found["l1"] == pytest.approx(5e300, rel=1e-14)
    small = summarise(array * 1e-200 * 1e-200 * 1e-200, "float64", "stats")
    assert small["l2"] == pytest.approx(math.sqrt(11.0) * 1e-300, rel=1e-14, abs=0)


def test_a_sum_beyond_float64_is_null_and_the_mean_is_not():
    found = summarise(np.full(10, 1.7e308), "float64", "sketch")
    assert (found["l1"], found["l2"], found["projection"]) == (None, None, None)
    assert found["mean"] == pytest.approx(1.7e308)


@pytest.mark.parametrize("dtype", FLOATS)
def test_non_finite_elements_are_counted_and_left_out(dtype):
    array = np.array([[np.nan, 1, np.inf], [-np.inf, -2, np.inf]], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = summarise(array, dtype, "sketch")
    assert [found[key] for key in ("count", "finite", "nan", "pos_inf", "neg_inf")] == [6, 2, 1, 2, 1]
    assert [found[key] for key in ("min", "max", "mean", "l1", "zero_share")] == [-2.0, 1.0, -0.5, 3.0, 0.0]
    clean = summarise(np.array([[0, 1, 0], [0, -2, 0]], dtype), dtype, "sketch")
    assert found["projection"] == clean["projection"]


def test_nothing_finite_has_no_figures():
    found = summarise(np.full(4, np.nan, np.float32), "float32", "sketch")
    assert [found[key] for key in ("finite", "nan", "min", "max", "mean", "l1", "l2", "exponents")] == [0, 4] + [
        None
    ] * 6
    assert found["zero_share"] == 0.0
    empty = summarise(np.zeros((0, 3), np.float32), "float32", "sketch")
    assert [empty[key] for key in ("count", "finite", "min", "mean", "zero_share", "exponents")] == [0, 0] + [None] * 4
    assert empty["shape"] == [0, 3]


def test_complex_numbers_are_one_element_with_two_numbers():
    array = np.array([1 + 2j, complex(np.nan, 5), complex(3, np.inf), complex(np.inf, -np.inf), 0j], np.complex64)
    found = summarise(array, "complex64", "stats")
    assert [found[key] for key in ("count", "finite", "nan", "pos_inf", "neg_inf")] == [5, 2, 1, 2, 0]
    assert [found[key] for key in ("min", "max", "mean", "l1", "zero_share")] == [0.0, 2.0, 0.75, 3.0, 0.2]


def test_booleans_strings_scalars_and_raw_bytes():
    flags = summarise(np.array([True, False, True, True]), "bool", "stats")
    assert [flags[key] for key in ("min", "max", "mean", "zero_share")] == [0, 1, 0.75, 0.25]
    assert summarise(np.float32(2.5).reshape(()), "float32", "stats")["l2"] == 2.5
    text, dtype, _ = storable(np.array([b"a", b"bcd"], dtype=object), "string")
    for mode in ("stats", "sketch", "hash"):
        found = summarise(text, dtype, mode)
        assert (found["count"], found["dtype"], found.get("min"), found.get("finite")) == (2, "string", None, None)
    unknown = summarise(np.zeros(3, "V3"), "future24", "sketch")
    assert (unknown["count"], unknown["mean"], unknown["projection"]) == (3, None, None)


LOW = {"bfloat16": -126, "float8_e5m2": -14, "float8_e4m3fn": -6, "float8_e4m3b11fnuz": -10, "float8_e5m2fnuz": -15,
       "float8_e4m3fnuz": -7}  # fmt: skip


@pytest.mark.parametrize("dtype", sorted(LOW))
def test_types_that_numpy_lacks(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, dtype))
    codes = np.arange(1 << (8 * kind.itemsize), dtype=f"u{kind.itemsize}").view(kind)
    raw, name, _ = storable(codes, dtype)
    numbers = numbers_of(raw, name)
    assert numbers is not None
    np.testing.assert_array_equal(numbers.decode(numbers.flat), codes.astype(np.float32))
    found = check(raw[::9].copy(), name, LOW[dtype], [float(x) for x in codes[::9]])
    assert found == summarise(codes[::9], dtype, "stats")  # the array of ml_dtypes itself


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_integers_of_half_a_byte(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.arange(-8, 8) if dtype == "int4" else np.arange(16)
    raw, name, _ = storable(values.astype(getattr(ml_dtypes, dtype)), dtype)
    found = summarise(raw, name, "stats")
    assert (found["min"], found["max"], found["mean"]) == (values.min(), values.max(), values.mean())


def test_layout_and_byte_order_do_not_matter():
    array = np.random.RandomState(3).standard_normal((6, 7, 5)).astype(np.float32)
    for mode in ("stats", "sketch", "hash"):
        known = summarise(array, "float32", mode)
        assert summarise(np.asfortranarray(array), "float32", mode) == known
        assert summarise(array.astype(">f4"), "float32", mode) == known
        assert summarise(np.repeat(array, 2, axis=1)[:, ::2], "float32", mode) == known


def test_tensors_of_many_blocks():
    rng = np.random.RandomState(4)
    array = rng.standard_normal(3 * BLOCK + 777).astype(np.float32)
    array[:50] = 0
    array[BLOCK + 3], array[2 * BLOCK + BLOCK // 2], array[-1] = np.nan, np.inf, -np.inf
    found = summarise(array, "float32", "stats")
    finite = array[np.isfinite(array)].astype(np.float64)
    assert [found[key] for key in ("nan", "pos_inf", "neg_inf", "finite")] == [1, 1, 1, len(finite)]
    assert (found["min"], found["max"]) == (finite.min(), finite.max())
    assert found["mean"] == pytest.approx(math.fsum(finite) / len(finite), rel=1e-12)
    assert found["l1"] == pytest.approx(math.fsum(abs(finite)), rel=1e-14)
    assert found["l2"] == pytest.approx(math.sqrt(math.fsum(finite**2)), rel=1e-14)
    assert found["zero_share"] == 50 / len(array)
    blocks = [array[start : start + BLOCK][::17] for start in range(0, len(array), BLOCK)]
    seen = np.concatenate(blocks)
    known = expected(seen.tolist(), -126)
    shape = found["exponents"]
    assert (shape["of"], shape["zero"]) == (np.isfinite(seen).sum(), known["zero"])
    assert histogram(shape) == known["exponents"]


def small_and_large():
    """Tensors of every size and kind, in an order that mixes them."""
    rng = np.random.RandomState(8)
    sizes = [
        0,
        1,
        2,
        3,
        7,
        8,
        9,
        15,
        16,
        17,
        127,
        128,
        129,
        250,
        251,
        252,
        502,
        1003,
        1004,
        1005,
        4000,
        8191,
        8192,
        8193,
        70000,
    ]
    found = []
    for number, size in enumerate(sizes * 6):
        for dtype in ("float32", "float16", "float64", "int32", "int64", "uint8", "bool", "complex64"):
            array = (rng.standard_normal(size) * 10.0 ** rng.randint(-4, 4)).astype(dtype)
            if size > 2 and number % 3 == 0:
                array[:: rng.randint(1, 5)] = 0
            if size and dtype.startswith("f") and number % 7 == 0:
                array[rng.randint(size)] = (np.nan, np.inf, -np.inf)[number % 3]
            if size and dtype == "float64" and number % 5 == 0:
                array *= (1e200, 1e-200)[number % 2]
            if size and dtype == "float32" and number % 4 == 0:
                array[rng.randint(size)] = -0.0
            found.append((array, dtype))
        found.append((rng.randint(0, 65536, size).astype(np.uint16).view("V2"), "bfloat16"))
        found.append((np.array([b"x" * (n % 5) for n in range(size % 100)], "S4"), "string"))
    return found


@pytest.mark.parametrize("mode", ["stats", "sketch", "hash"])
def test_tensors_together_have_the_summaries_that_each_has_alone(mode):
    mixed = small_and_large()
    together = summarise_all([array for array, _ in mixed], [dtype for _, dtype in mixed], mode)
    for (array, dtype), found in zip(mixed, together):  # noqa: B905 - Python 3.7
        assert json.dumps(found) == json.dumps(summarise(array, dtype, mode)), (dtype, array.shape)
    assert summarise_all([], [], mode) == []


def test_threads_do_not_share_scratch():
    arrays = [np.random.RandomState(i).standard_normal(200000).astype(np.float32) for i in range(4)]
    known = [[summarise(a, "float32", mode) for mode in ("sketch", "hash")] for a in arrays]
    wrong = []

    def work(number):
        for _ in range(5):
            again = [summarise(arrays[number], "float32", mode) for mode in ("sketch", "hash")]
            if again != known[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_bad_requests():
    with pytest.raises(ValueError, match="stats, sketch, hash"):
        summarise(np.zeros(1), "float64", "full")
    with pytest.raises(ValueError, match="object"):
        summarise(np.array([None], dtype=object), "string", "stats")


# ------------------------------------------------------------------------------------------------------- projection


def slow_words(seed, first, count):
    """SplitMix64 in Python's whole numbers."""
    mask, golden, found = (1 << 64) - 1, 0x9E3779B97F4A7C15, []
    for number in range(first, first + count):
        z = (number * golden + seed * golden) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        found.append(z ^ (z >> 31))
    return found


def test_stream_is_that_of_whole_numbers():
    assert random_words(0x736B6531, 1000, 50).tolist() == slow_words(0x736B6531, 1000, 50)
    # The published stream of SplitMix64 from state 0.
    assert [hex(int(w)) for w in random_words(1, 0, 2)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4"]


def slow_projection(numbers):
    """The projection by its definition, one sum after the other."""
    groups = -(-len(numbers) // GROUP)
    padded = np.zeros(groups * GROUP)
    padded[: len(numbers)] = numbers
    table = signs("table", 0, GROUP).reshape(_ROWS, _BUCKETS)
    total = np.zeros(_BUCKETS)
    for group in range(groups):
        sums = np.zeros(_BUCKETS)
        for row in range(_ROWS):
            sums = sums + padded[group * GROUP + row * _BUCKETS :][:_BUCKETS] * table[row]
        total += sums * signs("turn", group * _BUCKETS, _BUCKETS)
    return signs("matrix", 0, SIZE * _BUCKETS).reshape(SIZE, _BUCKETS).dot(total) / math.sqrt(SIZE)


@pytest.mark.parametrize("count", [1, 250, 251, 252, GROUP - 1, GROUP, BLOCK, BLOCK + 1, 3 * BLOCK + 4000])
def test_projection_is_the_one_defined(count):
    array = np.random.RandomState(count % 1000).standard_normal(count).astype(np.float32)
    found = projection(summarise(array, "float32", "sketch"))
    np.testing.assert_allclose(found, slow_projection(array), rtol=1e-10, atol=1e-10)


def test_signs_beyond_those_kept_are_of_the_same_stream():
    zeros = np.zeros(257 * GROUP + 5, np.float32)
    zeros[256 * GROUP + 251] = 1  # row 1, bucket 0 of group 256
    sign = signs("turn", 256 * _BUCKETS, 1)[0] * signs("table", _BUCKETS, 1)[0]
    column = signs("matrix", 0, SIZE * _BUCKETS).reshape(SIZE, _BUCKETS)[:, 0]
    np.testing.assert_array_equal(projection(summarise(zeros, "float32", "sketch")), column * sign / math.sqrt(SIZE))


def structured(kind, rng):
    """Pairs of tensors whose difference has a structure that a poor projection confuses."""
    rows, columns = rng.randint(3, 700), [16, 32, 64, 100, 256][rng.randint(5)]
    left = rng.standard_normal((rows, columns))
    change = np.zeros_like(left)
    if kind == "dense":
        change = rng.standard_normal(left.shape)
    elif kind == "shift":
        change[:] = 1.0
    elif kind == "column":
        change[:, rng.randint(columns)] = 1.0
    elif kind == "row":
        change[rng.randint(rows)] = rng.standard_normal(columns)
    elif kind == "outer":
        change = np.outer(rng.standard_normal(rows), rng.standard_normal(columns))
    else:
        change = 0.5 * left
    return left, left + 10.0 ** rng.randint(-4, 2) * change


@pytest.mark.parametrize("kind", ["dense", "shift", "column", "row", "outer", "scaled"])
def test_distances_of_200_pairs_are_estimated_within_the_stated_error(kind):
    rng = np.random.RandomState(7)
    ratios = []
    for _ in range(200):
        left, right = structured(kind, rng)
        ends = [projection(summarise(side, "float64", "sketch")) for side in (left, right)]
        ratios.append(np.sum((ends[0] - ends[1]) ** 2) / np.sum((left - right) ** 2))
    ratios = np.array(ratios)
    # The square: no bias, deviation 0.27; the fixed signs serve all pairs, so a mean of 200 has its own deviation too.
    assert abs(ratios.mean() - 1) < 0.1 if kind != "shift" else abs(ratios.mean() - 1) < 0.3
    assert np.sqrt(np.mean((ratios - 1) ** 2)) < 0.36
    assert np.mean(np.abs(np.sqrt(ratios) - 1) < 0.40) >= 0.985


def test_a_single_element_is_found_exactly():
    array = np.random.RandomState(2).standard_normal(100000)
    other = array.copy()
    other[54321] += 0.5
    ends = [projection(summarise(side, "float64", "sketch")) for side in (array, other)]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(0.5, rel=1e-9)


# ------------------------------------------------------------------------------------------------------------- hash


KINDS = ("bool", "int8", "float16", "float32", "float64", "int32", "int64", "uint64", "complex64", "complex128")


def sample(dtype, rng, count=1000):
    raw = rng.bytes(count * np.dtype(dtype).itemsize)
    return np.frombuffer(raw, "u1").astype(bool)[:count] if dtype == "bool" else np.frombuffer(raw, dtype).copy()


@pytest.mark.parametrize("dtype", KINDS)
def test_order_free_hash_is_that_of_the_multiset(dtype):
    rng = np.random.RandomState(5)
    array = sample(dtype, rng)
    known = order_free_hash(array, dtype)
    assert order_free_hash(array[rng.permutation(len(array))].reshape(10, 100), dtype) == known
    other = array.copy()
    if dtype == "bool":
        other[3] = not other[3]
    else:
        other.view("u1")[17] ^= 1
    assert order_free_hash(other, dtype) != known
    assert order_free_hash(np.append(array, array[:1]), dtype) != known


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "complex64", "complex128"])
def test_every_flipped_bit_changes_both_hashes(dtype):
    rng = np.random.RandomState(6)
    array = sample(dtype, rng, 37)
    known = (positional_hash(array, dtype), order_free_hash(array, dtype))
    raw = array.view("u1")
    for bit in range(8 * len(raw)):
        raw[bit // 8] ^= 1 << (bit % 8)
        assert positional_hash(array, dtype) != known[0]
        assert order_free_hash(array, dtype) != known[1]
        raw[bit // 8] ^= 1 << (bit % 8)


@pytest.mark.parametrize("places", [(0, 1), (0, 2), (1, 3), (5, 1000), (7, 8)])
def test_two_changed_signs_do_not_cancel(places):
    array = np.random.RandomState(8).standard_normal(2000).astype(np.float32)
    other = array.copy()
    other[list(places)] *= -1
    assert positional_hash(array, "float32") != positional_hash(other, "float32")
    assert order_free_hash(array, "float32") != order_free_hash(other, "float32")


def test_small_numbers_with_equal_sums_and_squares_differ():
    ids = (np.array([0, 4, 5], np.int32), np.array([1, 2, 6], np.int32))
    assert order_free_hash(ids[0], "int32") != order_free_hash(ids[1], "int32")


def test_positional_hash_sees_order_shape_and_dtype():
    array = np.arange(200003, dtype=np.float32)
    known = positional_hash(array, "float32")
    assert len(known) == 32
    for first, second in ((0, 1), (0, 2), (0, 65536), (65536, 131072), (1, 200002)):
        other = array.copy()
        other[[first, second]] = other[[second, first]]
        assert positional_hash(other, "float32") != known
    assert positional_hash(array.reshape(1, -1), "float32") != known
    assert positional_hash(array.view(np.int32), "int32") != known
    assert positional_hash(array.copy(), "float32") == known
    assert positional_hash(np.zeros(3, np.int8), "int8") != positional_hash(np.zeros(4, np.int8), "int8")


def test_hashes_of_pseudo_random_tensors_do_not_collide():
    rng = np.random.RandomState(9)
    seen = set()
    for _ in range(3000):
        array = rng.randint(0, 3, size=rng.randint(1, 6)).astype(np.int8)
        seen.add((array.tobytes(), positional_hash(array, "int8")))
    assert len({content for content, _ in seen}) == len({digest for _, digest in seen}) == len(seen)


def test_hash_and_sketch_of_known_tensors_stay_what_they_are():
    """A record of one version or host is compared with that of another."""
    array = np.arange(1000, dtype=np.float32)
    found = summarise(array, "float32", "hash")
    assert (found["positional"], found["order_free"]) == KNOWN[:2]
    assert [float(x) for x in projection(summarise(array, "float32", "sketch"))[:3] * math.sqrt(SIZE)] == pytest.approx(
        KNOWN[2], rel=1e-12
    )


KNOWN = ("29c04490ec2df9258e69420a7d45353b", "88fd9eeb01a3ae95", [-15616.0, -4206.0, -7572.0])

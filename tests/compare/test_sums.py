"""One-pass sums against extended precision and Python's integers; files against arrays; chunks against the whole."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compare import careful, sums
from compare.metrics import compare_arrays, compare_sources
from compare.onepass import checksum
from compare.sides import Side
from dumpers.errors import DataError
from dumpers.formats.crc32c import RunningChecksum, crc32c
from dumpers.formats.extent import TensorFile, open_tensor
from dumpers.formats.npy import NpySource, write_npy
from dumpers.formats.raw import RawSource

DTYPES = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "complex64", "complex128", "bool")},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn")},
}
SIZE = 5000
"""More than two steps of a kernel and not a multiple of four."""


def values(name: str, seed: int) -> np.ndarray:
    """Ordinary numbers of a type, with what it has of special ones."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[name]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, SIZE, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.random(SIZE) < 0.5
    made = rng.standard_normal(SIZE)
    made[::7] = 0
    if dtype.kind == "c":
        made = made + 1j * rng.standard_normal(SIZE)
    with np.errstate(all="ignore"):
        made = made.astype(dtype)
        made[rng.integers(0, SIZE, 9)] = np.nan
        if name != "float8_e4m3fn":
            made[rng.integers(0, SIZE, 9)] = -np.inf
    return made


def wide(array: np.ndarray) -> np.ndarray:
    """The exact numbers as long doubles, both parts of complex ones beside each other."""
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array).view(array.real.dtype).astype(np.longdouble)
    if array.dtype.type.__module__ != "numpy":
        array = array.astype(np.float32)
    return array.astype(np.longdouble)


@pytest.mark.parametrize(("left", "right"), [(a, b) for a, b in itertools.product(DTYPES, DTYPES)])
def test_sums_of_any_two_types(left: str, right: str) -> None:
    x, y = values(left, 1), values(right, 2)
    if left == right:
        y[: SIZE // 2] = x[: SIZE // 2]
    if "c" in x.dtype.kind + y.dtype.kind:
        x, y = (a if a.dtype.kind == "c" else a.astype(np.float64).astype(np.complex128) for a in (x, y))
    found = sums.accumulate(Side.of_array(x), Side.of_array(y))
    a, b = wide(x), wide(y)
    kinds = x.dtype.kind + y.dtype.kind
    if not set(kinds) <= set("biu"):  # an integer against a float counts as its nearest float64
        a, b = a.astype(np.float64).astype(np.longdouble), b.astype(np.float64).astype(np.longdouble)
    width = 2 if "c" in kinds else 1
    finite = (np.isfinite(a) & np.isfinite(b)).reshape(-1, width).all(axis=1)
    same = ((a == b) | (np.isnan(a) & np.isnan(b))).reshape(-1, width).all(axis=1)
    assert found.differing == np.count_nonzero(~same)
    assert found.mismatches == np.count_nonzero(~same & ~finite)
    assert found.first_mismatch == (int(np.argmax(~same & ~finite)) if found.mismatches else None)
    assert found.nan_left == np.count_nonzero(np.isnan(a).reshape(-1, width).any(axis=1))
    assert found.inf_right == np.count_nonzero(
        np.isinf(b).reshape(-1, width).any(axis=1) & ~np.isnan(b).reshape(-1, width).any(axis=1)
    )
    keep = np.repeat(finite, width)
    a, b, places = a[keep], b[keep], np.repeat(np.arange(finite.size), width)[keep]
    distance, above = np.abs(a - b), np.abs(b) > sums.ZERO
    relative = distance[above] / np.abs(b[above])
    assert found.finite == a.size
    assert found.relative_count == np.count_nonzero(above)
    assert found.differing_at_zero == np.count_nonzero((distance > 0) & ~above)
    expected = {
        "left_square": (a * a).sum(),
        "right_square": (b * b).sum(),
        "distance_square": (distance * distance).sum(),
        "distance": distance.sum(),
        "largest": distance.max(),
        "relative": relative.sum(),
        "relative_largest": relative.max(),
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(float(value), rel=1e-13, abs=0), name
    assert found.dot == pytest.approx(float((a * b).sum()), rel=1e-12, abs=1e-15 * float((np.abs(a * b)).sum()))
    assert found.left.mean == pytest.approx(float(a.mean()), rel=1e-12, abs=1e-16 * float(np.abs(a).mean()))
    assert found.right.deviation == pytest.approx(float(b.std()), rel=1e-12, abs=0)
    assert found.largest_at == places[np.argmax(distance)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.array([-(2**63), 5]), np.array([2**64 - 1, 5], np.uint64)),
        (np.array([2**64 - 1, 0], np.uint64), np.array([-1, -(2**63)])),
        (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)),
        (np.array([-(2**63)]), np.array([2**63 - 1])),
        (np.array([-1, 2**63 - 1]), np.array([2**63, 2**63], np.uint64)),
        (np.array([-5], np.int8), np.array([2**64 - 1], np.uint64)),
    ],
)
def test_differences_of_integers_are_exact(left: np.ndarray, right: np.ndarray) -> None:
    found = sums.accumulate(Side.of_array(left), Side.of_array(right))
    distances = [abs(int(a) - int(b)) for a, b in zip(left, right, strict=True)]
    assert found.largest_exact == max(distances)
    assert found.largest_at == distances.index(max(distances))
    assert found.differing == sum(map(bool, distances))
    assert found.distance == pytest.approx(float(sum(distances)), rel=1e-15, abs=0)


def opened(path: Path, array: np.ndarray) -> TensorFile:
    path.write_bytes(b"five:" + array.tobytes())
    file = open_tensor(RawSource(path, 5, array.dtype.name, array.shape))
    assert file is not None
    return file


@pytest.mark.parametrize("name", DTYPES)
def test_file_in_place_gives_the_bits_of_the_array(name: str, tmp_path: Path) -> None:
    x, y = values(name, 3), values(name, 4)
    whole = sums.accumulate(Side.of_array(x), Side.of_array(y))
    with opened(tmp_path / "x", x) as left, opened(tmp_path / "y", y) as right:
        assert sums.accumulate(Side.of_file(left), Side.of_file(right)) == whole


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int64", "bool"])
def test_chunks_in_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "CHUNK_BYTES", 1 << 12)
    left, right = Side.of_array(values(name, 5)), Side.of_array(values(name, 6))
    alone = sums.accumulate(left, right)
    for threads in (1, 2, 8):
        with ThreadPoolExecutor(threads) as pool:
            assert sums.accumulate(left, right, pool.map) == alone
    monkeypatch.undo()
    whole = sums.accumulate(left, right)
    for name_, value in asdict(whole).items():
        if isinstance(value, float):
            assert getattr(alone, name_) == pytest.approx(value, rel=1e-13, abs=0)
        elif not isinstance(value, dict):
            assert getattr(alone, name_) == value


def test_chunks_keep_the_first_greatest_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "CHUNK_BYTES", 64)
    for dtype in (np.float32, np.float64, np.int64):
        x = np.zeros(100, dtype)
        y = x.copy()
        y[[30, 60, 90]] = [3, -4, 4]
        assert sums.accumulate(Side.of_array(x), Side.of_array(y)).largest_at == 60


def test_exact_sums_of_many_numbers() -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal(1 << 18) * 10.0 ** rng.integers(-8, 8, 1 << 18)
    x[1::2] = -x[::2]
    x[77] += 1e-9
    y = rng.standard_normal(x.size)
    left, right = Side.of_array(x), Side.of_array(y)
    total = sum(map(Fraction, x.tolist()), Fraction())
    dot = sum((Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)), Fraction())
    for found in (
        careful.exact_sums(left, right, careful.PLAIN),
        sums._exact_sums(left, right, careful.PLAIN, (True, True, True), map),
    ):
        assert found[0] == pytest.approx(float(total), rel=1e-12, abs=0)
        assert found[1] == pytest.approx(math.fsum(y), rel=1e-15, abs=0)
        assert found[2] == pytest.approx(float(dot), rel=1e-14, abs=0)


def test_products_that_differ_by_their_rounding_alone() -> None:
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal(1 << 16), rng.standard_normal(1 << 16)
    x[1::2] = -x[::2]
    y[1::2] = np.nextafter(y[::2], np.inf)
    dot = float(sum((Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)), Fraction()))
    left, right = Side.of_array(x), Side.of_array(y)
    assert careful.exact_sums(left, right, careful.PLAIN)[2] == pytest.approx(dot, rel=1e-12, abs=0)
    wanted = (False, False, True)
    assert sums._exact_sums(left, right, careful.PLAIN, wanted, map)[2] == pytest.approx(dot, rel=1e-12, abs=0)


@pytest.mark.parametrize("size", [3, 70_000])
def test_cancelling_sums_are_taken_exactly(size: int) -> None:
    x = np.zeros(size)
    x[:3] = [1e16, 1.0, -1e16]
    found = sums.accumulate(Side.of_array(x), Side.of_array(np.ones(size)))
    assert found.left.mean == 1 / size
    assert found.dot == 1


def test_spread_about_a_far_mean() -> None:
    x = 1e8 + np.random.default_rng(8).standard_normal(10_000)
    found = sums.accumulate(Side.of_array(x), Side.of_array(x + 1))
    assert found.left.deviation == pytest.approx(float(x.astype(np.longdouble).std()), rel=1e-12, abs=0)


@pytest.mark.parametrize("value", [0.1, 1e-3, 3.0, 1e300, 5e-324])
def test_constant_side_has_no_spread(value: float) -> None:
    x = np.full(1001, value)
    found = sums.accumulate(Side.of_array(x), Side.of_array(np.arange(1001.0)))
    assert found.left.spread == 0


def test_any_byte_but_zero_is_true(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes([0, 1, 2, 255]))
    (tmp_path / "y").write_bytes(bytes([0, 1, 1, 1]))
    sources = [RawSource(tmp_path / name, 0, "bool", (4,)) for name in "xy"]
    assert compare_sources(*sources).differing == 0


def test_sources_as_arrays(tmp_path: Path) -> None:
    x = values("float32", 9).reshape(50, 100)
    cases = {"plain": x, "column": np.asfortranarray(x), "swapped": x.astype(">f4"), "other shape": x.reshape(100, 50)}
    for name, array in cases.items():
        np.save(tmp_path / f"{name}.npy", array)
    for one, two in itertools.product(cases, cases):
        left, right = NpySource(tmp_path / f"{one}.npy"), NpySource(tmp_path / f"{two}.npy")
        assert compare_sources(left, right) == compare_arrays(left.load(), right.load())


def test_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    write_npy(path, np.zeros(100_000, np.float32))
    with open_tensor(NpySource(path)) as left, open_tensor(NpySource(path)) as right:
        path.write_bytes(path.read_bytes()[:300_000])
        with pytest.raises(DataError, match="became shorter"):
            sums.accumulate(Side.of_file(left), Side.of_file(right))
        with pytest.raises(DataError, match="became shorter"):
            list(careful.finite_blocks(Side.of_file(left), Side.of_file(right)))


@pytest.mark.parametrize("hardware", [True, False])
@pytest.mark.parametrize(
    ("left_type", "right_type"),
    [("float32", "float32"), ("float16", "float32"), ("bool", "bool"), ("float64", "float64"), ("int64", "int32")],
)
@pytest.mark.parametrize("size", [1, 5, 70_001])
def test_checksums_are_those_of_the_bytes_and_change_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hardware: bool, left_type: str, right_type: str, size: int
) -> None:
    if hardware and not checksum.HARDWARE:
        pytest.skip("this processor has no instruction that the kernel knows")
    monkeypatch.setattr(checksum, "HARDWARE", hardware)
    rng = np.random.default_rng(size)
    arrays = [(rng.standard_normal(size) * 9).astype(DTYPES[name]) for name in (left_type, right_type)]
    sources = []
    for number, array in enumerate(arrays):
        write_npy(tmp_path / f"{number}.npy", array)
        sources.append(NpySource(tmp_path / f"{number}.npy"))
    calls: list[int] = []
    for chunk_bytes in (sums.CHUNK_BYTES, 1 << 16):  # of many chunks each goes on where the last one ended
        monkeypatch.setattr(sums, "CHUNK_BYTES", chunk_bytes)
        alone = sums.accumulate(*map(Side.of_array, arrays))
        with open_tensor(sources[0]) as left, open_tensor(sources[1]) as right:
            for file in (left, right):
                file.checksum = RunningChecksum(lambda: calls.append(1))
            assert sums._sweep(Side.of_file(left), Side.of_file(right), map, True)[0].size
            for file, array in zip((left, right), arrays, strict=True):
                assert (file.checksum.value, file.checksum.seen) == (crc32c(array.tobytes()), array.nbytes)
                file.checksum = RunningChecksum(lambda: calls.append(1))
            assert sums.accumulate(Side.of_file(left), Side.of_file(right)) == alone
    assert calls

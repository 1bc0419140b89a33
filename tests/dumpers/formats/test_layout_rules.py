"""Every private layout, back and forward, against one formula an element: where (n, c, h, w, d) lies in memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dumpers.errors import DataError
from dumpers.formats.enums import FORMATS
from dumpers.formats.layouts import PLAIN, PRIVATE, RULES, WITHOUT_RULE, from_original, is_private, to_original

Index = dict[str, int]
DTYPES = [np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128, np.bool_]


def up(number: int, block: int) -> int:
    return (number + block - 1) // block


def z(i: Index, d: Index, c0: int, ni: int) -> tuple[int, ...]:
    first = (i["c"] // c0 * d["h"] + i["h"]) * d["w"] + i["w"]
    return first, i["n"] // ni, i["n"] % ni, i["c"] % c0


def z3(i: Index, d: Index, c0: int, ni: int) -> tuple[int, ...]:
    first = ((i["d"] * up(d["c"], c0) + i["c"] // c0) * d["h"] + i["h"]) * d["w"] + i["w"]
    return first, i["n"] // ni, i["n"] % ni, i["c"] % c0


def z3t(i: Index, d: Index, c0: int, ni: int) -> tuple[int, ...]:
    first = ((i["d"] * up(d["n"], c0) + i["n"] // c0) * d["h"] + i["h"]) * d["w"] + i["w"]
    return first, i["c"] // ni, i["c"] % ni, i["n"] % c0


def z_c04(i: Index, d: Index, c0: int, ni: int) -> tuple[int, ...]:
    k = (i["h"] * d["w"] + i["w"]) * 4 + i["c"]
    return k // c0, i["n"] // ni, i["n"] % ni, k % c0


Place = Callable[[Index, Index, int, int], tuple[int, ...]]
Shape = Callable[[Index, int, int], tuple[int, ...]]
LAYOUTS: dict[str, tuple[Shape, Place]] = {
    "NC1HWC0": (
        lambda d, c0, ni: (d["n"], up(d["c"], c0), d["h"], d["w"], c0),
        lambda i, d, c0, ni: (i["n"], i["c"] // c0, i["h"], i["w"], i["c"] % c0),
    ),
    "NDC1HWC0": (
        lambda d, c0, ni: (d["n"], d["d"], up(d["c"], c0), d["h"], d["w"], c0),
        lambda i, d, c0, ni: (i["n"], i["d"], i["c"] // c0, i["h"], i["w"], i["c"] % c0),
    ),
    "FRACTAL_Z": (lambda d, c0, ni: (up(d["c"], c0) * d["h"] * d["w"], up(d["n"], ni), ni, c0), z),
    "FRACTAL_Z_3D": (lambda d, c0, ni: (d["d"] * up(d["c"], c0) * d["h"] * d["w"], up(d["n"], ni), ni, c0), z3),
    "FRACTAL_Z_3D_TRANSPOSE": (
        lambda d, c0, ni: (d["d"] * up(d["n"], c0) * d["h"] * d["w"], up(d["c"], ni), ni, c0),
        z3t,
    ),
    "FRACTAL_Z_C04": (lambda d, c0, ni: (up(4 * d["h"] * d["w"], c0), up(d["n"], ni), ni, c0), z_c04),
    "C1HWNCoC0": (
        lambda d, c0, ni: (up(d["c"], c0), d["h"], d["w"], d["n"], c0, c0),
        lambda i, d, c0, ni: (i["c"] // c0, i["h"], i["w"], i["n"], i["c"] % c0, i["c"] % c0),
    ),
    "C1HWNC0": (
        lambda d, c0, ni: (up(d["c"], c0), d["h"], d["w"], d["n"], c0),
        lambda i, d, c0, ni: (i["c"] // c0, i["h"], i["w"], i["n"], i["c"] % c0),
    ),
    "NHWC1C0": (
        lambda d, c0, ni: (d["n"], d["h"], d["w"], up(d["c"], c0), c0),
        lambda i, d, c0, ni: (i["n"], i["h"], i["w"], i["c"] // c0, i["c"] % c0),
    ),
    "C1HWC0": (
        lambda d, c0, ni: (up(d["n"], c0), d["h"], d["w"], c0),
        lambda i, d, c0, ni: (i["n"] // c0, i["h"], i["w"], i["n"] % c0),
    ),
}
LAYOUTS["NC1HWC0_C04"] = LAYOUTS["NC1HWC0"]
LAYOUTS["FRACTAL_Z_G"] = LAYOUTS["FRACTAL_Z"]
VOLUMES = {"NDC1HWC0", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"}


def values(shape: tuple[int, ...], dtype: type, seed: int) -> np.ndarray:
    """Any bit pattern, NaN with payloads among them."""
    rng = np.random.default_rng(seed)
    if dtype is np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.integers(0, 256, math.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def filled(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """What must never come out: padding that holds a pattern."""
    return np.full(math.prod(shape) * np.dtype(dtype).itemsize, 0xEE, np.uint8).view(dtype).reshape(shape)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def turned(array: np.ndarray, have: str, want: str) -> np.ndarray:
    return np.ascontiguousarray(array.transpose([have.index(axis) for axis in want]))


@st.composite
def tensors(draw: st.DrawFn, layout: str) -> tuple[str, Index]:
    axes = "NCDHW" if layout in VOLUMES else "NCHW"
    most = {"FRACTAL_Z_C04": {"C": 4}, "C1HWC0": {"C": 1}}.get(layout, {})
    size = {"N": 7, "C": 11, "D": 3, "H": 3, "W": 3, **most}
    dims = {axis.lower(): draw(st.integers(1, size[axis])) for axis in axes}
    if draw(st.integers(0, 7)) == 0:
        dims[draw(st.sampled_from("nhw"))] = 0
    return draw(st.sampled_from(sorted(name for name in PLAIN if sorted(name) == sorted(axes)))), dims


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@given(data=st.data(), block=st.sampled_from([(4, 4), (8, 4), (4, 2), (16, 16)]), dtype=st.sampled_from(DTYPES),
       seed=st.integers(0, 99))  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_back_and_forward_against_the_formula(
    layout: str, data: st.DataObject, block: tuple[int, int], dtype: type, seed: int
):
    plain_name, dims = data.draw(tensors(layout))
    c0, ni = block
    shape_of, place = LAYOUTS[layout]
    axes = "NCDHW" if layout in VOLUMES else "NCHW"
    plain = values(tuple(dims[axis.lower()] for axis in axes), dtype, seed)
    dirty, clean = filled(shape_of(dims, c0, ni), dtype), np.zeros(shape_of(dims, c0, ni), dtype)
    for index in np.ndindex(plain.shape):
        where = place(dict(zip(axes.lower(), index, strict=True)), dims, c0, ni)
        dirty[where] = clean[where] = plain[index]
    original = turned(plain, axes, plain_name)
    got = to_original(dirty, layout, original.shape, original_format=plain_name)
    assert same(got, original)
    assert got.flags.c_contiguous
    assert same(from_original(original, layout, original_format=plain_name, c0=c0, ni=ni), clean)


@pytest.mark.parametrize(("name", "order"), [("FRACTAL_NZ", "WH"), ("FRACTAL_ZZ", "HW")])
@given(shape=st.lists(st.integers(0, 9), min_size=1, max_size=5), block=st.sampled_from([(4, 4), (4, 8), (2, 4)]),
       dtype=st.sampled_from(DTYPES))  # fmt: skip
@settings(max_examples=60, deadline=None)
@example(shape=[33, 300], block=(16, 16), dtype=np.float16)
def test_matrices_of_any_rank(name: str, order: str, shape: list[int], block: tuple[int, int], dtype: type):
    ni, c0 = block
    plain = values(tuple(shape), dtype, 5)
    rows = plain.reshape(1, -1) if plain.ndim == 1 else plain
    count = {"W": up(rows.shape[-1], c0), "H": up(rows.shape[-2], ni)}
    stored_shape = (*rows.shape[:-2], *(count[axis] for axis in order), ni, c0)
    dirty, clean = filled(stored_shape, dtype), np.zeros(stored_shape, dtype)
    for index in np.ndindex(rows.shape):
        outer = {"W": index[-1] // c0, "H": index[-2] // ni}
        where = (*index[:-2], *(outer[axis] for axis in order), index[-2] % ni, index[-1] % c0)
        dirty[where] = clean[where] = rows[index]
    assert same(to_original(dirty, name, plain.shape), plain)
    assert same(from_original(plain, name, original_format="ND", c0=c0, ni=ni), clean)


@pytest.mark.parametrize("columns", [65, 200, 1030])
def test_many_columns_a_page_apart(columns: int):
    """Wide matrices are copied block by block."""
    plain = values((130, columns * 16 - 3), np.float16, 1)
    padded = np.zeros((256, columns * 16), np.float16)
    padded[:130, : plain.shape[1]] = plain
    stored = np.ascontiguousarray(padded.reshape(16, 16, columns, 16).transpose(2, 0, 1, 3))[:, :9]
    stored = np.ascontiguousarray(stored)
    assert same(to_original(stored, "FRACTAL_NZ", plain.shape), plain)
    whole = np.ascontiguousarray(padded.reshape(16, 16, columns, 16).transpose(2, 0, 1, 3))
    assert whole.strides[0] % 4096 == 0
    assert same(to_original(whole, "FRACTAL_NZ", padded.shape), padded)
    batch = np.stack([whole, whole[::-1]])
    assert same(to_original(batch, "FRACTAL_NZ", (2, *padded.shape))[0], padded)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 6), st.sampled_from([(16, 16), (4, 4), (8, 4)]),
       st.sampled_from(["FRACTAL_Z", "FRACTAL_Z_G", "FRACTAL_Z_3D"]), st.data())  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_grouped_filters(g: int, n: int, c: int, block: tuple[int, int], layout: str, data: st.DataObject):
    c0, ni = block
    axes = "NCDHW" if layout in VOLUMES else "NCHW"
    plain_name = data.draw(st.sampled_from(sorted(name for name in PLAIN if sorted(name) == sorted(axes))))
    size = {"N": g * n, "C": c, "D": 2, "H": 2, "W": 3}
    plain = values(tuple(size[axis] for axis in axes), np.float16, 3)
    depth = 2 if layout in VOLUMES else 1
    e = min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, ni) // n), g) if g > 1 else 1
    c1, n1 = up(e * c, c0), up(e * n, ni)
    packs = np.full((up(g, e), depth, c1, 2, 3, n1 * ni, c0), np.float16(-7))
    clean = np.zeros_like(packs)
    for f, ch, k in np.ndindex(g * n, c, depth):
        group = f // n
        to_c, to_n = group % e * c + ch, group % e * n + f % n
        filter_ = plain[f, ch, k] if layout in VOLUMES else plain[f, ch]
        for target in (packs, clean):
            target[group // e, k, to_c // c0, :, :, to_n, to_c % c0] = filter_
    stored_shape = (up(g, e) * depth * c1 * 6, n1, ni, c0)
    original = turned(plain, axes, plain_name)
    for name, groups in ((layout, g), (f"{layout}:{g}", 1)):
        got = to_original(packs.reshape(stored_shape), name, original.shape, original_format=plain_name, groups=groups)
        assert same(got, original)
    made = from_original(original, layout, original_format=plain_name, c0=c0, ni=ni, groups=g)
    assert same(made, clean.reshape(stored_shape))


def padded_parts(matrix: np.ndarray, rows: list[int], gates: int) -> np.ndarray:
    """A matrix whose parts are each padded to 16, as the operator's own test makes it."""
    bands = np.split(matrix, np.cumsum(rows)[:-1])
    bands = [np.pad(band, ((0, -band.shape[0] % 16), (0, 0))) for band in bands]
    parts = np.split(np.concatenate(bands), gates, axis=1)
    return np.concatenate([np.pad(part, ((0, 0), (0, -part.shape[1] % 16))) for part in parts], axis=1)


def as_zn(matrix: np.ndarray) -> np.ndarray:
    c, n = matrix.shape
    return np.ascontiguousarray(matrix.reshape(c // 16, 16, n // 16, 16).transpose(0, 2, 3, 1))


@given(st.integers(0, 40), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_lstm_weights(inputs: int, state: int):
    matrix = values((inputs + state, 4 * state), np.float16, 2)
    stored = as_zn(padded_parts(matrix, [part for part in (inputs, state) if part], 4))
    hwcn = matrix.reshape(1, 1, *matrix.shape)
    for original, name in ((matrix, "ND"), (hwcn, "HWCN"), (turned(hwcn, "HWCN", "NCHW"), "NCHW")):
        assert same(to_original(stored, "FRACTAL_ZN_LSTM", original.shape, original_format=name), original)
        assert same(from_original(original, "FRACTAL_ZN_LSTM", original_format=name), stored)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_recurrent_weights_come_back_or_are_refused(inputs: int, state: int, gates: int, both: bool):
    rows = [inputs, state] if both else [inputs]
    matrix = values((sum(rows), gates * state), np.float16, 2)
    stored = as_zn(padded_parts(matrix, rows, gates))
    if not both:
        assert same(from_original(matrix, "FRACTAL_ZN_RNN", original_format="ND", groups=gates), stored)
    for told in (gates, 1):
        got = outcome(lambda told=told: to_original(stored, "FRACTAL_ZN_RNN", matrix.shape, groups=told))
        if isinstance(got, str):
            assert "may be" in got
            assert (state % 16 and told == 1) or (sum(rows) % 16 and any(part % 16 for part in rows))
        else:
            assert same(got, matrix)


@given(st.integers(1, 40), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_recurrent_bias(state: int, gates: int):
    bias = values((gates * state,), np.float32, 2)
    stored = padded_parts(bias[None], [1], gates)[0]
    assert same(to_original(stored, "ND_RNN_BIAS", bias.shape, groups=gates), bias)
    assert same(from_original(bias, "ND_RNN_BIAS", original_format="ND", groups=gates), stored)
    if state % 16 == 0:
        assert same(to_original(stored, "ND_RNN_BIAS", bias.shape), bias)


def test_sizes_of_public_operator_tests():
    """Shapes that the conversion operator's own tests expect."""
    cases = [
        ("FRACTAL_Z_G", (6, 4, 3, 3), "NCHW", 2, (9, 1, 16, 16)),
        ("FRACTAL_Z_G", (32, 5, 3, 3), "NCHW", 8, (27, 2, 16, 16)),
        ("FRACTAL_Z_G", (800, 7, 2, 2), "NCHW", 40, (84, 20, 16, 16)),
        ("FRACTAL_Z_G", (448, 56, 3, 1), "NCHW", 4, (42, 14, 16, 16)),
        ("FRACTAL_ZN_RNN", (96, 288), "ND", 4, (6, 20, 16, 16)),
        ("FRACTAL_ZN_RNN", (2, 24), "ND", 2, (1, 2, 16, 16)),
        ("FRACTAL_ZN_LSTM", (80, 128), "ND", 1, (5, 8, 16, 16)),
    ]
    for layout, shape, name, groups, stored in cases:
        assert from_original(np.zeros(shape, np.int16), layout, original_format=name, groups=groups).shape == stored


def test_default_blocks():
    nchw = np.zeros((1, 40, 1, 1))
    blocks = {np.int8: 32, np.float16: 16, np.float32: 16, np.float64: 16}
    for dtype, c0 in blocks.items():
        assert from_original(nchw.astype(dtype), "NC1HWC0", original_format="NCHW").shape == (1, up(40, c0), 1, 1, c0)
        assert from_original(nchw.astype(dtype), "FRACTAL_Z", original_format="NCHW").shape[2:] == (16, c0)
    assert from_original(nchw, "NC1HWC0_C04", original_format="NCHW").shape == (1, 10, 1, 1, 4)


def test_fewer_axes_than_the_layout_has():
    bias = np.arange(20, dtype=np.float32)
    stored = np.zeros((1, 2, 1, 1, 16), np.float32)
    stored.reshape(-1)[:20] = bias
    assert same(to_original(stored, "NC1HWC0", (20,)), bias)
    assert same(to_original(stored, "NC1HWC0", (20,), original_format="NHWC"), bias)
    assert same(to_original(stored, "NC1HWC0", (1, 20)), bias.reshape(1, 20))
    assert same(to_original(stored, "NC1HWC0", (1, 20, 1, 1)), bias.reshape(1, 20, 1, 1))
    images = values((2, 5, 3, 4), np.float16, 1)
    flat = from_original(images, "NDC1HWC0", original_format="NHWC")
    assert flat.shape == (2, 1, 1, 5, 3, 16)
    assert same(to_original(flat, "NDC1HWC0", images.shape, original_format="NHWC"), images)
    matrix = values((20, 33), np.float16, 1)
    assert same(to_original(from_original(matrix, "FRACTAL_Z", original_format="ND"), "FRACTAL_Z", (20, 33)), matrix)


def test_two_readings_that_differ_are_refused_and_two_that_agree_are_not():
    with pytest.raises(DataError, match="NCHW or NHWC"):
        to_original(np.zeros((2, 1, 4, 4, 16)), "NC1HWC0", (2, 4, 4, 4))
    assert to_original(np.ones((2, 1, 1, 1, 16)), "NC1HWC0", (2, 1, 1, 1)).tolist() == [[[[1]]], [[[1]]]]
    with pytest.raises(DataError, match="6x4 or 2x12"):
        to_original(np.zeros((1, 1, 16, 16)), "FRACTAL_NZ", (2, 3, 4))
    assert to_original(np.zeros((2, 1, 1, 16, 16)), "FRACTAL_NZ", (2, 3, 4)).shape == (2, 3, 4)
    with pytest.raises(DataError, match="gates"):
        to_original(np.zeros((1, 2, 16, 16)), "FRACTAL_ZN_RNN", (2, 24))
    with pytest.raises(DataError, match="gates"):
        to_original(np.zeros(64), "ND_RNN_BIAS", (40,))


def test_plain_layouts_among_each_other():
    nchw = values((2, 3, 4, 5), np.float32, 1)
    for have in ("NCHW", "NHWC", "HWCN", "CHWN"):
        array = turned(nchw, "NCHW", have)
        for want in ("NCHW", "NHWC", "HWCN", "CHWN"):
            expected = turned(nchw, "NCHW", want)
            assert same(to_original(array, have, expected.shape, original_format=want), expected)
            assert same(from_original(expected, have, original_format=want), array)
    assert to_original(np.ones((2, 3)), "NC", (3, 2), original_format="CN").shape == (3, 2)
    volume = values((2, 3, 4, 5, 6), np.int8, 1)
    assert same(
        to_original(volume, "NCDHW", (4, 5, 6, 3, 2), original_format="DHWCN"), turned(volume, "NCDHW", "DHWCN")
    )
    bias = np.ones(16)
    assert to_original(bias, "NHWC", (16,), original_format="NCHW") is bias  # four letters on one axis mean nothing
    with pytest.raises(DataError, match="do not belong"):
        to_original(nchw, "NCHW", (2, 3, 4, 5), original_format="NHWC")


def test_output_array():
    plain = values((2, 20, 3, 4), np.float16, 1)
    stored = from_original(plain, "NC1HWC0", original_format="NCHW")
    out = np.empty_like(plain)
    assert to_original(stored, "NC1HWC0", plain.shape, original_format="NCHW", out=out) is out
    assert same(out, plain)
    for wrong in (
        np.empty((2, 20, 12), np.float16),
        np.empty(plain.shape, np.float32),
        np.empty(plain.shape, np.float16).T,
    ):
        with pytest.raises(ValueError, match="out is"):
            to_original(stored, "NC1HWC0", plain.shape, original_format="NCHW", out=wrong)


def test_stored_data_may_be_read_only_and_need_not_lie_together():
    plain = values((2, 20, 3, 4), ml_dtypes.bfloat16, 1)
    stored = from_original(plain, "NC1HWC0", original_format="NCHW")
    loose = np.repeat(stored, 2, axis=3)[:, :, :, ::2]
    loose.flags.writeable = False
    assert same(to_original(loose, "NC1HWC0", plain.shape, original_format="NCHW"), plain)
    loose_diagonal = from_original(plain, "C1HWNCoC0", original_format="NCHW")[::-1][::-1]
    loose_diagonal.flags.writeable = False
    assert same(to_original(loose_diagonal, "C1HWNCoC0", plain.shape, original_format="NCHW"), plain)
    assert same(from_original(plain.transpose(0, 2, 3, 1), "NC1HWC0", original_format="NHWC"), stored)


def test_every_layout_of_the_enum_is_plain_or_private_or_none():
    without_data = {name for name in FORMATS.values() if name.startswith("HASHTABLE")} | {
        "MD", "RESERVED", "ALL", "NULL", "MAX", "FILTER_HWCK",
    }  # fmt: skip
    for name in FORMATS.values():
        assert is_private(name) == (name not in PLAIN | without_data), name
    assert not PRIVATE & WITHOUT_RULE
    for name in WITHOUT_RULE:
        with pytest.raises(DataError, match="not public"):
            to_original(np.zeros((1, 1, 1, 1, 16)), name, (1, 1, 1, 1))
        with pytest.raises(DataError, match="not public"):
            from_original(np.zeros((1, 1, 1, 1)), name, original_format="NCHW")


def test_each_rule_says_where_it_comes_from():
    for name, rule in RULES.items():
        assert rule.certainty in ("verified", "documented", "derived")
        assert len(rule.basis) > 20, name


def outcome(call: Callable[[], np.ndarray]) -> np.ndarray | str:
    """What comes out, or the text of the only error that may."""
    try:
        return call()
    except DataError as error:
        return str(error)


SIZES = st.one_of(st.integers(-2, 20), st.sampled_from([1 << 31, 1 << 62, 1 << 63, 10**30]))


@given(st.sampled_from([*sorted(RULES), "FRACTAL_Z:3", "FRACTAL_NZ_C0_16", "FRACTAL_ODD", "FRACTAL_Z:99999999999"]),
       st.lists(st.integers(0, 5), max_size=7), st.lists(SIZES, max_size=8),
       st.sampled_from(["", "ND", "NCHW", "NHWC", "DHWNC", "NC", "XYZ"]),
       st.sampled_from([1, 2, 7, 1 << 40]))  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_hostile_shapes(layout: str, stored: list[int], shape: list[int], known: str, groups: int):
    array = np.zeros(stored, np.float16)
    got = outcome(lambda: to_original(array, layout, tuple(shape), original_format=known, groups=groups))
    if isinstance(got, str):
        assert "\n" not in got
    else:
        assert got.shape == tuple(shape)
        assert got.size <= max(1, array.size)


@given(st.sampled_from(sorted(RULES)), st.lists(st.integers(0, 3), max_size=6),
       st.sampled_from(["", "ND", "NCHW", "NHWC", "DHWNC", "NC", "XYZ"]),
       st.sampled_from([None, 0, -1, 1, 16, 1 << 40]), st.sampled_from([1, 0, 2, 1 << 40]))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_hostile_wishes(layout: str, shape: list[int], known: str, c0: int | None, groups: int):
    array = np.zeros(shape, np.float16)
    made = outcome(lambda: from_original(array, layout, original_format=known, c0=c0, groups=groups))
    assert "\n" not in made if isinstance(made, str) else made.dtype == np.float16


def test_a_claim_of_many_groups_costs_nothing():
    many = 1 << 50
    got = to_original(np.zeros((0, 1, 16, 16)), "FRACTAL_Z", (many, 1, 0, 1), original_format="NCHW", groups=many)
    assert got.shape == (many, 1, 0, 1)
    with pytest.raises(DataError, match="impossible"):
        to_original(np.zeros((0, 1, 1, 1, 16)), "NC1HWC0", (0, 10, many, many), original_format="NCHW")
    with pytest.raises(DataError, match="negative"):
        to_original(np.zeros((1, 1, 1, 1, 16)), "NC1HWC0", (-1, 10, 1, 1), original_format="NCHW")

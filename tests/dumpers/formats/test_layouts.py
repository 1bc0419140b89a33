"""Private layouts: packed here by brute force from the rule, and the real constants of a compiled model."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.ge_graph import read_ge_model
from dumpers.formats.ge_model import weight_bytes
from dumpers.formats.layouts import from_original, is_private, load_original, to_original
from dumpers.formats.raw import RawSource
from dumpers.formats.schema import tf_message
from dumpers.formats.tf_tensor import proto_array
from dumpers.records import TensorRecord

RNG = np.random.default_rng(3)


def axes(have: str, want: str) -> list[int]:
    return [have.index(axis) for axis in want]


def pack_nc1hwc0(nchw: np.ndarray, c0: int) -> np.ndarray:
    n, c, h, w = nchw.shape
    result = np.full((n, -(-c // c0), h, w, c0), -7, nchw.dtype)
    for channel in range(c):
        result[:, channel // c0, :, :, channel % c0] = nchw[:, channel]
    return result


@pytest.mark.parametrize("c0", [4, 16, 32])
@pytest.mark.parametrize("plain", ["NCHW", "NHWC", "HWCN"])
def test_nc1hwc0(plain: str, c0: int):
    nchw = RNG.normal(size=(2, 21, 5, 7)).astype(np.float32)
    original = nchw.transpose(axes("NCHW", plain))
    got = to_original(pack_nc1hwc0(nchw, c0), "NC1HWC0", original.shape)
    np.testing.assert_array_equal(got, original, strict=True)


@pytest.mark.parametrize("plain", ["NCDHW", "NDHWC"])
def test_ndc1hwc0(plain: str):
    ncdhw = RNG.normal(size=(2, 21, 3, 5, 7)).astype(np.float16)
    n, c, d, h, w = ncdhw.shape
    packed = np.zeros((n, d, 2, h, w, 16), np.float16)
    for channel in range(c):
        packed[:, :, channel // 16, :, :, channel % 16] = ncdhw[:, channel]
    original = ncdhw.transpose(axes("NCDHW", plain))
    np.testing.assert_array_equal(to_original(packed, "NDC1HWC0", original.shape), original, strict=True)


def pack_nz(matrices: np.ndarray, h0: int, w0: int) -> np.ndarray:
    *lead, rows, columns = matrices.shape
    result = np.full((*lead, -(-columns // w0), -(-rows // h0), h0, w0), -7, matrices.dtype)
    for row in range(rows):
        for column in range(columns):
            result[..., column // w0, row // h0, row % h0, column % w0] = matrices[..., row, column]
    return result


@pytest.mark.parametrize("shape", [(20, 40), (1, 1), (16, 16), (3, 20, 40), (2, 3, 17, 5)])
@pytest.mark.parametrize("block", [(16, 16), (16, 32), (32, 16)])
def test_fractal_nz(shape: tuple[int, ...], block: tuple[int, int]):
    original = RNG.normal(size=shape).astype(np.float32)
    np.testing.assert_array_equal(to_original(pack_nz(original, *block), "FRACTAL_NZ", shape), original, strict=True)


@pytest.mark.parametrize(("shape", "matrix"), [((20,), (1, 20)), ((4, 30, 40), (120, 40)), ((20, 4, 3, 5), (20, 60))])
def test_fractal_nz_of_merged_axes(shape: tuple[int, ...], matrix: tuple[int, int]):
    original = RNG.normal(size=shape).astype(np.float32)
    packed = pack_nz(original.reshape(matrix), 16, 16)
    np.testing.assert_array_equal(to_original(packed, "FRACTAL_NZ", shape), original, strict=True)


def pack_z(nchw: np.ndarray, c0: int, groups: int = 1) -> np.ndarray:
    """FRACTAL_Z by the rule for grouped filters; one group is the plain case."""
    total, c, h, w = nchw.shape
    n = total // groups
    e = min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, 16) // n), groups) if groups > 1 else 1
    c1, n1 = -(-(e * c) // c0), -(-(e * n) // 16)
    packs = -(-groups // e)
    result = np.zeros((packs, c1, h, w, n1, 16, c0), nchw.dtype)
    for g in range(groups):
        for f in range(n):
            for channel in range(c):
                cc, ff = (g % e) * c + channel, (g % e) * n + f
                result[g // e, cc // c0, :, :, ff // 16, ff % 16, cc % c0] = nchw[g * n + f, channel]
    return result.reshape(packs * c1 * h * w, n1, 16, c0)


@pytest.mark.parametrize("plain", ["NCHW", "NHWC", "HWCN"])
@pytest.mark.parametrize(("n", "c", "c0"), [(20, 5, 16), (32, 33, 16), (3, 1, 8)])
def test_fractal_z(plain: str, n: int, c: int, c0: int):
    nchw = RNG.normal(size=(n, c, 3, 4)).astype(np.float32)
    original = nchw.transpose(axes("NCHW", plain))
    got = to_original(pack_z(nchw, c0), "FRACTAL_Z", original.shape, original_format=plain)
    np.testing.assert_array_equal(got, original, strict=True)


@pytest.mark.parametrize(("groups", "n", "c"), [(2, 3, 5), (4, 8, 8), (6, 1, 1), (3, 20, 17)])
def test_grouped_fractal_z(groups: int, n: int, c: int):
    nchw = RNG.normal(size=(groups * n, c, 3, 2)).astype(np.float32)
    got = to_original(pack_z(nchw, 16, groups), "FRACTAL_Z", nchw.shape, original_format="NCHW", groups=groups)
    np.testing.assert_array_equal(got, nchw, strict=True)


def test_refusals():
    with pytest.raises(DataError, match="NCHW or NHWC"):
        to_original(np.zeros((2, 1, 4, 4, 16)), "NC1HWC0", (2, 4, 4, 4))
    with pytest.raises(DataError, match="do not belong"):
        to_original(np.zeros((2, 1, 4, 4, 16)), "NC1HWC0", (2, 17, 4, 4))
    with pytest.raises(DataError, match="do not belong"):
        to_original(np.zeros((1, 1, 16, 16)), "FRACTAL_NZ", (17, 3))
    with pytest.raises(DataError, match="dimensions"):
        to_original(np.zeros((1, 16)), "FRACTAL_Z", (3, 3, 3, 3))
    with pytest.raises(DataError, match=r"cannot be turned back .* the stored layout is shown"):
        to_original(np.zeros(4), "FRACTAL_Z_WINO", (4,))
    plain = np.zeros((3, 4))
    assert to_original(plain, "ND", (12,)) is plain
    assert is_private("FRACTAL_NZ")
    assert not is_private("NHWC")


def test_load_original_names_the_record(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(pack_nz(np.arange(6, dtype=np.float32).reshape(2, 3), 16, 16).tobytes())
    record = TensorRecord(
        "op", "MatMulV2", "output", 0, "float32", (1, 1, 16, 16), RawSource(path, 0, "float32", (1, 1, 16, 16)),
        format="FRACTAL_NZ", original_shape=(2, 3),
    )  # fmt: skip
    assert load_original(record).tolist() == [[0, 1, 2], [3, 4, 5]]
    wrong = TensorRecord(**{**record.__dict__, "original_shape": (40, 3)})
    with pytest.raises(DataError, match="op:output:0"):
        load_original(wrong)


CONSTANTS = {
    "dynamic_const_5478_34": "recognition/d_h1/w",
    "dynamic_const_5478_33": "recognition/d_h2/w",
    "dynamic_const_5478_32": "recognition/w_mean/Matrix",
    "dynamic_const_5478_31": "recognition/w_stddev/Matrix",
    "dynamic_const_5478_30": "generation/z_matrix/Matrix",
    "dynamic_const_5478_29": "generation/g_h1/w",
    "dynamic_const_5478_28": "generation/g_h2/w",
    "dynamic_const_5478_22": "recognition/d_h1/b",
    "dynamic_const_5478_14": "generation/z_matrix/bias",
}


def test_real_constants_of_a_compiled_model_are_bit_identical(shared_data: Path):
    folder = shared_data / "npu_samples" / "vae_om"
    graph = tf_message("GraphDef")
    graph.ParseFromString((folder / "hh.pb").read_bytes())
    originals = {
        node.name.decode(): proto_array(entry.value.tensor)
        for node in graph.node
        for entry in node.attr
        if node.op == b"Const" and entry.key == b"value"
    }
    weights = weight_bytes((folder / "hh_om.om").read_bytes())
    model = read_ge_model(folder / "hh_om.om")
    for name, original in CONSTANTS.items():
        desc = model.ops[name].attrs["value"]["desc"]
        start, size = desc["data_offset"], desc["weight_size"]
        stored = np.frombuffer(weights[start : start + size], np.float16).reshape(desc["shape"])
        got = to_original(
            stored, desc["format"], desc["attrs"]["origin_shape"], original_format=desc["attrs"]["origin_format"]
        )
        np.testing.assert_array_equal(got, originals[original].astype(np.float16), strict=True)
        again = from_original(got, desc["format"], original_format=desc["attrs"]["origin_format"])
        np.testing.assert_array_equal(again, stored, strict=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TransData.fmt_nc1hwc0.10.1706168000000001", np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)),
        ("MatMulV2.fmt_fractal_nz.11.3.1706168000000002", np.arange(1600).astype(np.float16).reshape(2, 20, 40)),
        ("Conv2D.fmt_fractal_z.12.3.1706168000000003", np.arange(900, dtype=np.float32).reshape(3, 3, 5, 20)),
    ],
)
def test_derived_dumps(shared_data: Path, name: str, expected: np.ndarray):
    from dumpers.formats.npu_dump import read_npu_dump

    found = read_npu_dump(shared_data / "npu_samples" / "derived" / "dumps" / name)
    record = (found.outputs or found.inputs)[0]
    np.testing.assert_array_equal(load_original(record), expected, strict=True)

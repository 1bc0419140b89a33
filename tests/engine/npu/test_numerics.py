"""The device's arithmetic against float64."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import EngineError
from engine.npu.numerics import (
    Numerics,
    blocked_matmul,
    blocked_sum,
    multiply_add,
    numerics_of,
    round_to_bfloat16,
    segment_sums,
)

EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize("inner", [0, 1, 3, 4, 257])
def test_product(inner):
    random = np.random.default_rng(inner)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in ((5, inner), (inner, 7)))
    bias = random.normal(size=7).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = EPS * (inner + 1) * (np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias))
    for added, reference in ((None, exact), (bias, exact + bias)):
        product = blocked_matmul(a, b, bias=added)
        assert product.dtype == np.float32
        assert product.shape == (5, 7)
        assert (np.abs(product - reference) <= bound).all()


def test_product_order_differs_from_one_sweep():
    random = np.random.default_rng(0)
    a, b = (random.normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    assert not np.array_equal(blocked_matmul(a, b), a @ b)


def test_half_operands_accumulate_in_float32():
    a = np.full((1, 4096), 1.0, np.float16)
    b = np.full((4096, 1), 1.0 + 2.0**-10, np.float16)
    product = blocked_matmul(a, b)
    assert product.dtype == np.float32
    assert product[0, 0] == 4100.0  # float16 would stop at 2048 or round to a multiple of 4


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="cannot be multiplied"):
        blocked_matmul(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2), ()])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("shape", [(300, 5, 4), (0, 3, 2)])
def test_sum(axes, keep, shape):
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    total = blocked_sum(values, axes, keep_dims=keep)
    exact = values.astype(np.float64).sum(axis=axes, keepdims=keep)
    assert total.shape == exact.shape
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, exact, rtol=1e-4, atol=300 * EPS * 4)


def test_segment_sums_against_a_loop():
    random = np.random.default_rng(2)
    values, segments = random.normal(size=(50, 3)).astype(np.float32), random.integers(-1, 6, 50)
    expected = np.zeros((7, 3))
    for row, segment in zip(values, segments, strict=True):
        if segment >= 0:
            expected[segment] += row
    np.testing.assert_allclose(segment_sums(values, segments, 7), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"not in \[0, 3\)"):
        segment_sums(values, np.full(50, 3), 3)
    assert segment_sums(values[:0], segments[:0], 2).tolist() == [[0.0] * 3] * 2


def test_multiply_add_rounds_once():
    x = np.float32(1 + 2.0**-12)
    # x * x = 1 + 2**-11 + 2**-24, whose last bit float32 cannot hold.
    fused = multiply_add(np.array([x]), np.array([x]), np.array([-1 - 2.0**-11], np.float32))
    assert fused.dtype == np.float32
    assert fused[0] == 2.0**-24
    assert x * x - np.float32(1 + 2.0**-11) == 0.0


def test_bfloat16_rounding():
    values = np.array([1.0 + 2.0**-9, 1.0 + 2.0**-7, np.inf], np.float32)
    np.testing.assert_array_equal(round_to_bfloat16(values), np.array([1.0, 1.0 + 2.0**-7, np.inf], np.float32))


def test_precision_modes():
    assert numerics_of("") is Numerics.FP32
    assert numerics_of("force_fp32") is Numerics.FP32
    assert numerics_of("allow_mix_precision_fp16") is Numerics.MIX
    assert numerics_of("", "mixed_float16") is Numerics.MIX
    with pytest.raises(EngineError, match=r"force_fp16.*knows.*allow_mix_precision"):
        numerics_of("force_fp16")
    with pytest.raises(EngineError, match="both set"):
        numerics_of("force_fp32", "origin")

"""Fused MatMul+BiasAdd on devices that load the bias into the accumulator first: honest, and faults stay visible."""

from __future__ import annotations

import numpy as np
import pytest

from compare.replay import fusion_hypotheses, local_error, precision_fit

ROWS, LENGTH, COLUMNS = 48, 256, 32


def bias_first(a, b, bias, order):
    """Adds the products one by one to the bias in float32, as a cube unit with a loaded accumulator does."""
    total = np.broadcast_to(bias, (a.shape[0], b.shape[1])).astype(np.float32)
    for k in order:
        total = total + a[:, k, None] * b[None, k, :]
    return total


def fused(make, member="BiasAdd"):
    return make.op(
        "fc",
        "MatMulV2",
        ("a:0", "b:0", "c:0"),
        originals=("fc/mat", "fc/bias"),
        _datadump_original_op_types=("MatMul", member),
    )


def factors(seed, *, scale=1.0, mean=0.0):
    random = np.random.default_rng(seed)
    a = (mean + random.normal(size=(ROWS, LENGTH))).astype(np.float32)
    return random, a, (scale * random.normal(size=(LENGTH, COLUMNS))).astype(np.float32)


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 1e3, 1e5, 1e7, 1e9])
@pytest.mark.parametrize("member", ["BiasAdd", "Add"])
def test_a_bias_that_the_accumulator_starts_from_is_honest(make, size, member):
    worst = 0.0
    for seed in range(6):
        random, a, b = factors(seed, mean=0.5 * (seed % 2))
        bias = (size * random.normal(size=COLUMNS)).astype(np.float32)
        for order in (np.arange(LENGTH), np.arange(LENGTH)[::-1], random.permutation(LENGTH)):
            (error,) = local_error(fused(make, member), [a, b, bias], [bias_first(a, b, bias, order)])
            worst = max(worst, error.ratio)
    assert 0 < worst <= 1


def test_equal_terms_that_vanish_in_a_large_bias_are_honest(make):
    a = np.full((4, 1024), 2.0**-26, np.float32)
    b, bias = np.ones((1024, 3), np.float32), np.ones(3, np.float32)
    got = bias_first(a, b, bias, range(1024))
    assert (got == 1).all()  # the whole product is lost
    (error,) = local_error(fused(make), [a, b, bias], [got])
    assert error.ratio <= 1


def test_a_dropped_bias_and_bfloat16_factors_are_still_seen(make):
    op = fused(make)
    for size in (1e-3, 0.1, 1.0, 30.0, 1e3):
        random, a, b = factors(7)
        bias = (size * random.normal(size=COLUMNS)).astype(np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        (error,) = local_error(op, [a, b, bias], [exact.astype(np.float32)])
        assert error.ratio > 100 * min(1, size)
        assert [h.member for h in fusion_hypotheses(op, [a, b, bias])] == ["fc/bias"]
        short = [(x.view(np.uint32) + 0x8000 & np.uint32(0xFFFF0000)).view(np.float32) for x in (a, b)]
        got = (short[0].astype(np.float64) @ short[1].astype(np.float64) + bias).astype(np.float32)
        (error,) = local_error(op, [a, b, bias], [got])
        assert error.ratio > 20
        assert precision_fit(op, [a, b, bias], [got]) == "bfloat16"

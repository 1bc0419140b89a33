"""A whole model: plain TensorFlow against the emulated device."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("mode", ["force_fp32", "allow_mix_precision"])
def test_losses_and_variables_are_close(click_model, config, train, resource, mode):
    golden = train(click_model(resource=resource), None)
    npu = train(click_model(resource=resource), config(precision_mode=mode))
    for left, right in zip(golden.first, npu.first, strict=True):
        np.testing.assert_array_equal(left, right)
    assert npu.device.steps == 4
    tolerance = 1e-6 if mode == "force_fp32" else 5e-3
    np.testing.assert_allclose(npu.losses, golden.losses, rtol=tolerance)
    # Adam divides by the root of the squared gradient: a rounding error in a tiny gradient can move a weight by lr.
    for left, right in zip(golden.last, npu.last, strict=True):
        np.testing.assert_allclose(right, left, atol=5e-5 if mode == "force_fp32" else 0.05)


def test_the_device_rounds_differently(click_model, config, train):
    golden = train(click_model(), None)
    fp32 = train(click_model(), config())
    mix = train(click_model(), config(precision_mode="allow_mix_precision"))
    differs = [not np.array_equal(a, b) for a, b in zip(golden.last, fp32.last, strict=True)]
    assert any(differs)
    error = [max(np.abs(a - b).max() for a, b in zip(golden.last, run.last, strict=True)) for run in (fp32, mix)]
    assert error[1] > error[0]


def test_the_same_run_twice_gives_the_same_bits(click_model, config, train):
    one, two = (train(click_model(), config(precision_mode="allow_mix_precision")) for _ in range(2))
    for left, right in zip(one.last, two.last, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "momentum", "rmsprop", "ftrl"])
@pytest.mark.parametrize("resource", [True, False])
def test_other_optimizers(click_model, config, train, optimizer, resource):
    golden = train(click_model(resource=resource, optimizer=optimizer), None)
    npu = train(click_model(resource=resource, optimizer=optimizer), config())
    for left, right in zip(golden.last, npu.last, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-4, atol=1e-5)


def test_initialisation_and_evaluation_are_no_steps(click_model, config, train):
    model = click_model()
    result = train(model, config(), steps=1)
    assert result.device.steps == 1
    assert len(result.device.graphs) == 1

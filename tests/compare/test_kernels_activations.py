"""Activations and their gradients, against TensorFlow; those of devices against their formulas in float64."""

import math

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op, Port
from tests.compare.tensorflow_oracle import HOSTILE, check, eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)

RNG = np.random.default_rng(31)
ALL = ("float32", "float64", "float16", "bfloat16")


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(31).bit_generator.state


def values():
    """Many sizes, zeros, subnormals, ends of the formats, no numbers."""
    return np.concatenate([RNG.normal(size=400) * 4, RNG.normal(size=200) * 1e-4, np.linspace(-90, 90, 301), HOSTILE])


SHAPES = [(), (1,), (0, 3), (7, 1, 5)]


@pytest.mark.parametrize("name", ["Elu", "Selu", "Softsign", "LeakyRelu", "Softplus", "Relu", "Relu6"])
@pytest.mark.parametrize("dtype", ALL)
def test_activations(name, dtype):
    for slope in (None, 0.1, 0.0, 1.5) if name == "LeakyRelu" else (None,):
        attrs = {} if slope is None else {"alpha": slope}
        check(name, {"features": values()}, attrs, dtypes=(dtype,), open_ended=True)
        check(name, {"features": RNG.normal(size=500) * 3}, attrs, dtypes=(dtype,))
    for shape in SHAPES:
        check(name, {"features": RNG.normal(size=shape)}, dtypes=(dtype,))


@pytest.mark.parametrize("name", ["EluGrad", "SeluGrad", "SoftsignGrad", "LeakyReluGrad", "SoftplusGrad", "ReluGrad",
                                  "Relu6Grad"])  # fmt: skip
@pytest.mark.parametrize("dtype", ALL)
def test_gradients(name, dtype):
    second = "outputs" if name in ("EluGrad", "SeluGrad") else "features"
    x = values()
    x = np.maximum(x, -1.7) if second == "outputs" else x
    dy = RNG.permutation(x)
    for slope in (None, 0.1, 0.0, 1.5) if name == "LeakyReluGrad" else (None,):
        attrs = {} if slope is None else {"alpha": slope}
        check(name, {"gradients": dy, second: x}, attrs, dtypes=(dtype,), open_ended=True)
        part = x[:500]
        check(name, {"gradients": RNG.normal(size=500), second: part}, attrs, dtypes=(dtype,))
    for shape in SHAPES:
        check(name, {"gradients": RNG.normal(size=shape), second: RNG.normal(size=shape)}, dtypes=(dtype,))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slope_of(function, x, step=1e-6):
    return (function(x + step) - function(x - step)) / (2 * step)


def swish(x, scale=1.0):
    return x / (1 + np.exp(-scale * x))


DEVICE = {
    "Gelu": (gelu, {}),
    "GeluV2": (lambda x: x * special.ndtr(x), {}),
    "FastGelu": (lambda x: swish(x, 1.702), {}),
    "Swish": (lambda x: swish(x, 1.5), {"scale": 1.5}),
    "Mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), {}),
    "HardSigmoid": (lambda x: np.clip(x / 4 + 0.5, 0, 1), {"alpha": 0.25}),
    "HardSwish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, {}),
}


@pytest.mark.parametrize("name", DEVICE)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_activations_of_devices(name, dtype):
    function, attrs = DEVICE[name]
    x = np.concatenate([RNG.normal(size=300) * 3, np.linspace(-12, 12, 201), [0.0, -0.0]]).astype(dtype)
    wide = function(x.astype(np.float64))
    op = Op("a", name, attrs=attrs, output_ports=(Port(dtype),))
    np.testing.assert_allclose(replay_op(op, [x]).exact[0], wide, rtol=1e-12, atol=1e-13)
    out = wide.astype(dtype)
    (error,) = local_error(op, [x], [out])
    assert (error.reason, error.unjudged) == ("", 0)
    assert error.ratio <= 1
    for wrong in (out * np.asarray(1.05, dtype), np.where(np.arange(out.size) == 5, out + np.asarray(0.3, dtype), out)):
        assert local_error(op, [x], [wrong])[0].ratio > RATIO_LIMIT


@pytest.mark.parametrize(("name", "function", "with_result"), [
    ("GeluGrad", gelu, True), ("FastGeluGrad", lambda x: swish(x, 1.702), False), ("SiluGrad", swish, False),
    ("SwishGrad", swish, True)])  # fmt: skip
def test_gradients_of_devices(name, function, with_result):
    x, dy = RNG.normal(size=(2, 400)) * 3
    inputs = [dy, x, function(x)] if with_result else [dy, x]
    wide = dy * slope_of(function, x)
    op = Op("g", name)
    np.testing.assert_allclose(replay_op(op, inputs).exact[0], wide, atol=1e-8)
    single = [part.astype("f") for part in inputs]
    out = (dy * slope_of(function, single[1].astype("d"))).astype("f")
    (error,) = local_error(op, single, [out])
    assert error.ratio <= 1
    out[np.argmax(np.abs(out))] *= np.float32(1.0001)
    assert local_error(op, single, [out])[0].ratio > RATIO_LIMIT


def test_slopes_by_element_and_channel():
    x = RNG.normal(size=(2, 3, 4)).astype("f")
    for weight in (np.float32([0.25]), RNG.normal(size=3).astype("f"), RNG.normal(size=x.shape).astype("f")):
        shaped = weight.reshape((1, -1, 1)) if weight.shape == (3,) else weight
        out = np.where(x > 0, x, shaped * x)
        (error,) = local_error(Op("p", "PRelu"), [x, weight], [out])
        assert (error.reason, error.unjudged) == ("", 0)
        assert error.ratio <= 1
        assert local_error(Op("p", "PRelu"), [x, weight], [np.maximum(x, 0)])[0].ratio > RATIO_LIMIT
    assert "slopes of shape" in replay_op(Op("p", "PRelu"), [x, np.ones(4, "f")]).reason


def test_wrong_slopes_are_found():
    x = RNG.normal(size=200).astype("f")
    leaky, elu, selu = (f(x).numpy() for f in (tf.nn.leaky_relu, tf.nn.elu, tf.nn.selu))
    assert local_error(Op("l", "LeakyRelu"), [x], [leaky])[0].ratio <= 1
    assert local_error(Op("l", "LeakyRelu", attrs={"alpha": 0.21}), [x], [leaky])[0].ratio > RATIO_LIMIT
    assert local_error(Op("l", "LeakyRelu", attrs={"negative_slope": 0.2}), [x], [leaky])[0].ratio <= 1
    assert local_error(Op("e", "Elu"), [x], [np.where(x < 0, 1.01 * elu, elu)])[0].ratio > RATIO_LIMIT
    assert local_error(Op("s", "Selu"), [x], [selu * np.float32(1.0001)])[0].ratio > RATIO_LIMIT


DAMAGED = [
    ("LeakyRelu", {"alpha": "much"}),
    ("LeakyRelu", {"alpha": math.nan}),
    ("Swish", {"scale": True}),
    ("GeluV2", {"approximate": "some"}),
]


@pytest.mark.parametrize(("name", "attrs"), DAMAGED)
def test_damaged_attributes_are_reasons(name, attrs):
    assert replay_op(Op("h", name, attrs=attrs), [np.ones(3, "f")]).reason.startswith("not replayable: ")


def test_bfloat16_subnormals_may_be_flushed():
    tiny = ml_dtypes.bfloat16(1e-39)
    x = np.array([tiny, 1.0], ml_dtypes.bfloat16)
    for kept in (x, np.array([0.0, 1.0], x.dtype)):
        assert local_error(Op("m", "Mul"), [x, np.ones(2, x.dtype)], [kept])[0].ratio <= 1


def test_a_flushed_input_never_makes_a_kept_one_wrong():
    """With the input taken as zero the logarithm is infinite; the one that was kept is off by a unit."""
    x = np.array([1e-40, 2.0], "f")
    kept = np.log(x)
    for out in (kept, np.nextafter(kept, np.float32(np.inf)), np.array([-np.inf, kept[1]], "f")):
        assert local_error(Op("l", "Log"), [x], [out])[0].ratio <= 1
    assert local_error(Op("l", "Log"), [x], [kept * np.float32(1.001)])[0].ratio > RATIO_LIMIT

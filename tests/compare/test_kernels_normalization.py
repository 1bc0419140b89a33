"""Batch and layer normalization and their gradients, against TensorFlow and against plain float64."""

import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op
from tests.compare.tensorflow_oracle import eager_mode, named, plant, typed

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)

RNG = np.random.default_rng(32)
VERSIONS = [("FusedBatchNorm", "float32"), ("FusedBatchNormV2", "float32"), ("FusedBatchNormV3", "float32"),
            ("FusedBatchNormV3", "float16"), ("FusedBatchNormV3", "bfloat16")]  # fmt: skip


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(32).bit_generator.state


def batch(name, dtype, x, *, training, factor=1.0, layout="NHWC", epsilon=1e-3):
    """Attributes, inputs and outputs of TensorFlow's forward op."""
    channels = x.shape[1 if layout.startswith("NC") else -1]
    moments = [RNG.uniform(0.5, 2, size=channels), RNG.normal(size=channels), RNG.normal(size=channels),
               RNG.uniform(0.1, 3, size=channels)]  # fmt: skip
    inputs = [typed(x, dtype), *(part.astype("f") for part in moments)]
    attrs = {"is_training": training, "epsilon": epsilon, "data_format": layout}
    if name != "FusedBatchNorm" or factor != 1:
        attrs["exponential_avg_factor"] = factor
    given = inputs if not training or factor != 1 else [*inputs[:3], np.zeros(0, "f"), np.zeros(0, "f")]
    names = ("x", "scale", "offset", "mean", "variance")
    out = getattr(tf.raw_ops, name)(**dict(zip(names, map(tf.constant, given), strict=True)), **attrs)
    return attrs, given, [part.numpy() for part in out]


def judged(name, attrs, inputs, outputs):
    op = Op("n", name, attrs=named(attrs))
    errors = local_error(op, inputs, outputs)
    for error in errors[:3]:
        assert (error.reason, error.unjudged) == ("", 0)
        assert error.ratio <= 1, error
    for error in errors[3:]:
        assert error.ratio is None
        assert "kept for the gradient" in error.reason
    plant(op, inputs, outputs[:3], replay_op(op, inputs))


DATA = {
    "plain": lambda: RNG.normal(size=(8, 5, 4, 6)),
    "far from zero": lambda: RNG.normal(size=(8, 5, 4, 6)) + 1000,
    "constant": lambda: np.full((4, 3, 3, 2), 0.3),
    "one row": lambda: RNG.normal(size=(1, 1, 1, 5)),
    "long": lambda: RNG.normal(size=(512, 3, 3, 2)) * 5 - 1,
    "small": lambda: RNG.normal(size=(8, 2, 2, 3)) * 1e-3,
}


@pytest.mark.parametrize(("name", "dtype"), VERSIONS)
@pytest.mark.parametrize("data", DATA)
def test_batch_norm(name, dtype, data):
    x = DATA[data]()
    for training, factor in ((True, 1.0), (True, 0.1), (False, 1.0)):
        if name == "FusedBatchNorm" and factor != 1:
            continue
        judged(name, *batch(name, dtype, x, training=training, factor=factor))


@pytest.mark.parametrize("training", [True, False])
def test_channels_first(training):
    x = RNG.normal(size=(6, 4, 5, 3))
    attrs, inputs, outputs = batch("FusedBatchNormV3", "float32", x, training=training)
    inputs[0], outputs[0] = (np.moveaxis(part, -1, 1) for part in (inputs[0], outputs[0]))
    judged("FusedBatchNormV3", {**attrs, "data_format": "NCHW"}, inputs, outputs)
    wrong = {**attrs, "data_format": "NHWC"}
    assert local_error(Op("n", "FusedBatchNormV3", attrs=wrong), inputs, outputs)[0].ratio is None


@pytest.mark.parametrize(("name", "dtype"), VERSIONS)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradients(name, dtype, data, training):
    x = DATA[data]()
    attrs, inputs, outputs = batch(name, dtype, x, training=training)
    attrs.pop("exponential_avg_factor", None)
    saved = outputs[3:5]
    grad = name.replace("Norm", "NormGrad")
    names = ("y_backprop", "x", "scale", "reserve_space_1", "reserve_space_2", "reserve_space_3")
    given = [typed(RNG.normal(size=x.shape), dtype), inputs[0], inputs[1], *saved, *outputs[5:]]
    given = given if name.endswith("V3") else given[:5]
    out = getattr(tf.raw_ops, grad)(**dict(zip(names, map(tf.constant, given), strict=False)), **attrs)
    judged(grad, attrs, given, [part.numpy() for part in out])


def test_the_inverse_root_that_other_kernels_keep():
    x = RNG.normal(size=(8, 5, 4, 6)) * 3
    attrs, inputs, outputs = batch("FusedBatchNormV3", "float32", x, training=True)
    attrs.pop("exponential_avg_factor")
    dy = RNG.normal(size=x.shape).astype("f")
    mean, variance = outputs[3:5]
    out = tf.raw_ops.FusedBatchNormGrad(y_backprop=dy, x=inputs[0], scale=inputs[1], reserve_space_1=mean,
                                        reserve_space_2=variance, **attrs)  # fmt: skip
    cuda = [dy, inputs[0], inputs[1], mean, 1 / np.sqrt(variance + np.float32(1e-3))]
    for error in local_error(Op("g", "FusedBatchNormGrad", attrs=attrs), cuda, [part.numpy() for part in out])[:3]:
        assert error.ratio <= 1


def test_wrong_settings_are_found():
    x = RNG.normal(size=(8, 5, 4, 6)) * 0.1
    attrs, inputs, outputs = batch("FusedBatchNormV3", "float32", x, training=True, factor=0.1)

    def ratios(**changed):
        op = Op("n", "FusedBatchNormV3", attrs={**attrs, **changed})
        return [error.ratio for error in local_error(op, inputs, outputs)[:3]]

    assert max(ratios()) <= 1
    assert ratios(epsilon=1.1e-3)[0] > RATIO_LIMIT
    assert ratios(exponential_avg_factor=0.11)[1] > RATIO_LIMIT
    assert ratios(is_training=False)[0] > RATIO_LIMIT
    biased = (np.float32(0.9) * inputs[4] + np.float32(0.1) * np.var(inputs[0], axis=(0, 1, 2))).astype("f")
    outputs[2] = biased
    assert ratios()[2] > RATIO_LIMIT


def test_numbers_that_are_none_stay_in_their_channel():
    x = RNG.normal(size=(4, 3, 3, 5))
    x[0, 0, 0, 1], x[1, 1, 1, 2] = np.nan, np.inf
    for training in (True, False):
        attrs, inputs, outputs = batch("FusedBatchNormV3", "float32", x, training=training)
        errors = local_error(Op("n", "FusedBatchNormV3", attrs=attrs), inputs, outputs)
        assert max(error.ratio for error in errors[:3]) <= 1
    empty = np.zeros((0, 3, 3, 2))
    attrs, inputs, outputs = batch("FusedBatchNormV3", "float32", empty, training=True)
    errors = local_error(Op("n", "FusedBatchNormV3", attrs=attrs), inputs, outputs)
    assert max(error.ratio for error in errors[:3]) <= 1


def rounded(wide, inputs, op):
    outputs = [part.astype("f") for part in wide]
    for error in local_error(op, inputs, outputs):
        assert (error.reason, error.unjudged) == ("", 0)
        assert error.ratio <= 1
    plant(op, inputs, outputs, replay_op(op, inputs))


def test_layer_norm_of_devices():
    x = RNG.normal(size=(6, 7, 20)).astype("f")
    gamma, beta = RNG.uniform(0.5, 2, size=20).astype("f"), RNG.normal(size=20).astype("f")
    wide = x.astype("d")
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    y = (wide - mean) / np.sqrt(variance + np.float32(1e-5)) * gamma + beta
    op = Op("l", "LayerNorm", attrs={"begin_norm_axis": 2, "begin_params_axis": 2, "epsilon": 1e-5})
    rounded([y, mean, variance], [x, gamma, beta], op)
    dy = RNG.normal(size=x.shape).astype("f")
    with tf.GradientTape() as tape:
        parts = [tf.constant(part.astype("d")) for part in (x, gamma, beta)]
        tape.watch(parts)
        moments = tf.nn.moments(parts[0], -1, keepdims=True)
        result = tf.nn.batch_normalization(parts[0], *moments, parts[2], parts[1], 1e-12)
    slopes = [part.numpy() for part in tape.gradient(result, parts, dy.astype("d"))]
    inputs = [dy, x, variance.astype("f"), mean.astype("f"), gamma]
    rounded(slopes, inputs, Op("l", "LayerNormGrad"))


def test_batch_norm_in_the_parts_of_devices():
    """NC1HWC0: sums first, then the normalization by them; the same as TensorFlow's op on NCHW."""
    x = RNG.normal(size=(4, 2, 5, 3, 16)).astype("f")
    wide, axes, count = x.astype("d"), (0, 2, 3), 4 * 5 * 3
    sums = [part.sum(axes, keepdims=True) for part in (wide, wide**2)]
    rounded(sums, [x], Op("r", "BNTrainingReduce"))
    given = [part.astype("f") for part in sums]
    shape = given[0].shape
    scale, offset, old_mean, old_variance = (RNG.uniform(0.5, 2, size=shape).astype("f") for _ in range(4))
    mean = given[0].astype("d") / count
    variance = given[1].astype("d") / count - mean**2
    y = (wide - mean) / np.sqrt(variance + np.float32(1e-3)) * scale + offset
    unbiased = variance * count / (count - 1)
    keep = 1 - np.float64(np.float32(0.1))
    new = [mean * (1 - keep) + old_mean * keep, unbiased * (1 - keep) + old_variance * keep]
    op = Op("u", "BNTrainingUpdate", attrs={"factor": 0.1, "epsilon": 1e-3})
    rounded([y, *new, mean, unbiased], [x, *given, scale, offset, old_mean, old_variance], op)
    frozen = (wide - old_mean) / np.sqrt(old_variance.astype("d") + np.float32(1e-3)) * scale + offset
    infer = Op("i", "BNInfer", attrs={"epsilon": 1e-3})
    rounded([frozen], [x, scale, offset, old_mean, old_variance], infer)


@pytest.mark.parametrize(("kind", "inputs", "attrs"), [
    ("FusedBatchNorm", [np.ones((2, 3), "f"), *[np.ones(3, "f")] * 4], {}),
    ("FusedBatchNorm", [np.ones((2, 2, 2, 3), "f"), *[np.ones(4, "f")] * 4], {}),
    ("FusedBatchNorm", [np.ones((2, 2, 2, 3), "f"), *[np.ones(3, "f")] * 4], {"epsilon": "x"}),
    ("FusedBatchNorm", [np.ones((2, 2, 2, 3), "f"), *[np.ones(3, "f")] * 2, *[np.ones(0, "f")] * 2],
     {"is_training": False}),
    ("FusedBatchNormGrad", [np.ones((2, 2, 2, 3), "f"), np.ones((2, 2, 3), "f"), *[np.ones(3, "f")] * 3], {}),
    ("LayerNorm", [np.ones((2, 3), "f"), np.ones(3, "f"), np.ones(3, "f")], {"begin_norm_axis": 5}),
    ("LayerNormGrad", [np.ones((2, 3), "f"), np.ones((2, 3), "f"), *[np.ones((2, 1), "f")] * 2, np.ones(2, "f")], {}),
    ("BNTrainingReduce", [np.ones((2, 3), "f")], {}),
])  # fmt: skip
def test_damaged_dumps_are_reasons(kind, inputs, attrs):
    assert replay_op(Op("h", kind, attrs=attrs), inputs).reason.startswith("not replayable: ")

"""Einsum and convolutions against TensorFlow, and faults in them that no cosine shows."""

import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op
from tests.compare.tensorflow_oracle import check, eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)
TWO = ("float32", "float64")


@pytest.fixture
def random():
    return np.random.default_rng(41)


EQUATIONS = [
    ("ij,jk->ik", (7, 40), (40, 9)),
    ("bfd,bhd->bdfh", (6, 5, 8), (6, 3, 8)),
    ("bdfh,bdf->bhd", (6, 8, 5, 3), (6, 8, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 30), (4, 30, 5)),
    ("abc,cd->abd", (3, 4, 50), (50, 6)),
    ("ij,kj->", (6, 20), (3, 20)),
    ("ij,jk->k", (6, 20), (20, 5)),
    ("bij,bij->b", (4, 30, 7), (4, 30, 7)),
    ("i,j->ij", (5,), (6,)),
    ("ij,ij->ij", (5, 6), (5, 6)),
    ("...a,...a->...", (3, 4, 25), (4, 25)),
    ("iij,jk->ik", (6, 6, 20), (20, 3)),
]


@pytest.mark.parametrize(("equation", "left", "right"), EQUATIONS)
def test_einsum_of_two(random, equation, left, right):
    values = [random.normal(size=left), random.normal(size=right)]
    check("Einsum", {"inputs": values}, {"equation": equation}, dtypes=TWO)


@pytest.mark.parametrize(
    ("equation", "shape"),
    [("ij->ji", (4, 5)), ("ij->i", (4, 300)), ("ii->i", (6, 6)), ("ii->", (90, 90)), ("a...->...", (200, 2, 3))],
)
def test_einsum_of_one(random, equation, shape):
    check("Einsum", {"inputs": [random.normal(size=shape)]}, {"equation": equation}, dtypes=TWO)


@pytest.mark.parametrize(
    "equation", ["", "ij", "ij,jk", "i.j->i", "ij,jk,kl->il", "ij->ii", "ij->k", "ijk->i", "ij,jk->il"]
)
def test_what_no_einsum_is_becomes_a_reason(equation):
    x = np.ones((2, 2), np.float32)
    replay = replay_op(Op("e", "Einsum", attrs={"equation": equation}), [x] * (equation.count(",") + 1))
    assert replay.reason.startswith("not replayable:")


def test_einsum_with_inputs_rounded_to_bfloat16_is_found(random):
    a, b = random.normal(size=(32, 6, 8)).astype("f"), random.normal(size=(32, 10, 8)).astype("f")
    rounded = [tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy() for x in (a, b)]
    op = Op("e", "Einsum", attrs={"equation": "bfd,bhd->bfh"})
    (error,) = local_error(op, [a, b], [np.einsum("bfd,bhd->bfh", *rounded)])
    assert error.ratio > RATIO_LIMIT


CONVOLUTIONS = [
    # image, filter, strides, padding, dilations
    ((3, 7, 9, 4), (3, 3, 4, 5), (1, 1), "SAME", (1, 1)),
    ((2, 8, 9, 4), (3, 2, 4, 6), (2, 3), "VALID", (1, 1)),
    ((2, 8, 9, 4), (3, 2, 4, 6), (2, 2), "SAME", (1, 1)),
    ((4, 1, 8, 36), (1, 1, 36, 10), (1, 1), "VALID", (1, 1)),
    ((1, 5, 6, 2), (1, 4, 2, 3), (3, 1), "SAME", (1, 1)),
]


def whole(pair):
    return [1, *pair, 1]


@pytest.mark.parametrize(("image", "kernel", "strides", "padding", "dilations"), CONVOLUTIONS)
@pytest.mark.parametrize("name", ["Conv2D", "DepthwiseConv2dNative"])
def test_convolutions_and_their_gradients(random, name, image, kernel, strides, padding, dilations):
    if name != "Conv2D":
        kernel, strides = (*kernel[:3], 2), (strides[0], strides[0])  # one stride for both is all TensorFlow has
    x, w = random.normal(size=image), random.normal(size=kernel)
    attrs = {"strides": whole(strides), "padding": padding, "dilations": whole(dilations)}
    check(name, {"input": x, "filter": w}, attrs, dtypes=TWO)
    gradient = random.normal(size=getattr(tf.raw_ops, name)(input=x, filter=w, **attrs).shape)
    shapes = {"input_sizes": np.array(image, np.int32), "filter_sizes": np.array(kernel, np.int32)}
    check(
        name + "BackpropInput",
        {"input_sizes": shapes["input_sizes"], "filter": w, "out_backprop": gradient},
        attrs,
        dtypes=TWO,
    )
    check(
        name + "BackpropFilter",
        {"input": x, "filter_sizes": shapes["filter_sizes"], "out_backprop": gradient},
        attrs,
        dtypes=TWO,
    )


def test_dilated_and_explicitly_padded_convolutions(random):
    x, w = random.normal(size=(2, 9, 8, 3)), random.normal(size=(3, 2, 3, 4))
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID", "dilations": [1, 2, 3, 1]}
    check("Conv2D", {"input": x, "filter": w}, attrs, dtypes=TWO)
    attrs = {"strides": [1, 2, 2, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 2, 1, 0, 3, 0, 0]}
    check("Conv2D", {"input": x, "filter": w}, attrs, dtypes=TWO)
    gradient = random.normal(size=tf.raw_ops.Conv2D(input=x, filter=w, **attrs).shape)
    sizes = np.array(x.shape, np.int32)
    check("Conv2DBackpropInput", {"input_sizes": sizes, "filter": w, "out_backprop": gradient}, attrs, dtypes=TWO)


def test_channels_first_is_channels_last_moved(random):
    """TensorFlow's own kernels on CPU have the channels last only."""
    x, w = random.normal(size=(2, 7, 6, 4)).astype("f"), random.normal(size=(3, 3, 4, 5)).astype("f")
    attrs = {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW", "dilations": [1, 1, 1, 1]}
    got = tf.raw_ops.Conv2D(input=x, filter=w, strides=[1, 2, 2, 1], padding="SAME").numpy()
    (error,) = local_error(Op("c", "Conv2D", attrs=attrs), [np.moveaxis(x, -1, 1), w], [np.moveaxis(got, -1, 1)])
    assert (error.reason, error.ratio <= 1) == ("", True)
    back = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=x.shape, filter=w, out_backprop=got, strides=[1, 2, 2, 1], padding="SAME"
    ).numpy()
    sizes = np.array([2, 4, 7, 6], np.int32)
    op = Op("c", "Conv2DBackpropInput", attrs=attrs)
    (error,) = local_error(op, [sizes, w, np.moveaxis(got, -1, 1)], [np.moveaxis(back, -1, 1)])
    assert (error.reason, error.ratio <= 1) == ("", True)


def test_grouped_convolution(random):
    """By groups is what convolving each block of channels alone gives."""
    x, w = random.normal(size=(2, 6, 6, 4)).astype("f"), random.normal(size=(3, 3, 2, 6)).astype("f")
    halves = [
        tf.raw_ops.Conv2D(
            input=x[..., 2 * g : 2 * g + 2], filter=w[..., 3 * g : 3 * g + 3], strides=whole((1, 1)), padding="SAME"
        )
        for g in (0, 1)
    ]
    op = Op("c", "Conv2D", attrs={"strides": whole((1, 1)), "padding": "SAME"})
    (error,) = local_error(op, [x, w], [np.concatenate([half.numpy() for half in halves], axis=-1)])
    assert (error.reason, error.ratio <= 1) == ("", True)


def test_images_in_portions_are_the_same(random, monkeypatch):
    x, w = random.normal(size=(9, 5, 5, 2)).astype("f"), random.normal(size=(3, 3, 2, 4)).astype("f")
    op = Op("c", "Conv2D", attrs={"strides": whole((1, 1)), "padding": "SAME"})
    at_once = replay_op(op, [x, w])
    monkeypatch.setattr("compare.kernels.convolution.PORTION", 1)
    one_by_one = replay_op(op, [x, w])
    np.testing.assert_allclose(at_once.exact[0], one_by_one.exact[0], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"])
def test_a_lost_tap_of_a_filter_is_found(random, name):
    x, w = random.normal(size=(8, 6, 6, 8)).astype("f"), random.normal(size=(3, 3, 8, 8)).astype("f")
    attrs = {"strides": whole((1, 1)), "padding": "SAME"}
    op = Op("c", name, attrs=attrs)
    g = random.normal(size=(8, 6, 6, 8)).astype("f")
    inputs = {
        "Conv2D": [x, w],
        "Conv2DBackpropInput": [np.array(x.shape, np.int32), w, g],
        "Conv2DBackpropFilter": [x, np.array(w.shape, np.int32), g],
    }[name]
    (right,) = replay_op(op, inputs).own
    assert local_error(op, inputs, [right])[0].ratio <= 1
    spoilt = [part.copy() for part in inputs]
    spoilt[0 if name.endswith("Filter") else 1][0, 0, 0, 0] *= 0
    (wrong,) = replay_op(op, spoilt).own
    assert local_error(op, inputs, [wrong])[0].ratio > RATIO_LIMIT


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [1, 0, 1, 1]},
        {"strides": [1, 1]},
        {"strides": [1, 1, 1]},
        {"padding": "ROUND"},
        {"padding": "EXPLICIT"},
        {"padding": "EXPLICIT", "explicit_paddings": [0] * 7},
        {"dilations": [1, 9, 9, 1], "padding": "VALID"},
        {"dilations": [1, -1, 1, 1]},
    ],
)
def test_attributes_that_fit_no_convolution_become_a_reason(attrs):
    x, w = np.ones((1, 4, 4, 2), np.float32), np.ones((2, 2, 2, 2), np.float32)
    replay = replay_op(Op("c", "Conv2D", attrs={"padding": "VALID", **attrs}), [x, w])
    assert replay.reason.startswith("not replayable:") or attrs == {"strides": [1, 1]}


def test_shapes_that_fit_no_convolution_become_a_reason():
    x, w = np.ones((1, 4, 4, 3), np.float32), np.ones((2, 2, 2, 2), np.float32)
    for inputs in ([x, w], [x[0], w], [x, w[0]], [x[:, :1], w], [x, w[:, :, :0]]):
        for name in ("Conv2D", "DepthwiseConv2dNative"):
            assert replay_op(Op("c", name, attrs={"padding": "VALID"}), inputs).reason.startswith("not replayable:")
    gradient = np.ones((1, 9, 9, 2), np.float32)
    sizes = np.array([1, 4, 4, 2], np.int32)
    assert replay_op(Op("c", "Conv2DBackpropInput", attrs={"padding": "VALID"}), [sizes, w, gradient]).reason
    huge = np.array([2**31 - 1, 2**31 - 1, 4, 2], np.int32)
    assert replay_op(Op("c", "Conv2DBackpropInput", attrs={"padding": "VALID"}), [huge, w, gradient]).reason


def ones(*shape):
    return np.ones(shape, np.float32)


SMALL_BUT_HUGE = {
    "stretched operands": ("Einsum", {"equation": "i,j->"}, [ones(5000), ones(5000)]),
    "spread gradient": (
        "Conv2DBackpropInput",
        {"strides": [1, 5000, 5000, 1], "padding": "SAME"},
        [np.array([1, 5000, 5000, 1], np.int32), ones(3, 3, 1, 1), ones(1, 1, 1, 1)],
    ),
    "padded image": (
        "Conv2D",
        {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 2500, 2500, 2500, 2500, 0, 0]},
        [ones(1, 1, 1, 1), ones(3, 3, 1, 1)],
    ),
    "windows": ("Conv2D", {"padding": "VALID"}, [ones(1, 1000, 400, 1), ones(8, 8, 1, 1)]),
    "sparse products": (
        "SparseTensorDenseMatMul",
        {},
        [np.zeros((5000, 2), np.int64), ones(5000), np.array([2, 3]), ones(3, 5000)],
    ),
}


@pytest.mark.parametrize("name", sorted(SMALL_BUT_HUGE))
def test_little_input_does_not_take_much_memory(name):
    """Each would lay out 25 million elements and more; what is asked for is counted."""
    import tracemalloc

    op_type, attrs, inputs = SMALL_BUT_HUGE[name]
    tracemalloc.start()
    try:
        replay = replay_op(Op("o", op_type, attrs=attrs), inputs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "too many to replay" in replay.reason
    assert peak < 64e6

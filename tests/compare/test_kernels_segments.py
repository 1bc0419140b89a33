"""Sums, means, products and extrema over segments, against TensorFlow."""

import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op, Port
from tests.compare.tensorflow_oracle import HALVES, check, eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)

RNG = np.random.default_rng(33)
TWO = ("float32", "float64")


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(33).bit_generator.state


def data(name, *shape):
    return RNG.uniform(0.9, 1.1, size=shape) if name == "Prod" else RNG.normal(size=shape)


def kinds(name):
    return (*TWO, *HALVES) if name in ("Max", "Min") else TWO


IDS = {
    "in a row": [0, 0, 1, 1, 1, 2, 3, 3],
    "one each": [0, 1, 2, 3, 4, 5, 6, 7],
    "one for all": [0] * 8,
    "missing ones": [1, 1, 4, 4, 4, 4, 9, 11],
}


@pytest.mark.parametrize("name", ["Sum", "Mean", "Prod", "Max", "Min"])
@pytest.mark.parametrize("which", IDS)
def test_segments_in_a_row(name, which):
    ids = np.array(IDS[which], np.int32)
    for shape in ((8,), (8, 3), (8, 2, 2), (8, 0)):
        check("Segment" + name, {"data": data(name, *shape), "segment_ids": ids}, dtypes=kinds(name))
    check("Segment" + name, {"data": RNG.integers(-9, 9, size=(8, 3)), "segment_ids": ids}, dtypes=("float32",))
    many = np.sort(RNG.integers(0, 20, size=3000))
    check("Segment" + name, {"data": data(name, 3000, 2), "segment_ids": many}, dtypes=TWO)


@pytest.mark.parametrize("name", ["Sum", "Prod", "Max", "Min"])
@pytest.mark.parametrize("which", IDS)
def test_segments_anywhere(name, which):
    ids = RNG.permutation(np.array(IDS[which], np.int64))
    for count in (12, 14):
        number = {"num_segments": np.int32(count)}
        for shape in ((8,), (8, 3), (8, 0)):
            arguments = {"data": data(name, *shape), "segment_ids": ids, **number}
            check("UnsortedSegment" + name, arguments, dtypes=kinds(name))
        square = {"data": data(name, 2, 4, 3), "segment_ids": ids.reshape(2, 4), **number}
        check("UnsortedSegment" + name, square, dtypes=TWO)
        dropped = {"data": data(name, 8, 3), "segment_ids": np.where(ids == ids[0], -1, ids), **number}
        check("UnsortedSegment" + name, dropped, dtypes=kinds(name))
    whole = {"data": RNG.integers(-9, 9, size=(8, 3)).astype(np.int32), "segment_ids": ids}
    check("UnsortedSegment" + name, {**whole, "num_segments": np.int32(12)}, dtypes=("float32",))
    nothing = {"data": data(name, 0, 3), "segment_ids": ids[:0], "num_segments": np.int32(3)}
    check("UnsortedSegment" + name, nothing, dtypes=kinds(name))
    none = {"data": data(name, 0, 3), "segment_ids": ids[:0], "num_segments": np.int32(0)}
    check("UnsortedSegment" + name, none, dtypes=kinds(name))


@pytest.mark.parametrize("name", ["Sum", "Prod", "Max", "Min"])
def test_second_versions_are_told_the_number(name):
    """TensorFlow has them for XLA alone; the unsorted op gives the same where ids are in a row."""
    ids = np.array(IDS["missing ones"], np.int32)
    x = data(name, 8, 3).astype("f")
    out = getattr(tf.raw_ops, "UnsortedSegment" + name)(data=x, segment_ids=ids, num_segments=14).numpy()
    op = Op("s", f"Segment{name}V2", output_ports=(Port("float32"),))
    (error,) = local_error(op, [x, ids, np.int32(14)], [out])
    assert (error.reason, error.unjudged) == ("", 0)
    assert error.ratio <= 1


def test_numbers_that_are_none():
    x = np.array([1, np.nan, 2, np.inf, -np.inf, 1e-40, 3, 4], "f")
    ids = np.array([0, 0, 1, 1, 2, 3, 4, 5], np.int32)
    for name in ("Sum", "Mean", "Prod", "Max", "Min"):
        out = getattr(tf.raw_ops, "Segment" + name)(data=x, segment_ids=ids).numpy()
        (error,) = local_error(Op("s", "Segment" + name), [x, ids], [out])
        assert error.ratio <= 1, name
        assert error.unjudged == (1 if name in ("Max", "Min") else 0), name


def test_products_that_leave_the_normal_numbers_on_the_way_are_not_judged():
    x = np.array([1e-30, 1e-30, 1e30, 1e30, 2, 3, 0, 1e30, 1e30], "f")
    ids = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2], np.int32)
    out = tf.raw_ops.SegmentProd(data=x, segment_ids=ids).numpy()
    (error,) = local_error(Op("s", "SegmentProd"), [x, ids], [out])
    assert (error.ratio <= 1, error.unjudged) == (True, 1)
    out[1] = 6.1
    assert local_error(Op("s", "SegmentProd"), [x, ids], [out])[0].ratio > RATIO_LIMIT


@pytest.mark.parametrize("how", ["Sum", "Mean", "SqrtN"])
def test_looked_up_segments_with_missing_ids(how):
    rows, ids = RNG.integers(0, 30, size=60).astype(np.int32), np.sort(RNG.integers(0, 9, size=60) * 2).astype(np.int32)
    arguments = {"data": RNG.normal(size=(30, 4)), "indices": rows, "segment_ids": ids}
    check("SparseSegment" + how, arguments, dtypes=TWO)
    for count in (18, 25):
        told = {**arguments, "num_segments": np.int32(count)}
        check(f"SparseSegment{how}WithNumSegments", told, dtypes=TWO)
    gradient = {"grad": RNG.normal(size=(18, 4)), "indices": rows, "segment_ids": ids}
    check(f"SparseSegment{how}Grad", {**gradient, "output_dim0": np.int32(40)}, dtypes=TWO)
    check(f"SparseSegment{how}GradV2", {**gradient, "dense_output_dim0": np.int32(40)}, dtypes=TWO)


def test_faults_are_found():
    x, ids = RNG.normal(size=(40, 3)).astype("f"), np.sort(RNG.integers(0, 6, size=40)).astype(np.int32)
    for name in ("Sum", "Mean", "Prod", "Max", "Min"):
        out = getattr(tf.raw_ops, "Segment" + name)(data=x, segment_ids=ids).numpy()
        op = Op("s", "Segment" + name)
        assert local_error(op, [x, ids], [out])[0].ratio <= 1
        assert local_error(op, [x, np.maximum(ids - 1, 0)], [out])[0].ratio is None
        assert local_error(op, [x, np.roll(ids, 1)], [out])[0].ratio > RATIO_LIMIT
        assert local_error(op, [x, ids], [out[::-1]])[0].ratio > RATIO_LIMIT
    empty = [x, ids, np.int32(9)]
    lowest = tf.raw_ops.UnsortedSegmentMax(data=x, segment_ids=ids, num_segments=9).numpy()
    zeros = np.where(lowest < -1e30, 0, lowest)
    assert local_error(Op("s", "UnsortedSegmentMax"), empty, [zeros])[0].ratio > RATIO_LIMIT


@pytest.mark.parametrize(("kind", "inputs"), [
    ("SegmentMax", [np.ones(3), np.array([0, -1, 2])]),
    ("SegmentMean", [np.ones(3), np.array([0.0, 1.0, 2.0])]),
    ("SegmentProd", [np.ones(3), np.array([0, 1])]),
    ("UnsortedSegmentMax", [np.ones(3), np.array([0, 1, 5]), np.int32(3)]),
    ("UnsortedSegmentMin", [np.ones(3), np.array([0, 1, 2]), np.int64(2**40)]),
    ("UnsortedSegmentProd", [np.ones(3), np.array([0, 1, 2]), np.int32(-1)]),
    ("SegmentMax", [np.ones((3, 2**10)), np.array([0, 1, 2**40])]),
    ("SegmentMax", [np.ones(3), np.array([0, 1, 2**25])]),
    ("SegmentSum", [np.ones((3, 8)), np.array([0, 1, 2**22])]),
    ("SparseSegmentSumGradV2", [np.ones((3, 2)), np.array([0, 7]), np.array([0, 1]), np.int32(5)]),
])  # fmt: skip
def test_damaged_dumps_are_reasons(kind, inputs):
    assert replay_op(Op("h", kind), inputs).reason.startswith("not replayable: ")

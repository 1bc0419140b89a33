"""Ops that order, count and move elements, running sums and scatters, against TensorFlow."""

import ml_dtypes
import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op, Port
from tests.compare.tensorflow_oracle import check, eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)

RNG = np.random.default_rng(21)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(21).bit_generator.state


def normal(*shape):
    return RNG.normal(size=shape)


def i32(*values):
    return np.array(values, dtype=np.int32)


def ids(high, *shape):
    return RNG.integers(0, high, size=shape).astype(np.int32)


ONE = ("float32",)
TWO = ("float32", "float64")


@pytest.mark.parametrize("index", [tf.int32, tf.int64])
@pytest.mark.parametrize("name", ["Unique", "UniqueWithCounts"])
def test_unique(name, index):
    for values in (ids(9, 50), ids(1000, 200).astype(np.int64), np.zeros(0, np.int32), np.round(normal(80), 1)):
        check(name, {"x": values}, {"out_idx": index})
    check(name, {"x": np.array([1, np.nan, 1, np.nan, -0.0, 0.0])}, {"out_idx": index}, dtypes=TWO)


@pytest.mark.parametrize("name", ["UniqueV2", "UniqueWithCountsV2"])
def test_unique_rows(name):
    rows = ids(3, 40, 2)
    check(name, {"x": rows, "axis": np.array([0], np.int64)})
    check(name, {"x": rows.T, "axis": np.array([1], np.int64)}, {"out_idx": tf.int64})
    check(name, {"x": ids(3, 20, 2, 2), "axis": np.array([0], np.int64)})
    check(name, {"x": ids(5, 20), "axis": np.array([], np.int64)})


def test_lists_and_places():
    check("ListDiff", {"x": ids(20, 30), "y": ids(20, 5)}, {"out_idx": tf.int64})
    for mask in (ids(2, 30).astype(bool), ids(2, 4, 5, 3), np.zeros((0, 2), bool)):
        check("Where", {"condition": mask}, dtypes=ONE)
    check("Where", {"condition": normal(5, 6) * (normal(5, 6) > 0)}, dtypes=TWO)


@pytest.mark.parametrize("k", [0, 1, 3, 50])
def test_largest(k):
    for values in (normal(50), normal(6, 50), np.round(normal(2, 3, 50)), ids(9, 4, 50)):
        check("TopKV2", {"input": values, "k": np.int32(k)})
    x = normal(7, 50).astype("f")
    out = [part.numpy() for part in tf.raw_ops.TopKV2(input=x, k=k)]
    errors = local_error(Op("t", "TopK", attrs={"k": k}), [x], out)
    assert max(error.ratio for error in errors) == 0
    out = [part.numpy() for part in tf.raw_ops.TopKV2(input=x, k=k, sorted=False)]
    errors = local_error(Op("t", "TopKV2", attrs={"sorted": False}), [x, np.int32(k)], out)
    assert max(error.ratio for error in errors) <= 1


def test_largest_of_equal_values_may_have_any_of_their_indices():
    x = np.array([[1, 7, 7, 3, 7, 2]], "f")
    values = np.array([[7, 7, 7, 3]], "f")
    for index, fine in ((i32([1, 2, 4, 3]), True), (i32([4, 1, 2, 3]), True), (i32([1, 2, 4, 5]), False),
                        (i32([5, 2, 4, 3]), False)):  # fmt: skip
        _, error = local_error(Op("t", "TopKV2"), [x, np.int32(4)], [values, index])
        assert (error.ratio <= 1) == fine, index
    wrong = local_error(Op("t", "TopKV2"), [x, np.int32(4)], [np.array([[7, 7, 3, 3]], "f"), i32([1, 2, 4, 3])])
    assert wrong[0].ratio == np.inf
    x[0, 0] = np.nan
    errors = local_error(Op("t", "TopKV2"), [x, np.int32(4)], [values, i32([0, 2, 4, 5])])
    assert [error.unjudged for error in errors] == [4, 4]


def test_targets_among_the_largest():
    x = np.round(normal(200, 12), 1)
    x[3, 4], x[5, 6] = np.nan, np.inf
    targets = RNG.integers(-1, 13, size=200).astype(np.int32)
    for k in (0, 1, 4, 12):
        check("InTopKV2", {"predictions": x, "targets": targets, "k": np.int32(k)}, dtypes=ONE)
        check("InTopK", {"predictions": x, "targets": targets.astype(np.int64)}, {"k": k}, dtypes=ONE)


def test_boundaries():
    x = np.concatenate([normal(300) * 2, [-1.0, 0.5, 0.1, np.nan, np.inf]])
    check("Bucketize", {"input": x}, {"boundaries": [-1.0, 0.1, 0.5, 2.0]}, dtypes=TWO)
    check("Bucketize", {"input": ids(20, 60)}, {"boundaries": [3.0, 7.0, 7.5]})
    lines, values = np.sort(np.round(normal(5, 20), 1), axis=1), np.round(normal(5, 9), 1)
    for name in ("LowerBound", "UpperBound"):
        check(name, {"sorted_inputs": lines, "values": values}, dtypes=TWO)
        check(name, {"sorted_inputs": lines, "values": values}, {"out_type": tf.int64}, dtypes=TWO)


def test_counts():
    values = ids(12, 300)
    for weights in (normal(300), np.zeros(0), np.zeros(0, np.int32)):
        check("Bincount", {"arr": values, "size": np.int32(10), "weights": weights}, dtypes=TWO)
        check("DenseBincount", {"input": values, "size": np.int32(10), "weights": weights}, dtypes=TWO)
    rows = ids(12, 20, 15)
    for weights in (normal(20, 15), np.zeros(0)):
        arguments = {"input": rows, "size": np.int32(10), "weights": weights}
        check("DenseBincount", arguments, dtypes=TWO)
    arguments = {"input": rows, "size": np.int32(10), "weights": np.zeros(0)}
    check("DenseBincount", arguments, {"binary_output": True}, dtypes=TWO)


def test_reversed_and_rolled():
    x = normal(4, 6, 5)
    for axes in ([], [0], [-1, 0], [0, 1, 2]):
        check("ReverseV2", {"tensor": x, "axis": np.array(axes, np.int32)})
    check("Reverse", {"tensor": x, "dims": np.array([True, False, True])})
    lengths = np.array([0, 1, 6, 3], np.int64)
    check("ReverseSequence", {"input": x, "seq_lengths": lengths}, {"seq_dim": 1, "batch_dim": 0})
    check("ReverseSequence", {"input": np.moveaxis(x, 1, 0), "seq_lengths": lengths}, {"seq_dim": 0, "batch_dim": 1})
    check("Roll", {"input": x, "shift": i32(2, -7, 1), "axis": i32(0, 1, 0)})


def test_parted_and_stitched():
    data, parts = normal(40, 3), ids(4, 40)
    check("DynamicPartition", {"data": data, "partitions": parts}, {"num_partitions": 5})
    check("DynamicPartition", {"data": normal(6, 7, 2), "partitions": ids(3, 6, 7)}, {"num_partitions": 3})
    order = RNG.permutation(30).astype(np.int32)
    pieces = {"indices": [order[:10], order[10:].reshape(4, 5)], "data": [normal(10, 3), normal(4, 5, 3)]}
    for name in ("DynamicStitch", "ParallelDynamicStitch"):
        check(name, pieces)
    twice = {"indices": [i32(0, 1, 2), i32(1)], "data": [normal(3, 2), normal(1, 2)]}
    check("DynamicStitch", twice)
    check("ParallelDynamicStitch", twice)
    (error,) = local_error(Op("s", "DynamicStitch"), [i32(0, 2), normal(2)], [normal(3)])
    assert (error.unjudged, error.ratio) == (1, np.inf)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirrors(mode):
    for shape, widths in (((5,), [[3, 2]]), ((4, 6), [[1, 3], [0, 2]]), ((3, 4, 5), [[2, 2], [0, 0], [1, 4]])):
        padding = np.array(widths, np.int32)
        check("MirrorPad", {"input": normal(*shape), "paddings": padding}, {"mode": mode})
        wide = normal(*(n + sum(w) for n, w in zip(shape, widths, strict=True)))
        check("MirrorPadGrad", {"input": wide, "paddings": padding}, {"mode": mode})


def test_diagonals():
    check("Diag", {"diagonal": normal(4)})
    check("Diag", {"diagonal": normal(3, 2)})
    check("DiagPart", {"input": normal(3, 2, 3, 2)})


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products(exclusive, reverse):
    attrs = {"exclusive": exclusive, "reverse": reverse}
    for shape, axis in (((700,), 0), ((30, 40), 1), ((30, 40), -2), ((3, 1, 4), 1), ((0, 3), 0)):
        check("Cumsum", {"x": normal(*shape), "axis": np.int32(axis)}, attrs)
        check("Cumprod", {"x": RNG.uniform(0.8, 1.25, size=shape), "axis": np.int32(axis)}, attrs)
    check("Cumsum", {"x": ids(99, 50), "axis": np.int64(0)}, attrs)
    tiny = np.full((2, 60), 0.01)
    check("Cumprod", {"x": tiny, "axis": np.int32(1)}, attrs, dtypes=TWO)


def running(terms, rng, way):
    """Partial sums in float32: one by one, in blocks, or as a tree of doubled strides."""
    total = terms.astype(np.float32)
    if way == "tree":
        stride = 1
        while stride < total.shape[-1]:
            shifted = np.zeros_like(total)
            shifted[..., stride:] = total[..., :-stride]
            total, stride = total + shifted, stride * 2
        return total
    size = total.shape[-1] if way == "one by one" else int(rng.integers(1, total.shape[-1] + 1))
    parts, carry = [], np.zeros((*total.shape[:-1], 1), np.float32)
    for start in range(0, total.shape[-1], size):
        parts.append(np.cumsum(total[..., start : start + size], axis=-1, dtype=np.float32) + carry)
        carry = parts[-1][..., -1:]
    return np.concatenate(parts, axis=-1)


def test_running_sums_in_any_order():
    for number in range(200):
        rng = np.random.default_rng([3, number])
        length = (2, 7, 64, 1000)[number % 4]
        x = rng.normal(size=(8, length)) if number % 3 else rng.uniform(0.2, 1, size=(8, length))
        x = (np.sort(x, axis=-1) if number % 5 == 0 else x).astype("f")
        out = running(x, rng, ("one by one", "blocks", "tree")[number % 3])
        (error,) = local_error(Op("c", "Cumsum"), [x, np.int32(1)], [out])
        assert error.ratio <= 1, number


def test_sparse_cross_entropy():
    labels = ids(12, 40)
    check("SparseSoftmaxCrossEntropyWithLogits", {"features": normal(40, 12) * 3, "labels": labels}, dtypes=TWO)
    large = {"features": normal(40, 12) * 300, "labels": labels.astype(np.int64)}
    check("SparseSoftmaxCrossEntropyWithLogits", large, dtypes=TWO)


@pytest.mark.parametrize("what", ["Add", "Sub", "Max", "Min", "Update"])
def test_elements_that_indices_name(what):
    index = ids(9, 60, 2) if what != "Update" else np.stack([ids(9, 9), np.arange(9, dtype=np.int32)], 1)
    check("TensorScatter" + what, {"tensor": normal(9, 9, 3), "indices": index, "updates": normal(len(index), 3)},
          dtypes=TWO, op_type="ScatterNd" + what)  # fmt: skip
    rows = ids(5, 40, 1) if what != "Update" else np.arange(5, dtype=np.int32)[:, None]
    check("TensorScatter" + what, {"tensor": normal(5, 4), "indices": rows, "updates": normal(len(rows), 4)},
          dtypes=TWO)  # fmt: skip
    check("TensorScatter" + what, {"tensor": ids(99, 7), "indices": ids(7, 1, 1), "updates": ids(9, 1)}, dtypes=ONE)


@pytest.mark.parametrize("name", ["ScatterMul", "ScatterDiv", "ScatterMax", "ScatterMin"])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int32"])
def test_rows_that_indices_name(name, kind):
    rows = ids(30, 50)
    if kind == "int32":
        var, updates = ids(1000, 30, 4), ids(9, 50, 4) + 1
    else:
        var, updates = normal(30, 4).astype(kind), RNG.uniform(0.5, 2, size=(50, 4)).astype(kind)
    state = tf.Variable(var)
    getattr(tf.raw_ops, "Resource" + name)(resource=state.handle, indices=rows, updates=updates)
    for known in (name, "Resource" + name):
        (error,) = local_error(Op("s", known), [var, rows, updates], [state.numpy()])
        assert (error.reason, error.unjudged) == ("", 0)
        assert error.ratio <= 1


def test_bfloat16_rows():
    x = np.array([1, 2, 1, 3, 2, 0.5], ml_dtypes.bfloat16)
    out = [np.array([1, 2, 3, 0.5], x.dtype), i32(0, 1, 0, 2, 1, 3)]
    assert [error.ratio for error in local_error(Op("u", "Unique"), [x], out)] == [0, 0]
    top = [np.array([3, 2], x.dtype), i32(3, 1)]
    assert [error.ratio for error in local_error(Op("t", "TopKV2"), [x, np.int32(2)], top)] == [0, 0]


def test_faults_are_found():
    x, rows, var = normal(6, 500).astype("f"), ids(30, 50), normal(30, 4).astype("f")
    updates = normal(50, 4).astype("f")
    summed = np.cumsum(x, axis=1)
    lost = summed.copy()
    lost[2, 250:] -= x[2, 250]
    cases = [
        (Op("o", "Cumsum"), [x, np.int32(1)], lost),
        (Op("o", "Cumsum"), [x, np.int32(1)], np.roll(summed, 1, axis=1)),
        (Op("o", "Cumprod"), [1 + x / 100, np.int32(1)], np.cumprod(1 + x / 100, axis=1) * np.float32(1.001)),
        (Op("o", "ScatterNdAdd"), [var, rows[:, None], updates], var),
        (Op("o", "ScatterMul"), [var, rows, updates], var),
        (Op("o", "MirrorPadGrad", attrs={"mode": "REFLECT"}), [x[0], i32([2, 2])], x[0, 2:-2]),
        (Op("o", "Bincount"), [rows, np.int32(30), np.ones(50, "f")], np.bincount(rows, minlength=30).astype("f") + 1),
        (Op("o", "ReverseV2"), [x, i32(1)], x),
        (Op("o", "Unique"), [i32(3, 1, 3)], i32(1, 3)),
    ]
    for op, inputs, out in cases:
        assert local_error(op, inputs, [out])[0].ratio > RATIO_LIMIT, op.type
    entropy, labels = Op("l", "SparseSoftmaxCrossEntropyWithLogits"), ids(500, 6)
    loss, gradient = replay_op(entropy, [x, labels]).own
    for outputs in ([loss * np.float32(1.001), gradient], [loss, gradient + np.eye(6, 500, dtype="f")]):
        assert max(error.ratio for error in local_error(entropy, [x, labels], outputs)) > RATIO_LIMIT


HOSTILE = [
    ("Unique", [normal(3, 3)], {}),
    ("UniqueV2", [normal(3, 3), i32(5)], {}),
    ("UniqueV2", [normal(3, 0), i32(0)], {}),
    ("TopKV2", [normal(4), np.int32(5)], {}),
    ("TopKV2", [np.float32(1), np.int32(1)], {}),
    ("TopKV2", [normal(4)], {}),
    ("InTopKV2", [normal(4), ids(3, 4), np.int32(1)], {}),
    ("Bucketize", [normal(4)], {"boundaries": "text"}),
    ("Bucketize", [normal(4)], {"boundaries": (2.0, 1.0)}),
    ("LowerBound", [normal(4), normal(4)], {}),
    ("UpperBound", [np.array([[2.0, 1.0]]), normal(1, 4)], {}),
    ("Bincount", [i32(-1, 2), np.int32(4), np.zeros(0)], {}),
    ("Bincount", [i32(1, 2), np.int32(-4), np.zeros(0)], {}),
    ("DenseBincount", [ids(3, 2**10, 2**10), np.int32(2**30), np.zeros(0)], {}),
    ("ReverseV2", [normal(2, 2), i32(0, 0)], {}),
    ("ReverseSequence", [normal(2, 2), i32(1, 3)], {"seq_dim": 1}),
    ("ReverseSequence", [normal(2, 2), i32(1, 2)], {"seq_dim": 0}),
    ("Roll", [normal(2, 2), i32(1), i32(4)], {}),
    ("DynamicPartition", [normal(3), i32(0, 1, 7)], {"num_partitions": 2}),
    ("DynamicPartition", [normal(3), i32(0, 1)], {"num_partitions": 2}),
    ("DynamicPartition", [normal(3), i32(0, 1, 1)], {"num_partitions": 2**40}),
    ("DynamicStitch", [i32(0, -1), normal(2)], {}),
    ("DynamicStitch", [np.array([2**40]), normal(1)], {}),
    ("DynamicStitch", [i32(0), normal(2)], {}),
    ("MirrorPad", [normal(3), i32([3, 0])], {"mode": "REFLECT"}),
    ("MirrorPad", [normal(3), i32([1, 0])], {"mode": "EDGE"}),
    ("MirrorPadGrad", [normal(3), i32([3, 1])], {}),
    ("Diag", [normal(2**16)], {}),
    ("DiagPart", [normal(3, 2)], {}),
    ("Cumsum", [normal(3), np.int32(1)], {}),
    ("Cumprod", [np.float32(2), np.int32(0)], {}),
    ("SparseSoftmaxCrossEntropyWithLogits", [normal(2, 3), i32(0, 3)], {}),
    ("SparseSoftmaxCrossEntropyWithLogits", [normal(2, 3), i32(0)], {}),
    ("ScatterNdAdd", [normal(3), i32([3]), normal(1)], {}),
    ("ScatterNdAdd", [normal(3), i32([0, 0]), normal(1)], {}),
    ("ScatterNdUpdate", [normal(3), i32([0]), normal(2)], {}),
    ("ScatterMul", [normal(3), i32(5), normal(1)], {}),
    ("ScatterDiv", [i32(3), i32(0), i32(0)], {}),
]


@pytest.mark.parametrize(("kind", "inputs", "attrs"), HOSTILE, ids=lambda part: part if isinstance(part, str) else "")
def test_hostile_inputs_are_reasons(kind, inputs, attrs):
    op = Op("h", kind, attrs=attrs, output_ports=(Port("float32"),))
    assert replay_op(op, inputs).reason.startswith("not replayable: "), kind

"""Ops on sparse tensors, sums over looked-up rows and diagonals of matrices, against TensorFlow."""

import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op
from tests.compare.tensorflow_oracle import check, eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)
TWO = ("float32", "float64")
EXACT = ("float32",)


@pytest.fixture
def random():
    return np.random.default_rng(42)


def entries(random, count, *shape, ordered=True):
    flat = random.choice(int(np.prod(shape)), count, replace=False)
    flat = np.sort(flat) if ordered else flat
    return np.stack(np.unravel_index(flat, shape), 1).astype(np.int64)


def i64(*values):
    return np.array(values, np.int64)


def i32(*values):
    return np.array(values, np.int32)


def test_to_dense(random):
    at = entries(random, 9, 5, 7)
    shared = {"sparse_values": random.normal(size=9), "default_value": np.float64(-1.5)}
    check("SparseToDense", {"sparse_indices": at, "output_shape": i64(5, 7), **shared})
    check("SparseToDense", {"sparse_indices": at[:, 0] * 7 + at[:, 1], "output_shape": i64(35), **shared})
    one = {"sparse_values": np.float64(2), "default_value": np.float64(0)}
    check("SparseToDense", {"sparse_indices": np.int64(3), "output_shape": i64(5), **one})


def test_reorder_reshape_and_slice(random):
    at, values = entries(random, 30, 5, 7, 4, ordered=False), random.normal(size=30)
    check("SparseReorder", {"input_indices": at, "input_values": values, "input_shape": i64(5, 7, 4)}, dtypes=EXACT)
    for new in ((35, 4), (-1, 2), (140,)):
        check("SparseReshape", {"input_indices": at, "input_shape": i64(5, 7, 4), "new_shape": i64(*new)})
    at = entries(random, 30, 5, 7, 4)
    window = {"start": i64(1, 0, 2), "size": i64(2, 9, 2)}
    check("SparseSlice", {"indices": at, "values": values, "shape": i64(5, 7, 4), **window}, dtypes=EXACT)


def test_entries_at_one_place_may_be_reordered_either_way():
    at, values = i64([1, 1], [0, 0], [1, 1]), np.array([1, 2, 3], np.float32)
    inputs = [at, values, i64(2, 2)]
    for swapped in ([2, 1, 3], [2, 3, 1]):
        _, error = local_error(Op("r", "SparseReorder"), inputs, [at[[1, 0, 2]], np.array(swapped, np.float32)])
        assert error.ratio <= 1
    _, error = local_error(Op("r", "SparseReorder"), inputs, [at[[1, 0, 2]], np.array([3, 1, 2], np.float32)])
    assert error.ratio > RATIO_LIMIT


def test_empty_rows(random):
    at, values = i64([1, 0], [1, 3], [4, 2]), random.normal(size=3)
    check("SparseFillEmptyRows", {"indices": at, "values": values, "dense_shape": i64(6, 5),
                                  "default_value": np.float64(9)})  # fmt: skip
    check("SparseFillEmptyRows", {"indices": at[:0], "values": values[:0], "dense_shape": i64(3, 5),
                                  "default_value": np.float64(9)})  # fmt: skip
    back = i64(1, 2, 5)
    check("SparseFillEmptyRowsGrad", {"reverse_index_map": back, "grad_values": random.normal(size=300)}, dtypes=TWO)


def test_concat(random):
    parts = [entries(random, count, 4, 6) for count in (5, 7)]
    for axis in (0, 1, -1):
        check("SparseConcat", {"indices": parts, "values": [random.normal(size=5), random.normal(size=7)],
                               "shapes": [i64(4, 6), i64(4, 6)]}, {"concat_dim": axis}, dtypes=EXACT)  # fmt: skip


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), ()])
@pytest.mark.parametrize("keep", [False, True])
def test_reduce_sum(random, axes, keep):
    at = entries(random, 300, 20, 7, 4)
    check("SparseReduceSum", {"input_indices": at, "input_values": random.normal(size=300),
                              "input_shape": i64(20, 7, 4), "reduction_axes": i32(*axes)},
          {"keep_dims": keep}, dtypes=TWO)  # fmt: skip


@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_product_with_a_dense_matrix(random, adjoint_a, adjoint_b):
    at, inner = entries(random, 400, 30, 50), 30 if adjoint_a else 50
    dense = random.normal(size=(6, inner) if adjoint_b else (inner, 6))
    check("SparseTensorDenseMatMul", {"a_indices": at, "a_values": random.normal(size=400), "a_shape": i64(30, 50),
                                      "b": dense}, {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b},
          dtypes=TWO)  # fmt: skip


def test_product_with_one_entry_a_row(random):
    """Nothing is added there, but each product is rounded."""
    at = np.stack([np.arange(40), random.integers(0, 50, 40)], 1)
    check("SparseTensorDenseMatMul", {"a_indices": at, "a_values": random.normal(size=40), "a_shape": i64(40, 50),
                                      "b": random.normal(size=(50, 6))}, dtypes=TWO)  # fmt: skip


@pytest.mark.parametrize("how", ["Sum", "Mean", "SqrtN"])
@pytest.mark.parametrize("width", [1, 16])
def test_sums_over_looked_up_rows(random, how, width):
    rows = random.integers(0, 40, 500).astype(np.int32)
    segments = np.sort(random.integers(0, 60, 500)).astype(np.int32)
    looked_up = {"data": random.normal(size=(40, width)), "indices": rows, "segment_ids": segments}
    check(f"SparseSegment{how}", looked_up, dtypes=TWO)
    check(f"SparseSegment{how}WithNumSegments", {**looked_up, "num_segments": np.int32(64)}, dtypes=TWO)
    count = int(segments.max()) + 1
    check(f"SparseSegment{how}Grad", {"grad": random.normal(size=(count, width)), "indices": rows,
                                      "segment_ids": segments, "output_dim0": np.int32(40)}, dtypes=TWO)  # fmt: skip


@pytest.mark.parametrize("how", ["Sum", "Mean", "SqrtN"])
def test_a_row_that_was_not_added_is_found(random, how):
    data = random.normal(size=(40, 8)).astype("f")
    rows = random.integers(0, 40, 500).astype(np.int32)
    segments = np.sort(random.integers(0, 5, 500)).astype(np.int32)
    op = Op("s", "SparseSegment" + how)
    (right,) = replay_op(op, [data, rows, segments]).own
    (without,) = replay_op(Op("s", "SparseSegmentSum"), [data, rows[:-1], segments[:-1]]).own
    counts = np.bincount(segments).astype("f")[:, None]
    wrong = without / {"Sum": np.ones_like(counts), "Mean": counts, "SqrtN": np.sqrt(counts)}[how]
    assert local_error(op, [data, rows, segments], [right])[0].ratio <= 1
    assert local_error(op, [data, rows, segments], [wrong])[0].ratio > RATIO_LIMIT


HOSTILE = {
    "SparseToDense": [[i64([9, 0]), i64(5, 7), np.ones(1, "f"), np.float32(0)],
                      [i64([0, 0]), i64(2**40, 2**40), np.ones(1, "f"), np.float32(0)],
                      [i64([0, 0]), i64(-5, 7), np.ones(1, "f"), np.float32(0)]],
    "SparseReorder": [[i64([9, 0]), np.ones(1, "f"), i64(2, 2)], [i64(3), np.ones(1, "f"), i64(2, 2)]],
    "SparseReshape": [[i64([0, 0]), i64(2, 3), i64(5)], [i64([0, 0]), i64(2, 3), i64(-1, -1)],
                      [i64([0, 0]), i64(0, 3), i64(0, -1)]],
    "SparseFillEmptyRows": [[np.zeros((0, 0), np.int64), np.ones(0, "f"), i64(), np.float32(0)],
                            [i64([-1, 0]), np.ones(1, "f"), i64(3, 3), np.float32(0)]],
    "SparseFillEmptyRowsGrad": [[i64(7), np.ones(3, "f")]],
    "SparseConcat": [[i64([0, 0]), np.ones(1, "f")], [i64([0, 0]), i64([0]), *[np.ones(1)] * 2, i64(1, 1), i64(1)]],
    "SparseSlice": [[i64([0, 0]), np.ones(1, "f"), i64(2, 2), i64(0), i64(1, 1)]],
    "SparseReduceSum": [[i64([0, 0]), np.ones(1, "f"), i64(2, 2), i32(5)]],
    "SparseTensorDenseMatMul": [[i64([0, 0]), np.ones(1, "f"), i64(2, 3), np.ones((2, 2), "f")],
                                [i64([0, 0]), np.ones(1, "f"), i64(2, 3, 1), np.ones((3, 2), "f")],
                                [i64([5, 0]), np.ones(1, "f"), i64(2, 3), np.ones((3, 2), "f")]],
    "SparseSegmentSum": [[np.ones((3, 2), "f"), i32(7), i32(0)], [np.ones((3, 2), "f"), i32(0, 0), i32(1, 0)],
                         [np.ones((3, 2), "f"), i32(0), i32(-1)], [np.ones((3, 2), "f"), i32(0, 1), i32(0)]],
    "SparseSegmentMeanGrad": [[np.ones((3, 2), "f"), i32(7), i32(0), np.int32(3)],
                              [np.ones((3, 2), "f"), i32(1), i32(5), np.int32(3)],
                              [np.ones((3, 2), "f"), i32(1), i32(0), np.int32(-3)]],
    "MatrixDiagPartV3": [[np.ones((3, 3), "f"), i32(7), np.float32(0)], [np.ones(3, "f"), i32(0), np.float32(0)],
                         [np.ones((3, 3), "f"), i32(2, 0), np.float32(0)]],
    "MatrixSetDiagV3": [[np.ones((3, 3), "f"), np.ones(2, "f"), i32(0)]],
    "MatrixDiagV3": [[np.ones((2, 3), "f"), i32(0, 1, 2), np.int32(-1), np.int32(-1), np.float32(0)],
                     [np.float32(1), i32(0), np.int32(-1), np.int32(-1), np.float32(0)],
                     [np.ones(3, "f"), i32(0), np.int32(2**30), np.int32(2**30), np.float32(0)]],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_inputs_that_fit_no_such_op_become_a_reason(name):
    for inputs in HOSTILE[name]:
        assert replay_op(Op("s", name), inputs).reason.startswith("not replayable:"), (name, inputs)


ALIGNS = ["LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"]


@pytest.mark.parametrize("size", [(5, 5), (4, 7), (7, 3)])
@pytest.mark.parametrize("k", [(0,), (1,), (-2,), (-1, 1), (-2, -1), (0, 2), (1, 1)])
@pytest.mark.parametrize("align", ALIGNS)
def test_diagonals(random, size, k, align):
    x, padding = random.normal(size=(2, *size)), np.float64(7.5)
    where = {"k": i32(*k) if len(k) > 1 else np.int32(k[0])}
    third = {"align": align}
    check("MatrixDiagPartV3", {"input": x, **where, "padding_value": padding}, third, dtypes=EXACT)
    check("MatrixDiagPartV2", {"input": x, **where, "padding_value": padding}, dtypes=EXACT)
    taken = tf.raw_ops.MatrixDiagPartV3(input=x, padding_value=padding, **where, **third).numpy()
    check("MatrixSetDiagV3", {"input": x, "diagonal": taken * 2, **where}, third, dtypes=EXACT)
    check("MatrixSetDiagV2", {"input": x, "diagonal": taken * 2, **where}, dtypes=EXACT)
    for name, rows, columns in (("MatrixDiagV3", *size), ("MatrixDiagV2", -1, -1)):
        made = {"diagonal": taken, **where, "num_rows": np.int32(rows), "num_cols": np.int32(columns)}
        check(name, {**made, "padding_value": padding}, third if name.endswith("3") else None, dtypes=EXACT)


def test_main_diagonals_and_bands(random):
    x = random.normal(size=(2, 4, 6))
    check("MatrixDiagPart", {"input": x})
    check("MatrixSetDiag", {"input": x, "diagonal": random.normal(size=(2, 4))})
    check("MatrixDiag", {"diagonal": random.normal(size=(2, 4))})
    for lower, upper in ((-1, 0), (0, -1), (1, 2), (0, 0), (-1, -1), (4, 0)):
        check("MatrixBandPart", {"input": x, "num_lower": np.int64(lower), "num_upper": np.int64(upper)})

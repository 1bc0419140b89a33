"""The device's kernels against plain NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from engine.npu import kernels


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("left_transposed", [True, False])
@pytest.mark.parametrize("right_transposed", [True, False])
def test_matmul(left_transposed, right_transposed):
    a, b = values(5, 3), values(3, 4, seed=1)
    attrs = {"transpose_x1": left_transposed, "transpose_x2": right_transposed}
    inputs = [a.T if left_transposed else a, b.T if right_transposed else b]
    (product,) = kernels.matmul(attrs, inputs)
    np.testing.assert_allclose(product, a.astype(np.float64) @ b, atol=1e-6)


def test_half_product_of_a_half_op_is_half_and_of_a_float_op_is_float():
    a, b = values(2, 3).astype(np.float16), values(3, 2).astype(np.float16)
    assert kernels.matmul({"T": "float16"}, [a, b])[0].dtype == np.float16
    assert kernels.matmul({"T": "float32"}, [a, b])[0].dtype == np.float32
    assert kernels.matmul({"T": "bfloat16"}, [a, b])[0].dtype.name == "bfloat16"


def test_batch_matmul():
    a, b = values(2, 1, 3, 4), values(5, 3, 6, seed=1)
    (product,) = kernels.batch_matmul({"adj_x1": True}, [a, b])
    np.testing.assert_allclose(product, np.swapaxes(a, -1, -2).astype(np.float64) @ b, atol=1e-6)


@pytest.mark.parametrize(("layout", "axes"), [("NHWC", (0, 1, 2)), ("NCHW", (0, 2, 3)), (None, (0, 1, 2))])
def test_bias_add_grad(layout, axes):
    gradient = values(2, 3, 4, 5)
    (total,) = kernels.bias_add_grad({"data_format": layout}, [gradient])
    np.testing.assert_allclose(total, gradient.astype(np.float64).sum(axes), atol=1e-5)


def test_reductions():
    x = values(4, 3)
    for axes in (np.array([0, -1]), np.array(1), np.array([], np.int32)):
        along = tuple(np.atleast_1d(axes))
        np.testing.assert_allclose(
            kernels.reduce_sum({"keep_dims": True}, [x, axes])[0], x.sum(along, keepdims=True), atol=1e-6
        )
        np.testing.assert_allclose(kernels.reduce_mean({}, [x, axes])[0], x.mean(along), atol=1e-6)
    with np.errstate(invalid="ignore"):
        assert np.isnan(kernels.reduce_mean({}, [x[:0], np.array(0)])[0]).all()
    with pytest.raises(ValueError, match="dimension 2 for an input of rank 2"):
        kernels.reduce_sum({}, [x, np.array(2)])


def test_sums_of_many():
    x = [values(3, seed=seed) for seed in range(4)]
    np.testing.assert_allclose(kernels.add_n({}, x)[0], np.sum(x, 0), atol=1e-6)
    np.testing.assert_allclose(kernels.l2_loss({}, x[:1])[0], (x[0].astype(np.float64) ** 2).sum() / 2, rtol=1e-6)


def test_gather_checks_its_rows():
    params = values(4, 3)
    indices = np.array([[3, 0], [1, 3]])
    (rows,) = kernels.gather({}, [params, indices, np.array(0)])
    np.testing.assert_array_equal(rows, params[indices])
    np.testing.assert_array_equal(kernels.gather({}, [params, indices[1] - 1, np.array(-1)])[0], params[:, [0, 2]])
    for bad in (4, -1):
        with pytest.raises(ValueError, match=rf"indices\[1\] = {bad} is not in \[0, 4\)"):
            kernels.gather({}, [params, np.array([0, bad]), np.array(0)])


@pytest.mark.parametrize(("kernel", "sign"), [(kernels.scatter_add, 1), (kernels.scatter_sub, -1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_scatter_sums_repeated_rows(kernel, sign, dtype):
    var = (10 * values(5, 2)).astype(dtype)
    before, indices, updates = var.copy(), np.array([[1, 1], [4, 1]]), (10 * values(2, 2, 2, seed=1)).astype(dtype)
    expected = var.astype(np.float64)
    for row, update in zip(indices.reshape(-1), updates.reshape(-1, 2), strict=True):
        expected[row] += sign * update
    (result,) = kernel({}, [var, indices, updates])
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_array_equal(var, before)
    np.testing.assert_array_equal(kernel({}, [var, np.array([0]), np.array(2, dtype)])[0][0], var[0] + sign * 2)


def test_scatter_update_and_its_errors():
    var = values(3, 2)
    (result,) = kernels.scatter_update({}, [var, np.array([2, 2]), np.array([[1, 1], [2, 2]], np.float32)])
    np.testing.assert_array_equal(result[2], [2, 2])
    np.testing.assert_array_equal(result[:2], var[:2])
    with pytest.raises(ValueError, match="do not fit"):
        kernels.scatter_update({}, [var, np.array([0]), np.ones((2, 2), np.float32)])
    with pytest.raises(ValueError, match="not in"):
        kernels.scatter_update({}, [var, np.array([3]), np.ones((1, 2), np.float32)])
    with pytest.raises(ValueError, match="scalar"):
        kernels.scatter_add({}, [np.float32(1)[()] * np.ones(()), np.array(0), np.array(1.0)])


def test_assignments():
    ref, value = values(2, 2), values(2, 2, seed=1)
    assert kernels.assign({}, [ref, value])[0] is value
    np.testing.assert_array_equal(kernels.assign_add({}, [ref, value])[0], ref + value)
    np.testing.assert_array_equal(kernels.assign_sub({}, [ref, value])[0], ref - value)
    with pytest.raises(ValueError, match="cannot update a variable of shape"):
        kernels.assign_add({}, [ref, value[0]])


@pytest.mark.parametrize("nesterov", [True, False])
def test_adam_is_the_published_rule(nesterov):
    var, m, gradient = values(6), values(6, seed=1), values(6, seed=2)
    v = np.abs(values(6, seed=3))
    scalars = [np.float32(x) for x in (0.9**3, 0.999**3, 0.01, 0.9, 0.999, 1e-8)]
    new = kernels.apply_adam({"use_nesterov": nesterov}, [var, m, v, *map(np.asarray, scalars), gradient])
    b1p, b2p, rate, b1, b2, epsilon = map(float, scalars)
    g = gradient.astype(np.float64)
    m2, v2 = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    direction = (b1 * m2 + (1 - b1) * g) if nesterov else m2
    expected = var - rate * np.sqrt(1 - b2p) / (1 - b1p) * direction / (np.sqrt(v2) + epsilon)
    for got, want in zip(new, (expected, m2, v2), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-7)


def test_gradient_descent():
    var, gradient = values(3), values(3, seed=1)
    (new,) = kernels.apply_gradient_descent({}, [var, np.asarray(np.float32(0.5)), gradient])
    np.testing.assert_array_equal(new, var - np.float32(0.5) * gradient)


def test_segment_ids_must_lead_the_data():
    with pytest.raises(ValueError, match="begin with"):
        kernels.unsorted_segment_sum({}, [values(4, 2), np.zeros(3, np.int64), np.array(2)])

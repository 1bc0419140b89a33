"""Kernels against TensorFlow itself: float32 and float16 within the bound, float64 to the last digits."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.replay import local_error
from dumpers.graph import Op
from tests.compare.tensorflow_oracle import check, eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)

RNG = np.random.default_rng(20)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(20).bit_generator.state


def normal(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.05, 3.0, size=shape)


def i32(*values):
    return np.array(values, dtype=np.int32)


UNARY = (  # noqa: SIM905
    "Neg Square Sqrt Rsqrt Reciprocal Exp Log Log1p Expm1 Sigmoid Tanh Softplus Abs Sign Relu Relu6 ZerosLike "
         "OnesLike Identity PreventGradient Snapshot Floor Ceil Rint").split()  # fmt: skip
ARGUMENT = {"Identity": "input", "PreventGradient": "input", "Snapshot": "input", "Softplus": "features",
            "Relu": "features", "Relu6": "features"}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    dtypes = ("float32", "float64") if name == "Rint" else ("float32", "float64", "float16")
    x = positive(17, 33) if name in ("Sqrt", "Rsqrt", "Reciprocal", "Log", "Log1p") else normal(17, 33) * 4
    check(name, {ARGUMENT.get(name, "x"): x}, dtypes=dtypes)


@pytest.mark.parametrize("name", ["Sigmoid", "Tanh", "Softplus", "Exp", "Expm1", "Log", "Log1p"])
def test_functions_over_their_whole_range(name):
    x = np.concatenate([np.linspace(-80, 80, 20001), RNG.normal(size=20000) * 1e-3, np.linspace(-1, 1, 4001)])
    x = np.abs(x) + 1e-6 if name.startswith("Log") else x
    check(name, {ARGUMENT.get(name, "x"): x}, dtypes=("float32",))


BINARY = (  # noqa: SIM905
    "Add AddV2 Sub Mul RealDiv Div DivNoNan Maximum Minimum SquaredDifference Greater GreaterEqual Less "
          "LessEqual Equal NotEqual FloorDiv FloorMod Pow").split()  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("left", "right"), [((9, 31), (9, 31)), ((9, 31), (31,)), ((), (5,)), ((4, 1, 3), (2, 1))])
def test_binary(name, left, right):
    x = positive(*left) if name == "Pow" else np.round(normal(*left), 1)
    y = positive(*right) + 0.2 if name.startswith(("Floor", "Pow")) else np.round(normal(*right) + 0.01, 1) + 0.03
    dtypes = ("float32", "float64") if name.startswith("Floor") or name == "Pow" else ("float32", "float64", "float16")
    check(name, {"x": x, "y": y}, dtypes=dtypes)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "FloorDiv", "FloorMod", "Maximum", "Greater", "Equal"])
def test_integers_are_exact(name):
    x, y = RNG.integers(-99, 99, size=(2, 40)).astype(np.int32)
    check(name, {"x": x, "y": np.where(y == 0, 1, y)}, dtypes=("float32",))


@pytest.mark.parametrize("name", ["SigmoidGrad", "TanhGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad"])
def test_gradients_of_functions(name):
    y = RNG.uniform(0.05, 0.999, size=(8, 200))
    check(name, {"y": y, "dy": normal(8, 200)})


def test_gradients_of_activations():
    check("ReluGrad", {"gradients": normal(8, 200), "features": normal(8, 200)})
    check("SoftplusGrad", {"gradients": normal(8, 200), "features": normal(8, 200) * 5})


def test_logic_and_choice():
    a, b = RNG.integers(0, 2, size=(2, 50)).astype(bool)
    check("LogicalAnd", {"x": a, "y": b}, dtypes=("float32",))
    check("LogicalOr", {"x": a, "y": b}, dtypes=("float32",))
    check("LogicalNot", {"x": a}, dtypes=("float32",))
    check("SelectV2", {"condition": a, "t": normal(3, 50), "e": normal(50)})
    check("Select", {"condition": a, "x": normal(50, 3), "y": normal(50, 3)})


AXES = [((512, 16, 8), (1,)), ((512,), (0,)), ((6, 5, 4), (0, 2)), ((6, 5), (-1,)), ((6, 5), ()), ((3, 4), (0, 1))]


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Prod"])
@pytest.mark.parametrize(("shape", "axes"), AXES)
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(name, shape, axes, keep):
    x = RNG.uniform(0.98, 1.02, size=shape) if name == "Prod" else normal(*shape)
    # TensorFlow multiplies and averages halves in half precision.
    dtypes = ("float32", "float64") if name in ("Prod", "Mean", "Sum") else ("float32", "float64", "float16")
    check(name, {"input": x, "axis": i32(*axes)}, {"keep_dims": keep}, op_type="Reduce" + name, dtypes=dtypes)


def test_other_reductions():
    two = ("float32", "float64")
    check("ArgMax", {"input": normal(9, 30), "dimension": np.int32(1)}, {"output_type": tf.int64})
    check("BiasAdd", {"value": normal(512, 128), "bias": normal(128)})
    check("BiasAdd", {"value": normal(2, 8, 3, 5), "bias": normal(8)}, {"data_format": "NCHW"}, dtypes=two)
    check("BiasAddGrad", {"out_backprop": normal(512, 128)}, dtypes=two)
    check("BiasAddGrad", {"out_backprop": normal(2, 8, 3, 5)}, {"data_format": "NCHW"}, dtypes=two)
    check("AddN", {"inputs": [normal(20, 30) for _ in range(5)]})
    check("L2Loss", {"t": normal(300, 20)}, dtypes=two)
    check("Softmax", {"logits": normal(64, 50) * 4}, dtypes=two)
    check("LogSoftmax", {"logits": normal(64, 50) * 4}, dtypes=two)
    labels = RNG.dirichlet(np.ones(12), size=40)
    check("SoftmaxCrossEntropyWithLogits", {"features": normal(40, 12) * 3, "labels": labels}, dtypes=two)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_matrix_products(ta, tb):
    a = normal(40, 24) if ta else normal(24, 40)
    b = normal(33, 40) if tb else normal(40, 33)
    attrs = {"transpose_a": ta, "transpose_b": tb}
    check("MatMul", {"a": a, "b": b}, attrs, op_type="MatMulV2", dtypes=("float32", "float64"))
    device = Op("m", "MatMulV2", attrs={"transpose_x1": ta, "transpose_x2": tb})
    got = tf.raw_ops.MatMul(a=a.astype("f"), b=b.astype("f"), **attrs).numpy()
    assert local_error(device, [a.astype("f"), b.astype("f")], [got])[0].ratio <= 1
    batch = {"x": np.stack([a, 2 * a]), "y": b[None]}
    check("BatchMatMulV2", batch, {"adj_x": ta, "adj_y": tb}, dtypes=("float32", "float64"))


def test_gathers():
    rows = RNG.integers(0, 50, size=(6, 7)).astype(np.int64)
    check("GatherV2", {"params": normal(50, 4), "indices": rows, "axis": np.int32(0)})
    check("GatherV2", {"params": normal(3, 50), "indices": rows, "axis": np.int32(1)})
    batched = {"params": normal(6, 50, 2), "indices": rows, "axis": np.int32(1)}
    check("GatherV2", batched, {"batch_dims": 1})
    check("GatherNd", {"params": normal(50, 50, 3), "indices": RNG.integers(0, 50, size=(9, 2)).astype(np.int32)})


def test_segment_sums_and_scatter_nd():
    ids = RNG.integers(-1, 30, size=400).astype(np.int64)
    two = ("float32", "float64")
    check("UnsortedSegmentSum", {"data": normal(400, 8), "segment_ids": ids, "num_segments": np.int32(32)}, dtypes=two)
    check("SegmentSum", {"data": normal(400, 8), "segment_ids": np.sort(np.abs(ids))}, dtypes=two)
    index = RNG.integers(0, 9, size=(60, 2)).astype(np.int32)
    check("ScatterNd", {"indices": index, "updates": normal(60, 5), "shape": i32(9, 9, 5)}, dtypes=two)


@pytest.mark.parametrize("name", ["ScatterUpdate", "ScatterAdd", "ScatterSub"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scatter_into_a_variable(name, dtype):
    var, updates = normal(30, 4).astype(dtype), normal(50, 4).astype(dtype)
    rows = RNG.integers(0, 30, size=50).astype(np.int32)
    state = tf.Variable(var)
    resource = {"resource": state.handle, "indices": rows, "updates": updates}
    getattr(tf.raw_ops, "Resource" + name)(**resource)
    for kind in (name, "Resource" + name):
        (error,) = local_error(Op("s", kind), [var, rows, updates], [state.numpy()])
        assert error.reason == ""
        assert error.ratio <= 1


def test_moves():
    x = normal(4, 6, 5)
    check("Reshape", {"tensor": x, "shape": i32(-1, 10)})
    check("ExpandDims", {"input": x, "axis": np.int32(-1)})
    check("Squeeze", {"input": normal(1, 4, 1)}, {"axis": [0]})
    check("Squeeze", {"input": normal(1, 4, 1)})
    check("Transpose", {"x": x, "perm": i32(2, 0, 1)})
    check("Tile", {"input": x, "multiples": i32(2, 1, 3)})
    check("Slice", {"input": x, "begin": i32(1, 0, 2), "size": i32(2, -1, 3)})
    check("Pad", {"input": x, "paddings": np.array([[1, 0], [0, 2], [1, 1]], np.int32)})
    check("BroadcastTo", {"input": normal(5), "shape": i32(3, 5)})
    check("Fill", {"dims": i32(3, 2), "value": np.float64(0.7)})
    check("Pack", {"values": [normal(3, 2), normal(3, 2)]}, {"axis": 1})
    check("Unpack", {"value": x}, {"num": 6, "axis": 1})
    check("ConcatV2", {"values": [normal(3, 2), normal(3, 5)], "axis": np.int32(-1)})
    check("Split", {"axis": np.int32(1), "value": x}, {"num_split": 3})
    check("SplitV", {"value": x, "size_splits": i32(1, -1, 2), "axis": np.int32(1)}, {"num_split": 3})


def test_strided_slices():
    x = normal(4, 6, 5)
    bounds = {"begin": i32(1, 4, 0), "end": i32(3, 0, 2), "strides": i32(1, -2, 1)}
    masks = {"begin_mask": 1, "end_mask": 2, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 4}
    check("StridedSlice", {"input": x, **bounds}, masks)
    ellipsis = {"begin": i32(0, 0, -1), "end": i32(0, 0, 0), "strides": i32(1, 1, 1)}
    check("StridedSlice", {"input": x, **ellipsis}, {**masks, "begin_mask": 0, "end_mask": 0, "ellipsis_mask": 2,
                                                    "new_axis_mask": 1})  # fmt: skip
    dy = tf.raw_ops.StridedSlice(input=x, **bounds, **masks).numpy()
    check("StridedSliceGrad", {"shape": i32(4, 6, 5), **bounds, "dy": dy}, masks)


def test_shapes():
    x = normal(4, 6, 5)
    for name in ("Shape", "Size", "Rank"):
        check(name, {"input": x})
    check("Shape", {"input": x}, {"out_type": tf.int64})
    check("ShapeN", {"input": [x, normal(2)]})
    check("ConcatOffset", {"concat_dim": np.int32(1), "shape": [i32(2, 3), i32(2, 5), i32(2, 1)]})
    check("InvertPermutation", {"x": i32(3, 1, 0, 2)})
    check("OneHot", {"indices": i32(1, 0, -1, 3), "depth": np.int32(3), "on_value": np.float64(1.5),
                     "off_value": np.float64(0.5)}, {"axis": 0})  # fmt: skip
    check("Range", {"start": np.int32(2), "limit": np.int32(19), "delta": np.int32(3)})
    check("Range", {"start": np.float64(0.1), "limit": np.float64(9), "delta": np.float64(0.3)},
          dtypes=("float32", "float64"))  # fmt: skip


SHAPE = st.lists(st.integers(1, 4), max_size=4)


@given(full=SHAPE, keep=st.lists(st.booleans(), min_size=4, max_size=4), cut=st.integers(0, 3), swap=st.booleans())
@settings(max_examples=60, deadline=None)
def test_broadcast_gradient_arguments(full, keep, cut, swap):
    other = [size if k else 1 for size, k in zip(full, keep, strict=False)][cut:]
    pair = (other, full) if swap else (full, other)
    left, right = (np.array(shape, np.int32) for shape in pair)
    check("BroadcastGradientArgs", {"s0": left, "s1": right}, dtypes=("float32",))


@given(rows=st.integers(1, 7), inner=st.integers(1, 300), columns=st.integers(1, 6), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_any_product_of_tensorflow_is_within_its_bound(rows, inner, columns, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(rows, inner)).astype("f"), rng.normal(size=(inner, columns)).astype("f")
    (error,) = local_error(Op("m", "MatMul"), [a, b], [tf.matmul(a, b).numpy()])
    assert error.ratio <= 1


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"])
@pytest.mark.parametrize("target", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"])
def test_casts(source, target):
    x = (normal(500) * 100).astype(ml_dtypes.bfloat16 if source == "bfloat16" else source)
    got = tf.cast(x, target).numpy()
    for attrs in ({"DstT": target}, {"DstT": tf.as_dtype(target).as_datatype_enum}, {"DstT": "DT_" + target.upper()}):
        if target == "float32" and "DT_FLOAT32" in attrs.values():
            attrs = {"DstT": "DT_FLOAT"}  # noqa: PLW2901
        (error,) = local_error(Op("c", "Cast", attrs=attrs), [x], [got])
        assert (error.reason, error.ratio) == ("", 0)


def adam_inputs(shape, dtype="float32"):
    m, v = normal(*shape) * 0.01, positive(*shape) * 1e-4
    scalars = [0.9**3, 0.999**3, 0.001, 0.9, 0.999, 1e-8]
    parts = [normal(*shape), m, v, *scalars, normal(*shape) * 0.01]
    return [np.asarray(part, dtype) for part in parts]


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (512, 40)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adam(nesterov, shape, dtype):
    inputs = adam_inputs(shape, dtype)
    var, m, v = (tf.Variable(part) for part in inputs[:3])
    names = ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"]
    tf.raw_ops.ResourceApplyAdam(var=var.handle, m=m.handle, v=v.handle, use_nesterov=nesterov,
                                 **dict(zip(names, inputs[3:], strict=True)))  # fmt: skip
    op = Op("a", "ApplyAdamD", attrs={"use_nesterov": nesterov})
    errors = local_error(op, inputs, [var.numpy(), m.numpy(), v.numpy()])
    assert [error.reason for error in errors] == [""] * 3
    assert max(error.ratio for error in errors) <= 1


def test_other_updates():
    var, slot, grad = normal(50, 8).astype("f"), positive(50, 8).astype("f"), normal(50, 8).astype("f")
    rate, momentum = np.float32(0.05), np.float32(0.9)
    cases = {
        "ApplyGradientDescent": ([var, rate, grad], {"alpha": rate, "delta": grad}, {}, False),
        "ApplyMomentum": (
            [var, slot, rate, grad, momentum],
            {"lr": rate, "grad": grad, "momentum": momentum},
            {},
            True,
        ),
        "ApplyAdagrad": ([var, slot, rate, grad], {"lr": rate, "grad": grad}, {}, True),
        "ApplyAdagradV2": (
            [var, slot, rate, momentum, grad],
            {"lr": rate, "epsilon": momentum, "grad": grad},
            {},
            True,
        ),
    }
    for name, (inputs, arguments, attrs, has_slot) in cases.items():
        state, accumulator = tf.Variable(var), tf.Variable(slot)
        slots = {"accum": accumulator.handle} if has_slot else {}
        getattr(tf.raw_ops, "Resource" + name)(var=state.handle, **slots, **arguments, **attrs)
        outputs = [state.numpy()] + ([accumulator.numpy()] if has_slot else [])
        for error in local_error(Op("u", name), inputs, outputs):
            assert error.reason == "", name
            assert error.ratio <= 1, name
    for name, sign in (("AssignAdd", 1), ("AssignSub", -1), ("AssignAddVariableOp", 1)):
        (error,) = local_error(Op("u", name), [var, grad], [var + sign * grad])
        assert error.ratio <= 1
    assert local_error(Op("u", "AssignVariableOp"), [var, grad], [grad])[0].ratio == 0


def test_tensorflow_flushes_subnormals_in_its_threads():
    x = np.array([1e-39, 1e-30, 1.0, 3e-39], "f")
    y = np.array([1.0, 1e-9, 1e-39, 1e30], "f")
    with tf.device("CPU:0"):
        got = tf.multiply(x, y).numpy()
    for outcome in (got, np.array([0.0, 0.0, 0.0, 0.0], "f"), x * y):
        (error,) = local_error(Op("m", "Mul"), [x, y], [outcome])
        assert error.ratio <= 1
    (error,) = local_error(Op("m", "Mul"), [x, y], [np.array([1e-38, 1e-39, 1e-37, 2.9e-9], "f")])
    assert error.ratio > 2

"""NumPy formulas of op types as text, for scripts that run without this project.

Each is the body of ``def step(x, a)``: ``x`` is the list of inputs (floats as float64, the rest as dumped), ``a`` the
attributes; it returns the list of outputs. Keys are device types (:func:`compare.kernels.table.device_type`). Axes and
the like are read from the input that holds them or, in the attribute forms of devices, from the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_LOGISTIC = "np.where(x[{0}] >= 0, 1 / (1 + np.exp(-x[{0}])), np.exp(x[{0}]) / (1 + np.exp(x[{0}])))"

_PRODUCT = """\
left, right = x
if any(a.get(k) for k in ("transpose_x1", "transpose_a", "adj_x1", "adj_x")):
    left = np.swapaxes(left, -1, -2)
if any(a.get(k) for k in ("transpose_x2", "transpose_b", "adj_x2", "adj_y")):
    right = np.swapaxes(right, -1, -2)
return [left @ right]"""

_BIAS = """\
bias = x[1]
if str(a.get("data_format", "NHWC")).startswith("NC"):
    bias = bias.reshape((-1,) + (1,) * (x[0].ndim - 2))
return [x[0] + bias]"""

_LOG_SOFTMAX = """\
shifted = x[0] - np.max(x[0], axis=-1, keepdims=True)
return [shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))]"""

_SOFTMAX = """\
powers = np.exp(x[0] - np.max(x[0], axis=-1, keepdims=True))
return [powers / np.sum(powers, axis=-1, keepdims=True)]"""

_CROSS_ENTROPY = """\
shifted = x[0] - np.max(x[0], axis=-1, keepdims=True)
log_total = np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
labels = x[1]
return [np.sum(labels * (log_total - shifted), axis=-1), np.exp(shifted - log_total) - labels]"""

_SPARSE_CROSS_ENTROPY = """\
shifted = x[0] - np.max(x[0], axis=-1, keepdims=True)
log_total = np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
labels = np.eye(x[0].shape[-1])[x[1]]
return [np.sum(np.where(labels > 0, log_total - shifted, 0), axis=-1), np.exp(shifted - log_total) - labels]"""

_REDUCTION = """\
axes = x[1] if len(x) > 1 else a.get("axes", a.get("axis"))
axes = tuple(sorted(set(int(k) % x[0].ndim for k in np.ravel(axes)))) if x[0].ndim else ()
return [np.{0}(x[0], axis=axes, keepdims=bool(a.get("keep_dims") or a.get("keepdims")))]"""

_GATHER = """\
batch = int(a.get("batch_dims", 0))
axis = int(np.ravel(x[2] if len(x) > 2 else a.get("axis", batch))[0]) % x[0].ndim
if not batch:
    return [np.take(x[0], x[1], axis=axis)]
tables, ids = (k.reshape((-1,) + k.shape[batch:]) for k in x[:2])
rows = [np.take(table, index, axis=axis - batch) for table, index in zip(tables, ids)]
return [np.reshape(rows, x[0].shape[:axis] + x[1].shape[batch:] + x[0].shape[axis + 1:])]"""

_SEGMENTS = """\
data, ids = x[0], x[1]
count = {0}
total = np.zeros((count,) + data.shape[ids.ndim:], data.dtype)
kept = np.ravel(ids) >= 0
np.add.at(total, np.ravel(ids)[kept], data.reshape((-1,) + data.shape[ids.ndim:])[kept])
return [total]"""

_ADAM = """\
var, m, v, beta1_power, beta2_power, lr, beta1, beta2, eps, grad = x
m = m + (grad - m) * (1 - beta1)
v = v + (grad * grad - v) * (1 - beta2)
top = m * beta1 + (1 - beta1) * grad if a.get("use_nesterov") else m
return [var - lr * np.sqrt(1 - beta2_power) / (1 - beta1_power) * top / (np.sqrt(v) + eps), m, v]"""

_CAST = """\
kind = a["output_dtypes"][0]
if kind != "bfloat16":
    return [x[0].astype(kind)]
bits = np.asarray(x[0], dtype=np.float32).view(np.uint32).astype(np.uint64)
bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
return [np.where(np.isnan(x[0]), np.nan, bits.astype(np.uint32).view(np.float32).astype(np.float64))]"""

BODIES: Mapping[str, str] = MappingProxyType(
    {
        "MatMulV2": _PRODUCT,
        "BatchMatMulV2": _PRODUCT,
        "BiasAdd": _BIAS,
        "Add": "return [x[0] + x[1]]",
        "Sub": "return [x[0] - x[1]]",
        "Mul": "return [x[0] * x[1]]",
        "RealDiv": "return [x[0] / x[1]]",
        "Maximum": "return [np.maximum(x[0], x[1])]",
        "Minimum": "return [np.minimum(x[0], x[1])]",
        "SquaredDifference": "return [(x[0] - x[1]) * (x[0] - x[1])]",
        "AddN": "return [sum(x[1:], x[0])]",
        "FusedMulAdd": "return [x[0] * x[1] + x[2]]",
        "Relu": "return [np.maximum(x[0], 0)]",
        "ReluGrad": "return [np.where(x[1] > 0, x[0], 0)]",
        "Sigmoid": f"return [{_LOGISTIC.format(0)}]",
        "SigmoidGrad": "return [x[1] * x[0] * (1 - x[0])]",
        "Tanh": "return [np.tanh(x[0])]",
        "TanhGrad": "return [x[1] * (1 - x[0] * x[0])]",
        "Softplus": "return [np.maximum(x[0], 0) + np.log1p(np.exp(-np.abs(x[0])))]",
        "Softmax": _SOFTMAX,
        "LogSoftmax": _LOG_SOFTMAX,
        "Exp": "return [np.exp(x[0])]",
        "Log": "return [np.log(x[0])]",
        "Sqrt": "return [np.sqrt(x[0])]",
        "Rsqrt": "return [1 / np.sqrt(x[0])]",
        "Square": "return [x[0] * x[0]]",
        "Neg": "return [-x[0]]",
        "ReduceSum": _REDUCTION.format("sum"),
        "ReduceMean": _REDUCTION.format("mean"),
        "ReduceMax": _REDUCTION.format("max"),
        "ReduceMin": _REDUCTION.format("min"),
        "ReduceProd": _REDUCTION.format("prod"),
        "GatherV2": _GATHER,
        "UnsortedSegmentSum": _SEGMENTS.format('int(np.ravel(x[2] if len(x) > 2 else a["num_segments"])[0])'),
        "SegmentSum": _SEGMENTS.format("int(ids[-1]) + 1 if len(ids) else 0"),
        "Reshape": "return [x[0].reshape([int(k) for k in np.ravel(x[1] if len(x) > 1 else a['shape'])])]",
        "Transpose": "return [np.transpose(x[0], [int(k) for k in np.ravel(x[1] if len(x) > 1 else a['perm'])])]",
        "Cast": _CAST,
        "Concat": "return [np.concatenate(x[1:], axis=int(np.ravel(x[0])[0]))]",
        "ConcatV2": "return [np.concatenate(x[:-1], axis=int(np.ravel(x[-1])[0]))]",
        "ConcatD": "return [np.concatenate(x, axis=int(a.get('concat_dim', 0)))]",
        "Pack": "return [np.stack(x, axis=int(a.get('axis', 0)))]",
        "Identity": "return [x[0]]",
        "ReadVariableOp": "return [x[0]]",
        "Log1p": "return [np.log1p(x[0])]",
        "Expm1": "return [np.expm1(x[0])]",
        "Abs": "return [np.abs(x[0])]",
        "Reciprocal": "return [1 / x[0]]",
        "GreaterEqual": "return [x[0] >= x[1]]",
        "Greater": "return [x[0] > x[1]]",
        "LessEqual": "return [x[0] <= x[1]]",
        "Less": "return [x[0] < x[1]]",
        "SoftmaxCrossEntropyWithLogits": _CROSS_ENTROPY,
        "SparseSoftmaxCrossEntropyWithLogits": _SPARSE_CROSS_ENTROPY,
        "ApplyAdamD": _ADAM,
        "ApplyGradientDescent": "return [x[0] - x[1] * x[2]]",
    }
)
"""Function bodies by device type."""

ROW_INPUTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "MatMulV2": (0,),
        "BatchMatMulV2": (0, 1),
        "BiasAdd": (0,),
        "Softmax": (0,),
        "LogSoftmax": (0,),
        "GatherV2": (1,),
        "SoftmaxCrossEntropyWithLogits": (0, 1),
        "SparseSoftmaxCrossEntropyWithLogits": (0, 1),
        **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), (0,)),
    }
)
"""Inputs whose axis 0 is that of the outputs, beside the element-wise types."""

ELEMENTWISE = frozenset(
    (
        *("Add", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "AddN", "FusedMulAdd", "Relu"),
        *("ReluGrad", "Sigmoid", "SigmoidGrad", "Tanh", "TanhGrad", "Softplus", "Exp", "Log", "Sqrt", "Rsqrt"),
        *("Square", "Neg", "Identity", "Log1p", "Expm1", "Abs", "Reciprocal", "ApplyAdamD", "ApplyGradientDescent"),
    )
)
"""Element-wise types: an input with the shape of the output in axis 0 is cut like it."""

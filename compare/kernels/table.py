"""Which kernel evaluates which op type, under device names and TensorFlow names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compare.kernels.activations import ACTIVATIONS
from compare.kernels.base import Kernel
from compare.kernels.convolution import CONVOLUTIONS
from compare.kernels.cumulative import CUMULATIVE
from compare.kernels.einsum import EINSUM
from compare.kernels.elementwise import EXACT, FORMULAS, OTHERS
from compare.kernels.gather_scatter import GATHERS
from compare.kernels.matmul import PRODUCTS
from compare.kernels.matrices import MATRICES
from compare.kernels.normalization import NORMALIZATIONS
from compare.kernels.optimizers import UPDATES
from compare.kernels.order import ORDERS
from compare.kernels.proximal import PROXIMAL
from compare.kernels.rearrange import REARRANGED
from compare.kernels.reductions import REDUCTIONS
from compare.kernels.scatter import SCATTERS
from compare.kernels.segments import SEGMENTS
from compare.kernels.shapes import SHAPES
from compare.kernels.sparse import SPARSE

KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        **FORMULAS,
        **EXACT,
        **OTHERS,
        **ACTIVATIONS,
        **REDUCTIONS,
        **PRODUCTS,
        **EINSUM,
        **CONVOLUTIONS,
        **NORMALIZATIONS,
        **GATHERS,
        **SEGMENTS,
        **SPARSE,
        **UPDATES,
        **SHAPES,
        **MATRICES,
        **ORDERS,
        **REARRANGED,
        **CUMULATIVE,
        **SCATTERS,
        **PROXIMAL,
    }
)
"""Kernels by device type."""

ATTRIBUTE_FORMS = (
    "ArgMax",
    "BroadcastTo",
    "Cumprod",
    "Cumsum",
    "Pad",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReverseV2",
    "Slice",
    "SplitV",
    "Squeeze",
    "StridedSlice",
    "Tile",
    "TopKV2",
    "Transpose",
    "UnsortedSegmentSum",
)
"""Types that devices also have in a form with a ``D`` at the end, which carries constant inputs as attributes."""

OPTIMIZERS = (
    *("ApplyAdagrad", "ApplyAdagradV2", "ApplyGradientDescent", "ApplyMomentum", "ApplyKerasMomentum", "ApplyRMSProp"),
    *("ApplyCenteredRMSProp", "ApplyAdadelta", "ApplyAdaMax", "ApplyAdamWithAmsgrad", "ApplyAddSign", "ApplyPowerSign"),
    *("ApplyAdagradDA", "ApplyFtrl", "ApplyFtrlV2", "ApplyProximalAdagrad", "ApplyProximalGradientDescent"),
    *("SparseApplyAdagrad", "SparseApplyAdagradV2", "SparseApplyMomentum", "SparseApplyKerasMomentum"),
    *("SparseApplyRMSProp", "SparseApplyCenteredRMSProp", "SparseApplyAdadelta", "SparseApplyAdagradDA"),
    *("SparseApplyFtrl", "SparseApplyFtrlV2", "SparseApplyProximalAdagrad", "SparseApplyProximalGradientDescent"),
)
"""Updates that TensorFlow also has over resources, and devices in a form with a ``D`` at the end."""

SCATTERED = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Update")
"""What may happen to an element that an index names."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "AddV2": "Add",
        "ApplyAdam": "ApplyAdamD",
        "AssignAddVariableOp": "AssignAdd",
        "AssignSubVariableOp": "AssignSub",
        "AssignVariableOp": "Assign",
        "ArgMaxV2": "ArgMax",
        "All": "ReduceAll",
        "Any": "ReduceAny",
        "BatchMatMul": "BatchMatMulV2",
        "BatchMatMulV3": "BatchMatMulV2",
        "ConcatV2D": "ConcatD",
        "FusedBatchNormV2": "FusedBatchNorm",
        "FusedBatchNormV3": "FusedBatchNorm",
        "FusedBatchNormGradV2": "FusedBatchNormGrad",
        "FusedBatchNormGradV3": "FusedBatchNormGrad",
        "Gather": "GatherV2",
        "GatherV2D": "GatherV2",
        "Inv": "Reciprocal",
        "InvGrad": "ReciprocalGrad",
        "MatMul": "MatMulV2",
        "Max": "ReduceMax",
        "BatchMatrixBandPart": "MatrixBandPart",
        "BatchMatrixDiag": "MatrixDiag",
        "BatchMatrixDiagPart": "MatrixDiagPart",
        "BatchMatrixSetDiag": "MatrixSetDiag",
        "DepthwiseConv2D": "DepthwiseConv2dNative",
        "Mean": "ReduceMean",
        "Min": "ReduceMin",
        "PadV2": "Pad",
        "Prod": "ReduceProd",
        "Sum": "ReduceSum",
        "ResourceApplyAdam": "ApplyAdamD",
        "ResourceGather": "GatherV2",
        "SoftmaxV2": "Softmax",
        "LogSoftmaxV2": "LogSoftmax",
        "Unstack": "Unpack",
        "AccumulateNV2": "AddN",
        "InTopK": "InTopKV2",
        "InTopKD": "InTopKV2",
        "ScatterNdNonAliasingAdd": "ScatterNdAdd",
        "ScatterNonAliasingAdd": "ScatterNdAdd",
        "TopK": "TopKV2",
    }
    | {name + "D": name for name in ATTRIBUTE_FORMS}
    | {name + "D": name for name in OPTIMIZERS}
    | {"Resource" + name: name for name in OPTIMIZERS}
    | {"ResourceScatter" + name: "Scatter" + name for name in SCATTERED}
    | {"ResourceScatterNd" + name: "ScatterNd" + name for name in SCATTERED}
    | {"TensorScatter" + name: "ScatterNd" + name for name in SCATTERED}
)
"""Other names of the same computation."""

RANDOM_WORDS = ("Random", "Multinomial", "TruncatedNormal", "StatelessMultinomial", "DropOut", "Shuffle")


def device_type(op_type: str) -> str:
    """Returns the device's name of an op type, unchanged if there is no other."""
    return ALIASES.get(op_type, op_type)


def find_kernel(op_type: str) -> Kernel | None:
    """Returns the kernel of a type under any of its names, None if there is none."""
    return KERNELS.get(device_type(op_type))


def why_no_kernel(op_type: str, original_type: str) -> str:
    """Says why a type is not replayed."""
    if op_type == "FrameworkOp":
        return f"{original_type or 'unknown op'} runs on the host; it is stateful or unknown"
    if any(word in op_type for word in RANDOM_WORDS):
        return f"{op_type} is random"
    return f"no kernel for op type {op_type}"

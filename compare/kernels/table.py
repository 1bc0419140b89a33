"""Which kernel evaluates which op type, under device names and TensorFlow names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compare.kernels.base import Kernel
from compare.kernels.convolution import CONVOLUTIONS
from compare.kernels.einsum import EINSUM
from compare.kernels.elementwise import EXACT, FORMULAS, OTHERS
from compare.kernels.gather_scatter import GATHERS
from compare.kernels.matmul import PRODUCTS
from compare.kernels.matrices import MATRICES
from compare.kernels.optimizers import UPDATES
from compare.kernels.reductions import REDUCTIONS
from compare.kernels.shapes import SHAPES
from compare.kernels.sparse import SPARSE

KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        **FORMULAS,
        **EXACT,
        **OTHERS,
        **REDUCTIONS,
        **PRODUCTS,
        **EINSUM,
        **CONVOLUTIONS,
        **GATHERS,
        **SPARSE,
        **UPDATES,
        **SHAPES,
        **MATRICES,
    }
)
"""Kernels by device type."""

ATTRIBUTE_FORMS = (
    "ArgMax",
    "BroadcastTo",
    "Pad",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Slice",
    "SplitV",
    "Squeeze",
    "StridedSlice",
    "Tile",
    "Transpose",
    "UnsortedSegmentSum",
)
"""Types that devices also have in a form with a ``D`` at the end, which carries constant inputs as attributes."""

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
        "ResourceApplyAdagrad": "ApplyAdagrad",
        "ResourceApplyAdagradV2": "ApplyAdagradV2",
        "ResourceApplyGradientDescent": "ApplyGradientDescent",
        "ResourceApplyMomentum": "ApplyMomentum",
        "ResourceGather": "GatherV2",
        "ResourceScatterAdd": "ScatterAdd",
        "ResourceScatterSub": "ScatterSub",
        "ResourceScatterUpdate": "ScatterUpdate",
        "SoftmaxV2": "Softmax",
        "LogSoftmaxV2": "LogSoftmax",
        "Unstack": "Unpack",
    }
    | {name + "D": name for name in ATTRIBUTE_FORMS}
    | {"ApplyAdagradD": "ApplyAdagrad", "ApplyMomentumD": "ApplyMomentum"}
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

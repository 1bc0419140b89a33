"""Which tensors share memory with something that the step changes in place.

A reference variable (``VariableV2``) hands out its own buffer, and so do the ops that only look at a buffer in another
way. Fetched at the end of a run such a tensor shows the value after the update, though its consumer saw the one before.
Resource variables copy on write: what was read stays as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, FrozenSet, List, Sequence, Set

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import NDArray

MAY_SHARE: FrozenSet[str] = frozenset(
    {
        # the same values under another name or shape
        *("Identity", "IdentityN", "RefIdentity", "Snapshot", "StopGradient", "PreventGradient", "CheckNumerics"),
        *("PlaceholderWithDefault", "EnsureShape", "DebugGradientIdentity", "DebugGradientRefIdentity", "Print"),
        *("PrintV2", "Reshape", "Squeeze", "ExpandDims", "Bitcast", "Cast", "GuaranteeConst", "ReadVariableOp"),
        # control flow
        *("Switch", "RefSwitch", "SwitchN", "Merge", "RefMerge", "RefSelect", "Enter", "RefEnter", "Exit", "RefExit"),
        *("NextIteration", "RefNextIteration", "LoopCond"),
        # a part of the buffer
        *("Slice", "StridedSlice", "Split", "SplitV", "Unpack"),
        # the input itself when there is nothing to do
        *("Concat", "ConcatV2", "Pack", "ParallelConcat", "Transpose", "ConjugateTranspose", "BroadcastTo", "Tile"),
        *("Pad", "PadV2", "Reverse", "ReverseV2", "AddN", "AccumulateNV2", "Sum", "Mean", "Max", "Min", "Prod", "All"),
        *("Any", "Roll", "Real", "Conj", "SpaceToBatchND", "BatchToSpaceND", "MatrixBandPart"),
        *("InplaceUpdate", "InplaceAdd", "InplaceSub"),
    }
)
"""Op types whose output may lie in the memory of an input. Too long a list costs copies, too short a one values."""

_CHANGES_INPUT = frozenset({"InplaceUpdate", "InplaceAdd", "InplaceSub"})


def is_reference(tensor: tf.Tensor) -> bool:
    """Whether the tensor is a reference into a variable."""
    return bool(tensor.dtype.base_dtype != tensor.dtype)


def live_tensors(order: Sequence[tf.Operation], fed: Collection[str] = ()) -> Set[str]:
    """Returns the names of the tensors that may change after their consumers have read them.

    Args:
        order: The ops that run, producers first.
        fed: Names of fed tensors, which have memory of their own.
    """
    live: Set[str] = set()
    for op in order:
        if op.type in _CHANGES_INPUT:
            live.add(op.inputs[0].name)
        shares = op.type in MAY_SHARE and any(t.name in live for t in op.inputs)
        live.update(t.name for t in op.outputs if t.name not in fed and (shares or is_reference(t)))
    return live


def private(array: NDArray[np.generic], others: List[NDArray[np.generic]]) -> NDArray[np.generic]:
    """Returns the array, or a copy if it may lie in the memory of one of ``others``."""
    if any(np.may_share_memory(array, other) for other in others):
        return np.array(array)
    return array

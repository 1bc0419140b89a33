"""Faults of ``bench faults`` that are no built-in kind: callables that see every operator of the emulated device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from engine.observe import OpRun

_TURNED = (("transpose_x1", "adj_x1"), ("transpose_x2", "adj_x2"))


def products_in_bfloat16(run: OpRun) -> list[Any] | None:
    """Computes every plain matrix product from operands rounded to bfloat16, which no graph declares."""
    if run.type not in ("MatMulV2", "BatchMatMulV2") or len(run.inputs) != 2:
        return None
    from ml_dtypes import bfloat16

    factors = []
    for array, names in zip(run.inputs, _TURNED, strict=True):
        rounded = np.asarray(array).astype(bfloat16).astype(np.float32)
        turned = any(bool(run.op.attrs.get(name)) for name in names)
        factors.append(np.swapaxes(rounded, -1, -2) if turned else rounded)
    (old,) = run.outputs
    return [np.matmul(*factors).astype(old.dtype).reshape(old.shape)]

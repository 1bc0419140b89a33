"""How what is right about a sample is written down."""

from __future__ import annotations

import numpy as np

LEAF = "20240125153144/0/ge_default_20240125153144_1/1/0"
"""Time, device, graph, model and step of a device dump."""

TIME = 1706168000000000
Expected = dict[str, object]


def tensor(values: np.ndarray, dtype: str = "", **more: object) -> Expected:
    """What a reader must give for one tensor: exact values, as lists; NaN and infinities as text."""
    wide = values.astype(np.float64) if values.dtype.kind == "f" else values
    listed = [repr(v) if isinstance(v, float) and not np.isfinite(v) else v for v in wide.ravel().tolist()]
    return {"dtype": dtype or values.dtype.name, "shape": list(values.shape), "values": listed, **more}


def f32(*shape: int, start: int = 0) -> np.ndarray:
    """Ascending values, all exact in float32."""
    return (np.arange(np.prod(shape, dtype=int), dtype=np.float32) + start).reshape(shape)

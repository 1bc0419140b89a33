"""From the device's private layouts back to the shape that the framework knows.

C0 and Ni are read from the stored shape, never assumed. What layout the original shape is in is often not written
down; then it is the one among the usual ones whose dimensions fit, and two that fit are a reason to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.raw import element_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord

PRIVATE: Final = frozenset({"NC1HWC0", "NC1HWC0_C04", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"})
"""Layouts that :func:`to_original` undoes."""

_PLAIN_4D: Final = ("NCHW", "NHWC", "HWCN")
_PLAIN_5D: Final = ("NCDHW", "NDHWC")


def is_private(layout: str) -> bool:
    """Tells whether stored data in this layout differ from the framework's tensor."""
    return layout in PRIVATE or layout.startswith(("FRACTAL_", "C1HW"))


def load_original(record: TensorRecord) -> NDArray[np.generic]:
    """Loads a record and undoes the device's layout where it has one and the original shape is known.

    Raises:
        DataError: no value, a damaged file, or a layout that cannot be undone (see :func:`to_original`).
    """
    array = record.load()
    if record.original_shape is None or not is_private(record.format):
        return array
    groups = getattr(record.source, "groups", 1)
    layout = getattr(record.source, "layout", "")
    try:
        return to_original(array, record.format, record.original_shape, original_format=layout, groups=groups)
    except DataError as error:
        raise DataError(f"{record.path}: {record.name}: {error}") from error


def to_original(
    array: NDArray[np.generic],
    layout: str,
    original_shape: tuple[int, ...],
    *,
    original_format: str = "",
    groups: int = 1,
) -> NDArray[np.generic]:
    """Returns the data in ``original_shape``, padding cut off.

    Args:
        array: Data with the stored shape.
        layout: Stored layout. A plain one leaves the array as it is.
        original_shape: Shape before the conversion.
        original_format: Layout of ``original_shape`` (``NHWC``) if known; otherwise the one that fits.
        groups: Group count of a grouped convolution's FRACTAL_Z filter.

    Raises:
        DataError: the layout is not known, the shapes do not belong together, or two readings fit.
    """
    if not is_private(layout):
        return array
    if layout == "FRACTAL_NZ":
        return _from_nz(array, original_shape)
    if layout in ("NC1HWC0", "NC1HWC0_C04"):
        return _from_nc1hwc0(array, original_shape, original_format)
    if layout == "NDC1HWC0":
        return _from_ndc1hwc0(array, original_shape, original_format)
    if layout == "FRACTAL_Z":
        return _from_fractal_z(array, original_shape, original_format, groups)
    raise DataError(f"layout {layout} cannot be turned back into {original_shape}; the stored layout is shown")


def _from_nc1hwc0(array: NDArray[np.generic], shape: tuple[int, ...], known: str) -> NDArray[np.generic]:
    if array.ndim != 5:
        raise DataError(f"layout NC1HWC0 with {array.ndim} dimensions")
    n, c1, h, w, c0 = array.shape
    layout = _fitting(
        _PLAIN_4D, shape, known, lambda d: (d["N"], d["H"], d["W"]) == (n, h, w) and 0 <= c1 * c0 - d["C"] < c0
    )
    nchw = array.transpose(0, 1, 4, 2, 3).reshape(n, c1 * c0, h, w)
    return _permuted(nchw, "NCHW", layout, shape)


def _from_ndc1hwc0(array: NDArray[np.generic], shape: tuple[int, ...], known: str) -> NDArray[np.generic]:
    if array.ndim != 6:
        raise DataError(f"layout NDC1HWC0 with {array.ndim} dimensions")
    n, d, c1, h, w, c0 = array.shape
    layout = _fitting(
        _PLAIN_5D,
        shape,
        known,
        lambda x: (x["N"], x["D"], x["H"], x["W"]) == (n, d, h, w) and 0 <= c1 * c0 - x["C"] < c0,
    )
    ncdhw = array.transpose(0, 2, 5, 1, 3, 4).reshape(n, c1 * c0, d, h, w)
    return _permuted(ncdhw, "NCDHW", layout, shape)


def _from_fractal_z(array: NDArray[np.generic], shape: tuple[int, ...], known: str, groups: int) -> NDArray[np.generic]:
    if array.ndim != 4:
        raise DataError(f"layout FRACTAL_Z with {array.ndim} dimensions")
    first, n1, ni, c0 = array.shape
    if groups > 1:
        return _from_grouped_z(array, shape, known, groups)

    def fits(dims: dict[str, int]) -> bool:
        return bool(-(-dims["C"] // c0) * dims["H"] * dims["W"] == first and 0 <= n1 * ni - dims["N"] < ni)

    layout = _fitting(_PLAIN_4D, shape, known, fits)
    dims = dict(zip(layout, shape, strict=True))
    h, w = dims["H"], dims["W"]
    blocks = array.reshape(first // (h * w) if h * w else 0, h, w, n1, ni, c0)
    nchw = blocks.transpose(3, 4, 0, 5, 1, 2).reshape(n1 * ni, -1 if array.size else 0, h, w)
    return _permuted(nchw, "NCHW", layout, shape)


def _from_grouped_z(array: NDArray[np.generic], shape: tuple[int, ...], known: str, groups: int) -> NDArray[np.generic]:
    """Filters of a grouped convolution: E groups share one pack, each on the pack's block diagonal."""
    first, n1, ni, c0 = array.shape

    def pack(dims: dict[str, int]) -> int:
        c, n = dims["C"], dims["N"] // groups
        return min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, ni) // n), groups)

    def fits(dims: dict[str, int]) -> bool:
        if dims["N"] % groups or not dims["N"] or not dims["C"]:
            return False
        e = pack(dims)
        rows = -(-groups // e) * -(-(e * dims["C"]) // c0) * dims["H"] * dims["W"]
        return bool(rows == first and -(-(e * (dims["N"] // groups)) // ni) == n1)

    layout = _fitting(_PLAIN_4D, shape, known, fits)
    dims = dict(zip(layout, shape, strict=True))
    c, n, h, w = dims["C"], dims["N"] // groups, dims["H"], dims["W"]
    e = pack(dims)
    packs = array.reshape(-(-groups // e), -1, h, w, n1, ni, c0)
    packs = packs.transpose(0, 4, 5, 1, 6, 2, 3).reshape(packs.shape[0], n1 * ni, -1, h, w)
    filters = [packs[g // e, (g % e) * n : (g % e) * n + n, (g % e) * c : (g % e) * c + c] for g in range(groups)]
    return _permuted(np.concatenate(filters), "NCHW", layout, shape)


def _from_nz(array: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
    if array.ndim < 4:
        raise DataError(f"layout FRACTAL_NZ with {array.ndim} dimensions")
    w1, h1, h0, w0 = array.shape[-4:]
    lead = array.shape[:-4]
    matrix = np.moveaxis(array, -4, -2).reshape(*lead, h1 * h0, w1 * w0)
    for rows, columns, outer in _matrix_readings(shape):
        pads = (h1 * h0 - rows, w1 * w0 - columns)
        if 0 <= pads[0] < h0 and 0 <= pads[1] < w0 and outer == element_count(lead):
            return matrix[..., :rows, :columns].reshape(shape)
    raise DataError(f"FRACTAL_NZ data of shape {array.shape} do not belong to the original shape {shape}")


def _matrix_readings(shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """How a shape may have become matrices: (rows, columns, matrices), the most direct reading first.

    A batch of matrices; all but the last axis merged into the rows, as the device does it; all but the first axis
    merged into the columns, as for the input of a fully connected layer.
    """
    if len(shape) < 2:
        return [(1, element_count(shape), 1)]
    return [
        (shape[-2], shape[-1], element_count(shape[:-2])),
        (element_count(shape[:-1]), shape[-1], 1),
        (shape[0], element_count(shape[1:]), 1),
    ]


def _fitting(
    candidates: tuple[str, ...], shape: tuple[int, ...], known: str, fits: Callable[[dict[str, int]], bool]
) -> str:
    if len(shape) != len(candidates[0]):
        raise DataError(f"original shape {shape} does not have {len(candidates[0])} dimensions")
    if known in candidates:
        candidates = (known,)
    found = [name for name in candidates if fits(dict(zip(name, shape, strict=True)))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise DataError(f"stored data do not belong to the original shape {shape} ({', '.join(candidates)} tried)")
    raise DataError(f"original shape {shape} may be {' or '.join(found)}; give the graph, which tells")


def _permuted(array: NDArray[np.generic], have: str, want: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    dims = dict(zip(want, shape, strict=True))
    cropped = array[tuple(slice(dims[axis]) for axis in have)]
    return cropped.transpose([have.index(axis) for axis in want])

"""A dumped tensor in another layout: the one it had in the framework, or one that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.layouts import is_private, load_original, to_original

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorRecord

AS_IT_IS: Final = "taken as it is"
"""How the note of a tensor ends whose layout has nothing to turn."""

PLAIN: Final = ("ND", "NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN")
"""Layouts that can be asked for."""


def original(record: TensorRecord) -> tuple[NDArray[np.generic], str]:
    """Returns a tensor as the framework knows it.

    Returns:
        The array, and what was done to it (``FRACTAL_NZ undone``) or why nothing could be; empty for a plain tensor.

    Raises:
        DataError: no value, or a damaged file.
    """
    if not is_private(record.format):
        return record.load(), ""
    if record.original_shape is None:
        return record.load(), f"left in {record.format}: the original shape is not known"
    try:
        return load_original(record), f"{record.format} undone"
    except DataError as error:
        reason = str(error).removeprefix(f"{record.path}: ").removeprefix(f"{record.name}: ")
        return record.load(), f"left in {record.format}: {reason}"


def in_layout(record: TensorRecord, wanted: str) -> tuple[NDArray[np.generic], str]:
    """Returns a tensor in a layout that the user names.

    The original shape of a header is in the layout that the framework used, which need not be the wanted one: it is
    found by which one fits the stored data, and the axes are then brought into the wanted order.

    Raises:
        DataError: no value, a damaged file, or no way from the stored layout to the wanted one.
    """
    array = record.load()
    if not is_private(record.format):
        return _plain(array, record.format, wanted)
    if record.original_shape is None:
        raise DataError(f"the original shape of {record.format} data is not known; give the graph")
    first: DataError | None = None
    for name in _readings(record, wanted):
        try:
            shown = to_original(
                array,
                record.format,
                record.original_shape,
                original_format="" if name == "ND" else name,
                groups=getattr(record.source, "groups", 1),
            )
            return _plain(shown, name, wanted)
        except DataError as error:
            first = first or error
    raise first or DataError(f"{record.format} data of shape {record.shape} cannot be turned into {wanted}")


def _readings(record: TensorRecord, wanted: str) -> list[str]:
    """Layouts that the original shape may be in, the likeliest first.

    Fractal matrices fit every layout alike, so nothing tells which one; such a tensor is taken as it is (ND).
    """
    known = getattr(record.source, "layout", "")
    if known in PLAIN:
        return [known]
    if record.format == "FRACTAL_NZ":
        return ["ND"]
    rank = len(record.original_shape or ())
    return [name for name in (wanted, *PLAIN) if len(name) == rank and name != "ND"]


def _plain(array: NDArray[np.generic], have: str, wanted: str) -> tuple[NDArray[np.generic], str]:
    if wanted in (have, "ND") or array.ndim != len(wanted):  # a layout of four axes on other tensors means ND
        return array, "" if have == wanted else f"{have} {AS_IT_IS}"
    if have in ("", "ND") or len(have) != array.ndim:
        return array, f"ND {AS_IT_IS}"
    if sorted(have) != sorted(wanted):
        raise DataError(f"no way from {have} to {wanted}")
    return array.transpose([have.index(axis) for axis in wanted]), f"{have} turned"

"""What TensorFlow hands out, as arrays that a plain npy file can hold."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Tuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_STRING_PADDING = 64 << 20
_USER_TYPE = 2
"""``dtype.isbuiltin`` of a type that some package registered with NumPy."""


def storable(value: object, dtype: str) -> Tuple[NDArray[np.generic], str, str]:
    """Returns a value as an array for an npy file, the name of its dtype, and a note if something is odd about it.

    Strings become fixed-width bytes; types that NumPy lacks (bfloat16, the eight-bit floats) become raw bytes of their
    width, to be read with the dtype that is returned.

    Args:
        value: What a fetch returned or a caller fed.
        dtype: TensorFlow's name of the type.

    Raises:
        ValueError: the value cannot be stored; the message says why.
    """
    if dtype == "string":
        array, note = _bytes_array(value)
        return array, dtype, note
    array = np.asarray(value)
    if array.dtype.kind == "O":
        raise ValueError("no value: {} held as a Python object".format(dtype))
    if array.dtype.names:  # a quantised type: TensorFlow shows it as one named field
        plain = array.view(np.dtype(array.dtype.descr[0][1]))
        return plain, plain.dtype.name, "quantised type {}".format(dtype)
    if array.dtype.kind == "V" or array.dtype.isbuiltin == _USER_TYPE:
        raw = np.array(array, order="C", copy=True).view(np.dtype("V{}".format(array.dtype.itemsize)))
        return raw, dtype, ""
    name = _name_of(array.dtype)
    return array, name, "" if name == dtype else "{} of TensorFlow".format(dtype)


@functools.lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[np.generic]) -> str:
    """NumPy puts the name together anew each time, which takes longer than all else for a small tensor."""
    return str(dtype.name)


def _bytes_array(value: object) -> Tuple[NDArray[np.generic], str]:
    """Fixed-width bytes; an npy file of Python objects would have to be unpickled, which nobody should do."""
    elements = np.array(value, dtype=object)
    texts = [x.encode("utf-8") if isinstance(x, str) else bytes(x) for x in elements.ravel()]
    width = max([len(text) for text in texts] + [1])
    if width * len(texts) - sum(map(len, texts)) > _MAX_STRING_PADDING:
        raise ValueError("strings of very different length (up to {} bytes): not recorded".format(width))
    array = np.array(texts, dtype="S{}".format(width)).reshape(elements.shape)
    cut = any(text.endswith(b"\0") for text in texts)
    return array, "zero bytes at the end of a string are not kept" if cut else ""


def write_npy(path: Path, array: NDArray[np.generic]) -> None:
    """Writes an npy file, whole or not at all.

    Raises:
        OSError: the file system does not take it.
    """

    def content(file: BinaryIO) -> None:
        # As np.save writes it, whose own way of writing to a full disk loses the system's error number.
        rows = np.asarray(array, order="C")
        layout: Any = np.lib.format
        layout.write_array_header_1_0(file, layout.header_data_from_array_1_0(rows))
        if rows.nbytes:
            file.write(rows.reshape(-1).view(np.uint8).data)

    write_whole(path, content)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file, whole or not at all.

    Raises:
        OSError: the file system does not take it.
    """

    def content(file: BinaryIO) -> None:
        file.write(data)

    write_whole(path, content)


def write_whole(path: Path, content: Callable[[BinaryIO], None]) -> None:
    """Lets ``content`` write a temporary file beside ``path`` and renames it; a failure leaves nothing behind.

    Raises:
        OSError: the file system does not take it.
    """
    temporary = path.with_name(".{}.part".format(path.name))
    try:
        with open(str(temporary), "wb") as file:
            content(file)
        os.replace(str(temporary), str(path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(str(temporary))
        raise

"""TensorFlow's ``TensorProto``: dtype, shape and values, without TensorFlow."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dumpers.dtypes import numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.enums import tf_dtype
from dumpers.formats.raw import bad_shape, element_count
from dumpers.formats.schema import Message, decode_error, tf_message

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUANTISED: Final = {"qint8": "int8", "qint16": "int16", "qint32": "int32", "quint8": "uint8", "quint16": "uint16"}

_VALUE_FIELD: Final = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "float16": "half_val",
    "bfloat16": "half_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
}
"""Field of the values; all other integers are in ``int_val``, eight-bit floats in ``float8_val``."""


def value_dtype(number: int) -> str:
    """Returns the dtype name of the values behind a TensorFlow type number (quantised types are plain integers)."""
    name = tf_dtype(number).removesuffix("_ref")
    return _QUANTISED.get(name, name)


def proto_shape(shape: Message) -> tuple[int, ...] | None:
    """Returns a ``TensorShapeProto``'s dimensions, -1 for an unknown one, None for an unknown rank."""
    return None if shape.unknown_rank else tuple(int(dim.size) for dim in shape.dim)


def proto_array(tensor: Message) -> NDArray[np.generic]:
    """Returns the array of a ``TensorProto``; text becomes an object array of bytes.

    Raises:
        DataError: a type without values, or content that does not fit the shape.
    """
    dtype, shape = value_dtype(tensor.dtype), proto_shape(tensor.tensor_shape)
    if shape is None or bad_shape(shape):
        raise DataError(f"tensor of shape {shape} has no value")
    count = element_count(shape)
    if dtype == "string":
        return _fill(np.array(list(tensor.string_val), dtype=object), count, b"").reshape(shape)
    try:
        wanted = numpy_dtype(dtype)
    except ValueError as error:
        raise DataError(f"tensor of type {dtype} has no value") from error
    if tensor.tensor_content:
        raw = np.frombuffer(tensor.tensor_content, np.uint8)
        if raw.size != count * wanted.itemsize:
            raise DataError(f"{raw.size} bytes for a {dtype} tensor of shape {shape}")
        return raw.view(wanted).reshape(shape)
    return _fill(_typed_values(tensor, dtype, wanted), count, wanted.type(0)).reshape(shape)


def _typed_values(tensor: Message, dtype: str, wanted: np.dtype[np.generic]) -> NDArray[np.generic]:
    if dtype.startswith("float8"):
        return np.frombuffer(tensor.float8_val, np.uint8).view(wanted)
    values = getattr(tensor, _VALUE_FIELD.get(dtype, "int_val"))
    if dtype in ("float16", "bfloat16"):
        return np.array(values, dtype=np.int64).astype(np.uint16).view(wanted)
    if dtype.startswith("complex"):
        half = np.float32 if dtype == "complex64" else np.float64
        return np.array(values, dtype=half).view(wanted)
    return np.array(values, dtype=np.int64 if wanted.kind in "iu" and wanted.itemsize < 8 else wanted).astype(wanted)


def _fill(values: NDArray[np.generic], count: int, default: object) -> NDArray[np.generic]:
    """The last value stands for all that follow, and none at all for zeros."""
    if values.size > count:
        raise DataError(f"{values.size} values for {count} elements")
    if values.size == count:
        return values
    if count > 1 << 32:
        raise DataError(f"{values.size} values for {count} elements")
    result = np.empty(count, values.dtype)
    result[: values.size] = values
    result[values.size :] = values[-1] if values.size else default
    return result


@dataclass(frozen=True)
class ProtoSource:
    """A ``TensorProto`` that lies inside a file, with its values in typed fields.

    Attributes:
        path: The file.
        start: Offset of the message.
        end: Offset behind it.
    """

    path: Path
    start: int
    end: int

    def load(self) -> NDArray[np.generic]:
        """Returns the array.

        Raises:
            DataError: the file vanished, is damaged, or the tensor has no value.
        """
        tensor = tf_message("TensorProto")
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start)
                tensor.ParseFromString(file.read(self.end - self.start))
            return proto_array(tensor)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        except decode_error() as error:
            raise DataError(f"{self.path}: is damaged; dump it again") from error
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error


def parse_shape(data: bytes | mmap.mmap, start: int, end: int) -> tuple[int, ...] | None:
    """Returns the dimensions of a ``TensorShapeProto`` on the wire.

    Raises:
        DataError: it is none.
    """
    shape = tf_message("TensorShapeProto")
    try:
        shape.ParseFromString(data[start:end])
    except decode_error() as error:
        raise DataError("damaged shape") from error
    return proto_shape(shape)

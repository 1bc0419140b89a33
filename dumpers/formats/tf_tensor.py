"""TensorFlow's ``TensorProto``: dtype, shape and values, without TensorFlow."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dumpers.dtypes import numpy_dtype
from dumpers.errors import DataError
from dumpers.formats.enums import tf_dtype
from dumpers.formats.raw import RawSource, bad_shape, element_count, open_regular
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.wire import ByteSource, WireError, few_fields, read_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import TensorSource

_MAX_SHAPE_BYTES: Final = 1 << 14
"""Longest shape message accepted; TensorFlow has at most 254 dimensions."""

_MAX_FILLED_BYTES: Final = 1 << 26
"""How large a tensor may become that is written as fewer values than elements: a few bytes must not claim memory."""

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


def value_field(dtype: str) -> str:
    """Returns the field of a ``TensorProto`` that holds the values of a dtype."""
    if dtype == "string":
        return "string_val"
    return "float8_val" if dtype.startswith("float8") else _VALUE_FIELD.get(dtype, "int_val")


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
        texts = list(tensor.string_val) if len(tensor.string_val) else _string_list(tensor.tensor_content, count)
        return _fill(np.array(texts, dtype=object), count, b"").reshape(shape)
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


def _string_list(content: bytes, count: int) -> list[bytes]:
    """Texts as raw content has them: the lengths of all as varints, then all bytes."""
    if not content:
        return []
    if count > len(content):
        raise DataError(f"{len(content)} bytes for {count} texts")
    lengths, position = [], 0
    try:
        for _ in range(count):
            length, position = read_varint(content, position, len(content))
            lengths.append(length)
    except WireError as error:
        raise DataError(f"lengths of {count} texts: {error}") from error
    if sum(lengths) != len(content) - position:
        raise DataError(f"{len(content) - position} bytes of text, {sum(lengths)} by their lengths")
    texts = []
    for length in lengths:
        texts.append(content[position : position + length])
        position += length
    return texts


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
    if count * values.dtype.itemsize > _MAX_FILLED_BYTES:
        raise DataError(f"{values.size} values for {count} elements; so many repeated ones are not expanded")
    result = np.empty(count, values.dtype)
    result[: values.size] = values
    result[values.size :] = values[-1] if values.size else default
    return result


class StoredTensor(NamedTuple):
    """A ``TensorProto`` as a record wants it.

    Attributes:
        dtype: Name as in :mod:`dumpers.dtypes`.
        shape: None for an unknown rank.
        source: None where there is no value.
        note: Why there is none.
    """

    dtype: str
    shape: tuple[int, ...] | None
    source: TensorSource | None
    note: str = ""


class WireTensor(NamedTuple):
    """Where the parts of a ``TensorProto`` lie.

    Attributes:
        number: TensorFlow's type number.
        shape: None for an unknown rank.
        content: Offsets of the raw content, None without.
        typed: Whether values stand in typed fields.
    """

    number: int
    shape: tuple[int, ...] | None
    content: tuple[int, int] | None
    typed: bool


@functools.cache
def plain_type(number: int) -> np.dtype[np.generic] | None:
    """Returns the little-endian NumPy type of TensorFlow's raw content, None for types without one."""
    try:
        dtype = numpy_dtype(value_dtype(number))
    except ValueError:
        return None
    return dtype.newbyteorder("<") if dtype.kind in "biufc" else dtype


def walk_tensor(data: ByteSource, start: int, end: int) -> WireTensor:
    """Looks over a ``TensorProto`` without its values.

    Raises:
        DataError: its shape makes no sense.
        WireError: it is no message.
    """
    number, content, typed = 0, None, False
    shape: tuple[int, ...] | None = ()
    for field in few_fields(data, start, end):
        if field.number == 1 and field.kind == 0:
            number = field.value
        elif field.number == 2 and field.kind == 2:
            shape = parse_shape(data, field.start, field.end)
        elif field.number == 4 and field.kind == 2 and field.end > field.start:
            content = (field.start, field.end)
        elif field.number >= 5:  # values come last; a million texts need not be counted to list the tensor
            typed = True
            break
    return WireTensor(number, shape, content, typed)


def without_value(number: int, shape: tuple[int, ...] | None, *, has_values: bool) -> str:
    """Says why a ``TensorProto`` has no value, empty if it has one.

    Args:
        number: TensorFlow's type number.
        shape: None for an unknown rank.
        has_values: Whether there is any content.

    Raises:
        DataError: no tensor has such a shape.
    """
    dtype = value_dtype(number)
    if dtype in ("resource", "variant", "undefined") or dtype.startswith("type_"):
        return f"no value: {dtype}"
    if shape is None or (reason := bad_shape(shape)):
        raise DataError("tensor of unknown rank" if shape is None else reason)
    if not has_values and element_count(shape):
        return "no value: uninitialised when TensorFlow recorded it"
    return "" if dtype == "string" or plain_type(number) else f"type {dtype} is not decoded"


def check_content(number: int, shape: tuple[int, ...], size: int) -> None:
    """Checks that raw content fills the shape.

    Raises:
        DataError: it does not.
    """
    dtype = plain_type(number)
    if dtype is None or element_count(shape) * dtype.itemsize != size:
        raise DataError(f"{size} bytes for a {value_dtype(number)} tensor of shape {shape}; the file is damaged")


def stored_tensor(path: Path, data: ByteSource, start: int, end: int) -> StoredTensor:
    """Describes a ``TensorProto`` inside a file, and how its value is loaded.

    Args:
        path: The file.
        data: Its bytes.
        start: Offset of the message.
        end: Offset behind it.

    Raises:
        DataError: content and shape do not belong together.
        WireError: it is no message.
    """
    found = walk_tensor(data, start, end)
    dtype, shape = value_dtype(found.number), found.shape
    try:
        reason = without_value(found.number, shape, has_values=found.typed or found.content is not None)
    except DataError as error:
        raise DataError(f"{error} (tensor at byte {start})") from error
    if reason or shape is None:
        return StoredTensor(dtype, shape, None, reason)
    if found.content is None or dtype == "string" or found.typed:
        return StoredTensor(dtype, shape, ProtoSource(path, start, end))
    check_content(found.number, shape, found.content[1] - found.content[0])
    return StoredTensor(dtype, shape, RawSource(path, found.content[0], dtype, shape))


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
        with open_regular(self.path) as file:
            try:
                file.seek(self.start)
                raw = file.read(self.end - self.start)
            except OSError as error:
                raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if len(raw) != self.end - self.start:
            raise DataError(f"{self.path}: ends inside the tensor at byte {self.start}; dump it again")
        try:
            return array_from_bytes(raw)
        except DataError as error:
            raise DataError(f"{self.path}: tensor at byte {self.start}: {error}") from error


@dataclass(frozen=True)
class InlineSource:
    """A tensor of a few bytes, kept as they were read with the header: opening the file again would cost far more.

    Attributes:
        file: The file they came from.
        raw: Little-endian content.
        number: TensorFlow's type number.
        shape: Dimensions.
    """

    file: str
    raw: bytes
    number: int
    shape: tuple[int, ...]

    @property
    def path(self) -> Path:
        """The file that holds the tensor."""
        return Path(self.file)

    def load(self) -> NDArray[np.generic]:
        """Returns the array, read-only."""
        return np.frombuffer(self.raw, plain_type(self.number)).reshape(self.shape)


def array_from_bytes(raw: bytes) -> NDArray[np.generic]:
    """Returns the array of a serialised ``TensorProto``; text becomes an object array of bytes.

    Raises:
        DataError: it is none, has no value, or content and shape do not belong together.
    """
    tensor = tf_message("TensorProto")
    try:
        tensor.ParseFromString(raw)
    except decode_error() as error:
        raise DataError("is damaged; dump it again") from error
    return proto_array(tensor)


def parse_shape(data: ByteSource, start: int, end: int) -> tuple[int, ...] | None:
    """Returns the dimensions of a ``TensorShapeProto`` on the wire.

    Raises:
        DataError: it is none.
    """
    shape = tf_message("TensorShapeProto")
    try:
        if end - start > _MAX_SHAPE_BYTES:
            raise WireError("too long")
        shape.ParseFromString(data[start:end])
    except (decode_error(), WireError) as error:
        raise DataError("damaged shape") from error
    return proto_shape(shape)

"""Attributes of device graphs: messages <-> plain Python values.

What comes out: text, int, float, bool, bytes, None, tuples and dicts. Types are dtype names: a ``DT_`` text under a key
that ends in ``data_type``, and the integer (other numbering!) under the keys that hold a type, are translated. A float
has single precision in every form of the file, so reading text and JSON gives the same number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dumpers.formats.enums import DEVICE_NAME_OF, DUMP_TYPES, RUNTIME_NUMBER_OF, RUNTIME_TYPES, device_dtype
from dumpers.formats.schema import Message
from dumpers.graph import AttrValue

TYPE_KEYS: Final = frozenset({"SrcT", "DstT", "dst_type", "T", "dt"})
"""Attributes that store a type as a number of the runtime enum."""

_DATA_TYPE_FIELD: Final = frozenset({"T", "dt"})
"""Of those, the ones that compilers store as ``dt``; the others are plain integers."""

_SCALAR_LISTS: Final = (("s", str), ("b", bool), ("i", int), ("f", float), ("bt", bytes))
_LIST_TYPE: Final = {"s": 1, "i": 2, "f": 3, "b": 4, "bt": 5, "td": 6, "t": 7, "g": 8, "na": 9, "dt": 10}


def decode_text(raw: bytes) -> str:
    """Returns text of a device file: UTF-8, else GBK, else with what is neither escaped."""
    for encoding in ("utf-8", "gbk"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("utf-8", "backslashreplace")


def encode_text(text: str) -> bytes:
    """Returns the bytes to store for a text."""
    return text.encode("utf-8", "surrogateescape")


def read_attrs(entries: Iterable[Message]) -> dict[str, AttrValue]:
    """Returns an attribute map in order of the file; of a key that occurs twice the last."""
    result: dict[str, AttrValue] = {}
    for entry in entries:
        key = decode_text(entry.key)
        result[key] = named_value(key, _read_value(entry.value))
    return result


def named_value(key: str, value: AttrValue) -> AttrValue:
    """Returns an attribute's value as it is, the number or name of a type under the keys that hold one as a dtype."""
    if key in TYPE_KEYS and type(value) is int:
        return RUNTIME_TYPES.get(value, value)
    if key.endswith("data_type") and isinstance(value, str) and value.startswith("DT_"):
        return device_dtype(value) if value[3:] in DUMP_TYPES.values() else value
    return value


def _read_value(value: Message) -> AttrValue:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    content = getattr(value, kind)
    if kind == "list":
        return _read_list(content)
    if kind == "list_list_int":  # an empty one is what JSON writes as null
        return tuple(tuple(inner.list_i) for inner in content.list_list_i) or None
    if kind == "list_list_float":
        return tuple(tuple(inner.list_f) for inner in content.list_list_f) or None
    return _read_plain(kind, content)


def _read_plain(kind: str, content: Message) -> AttrValue:
    """One value of a kind that may stand alone or in a list."""
    if kind in ("s", "expression"):
        return text_value(content)
    if kind == "dt":
        return RUNTIME_TYPES.get(content, content)
    if kind in ("func", "na"):
        attrs = read_attrs(content.attr)
        return {"name": decode_text(content.name), **attrs} if content.name else attrs
    if kind == "td":
        return read_descriptor(content)
    if kind == "t":
        return {"desc": read_descriptor(content.desc), "data": bytes(content.data)}
    if kind == "g":
        return {"name": decode_text(content.name), "ops": tuple(decode_text(op.name) for op in content.op)}
    result: AttrValue = content
    return result


def text_value(raw: bytes) -> str | bytes:
    """Returns the text behind bytes, UTF-8 or GBK, and the bytes themselves where they are neither."""
    for encoding in ("utf-8", "gbk"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw


def _read_list(content: Message) -> AttrValue:
    for kind in _LIST_TYPE:
        items = getattr(content, kind)
        if len(items):
            return tuple(
                _unwrap(_read_plain(kind, item)) if kind == "na" else _read_plain(kind, item) for item in items
            )
    return ()


def _unwrap(value: AttrValue) -> AttrValue:
    return value[""] if isinstance(value, Mapping) and set(value) == {""} else value


def read_descriptor(content: Message) -> dict[str, AttrValue]:
    """Returns a tensor descriptor that is an attribute's value: dtype, shape, format, sizes, attrs."""
    return {
        "dtype": descriptor_dtype(content),
        "shape": tuple(content.shape.dim),
        "format": decode_text(content.layout),
        "size": content.size,
        "weight_size": content.weight_size,
        "data_offset": content.data_offset,
        "attrs": read_attrs(content.attr),
    }


def descriptor_dtype(content: Message) -> str:
    """Returns the dtype name of a descriptor.

    A number without a name is ``type_<number>``, a name without a number itself in lower case.
    """
    if content.dtype_name:
        return decode_text(content.dtype_name).removeprefix("DT_").lower()
    return device_dtype(DUMP_TYPES.get(content.dtype, f"type_{content.dtype}"))


def write_attrs(entries: Message, attrs: Mapping[str, AttrValue]) -> None:
    """Appends attributes to a repeated field, sorted by key.

    Raises:
        ValueError: a value that no attribute can hold.
    """
    for key in sorted(attrs):
        entry = entries.add(key=encode_text(key))
        entry.value.SetInParent()
        value = attrs[key]
        if key in TYPE_KEYS and isinstance(value, str) and value in RUNTIME_NUMBER_OF:
            setattr(entry.value, "dt" if key in _DATA_TYPE_FIELD else "i", RUNTIME_NUMBER_OF[value])
        elif key.endswith("data_type") and isinstance(value, str) and value in DEVICE_NAME_OF:
            entry.value.s = encode_text("DT_" + DEVICE_NAME_OF[value])
        else:
            _write_value(entry.value, key, value)


def _write_value(target: Message, key: str, value: AttrValue) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        target.b = value
    elif isinstance(value, int):
        target.i = value
    elif isinstance(value, float):
        target.f = value
    elif isinstance(value, str):
        target.s = encode_text(value)
    elif isinstance(value, bytes):
        target.bt = value
    elif isinstance(value, Mapping):
        _write_named(target.func, value)
    elif isinstance(value, Sequence):
        _write_sequence(target, key, value)
    else:
        raise ValueError(f"attribute {key}: {type(value).__name__} cannot be stored")


def _write_named(target: Message, value: Mapping[str, AttrValue]) -> None:
    target.SetInParent()
    name = value.get("name")
    if isinstance(name, str) and name:
        target.name = encode_text(name)
        value = {key: inner for key, inner in value.items() if key != "name"}
    write_attrs(target.attr, value)


def _write_sequence(target: Message, key: str, items: Sequence[AttrValue]) -> None:
    if not items:
        target.list.val_type = 2 if key == "origin_shape" else 1
        return
    for name, python_type in _SCALAR_LISTS:
        if all(type(item) is python_type for item in items):
            values = [encode_text(str(item)) for item in items] if name == "s" else items
            getattr(target.list, name).extend(values)
            target.list.val_type = _LIST_TYPE[name]
            return
    if all(isinstance(item, (tuple, list)) and all(type(x) is int for x in item) for item in items):
        for item in items:
            target.list_list_int.list_list_i.add().list_i.extend(item)
        return
    if all(isinstance(item, (tuple, list)) and item and all(type(x) is float for x in item) for item in items):
        for item in items:
            target.list_list_float.list_list_f.add().list_f.extend(item)
        return
    # Anything else becomes a list of attribute maps; a value that is no map goes under the empty key.
    target.list.val_type = _LIST_TYPE["na"]
    for item in items:
        plain = isinstance(item, Mapping) and set(item) != {""}
        _write_named(target.list.na.add(), item if plain else {"": item})  # type: ignore[arg-type]

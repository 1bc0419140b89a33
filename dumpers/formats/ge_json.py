"""The JSON form of device graphs, as the model converter writes it <-> messages.

Maps are arrays of key and value, enums are names, 64-bit integers are numbers, floats are text, defaults are left out
and an empty value is null.
"""

from __future__ import annotations

import functools
import json
import marshal
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.ge_attrs import read_attrs
from dumpers.formats.ge_convert import KNOWN_BYTES, GraphParts, make_room, model_attrs, op_of, port_of
from dumpers.formats.proto_text import MAX_DEPTH
from dumpers.formats.schema import Message, enum_numbers, ge_message, message_fields
from dumpers.graph import AttrValue, Op, Port

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_SHOWN: Final = 60
_PLACE: Final = 160

_Value = TypeVar("_Value")


class _MisfitError(ValueError):
    """A value that does not belong where it stands; the path to it grows while the error is passed on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def read_json_graphs(raw: bytes) -> list[GraphParts]:
    """Returns the graphs of a JSON file's bytes; a bare graph is one.

    Raises:
        DataError: no JSON, or not a graph; the message says where.
    """
    tree = _tree_of(raw)
    if not isinstance(tree, dict) or not ("graph" in tree or "op" in tree):
        raise DataError("holds no graph (neither 'graph' nor 'op')")
    reader, whole = _Reader(), "graph" in tree
    try:
        return reader.model(tree) if whole else [reader.graph(tree)]
    except _MisfitError as error:
        place = "".join(["model" if whole else "graph", *error.path])
        if len(place) > _PLACE:
            place = f"{place[: _PLACE // 2]}...{place[-_PLACE // 2 :]}"
        raise DataError(f"{place}: {error}") from error


def _tree_of(raw: bytes) -> Json:
    """Parses with strings as bytes, so that each may have its own encoding; else all of it as GBK."""
    tree: Json
    try:
        tree = json.loads(raw.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        try:  # the second byte of a GBK letter may be a backslash
            tree = json.loads(raw.decode("ascii" if raw.isascii() else "gbk"))
        except (ValueError, RecursionError):
            raise DataError(f"is not JSON, or was cut off: {_clip(str(error), 200)}") from error
    return tree


class _Reader:
    """Reads trees op by op; attributes and descriptors that occur again are looked up, as in the text form."""

    def __init__(self) -> None:
        self._attrs: dict[bytes, dict[str, AttrValue]] = {}
        self._ports: dict[bytes, Port] = {}

    def model(self, tree: dict[str, Json]) -> list[GraphParts]:
        graphs = _items(tree.pop("graph"))
        header = ge_message()
        _fill(header, "ModelDef", tree, 0)
        shared = model_attrs(header)
        parts = []
        for index, graph in enumerate(graphs):
            part = _within(f".graph[{_label(graph, index)}]", self.graph, graph)
            part.attrs = {**shared, **part.attrs}
            parts.append(part)
        return parts

    def graph(self, tree: Json) -> GraphParts:
        content = _object(tree)
        ops = _items(content.pop("op", None))
        header = ge_message("GraphDef")
        _fill(header, "GraphDef", content, 1)
        result = GraphParts(header.name, [], read_attrs(header.attr))
        for index in range(len(ops)):
            place = f".op[{_label(ops[index], index)}]"
            result.ops.append(_within(place, self._op, ops[index]))
            ops[index] = None  # a tree takes many times the room of what it says
        return result

    def _op(self, tree: Json) -> Op:
        content = _object(tree)
        message = ge_message("OpDef")
        attrs: dict[str, AttrValue] = {}
        for index, entry in enumerate(_items(content.pop("attr", None))):
            attrs.update(_within(f".attr[{_label(entry, index)}]", _known, entry, self._attrs, _read_attr))
        ports: list[tuple[Port, ...]] = []
        for key in ("input_desc", "output_desc"):
            entries = _items(content.pop(key, None))
            found = (_within(f".{key}[{i}]", _known, e, self._ports, _read_port) for i, e in enumerate(entries))
            ports.append(tuple(found))
        _fill(message, "OpDef", content, 2)
        return op_of(message, attrs=attrs, input_ports=ports[0], output_ports=ports[1])


def _read_attr(tree: Json) -> dict[str, AttrValue]:
    entry = ge_message("AttrEntry")
    entry.value.SetInParent()
    _fill(entry, "AttrEntry", tree, 3)
    return read_attrs([entry])


def _read_port(tree: Json) -> Port:
    message = ge_message("TensorDescriptor")
    _fill(message, "TensorDescriptor", tree, 3)
    return port_of(message)


def _known(tree: Json, known: dict[bytes, _Value], read: Callable[[Json], _Value]) -> _Value:
    try:
        text = marshal.dumps(tree, 2)
    except ValueError:  # nested too deep for it
        return read(tree)
    if len(text) > KNOWN_BYTES:
        return read(tree)
    value = known.get(text)
    if value is None:
        value = read(tree)
        make_room(known)
        known[text] = value
    return value


def _within(place: str, read: Callable[..., _Value], *args: object) -> _Value:
    try:
        return read(*args)
    except _MisfitError as error:
        error.path.insert(0, place)
        raise


def _items(value: Json) -> list[Json]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _object(tree: Json) -> dict[str, Json]:
    if not isinstance(tree, dict):
        raise _MisfitError(f"{type(tree).__name__} instead of an object")
    return tree


def _label(item: Json, index: int) -> str:
    name = item.get("name", item.get("key", index)) if isinstance(item, dict) else index
    return _clip(name if isinstance(name, str) else str(index), _SHOWN)


def _clip(text: str, length: int) -> str:
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= length else f"{shown[:length]}..."


class _Field(NamedTuple):
    repeated: bool
    kind: str
    convert: Callable[[Json], bytes | bool | int | float] | None
    """None for a message."""


@functools.cache
def _table(kind: str) -> Mapping[str, _Field]:
    result = {}
    for name, spec in message_fields("ge", kind).items():
        scalar = spec.kind.startswith("enum:") or spec.kind.islower()
        result[name] = _Field(spec.repeated, spec.kind, _SCALARS.get(spec.kind, _integer) if scalar else None)
    return result


def _fill(message: Message, kind: str, tree: Json, depth: int) -> None:
    content = _object(tree)
    if depth > MAX_DEPTH:
        raise _MisfitError(f"objects are nested more than {MAX_DEPTH} deep")
    fields = _table(kind)
    for key, value in content.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        try:
            if field.convert is not None:
                _set(message, key, field, field.convert, value)
            else:
                _fill_children(message, key, field, _items(value), depth)
        except _MisfitError as error:
            error.path.insert(0, f".{key}")
            raise


def _set(
    message: Message, key: str, field: _Field, convert: Callable[[Json], bytes | bool | int | float], value: Json
) -> None:
    if field.repeated:
        getattr(message, key).extend([_scalar(item, field.kind, convert) for item in _items(value)])
        return
    last = value[-1] if isinstance(value, list) and value else value
    if field.kind == "enum:DataType" and isinstance(last, str) and last not in enum_numbers("ge", "DataType"):
        message.dtype_name = _bytes(last)
    else:
        setattr(message, key, _scalar(last, field.kind, convert))


def _fill_children(message: Message, key: str, field: _Field, values: Sequence[Json], depth: int) -> None:
    for index, item in enumerate(values):
        target = getattr(message, key)
        if field.repeated:
            target = target.add()
        else:
            target.Clear()
            target.SetInParent()
        if field.kind == "AttrEntry":
            target.value.SetInParent()
        try:
            _fill(target, field.kind, item, depth + 1)
        except _MisfitError as error:
            if field.repeated:
                error.path.insert(0, f"[{_label(item, index)}]")
            raise


def _scalar(
    value: Json, kind: str, convert: Callable[[Json], bytes | bool | int | float]
) -> bytes | bool | int | float:
    try:
        if kind.startswith("enum:") and isinstance(value, str):
            # The kind of a list is not needed to read it, so one that is new is none.
            return enum_numbers("ge", kind.removeprefix("enum:")).get(value, 0)
        number = convert(value)
        if kind in _BITS and not 0 <= int(number) < 1 << _BITS[kind]:
            raise ValueError(value)
        return number
    except (TypeError, ValueError, OverflowError) as error:
        raise _MisfitError(f"{_clip(repr(value), _SHOWN)} is no {kind.removeprefix('enum:')}") from error


def _bytes(value: Json) -> bytes:
    if not isinstance(value, str):
        raise TypeError(value)
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair, which JSON can spell
        return value.encode("utf-8", "surrogatepass")


def _integer(value: Json) -> int:
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str)):
        raise TypeError(value)
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(value)
    return number


def _float(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(value)
    with np.errstate(over="ignore"):
        return float(np.float32(float(value)))


def _bool(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


_SCALARS: Mapping[str, Callable[[Json], bytes | bool | int | float]] = {
    "bytes": _bytes,
    "bool": _bool,
    "float": _float,
}
_BITS: Final = {"uint32": 32, "enum:DataType": 31, "enum:ListValueType": 31}


def model_to_json(model: Message) -> bytes:
    """Returns the JSON file's bytes for a model; the same model always gives the same bytes."""
    # One line: indentation would take the slow, pure Python encoder, seconds for a graph of a thousand ops.
    return json.dumps(_tree(model, "ModelDef")).encode("ascii") + b"\n"


def _tree(message: Message, kind: str) -> dict[str, Json]:
    specs = message_fields("ge", kind)
    result: dict[str, Json] = {}
    for field, value in message.ListFields():
        spec = specs[field.name]
        if spec.repeated:
            result[field.name] = [_json(item, spec.kind) for item in value]
        else:
            result[field.name] = _json(value, spec.kind)
    if kind == "AttrEntry":
        content = result.get("value")
        result["value"] = None if content in ({}, {"list_list_int": {}}) else content
    return result


def _json(value: Message, kind: str) -> Json:
    if kind == "bytes":
        return str(value.decode("utf-8", "surrogateescape"))
    if kind == "float":
        return str(np.float32(value))
    if kind.startswith("enum:"):
        names = {number: name for name, number in enum_numbers("ge", kind.removeprefix("enum:")).items()}
        return names.get(value, int(value))
    if kind in ("bool", "int64", "uint32", "uint64", "int32"):
        result: Json = value
        return result
    return _tree(value, kind)

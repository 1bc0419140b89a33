"""The JSON form of device graphs, as the model converter writes it <-> messages.

Maps are arrays of key and value, enums are names, 64-bit integers are numbers, floats are text, defaults are left out
and an empty value is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.ge_attrs import decode_text
from dumpers.formats.schema import Message, ge_enum, ge_fields, ge_message

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def model_from_json(raw: bytes) -> Message:
    """Returns the model of a JSON file's bytes; a bare graph is taken for a model with one.

    Raises:
        DataError: no JSON, or not a graph; the message says where.
    """
    try:
        tree = json.loads(decode_text(raw))
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}") from error
    if not isinstance(tree, dict) or not ("graph" in tree or "op" in tree):
        raise DataError("holds no graph (neither 'graph' nor 'op')")
    model = ge_message()
    if "graph" in tree:
        _fill(model, "ModelDef", tree, "model")
    else:
        _fill(model.graph.add(), "GraphDef", tree, "graph")
    return model


def _fill(message: Message, kind: str, tree: Json, where: str) -> None:
    if not isinstance(tree, dict):
        raise DataError(f"{where}: {type(tree).__name__} instead of an object")
    specs = ge_fields(kind)
    for key, value in tree.items():
        spec = specs.get(key)
        if spec is None or value is None:
            continue
        place = f"{where}.{key}"
        values = value if isinstance(value, list) else [value]
        if spec.kind in ("bytes", "bool", "float") or spec.kind.startswith("enum:") or spec.kind.islower():
            converted = [_scalar(item, spec.kind, place) for item in values]
            if spec.repeated:
                getattr(message, key).extend(converted)
            else:
                setattr(message, key, converted[-1])
        elif spec.repeated:
            for index, item in enumerate(values):
                label = item.get("name", item.get("key", index)) if isinstance(item, dict) else index
                target = getattr(message, key).add()
                if spec.kind == "AttrEntry":
                    target.value.SetInParent()
                _fill(target, spec.kind, item, f"{place}[{label}]")
        else:
            target = getattr(message, key)
            target.SetInParent()
            _fill(target, spec.kind, values[-1], place)


def _scalar(value: Json, kind: str, where: str) -> bytes | bool | int | float:
    convert = _SCALARS.get(kind, _integer)
    try:
        if kind.startswith("enum:") and isinstance(value, str):
            return ge_enum(kind.removeprefix("enum:"))[value]
        return convert(value)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{where}: {value!r} is no {kind}") from error


def _bytes(value: Json) -> bytes:
    if not isinstance(value, str):
        raise TypeError(value)
    return value.encode("utf-8", "surrogateescape")


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


def model_to_json(model: Message) -> bytes:
    """Returns the JSON file's bytes for a model; the same model always gives the same bytes."""
    # One line: indentation would take the slow, pure Python encoder, seconds for a graph of a thousand ops.
    return json.dumps(_tree(model, "ModelDef")).encode("ascii") + b"\n"


def _tree(message: Message, kind: str) -> dict[str, Json]:
    specs = ge_fields(kind)
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
        names = {number: name for name, number in ge_enum(kind.removeprefix("enum:")).items()}
        return names.get(value, int(value))
    if kind in ("bool", "int64", "uint32", "uint64", "int32"):
        result: Json = value
        return result
    return _tree(value, kind)

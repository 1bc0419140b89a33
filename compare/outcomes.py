"""What a comparison found out about a pair, as JSON text and back.

Text, since it goes into a file that is read again: reading it runs nothing, and every value is checked against the type
that its field declares. Numbers come back bit for bit.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from compare.difference.details import Details
from compare.figures import Figures
from compare.pairing import Pair
from compare.table import ComparisonRow

Decoder = Callable[[Any], Any]

_OF_PAIR: Final = frozenset({"index", "op", "op_type", "left_names", "right_names", "io", "slot", "left", "right"})
"""Fields of a row that its pair tells."""


def bare(row: ComparisonRow) -> ComparisonRow:
    """Returns the row without what its pair tells, which is the small part that a worker sends back."""
    return dataclasses.replace(
        row, index=0, op="", op_type="", left_names=(), right_names=(), io=None, slot=None, left=None, right=None
    )


def row_of(pair: Pair, **found: Any) -> ComparisonRow:  # noqa: ANN401  each field has its own type
    """Returns the row of a pair.

    Args:
        pair: Gives names, place and records.
        **found: The other fields of the row.
    """
    return ComparisonRow(
        index=pair.index,
        op=pair.op,
        op_type=pair.op_type,
        left_names=pair.left_names,
        right_names=pair.right_names,
        io=pair.io,
        slot=pair.slot,
        left=pair.left,
        right=pair.right,
        **found,
    )


def dressed(pair: Pair, row: ComparisonRow) -> ComparisonRow:
    """Returns a bare row with what its pair tells."""
    return row_of(pair, **{name: getattr(row, name) for name in _row_fields()})


def encode(row: ComparisonRow) -> str:
    """Returns what was found out about a pair as one line of JSON; defaults are left out."""
    return json.dumps(_encoded_fields(row, _row_fields()), separators=(",", ":"))


def decode(pair: Pair, text: str) -> ComparisonRow:
    """Returns the row of a pair from such a line.

    Raises:
        ValueError: it is none.
    """
    try:
        value = json.loads(text)
        fields = _row_decoders()
        return row_of(pair, **{name: fields[name](item) for name, item in value.items()})
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not an outcome: {error}") from error


@cache
def _row_fields() -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(ComparisonRow) if field.name not in _OF_PAIR)


@cache
def field_types(kind: type) -> dict[str, Any]:
    """Returns the type of each field of a dataclass of a row; some are imported for the type checker alone there."""
    return get_type_hints(kind, localns={"TensorRecord": object, "Io": str, "Figures": Figures, "Details": Details})


@cache
def _row_decoders() -> dict[str, Decoder]:
    hints = field_types(ComparisonRow)
    return {name: _decoder(hints[name]) for name in _row_fields()}


# --------------------------------------------------------------------------------------------------------- writing


def _encoded_fields(value: object, names: Sequence[str]) -> dict[str, object]:
    kind: Any = type(value)
    defaults = _defaults(kind)
    fields = ((name, getattr(value, name)) for name in names)
    return {name: encoded(item) for name, item in fields if not _same(item, defaults.get(name, ...))}


@cache
def _defaults(kind: type) -> dict[str, object]:
    return {
        field.name: field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        for field in dataclasses.fields(kind)
    }


def _same(item: object, default: object) -> bool:
    """Whether leaving the item out loses nothing: equal and of one type (-0.0 and True are not 0)."""
    return item is default or (type(item) is type(default) and not isinstance(item, float) and item == default)


def encoded(value: object) -> object:
    """Returns a field's value in JSON's types; dataclasses become objects without their defaults.

    Raises:
        TypeError: a type that has no place in a row.
    """
    if value is None or isinstance(value, (str, bool)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        return encoded(value.item())
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encoded_fields(value, _names(type(value)))
    raise TypeError(f"{type(value).__name__} has no place in a row")


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


# --------------------------------------------------------------------------------------------------------- reading


@cache
def _decoder(hint: Any) -> Decoder:  # noqa: ANN401  a type hint has no type
    """Returns what turns JSON data into a value of a type hint.

    Raises:
        TypeError: a hint that rows do not use.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of([_decoder(item) for item in arguments])
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin in (list, Sequence):
        return _tuple((*arguments, ...))
    if origin in (dict, Mapping):
        return _mapping(_decoder(arguments[1]), numbered=arguments[0] is int)
    if hint in (None, type(None), str, bool, int, float):
        return _scalar(type(None) if hint is None else hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    raise TypeError(f"a row has a field of type {hint}, which cannot be read back")


def _scalar(kind: type) -> Decoder:
    def decode_scalar(value: object) -> object:
        if type(value) is kind:
            return value
        raise ValueError(f"{value!r} is no {kind.__name__}")

    return decode_scalar


def _literal(allowed: tuple[object, ...]) -> Decoder:
    def decode_literal(value: object) -> object:
        if value in allowed:
            return value
        raise ValueError(f"{value!r} is none of {allowed}")

    return decode_literal


def _one_of(decoders: Sequence[Decoder]) -> Decoder:
    def decode_one(value: object) -> object:
        for decoder in decoders:
            try:
                return decoder(value)
            except ValueError:
                continue
        raise ValueError(f"{value!r} is of no type that is allowed there")

    return decode_one


def _tuple(arguments: tuple[Any, ...]) -> Decoder:
    repeated = len(arguments) == 2 and arguments[1] is ...
    decoders = [_decoder(item) for item in arguments if item is not ...]

    def decode_tuple(value: object) -> object:
        if not isinstance(value, list) or (not repeated and len(value) != len(decoders)):
            raise ValueError(f"{value!r} is no such list")
        if repeated:
            return tuple(decoders[0](item) for item in value)
        return tuple(decoder(item) for decoder, item in zip(decoders, value, strict=True))

    return decode_tuple


def _mapping(decoder: Decoder, *, numbered: bool) -> Decoder:
    def decode_mapping(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no object")
        return {int(key) if numbered else key: decoder(item) for key, item in value.items()}

    return decode_mapping


def _dataclass(kind: type) -> Decoder:
    fields: dict[str, Decoder] = {}

    def decode_dataclass(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no object")
        if not fields:  # at the first use, since a class may hold itself
            fields.update({name: _decoder(hint) for name, hint in field_types(kind).items()})
        try:
            return kind(**{name: fields[name](item) for name, item in value.items()})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no {kind.__name__}: {error}") from error

    return decode_dataclass

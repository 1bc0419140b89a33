"""Random messages of a family, by its field tables: what any file of it could hold."""

from __future__ import annotations

import random
import struct

from dumpers.formats.schema import Message, enum_numbers, ge_message, message_fields, tf_message

OURS = {"dtype_name", "type_name"}
"""Fields that no file has."""


def random_message(chance: random.Random, package: str, kind: str, depth: int = 4) -> Message:
    """A message with about half of its fields set, nested up to a depth."""
    message = (ge_message if package == "ge" else tf_message)(kind)
    specs = {name: spec for name, spec in message_fields(package, kind).items() if name not in OURS}
    one_of = [f.name for group in message.DESCRIPTOR.oneofs for f in group.fields if f.name not in OURS]
    kept = chance.choice(one_of) if one_of else None
    for name, spec in specs.items():
        if (name in one_of and name != kept) or (name != kept and chance.random() < 0.5):
            continue
        nested = not spec.kind.islower() and not spec.kind.startswith("enum:")
        if nested and depth == 0:
            continue
        for _ in range(chance.randrange(3) if spec.repeated else 1):
            if nested:
                child = random_message(chance, package, spec.kind, depth - 1)
                (getattr(message, name).add() if spec.repeated else getattr(message, name)).CopyFrom(child)
            elif spec.repeated:
                getattr(message, name).append(random_scalar(chance, package, spec.kind))
            else:
                setattr(message, name, random_scalar(chance, package, spec.kind))
    return message


def random_scalar(chance: random.Random, package: str, kind: str) -> bytes | bool | int | float:
    if kind == "bytes":
        letters = b"ab\\\"'\n\t\0\x7f\xe4\xb8\xad\xd6\xd0/:{}[]#01789"
        return bytes(chance.choice(letters) for _ in range(chance.choice((0, 1, 5, 12))))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float":
        number = chance.choice((0.5, -1e-7, 3e38, float("inf"), chance.random()))
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    if kind == "double":
        return chance.choice((1e300, -0.1, float("-inf")))
    if kind.startswith("enum:"):
        return chance.choice([*enum_numbers(package, kind.removeprefix("enum:")).values(), 4000])
    bits, signed = int(kind.strip("uint")), kind[0] == "i"
    return chance.choice((0, 1, (1 << (bits - signed)) - 1, -(1 << (bits - 1)) if signed else 7))

"""Protobuf text, read into the messages of :mod:`dumpers.formats.schema`, fast and with bounded memory.

The protobuf runtime's own text parser needs the whole text as one string and about a minute for a graph of 20,000 ops;
this one works on a memory-mapped file and needs a few seconds. It accepts what that one accepts (comments, ``<>``,
``[a, b]`` lists, pieces of a string side by side, ``,`` and ``;``), skips fields that the schema does not have, takes
the last of a field that may stand only once, and lets strings hold bytes in any encoding.
"""

from __future__ import annotations

import functools
import mmap
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from dumpers.formats.schema import Message, enum_numbers, message_fields

MAX_DEPTH: Final = 100
"""Messages inside messages; the same limit as for binary files."""

Buffer: TypeAlias = "bytes | mmap.mmap"
Handlers: TypeAlias = "Mapping[bytes, Callable[[int], int]]"
"""Sub-messages that the caller reads itself: gets the offset behind the brace, returns the one behind the closing."""

# One field as writers print it, a line of its own; anything else goes the long way. Possessive: nothing to backtrack.
_LINE: Final = re.compile(
    rb"[ \t\r\n]*+(?:([A-Za-z_]\w*+)(?::[ \t]*+(?:\"((?:[^\"\\\n]++|\\[^\n])*+)\"|(-?[\w.][\w.+-]*+))[ \t\r]*+\n"
    rb"|[ \t]*+:?[ \t]*+(\{)[ \t\r]*+\n)|(\})[ \t\r]*+\n)"
)
_SPACE: Final = re.compile(rb"(?:[\s;,]++|#[^\n]*+)*+")
_NAME: Final = re.compile(rb"[A-Za-z_0-9]\w*+|\[[\w./ ]*+\]")
_QUOTED: Final = rb"(?:\"((?:[^\"\\\n]++|\\[^\n])*+)\"|'((?:[^'\\\n]++|\\[^\n])*+)')"
_STRING: Final = re.compile(_QUOTED)
_NEXT_PIECE: Final = re.compile(rb"(?:\s++|#[^\n]*+)*+" + _QUOTED)
_SCALAR: Final = re.compile(rb"-?+\s*+[\w.+-]++")
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
# Kernel binaries and weights: one very long line each. Nobody reads them here, and they may be larger than the memory.
_BULK: Final = frozenset({b"bt", b"data", b"cmps_tab"})
_BULK_BYTES: Final = 4096
_PLAIN_ESCAPES: Final = {
    b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip
_TRUE: Final = frozenset({b"true", b"True", b"t", b"1"})
_FALSE: Final = frozenset({b"false", b"False", b"f", b"0"})


class TextError(ValueError):
    """The text makes no sense.

    Attributes:
        offset: Of the byte where.
        reason: Why.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class _Field(NamedTuple):
    name: str
    repeated: bool
    kind: str
    unknown: str
    """Field that takes the name of an enum value that is not known, empty if there is none."""


class _Open(NamedTuple):
    """A message that is being read."""

    target: Message
    fields: Mapping[bytes, _Field]
    depth: int
    on: Handlers | None


class TextParser:
    """Reads fields of one text into messages.

    Args:
        data: The text.
        package: Family of messages: ``ge`` or ``tf``.
    """

    def __init__(self, data: Buffer, package: str) -> None:
        self.data = data
        self.size = len(data)
        self._package = package

    def message(self, target: Message, kind: str, position: int, *, depth: int = 0, on: Handlers | None = None) -> int:
        """Reads fields up to the brace that closes the message, at depth 0 up to the end of the text.

        Args:
            target: The message to fill.
            kind: Its name in the schema.
            position: Where to begin.
            depth: Number of open braces.
            on: What to do with sub-messages that are not to be read into ``target``, by field name.

        Returns:
            The offset behind the closing brace.

        Raises:
            TextError: the text is none, or was cut off.
        """
        if depth > MAX_DEPTH:
            raise TextError(position, f"messages are nested more than {MAX_DEPTH} deep")
        fields, data, line = _table(self._package, kind), self.data, _LINE.match
        message = _Open(target, fields, depth, on)
        while True:
            match = line(data, position)
            if match is None:
                after = self._long_way(message, position)
                if after < 0:
                    return -after - 1
                position = after
                continue
            which, position = match.lastindex, match.end()
            if which == 5:
                if depth == 0:
                    raise TextError(match.start(5), "a brace closes nothing")
                return position
            name = match[1]
            if which == 4:
                position = self._sub(message, name, position)
                continue
            field = fields.get(name)
            if field is not None:
                long = name in _BULK and position - match.start() > _BULK_BYTES
                raw = b"" if long else match[which or 0]
                self._store(target, field, raw, text=which == 2, offset=match.start(1))

    def _sub(self, message: _Open, name: bytes, position: int) -> int:
        """Reads a message inside the open one; returns the offset behind it."""
        if message.on is not None and name in message.on:
            return message.on[name](position)
        field = message.fields.get(name)
        if field is None:  # nobody wants it
            return self.message(None, "", position, depth=message.depth + 1)
        if field.kind == field.kind.lower() or field.kind.startswith("enum:"):
            raise TextError(position, f"{field.name}: a message is no {field.kind}")
        if field.repeated:
            child = getattr(message.target, field.name).add()
        else:
            child = getattr(message.target, field.name)
            child.SetInParent()
        return self.message(child, field.kind, position, depth=message.depth + 1)

    # ------------------------------------------------------------------------------------------- the long way

    def _long_way(self, message: _Open, position: int) -> int:
        """Reads one field in any spelling. Returns the offset behind it, -1 - the offset where the message ends."""
        position = self._space(position)
        if position >= self.size:
            if message.depth:
                raise TextError(position, "the text ends inside a message")
            return -position - 1
        if self.data[position : position + 1] in (b"}", b">"):
            if message.depth == 0:
                raise TextError(position, "a brace closes nothing")
            return -position - 2
        match = _NAME.match(self.data, position)
        if match is None:
            raise TextError(position, f"a field name is missing before {self._shown(position)}")
        name, after = match[0], self._space(match.end())
        if self.data[after : after + 1] == b":":
            after = self._space(after + 1)
        elif self.data[after : after + 1] not in (b"{", b"<", b"["):
            raise TextError(after, f"':' or '{{' is missing after {_short(name)}")
        return self._value(message, name, after)

    def _value(self, message: _Open, name: bytes, position: int) -> int:
        first = self.data[position : position + 1]
        if first in (b"{", b"<"):
            return self._sub(message, name, position + 1)
        if first == b"[":
            return self._list(message, name, position + 1)
        raw, text, after = self._scalar(position)
        field = message.fields.get(name)
        if field is not None:
            raw = b"" if name in _BULK and len(raw) > _BULK_BYTES else raw
            self._store(message.target, field, raw, text=text, offset=position)
        return after

    def _list(self, message: _Open, name: bytes, position: int) -> int:
        position = self._space(position)
        while self.data[position : position + 1] != b"]":
            if position >= self.size or self.data[position : position + 1] == b"[":
                raise TextError(position, "a list is not closed, or holds a list")
            position = self._space(self._value(message, name, position))
        return position + 1

    def _scalar(self, position: int) -> tuple[bytes, bool, int]:
        """Returns a value, whether it was in quotes, and the offset behind it."""
        match = _STRING.match(self.data, position)
        if match is None:
            plain = _SCALAR.match(self.data, position)
            if plain is None:
                raise TextError(position, f"a value is missing before {self._shown(position)}")
            return b"".join(plain[0].split()), False, plain.end()
        pieces = []
        while match is not None:  # pieces side by side are one string
            pieces.append(match[1] if match[1] is not None else match[2])
            position = match.end()
            match = _NEXT_PIECE.match(self.data, position)
        return b"".join(pieces), True, position

    def _space(self, position: int) -> int:
        match = _SPACE.match(self.data, position)
        return match.end() if match else position

    def _shown(self, position: int) -> str:
        return repr(self.data[position : position + 20]).lstrip("b") if position < self.size else "the end of the file"

    # ---------------------------------------------------------------------------------------------- values

    def _store(self, target: Message, field: _Field, raw: bytes, *, text: bool, offset: int) -> None:
        kind = field.kind
        if (kind == "bytes") != text:
            raise TextError(offset, f"{field.name}: {_short(raw)} is no {'text' if kind == 'bytes' else kind}")
        try:
            if text:
                value: bytes | int | float | None = unescape(raw) if b"\\" in raw else raw
            else:
                value = _convert(kind, raw, self._package)
            if value is None:  # the name of an enum value that is not known
                if field.unknown:
                    setattr(target, field.unknown, raw)
                    return
                value = -1
            if field.repeated:
                getattr(target, field.name).append(value)
            else:
                setattr(target, field.name, value)
        except (ValueError, TypeError, OverflowError) as error:
            raise TextError(offset, f"{field.name}: {_short(raw)} is no {kind}") from error


@functools.cache
def _table(package: str, kind: str) -> Mapping[bytes, _Field]:
    specs = message_fields(package, kind) if kind else {}
    result = {}
    for name, spec in specs.items():
        unknown = f"{name}_name" if f"{name}_name" in specs and spec.kind.startswith("enum:") else ""
        result[name.encode("ascii")] = _Field(name, spec.repeated, spec.kind, unknown)
    return result


def _convert(kind: str, raw: bytes, package: str) -> int | float | None:
    if kind in ("float", "double"):
        return _float(raw)
    if kind == "bool":
        if raw in _TRUE or raw in _FALSE:
            return raw in _TRUE
        raise ValueError(raw)
    if kind.startswith("enum:") and not raw.lstrip(b"-").isdigit():
        return enum_numbers(package, kind.removeprefix("enum:")).get(raw.decode("ascii"))
    return _integer(raw)


def _integer(raw: bytes) -> int:
    digits = raw.lstrip(b"-")
    if digits[:1] == b"0" and len(digits) > 1:
        base = 16 if digits[1:2] in b"xX" else 8
        number = int(digits, base)
        return -number if raw[:1] == b"-" else number
    if not digits.isdigit() or len(digits) > 20:
        raise ValueError(raw)
    return int(raw)


def _float(raw: bytes) -> float:
    if b"_" in raw:
        raise ValueError(raw)
    try:
        return float(raw)
    except ValueError:
        return float(raw.rstrip(b"fF"))


def unescape(raw: bytes) -> bytes:
    """Returns the bytes behind a quoted text with C escapes; an escape that is none stays."""
    return _ESCAPE.sub(_unescaped, raw)


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, digits, short, long, other = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if digits is not None:
        return bytes([int(digits, 16)])
    if other is not None:
        return _PLAIN_ESCAPES.get(other, match[0])
    number = int(short or long, 16)
    return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else match[0]


def _short(raw: bytes) -> str:
    return repr(raw[:40]).removeprefix("b") + ("..." if len(raw) > 40 else "")


def line_number(data: Buffer, offset: int) -> int:
    """Returns the line of an offset, from 1."""
    step, count = 1 << 20, 1
    for start in range(0, offset, step):
        count += data[start : min(start + step, offset)].count(b"\n")
    return count

"""Where protobuf bytes stop making sense; the parsers themselves only say that they do."""

from __future__ import annotations

from typing import Final

from dumpers.formats.schema import Message
from dumpers.formats.wire import ByteSource, WireError, fields

_MOST_FIELDS: Final = 1 << 20
"""Enough for any header or graph, and no more than a second's work."""

_DEEPEST: Final = 100
"""The parsers stop at this depth too."""


def broken_at(data: ByteSource, size: int, message: Message, *, base: int = 0) -> str:
    """Says where bytes that could not be parsed break: ``at byte 12``, at the innermost field that does not fit.

    Args:
        data: The bytes of the message.
        size: How many.
        message: Any instance of what they should be.
        base: Where they begin in the file.

    Returns:
        ``before byte <end>`` where every field fits (its contents do not), ``behind byte <n>`` where there are too many
        fields to look at.
    """
    walk = _Walk(data)
    try:
        walk.message(message.DESCRIPTOR, 0, size, 0)
    except WireError:
        return f"{'behind' if walk.count > _MOST_FIELDS else 'at'} byte {base + walk.position}"
    return f"before byte {base + size}"


class _Walk:
    """Goes over the fields of a message and of all messages in it, and knows where the current one begins."""

    def __init__(self, data: ByteSource) -> None:
        self.data = data
        self.position = 0
        self.count = 0

    def message(self, descriptor: Message, start: int, end: int, depth: int) -> None:
        self.position = start
        known = descriptor.fields_by_number
        for part in fields(self.data, start, end):
            self.count += 1
            if self.count > _MOST_FIELDS or depth > _DEEPEST:
                raise WireError("too much to look at")
            field = known.get(part.number)
            if part.kind == 2 and field is not None and field.message_type is not None:
                self.message(field.message_type, part.start, part.end, depth + 1)
            self.position = part.end

"""Errors that a user can cause or meet; each prints as one line and knows its exit code.

A message says what is wrong, where (path, op, step) and what to do about it. Anything else that escapes is a bug and
shows a traceback.
"""

from __future__ import annotations

_ESCAPES = {code: ascii(chr(code))[1:-1] for code in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]}


def one_line(text: str) -> str:
    """Returns a text with its control characters escaped: names in damaged files hold line ends and worse."""
    return text.translate(_ESCAPES)


class PrecisionToolError(Exception):
    """Base of every error that a front shows as one line, whatever names of ops and files are in it."""

    exit_code = 3

    def __str__(self) -> str:
        """Returns the message as one line."""
        return one_line(super().__str__())


class UsageError(PrecisionToolError):
    """Wrong option, unknown op or command, a combination that makes no sense: exit code 2."""

    exit_code = 2


class DataError(PrecisionToolError):
    """Data are missing, damaged or not what they claim to be: exit code 3."""

    exit_code = 3

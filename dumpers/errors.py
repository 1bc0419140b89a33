"""Errors that a user can cause or meet; each prints as one line and knows its exit code.

A message says what is wrong, where (path, op, step) and what to do about it. Anything else that escapes is a bug and
shows a traceback.
"""

from __future__ import annotations


class PrecisionToolError(Exception):
    """Base of every error that a front shows as one line."""

    exit_code = 3


class UsageError(PrecisionToolError):
    """Wrong option, unknown op or command, a combination that makes no sense: exit code 2."""

    exit_code = 2


class DataError(PrecisionToolError):
    """Data are missing, damaged or not what they claim to be: exit code 3."""

    exit_code = 3

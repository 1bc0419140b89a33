"""Regular expressions of a map of names: a part of the language that cannot run away.

A pattern is matched against thousands of names that nobody looked at, so what makes a matcher try exponentially many
ways is refused: a repeated group with a repeat or an alternative in it, look-around, back-references; at most
:data:`MAX_REPEATS` open repeats stand side by side, and long names are not tried.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MAX_NAME: Final = 512
"""Characters of a name; a longer one is not tried with patterns."""

MAX_REPEATS: Final = 4
MAX_PATTERN: Final = 500
_MAX_COUNT: Final = 100

_TOKEN: Final = re.compile(
    r"""\\. | \[\^?\]?(?:\\.|[^\]\\])*\] | \(\?: | [()|] | \{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\} | [*+?] | .""",
    re.VERBOSE | re.DOTALL,
)
_GROUP: Final = re.compile(r"\\(\\|\d)|\\")


@dataclass
class _Group:
    """What stands inside a pair of brackets."""

    repeats: bool = False
    alternatives: bool = False


@dataclass
class _Scan:
    """Walks over the tokens of a pattern; ``last`` is the group that just ended."""

    stack: list[_Group] = field(default_factory=lambda: [_Group()])
    last: _Group | None = None
    after_repeat: bool = False
    open_repeats: int = 0

    def take(self, token: re.Match[str]) -> None:
        text = token[0]
        if text in "*+?" or (text[0] == "{" and len(text) > 1):
            self._repeat(token)
            return
        self.after_repeat = False
        ended = None
        if text in ("(", "(?:"):
            self.stack.append(_Group())
        elif text == ")":
            if len(self.stack) == 1:
                raise ValueError("has a bracket too many")
            ended = self.stack.pop()
            self.stack[-1].repeats |= ended.repeats
            self.stack[-1].alternatives |= ended.alternatives
        elif text == "|":
            self.stack[-1].alternatives = True
        elif text[0] == "\\" and text[1:].isdigit():
            raise ValueError(f"refers back to a group ({text}), which is not supported")
        self.last = ended

    def _repeat(self, token: re.Match[str]) -> None:
        text = token[0]
        if self.after_repeat:
            if text != "?":  # a lazy repeat
                raise ValueError(f"repeats a repeat ({text})")
            self.after_repeat = False
            return
        often, varies = _bounds(token)
        if often and self.last is not None and (self.last.repeats or self.last.alternatives):
            raise ValueError("repeats a group that has a repeat or an alternative in it; that can take for ever")
        self.stack[-1].repeats |= varies
        self.open_repeats += often and varies
        self.after_repeat = True
        self.last = None


def _bounds(token: re.Match[str]) -> tuple[bool, bool]:
    """Returns whether a repeat may take something more than once, and whether the number is open."""
    text = token[0]
    if text in "*+?":
        return text != "?", True
    low, high = int(token["low"] or 0), int(token["high"] or 0) if token["comma"] else int(token["low"] or 0)
    if max(low, high) > _MAX_COUNT:
        raise ValueError(f"repeats more than {_MAX_COUNT} times ({text})")
    unlimited = bool(token["comma"]) and not token["high"]
    return unlimited or high > 1, unlimited or low != high


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compiles the pattern of a line.

    Raises:
        ValueError: it is no regular expression, or one that is refused; the message says why.
    """
    if len(text) > MAX_PATTERN:
        raise ValueError(f"has {len(text)} characters; up to {MAX_PATTERN} are taken")
    if re.search(r"(?<!\\)(?:\\\\)*\(\?(?!:)", text):
        raise ValueError("has a group that begins with (?; only (...) and (?:...) are supported")
    scan = _Scan()
    for token in _TOKEN.finditer(text):
        scan.take(token)
    if scan.open_repeats > MAX_REPEATS:
        raise ValueError(f"has {scan.open_repeats} open repeats (* + {{n,}}); up to {MAX_REPEATS} are taken")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from error


def check_template(text: str, pattern: re.Pattern[str]) -> None:
    """Checks the right part of a line.

    Raises:
        ValueError: it has a group that the pattern has not, or a backslash that means nothing.
    """
    for found in _GROUP.finditer(text):
        mark = found[1]
        if mark is None:
            raise ValueError("has a backslash that is neither \\1 to \\9 nor \\\\")
        if mark.isdigit() and int(mark) > pattern.groups:
            raise ValueError(f"uses group \\{mark}; the left part has {pattern.groups}")


def expand(text: str, match: re.Match[str]) -> str:
    r"""Returns the right part with ``\1`` ... replaced by what the groups matched (nothing for one that did not)."""
    return _GROUP.sub(lambda found: "\\" if found[1] == "\\" else match[int(found[1])] or "", text)

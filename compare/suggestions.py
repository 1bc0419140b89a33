r"""Proposals for ``--map`` where ops are left over on both sides. Nothing is paired by them: the user decides.

First scopes that are called differently (:mod:`compare.scope_renames`), then equal or like values, then like names
(:mod:`compare.likeness`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from compare.leftovers import Leftover, leftovers
from compare.likeness import Likeness, by_names, by_values
from compare.map_patterns import compile_pattern
from compare.scope_renames import Rename, find_renames
from dumpers.errors import one_line
from dumpers.names import flatten

if TYPE_CHECKING:
    from compare.pairs import Unpaired

MAX_OPS: Final = 20_000
"""Ops of a side that are looked at."""


@dataclass(frozen=True)
class Suggestion:
    r"""What a map might say.

    Attributes:
        kind: ``scope``, ``equal values``, ``like values`` or ``like names``.
        lines: Left and right parts of the map's lines.
        tensors: How many tensors speak for it.
        score: Between 0 and 1.
        reason: Why, in words.
        sure: Whether it is more than a guess; a guess is written as a comment.
    """

    kind: str
    lines: tuple[tuple[str, str], ...]
    tensors: int
    score: float
    reason: str
    sure: bool


def suggest(unpaired: Sequence[Unpaired], paired: Collection[str]) -> list[Suggestion]:
    """Returns proposals, the best first.

    Args:
        unpaired: All tensors without a partner.
        paired: Names of ops that have a partner; a pattern must not catch them.
    """
    flat = {flatten(name) for name in paired}
    left, right = (_first(leftovers(unpaired, side, flat)) for side in ("left", "right"))
    if not left or not right:
        return []
    renames = find_renames(left, right)
    found = [_of_rename(rename, left, right, paired) for rename in renames]
    for rename in renames:
        for one, other in rename.pairs:
            left.pop(one, None)
            right.pop(other, None)
    alike = by_values(left, right)
    for like in alike:
        found.append(_of_likeness(like, left, right))
        left.pop(like.left)
        right.pop(like.right)
    return found + [_of_likeness(like, left, right) for like in by_names(left, right)]


def _first(ops: dict[str, Leftover]) -> dict[str, Leftover]:
    return dict(list(ops.items())[:MAX_OPS])


def _of_likeness(like: Likeness, left: dict[str, Leftover], right: dict[str, Leftover]) -> Suggestion:
    line = (left[like.left].name, right[like.right].name)
    return Suggestion(like.kind, (line,), 1, like.score, like.reason, like.kind == "equal values")


def _of_rename(
    rename: Rename, left: dict[str, Leftover], right: dict[str, Leftover], paired: Collection[str]
) -> Suggestion:
    plain = tuple((left[one].name, right[other].name) for one, other in rename.pairs)
    line = _pattern(rename, *plain[0])
    reason = f"{rename.tensors} tensors of {len(plain)} ops agree in the rest of the name, in slot, shape and kind"
    if rename.against:
        reason += f"; {rename.against} ops disagree"
    if rename.rival:
        reason += f"; not certain: {rename.rival}"
    score = len(plain) / (len(plain) + rename.against)
    lines = (line,) if _does_the_same(line[0], plain, paired) else plain
    return Suggestion("scope", lines, rename.tensors, score, reason, not rename.rival)


def _does_the_same(text: str, plain: Sequence[tuple[str, str]], paired: Collection[str]) -> bool:
    """Whether a pattern fits all left names of plain lines (some may be flattened) and no op that has a partner."""
    try:
        pattern = compile_pattern(text.removeprefix("re:"))
    except ValueError:
        return False  # longer than a map takes
    return all(pattern.fullmatch(name) for name, _ in plain) and not any(map(pattern.fullmatch, paired))


def _pattern(rename: Rename, left: str, right: str) -> tuple[str, str]:
    """Returns the line of a rename, in the spelling of one pair of names: flattening keeps the length of a name."""
    change = rename.change
    if change.kind == "end":
        return f"re:(.*){re.escape(change.left)}", f"\\1{_literal(change.right)}"
    start = change.place(rename.pairs[0][0])
    end, goal = start + len(change.left), start + len(change.right)
    if change.kind == "start":
        return f"re:{re.escape(left[:end])}(.+)", f"{_literal(right[:goal])}\\1"
    return (
        f"re:(.+{re.escape(left[start - 1])}){re.escape(left[start:end])}(.+)",
        f"\\1{_literal(right[start:goal])}\\2",
    )


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")


def map_text(suggestions: Iterable[Suggestion]) -> str:
    """Returns a map file: sure lines with their reasons above them, guesses as comments.

    A name that a line cannot hold (blanks around it, control characters, a beginning that means something else) is in a
    comment too, its control characters escaped.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("left", "right"))
    for suggestion in suggestions:
        buffer.write(f"# {suggestion.kind}: {one_line(suggestion.reason)}\n")
        for left, right in suggestion.lines:
            plain = _can_stand(left, suggestion) and _can_stand(right, suggestion)
            if not suggestion.sure or not plain:
                buffer.write("# " if plain else "# cannot be written as a line: ")
            writer.writerow((one_line(left), one_line(right)))
    return buffer.getvalue()


def _can_stand(name: str, suggestion: Suggestion) -> bool:
    """Whether a reader of a map takes a text for the name, or the pattern, that is meant."""
    pattern = suggestion.kind == "scope" and len(suggestion.lines) == 1
    return one_line(name) == name.strip() == name and not name.startswith("#" if pattern else ("#", "re:"))

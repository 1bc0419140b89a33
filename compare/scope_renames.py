r"""Scopes that have another name on the other side: ``model/fc/MatMul`` against ``net_1/fc/MatMul``.

A rename is believed when several tensors agree in the rest of the name, in io and slot, in shape and in the kind of
number, nearly none disagrees, and no other rename of the same scope fits half as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from compare.leftovers import Leftover

MIN_TENSORS: Final = 3
"""So many tensors have to agree."""

_VOTERS: Final = 1000
_CANDIDATES: Final = 32
_VERIFIED: Final = 16
_ROUNDS: Final = 16
_RIVAL: Final = 0.5
_NUMBER: Final = re.compile(r"_\d{1,4}\Z")

Ops = Mapping[str, Leftover]


@dataclass(frozen=True)
class Change:
    """A piece of the flattened name that is replaced.

    Attributes:
        kind: ``start``: the piece right behind ``prefix``; ``inner``: whole segments anywhere behind the first one;
            ``end``: the end of the name.
        prefix: What stands before it, separator included; empty for the start of the name.
        left, right: The piece on each side, separator behind it included unless it is an ending.
        size: Segments in both pieces: of two changes the one that keeps more of the name is likelier.
    """

    kind: Literal["start", "inner", "end"]
    prefix: str
    left: str
    right: str
    size: int = 1

    def place(self, name: str) -> int:
        """Returns where the piece begins in a flattened left name; -1 if it is not there, or not just once."""
        if self.kind == "end":
            at = len(name) - len(self.left)
            return at if name.endswith(self.left) and (self.left or not _NUMBER.search(name)) else -1
        if self.kind == "start":
            start = self.prefix + self.left
            return len(self.prefix) if name.startswith(start) and name != start else -1
        at = name.find("_" + self.left)
        last = name.rfind("_" + self.left)
        return at + 1 if 0 < at == last and len(name) > at + 1 + len(self.left) else -1

    def apply(self, name: str) -> str | None:
        """Returns the right name of a flattened left name, None if the change does not concern it."""
        at = self.place(name)
        return None if at < 0 else name[:at] + self.right + name[at + len(self.left) :]


@dataclass(frozen=True)
class Rename:
    """A change with what speaks for it.

    Attributes:
        change: What is replaced.
        pairs: Flattened left and right names of the ops that agree.
        tensors: How many tensors agree.
        against: Ops that have a partner by this change and disagree with it.
        rival: Another change of the same scope that fits too, in words; empty for none.
    """

    change: Change
    pairs: tuple[tuple[str, str], ...]
    tensors: int
    against: int
    rival: str = ""


def find_renames(left: Ops, right: Ops) -> list[Rename]:
    """Finds renamed scopes, those with most tensors first; each op is explained once.

    Args:
        left: Ops left over, by flattened name.
        right: Those of the other side.
    """
    lefts, rights = dict(left), dict(right)
    cut = _Cut(full=all(any("/" in op.name for op in ops.values()) for ops in (lefts, rights)))
    found: list[Rename] = []
    seen: dict[Change, Rename] = {}  # On all ops: what is left when others are explained is no proof.
    for _ in range(_ROUNDS):
        changes = _candidates(lefts, rights, cut)
        fits = [fit for change in changes if (fit := _fit(change, lefts, rights)).tensors >= MIN_TENSORS]
        fits = [fit for fit in fits if fit.against * 10 <= len(fit.pairs)]
        if not fits:
            break
        seen |= {fit.change: _fit(fit.change, left, right) for fit in fits if fit.change not in seen}
        best = max(fits, key=_worth)
        rival = next((fit for fit in seen.values() if fit.change != best.change and _rivals(best, fit)), None)
        found.append(best if rival is None else _with_rival(best, rival))
        for one, other in best.pairs:
            lefts.pop(one, None)
            rights.pop(other, None)
    return found


def _worth(fit: Rename) -> tuple[int, int, bool, str, str, str]:
    change = fit.change
    return (fit.tensors, -change.size, change.kind != "inner", change.prefix, change.left, change.right)


def _rivals(best: Rename, other: Rename) -> bool:
    """Whether two changes claim the same scope, and the second fits at least half as well."""
    mine, theirs = best.change, other.change
    if other.tensors < _RIVAL * best.tensors or mine.kind != theirs.kind or theirs.size > mine.size:
        return False
    same_left = mine.prefix + mine.left == theirs.prefix + theirs.left
    return same_left or mine.prefix + mine.right == theirs.prefix + theirs.right


def _with_rival(best: Rename, rival: Rename) -> Rename:
    text = f"{rival.change.left or 'nothing'} to {rival.change.right or 'nothing'} fits {rival.tensors} tensors"
    return Rename(best.change, best.pairs, best.tensors, best.against, text)


@dataclass(frozen=True)
class _Cut:
    """Cuts flattened names into segments, with the separator behind each but the last.

    Attributes:
        full: Whether both sides have full names, so that scopes end at a slash and not at every ``_``.
    """

    full: bool

    def segments(self, flat: str, op: Leftover) -> tuple[str, ...]:
        text = op.name if self.full else flat
        mark = "/" if self.full else "_"
        parts, start = [], 0
        while (end := text.find(mark, start)) >= 0:
            parts.append(flat[start : end + 1])
            start = end + 1
        return (*parts, flat[start:])


def _candidates(lefts: Ops, rights: Ops, cut: _Cut) -> list[Change]:
    """Returns the changes that most of a sample of the left ops speak for."""
    index = _Index(rights, cut)
    votes: Counter[Change] = Counter()
    for flat in list(lefts)[:: max(1, len(lefts) // _VOTERS)]:
        mine = cut.segments(flat, lefts[flat])
        for other in index.similar(mine):
            agreed = lefts[flat].agrees(rights[other])
            for change in _changes(mine, index.segments[other]) if agreed else ():
                votes[change] += agreed
        for other in index.numbered(flat):
            votes[_ending(flat, other)] += lefts[flat].agrees(rights[other])
    ranked = sorted(votes, key=lambda one: (-votes[one], one.kind, one.prefix, one.left, one.right))
    return ranked[:_VERIFIED]


class _Index:
    """Right ops by parts of their names.

    Attributes:
        segments: Of each flattened name.
    """

    def __init__(self, ops: Ops, cut: _Cut) -> None:
        self.segments = {flat: cut.segments(flat, op) for flat, op in ops.items()}
        self._ends: dict[tuple[str, ...], list[str]] = {}
        self._gaps: dict[tuple[str, ...], list[str]] = {}
        self._stems: dict[str, list[str]] = {}
        for flat, segments in self.segments.items():
            self._stems.setdefault(_NUMBER.sub("", flat), []).append(flat)
            for depth in range(1, min(4, len(segments)) + 1):
                self._ends.setdefault(segments[-depth:], []).append(flat)
            for gap in range(len(segments) - 1):
                self._gaps.setdefault(_with_gap(segments, gap), []).append(flat)

    def similar(self, segments: tuple[str, ...]) -> dict[str, None]:
        """Ops that share the longest end of a name, and those that differ in one segment, each once."""
        found: dict[str, None] = {}
        for depth in range(min(4, len(segments)), 0, -1):
            if segments[-depth:] in self._ends:
                found = dict.fromkeys(self._ends[segments[-depth:]][:_CANDIDATES])
                break
        for gap in range(len(segments) - 1):
            found |= dict.fromkeys(self._gaps.get(_with_gap(segments, gap), ())[:_CANDIDATES])
        return found

    def numbered(self, flat: str) -> list[str]:
        """Ops whose name differs in the number at its end."""
        return self._stems.get(_NUMBER.sub("", flat), [])[:_CANDIDATES]


def _with_gap(segments: tuple[str, ...], gap: int) -> tuple[str, ...]:
    return (*segments[:gap], "", *segments[gap + 1 :])


def _changes(mine: tuple[str, ...], theirs: tuple[str, ...]) -> list[Change]:
    """Returns what makes one name of the other: the piece between the longest common end and start is replaced."""
    shorter = min(len(mine), len(theirs))
    end = _common(reversed(mine), reversed(theirs), shorter)
    start = _common(iter(mine), iter(theirs), shorter - end)
    left, right = mine[start : len(mine) - end], theirs[start : len(theirs) - end]
    prefix, old, new, size = "".join(mine[:start]), "".join(left), "".join(right), len(left) + len(right)
    found = [Change("start", prefix, old, new, size)]
    return [*found, Change("inner", "", old, new, size)] if prefix and old else found


def _ending(left: str, right: str) -> Change:
    ends = [found[0] if (found := _NUMBER.search(name)) else "" for name in (left, right)]
    return Change("end", "", ends[0], ends[1])


def _common(one: Iterator[str], other: Iterator[str], limit: int) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b or count == limit:
            break
        count += 1
    return count


def _fit(change: Change, lefts: Ops, rights: Ops) -> Rename:
    pairs: list[tuple[str, str]] = []
    tensors = against = 0
    for flat, op in lefts.items():
        name = change.apply(flat)
        partner = rights.get(name) if name is not None else None
        if name is None or partner is None:
            continue
        agreed = op.agrees(partner)
        if agreed:
            pairs.append((flat, name))
            tensors += agreed
        else:
            against += 1
    return Rename(change, tuple(pairs), tensors, against)

"""Which variable of one checkpoint belongs to which of the other.

In this order, each variable once: the user's own pairs; equal names; names that become equal when a scope is taken
away; full names out of the object graph of a checkpoint, so that one saved by name meets one saved from objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dumpers.errors import DataError
from dumpers.formats.object_graph import OBJECT_GRAPH, SavedVariable, read_object_graph

if TYPE_CHECKING:
    from dumpers.records import Dump, TensorRecord


@dataclass(frozen=True)
class Side:
    """Variables of one checkpoint.

    Attributes:
        dump: The checkpoint.
    """

    dump: Dump

    @cached_property
    def records(self) -> Mapping[str, TensorRecord]:
        """By name."""
        return {record.op: record for record in self.dump}

    @cached_property
    def graph(self) -> Mapping[str, SavedVariable]:
        """What the object graph tells; empty where there is none, or a string that is none."""
        record = self.records.get(OBJECT_GRAPH)
        if record is None or record.source is None:
            return {}
        try:
            return read_object_graph(record)
        except DataError:  # the string is a variable like others: its row says what is wrong with it
            return {}

    def full_name(self, name: str) -> str:
        """Returns the name in a graph; a checkpoint that was saved by name has no other."""
        known = self.graph.get(name)
        return (known.full_name if known else "") or name


@dataclass(frozen=True)
class VariablePair:
    """A variable of each side; None on the side that has none.

    Attributes:
        left, right: Records.
        note: How they were found, where not by one name.
    """

    left: TensorRecord | None
    right: TensorRecord | None
    note: str = ""

    @property
    def size(self) -> int:
        """Elements of both sides, as far as known."""
        return sum(_elements(record) for record in (self.left, self.right))


@dataclass
class _Pairing:
    left: Side
    right: Side
    partners: dict[str, tuple[str, str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def by(self, left_names: Mapping[str, str], right_names: Mapping[str, str], note: str) -> None:
        """Pairs what has one of these names, where on neither side a second free variable has it."""
        ones = _unique((name, left_names[name]) for name in self.left.records if name not in self.partners)
        twos = _unique((name, right_names[name]) for name in self.right.records if name not in self.taken)
        for common, one in ones.items():
            if (two := twos.get(common)) is not None:
                self.partners[one] = (two, note.format(two))
                self.taken.add(two)


def _unique(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Other name -> name, for those that only one has."""
    pairs = list(names)
    counts = Counter(other for _, other in pairs)
    return {other: name for name, other in pairs if counts[other] == 1}


def pair_variables(
    left: Side, right: Side, *, scopes: Sequence[str] = (), targets: Mapping[str, str] | None = None
) -> list[VariablePair]:
    """Returns every variable of both sides, with its partner where it has one.

    Args:
        left: Under test.
        right: Reference.
        scopes: To take away from names that begin with them, on either side; the first that fits.
        targets: Left name -> right name, as the user says; a name that is not there pairs nothing.
    """
    pairing = _Pairing(left, right)
    same = [{name: name for name in side.records} for side in (left, right)]
    if targets:
        told = {name: targets.get(name, f"\0{name}") for name in left.records}
        pairing.by(told, same[1], "paired with {} by the map")
    pairing.by(same[0], same[1], "")
    if scopes:
        plain = [{name: without_scope(name, scopes) for name in side.records} for side in (left, right)]
        pairing.by(plain[0], plain[1], "paired with {}, a scope taken away")
    if left.graph or right.graph:
        full = [{name: without_scope(side.full_name(name), scopes) for name in side.records} for side in (left, right)]
        pairing.by(full[0], full[1], "paired by full name with {}")
    return list(_rows(pairing))


def without_scope(name: str, scopes: Sequence[str]) -> str:
    """Returns a name without the first of the scopes that it begins with."""
    for scope in scopes:
        start = scope.rstrip("/") + "/"
        if name.startswith(start) and len(name) > len(start):
            return name[len(start) :]
    return name


def _rows(pairing: _Pairing) -> Iterator[VariablePair]:
    for name, record in pairing.left.records.items():
        partner, note = pairing.partners.get(name, ("", ""))
        yield VariablePair(record, pairing.right.records.get(partner), note)
    for name, record in pairing.right.records.items():
        if name not in pairing.taken:
            yield VariablePair(None, record)


def suggest_scope(pairs: Sequence[VariablePair]) -> tuple[str, int] | None:
    """Returns the scope without which most of the unpaired variables would meet, and how many; None if none would."""
    alone = (
        [pair.left.op for pair in pairs if pair.left is not None and pair.right is None],
        [pair.right.op for pair in pairs if pair.right is not None and pair.left is None],
    )
    found: Counter[str] = Counter()
    for longer, shorter in (alone, (alone[1], alone[0])):
        known = set(shorter)
        for name in longer:
            words = name.split("/")
            for at in range(1, len(words)):
                if "/".join(words[at:]) in known:
                    found["/".join(words[:at])] += 1
    return min(found.items(), key=lambda item: (-item[1], item[0])) if found else None


def _elements(record: TensorRecord | None) -> int:
    count = 1
    for dim in (record.shape or ()) if record is not None else (0,):
        count *= dim
    return count

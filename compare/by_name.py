r"""Pairing by op name, input or output, and slot.

In this order, each tensor of the right side once: lines of the map; equal names; names that become equal once flattened
(``/ . \`` and blanks to ``_``), where that leaves one tensor on each side; device tensors that stand for one tensor of
the framework, where both dumps have a graph; slices of an op (``..._lxslice<N>``) with the whole op of the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compare.op_lookup import Key, TensorLookup
from compare.pairs import Pair, Side, Unpaired, lone, older
from compare.slices import whole_op
from compare.two_graphs import TwoGraphs
from dumpers.names import flatten

if TYPE_CHECKING:
    from compare.name_map import NameMap, Renames, Target
    from dumpers.records import Dump, TensorRecord

Rows = list[Pair | Unpaired]


def pair_by_name(left: Dump, right: Dump, names: NameMap | None = None) -> tuple[Rows, list[Unpaired], list[str]]:
    """Pairs two dumps by name.

    Returns:
        The rows of a result table, the tensors without a partner, and what the map did not do.

    Raises:
        DataError: the map cannot be applied.
    """
    match = _Match(left, right, names)
    rows: Rows = []
    unpaired: list[Unpaired] = []
    index = -1
    for index, (op, records) in enumerate(match.by_op.items()):
        partners = [match.partners.get(id(record)) for record in records]
        if not any(partners):
            unpaired += [match.lost(index, record) for record in records]
            reason = f'no dump file for op "{op}" on the right'
            rows.append(replace(unpaired[-1], record=None, op_type="", reason=reason, wanted=""))
            continue
        for record, partner in zip(records, partners, strict=True):
            if partner is None:
                rows.append(match.lost(index, record))
                continue
            rows.append(Pair(index, op, record.op_type, (op,), (partner.op,), record, partner))
            for other in match.further.get(id(record), ()):
                rows.append(Pair(index, op, record.op_type, (op,), (other.op,), record, other))
    numbers: dict[str, int] = {}
    for record in match.rest():
        number = numbers.setdefault(record.op, index + 1 + len(numbers))
        rows.append(lone(number, record, "right", match.why_alone(record), record.op))
    unpaired += [row for row in rows if isinstance(row, Unpaired) and row.record is not None]
    unpaired += older(match.lefts.older, "left") + older(match.rights.older, "right")
    return rows, unpaired, list(match.renames.unused) if match.renames else []


class _Match:
    """Who belongs to whom.

    Attributes:
        partners: Partner of each left tensor, by the ``id`` of its record.
        further: More partners of a tensor that is in slices on the right.
    """

    def __init__(self, left: Dump, right: Dump, names: NameMap | None) -> None:
        self.lefts, self.rights = TensorLookup(left), TensorLookup(right)
        self.by_op = self.lefts.by_op()
        self.partners: dict[int, TensorRecord] = {}
        self.further: dict[int, list[TensorRecord]] = {}
        self.renames: Renames | None = names.resolve(self.by_op) if names is not None else None
        self._graphs = _graphs(left, right, self.by_op, self.rights)
        self._taken: dict[int, str] = {}  # Right tensors in a pair; what the map says of it, empty for other pairs.
        if self.renames:
            self._by_map(self.renames)
        self._by_equal_name()
        if len(self.partners) < len(self.lefts) and len(self._taken) < len(self.rights):
            self._by_flat_name()
            self._by_original_name()
            self._by_slice("left")
            self._by_slice("right")

    def rest(self) -> list[TensorRecord]:
        """Right tensors that are in no pair."""
        return [record for record in self.rights if id(record) not in self._taken]

    def _target(self, op: str) -> Target | None:
        return self.renames.target(op) if self.renames else None

    def _pair(self, record: TensorRecord, partner: TensorRecord, where: str = "") -> None:
        if self.partners.setdefault(id(record), partner) is not partner:
            self.further.setdefault(id(record), []).append(partner)
        self._taken[id(partner)] = where

    def _by_map(self, renames: Renames) -> None:
        for op, records in self.by_op.items():
            target = renames.target(op)
            if target is None:
                continue
            for record in records:
                partner = self.rights.find(target.op, record.io, record.slot)
                if partner is not None:
                    self._pair(record, partner, f"{target.where} pairs it with {op}")

    def _by_equal_name(self) -> None:
        exact, partners, taken = self.rights.exact, self.partners, self._taken
        mapped, graphs = self.renames, self._graphs
        for key, record in self.lefts.exact.items():
            partner = exact.get(key)
            if partner is None or (mapped and (id(partner) in taken or mapped.target(record.op))):
                continue
            if graphs and graphs.conflict(record, partner):
                continue
            partners[id(record)] = partner
            taken[id(partner)] = ""

    def _open(self, lookup: TensorLookup, side: Side) -> list[TensorRecord]:
        """Tensors of a side that are still to be paired and that no line of the map speaks of."""
        if side == "right":
            return [record for record in lookup if id(record) not in self._taken]
        return [record for record in lookup if id(record) not in self.partners and not self._target(record.op)]

    def _by_flat_name(self) -> None:
        left = _by_key(self._open(self.lefts, "left"))
        right = _by_key(self._open(self.rights, "right"))
        for key, records in left.items():
            partners = right.get(key, [])
            if len(records) == 1 == len(partners) and not self._conflict(records[0], partners[0]):
                self._pair(records[0], partners[0])

    def _conflict(self, left: TensorRecord, right: TensorRecord) -> str:
        return self._graphs.conflict(left, right) if self._graphs else ""

    def _by_original_name(self) -> None:
        """Pairs device tensors of other names that stand for the same tensor of the framework, by both graphs."""
        if self._graphs is None:
            return
        found: dict[tuple[str, str, int], tuple[list[TensorRecord], list[TensorRecord]]] = {}
        sides: tuple[tuple[Side, TensorLookup], ...] = (("left", self.lefts), ("right", self.rights))
        for number, (side, lookup) in enumerate(sides):
            for record in self._open(lookup, side):
                original = self._graphs.original(record, side)
                if original is not None:
                    found.setdefault((record.io, *original), ([], []))[number].append(record)
        for mine, theirs in found.values():
            if len(mine) == 1 == len(theirs):
                self._pair(mine[0], theirs[0])

    def _by_slice(self, side: Side) -> None:
        """Gives each slice of one side the whole tensor of the other, if that one has no partner of its own yet."""
        slices, wholes = (self.lefts, self.rights) if side == "left" else (self.rights, self.lefts)
        cut = [(record, whole) for record in self._open(slices, side) if (whole := whole_op(record.op))]
        if not cut:
            return
        free = {id(record) for record in self._open(wholes, "right" if side == "left" else "left")}
        for record, op in cut:
            partner = wholes.find(op, record.io, record.slot)
            if partner is not None and id(partner) in free:
                self._pair(*((record, partner) if side == "left" else (partner, record)))

    def lost(self, index: int, record: TensorRecord) -> Unpaired:
        """Returns a left tensor without a partner."""
        target = self._target(record.op)
        if target is not None:
            gap = _gap(self.rights, target.op, record, "right")
            return lone(index, record, "left", f"{target.where} pairs {record.op} with {target.op}: {gap}")
        partner = self.rights.find(record.op, record.io, record.slot)
        if partner is not None and (told := self._conflict(record, partner)):
            return lone(index, record, "left", f"{told}, by the graphs; the names are equal")
        if partner is not None and id(partner) in self._taken:
            told = self._taken[id(partner)] or "it is in a pair with another left tensor"
            return lone(index, record, "left", f"the right one is taken: {told}")
        if self.rights.ambiguous(record.op, record.io, record.slot):
            reason = f"several ops on the right are called {record.op} once flattened; their full names are missing"
            return lone(index, record, "left", reason)
        if partner is not None:
            reason = f"several ops on the left are called {flatten(record.op)} once flattened"
            return lone(index, record, "left", reason)
        return lone(index, record, "left", _gap(self.rights, record.op, record, "right"), record.op)

    def why_alone(self, record: TensorRecord) -> str:
        """Says why a right tensor is in no pair."""
        if self.lefts.ambiguous(record.op, record.io, record.slot):
            return f"several ops on the left are called {flatten(record.op)} once flattened"
        partner = self.lefts.find(record.op, record.io, record.slot)
        if partner is None:
            return _gap(self.lefts, record.op, record, "left")
        target = self._target(partner.op)
        if target is not None:
            return f"{target.where} pairs {partner.op} with {target.op}"
        if told := self._conflict(partner, record):
            return f"{told}, by the graphs; the names are equal"
        return f"{partner.name} on the left is in a pair with another right tensor"


def _graphs(left: Dump, right: Dump, left_ops: dict[str, list[TensorRecord]], rights: TensorLookup) -> TwoGraphs | None:
    """Returns the graphs of two device dumps; None where one has none, or both are the same."""
    one, other = left.graph, right.graph
    if one is None or other is None or one is other or (one.kind, other.kind) != ("ge", "ge"):
        return None
    if "tf" in {dump.records[0].device for dump in (left, right) if dump.records}:
        return None
    return TwoGraphs(one, other, left_ops, rights.by_op())


def _by_key(records: list[TensorRecord]) -> dict[Key, list[TensorRecord]]:
    found: dict[Key, list[TensorRecord]] = {}
    for record in records:
        found.setdefault((flatten(record.op), record.io, record.slot), []).append(record)
    return found


def _gap(lookup: TensorLookup, op: str, record: TensorRecord, side: Side) -> str:
    """Says what a side lacks: the op, or one tensor of it."""
    slots = lookup.slots(op, record.io)
    if slots is None:
        return f"no op {op} on the {side}"
    has = f"has {record.io} {', '.join(map(str, slots[:8]))}{', ...' if len(slots) > 8 else ''}" if slots else ""
    return f"no such tensor on the {side}: {op} {has or f'has no {record.io} there'}, not {record.io} {record.slot}"

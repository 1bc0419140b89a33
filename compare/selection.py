"""Which rows of a comparison are wanted: ops that fit an expression, and what ran from a certain op on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from dumpers.errors import UsageError

if TYPE_CHECKING:
    from compare.pairing import Pair, Pairing, Unpaired


@dataclass(frozen=True)
class Selection:
    """What is wanted.

    Attributes:
        ops: Expression that is searched in the names of the row's ops, of either side; None for all.
        since: Op, by a name of either side; rows before its first one are left out. Empty for the whole.
    """

    ops: re.Pattern[str] | None = None
    since: str = ""

    def apply(self, pairing: Pairing) -> tuple[Pairing, int]:
        """Returns the wanted part of a pairing, and how many rows were left out.

        Tensors of the reference that belong to no row are subject to the expression only: they have no place in the
        order of execution of the left side.

        Raises:
            UsageError: there is no such op, or nothing is left.
        """
        rows = list(pairing.rows)
        if self.since:
            rows = rows[self._start(rows) :]
        if self.ops is not None:
            rows = [row for row in rows if self._fits(row)]
            if not rows:
                raise UsageError(
                    f"--ops {self.ops.pattern}: fits none of the {len(pairing.rows)} rows; it is searched in the ops' "
                    "names, without quotes or slashes around it"
                )
        kept = {id(row) for row in rows}
        known = {id(row) for row in pairing.rows}
        rest = [row for row in pairing.unpaired if id(row) in kept or (id(row) not in known and self._fits(row))]
        return replace(pairing, rows=tuple(rows), unpaired=tuple(rest)), len(pairing.rows) - len(rows)

    def _fits(self, row: Pair | Unpaired) -> bool:
        return self.ops is None or any(self.ops.search(name) for name in _names(row))

    def _start(self, rows: Sequence[Pair | Unpaired]) -> int:
        for number, row in enumerate(rows):
            if self.since in _names(row):
                return number
        names = {name: None for row in rows for name in _names(row)}
        close = get_close_matches(self.since, names, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "ls lists the ops of a graph"
        raise UsageError(f"--since {self.since}: no such op in the comparison; {hint}")


def _names(row: Pair | Unpaired) -> tuple[str, ...]:
    return (row.op, *row.left_names, *row.right_names)

"""What ``vc`` says of the pairing: how much of both dumps was compared, what has no partner, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_tool.result import Block, Table

if TYPE_CHECKING:
    from compare.name_map import NameMap
    from compare.pairs import Unpaired
    from compare.suggestions import Suggestion
    from compare.table import Comparison
    from dumpers.records import TensorRecord

SHOWN = 10
SIDES = ("left", "right")
SUGGESTED = "suggested_map.csv"
"""Name of the file with proposals, beside the result file."""


def add_map_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--map``."""
    parser.add_argument("--map", default=None, metavar="FILE", help="pairs of op names, left and right: JSON or CSV")


def map_of(args: argparse.Namespace) -> NameMap | None:
    """Reads the map that was asked for.

    Raises:
        DataError: it cannot be read or is no map.
    """
    if args.map is None:
        return None
    from compare.name_map import read_map

    return read_map(Path(args.map))


class PairingReport:
    """What to say of one comparison's pairing.

    Attributes:
        file: Where the proposals were written as a map file, None if none of them is more than a guess.
    """

    def __init__(self, comparison: Comparison, folder: Path) -> None:
        from compare.suggestions import map_text, suggest
        from dumpers.formats.atomic import atomic_file

        self._comparison = comparison
        paired = {record.op for row in comparison if row.left and row.right for record in (row.left, row.right)}
        self.suggestions = suggest(comparison.unpaired, paired)
        self.file = folder / SUGGESTED if any(suggestion.sure for suggestion in self.suggestions) else None
        if self.file is not None:
            with atomic_file(self.file) as file:
                file.write(map_text(self.suggestions).encode("utf-8", "backslashreplace"))

    def blocks(self) -> list[Block]:
        """Returns tables of tensors without a partner and of proposals for them, the first of each."""
        return [*_lone_blocks(self._comparison), *_suggestion_blocks(self.suggestions)]

    def notes(self) -> list[str]:
        """Returns the coverage of both sides, lines of the map that did nothing, and where proposals are."""
        data = coverage_data(self._comparison)
        told = [f"{side}: {_covered(data[side])}" for side in SIDES if side in data]
        told += [f"map: {note}" for note in self._comparison.map_notes]
        return (
            [*told, f"proposed lines are in {self.file}; look at them, then give --map {self.file}"]
            if self.file
            else told
        )

    def data(self) -> dict[str, Any]:
        """Returns coverage, all tensors without a partner, and proposals, for ``--json``."""
        return {
            "coverage": coverage_data(self._comparison),
            "unpaired": [_unpaired_data(row) for row in self._comparison.unpaired],
            "map_unused": list(self._comparison.map_notes),
            "suggestions": [_suggestion_data(suggestion) for suggestion in self.suggestions],
            "suggested_map": str(self.file) if self.file else None,
        }


def _lone_blocks(comparison: Comparison) -> list[Block]:
    found = [row for row in comparison.unpaired if row.record is not None and row.record.source is not None]
    if not found:
        return []
    more = f" (the first {SHOWN} of {len(found)}; --json lists all)" if len(found) > SHOWN else ""
    rows = tuple((row.side, row.tensor, _bytes([row.record]), row.reason) for row in found[:SHOWN])
    return [Table(f"Without a partner{more}", ("Side", "Tensor", "Bytes", "Reason"), rows)]


def _suggestion_blocks(suggestions: Sequence[Suggestion]) -> list[Block]:
    if not suggestions:
        return []
    lines = [(*line, each.tensors, each.score, each.reason) for each in suggestions for line in each.lines]
    more = f" (the first {SHOWN} of {len(lines)})" if len(lines) > SHOWN else ""
    columns = ("Left", "Right", "Tensors", "Score", "Why")
    return [Table(f"Proposals for --map, nothing is compared by them{more}", columns, tuple(lines[:SHOWN]))]


def _suggestion_data(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "kind": suggestion.kind,
        "map": dict(suggestion.lines),
        "tensors": suggestion.tensors,
        "score": suggestion.score,
        "reason": suggestion.reason,
        "sure": suggestion.sure,
    }


def coverage_data(comparison: Comparison) -> dict[str, dict[str, int]]:
    """Returns by side the bytes in all, of tensors in pairs, and of tensors whose elements were compared."""
    whole = comparison.coverage
    if whole is None:
        return {}
    judged = comparison.judged
    compared = [_bytes(row.left for row in judged), _bytes(row.right for row in judged)]
    return {
        "left": {"bytes": whole.left_bytes, "paired": whole.paired_left_bytes, "compared": compared[0]},
        "right": {"bytes": whole.right_bytes, "paired": whole.paired_right_bytes, "compared": compared[1]},
    }


def _bytes(records: Iterable[TensorRecord | None]) -> int:
    """Bytes of tensors, each counted once."""
    from compare.op_lookup import size_bytes

    return sum(map(size_bytes, {id(record): record for record in records if record is not None}.values()))


def _covered(side: dict[str, int]) -> str:
    whole = side["bytes"]
    # Rounded down: 100 % is said of nothing less.
    shares = {name: f"{side[name] * 1000 // whole / 10:.1f} %" for name in ("paired", "compared") if whole}
    parts = [f"{side[name]} bytes ({share}) {name}" for name, share in shares.items()]
    return ", ".join([f"{whole} bytes", *parts])


def _unpaired_data(row: Unpaired) -> dict[str, Any]:
    whole = {"side": row.side, "op": row.op, "tensor": row.tensor, "bytes": _bytes([row.record])}
    return whole | {"reason": row.reason}

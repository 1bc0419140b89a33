"""What ``vc`` says of the pairing: how much of both dumps was compared, what has no partner, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_tool.result import Block, Table

if TYPE_CHECKING:
    from compare.name_map import NameMap
    from compare.pairs import Unpaired
    from compare.table import Comparison
    from dumpers.records import TensorRecord

SHOWN = 10
SIDES = ("left", "right")


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


def pairing_blocks(comparison: Comparison) -> list[Block]:
    """Returns a table of tensors without a partner, the first of them."""
    found = [row for row in comparison.unpaired if row.record is not None and row.record.source is not None]
    if not found:
        return []
    more = f" (the first {SHOWN} of {len(found)}; --json lists all)" if len(found) > SHOWN else ""
    rows = tuple((row.side, row.tensor, _bytes([row.record]), row.reason) for row in found[:SHOWN])
    return [Table(f"Without a partner{more}", ("Side", "Tensor", "Bytes", "Reason"), rows)]


def pairing_notes(comparison: Comparison) -> list[str]:
    """Returns the coverage of both sides and the lines of the map that did nothing."""
    data = coverage_data(comparison)
    told = [f"{side}: {_covered(data[side])}" for side in SIDES if side in data]
    return told + [f"map: {note}" for note in comparison.map_notes]


def pairing_data(comparison: Comparison) -> dict[str, Any]:
    """Returns coverage and all tensors without a partner, for ``--json``."""
    return {
        "coverage": coverage_data(comparison),
        "unpaired": [_unpaired_data(row) for row in comparison.unpaired],
        "map_unused": list(comparison.map_notes),
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
    parts = [f"{side[name]} bytes ({side[name] / whole:.1%}) {name}" for name in ("paired", "compared") if whole]
    return ", ".join([f"{whole} bytes", *parts])


def _unpaired_data(row: Unpaired) -> dict[str, Any]:
    whole = {"side": row.side, "op": row.op, "tensor": row.tensor, "bytes": _bytes([row.record])}
    return whole | {"reason": row.reason}

"""Which tensor of the left dump belongs to which of the right one, and why not where none does.

A device dump against a reference is paired by the original names in the device graph; any other pair of dumps by op
name, input or output, and slot. Lines of a user's map go before both. Nothing is dropped: each tensor is in a pair or
listed with a reason. ``docs/reference/pairing.md`` has the rules in order.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from compare.by_name import pair_by_name
from compare.by_original import pair_by_original
from compare.pairs import Coverage, Pair, Pairing, Step, Unpaired, coverage, swapped
from compare.slices import place_slices

if TYPE_CHECKING:
    from compare.name_map import NameMap
    from dumpers.graph import Graph
    from dumpers.records import Dump

__all__ = ["Coverage", "Pair", "Pairing", "Step", "Unpaired", "pair_dumps"]


def pair_dumps(left: Dump, right: Dump, graph: Graph | None = None, names: NameMap | None = None) -> Pairing:
    """Pairs two dumps.

    Args:
        left: Under test.
        right: Reference.
        graph: Device graph of a device dump that is compared with a framework dump; that of the dump itself if None.
        names: The user's own pairs of op names.

    Raises:
        DataError: no op of the device dump is in the graph, or the map cannot be applied.
    """
    with _no_collection():
        return _paired(left, right, graph, names)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Pauses the search for garbage: pairing makes many objects and leaves none, and looking takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _paired(left: Dump, right: Dump, graph: Graph | None, names: NameMap | None) -> Pairing:
    devices = (_device(left), _device(right))
    if devices == ("npu", "tf"):
        device_graph = _device_graph(left, graph)
        if device_graph is not None:
            return _by_original(left, right, device_graph, names, turned=False)
    if devices == ("tf", "npu"):
        device_graph = _device_graph(right, graph)
        if device_graph is not None:
            return swapped(_by_original(right, left, device_graph, names, turned=True))
    rows, unpaired, notes = pair_by_name(left, right, names)
    placed = place_slices(rows)
    return Pairing(tuple(placed), tuple(unpaired), coverage(left, right, placed), tuple(notes))


def _by_original(device: Dump, reference: Dump, graph: Graph, names: NameMap | None, *, turned: bool) -> Pairing:
    rows, unpaired, notes = pair_by_original(device, reference, graph, names, turned=turned)
    placed = place_slices(rows)
    return Pairing(tuple(placed), tuple(unpaired), coverage(device, reference, placed), tuple(notes))


def _device(dump: Dump) -> str:
    return dump.records[0].device if dump.records else ""


def _device_graph(dump: Dump, graph: Graph | None) -> Graph | None:
    chosen = graph if graph is not None else dump.graph
    return chosen if chosen is not None and chosen.kind == "ge" else None

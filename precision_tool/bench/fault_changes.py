"""Changes of what a side is given: batch, weights, seed; each with the names of what was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from precision_tool.bench.fault_sides import Change

if TYPE_CHECKING:
    from collections.abc import Callable

Named = tuple[Change, str]
_STATE = ("_m", "_v", "power", "Adam", "beta", "counter")
_TABLES = ("embedding", "_table")


def drawn_change(kind: str, size: str, names: dict[str, list[str]], random: np.random.Generator) -> Named | None:
    """Returns a change of the device's side, and the variable or placeholder (a part of op names for a seed).

    Args:
        kind: ``batch``, ``weight``, ``table``, ``seed`` or ``nan_batch`` (which goes to both sides).
        size: How much, as in :data:`precision_tool.bench.fault_classes.CLASSES`.
        names: ``integers``, ``floats`` (placeholders), ``weights``, ``tables`` (variables), ``random`` (ops).
        random: Draws what is changed.

    Returns:
        None where the model has nothing of that kind.
    """
    if kind == "seed":
        return (Change(seed=4711), "dropout") if names["random"] else None
    pool = {"batch": "integers", "nan_batch": "floats", "weight": "weights", "table": "tables"}[kind]
    if not names[pool]:
        return None
    name = str(random.choice(names[pool]))
    makers: dict[str, Callable[[str, str, np.random.Generator], Change]] = {
        "batch": _batch,
        "nan_batch": _nan_batch,
        "weight": _weight,
        "table": _table,
    }
    return makers[kind](name, size, random), name


def variable_names(variables: list[str]) -> dict[str, list[str]]:
    """Sorts variables: dense weights and embedding tables; slots and counters are neither."""
    tables = [v for v in variables if v.endswith(_TABLES) or v.endswith("embeddings")]
    weights = [v for v in variables if v not in tables and not any(mark in v for mark in _STATE)]
    return {"weights": sorted(weights), "tables": sorted(tables)}


def _batch(name: str, size: str, random: np.random.Generator) -> Change:
    def change(batch: dict[Any, Any]) -> None:
        ids = np.array(batch[name])
        if size == "all":
            ids = np.roll(ids, 1, axis=0)
        else:
            ids.reshape(-1)[0] = (ids.reshape(-1)[0] + 1) % 7
        batch[name] = ids

    return Change(feeds=change)


def _nan_batch(name: str, size: str, random: np.random.Generator) -> Change:
    def change(batch: dict[Any, Any]) -> None:
        values = np.array(batch[name])
        values.reshape(-1)[values.size // 2] = np.nan
        batch[name] = values

    return Change(feeds=change)


def _weight(name: str, size: str, random: np.random.Generator) -> Change:
    def change(values: dict[str, Any], batch: dict[Any, Any]) -> dict[str, Any]:
        new = np.array(values[name])
        if size == "scaled":
            new *= np.float32(1.01)
        else:
            new.reshape(-1)[new.size // 2] += np.float32(0.1)
        return {name: new}

    return Change(weights=change)


def _table(name: str, size: str, random: np.random.Generator) -> Change:
    """Rows that the batch reads: which table reads which ids is not known here, so the most frequent ids are taken."""
    shift = random.normal(scale=0.1)

    def change(values: dict[str, Any], batch: dict[Any, Any]) -> dict[str, Any]:
        ids = np.concatenate([np.ravel(v) for v in batch.values() if np.asarray(v).dtype == np.int64])
        rows, counts = np.unique(ids, return_counts=True)
        rows = rows[np.argsort(-counts, kind="stable")]
        new = np.array(values[name])
        some = rows[: max(1, len(rows) // 2)] if size == "half" else rows[:1]
        new[some] += np.float32(shift) * np.sign(new[some])
        return {name: new}

    return Change(weights=change)

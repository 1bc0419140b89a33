"""From an op whose own output is wrong to what is wrong with it: a fusion's member, a table's rows, the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.isolation import input_records, load_values, output_records
from compare.replay import explains, fusion_hypotheses, precision_fit
from compare.table_names import TABLE_ATTR, table_of
from compare.update_blame import blame_update, is_update
from compare.verdict import Kind
from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.graph import Graph, Op
    from dumpers.records import Dump

    Array = NDArray[np.generic]

BLOCK_ROWS = 2**16
"""Rows of a table that are searched at a time."""

_FAR = 1.5
"""Greatest change of a row that may be an older value, in lengths of the row; another sign would be 2."""

_PARALLEL = 0.9999
"""Cosine between a row and its change from which on the change is a factor."""

KEYS_SHOWN = 1000
"""Keys listed in a verdict; the total is always given."""


@dataclass(frozen=True)
class Blame:
    """What is wrong with a source.

    Attributes:
        kind: ``operator``, ``fusion``, ``table_lookup`` or ``optimizer``.
        member: Guilty original op of a fused op.
        table: Name of the embedding table.
        rows: Positions (axis 0 of the lookup's output) of the wrong rows.
        keys: Keys at those positions, where the dump holds them.
        arithmetic: ``bfloat16``, ``float16`` if rounding the inputs to it explains the output.
        evidence: Rows for the verdict.
    """

    kind: Kind
    member: str | None = None
    table: str | None = None
    rows: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    arithmetic: str | None = None
    evidence: tuple[Mapping[str, Any], ...] = field(default=())


def blame(op: Op, dump: Dump, graph: Graph, other: Dump | None) -> Blame:
    """Looks closer at one source op of ``dump``; ``other`` may hold the keys of a lookup and constants."""
    records, _ = input_records(dump, graph, op, other)
    inputs = load_values(records)
    outputs = load_values(output_records(dump, op))
    if op.fused:
        found = _dropped_member(op, inputs, outputs)
        if found is not None:
            return found
    table = table_of(op, graph)
    if table is not None:
        found = _wrong_rows(op, table, inputs, outputs, _keys(op, dump, other, inputs))
        if found is not None:
            return found
    result = _update(op, inputs, outputs) if is_update(op, graph) else Blame(Kind.OPERATOR)
    arithmetic = precision_fit(op, inputs, outputs)
    if arithmetic is None:
        return result
    text = f"Rounding the inputs of {op.name} to {arithmetic} first explains its output within the bound."
    row = {"text": text, "op": op.name, "arithmetic": arithmetic}
    return replace(result, arithmetic=arithmetic, evidence=(*result.evidence, row))


def _update(op: Op, inputs: list[Array | None], outputs: list[Array | None]) -> Blame:
    """An optimizer's update, with the rows of the variable that are wrong where they are a part of it."""
    found = blame_update(op, inputs, outputs)
    table = found.variable if found.rows else None
    return Blame(
        Kind.OPTIMIZER, table=table, rows=found.rows, keys=found.rows[:KEYS_SHOWN], evidence=tuple(found.evidence)
    )


def _dropped_member(op: Op, inputs: list[Array | None], outputs: list[Array | None]) -> Blame | None:
    """Tells which member of the chain the device left out, if leaving one out gives what it wrote."""
    for hypothesis in fusion_hypotheses(op, inputs):
        if explains(op, inputs, outputs, hypothesis.member):
            text = (
                f"The output of {op.name} is what its chain {' -> '.join(op.originals)} gives without "
                f"{hypothesis.member} [{hypothesis.member_type}]: the fused op dropped it."
            )
            passes = ", ".join(op.pass_names)
            row = {"text": text, "op": op.name, "member": hypothesis.member, "fusion_pass": passes}
            return Blame(Kind.FUSION, member=hypothesis.member, evidence=(row,))
    return None


def _wrong_rows(
    op: Op, table: str, inputs: list[Array | None], outputs: list[Array | None], keys: NDArray[np.int64] | None
) -> Blame | None:
    """Tells a lookup that fetched wrong rows from one whose arithmetic or writing went wrong.

    Wrong rows are rows of the table under another key, zeros, or some few rows of which most numbers differ from what
    the table holds but little: what it held some steps ago. Anything else (a scaled, rounded or half-written result) is
    an operator fault, and so is a tail of several rows that were never written.
    """
    params, indices, out = inputs[0], inputs[1], outputs[0]
    if params is None or indices is None or out is None or params.ndim < 2:
        return None
    if out.shape != indices.shape + params.shape[1:]:
        return None  # Not a lookup along the first axis.
    expected = params[indices.reshape(-1)]
    got = out.reshape(expected.shape)
    wrong = np.flatnonzero(_differ(got, expected))
    if not len(wrong) or _unwritten_tail(wrong, len(got), got):
        return None
    origin = _rows_of(params, got[wrong])
    zero = ~got[wrong].reshape(len(wrong), -1).any(axis=1)
    stale = ~zero & (origin < 0)
    if stale.any() and not _stale(indices.reshape(-1), wrong[stale], expected, got):
        return None
    hit = tuple(int(k) for k in keys[wrong[:KEYS_SHOWN]]) if keys is not None and len(keys) == len(got) else ()
    what = [_came_back(bool(zero[i]), int(origin[i])) for i in range(len(wrong))]
    evidence = [_rows_evidence(op, table, len(got), what)]
    evidence += [
        _row_evidence(table, int(wrong[i]), hit[i] if i < len(hit) else None, indices, what[i], int(origin[i]))
        for i in range(min(3, len(wrong)))
    ]
    rows = tuple(int(row) for row in wrong)
    return Blame(Kind.TABLE_LOOKUP, table=table, rows=rows, keys=hit, evidence=tuple(evidence))


_MEANT = {"zeros": "are zero", "row": "hold the row of another key", "old": "hold older values of their keys"}


def _came_back(zero: bool, origin: int) -> str:
    return "zeros" if zero else "row" if origin >= 0 else "old"


def _rows_evidence(op: Op, table: str, total: int, what: list[str]) -> Mapping[str, Any]:
    kinds = " or ".join(text for name, text in _MEANT.items() if name in what)
    share = 100 * len(what) / total
    text = f"{len(what)} of {total} rows ({share:.2g} %) that {op.name} fetched from {table} {kinds}."
    return {"text": text, "op": op.name, "table": table, "wrong_rows": len(what), "rows": total}


def _row_evidence(
    table: str, position: int, key: int | None, indices: Array, what: str, origin: int
) -> Mapping[str, Any]:
    row = int(indices.reshape(-1)[position])
    name = f"key {key}" if key is not None else f"position {position}"
    got = {"zeros": "zeros", "row": f"row {origin}", "old": "a row near it that the table does not hold"}[what]
    text = f"{name}: row {row} of {table} was asked for, {got} came back."
    return {
        "text": text,
        "table": table,
        "key": key,
        "position": position,
        "row": row,
        "got_row": origin if what == "row" else None,
    }


def _differ(got: Array, expected: Array) -> NDArray[np.bool_]:
    """Which rows differ; a NaN equals a NaN here."""
    same = got == expected
    if got.dtype.kind in "fV":
        same = same | (np.isnan(got) & np.isnan(expected))
    return np.asarray(~same.reshape(len(got), -1).all(axis=1))


def _stale(indices: Array, wrong: NDArray[np.intp], expected: Array, got: Array) -> bool:
    """Whether rows that are in the table nowhere may be older values of the rows that were asked for.

    Then they are few among the rows that were read, the same wherever the same row was asked for, most of their numbers
    differ, and what differs is no common factor and no common summand, which an operator would do.
    """
    asked = indices[wrong]
    rows, first, place = np.unique(asked, return_index=True, return_inverse=True)
    if len(rows) > max(1, len(np.unique(indices)) // 2):
        return False
    old = got[wrong].reshape(len(wrong), -1).astype(np.float64)
    now = expected[wrong].reshape(len(wrong), -1).astype(np.float64)
    if not np.isfinite(old).all() or not np.array_equal(old, old[first][place.reshape(-1)]):
        return False
    change = old - now
    most = np.mean(change != 0, axis=1) > 0.5
    size = np.linalg.norm(now, axis=1)
    near = np.linalg.norm(change, axis=1) <= _FAR * size
    along = np.abs(np.sum(change * now, axis=1)) > _PARALLEL * np.linalg.norm(change, axis=1) * size
    shift = np.ptp(change, axis=1) <= 1e-3 * np.abs(change).max(axis=1)
    return bool(np.all(most & near & ~along & ~shift))


def _unwritten_tail(wrong: NDArray[np.intp], total: int, got: Array) -> bool:
    """Whether the wrong rows are several zero rows at the very end."""
    tail = len(wrong) > 1 and wrong[-1] == total - 1 and len(wrong) == total - wrong[0]
    return bool(tail and not got[wrong].any())


def _rows_of(params: Array, rows: Array) -> NDArray[np.int64]:
    """Returns for each of ``rows`` the index of the first equal row of ``params``, -1 if there is none.

    Only rows whose first bytes are wanted are looked at one by one, block by block: a table may be huge.
    """
    wanted = _row_bytes(rows)
    place = {row.tobytes(): -1 for row in wanted if row.any()}
    heads = np.unique(_heads(wanted))
    for start in range(0, len(params), BLOCK_ROWS):
        block = _row_bytes(params[start : start + BLOCK_ROWS])
        for index in np.flatnonzero(np.isin(_heads(block), heads) & block.any(axis=1)):
            row = block[index].tobytes()
            if place.get(row) == -1:
                place[row] = start + int(index)
    return np.array([place.get(row.tobytes(), -1) for row in wanted], np.int64)


def _row_bytes(rows: Array) -> NDArray[np.uint8]:
    width = rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
    return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8).reshape(len(rows), width)


def _heads(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The first eight bytes of each row as one number."""
    head = np.zeros((len(rows), 8), np.uint8)
    head[:, : rows.shape[1]] = rows[:, :8]
    return head.view(np.uint64).reshape(-1)


def _keys(op: Op, dump: Dump, other: Dump | None, inputs: list[Array | None]) -> NDArray[np.int64] | None:
    """Reads the unique keys that belong to the lookup's indices, from either side; in a plain table those are keys."""
    tensor = op.attrs.get("_embedding_keys")
    if not isinstance(tensor, str):
        indices = inputs[1] if len(inputs) > 1 and TABLE_ATTR not in op.attrs else None
        return indices.reshape(-1).astype(np.int64) if indices is not None and indices.dtype.kind in "iu" else None
    name, _, slot = tensor.rpartition(":")
    for side in (dump, other):
        record = side.tensor(name, "output", int(slot)) if side is not None and slot.isdigit() else None
        if record is not None and record.source is not None:
            try:
                return np.asarray(record.load()).reshape(-1).astype(np.int64)
            except DataError:
                continue
    return None

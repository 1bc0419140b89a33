"""From an op whose own output is wrong to what is wrong with it: a fusion's member, a table's rows, the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.isolation import input_records, load_values, output_records
from compare.kernels.table import device_type
from compare.replay import explains, fusion_hypotheses, precision_fit
from compare.verdict import Kind
from dumpers.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.graph import Graph, Op
    from dumpers.records import Dump

    Array = NDArray[np.generic]

BLOCK_ROWS = 2**16
"""Rows of a table that are searched at a time."""

KEYS_SHOWN = 1000
"""Keys listed in a verdict; the total is always given."""


@dataclass(frozen=True)
class Blame:
    """What is wrong with a source.

    Attributes:
        kind: ``operator``, ``fusion`` or ``table_lookup``.
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
    table = op.attrs.get("_embedding_table")
    if isinstance(table, str) and table and device_type(op.type) == "GatherV2":
        found = _wrong_rows(op, table, inputs, outputs, _keys(op, dump, other))
        if found is not None:
            return found
    arithmetic = precision_fit(op, inputs, outputs)
    if arithmetic is None:
        return Blame(Kind.OPERATOR)
    text = f"Rounding the inputs of {op.name} to {arithmetic} first explains its output within the bound."
    return Blame(
        Kind.OPERATOR, arithmetic=arithmetic, evidence=({"text": text, "op": op.name, "arithmetic": arithmetic},)
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

    Wrong rows are rows of the table under another key, or zeros. Anything else (a scaled, rounded or half-written
    result) is an operator fault, and so is a tail of several rows that were never written.
    """
    params, indices, out = inputs[0], inputs[1], outputs[0]
    if params is None or indices is None or out is None or params.ndim < 2:
        return None
    if out.shape != indices.shape + params.shape[1:]:
        return None  # Not a lookup along the first axis.
    expected = params[indices.reshape(-1)]
    got = out.reshape(expected.shape)
    wrong = np.flatnonzero((got != expected).reshape(len(got), -1).any(axis=1))
    if not len(wrong) or _unwritten_tail(wrong, len(got), got):
        return None
    origin = _rows_of(params, got[wrong])
    zero = ~got[wrong].reshape(len(wrong), -1).any(axis=1)
    if not bool(np.all(zero | (origin >= 0))):
        return None
    hit = tuple(int(k) for k in keys[wrong[:KEYS_SHOWN]]) if keys is not None and len(keys) == len(got) else ()
    evidence = [_rows_evidence(op, table, wrong, len(got), zero)]
    evidence += [
        _row_evidence(table, int(wrong[i]), hit[i] if i < len(hit) else None, indices, bool(zero[i]), int(origin[i]))
        for i in range(min(3, len(wrong)))
    ]
    rows = tuple(int(row) for row in wrong)
    return Blame(Kind.TABLE_LOOKUP, table=table, rows=rows, keys=hit, evidence=tuple(evidence))


def _rows_evidence(
    op: Op, table: str, wrong: NDArray[np.intp], total: int, zero: NDArray[np.bool_]
) -> Mapping[str, Any]:
    what = (
        "are zero" if zero.all() else "hold the row of another key" if not zero.any() else "are zero or another key's"
    )
    text = (
        f"{len(wrong)} of {total} rows ({100 * len(wrong) / total:.2g} %) that {op.name} fetched from {table} {what}."
    )
    return {"text": text, "op": op.name, "table": table, "wrong_rows": len(wrong), "rows": total}


def _row_evidence(
    table: str, position: int, key: int | None, indices: Array, zero: bool, origin: int
) -> Mapping[str, Any]:
    row = int(indices.reshape(-1)[position])
    name = f"key {key}" if key is not None else f"position {position}"
    got = "zeros" if zero else f"row {origin}"
    text = f"{name}: row {row} of {table} was asked for, {got} came back."
    return {
        "text": text,
        "table": table,
        "key": key,
        "position": position,
        "row": row,
        "got_row": None if zero else origin,
    }


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


def _keys(op: Op, dump: Dump, other: Dump | None) -> NDArray[np.int64] | None:
    """Reads the unique keys that belong to the lookup's indices, from either side."""
    tensor = op.attrs.get("_embedding_keys")
    if not isinstance(tensor, str):
        return None
    name, _, slot = tensor.rpartition(":")
    for side in (dump, other):
        record = side.tensor(name, "output", int(slot)) if side is not None and slot.isdigit() else None
        if record is not None and record.source is not None:
            try:
                return np.asarray(record.load()).reshape(-1).astype(np.int64)
            except DataError:
                continue
    return None

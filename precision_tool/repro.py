"""A minimal reproduction of one op's fault: a script and its data, for who made the kernel."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.bounds import RATIO_LIMIT
from compare.chains import members
from compare.evaluation import Replay, evaluate
from compare.kernels.table import device_type
from compare.local_error import local_error_ratios
from dumpers.errors import DataError, UsageError
from dumpers.formats.atomic import atomic_file
from precision_tool.dot import safe_file_name
from precision_tool.plain_data import plain
from precision_tool.repro_formulas import BODIES, ELEMENTWISE, ROW_INPUTS
from precision_tool.repro_raw_op import raw_node
from precision_tool.repro_script import compute_text, script_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.graph import Op

    Array = NDArray[Any]

BAD_ROWS, GOOD_ROWS = 8, 3
NAME_ROOM = 120
LARGE = 256 * 2**20
"""Bytes from which a note says that the data may be too large to mail."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        rows: Rows (axis 0) that were kept, None when all were.
        why: Why the tensors were cut, or why not.
        size: Bytes of both files.
    """

    script: Path
    data: Path
    rows: tuple[int, ...] | None
    why: str
    size: int


@dataclass(frozen=True)
class Part:
    """Inputs and outputs of an op, whole or cut, with what judges them.

    Attributes:
        outputs: By slot; those that are judged.
    """

    inputs: tuple[Array, ...]
    outputs: Mapping[int, Array]
    replay: Replay


def export(
    op: Op, given: Sequence[Array | None], written: Sequence[Array | None], folder: Path, *, overwrite: bool
) -> Exported:
    """Writes ``<name>.py`` and ``<name>.npz`` to ``folder``, which is made when missing.

    Args:
        op: The op.
        given: Its dumped inputs by slot.
        written: Its dumped outputs by slot.
        folder: Where the files go.
        overwrite: Whether files of these names may be replaced.

    Raises:
        DataError: the op cannot be replayed or its tensors cannot be stored; nothing is written.
        UsageError: the files are there, or the folder cannot be written.
    """
    whole = _whole(op, given, written)
    chain = [(member.type, member.externals) for member in members(op, len(whole.inputs))]
    unknown = [kind for kind, _ in chain if kind not in BODIES]
    if unknown:
        raise DataError(f"not exported: {unknown[0]} inside a fused op has no NumPy formula")
    attributes = _attributes(op, written)
    if not chain and device_type(op.type) not in BODIES:
        kind = op.original_types[0] if len(op.original_types) == 1 else op.type
        attributes |= raw_node(kind, len(whole.inputs), attributes)
    _check_formula(op, chain, whole, attributes)
    rows, why = _rows(op, chain, whole)
    part = whole if rows is None else _cut(op, chain, whole, rows)
    data = _data(op, whole, part, rows, attributes)
    text = script_text(op.type, chain, RATIO_LIMIT).encode("ascii")
    stem = safe_file_name(op.name, room=NAME_ROOM)
    paths = folder / f"{stem}.py", folder / f"{stem}.npz"
    _write(paths, (text, data), overwrite=overwrite)
    return Exported(*paths, None if rows is None else tuple(int(k) for k in rows), why, len(text) + len(data))


def _whole(op: Op, given: Sequence[Array | None], written: Sequence[Array | None]) -> Part:
    inputs = list(given)
    while inputs and inputs[-1] is None:
        inputs.pop()
    declared = [port.dtype for port in op.output_ports] + [""] * len(written)
    dtypes = [declared[k] if x is None else x.dtype.name for k, x in enumerate(written)]
    replay = evaluate(op, inputs, dtypes)
    if replay.reason:
        raise DataError(f"not exported: {replay.reason}")
    judged = {
        slot: x
        for slot, x in enumerate(written)
        if x is not None and slot < len(replay.exact) and x.shape == replay.exact[slot].shape
    }
    if not judged:
        raise DataError("not exported: no output of the op that can be judged is in the dump")
    present = tuple(x for x in inputs if x is not None)
    if len(present) < len(inputs):
        raise DataError("not exported: an input in the middle is missing")
    for x in (*present, *judged.values()):
        if x.dtype.kind in "cOSU":
            raise DataError(
                f"not exported: values of dtype {x.dtype.name} (strings, complex numbers) are not exportable"
            )
        if x.dtype.kind == "V" and x.dtype.name != "bfloat16":
            raise DataError(f"not exported: values of dtype {x.dtype.name} are not exportable")
    return Part(present, judged, replay)


def _attributes(op: Op, written: Sequence[Array | None]) -> dict[str, Any]:
    """Returns what the formula reads: the op's own attributes, dtypes of its outputs."""
    found = {name: plain(value) for name, value in op.attrs.items() if not name.startswith("_")}
    found["output_dtypes"] = ["" if x is None else x.dtype.name for x in written]
    return found


def _check_formula(
    op: Op, chain: Sequence[tuple[str, tuple[int, ...]]], part: Part, attributes: Mapping[str, Any]
) -> None:
    """Makes sure that the script will find what the replay found."""
    space: dict[str, Any] = {"np": np}
    # A text of ours, chosen by type; names, attributes and tensors only ever are arguments.
    exec(compute_text(op.type, chain), space)
    try:
        with np.errstate(all="ignore"):
            found = space["compute"]([_wide(x) for x in part.inputs], attributes)
    except Exception as error:  # whatever NumPy or TensorFlow raises
        raise DataError(f"not exported: the formula of the script does not fit this op: {error}") from error
    for slot in part.outputs:
        right, bound = np.asarray(part.replay.exact[slot]), part.replay.bound[slot]
        right = _wide(right)
        if slot >= len(found) or found[slot].shape != right.shape:
            raise DataError("not exported: the formula of the script gives another shape than the replay")
        with np.errstate(all="ignore"):
            near = np.abs(found[slot].astype(np.float64) - right.astype(np.float64)) <= 0.25 * bound
            both_nan = np.isnan(found[slot]) & np.isnan(right)
        if not np.all(near | (found[slot] == right) | both_nan | np.isinf(bound)):
            raise DataError("not exported: the formula of the script gives other values than the replay")


def _rows(op: Op, chain: Sequence[tuple[str, tuple[int, ...]]], whole: Part) -> tuple[Array | None, str]:
    """Returns the rows to keep, None for all, and why."""
    lengths = {x.shape[0] if x.ndim else -1 for x in whole.outputs.values()}
    length = lengths.pop()
    if lengths or length < 0:
        return None, "whole tensors: the outputs have no rows in common"
    if not _row_inputs(op, chain, whole, length):
        return None, f"whole tensors: {op.type} is not cut by rows, or its inputs have other rows than its output"
    worst = np.zeros(length)
    for slot, got in whole.outputs.items():
        ratio = local_error_ratios(got, whole.replay, slot).reshape(length, -1)
        worst = np.maximum(worst, ratio.max(axis=1, initial=0.0))
    order = np.argsort(-worst, kind="stable")
    rows = np.unique(np.concatenate([order[:BAD_ROWS], order[-GOOD_ROWS:]])).astype(np.int64)
    if len(rows) == length:
        return None, f"whole tensors: {length} rows are all of them"
    try:
        part = _cut(op, chain, whole, rows)
    except (DataError, IndexError) as error:
        return None, f"whole tensors: the replay of the cut inputs fails ({error})"
    for slot, got in whole.outputs.items():
        same = np.array_equal(
            _distance(part.outputs[slot], part.replay.exact[slot]),
            _distance(got[rows], whole.replay.exact[slot][rows]),
            equal_nan=True,
        )
        if not same:
            return None, "whole tensors: the replay of the cut inputs gives other local errors in the last bits"
    return rows, f"{len(rows)} of {length} rows: replaying them alone gives the same local errors"


def _distance(got: Array, right: Array) -> Array:
    with np.errstate(all="ignore"):
        distance: Array = np.abs(_wide(got).astype(np.float64) - _wide(right).astype(np.float64))
    return distance


def _row_inputs(op: Op, chain: Sequence[tuple[str, tuple[int, ...]]], whole: Part, length: int) -> tuple[int, ...]:
    """Returns the inputs that are cut with the output; empty where the op has no rows of its own."""
    rank = next(iter(whole.outputs.values())).ndim
    steps = chain or [(device_type(op.type), tuple(range(len(whole.inputs))))]
    found: list[int] = []
    for position, (kind, externals) in enumerate(steps):
        if kind in ELEMENTWISE:
            found += [k for k in externals if whole.inputs[k].ndim == rank]
        elif kind in ROW_INPUTS and position == 0:
            places = ROW_INPUTS[kind] if rank > 2 or kind != "BatchMatMulV2" else (0,)
            found += [externals[k] for k in places]
        elif kind != "BiasAdd":
            return ()
    return tuple(k for k in found if whole.inputs[k].ndim and whole.inputs[k].shape[0] == length)


def _cut(op: Op, chain: Sequence[tuple[str, tuple[int, ...]]], whole: Part, rows: Array) -> Part:
    length = next(iter(whole.outputs.values())).shape[0]
    places = _row_inputs(op, chain, whole, length)
    inputs = [x[rows] if k in places else x for k, x in enumerate(whole.inputs)]
    outputs = [whole.outputs[k][rows] if k in whole.outputs else None for k in range(max(whole.outputs) + 1)]
    part = _whole(op, inputs, outputs)
    if part.outputs.keys() != whole.outputs.keys():
        raise DataError("its outputs have another shape")
    bound = tuple(b[rows] if k in whole.outputs else b for k, b in enumerate(map(np.asarray, whole.replay.bound)))
    flushed = tuple(
        b[rows] if k in whole.outputs else b for k, b in enumerate(map(np.asarray, whole.replay.flushed_bound))
    )
    return replace(part, replay=replace(part.replay, bound=bound, flushed_bound=flushed))


def _data(op: Op, whole: Part, part: Part, rows: Array | None, attributes: Mapping[str, Any]) -> bytes:
    """Returns the bytes of the npz, the same for the same dump: fixed times, stored, members in a fixed order."""
    meta = {
        "op": op.name,
        "type": op.type,
        "attributes": attributes,
        "inputs": [{"dtype": x.dtype.name, "shape": list(x.shape)} for x in whole.inputs],
        "outputs": [{"slot": k, "dtype": x.dtype.name, "shape": list(x.shape)} for k, x in whole.outputs.items()],
        "subnormal": bool(part.replay.flushed_bound),
    }
    text = json.dumps(meta, sort_keys=True, allow_nan=False).encode("ascii")
    arrays = {"meta": np.frombuffer(text, dtype=np.uint8)}
    arrays |= {f"input_{k}": x for k, x in enumerate(part.inputs)}
    for slot, x in part.outputs.items():
        arrays |= {f"output_{slot}": x, f"bound_{slot}": _full(part.replay.bound[slot], x)}
        if part.replay.flushed_bound:
            arrays[f"flushed_bound_{slot}"] = _full(part.replay.flushed_bound[slot], x)
    if rows is not None:
        arrays["rows"] = rows
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, values in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as out:
                stored = values.view(np.uint16) if values.dtype.name == "bfloat16" else values
                np.save(out, np.asarray(stored, order="C"), allow_pickle=False)
    return file.getvalue()


def _full(bound: Array, like: Array) -> Array:
    return np.broadcast_to(np.asarray(bound, dtype=np.float64), like.shape)


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "fV" else x


def _write(paths: tuple[Path, Path], contents: tuple[bytes, bytes], *, overwrite: bool) -> None:
    """Writes the data, then the script: where the script is, the data is too."""
    for path in paths:
        if os.path.lexists(path) and not overwrite:
            raise UsageError(f"{path}: exists; give another folder, or --overwrite")
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path, content in reversed(list(zip(paths, contents, strict=True))):
            with atomic_file(path) as out:
                out.write(content)
    except OSError as error:
        raise UsageError(f"--export {paths[0].parent}: cannot be written: {error.strerror}") from error

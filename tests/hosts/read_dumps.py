"""Opens in the workbench what a training host recorded, and compares it with what the host itself computed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dumpers.errors import DataError
from dumpers.formats.tf_record import read_tf_record
from dumpers.records import Dump, TensorRecord

EXPECTED = "expected.npz"
RECORDS = Path("precision_data", "tf", "tf_debug")


@dataclass
class Tally:
    """What was opened.

    Attributes:
        records: Records of a step, cut ones included.
        tensors: Tensors that were loaded.
        compared: Tensors that were held against the host's own values.
        wrong: One line for everything that is not as it should be.
    """

    records: int = 0
    tensors: int = 0
    compared: int = 0
    wrong: list[str] = field(default_factory=list)


def open_all(base: Path) -> Tally:
    """Opens every record below a folder and compares where the right values lie beside one."""
    tally = Tally()
    for manifest in sorted(base.rglob("record.json")):
        _open(manifest.parent, tally)
    for expected in sorted(base.rglob(EXPECTED)):
        _compare(expected, tally)
    return tally


def _open(folder: Path, tally: Tally) -> None:
    tally.records += 1
    complete = json.loads((folder / "record.json").read_text(encoding="utf-8")).get("complete") is True
    try:
        dump = read_tf_record(folder)
    except DataError as error:
        tally.wrong.append(str(error))
        return
    if not complete:
        if not any("incomplete" in problem.reason for problem in dump.problems):
            tally.wrong.append(f"{folder}: was cut off, and the reader does not say so")
        return
    tally.wrong += [f"{problem.path}: {problem.reason}" for problem in dump.problems]
    if dump.graph is None:
        tally.wrong.append(f"{folder}: has no graph")
    for record in dump:
        if record.source is not None:
            _load(record, folder, tally)


def _load(record: TensorRecord, folder: Path, tally: Tally) -> None:
    try:
        array = record.load()
    except DataError as error:
        tally.wrong.append(str(error))
        return
    tally.tensors += 1
    if record.shape is not None and array.shape != tuple(record.shape):
        tally.wrong.append(f"{folder}: {record.op}:{record.slot} has shape {array.shape}, listed {record.shape}")


def _compare(expected: Path, tally: Tally) -> None:
    folders = sorted((expected.parent / RECORDS).glob("run_*"))
    if len(folders) != 1:
        tally.wrong.append(f"{expected}: {len(folders)} records beside it, 1 expected")
        return
    try:
        dump = read_tf_record(folders[0])
    except DataError as error:
        tally.wrong.append(str(error))
        return
    with np.load(expected, allow_pickle=False) as file:
        for number, (name, dtype) in enumerate(zip(file["names"].tolist(), file["dtypes"].tolist(), strict=True)):
            tally.compared += 1
            reason = _difference(dump, name, dtype, file[f"v{number}"])
            if reason:
                tally.wrong.append(f"{folders[0]}: {name}: {reason}")


def _difference(dump: Dump, name: str, dtype: str, right: np.ndarray) -> str:
    """Returns how a recorded tensor differs from the right one, empty if it does not: dtype, shape and every bit."""
    op, _, slot = name.rpartition(":")
    found = [record for record in dump if record.op == op and record.slot == int(slot) and record.io == "output"]
    if len(found) != 1 or found[0].source is None:
        return f"recorded {len(found)} times" if len(found) != 1 else "recorded without a value"
    try:
        ours = found[0].load()
    except DataError as error:
        return str(error)
    if right.dtype.kind == "S":
        return "" if found[0].dtype == "string" and ours.tolist() == right.tolist() else "other strings"
    if found[0].dtype != dtype or ours.shape != right.shape:
        return f"{found[0].dtype} {ours.shape}, not {dtype} {right.shape}"
    if ours.tobytes() != right.tobytes():
        return f"{int(np.sum(_bytes(ours) != _bytes(right)))} of {ours.nbytes} bytes differ"
    return ""


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.uint8)

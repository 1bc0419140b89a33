"""``tf_dump``: from the raw record of the reference run to one npy file a tensor, with an index of the full names."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dumpers.capture.arrays import storable
from dumpers.capture.record import make_private
from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.formats.npy import NpySource, read_npy_header, write_npy
from dumpers.formats.npy_dir import INDEX_COLUMNS, INDEX_FILE
from dumpers.formats.tf_record import is_tf_record, read_tf_record
from dumpers.formats.tfdbg import is_tfdbg_run, read_tfdbg_run, run_steps
from dumpers.graph import Graph
from dumpers.names import MAX_FILE_NAME_BYTES, flatten_tf, shorten
from dumpers.records import Dump, TensorRecord
from dumpers.workspace import Workspace

_RANK: Final = re.compile(r"rank_(\d{1,9})\Z")
_RUN: Final = re.compile(r"run_(\d+)_(\d+)\Z")
_FED: Final = re.compile(r"_arg_(?P<op>.+)_(?P<slot>\d+)_\d+\Z", re.DOTALL)
_FOLDED: Final = re.compile(r"(?P<op>.+)/_\d+__cf__\d+\Z", re.DOTALL)
_UPDATES: Final = re.compile(r"(Resource)?(Sparse)?Apply\w+|(Resource)?Scatter(Nd)?(Add|Sub|Update)")
_WRITES: Final = re.compile(r"Assign(Add|Sub)?(VariableOp)?")
_VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
_SHOWN: Final = 3


@dataclass(frozen=True)
class ExtractReport:
    """What an extraction did.

    Attributes:
        record: The raw record that was extracted.
        step: Its training step, None where the record does not tell, or where several runs were extracted.
        files: All files written, the index last.
        skipped: Tensors without a file, each with the reason.
        notes: What the user should know: runs passed over, old files moved aside.
        steps: Steps of all runs, in order, where all were extracted.
    """

    record: Path
    step: int | None
    files: tuple[Path, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass
class _Rows:
    """Rows of the index and what could not be written, while an extraction goes on."""

    rows: list[tuple[str, TensorRecord]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, file: str, record: TensorRecord) -> None:
        self.rows.append((file, record))
        if not file:
            self.skipped.append((f"{record.op}:{record.slot}", record.note or f"no value: {record.dtype}"))


def extract(
    workspace: Workspace, *, allow_incomplete: bool = False, all_runs: bool = False, rank: int | None = None
) -> ExtractReport:
    """Fills ``tf/dump`` from the last recorded training step in ``tf/tf_debug``, or from all runs there.

    Our own records and the run directories of TensorFlow's debugger are read alike; the newest complete training run
    is taken. What an earlier extraction wrote is replaced as a whole; a folder that holds anything else is moved aside
    under another name, since a user may have put it there and nothing may be mixed.

    Args:
        workspace: Where the data lie.
        allow_incomplete: Take the newest training run even if its record says that something is missing.
        all_runs: Take every run, initialisers and evaluations included. Time stamps keep the files of a tensor apart,
            and the index tells the step of each.
        rank: Which rank's records, of a job with several; by default the lowest that recorded.

    Raises:
        DataError: there is no usable record, or the files cannot be written.
    """
    folder, other = _folder_of(workspace.tf_debug, rank)
    if all_runs:
        dump, notes = _all_runs(folder)
    else:
        dump, notes = _last_step(folder, allow_incomplete=allow_incomplete)
    notes.extend(other)
    target = workspace.tf_dump
    staging = target.parent / f".{target.name}-{os.getpid()}-new"
    try:
        make_private(target.parent)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        try:
            rows = _write_tensors(dump, staging)
            _write_index(staging / INDEX_FILE, rows)
            notes.extend(_swap(staging, target))
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"{target}: cannot be written: {error.strerror or error}; the former content is kept. Free some space"
        ) from error
    files = [target / file for file, _ in rows.rows if file]
    steps = {record.step for record in dump if record.step is not None}
    notes.extend(f"{problem.path}: {problem.reason}" for problem in dump.problems)
    return ExtractReport(
        dump.path,
        None if all_runs else max(steps, default=None),
        (*files, target / INDEX_FILE),
        tuple(rows.skipped),
        tuple(notes),
        tuple(sorted(steps)) if all_runs else (),
    )


def recorded_ranks(folder: Path) -> dict[int, Path]:
    """Returns the folders of the ranks in a ``tf_debug`` folder that have runs, by rank in order."""
    found = {int(match[1]): folder / name for name in _names_in(folder) if (match := _RANK.match(name))}
    return {rank: found[rank] for rank in sorted(found) if _runs_in(found[rank])}


def recorded_runs(folder: Path) -> list[Path]:
    """Returns the run directories of a ``tf_debug`` folder, newest first; where ranks recorded, those of the lowest."""
    return _runs_in(folder) or next((_runs_in(place) for place in recorded_ranks(folder).values()), [])


def _folder_of(folder: Path, rank: int | None) -> tuple[Path, list[str]]:
    """The folder with one rank's runs, and what to say of the others."""
    ranks = recorded_ranks(folder)
    listed = ", ".join(str(number) for number in ranks)
    if rank is not None:
        if rank not in ranks:
            raise DataError(f"{folder}: nothing was recorded by rank {rank}; there is {listed or 'no rank'}")
        return ranks[rank], []
    if _runs_in(folder) or not ranks:
        return folder, [f"ranks {listed} recorded too; take one with --rank"] if ranks else []
    first = next(iter(ranks))
    return ranks[first], [f"ranks {listed} recorded; this is rank {first}, take another with --rank"]


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _runs_in(folder: Path) -> list[Path]:
    names = _names_in(folder)
    runs = [(int(match[1]), int(match[2]), name) for name in names if (match := _RUN.match(name))]
    return [folder / name for _, _, name in sorted(runs, reverse=True)]


def _all_runs(folder: Path) -> tuple[Dump, list[str]]:
    """All readable runs as one dump, oldest first."""
    dumps: list[Dump] = []
    passed: list[str] = []
    for run in reversed(recorded_runs(folder)):
        try:
            dumps.append(_read_run(run))
        except DataError as error:
            passed.append(f"passed over: {error}")
    if not dumps:
        raise DataError(f"{folder}: {'; '.join(passed[:_SHOWN]) if passed else 'no recorded run; record a step first'}")
    foreign = [dump.path for dump in dumps if not is_tf_record(dump.path)]
    steps = dict(zip(foreign, run_steps(foreign), strict=True))
    records = [
        replace(record, step=steps[dump.path]) if dump.path in steps else record
        for dump in dumps
        for record in (_plain_names(dump) if dump.path in steps else dump)
    ]
    problems = tuple(problem for dump in dumps for problem in dump.problems)
    return Dump(folder, tuple(records), problems), [*passed, f"{len(dumps)} runs"]


def _last_step(folder: Path, *, allow_incomplete: bool) -> tuple[Dump, list[str]]:
    runs = recorded_runs(folder)
    if not runs:
        raise DataError(
            f"{folder}: no recorded run; train with precision_tool.tf_config.sess_dump(sess), or with TensorFlow's "
            "dumping wrapper writing there"
        )
    passed: list[str] = []
    second: tuple[Dump, list[str]] | None = None
    for run in runs:
        try:
            dump = _read_run(run)
        except DataError as error:
            passed.append(f"passed over: {error}")
            continue
        if is_tf_record(run):
            incomplete = [problem.reason for problem in dump.problems if problem.path.name == "record.json"]
            if not incomplete or allow_incomplete:
                return dump, passed
            passed.append(f"passed over: {run}: {incomplete[0]}")
        elif (kind := _training(dump.graph)) == "surely":
            return _plain_names(dump), passed
        elif kind == "perhaps" and second is None:
            second = _plain_names(dump), list(passed)
    if second is not None:
        return second
    detail = "; ".join(passed[:_SHOWN]) if passed else "none of them trains (initialisers, counters, evaluations)"
    raise DataError(
        f"{folder}: {len(runs)} runs, no complete training step: {detail}; record a step again, "
        "or take every run with tf_dump --all-runs"
    )


def _read_run(run: Path) -> Dump:
    if is_tf_record(run):
        return read_tf_record(run)
    if is_tfdbg_run(run):
        return read_tfdbg_run(run)
    raise DataError(f"{run}: is no record, or was cut off at its start (no record.json, no _tfdbg_* files)")


def _training(graph: Graph | None) -> str:
    """How sure it is that a run of TensorFlow's debugger was a training step: ``surely``, ``perhaps`` or ``no``.

    Its graph holds just the ops that ran, but does not tell which variables are trainable. A plain assignment may be a
    metric's, so that is taken only where no run has an optimizer's op. A graph without variables is inference.
    """
    if graph is None:
        return "perhaps"
    types = {op.type for op in graph}
    if any(_UPDATES.fullmatch(op_type) for op_type in types):
        return "surely"
    if not types & _VARIABLES:
        return "surely"
    writes = [op for op in graph if _WRITES.fullmatch(op.type) and len(op.inputs) > 1]
    return "perhaps" if any(_reads_variable(graph, op.inputs[1].op) for op in writes) else "no"


def _reads_variable(graph: Graph, name: str) -> bool:
    pending, seen = [name], set[str]()
    while pending:
        op = graph.ops.get(pending.pop())
        if op is None or op.name in seen:
            continue
        if op.type in _VARIABLES:
            return True
        seen.add(op.name)
        pending.extend(source.op for source in op.inputs)
    return False


def _plain_names(dump: Dump) -> Dump:
    """Gives fed placeholders and folded constants the names that they have in the user's graph."""
    folded: dict[str, int] = {}
    for record in dump:
        if match := _FOLDED.match(record.op):
            folded[match["op"]] = folded.get(match["op"], 0) + 1
    return replace(dump, records=tuple(_plain_name(record, folded) for record in dump))


def _plain_name(record: TensorRecord, folded: dict[str, int]) -> TensorRecord:
    if match := _FED.match(record.op):
        return replace(record, op=match["op"], slot=int(match["slot"]), op_type="Placeholder", note="fed")
    match = _FOLDED.match(record.op)
    if match and folded[match["op"]] == 1:  # of several outputs nobody can tell which is which
        return replace(record, op=match["op"], op_type="", note="constant: folded by TensorFlow")
    return record


def _write_tensors(dump: Dump, folder: Path) -> _Rows:
    rows, names = _Rows(), _Names()
    for position, record in enumerate(dump.records):
        if record.source is None:
            rows.add("", record)
            continue
        file = names.choose(record, position)
        try:
            note = _write_one(record, folder / file)
        except (DataError, ValueError) as error:
            rows.add("", replace(record, note=str(error)))
            continue
        rows.add(file, replace(record, note="; ".join(filter(None, (record.note, note)))))
    return rows


def _write_one(record: TensorRecord, path: Path) -> str:
    """Links a finished npy file, or writes one; returns what is odd about it."""
    if isinstance(record.source, NpySource):
        source = record.source.path
        read_npy_header(source)
        try:
            os.link(source, path)
        except OSError:  # another file system, or one without hard links
            with atomic_file(path) as target, open(source, "rb") as content:
                shutil.copyfileobj(content, target)
        return ""
    array = record.load()
    if not array.dtype.hasobject:
        write_npy(path, array)
        return ""
    stored, _, note = storable(array, "string")
    write_npy(path, stored)
    return note


class _Names:
    """File names of one folder: no two alike, not even on a file system that folds case."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}

    def choose(self, record: TensorRecord, position: int) -> str:
        """Returns the file name of a tensor, ``<op>.<output>.<us>.npy`` where that is free and fits."""
        for name in self._candidates(record, position):
            if name.casefold() not in self._used:
                self._used[name.casefold()] = record.op
                return name
        raise DataError(f"{record.name}: no free file name")  # unreachable: the candidates never end

    @staticmethod
    def _candidates(record: TensorRecord, position: int) -> Iterator[str]:
        time_us = record.timestamp_us if record.timestamp_us is not None else position
        flat = flatten_tf(record.op).replace("\0", "_")
        tail = f".{record.slot}.{time_us}.npy"
        yield shorten(flat, MAX_FILE_NAME_BYTES - len(tail)) + tail
        digest = "-" + hashlib.sha1(record.op.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        number = 0
        while True:
            tail = f"{digest}.{record.slot}.{f'{number}.' if number else ''}{time_us}.npy"
            yield shorten(flat, MAX_FILE_NAME_BYTES - len(tail)) + tail
            number += 1


def _write_index(path: Path, rows: _Rows) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(INDEX_COLUMNS)
    for file, record in rows.rows:
        shape = "" if record.shape is None else str(tuple(record.shape))
        step = "" if record.step is None else record.step
        moment = "" if record.timestamp_us is None else record.timestamp_us
        writer.writerow((file, record.op, record.slot, record.op_type, step, moment, record.dtype, shape, record.note))
    with atomic_file(path) as file_object:
        file_object.write(text.getvalue().encode("utf-8", "surrogateescape"))


def _swap(staging: Path, target: Path) -> list[str]:
    """Puts the new folder in place of the old one, and says where the old one went if it was not all ours."""
    if not os.path.lexists(target):
        os.rename(staging, target)
        return []
    foreign = _foreign(target)
    aside = _aside(target) if foreign else target.parent / f".{target.name}-{os.getpid()}-old"
    if not foreign:
        shutil.rmtree(aside, ignore_errors=True)
    os.rename(target, aside)
    try:
        os.rename(staging, target)
    except OSError:
        os.rename(aside, target)
        raise
    if foreign:
        shown = ", ".join(foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
        return [f"{target} held files that tf_dump did not write ({shown}); it was moved to {aside}"]
    shutil.rmtree(aside, ignore_errors=True)
    return []


def _foreign(target: Path) -> list[str]:
    """Names in the folder that its index does not list."""
    if target.is_symlink() or not target.is_dir():
        return [target.name]
    known = {INDEX_FILE}
    try:
        with open(target / INDEX_FILE, encoding="utf-8", errors="surrogateescape", newline="") as file:
            known.update(row["file"] for row in csv.DictReader(file) if row.get("file"))
    except (FileNotFoundError, IsADirectoryError, csv.Error):
        pass
    return sorted(entry.name for entry in os.scandir(target) if entry.name not in known or not entry.is_file())


def _aside(target: Path) -> Path:
    moment = time.time()
    while True:
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
        place = target.parent / f"{target.name}_before_{stamp}"
        if not os.path.lexists(place):
            return place
        moment += 1

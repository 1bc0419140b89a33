"""``nan``: the first non-finite tensor and the op that made it."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compare.nan_inputs import InputValue
    from compare.nan_origin import NanOrigin, NanSearch
    from compare.nan_scan import Finding
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SHOWN = 20
"""Tensors of a list that are shown unless told otherwise; the number is always said, and JSON has them all."""

COLUMNS = ("Op", "OpType", "Tensor", "Time", "Found")


class Nan:
    """Find the first NaN or infinity of a dump, the op that made it, the element and the value that caused it.

    DIR is a dump directory of either side; without it the newest dump of debug_0 is searched, else tf/dump. Infinities
    that are there on purpose are no finding. Order is that of execution: by time, and where a graph says that an op
    read what another wrote, by the graph, since clocks tie and go backward. --all lists every bad tensor in that order.
    """

    name = "nan"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the directory."""
        parser.add_argument("directory", nargs="?", metavar="DIR", help="dump directory")
        parser.add_argument("-g", "--graph", default=None, help="graph file of the dump")
        parser.add_argument("-x", "--exclude", action="append", default=[], metavar="PATTERN", help="ops to leave out")
        parser.add_argument("-a", "--all", action="store_true", help="list every bad tensor, in order of execution")
        parser.add_argument("--limit", type=int, default=SHOWN, metavar="N", help=f"rows of a list ({SHOWN})")
        parser.add_argument("--threads", type=int, default=None, metavar="N", help="readers (processors, at most 8)")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Searches; exit code 1 when something was found, 3 when files were unreadable."""
        for option, value in (("--limit", args.limit), ("--threads", args.threads)):
            if value is not None and value < 1:
                raise UsageError(f"nan: {option} {value}: a number from 1 on")
        from compare.nan_origin import search_nan

        blocks: list[Block] = []
        notes: list[str] = []
        data: list[dict[str, Any]] = []
        titles: list[str] = []
        problems: list[str] = []
        exit_code = ExitCode.CLEAN
        for folder in _folders(args.directory, workbench):
            graph = workbench.graph_of(Path(args.graph), folder) if args.graph else None
            dump = workbench.read_dump(folder, graph=graph)
            told = partial(progress, "searching")
            found = search_nan(dump, dump.graph, exclude=args.exclude, progress=told, threads=args.threads)
            titles.append(_title(found, folder))
            blocks += _blocks(found, args.limit, everything=args.all)
            notes += _notes(found, dump, args.limit)
            data.append(_data(found, dump))
            exit_code = max(exit_code, _exit_code(found, dump))
            problems += _problems(found, dump)
        return Result(
            title="; ".join(titles),
            blocks=blocks,
            notes=notes,
            data={"dumps": data},
            exit_code=exit_code,
            problems=problems,
        )


def _folders(asked: str | None, workbench: Workbench) -> Sequence[Path]:
    from precision_tool.commands.vector_compare import leaf_of

    if asked is not None:
        return [leaf_of(Path(asked))]
    leaves, _ = workbench.latest_leaves()
    if leaves:
        return leaves
    reference = workbench.tf_dump_directory()
    if reference is None:
        raise DataError(f"{workbench.workspace.root}: no dump of either side; dump a step first, or give DIR")
    return [reference]


def _title(found: NanSearch, folder: Path) -> str:
    if found.origin is None:
        return f"{folder}: no NaN or infinity that matters in {found.scanned} tensors"
    return f"first in {found.origin.op} [{found.origin.op_type or 'type unknown'}]"


def _exit_code(found: NanSearch, dump: Dump) -> ExitCode:
    if _problems(found, dump):
        return ExitCode.DATA
    return ExitCode.FOUND if found.origin is not None else ExitCode.CLEAN


def _problems(found: NanSearch, dump: Dump) -> list[str]:
    """Returns what could not be searched although it should be there."""
    damaged = [finding for finding in found.unread if not finding.known and finding.record.source]
    return [f"{problem.path}: {problem.reason}" for problem in dump.problems] + [
        f"{finding.record.name}: {finding.problem}" for finding in damaged
    ]


def _blocks(found: NanSearch, limit: int, *, everything: bool) -> list[Block]:
    blocks: list[Block] = []
    if found.origin is not None:
        blocks.append(Panel("Origin", (*found.origin.explanation, f"File: {found.origin.record.path}")))
    if everything:
        return [*blocks, _everything(found, limit)]
    if found.origin is None:
        return [_harmless(found.harmless, limit)] if found.harmless else []
    for title, findings in (("Consequences", found.origin.consequences), ("Other origins", found.origin.others)):
        if findings:
            rows = tuple(_row(finding) for finding in findings[:limit])
            blocks.append(Table(_title_of(title, findings, limit), COLUMNS, rows))
    return blocks


def _everything(found: NanSearch, limit: int) -> Table:
    parts = _parts(found)
    rows = tuple((*_row(finding), parts[id(finding)]) for finding in found.findings[:limit])
    marks = {row: "bad" for row, cells in enumerate(rows) if cells[-1] == "origin"}
    return Table(_title_of("Not finite", found.findings, limit), (*COLUMNS, "Part"), rows, marks)


def _parts(found: NanSearch) -> Mapping[int, str]:
    """What each bad tensor is in the story, by its identity."""
    parts = {id(finding): "read" if finding.record.io == "input" else "follows" for finding in found.findings}
    parts.update({id(finding): f"on purpose: {reason}" for finding, reason in found.harmless})
    if found.origin is not None:
        parts.update({id(finding): "another origin, or follows from it" for finding in found.origin.others})
        parts[id(found.origin.finding)] = "origin"
    return parts


def _title_of(title: str, findings: Sequence[object], limit: int) -> str:
    return title + (f" (the first {limit} of {len(findings)})" if len(findings) > limit else "")


def _row(finding: Finding) -> tuple[str | int | None, ...]:
    record = finding.record
    return record.op, record.op_type, f"{record.io}:{record.slot}", record.timestamp_us, finding.describe()


def _harmless(findings: Sequence[tuple[Finding, str]], limit: int) -> Table:
    rows = tuple((finding.record.name, finding.describe(), reason) for finding, reason in findings[:limit])
    return Table(_title_of("Not finite on purpose", findings, limit), ("Tensor", "Found", "Reason"), rows)


def _notes(found: NanSearch, dump: Dump, limit: int) -> list[str]:
    notes = [f"{problem.path}: {problem.reason}" for problem in dump.problems]
    notes += [f"{path}: ignored, no dump file" for path in dump.ignored]
    notes += [f"{finding.record.name}: {finding.problem}" for finding in found.unread[:limit]]
    if len(found.unread) > limit:
        notes.append(f"{len(found.unread) - limit} more tensors have no value or could not be read")
    for finding in found.padded[:limit]:
        where = f"{finding.padding} elements in the padding of {finding.record.format} are not finite"
        notes.append(f"{finding.record.name}: {where}; they are no part of the tensor")
    return notes


def _data(found: NanSearch, dump: Dump) -> dict[str, Any]:
    parts = _parts(found)
    return {
        "directory": str(dump.path),
        "scanned": found.scanned,
        "origin": None if found.origin is None else _origin_data(found.origin),
        "findings": [_bad_data(finding) | {"part": parts[id(finding)]} for finding in found.findings],
        "harmless": [_finding_data(finding) | {"reason": reason} for finding, reason in found.harmless],
        "in_padding": [{"tensor": f.record.name, "elements": f.padding} for f in found.padded],
        "not_read": [_finding_data(finding) for finding in found.unread],
        "ignored": [str(path) for path in dump.ignored],
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in dump.problems],
    }


def _origin_data(origin: NanOrigin) -> dict[str, Any]:
    return {
        **_bad_data(origin.finding),
        "op": origin.op,
        "op_type": origin.op_type,
        "cause": origin.cause,
        "run": origin.run,
        "runs": origin.runs,
        "inputs_clean": origin.inputs_clean,
        "inputs": [_input_data(value) for value in origin.inputs],
        "written": None if origin.written is None else _input_data(origin.written),
        "explanation": list(origin.explanation),
        "hint": origin.hint,
    }


def _input_data(value: InputValue) -> dict[str, Any]:
    return {
        "tensor": value.tensor,
        "value": value.value,
        "clean": value.clean,
        "min": value.minimum,
        "max": value.maximum,
    }


def _bad_data(finding: Finding) -> dict[str, Any]:
    """A bad tensor; counts are None where statistics do not tell them, like the index."""
    record = finding.record
    counted = bool(finding.nan or finding.positive_inf or finding.negative_inf)
    return {
        "tensor": record.name,
        "op": record.op,
        "op_type": record.op_type,
        "io": record.io,
        "slot": record.slot,
        "kind": finding.kind,
        "index": None if finding.index is None else list(finding.index),
        "shape": list(finding.shape),
        "dtype": record.dtype,
        "nan": finding.nan if counted else None,
        "inf": finding.positive_inf if counted else None,
        "minus_inf": finding.negative_inf if counted else None,
        "timestamp_us": record.timestamp_us,
        "file": None if record.path is None else str(record.path),
        "found": finding.describe(),
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    said = finding.problem or finding.describe()
    return {"tensor": finding.record.name, "file": str(finding.record.path), "found": said}

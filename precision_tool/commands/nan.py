"""``nan``: the first non-finite tensor and the op that made it."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compare.nan_origin import NanOrigin, NanSearch
    from compare.nan_scan import Finding
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SHOWN = 20
"""Tensors of a list that are shown; the number is always said."""

COLUMNS = ("Op", "OpType", "Tensor", "Time", "Found")


class Nan:
    """Find the first NaN or infinity of a dump, the op that made it, the element and the value that caused it.

    DIR is a dump directory of either side; without it the newest dump of debug_0 is searched, else tf/dump. Infinities
    that are there on purpose are no finding.
    """

    name = "nan"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the directory."""
        parser.add_argument("directory", nargs="?", metavar="DIR", help="dump directory")
        parser.add_argument("-g", "--graph", default=None, help="graph file of the dump")
        parser.add_argument("-x", "--exclude", action="append", default=[], metavar="PATTERN", help="ops to leave out")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Searches; exit code 1 when something was found, 3 when files were unreadable."""
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
            found = search_nan(dump, dump.graph, exclude=args.exclude, progress=partial(progress, "searching"))
            titles.append(_title(found, folder))
            blocks += _blocks(found)
            notes += _notes(found, dump)
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


def _blocks(found: NanSearch) -> list[Block]:
    if found.origin is None:
        harmless = [(finding, reason) for finding, reason in found.harmless]
        return [_harmless(harmless)] if harmless else []
    origin = found.origin
    blocks: list[Block] = [Panel("Origin", (*origin.explanation, f"File: {origin.record.path}"))]
    for title, findings in (("Consequences", origin.consequences), ("Other origins", origin.others)):
        if findings:
            blocks.append(_list(title, findings))
    return blocks


def _list(title: str, findings: Sequence[Finding]) -> Table:
    more = f" (the first {SHOWN} of {len(findings)})" if len(findings) > SHOWN else ""
    return Table(title + more, COLUMNS, tuple(_row(finding) for finding in findings[:SHOWN]))


def _row(finding: Finding) -> tuple[str | int | None, ...]:
    record = finding.record
    return record.op, record.op_type, f"{record.io}:{record.slot}", record.timestamp_us, finding.describe()


def _harmless(findings: Sequence[tuple[Finding, str]]) -> Table:
    rows = tuple((finding.record.name, finding.describe(), reason) for finding, reason in findings[:SHOWN])
    return Table("Not finite on purpose", ("Tensor", "Found", "Reason"), rows)


def _notes(found: NanSearch, dump: Dump) -> list[str]:
    notes = [f"{problem.path}: {problem.reason}" for problem in dump.problems]
    notes += [f"{path}: ignored, no dump file" for path in dump.ignored]
    notes += [f"{finding.record.name}: {finding.problem}" for finding in found.unread[:SHOWN]]
    if len(found.unread) > SHOWN:
        notes.append(f"{len(found.unread) - SHOWN} more tensors have no value or could not be read")
    return notes


def _data(found: NanSearch, dump: Dump) -> dict[str, Any]:
    return {
        "directory": str(dump.path),
        "scanned": found.scanned,
        "origin": None if found.origin is None else _origin_data(found.origin),
        "findings": [_finding_data(finding) for finding in found.findings],
        "harmless": [_finding_data(finding) | {"reason": reason} for finding, reason in found.harmless],
        "not_read": [_finding_data(finding) for finding in found.unread],
        "ignored": [str(path) for path in dump.ignored],
        "problems": [{"path": str(problem.path), "reason": problem.reason} for problem in dump.problems],
    }


def _origin_data(origin: NanOrigin) -> dict[str, Any]:
    return {
        "op": origin.op,
        "op_type": origin.op_type,
        "tensor": origin.record.name,
        "index": None if origin.finding.recorded else list(origin.index),
        "kind": origin.kind,
        "cause": origin.cause,
        "file": str(origin.record.path),
        "timestamp_us": origin.record.timestamp_us,
        "inputs_clean": origin.inputs_clean,
        "inputs": [{"tensor": i.tensor, "value": i.value, "clean": i.clean} for i in origin.inputs],
        "explanation": list(origin.explanation),
        "hint": origin.hint,
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    said = finding.problem or finding.describe()
    return {"tensor": finding.record.name, "file": str(finding.record.path), "found": said}

"""``ls``: the ops of the loaded graphs, or the files of the newest dump."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError
from precision_tool.result import ExitCode, Panel, Result, Table
from precision_tool.workbench import typed_name

if TYPE_CHECKING:
    from pathlib import Path

    from dumpers.graph import Op
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import RunGraph, Workbench


class ListOps:
    """List the ops of the device graphs, or the files of a dump.

    Without filters: how many ops of each type. With filters: one line for each op that passes all of them; a filter is
    a part of the text, upper and lower case matter. ``ls dump`` lists the newest dump of each run instead.
    """

    name = "ls"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the filters."""
        parser.add_argument("what", nargs="?", choices=("op", "dump"), default="op", help="what to list (op)")
        parser.add_argument("-t", "--type", default="", help="part of the op type")
        parser.add_argument("-n", "--name", default="", help="part of the op name")
        parser.add_argument("-f", "--fusion", default="", help="part of the name of a fusion pass")
        parser.add_argument("-k", "--kernel_name", default="", help="part of the kernel name")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Lists."""
        if args.what == "dump":
            return _list_dump(args, workbench, progress)
        graphs = workbench.all_graphs()
        if not graphs:
            raise DataError(
                f"{workbench.workspace.npu_graph()}: no ge_proto_*_Build.txt graph; dump one, or say --root DIR"
            )
        runs: dict[str, list[RunGraph]] = {}
        for graph in graphs:
            runs.setdefault(graph.run, []).append(graph)
        if args.type or args.name or args.fusion or args.kernel_name:
            return _list_filtered(args, runs)
        return _list_types(runs)


def _list_types(runs: dict[str, list[RunGraph]]) -> Result:
    blocks, data = [], {}
    for run, graphs in runs.items():
        counts = Counter(op.type for graph in graphs for op in graph.graph)  # in order of first appearance
        blocks.append(Table(run, ("OpType", "Count"), tuple(counts.items())))
        data[run] = {"types": dict(counts)}
    return Result(title="Ops by type", blocks=blocks, data={"runs": data})


def _list_filtered(args: argparse.Namespace, runs: dict[str, list[RunGraph]]) -> Result:
    blocks, data, total = [], {}, 0
    for run, graphs in runs.items():
        ops = [op for graph in graphs for op in graph.graph if _passes(op, args)]
        total += len(ops)
        blocks.append(Panel(run, tuple(f"[{op.type}][{','.join(op.pass_names)}] {op.name}" for op in ops)))
        data[run] = {"ops": [{"type": op.type, "name": op.name, "passes": list(op.pass_names)} for op in ops]}
    notes = [] if total else ["no op passes these filters; ls without filters shows the types there are"]
    return Result(title=f"{total} ops", blocks=blocks, notes=notes, data={"runs": data})


def _passes(op: Op, args: argparse.Namespace) -> bool:
    return (
        args.type in op.type
        and typed_name(args.name) in op.name
        and args.fusion in ",".join(op.pass_names)
        and args.kernel_name in op.kernel_name
    )


# ---------------------------------------------------------------------------------------------------------- ls dump


def _list_dump(args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
    blocks: list[Table] = []
    problems: list[str] = []
    data: dict[str, Any] = {}
    for run in workbench.workspace.runs():
        leaves = workbench.npu_leaves(run)
        rows: list[tuple[str, str, int | None, int | None, int | None, str]] = []
        for done, leaf in enumerate(leaves):
            progress(f"reading {run}", done, len(leaves))
            dump = workbench.read_dump(leaf)
            rows += _rows(dump, args, workbench.workspace.npu_dump(run))
            problems += [f"{problem.path}: {problem.reason}" for problem in dump.problems]
        if leaves:
            blocks.append(Table(run, ("Type", "Name", "Task", "Stream", "Time", "File"), tuple(rows)))
            keys = ("type", "name", "task", "stream", "timestamp_us", "file")
            data[run] = {"files": [dict(zip(keys, row, strict=True)) for row in rows]}
    if not blocks:
        raise DataError(f"{workbench.workspace.npu_dump()}: no dump; run the training with a dump action first")
    return Result(
        title=f"{sum(len(b.rows) for b in blocks)} dump files",
        blocks=blocks,
        notes=problems,
        data={"runs": data},
        exit_code=ExitCode.DATA if problems else ExitCode.CLEAN,
        problems=problems,
    )


def _rows(
    dump: Dump, args: argparse.Namespace, root: Path
) -> list[tuple[str, str, int | None, int | None, int | None, str]]:
    rows: dict[Path, tuple[str, str, int | None, int | None, int | None, str]] = {}
    for record in dump:
        if args.type in record.op_type and typed_name(args.name) in record.op and record.path is not None:
            row = (
                record.op_type,
                record.op,
                record.task_id,
                record.stream_id,
                record.timestamp_us,
                str(record.path.relative_to(root)),
            )
            rows.setdefault(record.path, row)
    return list(rows.values())

"""``vc``: compare two whole dumps."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from dumpers.workspace import DEFAULT_RUN, EARLIER_RUN
from precision_tool.commands.pairing_report import PairingReport, add_map_option, map_of
from precision_tool.commands.summary import summarise_path
from precision_tool.result import Block, ExitCode, Result, Table

if TYPE_CHECKING:
    from compare.name_map import NameMap
    from compare.table import Comparison, ComparisonRow
    from dumpers.graph import Graph
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

THRESHOLD = 0.98
SUMMARY_LIMIT = 1
SHOWN = 10
"""Rows shown by themselves: those below the threshold, else the worst ones."""

COLUMNS = (
    *("Index", "OpType", "Op", "GroundTruth", "Tensor", "Shape", "CosineSimilarity", "MaxAbsoluteError"),
    *("RelativeEuclideanDistance", "Differing", "Reason"),
)


@dataclass
class Job:
    """Two directories to compare.

    Attributes:
        left, right: Leaf directories; left is under test.
        graph: For the original names; None pairs by name.
    """

    left: Path
    right: Path
    graph: Graph | None = None


@dataclass
class Plan:
    """What to compare, and what was left out.

    Attributes:
        names: The user's own pairs of op names.
    """

    jobs: list[Job]
    notes: list[str] = field(default_factory=list)
    names: NameMap | None = None


class VectorCompare:
    """Compare two dumps tensor by tensor and write a result file.

    LEFT is under test, RIGHT is the reference. Two device dumps are paired by name; a device dump and a TensorFlow dump
    by the original names of the graph, which is given with -g or found beside the dump. Without paths the newest dump
    of debug_0 is compared with tf/dump, or with debug_1 when there is no tf/dump.
    """

    name = "vc"
    aliases: tuple[str, ...] = ("vector_compare",)
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths."""
        parser.add_argument("-lt", "--left", default=None, help="directory under test")
        parser.add_argument("-rt", "--right", default=None, help="directory of the reference")
        parser.add_argument("-g", "--graph", default=None, help="graph file (ge_proto text or json)")
        add_map_option(parser)

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Compares; exit code 1 when an output is below 0.98 or one side alone is not finite."""
        names = map_of(args)
        return compare_plan(replace(plan_for(args, workbench), names=names), workbench, progress)


# ------------------------------------------------------------------------------------------------ what to compare


def plan_for(args: argparse.Namespace, workbench: Workbench) -> Plan:
    """Returns what the options ask for.

    Raises:
        UsageError: one side without the other.
        DataError: there is nothing to compare.
    """
    if args.left is None and args.right is None:
        return default_plan(args.graph, workbench)
    if args.left is None or args.right is None:
        missing = "-lt" if args.left is None else "-rt"
        raise UsageError(f"vc: {missing} is missing; give both directories, or none for what is in precision_data")
    left, right = leaf_of(Path(args.left)), leaf_of(Path(args.right))
    return Plan([Job(left, right, graph_for(left, right, args.graph, workbench))])


def graph_for(left: Path, right: Path, asked: str | None, workbench: Workbench) -> Graph | None:
    """Returns the graph for a pair of directories: the one asked for; for device against TensorFlow the one beside."""
    if asked is not None:
        return workbench.graph_of(Path(asked), left)
    sides = (workbench.read_dump(left), workbench.read_dump(right))
    if {device_of(side) for side in sides} == {"npu", "tf"}:
        npu = left if device_of(sides[0]) == "npu" else right
        return workbench.graph_beside(npu)
    return None


def device_of(dump: Dump) -> str:
    """Returns ``npu`` or ``tf``; empty for a dump without records."""
    return dump.records[0].device if dump.records else ""


def leaf_of(path: Path) -> Path:
    """Returns the directory with the files of one step below a path, the path itself if it has some or is a dump.

    Raises:
        DataError: there is none, or several that are not steps of one run.
    """
    from dumpers.formats.registry import is_dump_file, is_whole_folder
    from precision_tool.workbench import leaf_directories, step_number

    if not path.is_dir():
        if is_dump_file(path):
            return path
        if path.is_file():
            raise DataError(f"{path}: a file that is no dump of its own; give its folder, or see info {path.name}")
        raise DataError(f"{path}: no such directory, nor a file that holds a dump; check the path")
    if any(entry.is_file() for entry in path.iterdir()) or is_whole_folder(path):
        return path
    leaves = list(leaf_directories(path))
    if not leaves:
        raise DataError(f"{path}: empty; nothing was dumped there, or the path is wrong")
    if len({leaf.parent for leaf in leaves}) > 1:
        shown = ", ".join(str(leaf) for leaf in leaves[:3])
        raise DataError(
            f"{path}: holds {len(leaves)} dumps; name one of them: {shown}{' ...' if len(leaves) > 3 else ''}"
        )
    return max(leaves, key=step_number)


def default_plan(asked_graph: str | None, workbench: Workbench) -> Plan:
    """Returns the comparison of what is in ``precision_data``."""
    leaves, earlier = workbench.latest_leaves(DEFAULT_RUN)
    place = workbench.workspace.npu_dump(DEFAULT_RUN)
    if not leaves:
        raise DataError(f"{place}: no dump; run the training with a dump action first, or give -lt and -rt")
    notes = [f"{leaf}: an earlier step, not compared" for leaf in earlier]
    reference = workbench.tf_dump_directory()
    if reference is not None:
        return Plan([Job(leaf, reference, _graph_of_leaf(leaf, asked_graph, workbench)) for leaf in leaves], notes)
    others, _ = workbench.latest_leaves(EARLIER_RUN)
    if not others:
        raise DataError(f"{workbench.workspace.tf_dump}: empty, and there is no {EARLIER_RUN}; run tf_dump first")
    jobs, unmatched = _pair_runs(leaves, others)
    notes += [f"{leaf}: no dump of the same graph and model in {EARLIER_RUN}, not compared" for leaf in unmatched]
    if not jobs:
        raise DataError(f"{place}: no graph name in common with {EARLIER_RUN}; give -lt and -rt")
    return Plan(jobs, notes)


def _graph_of_leaf(leaf: Path, asked: str | None, workbench: Workbench) -> Graph | None:
    return workbench.graph_of(Path(asked), leaf) if asked is not None else workbench.graph_beside(leaf)


def _pair_runs(leaves: Sequence[Path], others: Sequence[Path]) -> tuple[list[Job], list[Path]]:
    """Pairs leaves by graph, model and step; by graph and model where the steps differ; by graph as a last resort."""
    jobs, unmatched = [], []
    for leaf in leaves:
        for depth in ((-3, None), (-3, -1), (-3, -2)):
            key = leaf.parts[slice(*depth)]
            partner = next((other for other in others if other.parts[slice(*depth)] == key), None)
            if partner is not None:
                jobs.append(Job(leaf, partner))
                break
        else:
            unmatched.append(leaf)
    return jobs, unmatched


# -------------------------------------------------------------------------------------------------------- results


def compare_plan(plan: Plan, workbench: Workbench, progress: Progress) -> Result:
    """Runs the comparisons, writes a result file each, and summarises them."""
    from compare.sweep import compare_dumps

    blocks: list[Block] = []
    notes = list(plan.notes)
    data: list[dict[str, Any]] = []
    files: list[Path] = []
    problems: list[str] = []
    worst = ExitCode.CLEAN
    for job in plan.jobs:
        sides = (workbench.read_dump(job.left), workbench.read_dump(job.right))
        comparison = compare_dumps(*sides, job.graph, names=plan.names, progress=partial(progress, "comparing"))
        target = _write(comparison, workbench.workspace.new_result())
        files.append(target)
        summary = summarise_path(target, threshold=THRESHOLD, limit=SUMMARY_LIMIT)
        pairing = PairingReport(comparison, target.parent)
        blocks += [*_tables(comparison), *pairing.blocks(), *summary.blocks]
        notes += _notes(comparison, sides) + pairing.notes() + list(summary.notes)
        data.append(_data(comparison, target) | pairing.data() | {"summary": summary.data})
        worst = max(worst, exit_code_of(comparison))
        problems += _problems(comparison)
    return Result(
        title=_title(plan),
        blocks=blocks,
        notes=notes,
        data={"comparisons": data},
        files=files,
        exit_code=worst,
        problems=problems,
    )


def _write(comparison: Comparison, folder: Path) -> Path:
    """Writes the result file; a folder that gets none goes away, since ``vcs`` reads the newest one."""
    from compare.table import write_csv

    target = folder / f"result_{folder.name}.csv"
    try:
        write_csv(comparison, target)
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    return target


def exit_code_of(comparison: Comparison) -> ExitCode:
    """Returns the exit code: unreadable data win over a difference."""
    if comparison.unreadable or not comparison.judged:
        return ExitCode.DATA
    wrong = comparison.below(THRESHOLD) or any(r.figures and r.figures.non_finite_mismatches for r in comparison)
    return ExitCode.FOUND if wrong else ExitCode.CLEAN


def _problems(comparison: Comparison) -> list[str]:
    """Returns what kept the comparison from being whole."""
    damaged = [f"{row.op}:{row.tensor}: {row.reason}" for row in comparison if row.unreadable]
    nothing = [] if comparison.judged else [f"{comparison.left}: no tensor of it could be compared"]
    return [*(f"{problem.path}: {problem.reason}" for problem in comparison.problems), *damaged, *nothing]


def _title(plan: Plan) -> str:
    if len(plan.jobs) == 1:
        return f"{plan.jobs[0].left} against {plan.jobs[0].right}"
    return f"{len(plan.jobs)} comparisons"


def _tables(comparison: Comparison) -> list[Block]:
    below = comparison.below(THRESHOLD)
    blocks: list[Block] = []
    if below:
        more = f" (the first {SHOWN} of {len(below)})" if len(below) > SHOWN else ""
        rows = tuple(_cells(row) for row in below[:SHOWN])
        blocks.append(Table(f"Outputs below {THRESHOLD}{more}", COLUMNS, rows, dict.fromkeys(range(len(rows)), "bad")))
    elif ranked := [row for row in comparison.ranked() if row.judged]:
        rows = tuple(_cells(row) for row in ranked[:SHOWN])
        blocks.append(Table(f"Largest differences (nothing is below {THRESHOLD})", COLUMNS, rows))
    marks = {i: mark for i, row in enumerate(comparison.rows) if (mark := _mark(row))}
    blocks.append(Table("All tensors", COLUMNS, tuple(_cells(row) for row in comparison.rows), marks, paged=True))
    return blocks


def _mark(row: ComparisonRow) -> str:
    if not row.judged:
        return "warn"
    return "bad" if row.below(THRESHOLD) else ""


def _cells(row: ComparisonRow) -> tuple[str | int | float | None, ...]:
    figures = row.figures
    reason = "; ".join(row.messages())
    names = (
        row.index,
        row.op_type,
        row.op,
        ",".join(row.right_names) or "*",
        f"{row.io}:{row.slot}" if row.io else None,
    )
    shape = None if row.shape is None else str(list(row.shape))
    if figures is None:
        return (*names, shape, None, None, None, None, reason)
    errors = (figures.cosine, figures.max_abs_error, figures.relative_distance, figures.differing)
    return (*names, shape, *errors, reason)


def _notes(comparison: Comparison, sides: Sequence[Dump]) -> list[str]:
    notes = [f"{problem.path}: {problem.reason}" for problem in comparison.problems]
    notes += [f"{path}: ignored, no dump file" for side in sides for path in side.ignored]
    judged, rows, damaged = len(comparison.judged), len(comparison.rows), comparison.unreadable
    notes.append(f"{judged} of {rows} tensors compared, {rows - judged} not (see the reasons), {damaged} unreadable")
    return notes


def _data(comparison: Comparison, target: Path) -> dict[str, Any]:
    return {
        "left": str(comparison.left),
        "right": str(comparison.right),
        "csv": str(target),
        "rows": len(comparison.rows),
        "judged": len(comparison.judged),
        "compared_bytes": comparison.compared_bytes,
        "below": [_row_data(row) for row in comparison.below(THRESHOLD)],
        "differing": sum(1 for row in comparison.judged if row.figures and row.figures.differing),
        "not_judged": [_row_data(row) for row in comparison.not_judged],
        "problems": [{"path": str(p.path), "reason": p.reason} for p in comparison.problems],
    }


def _row_data(row: ComparisonRow) -> dict[str, Any]:
    figures = row.figures.columns() if row.figures else {}
    return {"index": row.index, "op": row.op, "op_type": row.op_type, "tensor": row.tensor, "figures": figures} | {
        "reason": "; ".join(row.messages())
    }

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
from precision_tool.commands.compare_options import CompareOptions, add_options, options_of
from precision_tool.commands.compare_report import notes_of, over_limits, report_data, report_tables
from precision_tool.commands.pairing_report import PairingReport, add_map_option, map_of
from precision_tool.commands.summary import summarise_path
from precision_tool.result import Block, ExitCode, Result

if TYPE_CHECKING:
    from compare.journal import Journal
    from compare.limits import Limits
    from compare.name_map import NameMap
    from compare.table import Comparison
    from dumpers.graph import Graph
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

THRESHOLD = 0.98
DEFAULT_OPTIONS = CompareOptions()
SUMMARY_LIMIT = 1


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
    of debug_0 is compared with tf/dump, or with debug_1 when there is no tf/dump. The same command given again goes on
    with a comparison that was interrupted.
    """

    name = "vc"
    aliases: tuple[str, ...] = ("vector_compare",)
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths and the options of a comparison."""
        parser.add_argument("-lt", "--left", default=None, help="directory under test")
        parser.add_argument("-rt", "--right", default=None, help="directory of the reference")
        parser.add_argument("-g", "--graph", default=None, help="graph file (ge_proto text or json)")
        add_map_option(parser)
        add_options(parser)

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Compares; exit code 1 when an output is below 0.98 or one side alone is not finite."""
        options, names = options_of(args), map_of(args)
        return compare_plan(replace(plan_for(args, workbench), names=names), workbench, progress, options)


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


def compare_plan(
    plan: Plan, workbench: Workbench, progress: Progress, options: CompareOptions = DEFAULT_OPTIONS
) -> Result:
    """Runs the comparisons, writes a result file each, and summarises them.

    Raises:
        UsageError: an option cannot be followed.
        KeyboardInterrupt: what was compared until then is kept for the same command.
    """
    if options.out and len(plan.jobs) > 1:
        raise UsageError(f"--out: there are {len(plan.jobs)} comparisons; choose one with -lt and -rt")
    options.check_files([path for job in plan.jobs for path in (job.left, job.right)])
    outcome = Outcome(options.limits(), plan.names, notes=list(plan.notes))
    with contextlib.ExitStack() as journals:  # all are kept until the last comparison is done
        for job in plan.jobs:
            graph = job.graph.path if job.graph else None
            journal = options.journal(workbench.workspace.vector_compare, job.left, job.right, graph)
            journals.enter_context(journal)
            _compare_job(job, workbench, progress, options, journal, outcome)
    return Result(
        title=_title(plan),
        blocks=outcome.blocks,
        notes=outcome.notes,
        data={"comparisons": outcome.data},
        files=outcome.files,
        exit_code=outcome.worst,
        problems=outcome.problems,
    )


@dataclass
class Outcome:
    """What the comparisons of a plan say, as far as they are done."""

    limits: Limits
    names: NameMap | None = None
    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    worst: ExitCode = ExitCode.CLEAN


def _compare_job(
    job: Job, workbench: Workbench, progress: Progress, options: CompareOptions, journal: Journal, outcome: Outcome
) -> None:
    from compare.exports import write_comparison
    from compare.sweep import SweepOptions, compare_dumps

    sides = (workbench.read_dump(job.left), workbench.read_dump(job.right))
    chosen = SweepOptions(options.workers, options.columns(), options.selection(), options.details, journal)
    told = partial(progress, "comparing")
    found = compare_dumps(
        *sides, job.graph, threads=options.threads, progress=told, names=outcome.names, options=chosen
    )
    limits = outcome.limits
    comparison = found if limits.path is None else _judged_by(found, limits)
    target = _write(comparison, workbench.workspace.new_result())
    for path in options.out:
        write_comparison(comparison, path)
    outcome.files += [target, *options.out]
    pairing = PairingReport(comparison, target.parent)
    outcome.blocks += [*report_tables(comparison, limits), *pairing.blocks()]
    outcome.notes += [*journal.notes, *notes_of(comparison, sides), *pairing.notes()]
    data = report_data(comparison, target, limits) | pairing.data()
    if limits.path is None:  # the summary knows a cosine and nothing else
        summary = summarise_path(target, threshold=THRESHOLD, limit=SUMMARY_LIMIT)
        outcome.blocks += summary.blocks
        outcome.notes += summary.notes
        data["summary"] = summary.data
    else:
        outcome.notes += limits.unused(comparison.rows)
    outcome.data.append(data)
    outcome.worst = max(outcome.worst, exit_code_of(comparison, limits))
    outcome.problems += _problems(comparison)


def _judged_by(comparison: Comparison, limits: Limits) -> Comparison:
    """Returns the comparison with the limits that a row breaks in its note, so that the result file has them too."""
    from compare.figures import OVER_LIMIT

    rows = []
    for row in comparison.rows:
        broken = limits.broken(row)
        note = "; ".join(filter(None, [row.note, f"{OVER_LIMIT}: {', '.join(broken)}" if broken else ""]))
        rows.append(replace(row, note=note))
    return replace(comparison, rows=tuple(rows))


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


def exit_code_of(comparison: Comparison, limits: Limits) -> ExitCode:
    """Returns the exit code: unreadable data win over a difference."""
    if comparison.unreadable or not comparison.judged:
        return ExitCode.DATA
    wrong = over_limits(comparison, limits) or any(r.figures and r.figures.non_finite_mismatches for r in comparison)
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

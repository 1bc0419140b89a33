"""``verdict``: what is wrong, and who did it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import DataError
from dumpers.workspace import DEFAULT_RUN, EARLIER_RUN
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from compare.verdict import Verdict as Finding
    from dumpers.graph import Graph
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


@dataclass(frozen=True)
class Sides:
    """What is judged.

    Attributes:
        right: None examines the left side alone.
        notes: What was chosen, and what was left out.
    """

    left: Dump
    right: Dump | None
    left_graph: Graph | None = None
    right_graph: Graph | None = None
    notes: tuple[str, ...] = ()


class Verdict:
    """Say what makes two dumps differ: the guilty op, table, fusion or setting, with evidence and the next step.

    LEFT is the device under test, RIGHT the reference; LEFT alone is examined by itself. Without paths the newest dumps
    in precision_data are taken. Every op is run again from its own dumped inputs; an op is guilty when its own error is
    above what rounding explains.
    """

    name = "verdict"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths."""
        parser.add_argument("left", nargs="?", metavar="LEFT", help="directory under test")
        parser.add_argument("right", nargs="?", metavar="RIGHT", help="directory of the reference")
        parser.add_argument("-g", "--graph", default=None, help="graph file of LEFT")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Judges; exit code 1 for any kind but fine and rounding."""
        sides = given_sides(args, workbench) if args.left else default_sides(args.graph, workbench)
        return judge_sides(sides, progress)


def given_sides(args: argparse.Namespace, workbench: Workbench) -> Sides:
    """Returns the dumps of the paths on the command line."""
    from precision_tool.commands.vector_compare import leaf_of

    left = leaf_of(Path(args.left))
    graph = workbench.graph_of(Path(args.graph), left) if args.graph else graph_of_dump(left, workbench)
    if args.right is None:
        return Sides(
            workbench.read_dump(left), None, graph, None, ("no reference given: the left side is examined alone",)
        )
    right = leaf_of(Path(args.right))
    return Sides(workbench.read_dump(left), workbench.read_dump(right), graph, graph_of_dump(right, workbench))


def default_sides(asked_graph: str | None, workbench: Workbench) -> Sides:
    """Returns the newest dumps in ``precision_data``.

    Raises:
        DataError: there is no device dump, or nothing to hold it against.
    """
    leaves, _ = workbench.latest_leaves(DEFAULT_RUN)
    if not leaves:
        place = workbench.workspace.npu_dump(DEFAULT_RUN)
        raise DataError(f"{place}: no dump; run the training with a dump action first, or give LEFT and RIGHT")
    left = max(leaves, key=lambda leaf: len(workbench.read_dump(leaf)))
    graph = workbench.graph_of(Path(asked_graph), left) if asked_graph else graph_of_dump(left, workbench)
    notes = [
        f"left: {left}",
        *(f"{leaf}: a smaller graph of the same run, not judged" for leaf in leaves if leaf != left),
    ]
    reference = workbench.tf_dump_directory()
    record = workbench.last_reference_run()
    if reference is not None or record is not None:
        right = workbench.read_dump(reference or record or left)
        right_graph = right.graph or (workbench.read_dump(record).graph if record is not None else None)
        return Sides(workbench.read_dump(left), right, graph, right_graph, (*notes, f"right: {right.path}"))
    others, _ = workbench.latest_leaves(EARLIER_RUN)
    partner = next((other for other in others if other.parts[-3] == left.parts[-3]), None)
    if partner is None:
        raise DataError(
            f"{workbench.workspace.tf_dump}: empty, and no {EARLIER_RUN} with that graph; run tf_dump first,"
            " or give one directory to examine it alone"
        )
    right = workbench.read_dump(partner)
    return Sides(
        workbench.read_dump(left), right, graph, graph_of_dump(partner, workbench), (*notes, f"right: {partner}")
    )


def graph_of_dump(folder: Path, workbench: Workbench) -> Graph | None:
    """Returns the graph that the dump brings along, else the device graph beside it, else that of the reference run."""
    dump = workbench.read_dump(folder)
    if dump.graph is not None:
        return dump.graph
    if dump.records and dump.records[0].device == "npu":
        return workbench.graph_beside(folder)
    return workbench.reference_graph_beside(folder)


# -------------------------------------------------------------------------------------------------------- results


def judge_sides(sides: Sides, progress: Progress) -> Result:
    """Judges two dumps and returns what every front shows of it."""
    from compare.judge import judge

    verdict = judge(
        sides.left, sides.right, left_graph=sides.left_graph, right_graph=sides.right_graph, progress=progress
    )
    problems = problems_of(sides)
    return Result(
        title=verdict.lines()[0],
        blocks=verdict_blocks(verdict),
        notes=[*sides.notes, *problems],
        data=verdict.as_dict(),
        exit_code=ExitCode.DATA if problems else exit_code_of(verdict),
        problems=problems,
    )


def problems_of(sides: Sides) -> list[str]:
    """Returns a line for each damaged file of both dumps."""
    dumps = [side for side in (sides.left, sides.right) if side]
    return [f"{problem.path}: {problem.reason}" for side in dumps for problem in side.problems]


def exit_code_of(verdict: Finding) -> ExitCode:
    """Returns 0 for ``fine`` and ``rounding``, 1 for everything else."""
    return ExitCode.CLEAN if verdict.kind.clean else ExitCode.FOUND


def verdict_blocks(verdict: Finding) -> list[Block]:
    """Returns the verdict as text and its suspects as a table."""
    blocks: list[Block] = [Panel("Verdict", tuple(verdict.lines()))]
    if verdict.suspects:
        columns = ("Op", "OpType", "Side", "LocalError", "Bound", "Ratio", "Member", "Note")
        rows = tuple(
            (s.op, s.op_type, s.side, s.local_error, s.bound, s.ratio, s.member, s.note or None)
            for s in verdict.suspects
        )
        blocks.append(Table("Suspects", columns, rows, {0: "bad"}))
    return blocks

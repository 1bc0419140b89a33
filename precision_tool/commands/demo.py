"""``demo``: the main job end to end."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import UsageError
from dumpers.settings import DATA_DIRECTORY
from precision_tool.commands.compare_report import COLUMNS
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from dumpers.settings import Settings
    from precision_tool.commands.base import Progress
    from precision_tool.experiment import Outcome
    from precision_tool.training import TrainingPlan
    from precision_tool.workbench import Workbench

DEFAULT_FAULT = "wrong_row@item_table:share=0.005"
"""Half a per cent of the keys of one table get another key's row: the cosine stays above 0.99."""

SHOWN = ("OpType", "Op", "Tensor", "CosineSimilarity", "RelativeEuclideanDistance")
SHOWN_ROWS = 5
"""Of the worst tensors, so that the verdict stays on the screen; ``vc`` shows them whole."""

NO_FAULT = "none"
NUMERICS = ("fp32", "mix")
FOLDER = "precision_demo"


class Demo:
    """Train a model on two devices, dump both, compare, and name the guilty operator.

    The golden side is TensorFlow on the CPU, the device under test is emulated and gets a fault: KIND@OP[:k=v,...] (OP
    is an op of the device, an original op or a table; docs/how-to/inject-a-fault.md has the kinds),
    package.module:callable, or none. Everything goes to a new folder below precision_demo.
    """

    name = "demo"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds fault, numerics and sizes."""
        parser.add_argument("--fault", default=DEFAULT_FAULT, help=f"fault of the device, or none ({DEFAULT_FAULT})")
        parser.add_argument("--numerics", choices=NUMERICS, default="mix", help="arithmetic of the device (mix)")
        parser.add_argument("--model", default="little_demo", help="reference model (little_demo)")
        parser.add_argument("--data", default=None, metavar="FILE", help="Criteo-format text instead of random batches")
        parser.add_argument("--seed", type=int, default=0, help="of weights, batches and fault (0)")
        parser.add_argument(
            "--steps", type=int, default=3, help="training steps (3); TF_DUMP_STEP picks the dumped ones"
        )
        parser.add_argument("--out", default=None, metavar="DIR", help=f"new data folder (default {FOLDER}/<time>)")
        parser.add_argument("--batch", type=int, default=None, metavar="N", help="samples of a step")
        parser.add_argument("--users", type=int, default=None, metavar="N", help="users that random batches draw from")
        parser.add_argument("--items", type=int, default=None, metavar="N", help="items that random batches draw from")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Runs it; exit code 1 when the verdict is anything but fine and rounding."""
        from precision_tool.experiment import Experiment, run_both

        plan = training_plan(args)
        folder = new_folder(args.out)
        settings = replace(workbench.settings, root_dir=folder)
        fault = "" if args.fault == NO_FAULT else args.fault
        try:
            outcome = run_both(Experiment(plan, args.numerics, fault, settings), progress)
        finally:
            _remove_empty(folder)
        return _report(Case(args, settings, outcome), progress)


def training_plan(args: argparse.Namespace) -> TrainingPlan:
    """Returns what the options ask to train."""
    from precision_tool.training import TrainingPlan

    sizes = {"batch_size": args.batch, "user_range": args.users, "item_range": args.items}
    return TrainingPlan(
        model=args.model,
        steps=args.steps,
        seed=args.seed,
        data_file=Path(args.data) if args.data else None,
        precision=args.numerics,
        **{name: value for name, value in sizes.items() if value is not None},
    )


def new_folder(asked: str | None) -> Path:
    """Creates the folder that will hold the ``precision_data`` of the run.

    Raises:
        UsageError: the folder asked for has a ``precision_data`` already, or cannot be made or written.
    """
    if asked is not None:
        folder = Path(asked)
        if (folder / DATA_DIRECTORY).exists():
            raise UsageError(f"{folder / DATA_DIRECTORY} exists and demo touches no data; give another --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be created ({error.strerror or error}); give another --out") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder}: cannot be written; give another --out")
        return folder
    moment = time.time()
    while True:
        folder = Path(FOLDER) / time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            moment += 1


def _remove_empty(folder: Path) -> None:
    """Takes a folder away in which nothing came to lie: the run ended before its first file."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        if folder.parent.name == FOLDER:
            folder.parent.rmdir()


@dataclass(frozen=True)
class Case:
    """A finished run."""

    args: argparse.Namespace
    settings: Settings
    outcome: Outcome


def _report(case: Case, progress: Progress) -> Result:
    from dumpers.tf_dump import extract
    from precision_tool.commands.vector_compare import compare_plan, default_plan
    from precision_tool.commands.verdict import default_sides, judge_sides
    from precision_tool.workbench import Workbench

    workbench = Workbench(case.settings)
    extract(workbench.workspace)
    comparison = compare_plan(default_plan(None, workbench), workbench, progress)
    judged = judge_sides(default_sides(None, workbench), progress)
    losses = {"golden": case.outcome.golden.losses, "npu": case.outcome.npu.losses}
    seen = seen_by_threshold(comparison.data["comparisons"])
    guilty = judged.data["op"]
    fault, changed = case.args.fault, case.outcome.fault_changed
    idle = [idle_fault_line(fault)] if changed is False else []
    return Result(
        title=f"demo: {case.args.model}, numerics {case.args.numerics}, fault {fault}",
        blocks=[
            *[Panel("Fault", (line,)) for line in idle],
            _losses_table(losses),
            *_first_suspects(comparison.blocks),
            Panel("The 0.98 rule", (threshold_line(seen, guilty, cosine_of(guilty, comparison.blocks)),)),
            *judged.blocks,
        ],
        notes=[*case.outcome.golden.notes, *judged.notes, f"data: {workbench.workspace.root}"],
        data={
            **judged.data,
            "losses": losses,
            "below_threshold": seen,
            "fault_changed": changed,
            "data": str(workbench.workspace.root),
        },
        files=comparison.files,
        exit_code=max(judged.exit_code, ExitCode.DATA if comparison.exit_code == ExitCode.DATA else ExitCode.CLEAN),
        problems=[*judged.problems, *comparison.problems],
    )


def idle_fault_line(fault: str) -> str:
    """Says that a fault had nothing to spoil."""
    return (
        f"The fault {fault} changed no bit in the dumped step, so there is nothing to find there: give another op or "
        "seed, or another step with TF_DUMP_STEP."
    )


def seen_by_threshold(comparisons: Sequence[Any]) -> list[str]:
    """Returns the ops that ``vcs`` would call suspects or consequences at 0.98."""
    names: list[str] = []
    for comparison in comparisons:
        for file in comparison["summary"]["files"]:
            names += [op["name"] for op in file["suspects"]] + file["consequences"]
    return names


def threshold_line(seen: Sequence[str], guilty: str | None, cosine: float | None) -> str:
    """Says what a cosine threshold of 0.98 finds in this run.

    Args:
        seen: Ops it lists, in order.
        guilty: The op that the verdict names.
        cosine: Lowest cosine of that op's outputs.
    """
    if guilty is None:
        return f"Cosine < 0.98 lists {len(seen)} ops." if seen else "Cosine < 0.98 sees nothing, and nothing is wrong."
    if guilty in seen:
        return f"Cosine < 0.98 lists {guilty} as number {seen.index(guilty) + 1} of {len(seen)}."
    value = "undefined" if cosine is None else f"{cosine:.6f}"
    text = f"The 0.98 rule sees nothing of the fault: the cosine of {guilty} is {value}."
    if not seen:
        return text
    return f"{text} It lists {len(seen)} other op(s), first {seen[0]}: they only carry the error on."


def cosine_of(op: str | None, blocks: Sequence[Block]) -> float | None:
    """Returns the lowest cosine of an op's outputs in the table of all tensors."""
    found: list[float] = []
    for table in blocks:
        if isinstance(table, Table) and table.paged:
            name, tensor, cosine = (table.columns.index(c) for c in ("Op", "Tensor", "CosineSimilarity"))
            outputs = [row for row in table.rows if row[name] == op and str(row[tensor]).startswith("output")]
            found += [value for row in outputs if isinstance(value := row[cosine], float)]
    return min(found, default=None)


def _losses_table(losses: dict[str, list[float]]) -> Table:
    rows = [
        (step, f"{golden:.9g}", f"{npu:.9g}", npu - golden)
        for step, (golden, npu) in enumerate(zip(losses["golden"], losses["npu"], strict=True))
    ]
    return Table("Loss", ("Step", "Golden", "NPU", "Difference"), tuple(rows))


def _first_suspects(blocks: Sequence[Block]) -> list[Block]:
    """Returns the first rows of the worst tensors, in the columns that tell something here, and all tensors."""
    tables = [block for block in blocks if isinstance(block, Table) and block.columns == COLUMNS]
    return [table if table.paged else _short(table) for table in tables]


def _short(table: Table) -> Table:
    places = [COLUMNS.index(name) for name in SHOWN]
    rows = tuple(tuple(row[place] for place in places) for row in table.rows[:SHOWN_ROWS])
    marks = {row: mark for row, mark in table.marks.items() if row < SHOWN_ROWS}
    return Table(table.title.replace("the first 10", f"the first {SHOWN_ROWS}"), SHOWN, rows, marks)

"""``loss``: the loss curves of two runs, or of several runs a side."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import UsageError
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compare.loss_curves import LossFinding
    from compare.loss_runs import RunsFinding
    from dumpers.formats.loss_curve import LossCurve
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SIDES = ("left", "right")
PREFERRED: dict[str, tuple[str, ...]] = {"left": ("loss", "losses.npu"), "right": ("loss", "losses.golden")}
"""What is taken where no name is given; the second is what the JSON document of ``demo`` calls the curve of a side."""

SHOWN_STEPS = 5

NEXT = "to tell which: give several runs a side (-lt, -rt), or dump the first step of both sides and ask verdict"


class Loss:
    """Compare the loss curves of two runs: identical, honest noise, different, or unclear, and from which step on.

    A and B are CSV, JSON (of demo --json too, then B may be left out), TensorFlow event files or their folder, or text
    logs read by --regex. With one run a side the first step, the mean and a NaN decide; a later step beyond rounding
    and the noise of the batches is unclear, since rounding grows in training. With more runs of a side (-lt, -rt) a
    permutation test decides at a stated level. A NaN is always a finding.
    """

    name = "loss"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds files, names and limits."""
        parser.add_argument("left", metavar="A", help="curve of the run under test")
        parser.add_argument("right", nargs="?", metavar="B", help="curve of the reference")
        parser.add_argument("-lt", "--left-run", action="append", default=[], metavar="FILE", help="another run like A")
        parser.add_argument("-rt", "--right-run", action="append", default=[], metavar="FILE", help="another like B")
        parser.add_argument("--tag", default=None, metavar="NAME", help="column, key or tag of the curve (loss)")
        parser.add_argument("--left-tag", default=None, metavar="NAME", help="the same for A only")
        parser.add_argument("--right-tag", default=None, metavar="NAME", help="the same for B only")
        parser.add_argument("--regex", default=None, help="reads text logs: groups (?P<loss>...) and (?P<step>...)")
        parser.add_argument("--rounding", type=float, default=None, metavar="R", help="of the loss, relative (2^-10)")
        parser.add_argument(
            "--level", type=float, default=None, metavar="P", help="of false alarms (0.01; 0.05 of runs)"
        )

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Compares; exit code 1 for different and unclear curves and for a NaN, 3 when a file is damaged."""
        from compare import loss_curves, loss_runs

        _check(args)
        rounding = loss_curves.ROUNDING if args.rounding is None else args.rounding
        runs = _runs(args)
        if all(len(runs[side]) == 1 for side in SIDES):
            level = args.level or loss_curves.LEVEL
            one = loss_curves.compare_curves(runs["left"][0], runs["right"][0], rounding=rounding, level=level)
            return _result(
                runs, one, _pair_blocks(runs, one), {**_pair_data(one), "level": level, "rounding": rounding}
            )
        level = args.level or loss_runs.LEVEL
        many = loss_runs.compare_runs(runs["left"], runs["right"], rounding=rounding, level=level)
        return _result(runs, many, _runs_blocks(runs, many), {**_runs_data(many), "level": level, "rounding": rounding})


def _check(args: argparse.Namespace) -> None:
    if args.level is not None and not 0 < args.level < 1:
        raise UsageError(f"loss: --level {args.level}: a probability between 0 and 1")
    if args.rounding is not None and not 0 <= args.rounding < math.inf:
        raise UsageError(f"loss: --rounding {args.rounding}: a number from 0 on, relative to the loss")
    if args.tag is not None and (args.left_tag is not None or args.right_tag is not None):
        raise UsageError("loss: --tag names the curve of both sides; give it, or --left-tag and --right-tag")


def _runs(args: argparse.Namespace) -> dict[str, list[LossCurve]]:
    """Reads all curves. A alone has both sides in it, as the document of ``demo`` does."""
    from dumpers.formats.loss_curve import read_loss_curve

    files = {"left": [args.left, *args.left_run], "right": [args.right or args.left, *args.right_run]}
    names = {side: getattr(args, f"{side}_tag") or args.tag for side in SIDES}
    preferred = PREFERRED
    if args.right is None:
        if args.regex is not None or args.tag is not None:
            raise UsageError("loss: one file and one name are one curve; give B as well")
        preferred = {"left": ("losses.npu",), "right": ("losses.golden",)}
        names = {side: name or preferred[side][0] for side, name in names.items()}
        if names["left"] == names["right"]:
            raise UsageError(f"loss: {names['left']} cannot be compared with itself; give B, or another --right-tag")
    return {
        side: [
            read_loss_curve(Path(f), name=names[side], prefer=preferred[side], regex=args.regex) for f in files[side]
        ]
        for side in SIDES
    }


def _result(
    runs: dict[str, list[LossCurve]], found: LossFinding | RunsFinding, blocks: list[Block], data: dict[str, Any]
) -> Result:
    curves = [curve for side in SIDES for curve in runs[side]]
    problems = [problem for curve in curves for problem in curve.problems]
    broken = bool(found.not_finite)
    title = f"loss: {_words(found.kind)}: {found.reason}"
    unclear = found.kind == "unclear"
    code = ExitCode.FOUND if broken or unclear or found.kind == "different" else ExitCode.CLEAN
    return Result(
        title=title + ("; values are not finite" if broken and "not finite" not in found.reason else ""),
        blocks=blocks,
        notes=[*(note for curve in curves for note in (*curve.notes, *curve.problems)), *([NEXT] if unclear else [])],
        data={
            "kind": str(found.kind),
            "reason": found.reason,
            **data,
            **{side: [{"path": str(c.path), "name": c.name, "steps": len(c)} for c in runs[side]] for side in SIDES},
        },
        exit_code=ExitCode.DATA if problems else code,
        problems=problems,
    )


def _words(kind: str) -> str:
    return "honest noise" if kind == "noise" else kind


# -------------------------------------------------------------------------------------------------- one run a side


def _pair_blocks(runs: dict[str, list[LossCurve]], found: LossFinding) -> list[Block]:
    from compare.loss_curves import RULE_OF_THUMB, common_steps
    from precision_tool.curve_picture import draw_curves

    both = common_steps(runs["left"][0], runs["right"][0])
    lines = [
        f"Steps: {found.steps} in both, {both.left_only} only left, {both.right_only} only right",
        f"First step that differs: {_shown(found.first_differing)}",
        f"First step beyond rounding and the noise of the batches: {_shown(found.first_beyond)}",
        f"Largest difference: {found.largest:.6g} at step {_shown(found.largest_step)}",
        f"Mean difference (left - right): {_shown(found.mean)}, p = {_shown(found.p_value)}",
        f"Noise from batch to batch: {_shown(found.sigma)}",
        f"Users' rule of thumb: {found.above_rule} of {found.steps} steps differ by more than {RULE_OF_THUMB:g}",
        *[f"Not finite: {side} from step {step} on" for side, step in found.not_finite.items()],
    ]
    blocks: list[Block] = [Panel("Loss", tuple(lines))]
    if found.first_differing is not None:
        blocks.append(_steps_table(runs, found.first_differing if found.first_beyond is None else found.first_beyond))
    ends = (int(both.steps[0]), int(both.steps[-1]))
    return [*blocks, Panel("Curves", tuple(draw_curves(both.left.tolist(), both.right.tolist(), ends)))]


def _steps_table(runs: dict[str, list[LossCurve]], step: int) -> Table:
    from compare.loss_curves import common_steps

    both = common_steps(runs["left"][0], runs["right"][0])
    at = both.steps.tolist().index(step)
    places = range(max(0, at - 1), min(len(both.steps), at - 1 + SHOWN_STEPS))
    rows = tuple(
        (int(both.steps[k]), f"{both.left[k]:.9g}", f"{both.right[k]:.9g}", float(both.left[k]) - float(both.right[k]))
        for k in places
    )
    marks = {number: "bad" for number, row in enumerate(rows) if row[0] == step}
    return Table(f"Around step {step}", ("Step", "Left", "Right", "Difference"), rows, marks)


def _pair_data(found: LossFinding) -> dict[str, Any]:
    from compare.loss_curves import RULE_OF_THUMB

    return {
        "compared_steps": found.steps,
        "first_differing_step": found.first_differing,
        "first_unexplained_step": found.first_beyond,
        "largest_difference": found.largest,
        "largest_difference_step": found.largest_step,
        "mean_difference": found.mean,
        "p_value": found.p_value,
        "test": "sign flips of 16 stretches",
        "batch_noise": found.sigma,
        "rule_of_thumb": {"limit": RULE_OF_THUMB, "steps_above": found.above_rule},
        "not_finite": [{"side": side, "run": 0, "step": step} for side, step in found.not_finite.items()],
    }


# --------------------------------------------------------------------------------------------------- several runs


def _runs_blocks(runs: dict[str, list[LossCurve]], found: RunsFinding) -> list[Block]:
    from compare.loss_curves import RULE_OF_THUMB

    above = found.mean is not None and abs(found.mean) > RULE_OF_THUMB
    stretch = f"{found.first_beyond} to {found.last_of_stretch}" if found.first_beyond is not None else "none"
    lines = [
        f"Runs: {len(runs['left'])} left, {len(runs['right'])} right, {found.steps} steps in all of them",
        f"Permutation test: p = {_shown(found.p_value)} of {found.deals} ways to deal the runs",
        f"First steps that differ by themselves: {stretch}",
        f"Mean difference (left - right): {_shown(found.mean)}",
        f"Spread of the runs: left {_shown(found.left_spread)}, right {_shown(found.right_spread)}",
        f"Users' rule of thumb: the mean difference is {'above' if above else 'not above'} {RULE_OF_THUMB:g}",
        *[f"Not finite: {side} run {number + 1} from step {step} on" for side, number, step in found.not_finite],
    ]
    return [Panel("Loss", tuple(lines)), *_means_picture(runs)]


def _means_picture(runs: dict[str, list[LossCurve]]) -> Sequence[Block]:
    from functools import reduce

    import numpy as np

    from precision_tool.curve_picture import draw_curves

    steps = reduce(np.intersect1d, [curve.steps for side in SIDES for curve in runs[side]])
    means = [
        np.mean([curve.values[np.searchsorted(curve.steps, steps)] for curve in runs[side]], axis=0).tolist()
        for side in SIDES
    ]
    return [Panel("Means of the runs", tuple(draw_curves(means[0], means[1], (int(steps[0]), int(steps[-1])))))]


def _runs_data(found: RunsFinding) -> dict[str, Any]:
    from compare.loss_curves import RULE_OF_THUMB

    above = None if found.mean is None else abs(found.mean) > RULE_OF_THUMB
    return {
        "compared_steps": found.steps,
        "first_unexplained_step": found.first_beyond,
        "last_step_of_stretch": found.last_of_stretch,
        "mean_difference": found.mean,
        "p_value": found.p_value,
        "test": f"permutation of runs, {found.deals} deals",
        "spread": {"left": found.left_spread, "right": found.right_spread},
        "rule_of_thumb": {"limit": RULE_OF_THUMB, "mean_above": above},
        "not_finite": [{"side": side, "run": number, "step": step} for side, number, step in found.not_finite],
    }


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

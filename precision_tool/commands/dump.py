"""``dump``: the user's training script with recording switched on, or a plan of what that takes."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dumpers.errors import DataError, UsageError
from precision_tool.result import ExitCode, Result, Table

if TYPE_CHECKING:
    from precision_tool.commands.base import Progress
    from precision_tool.job import JobEnd
    from precision_tool.workbench import Workbench

_OPTIONS: Final = (
    ("steps", "STEPS", "TF_DUMP_STEP", "steps, as 0|3-5|10 (0)"),
    ("mode", "MODE", "TF_DUMP_MODE", "full, shapes, stats, sketch or hash (full)"),
    ("format", "FORMAT", "TF_DUMP_FORMAT", "of full values: pack, or npy for a file a tensor (pack)"),
    ("ops", "REGEX", "TF_DUMP_OPS", "ops in whose name it is found"),
    ("op-types", "REGEX", "TF_DUMP_OP_TYPES", "ops whose whole type it matches"),
    ("dtypes", "NAMES", "TF_DUMP_DTYPES", "these dtypes, as float32,int64"),
    ("scopes", "NAMES", "TF_DUMP_SCOPES", "ops in these name scopes, as tower/dense,gradients"),
    ("sizes", "RANGE", "TF_DUMP_SIZES", "tensors of so many bytes, as 1K-64M"),
    ("tensors", "FILE", "TF_DUMP_TENSORS", "the tensors that a file names, one a line"),
    ("budget", "BYTES", "TF_DUMP_BUDGET", "so many bytes a step, the smallest tensors first"),
    ("ranks", "RANKS", "TF_DUMP_RANKS", "these ranks of a job, as 0|2-3 (all)"),
    ("loop-turns", "N", "TF_DUMP_LOOP_TURNS", "turns of a loop that are recorded (8)"),
)


class Dump:
    """Run a training script with recording switched on, or plan what that takes.

    The script wraps its session or model with sess_dump, estimator_dump, keras_dump or function_dump; dump sets what
    these read from the environment (each option stands for a TF_DUMP_ setting) and says what was recorded.

    With --plan the script runs up to its first chosen step, of which only shapes are taken, and is then ended; or the
    step of a record is taken, the last one if none is named. The answer: how many tensors and bytes there are by op
    type, what the chosen options keep, and the cut set: the tensors within --cut that leave the fewest ops to suspect
    when the first of them differs. --out writes their names for --tensors.

    With --guard the script runs without recording and with it, and hashes of what it fetches and of its variables are
    compared step by step: recording changed no bit, or what moved, where, and why. Two or three folders of such hashes,
    written elsewhere by TF_DUMP_GUARD, are compared in place of a script: without recording, with it, without it again.
    """

    name = "dump"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes what to record, and the script."""
        for option, value, _, text in _OPTIONS:
            parser.add_argument(f"--{option}", metavar=value, help=text)
        parser.add_argument("--python", metavar="EXE", help="interpreter of the script (the one that runs this)")
        parser.add_argument("--plan", action="store_true", help="plan only")
        parser.add_argument("--guard", action="store_true", help="prove that recording changes no bit of the job")
        parser.add_argument("--cut", metavar="SIZE", help="bytes of the cut set, as 64M or 2%% of the step (2%%)")
        parser.add_argument("--out", metavar="FILE", help="with --plan: write the names of the cut set")
        parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module instead of a script")
        parser.add_argument(
            "words",
            nargs=argparse.REMAINDER,
            metavar="SCRIPT [ARGS]",
            help="script, or with --plan a record, with --guard ladders",
        )

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Records or plans."""
        chosen = _settings_of(args)
        _check(chosen)
        if args.guard:
            return _guard(args, chosen, progress)
        if args.plan:
            return _plan(args, chosen, workbench, progress)
        if args.cut is not None or args.out is not None:
            raise UsageError("dump: --cut and --out belong to --plan")
        return _record(args, chosen, workbench)


def _guard(args: argparse.Namespace, chosen: Mapping[str, str], progress: Progress) -> Result:
    from precision_tool.commands import dump_guard
    from precision_tool.job import job_environment, script_words

    if args.plan or args.cut is not None or args.out is not None:
        raise UsageError("dump: --plan, --cut and --out do not go with --guard")
    if args.module is None and dump_guard.are_ladders(args.words):
        return dump_guard.compare(args.words)
    words = script_words(args.words, module=args.module, python=args.python)
    return dump_guard.run(words, job_environment(chosen), progress)


def _settings_of(args: argparse.Namespace) -> dict[str, str]:
    """What the options say, by the name of the setting."""
    given = ((setting, getattr(args, option.replace("-", "_"))) for option, _, setting, _ in _OPTIONS)
    return {setting: value for setting, value in given if value is not None}


def _check(chosen: Mapping[str, str]) -> None:
    """Refuses here what the hooks would refuse in the script, seconds later."""
    from dumpers.capture.selection import read_selection
    from dumpers.capture.steps import parse_steps
    from dumpers.settings import read_settings

    settings = read_settings({**os.environ, **chosen})
    parse_steps(settings.tf_dump_step)
    parse_steps(settings.dump_ranks)
    read_selection(settings)


def _record(args: argparse.Namespace, chosen: Mapping[str, str], workbench: Workbench) -> Result:
    from precision_tool.job import job_environment, run_job, script_words, shown_words

    words = script_words(args.words, module=args.module, python=args.python)
    root = workbench.settings.root_dir.resolve()
    place = workbench.workspace.tf_debug
    before = set(_records_in(place))
    ended = run_job(words, job_environment({**chosen, "ROOT_DIR": str(root)}), lend_terminal=workbench.lends_terminal)
    made = [record for record in _records_in(place) if record not in before]
    script = shown_words(words)
    if not made:
        raise DataError(_nothing(script, ended, str(place)))
    rows = [_row(record, place) for record in made]
    broken = [row["record"] for row in rows if not row["complete"]]
    problems = [f"{name} is not complete" for name in broken]
    if ended.exit_code:
        problems.append(f"{script} ended with exit code {ended.exit_code}")
    return Result(
        title=f"{len(rows)} step{'' if len(rows) == 1 else 's'} of {script} recorded in {place}",
        blocks=[Table("Recorded", ("Record", "Step", "Tensors", "Bytes", "Complete"), tuple(map(_cells, rows)))],
        notes=[*ended.tail, *problems, "tf_dump extracts the last step of the reference for comparison"],
        data={
            "script": script,
            "exit_code": ended.exit_code,
            "output": list(ended.tail),
            "directory": str(place),
            "records": rows,
        },
        files=made,
        problems=problems,
        exit_code=ExitCode.DATA if problems else ExitCode.CLEAN,
    )


def _cells(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["record"], row["step"], row["tensors"], row["bytes"], "yes" if row["complete"] else "no")


def _records_in(place: Path) -> Iterator[Path]:
    """All records, by rank and the oldest first."""
    from dumpers.tf_dump import recorded_ranks, recorded_runs

    folders = [*recorded_ranks(place).values()]
    seen = [run for folder in folders for run in reversed(recorded_runs(folder))]
    own = [run for run in reversed(recorded_runs(place)) if run.parent == place]
    return iter([*own, *seen])


def _row(record: Path, place: Path) -> dict[str, Any]:
    """What a manifest says of its record in short."""
    from dumpers.formats.tf_record import RECORD_FILE

    size = sum(file.stat().st_size for file in record.rglob("*") if file.is_file())
    found: dict[str, Any] = {"record": str(record.relative_to(place)), "step": None, "tensors": None, "bytes": size}
    try:
        tree = json.loads((record / RECORD_FILE).read_bytes())
        found.update(step=tree["step"], tensors=len(tree["tensors"]), complete=tree["complete"] is True)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        found.update(complete=False)
    return found


def _nothing(script: str, ended: JobEnd, place: str) -> str:
    said = f": {ended.tail[-1]}" if ended.tail else ""
    if ended.exit_code:
        return f"{script} ended with exit code {ended.exit_code} and recorded nothing{said}"
    return (
        f"{script} recorded nothing in {place}; wrap its session with sess_dump, its model with keras_dump, or use "
        f"estimator_dump (docs/how-to/capture.md), and choose a step that it reaches{said}"
    )


def _plan(args: argparse.Namespace, chosen: Mapping[str, str], workbench: Workbench, progress: Progress) -> Result:
    from dumpers.capture.selection import read_selection
    from dumpers.settings import read_settings
    from precision_tool.commands.dump_report import planned
    from precision_tool.dump_plan import DEFAULT_CUT, make_dump_plan

    settings = read_settings({**os.environ, **chosen})
    selection, cut = read_selection(settings), args.cut or DEFAULT_CUT
    out = None if args.out is None else Path(args.out)
    if args.module is None and (not args.words or Path(args.words[0]).is_dir()):
        if args.words[1:]:
            raise UsageError(f"dump --plan: {args.words[1]!r} stands behind a record; give a record or a script")
        record = _record_named(args.words, workbench)
        return planned(make_dump_plan(record, selection, cut), str(record), out)
    with tempfile.TemporaryDirectory(prefix="dump-plan-") as folder:
        record, script = _shapes_of(args, settings.tf_dump_step, Path(folder), progress)
        return planned(make_dump_plan(record, selection, cut), script, out)


def _record_named(words: list[str], workbench: Workbench) -> Path:
    """The record that a folder is or has, its last one."""
    from dumpers.formats.tf_record import is_tf_record

    place = Path(words[0]) if words else workbench.workspace.tf_debug
    if is_tf_record(place):
        return place
    found = [run for run in _newest(place) if is_tf_record(run)]
    if not found:
        raise DataError(f"{place}: has no record of a step; record one with dump SCRIPT, or name a script to plan for")
    return found[0]


def _newest(place: Path) -> list[Path]:
    from dumpers.tf_dump import recorded_runs
    from dumpers.workspace import Workspace

    for folder in (place, Workspace(place).tf_debug, Workspace(place / "precision_data").tf_debug):
        if runs := recorded_runs(folder):
            return runs
    return []


def _shapes_of(args: argparse.Namespace, steps: str, folder: Path, progress: Progress) -> tuple[Path, str]:
    """Runs the script up to its first chosen step, of which shapes are recorded below ``folder``.

    Returns:
        The record, and the script.
    """
    from dumpers.formats.tf_record import RECORD_FILE
    from dumpers.settings import DATA_DIRECTORY
    from dumpers.workspace import Workspace
    from precision_tool.job import job_environment, run_job, script_words, shown_words

    first = steps.replace(",", "|").split("|")[0].split("-")[0].strip() or "0"
    words = script_words(args.words, module=args.module, python=args.python)
    script = shown_words(words)
    place = Workspace(folder / DATA_DIRECTORY).tf_debug
    settings = dict.fromkeys((setting for _, _, setting, _ in _OPTIONS), "")
    settings.update(TF_DUMP_MODE="shapes", TF_DUMP_STEP=first, ROOT_DIR=str(folder))

    def recorded() -> list[Path]:
        return [run for run in _records_in(place) if (run / RECORD_FILE).exists()]

    progress(f"{script} up to step {first}", 0, 1)
    ended = run_job(words, job_environment(settings), lend_terminal=False, until=lambda: bool(recorded()))
    progress(f"{script} up to step {first}", 1, 1)
    found = recorded()
    if not found:
        raise DataError(_nothing(script, ended, "a trial"))
    return found[0], script

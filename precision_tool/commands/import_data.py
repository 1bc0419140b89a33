"""``import``: what the device, TensorFlow or another tool left behind -> the places of ``precision_data``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import UsageError
from precision_tool.result import Block, ExitCode, Result, Table

if TYPE_CHECKING:
    from dumpers.importing.plan import Placement, Plan
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

SHOWN = 50
"""Lines of a list that are shown; the number is always said."""

_LONGEST_NAME = 100


class ImportData:
    """Put dumps, graphs, records and reports into the right places of precision_data, by link.

    PATH is a file or folder of any kind that info knows, or a tree with all of them mixed. Each is recognised, linked
    into its place (--copy copies), and the answer says what it was taken for, where it went, and what could not be
    placed. Nothing is ever overwritten or mixed with other data: a second device run needs another --name. The same
    import again changes nothing. Afterwards verdict, vc, ni and ls need no paths.
    """

    name = "import"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths and options."""
        parser.add_argument("paths", nargs="*", metavar="PATH", help="file or folder")
        parser.add_argument("--as", dest="side", choices=("npu", "tf", "auto"), default="auto",
                            help="which side files are from that do not tell (auto: as recognised)")  # fmt: skip
        parser.add_argument("--name", default=None, metavar="RUN", help="name of the device run (debug_0)")
        parser.add_argument("--copy", action="store_true", help="copy instead of linking")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Imports; exit code 3 when nothing could be placed."""
        if not args.paths:
            raise UsageError("import: no path given; import PATH... takes files and folders of any kind")
        if args.name is not None:
            _check_name(args.name)
        return import_paths([Path(path) for path in args.paths], args, workbench, progress)


def _check_name(name: str) -> None:
    plain = name.isprintable() and "/" not in name and "\\" not in name and name.strip() == name
    if not plain or name in ("", ".", "..") or len(name.encode()) > _LONGEST_NAME:
        raise UsageError(f"import: --name {name!r} is no name for a folder; for example debug_1")


def import_paths(paths: Sequence[Path], args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
    """Recognises, plans and places."""
    from dumpers.importing.place import carry_out
    from dumpers.importing.plan import make_plan
    from dumpers.importing.units import recognise

    workspace = workbench.workspace
    found = recognise(paths, inside=workspace.root, progress=lambda seen: progress("looking at files", seen, 0))
    plan = make_plan(found, workspace, side=args.side, run=args.name)
    made = carry_out(plan, copy=args.copy, progress=lambda done, total: progress("placing", done, total))
    return _answer(plan, found.notes, made, args, workspace.root)


def _answer(plan: Plan, notes: list[str], made: Sequence[Path], args: argparse.Namespace, root: Path) -> Result:
    rows = [_row(placement, root, copied=args.copy) for placement in plan.placements]
    refused = [(str(path), reason) for path, reason in plan.refused]
    blocks: list[Block] = []
    for title, columns, lines in (
        ("Placed", ("What", "Files", "From", "To", "How"), rows),
        ("Not placed", ("Path", "Reason"), refused),
    ):
        if lines:
            more = f" (the first {SHOWN} of {len(lines)})" if len(lines) > SHOWN else ""
            blocks.append(Table(title + more, columns, tuple(lines[:SHOWN])))
    placed = sum(len(p.todo) + p.present for p in plan.placements)
    nothing = not plan.placements
    said = [f"{path}: {reason}" for path, reason in refused]
    if nothing and not said:
        said = [f"{', '.join(args.paths)}: holds no file; give the folder that the dump was written to"]
        notes = [*notes, *said]
    return Result(
        title=f"{placed} files in {root}, {len(refused)} paths not placed" if refused else f"{placed} files in {root}",
        blocks=blocks,
        notes=notes,
        data={
            "root": str(root),
            "placed": [_data(placement, row[4]) for placement, row in zip(plan.placements, rows, strict=True)],
            "not_placed": [{"path": path, "reason": reason} for path, reason in refused],
            "made": len(made),
        },
        files=list(made),
        exit_code=ExitCode.DATA if nothing else ExitCode.CLEAN,
        problems=said[:SHOWN] if nothing else [],
    )


def _row(placement: Placement, root: Path, *, copied: bool) -> tuple[str, int, str, str, str]:
    unit = placement.unit
    total = len(placement.todo) + placement.present
    how = "there already" if not placement.todo else "copied" if copied else "linked"
    if placement.todo and placement.present:
        how = f"{how}, {placement.present} there already"
    return unit.kind.title, total, str(unit.shown), placement.place.relative_to(root).as_posix(), how


def _data(placement: Placement, how: str) -> dict[str, Any]:
    unit = placement.unit
    return {
        "kind": unit.kind.name,
        "title": unit.kind.title,
        "why": unit.why,
        "from": str(unit.shown),
        "to": str(placement.place),
        "files": len(placement.todo) + placement.present,
        "how": how,
    }

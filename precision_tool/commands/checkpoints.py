"""``ckpt``: what differs between two checkpoints, their variables and their embedding tables."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_tool.commands.pairing_report import add_map_option, map_of
from precision_tool.result import Block, ExitCode, Result

if TYPE_CHECKING:
    from compare.checkpoints import CheckpointDiff
    from compare.sparse_tables import TreeDiff
    from dumpers.formats.checkpoint_files import CheckpointFiles
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


class CompareCheckpoints:
    """Compare two checkpoints variable by variable and table by table, the lowest cosine first.

    A is under test, B is the reference; each is the prefix of a checkpoint (model.ckpt-100), one of its files, or the
    folder that it lies in: then the one that the folder's state file names, else the one with the highest step. Version
    1 and 2, saved by name or from objects; TensorFlow is not needed. Integers and strings are compared exactly. The
    embedding tables saved beside it (sparse-model.ckpt-100), or such a folder by itself, are compared key by key.
    Exit code 1 when anything differs or is missing on one side, 3 when anything could not be read.
    """

    name = "ckpt"
    aliases: tuple[str, ...] = ("ckpt_compare",)
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds both checkpoints, threshold and limit, what is to be done with names, and the file to write."""
        parser.add_argument("left", metavar="A", help="checkpoint under test")
        parser.add_argument("right", metavar="B", help="checkpoint of the reference")
        parser.add_argument("-c", "--cos_sim", type=float, default=0.98, help="threshold of the cosine (0.98)")
        parser.add_argument("-l", "--limit", type=int, default=20, help="rows to show in each table (20)")
        add_map_option(parser)
        parser.add_argument(
            "--strip",
            action="append",
            default=[],
            metavar="SCOPE",
            help="scope to take away from names; may be repeated",
        )
        parser.add_argument(
            "--trust-index", action="store_true", help="do not read variables whose stored checksums are equal"
        )
        parser.add_argument("--csv", default=None, metavar="FILE", help="write every row there")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Compares; exit code 1 when anything differs, 3 when anything could not be read."""
        _check_options(args)
        sides = (_Side.of(Path(args.left)), _Side.of(Path(args.right)))
        _check_sides(*sides)
        diff = _dense(sides, args, progress)
        trees = _sparse(sides, progress)
        result = _result(sides, diff, trees, args)
        if args.csv is not None:
            from precision_tool.commands.checkpoint_csv import write_rows

            write_rows(Path(args.csv), diff, trees)
        return result


@dataclass(frozen=True)
class _Side:
    """What a path means.

    Attributes:
        path: As given.
        files: The dense part, None without one.
        tree: The sparse part, None without one.
        only_tree: The path is a sparse part itself: nobody asked for a dense one.
    """

    path: Path
    files: CheckpointFiles | None
    tree: Path | None
    only_tree: bool = False

    @classmethod
    def of(cls, path: Path) -> _Side:
        from dumpers.errors import DataError
        from dumpers.formats.checkpoint import locate_checkpoint
        from dumpers.formats.sparse_tree import is_sparse_tree, newest_sparse_tree, sparse_tree_of

        if is_sparse_tree(path):
            return cls(path, None, path, only_tree=True)
        try:
            files = locate_checkpoint(path)
        except DataError:
            tree = newest_sparse_tree(path) if os.path.isdir(path) else sparse_tree_of(path)
            if tree is None:
                raise
            return cls(path, None, tree)
        return cls(path, files, sparse_tree_of(files.prefix))

    def data(self) -> dict[str, Any]:
        """The side for ``--json``."""
        files = self.files
        return {
            "prefix": str(files.prefix) if files else None,
            "version": files.version if files else None,
            "notes": list(files.notes) if files else [],
            "checkpoints": [path.name for path in files.all] if files else [],
            "sparse": str(self.tree) if self.tree else None,
        }

    @property
    def name(self) -> str:
        """For the title."""
        return str(self.files.prefix if self.files else self.tree)


def _check_options(args: argparse.Namespace) -> None:
    from dumpers.errors import UsageError

    if not -1 <= args.cos_sim <= 1:
        raise UsageError(f"ckpt: -c {args.cos_sim:g}: a cosine is between -1 and 1")
    if args.limit < 0:
        raise UsageError(f"ckpt: -l {args.limit}: the number of rows cannot be negative")
    if not all(scope.strip("/") for scope in args.strip):
        raise UsageError("ckpt: --strip: an empty scope takes nothing away; give one like tower_0")
    if args.csv is not None and (Path(args.csv).is_dir() or not Path(args.csv).absolute().parent.is_dir()):
        raise UsageError(f"ckpt: --csv {args.csv}: give a file in a folder that exists")


def _check_sides(left: _Side, right: _Side) -> None:
    """Something must be there on both sides."""
    from dumpers.errors import DataError

    if (left.files is None or right.files is None) and (left.tree is None or right.tree is None):
        texts = [f"{side.path} has {'variables' if side.files else 'embedding tables'} only" for side in (left, right)]
        raise DataError(f"{texts[0]}, {texts[1]}: nothing to compare; give two checkpoints of one model")


def _one_sided(sides: tuple[_Side, _Side]) -> list[str]:
    """Parts that only one side has although the other was asked for as a whole."""
    found = []
    for one, other, where in ((sides[0], sides[1], "right"), (sides[1], sides[0], "left")):
        if one.files and not other.files and not other.only_tree:
            found.append(f"the variables of {one.files.prefix} are missing on the {where}")
        if one.tree and not other.tree:
            found.append(f"the embedding tables of {one.tree} are missing on the {where}")
    return found


def _dense(sides: tuple[_Side, _Side], args: argparse.Namespace, progress: Progress) -> CheckpointDiff | None:
    from compare.checkpoints import compare_checkpoints
    from dumpers.formats.checkpoint import read_checkpoint

    files = [side.files for side in sides]
    if files[0] is None or files[1] is None:
        return None
    progress("reading the indexes", 0, 0)
    dumps: list[Dump] = [read_checkpoint(found) for found in files if found is not None]
    names = map_of(args)
    renames = names.resolve(record.op for record in dumps[0]) if names is not None else None
    diff = compare_checkpoints(
        dumps[0],
        dumps[1],
        scopes=args.strip,
        targets={name: target.op for name, target in renames.targets.items()} if renames is not None else None,
        trust_index=args.trust_index,
        threads=_threads(),
        progress=partial(progress, "comparing variables"),
    )
    return replace(diff, notes=(*diff.notes, *renames.unused)) if renames is not None else diff


def _sparse(sides: tuple[_Side, _Side], progress: Progress) -> TreeDiff | None:
    from dumpers.formats.sparse_tree import read_sparse_tree

    if sides[0].tree is None or sides[1].tree is None:
        return None
    from compare.sparse_tables import compare_trees

    trees = [read_sparse_tree(side.tree) for side in sides if side.tree is not None]
    return compare_trees(trees[0], trees[1], threads=_threads(), progress=partial(progress, "comparing keys"))


def _threads() -> int:
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _result(
    sides: tuple[_Side, _Side], diff: CheckpointDiff | None, trees: TreeDiff | None, args: argparse.Namespace
) -> Result:
    from precision_tool.commands import checkpoint_report, table_report

    parts, problems, notes = [], [], [note for side in sides if side.files for note in side.files.notes]
    blocks: list[Block] = []
    data: dict[str, Any] = {"left": sides[0].data(), "right": sides[1].data(), "threshold": args.cos_sim}
    if diff is not None:
        parts.append(checkpoint_report.heading(diff))
        blocks += checkpoint_report.tables(diff, args.cos_sim, args.limit)
        notes += [*checkpoint_report.problem_lines(diff), *diff.notes]
        problems += checkpoint_report.problems(diff)
        data |= checkpoint_report.data(diff, args.cos_sim)
    if trees is not None:
        parts.append(table_report.heading(trees))
        blocks += table_report.tables(trees, args.cos_sim, args.limit)
        notes += table_report.problem_lines(trees)
        problems += table_report.problem_lines(trees)
        data |= table_report.data(trees)
    one_sided = _one_sided(sides)
    data["one_sided"] = one_sided
    files = [Path(args.csv)] if args.csv is not None else []
    return Result(
        title=f"{sides[0].name} against {sides[1].name}: {'; '.join(parts)}",
        blocks=blocks,
        notes=[*notes, *one_sided, *(f"every row is in {path}" for path in files)],
        data=data,
        files=files,
        exit_code=_exit_code((diff, trees), one_sided),
        problems=problems,
    )


def _exit_code(parts: tuple[CheckpointDiff | TreeDiff | None, ...], one_sided: list[str]) -> ExitCode:
    """Unreadable data win over a difference."""
    there = [part for part in parts if part is not None]
    if any(part.unreadable for part in there):
        return ExitCode.DATA
    return ExitCode.FOUND if one_sided or any(part.different for part in there) else ExitCode.CLEAN

"""From units to places: what would be linked where, and what is refused and why. Nothing is written here."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from dumpers.formats import kinds
from dumpers.importing.targets import (
    device_place,
    folder_time,
    graph_names,
    overflow_place,
    result_place,
    run_folder_name,
    run_in_path,
)
from dumpers.importing.units import Found, Unit
from dumpers.workspace import DEFAULT_RUN, Workspace

As = Literal["npu", "tf", "auto"]

_RANK: Final = {"npu_dump": 0, "npu_statistics": 1, "npu_converted_npy": 2}
_BOTH_SIDES: Final = frozenset({"npz", "torch", "msprobe", "npy"})
_WHOLE: Final = frozenset({"npz", "torch", "msprobe", "tfdbg_v2"})
"""Dumps of their own: one among the files of another dump is no part of it, and no reader takes both."""

_NO_SIDE: Final = "the files do not tell which side they are from; say --as npu or --as tf"


class Refused(Exception):  # noqa: N818  not an error of the program: one unit stays where it is
    """A unit has no place, or its place is taken; the text says why and what to do."""


@dataclass(frozen=True)
class Step:
    """One thing to put in place; without a source an empty file.

    Attributes:
        copy: Copied in any case, where others may be linked.
    """

    source: Path | None
    target: Path
    copy: bool = False


@dataclass(frozen=True)
class Placement:
    """A unit with its place.

    Attributes:
        area: Folder that belongs to one dump alone; None where things of different origin may lie side by side.
        root: Where the unit's dump lies; of two dumps for one area the first has it.
        todo: Steps that are not done yet.
        present: How many are.
    """

    unit: Unit
    place: Path
    area: Path | None
    root: Path
    todo: tuple[Step, ...]
    present: int = 0


@dataclass
class Plan:
    """What to do."""

    placements: list[Placement] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)


def make_plan(found: Found, workspace: Workspace, *, side: As, run: str | None) -> Plan:
    """Finds a place for every unit.

    Of several device dumps the first one given (of one path, dumps before converted copies, the newest first) becomes
    the run; the others are refused, never mixed into it. The same holds for reference dumps.

    Args:
        found: What was recognised.
        workspace: The data tree.
        side: What files are that do not tell it.
        run: Name of the device run; None for the one in the path, else ``debug_0``.
    """
    planner = _Planner(workspace, side, run)
    plan = Plan(refused=list(found.refused))
    for unit in sorted(found.units, key=_order):
        try:
            plan.placements.append(planner.place(unit))
        except Refused as error:
            plan.refused.append((unit.shown, f"{unit.kind.title}: {error}"))
    _check_areas(plan)
    return plan


def _order(unit: Unit) -> tuple[int, int, tuple[int, ...]]:
    rank = _RANK.get(unit.kind.name)
    if rank is None:
        return (unit.argument, -1, ())
    newest = next((int(part) for part in unit.folder.parts if len(part) == 14 and part.isdigit()), 0)
    return (unit.argument, rank, (-newest,))


class _Planner:
    """Finds places, and remembers which dump has which area."""

    def __init__(self, workspace: Workspace, side: As, run: str | None) -> None:
        self.workspace = workspace
        self.side = side
        self.run = run
        self._owners: dict[Path, Path] = {}
        self._planned: dict[Path, Path | None] = {}

    def place(self, unit: Unit) -> Placement:
        """Returns the placement of a unit.

        Raises:
            Refused: it has none.
        """
        place, area, root, steps = self._steps(unit)
        self._check_free(steps)
        todo = [step for step in steps if not _done(step)]
        if area is not None:
            self._claim(area, root, whole=unit.kind.name in _WHOLE)
        self._planned.update({step.target: step.source for step in steps})
        return Placement(unit, place, area, root, tuple(todo), len(steps) - len(todo))

    def _check_free(self, steps: Sequence[Step]) -> None:
        for step in steps:
            other = self._planned.get(step.target)
            if other is None or step.source is None or _same(step.source, other):
                continue
            how = "give it another --name" if "npu" in step.target.parts[-4:] else "import one of them"
            raise Refused(f"{_tail(step.target)} gets {other}; {how}")

    def _claim(self, area: Path, root: Path, *, whole: bool) -> None:
        owner = self._owners.setdefault(area, root)
        if root != owner and (whole or not root.is_relative_to(owner)):
            how = "import it by itself with another --name" if "npu" in area.parts[-3:] else "keep one of them"
            raise Refused(f"{_tail(area)} gets the one from {owner}; two are never mixed, {how}")

    def _steps(self, unit: Unit) -> tuple[Path, Path | None, Path, list[Step]]:
        """Returns (place, area, root, steps)."""
        kind = unit.kind.name
        forced = self.side if self.side != "auto" else ""
        if kind in ("overflow_folder", "overflow_record") and forced != "npu":
            place = self.workspace.overflow / overflow_place(unit)
            return place, None, unit.folder, _all(unit, place)
        if kind in (*_RANK, "overflow_folder", "overflow_record"):
            return self._leaf(unit, forced)
        if kind in _BOTH_SIDES:
            return self._either(unit, forced)
        if kind in ("tf_npy", "tfdbg_v2", "tensor_index"):
            if forced == "npu":
                raise Refused("comes from TensorFlow and cannot be read as a device dump; leave --as npu out")
            return self._reference(unit)
        if kind == "hdf5":
            if not forced:
                raise Refused(_NO_SIDE)
            place = self.workspace.root / "pt" / ("npu" if forced == "npu" else "gpu")
            return place, None, unit.folder, _all(unit, place)
        if unit.kind.place == kinds.GRAPHS:
            return self._graph(unit)
        return self._shared(unit)

    def _leaf(self, unit: Unit, forced: str) -> tuple[Path, Path | None, Path, list[Step]]:
        if forced == "tf":
            raise Refused("comes from a device; leave --as tf out, and give another run with --name")
        root, below = device_place(unit)
        area = self.workspace.npu_dump(self._run(unit.folder))
        return area / below, area, root, _all(unit, area / below)

    def _run(self, folder: Path) -> str:
        return self.run or run_in_path(folder) or DEFAULT_RUN

    def _either(self, unit: Unit, forced: str) -> tuple[Path, Path | None, Path, list[Step]]:
        """Dumps of other tools, which either side may have made."""
        if not forced:
            raise Refused(_NO_SIDE)
        if forced == "tf":
            return self._reference(unit)
        if unit.kind.name == "npy":
            raise Refused("its name tells no op; a device dump needs <type>.<op>.<task>.<time>.<input|output>.<n>.npy")
        area = self.workspace.npu_dump(self._run(unit.folder))
        place = area / folder_time(unit.folder) / "0" / "graph" / "1" / "0"
        return place, area, unit.shown, _all(unit, place)

    def _reference(self, unit: Unit) -> tuple[Path, Path | None, Path, list[Step]]:
        area = self.workspace.tf_dump
        root = unit.folder if unit.kind.name in ("tf_npy", "npy", "tensor_index") else unit.shown
        owner = self._owners.get(area, root)
        below = unit.folder.relative_to(owner) if unit.folder.is_relative_to(owner) else Path()
        return area / below, area, root, _all(unit, area / below)

    def _graph(self, unit: Unit) -> tuple[Path, Path | None, Path, list[Step]]:
        place = self.workspace.npu_graph(self._run(unit.folder))
        name, empty = graph_names(unit)
        steps = [Step(unit.shown, place / name)]
        if empty is not None and not (unit.folder / empty).is_file():
            steps.append(Step(None, place / empty))
        return place, None, unit.folder, steps

    def _shared(self, unit: Unit) -> tuple[Path, Path | None, Path, list[Step]]:
        """Places where things of different origin lie side by side under their own names."""
        kind, root = unit.kind, self.workspace.root
        if kind.place == kinds.RAW_RUNS:
            place = self.workspace.tf_debug / run_folder_name(unit.folder)
            return place.parent, None, unit.folder, [Step(unit.folder, place)]
        if kind.place == kinds.RESULTS:
            folder, name = result_place(unit)
            place = self.workspace.vector_compare / folder
            return place, None, unit.folder, [Step(unit.shown, place / name)]
        if kind.name == "fusion_result":
            place = self.workspace.fusion
            return place, None, unit.folder, [Step(unit.shown, place / "fusion_result.json")]
        if not kind.place:
            raise Refused("has no place in precision_data; commands take it by its path")
        place = root / kind.place
        if not unit.files:
            return place, None, unit.folder, [Step(unit.folder, place / unit.folder.name)]
        return place, None, unit.folder, _all(unit, place)


def _all(unit: Unit, place: Path) -> list[Step]:
    """Every file of a unit under its own name; of a folder that is one thing every entry."""
    names: Sequence[str] = unit.files or sorted(os.listdir(unit.folder))
    return [Step(unit.folder / name, place / name) for name in names]


def _tail(area: Path) -> str:
    return "/".join(area.parts[-3:] if area.parts[-3] == "npu" else area.parts[-2:])


def _done(step: Step) -> bool:
    """Tells whether the target is the source already.

    Raises:
        Refused: something else lies there.
    """
    target = step.target
    if not os.path.lexists(target):
        return False
    if step.source is None or (target.exists() and _same(step.source, target)):
        return True
    what = "holds other data" if target.exists() else "is a link to nothing"
    raise Refused(f"{target} {what}; nothing is overwritten: give another --name or --root, or move that away")


def _same(source: Path, target: Path) -> bool:
    if source.samefile(target):
        return True
    if source.is_dir() or target.is_dir():
        return source.is_dir() and target.is_dir() and _same_tree(filecmp.dircmp(source, target, ignore=[], hide=[]))
    return filecmp.cmp(source, target, shallow=False)


def _same_tree(pair: filecmp.dircmp[str]) -> bool:
    if pair.left_only or pair.right_only or pair.funny_files or pair.common_funny:
        return False
    _, different, errors = filecmp.cmpfiles(pair.left, pair.right, pair.common_files, shallow=False)
    return not different and not errors and all(_same_tree(inner) for inner in pair.subdirs.values())


# ------------------------------------------------------------------------------------------------ what is there


def _check_areas(plan: Plan) -> None:
    """Refuses what would be mixed into a dump of other origin that lies in the tree already."""
    areas: dict[Path, list[Placement]] = {}
    for placement in plan.placements:
        if placement.area is not None:
            areas.setdefault(placement.area, []).append(placement)
    for area, placements in areas.items():
        roots = {os.path.realpath(placement.root) for placement in placements}
        planned = {step.target for p in placements for step in p.todo} | {
            p.place / name for p in placements for name in (p.unit.files or os.listdir(p.unit.folder))
        }
        other = next((path for path in _files(area) if path not in planned and not _from(path, roots)), None)
        if other is None:
            continue
        for placement in placements:
            plan.placements.remove(placement)
            reason = f"{_tail(area)} already holds another dump ({other.name}); nothing is mixed: "
            reason += "give another --name" if "npu" in area.parts[-3:] else "move it away, or give another --root"
            plan.refused.append((placement.unit.shown, f"{placement.unit.kind.title}: {reason}"))


def _files(area: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(area):
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))):
            yield Path(folder, name)


def _from(path: Path, roots: set[str]) -> bool:
    """Whether a link in the tree leads into one of the folders that are being imported."""
    if not path.is_symlink():
        return False
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(root) for root in roots)

"""Workbench: what is open - settings, workspace, dumps and graphs, each read once and only when asked for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import DataError, UsageError
from dumpers.names import flatten
from dumpers.settings import Settings, read_settings
from dumpers.workspace import DEFAULT_RUN, Workspace, newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dumpers.graph import Graph, Op
    from dumpers.records import Dump

_GRAPH_FILE = re.compile(r"ge_proto_(\d+)_(?P<name>[A-Za-z0-9_-]+)\.txt")
LEAST_SHARE = 0.1
"""A graph with fewer of a dump's ops is that of something else."""

OFFERED = 3
"""Names that are offered for one that is not there."""

_STAGES = ("Build", "PreRunAfterBuild")
_PROCESS_FOLDER = re.compile(r"pid_\d+_deviceid_\d+|\d+_\d+")


@dataclass(frozen=True)
class RunGraph:
    """One (sub-)graph of a device run: what ``ls`` and ``ni`` search."""

    run: str
    graph: Graph


def settings_for(root: str | None) -> Settings:
    """Returns the settings of the environment, with another folder that holds ``precision_data`` if one is given.

    Raises:
        DataError: the folder does not exist.
    """
    if root is None:
        return read_settings()
    if not Path(root).is_dir():
        raise DataError(f"{root}: no such folder; --root takes the folder that holds precision_data")
    return replace(read_settings(), root_dir=Path(root))


@dataclass
class Workbench:
    """What the commands work on.

    Attributes:
        settings: Settings as read at start.
        lends_terminal: Whether a command may let a child process write to the program's own terminal (shell and plain
            batch); otherwise the child's output is caught and stands in the result.
    """

    settings: Settings = field(default_factory=read_settings)
    lends_terminal: bool = False
    _dumps: dict[tuple[Path, int, Path | None], Dump] = field(default_factory=dict, repr=False)
    _graphs: dict[tuple[Path, int], tuple[Graph, ...]] = field(default_factory=dict, repr=False)
    _damaged: dict[Path, str] = field(default_factory=dict, repr=False)

    @property
    def workspace(self) -> Workspace:
        """The data tree."""
        return Workspace(self.settings.data_root)

    def read_dump(self, path: Path, *, graph: Graph | None = None) -> Dump:
        """Returns the dump in a directory, read once.

        Args:
            path: A leaf directory, a raw record, a folder of npy files, or a file that is a dump (npz, checkpoint).
            graph: Gives full names and original layouts; the one beside the dump if None.

        Raises:
            DataError: there is nothing there, or nothing that is a dump.
        """
        from dumpers.formats.registry import is_dump_file, read_dump

        if not path.exists() and not is_dump_file(path):
            raise DataError(f"{path}: no such directory; check the path")
        belonging = graph if graph is not None else self.graph_beside(path)
        key = (*_version(path), belonging.path if belonging else None)
        if key not in self._dumps:
            self._dumps[key] = read_dump(path, graph=belonging)
        return self._dumps[key]

    def read_graphs(self, path: Path) -> tuple[Graph, ...]:
        """Returns the graphs of one file (a device file may hold several).

        Raises:
            DataError: the file is missing or is no graph.
        """
        if not path.is_file():
            raise DataError(f"{path}: no such graph file; check the path after -g")
        key = _version(path)
        if key not in self._graphs:
            self._graphs[key] = tuple(_read_graphs(path))
        return self._graphs[key]

    def run_graphs(self, run: str) -> tuple[RunGraph, ...]:
        """Graphs of one device run: the newest build of each name, in the order of their numbers.

        Raises:
            DataError: there are graph files and none can be read.
        """
        return self._graphs_of((run,))

    def all_graphs(self) -> tuple[RunGraph, ...]:
        """Graphs of all device runs, ``debug_0`` first.

        Raises:
            DataError: there are graph files and none can be read.
        """
        return self._graphs_of(self.workspace.runs())

    def _graphs_of(self, runs: Iterable[str]) -> tuple[RunGraph, ...]:
        found: dict[tuple[str, str], RunGraph] = {}
        damaged: list[str] = []
        for run in runs:
            graphs, lost = self._readable(graph_files(self.workspace.npu_graph(run)))
            damaged += lost
            for graph in graphs:
                found.pop((run, graph.name), None)
                found[run, graph.name] = RunGraph(run, graph)
        if damaged and not found:
            raise DataError(damaged[0])
        return tuple(found.values())

    def _readable(self, files: Iterable[Path]) -> tuple[list[Graph], list[str]]:
        """Reads graph files; a damaged one spoils itself only, see :meth:`take_damaged`."""
        graphs: list[Graph] = []
        damaged: list[str] = []
        for path in files:
            try:
                graphs += self.read_graphs(path)
            except DataError as error:
                damaged.append(str(error))
                self._damaged[path] = str(error)
        return graphs, damaged

    def take_damaged(self) -> tuple[str, ...]:
        """Returns one line for each graph file that was passed over since the last call, because it is damaged."""
        damaged = tuple(self._damaged.values())
        self._damaged.clear()
        return damaged

    # ---------------------------------------------------------------------------------------------- device dumps

    def npu_leaves(self, run: str = DEFAULT_RUN) -> tuple[Path, ...]:
        """Leaf directories of a run's newest dump: one for each device, graph, model and step."""
        top = newest(self.workspace.npu_dump(run))
        return tuple(leaf_directories(top)) if top else ()

    def latest_leaves(self, run: str = DEFAULT_RUN) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Returns the leaves of the last step of each device, graph and model, and those of earlier steps."""
        groups: dict[Path, list[Path]] = {}
        for leaf in self.npu_leaves(run):
            groups.setdefault(leaf.parent, []).append(leaf)
        latest = {group: max(leaves, key=step_number) for group, leaves in groups.items()}
        earlier = [leaf for group, leaves in groups.items() for leaf in leaves if leaf != latest[group]]
        return tuple(latest[group] for group in sorted(latest)), tuple(earlier)

    def tf_dump_directory(self) -> Path | None:
        """The reference dump, None when it is empty."""
        return self.workspace.tf_dump if has_files(self.workspace.tf_dump) else None

    def last_reference_run(self) -> Path | None:
        """The last raw record of the reference run, None when there is none."""
        return _last_run(self.workspace.tf_debug)

    def reference_graph_beside(self, dump: Path) -> Graph | None:
        """Returns the framework graph that lies beside a reference dump (``.../tf_debug`` next to ``.../dump``)."""
        for folder in dump.resolve().parents:
            run = _last_run(folder / "tf_debug")
            if run is not None:
                return self.read_dump(run).graph
        return None

    def graph_beside(self, dump: Path) -> Graph | None:
        """Returns the device graph that lies beside a dump directory (``.../graph`` next to ``.../dump``).

        With several graphs the one that shares a name with a directory of the path is taken; with none such, the
        only one there is. Beside a damaged graph only the name counts: the damaged one may be the one that belongs.
        """
        for folder in dump.resolve().parents:
            files = graph_files(folder / "graph")
            if files:
                graphs, damaged = self._readable(files)
                return _matching(graphs, dump, alone=not damaged)
        return None

    def graph_of(self, file: Path, dump: Path) -> Graph:
        """Returns the graph of a file, the one that belongs to a dump directory if the file holds several.

        Raises:
            DataError: it cannot be read, or none of its graphs belongs to the dump: by their names, and by their ops.
        """
        graphs = self.read_graphs(file)
        graph = _matching(graphs, dump)
        if graph is None:
            names = ", ".join(graph.name for graph in graphs)
            raise DataError(f"{file}: holds several graphs ({names}) and none is named in {dump}; give another with -g")
        self._check_belongs(graph, file, dump)
        return graph

    def _check_belongs(self, graph: Graph, file: Path, dump: Path) -> None:
        known, dumped = _known_ops(graph), {record.op for record in self.read_dump(dump)}
        found = sum(1 for name in dumped if flatten(name) in known)
        if found < len(dumped) * LEAST_SHARE:
            raise DataError(
                f"{file}: graph {graph.name} has {found} of the {len(dumped)} ops in {dump}, so it belongs to another"
                " model or build; give another with -g"
            )


def _known_ops(graph: Graph) -> set[str]:
    """Flat names of a graph's ops and of the original ops; without what every compiler inserts (``trans_Cast_0``)."""
    return {flatten(name) for op in graph if op.originals for name in (op.name, *op.originals)}


def _read_graphs(path: Path) -> Sequence[Graph]:
    from dumpers.formats.ge_graph import read_ge_graphs
    from dumpers.formats.registry import read_graph

    if path.name.startswith("ge_proto") or path.suffix in (".json", ".om"):
        return read_ge_graphs(path)
    graph = read_graph(path)
    return read_ge_graphs(path) if graph.kind == "ge" else [graph]


def _last_run(folder: Path) -> Path | None:
    from dumpers.tf_dump import recorded_runs

    runs = recorded_runs(folder)
    return runs[0] if runs else None


def _matching(graphs: Sequence[Graph], dump: Path, *, alone: bool = True) -> Graph | None:
    parts = set(dump.resolve().parts)
    by_name = {graph.name: graph for graph in graphs}
    for name, graph in by_name.items():
        if parts & {name, f"{name}_0"}:
            return graph
    return next(iter(by_name.values())) if alone and len(by_name) == 1 else None


def graph_files(folder: Path) -> list[Path]:
    """Returns the build graphs in a folder, by number; the highest number of a name wins.

    Newer compilers write into a folder for each process (``pid_<pid>_deviceid_<id>``) below it. Numbers of different
    processes say nothing about each other: there the file written last wins.

    A json beside a text is the same graph converted: it is taken when it is not older, or when the text is empty
    (trees made by ``infer`` have such).
    """
    chosen: dict[str, tuple[int, Path]] = {}
    for place in _graph_folders(folder):
        for name, (number, path) in _builds_in(place).items():
            other = chosen.get(name)
            if other is None or path.stat().st_mtime_ns > other[1].stat().st_mtime_ns:
                chosen[name] = (number, path)
    return [_readable_form(path) for _, path in sorted(chosen.values(), key=lambda item: (item[0], item[1].name))]


def _graph_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    below = sorted(path for path in folder.iterdir() if _PROCESS_FOLDER.fullmatch(path.name) and path.is_dir())
    return [folder, *below]


def _builds_in(folder: Path) -> dict[str, tuple[int, Path]]:
    """Returns number and file of each build graph by the name after the number; the highest number of a name."""
    found: dict[str, tuple[int, Path]] = {}
    for path in folder.glob("ge_proto_*.txt"):
        match = _GRAPH_FILE.fullmatch(path.name)
        if match and _is_build(match["name"]):
            number = int(match[1])
            if match["name"] not in found or number > found[match["name"]][0]:
                found[match["name"]] = (number, path)
    return found


def _is_build(name: str) -> bool:
    return any(name == stage or name.endswith("_" + stage) for stage in _STAGES)


def _readable_form(text: Path) -> Path:
    json_form = text.with_name(text.name + ".json")
    if not json_form.is_file():
        return text
    newer = json_form.stat().st_mtime_ns >= text.stat().st_mtime_ns
    return json_form if newer or text.stat().st_size == 0 else text


def leaf_directories(folder: Path) -> Iterator[Path]:
    """Yields the directories that hold files, in order of path; links are followed, rings of links are not."""
    seen: set[Path] = set()
    for current, directories, files in os.walk(folder, followlinks=True):
        real = Path(current).resolve()
        if real in seen:
            directories.clear()
            continue
        seen.add(real)
        directories.sort(key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
        if files:
            yield Path(current)


def has_files(folder: Path) -> bool:
    """Tells whether there is any file below a folder."""
    return folder.is_dir() and any(True for _ in leaf_directories(folder))


def typed_name(text: str) -> str:
    """Returns a name as the user meant it: under the C locale other letters arrive as escaped bytes."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return text


def find_op(graphs: Sequence[RunGraph], name: str) -> list[tuple[RunGraph, Op]]:
    """Returns the ops of that exact name, one for each graph that has it."""
    return [(graph, graph.graph.ops[name]) for graph in graphs if name in graph.graph.ops]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns a question with the names most like the given one, empty when nothing is."""
    return _question(name, {known: known for known in names})


def _question(name: str, meant: Mapping[str, str]) -> str:
    """Asks whether one of the names was meant: the near ones, else the nearest; each said by what it stands for."""
    from difflib import get_close_matches

    close = get_close_matches(name, meant, n=OFFERED) or get_close_matches(name, meant, n=1, cutoff=0.4)
    return f"did you mean {' or '.join(dict.fromkeys(meant[text] for text in close))}?" if close else ""


def unknown_op(name: str, ops: Sequence[Op], where: str) -> UsageError:
    """Returns the error for an op that is not there, with the nearest ones.

    Names of original ops count too: the op they were fused into is offered.
    """
    fused = [op.name for op in ops if name in op.originals]
    hint = f"it became part of {' and '.join(dict.fromkeys(fused[:OFFERED]))}" if fused else ""
    known = {original: op.name for op in ops for original in op.originals} | {op.name: op.name for op in ops}
    hint = hint or _question(name, known) or "ls lists the ops"
    return UsageError(f"no op named {name} in {where}; {hint}")


def _version(path: Path) -> tuple[Path, int]:
    """What was read under this key is still what lies there: a new file in a folder changes the folder's time."""
    existing = path if path.exists() else path.with_name(path.name + ".index")  # of a checkpoint's prefix
    return path.resolve(), existing.stat().st_mtime_ns


def step_number(leaf: Path) -> tuple[int, str]:
    """Sorts step directories by number, not by text."""
    return (int(leaf.name) if leaf.name.isdigit() else -1, leaf.name)

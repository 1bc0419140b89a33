"""``infer``: the result tree of msquickcmp, or a compiled model -> a new ``precision_data``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dumpers.errors import DataError, UsageError
from precision_tool.result import ExitCode, Result, Table

if TYPE_CHECKING:
    from dumpers.importing.plan import Step
    from dumpers.workspace import Workspace
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

_MODEL: Final = "model"
_DUMPS: Final = "dump_data"
_REFERENCES: Final = ("tf", "onnx")
_RESULTS: Final = "0"
_SHOWN: Final = 50


class Infer:
    """Import the result tree of msquickcmp, or the graph of an .om file, into a new precision_data.

    Graphs are the *.json of each folder model, numbered; dumps are the folders dump_data/npu/<time> and dump_data/tf
    (or onnx), linked; every *.csv outside of the dumps goes to temp/vector_compare/0. Refused where precision_data
    exists already; import adds to an existing one.
    """

    name = "infer"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the path."""
        parser.add_argument("directory", nargs="?", metavar="DIR", help="result tree of msquickcmp, or an .om file")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Imports; exit code 3 when there is nothing to import."""
        if not args.directory:
            raise UsageError("infer: no path given; infer DIR imports a result tree of msquickcmp")
        workspace, path = workbench.workspace, Path(args.directory)
        if os.path.lexists(workspace.root):
            raise DataError(f"{workspace.root}: exists already; infer makes a new one, import adds to this one")
        if path.is_dir():
            return _tree(path, workspace, progress)
        if path.suffix == ".om" and path.is_file():
            return _model(path, workspace)
        what = "is neither a folder nor an .om file" if path.exists() else "no such folder; check the path"
        raise DataError(f"{path}: {what}")


def _tree(path: Path, workspace: Workspace, progress: Progress) -> Result:
    from dumpers.importing.place import put_in_place

    found = _find(path, progress)
    links, copies = _links(found, workspace), _copies(found, workspace)
    if not links and not copies:
        raise DataError(
            f"{path}: holds no folder {_MODEL} with a graph (*.json), no {_DUMPS}/npu or {_DUMPS}/tf, and no *.csv;"
            " import takes any other tree"
        )
    made = put_in_place([*copies, *links], copy=False, progress=lambda done, total: progress("placing", done, total))
    rows = (
        ("graphs", len(found.graphs), "npu/debug_0/graph"),
        ("device dumps", len(found.dumps), "npu/debug_0/dump"),
        ("reference dumps", 1 if found.references else 0, "tf/dump"),
        ("result files", len(found.results), f"temp/vector_compare/{_RESULTS}"),
    )
    chosen = found.references[0] if found.references else None
    notes = [f"{other}: another reference, left out; tf/dump is {chosen}" for other in found.references[1:]]
    missing = [f"no {what} found" for what, count, _ in rows if not count]
    return Result(
        title=f"{path} imported into {workspace.root}",
        blocks=[Table("Imported", ("What", "Found", "Place"), rows)],
        notes=[*notes, *missing],
        data={
            "root": str(workspace.root),
            "graphs": [str(item) for item in found.graphs],
            "dumps": [str(item) for item in found.dumps],
            "reference": str(chosen) if chosen else None,
            "results": [str(item) for item in found.results],
        },
        files=made[:_SHOWN],
        exit_code=ExitCode.CLEAN,
    )


class _Tree:
    """What a result tree holds."""

    def __init__(self) -> None:
        self.graphs: list[Path] = []
        self.dumps: list[Path] = []
        self.references: list[Path] = []
        self.results: list[Path] = []


def _find(root: Path, progress: Progress) -> _Tree:
    from dumpers.formats.walk import natural, walk_folders

    tree = _Tree()
    dump_folders: list[Path] = []

    def enter(folder: Path) -> bool:
        if folder.name != _DUMPS:
            return True
        dump_folders.append(folder)
        return False

    try:
        for number, (folder, names) in enumerate(walk_folders(root, enter)):
            progress("looking at folders", number, 0)
            if folder.name == _MODEL:
                tree.graphs += [folder / name for name in names if name.endswith(".json")]
            tree.results += [folder / name for name in names if name.endswith(".csv")]
    except OSError as error:
        raise DataError(f"{root}: cannot be read: {error.strerror or error}") from error
    for folder in dump_folders:
        tree.references += [folder / name for name in _REFERENCES if (folder / name).is_dir()]
        npu = folder / "npu"
        times = [entry for entry in npu.iterdir() if entry.name.isdigit() and entry.is_dir()] if npu.is_dir() else []
        tree.dumps += sorted(times, key=lambda entry: natural(entry.name))
    return tree


def _links(tree: _Tree, workspace: Workspace) -> list[Step]:
    """Every file by its own link: the dump's folders have to lie in the tree, where its graph is looked for."""
    from dumpers.formats.walk import walk_folders
    from dumpers.importing.plan import Step

    places = [(dump, workspace.npu_dump() / dump.name) for dump in tree.dumps]
    places += [(reference, workspace.tf_dump) for reference in tree.references[:1]]
    steps: dict[Path, Step] = {}
    for source, place in places:
        for folder, names in walk_folders(source):
            for name in names:
                target = place / folder.relative_to(source) / name
                steps.setdefault(target, Step(folder / name, target))
    return list(steps.values())


def _copies(tree: _Tree, workspace: Workspace) -> list[Step]:
    from dumpers.importing.plan import Step

    steps = []
    for number, graph in enumerate(tree.graphs):
        text = f"ge_proto_{number}_graph_{number}_Build.txt" if number else "ge_proto_0_Build.txt"
        place = workspace.npu_graph()
        steps += [Step(None, place / text), Step(graph, place / f"{text}.json", copy=True)]
    used: set[str] = set()
    for result in tree.results:
        name = result.name
        while name in used:  # files of one name in several folders
            name = f"{Path(name).stem}_{len(used)}.csv"
        used.add(name)
        steps.append(Step(result, workspace.vector_compare / _RESULTS / name, copy=True))
    return steps


def _model(path: Path, workspace: Workspace) -> Result:
    """Writes the graphs inside a compiled model as JSON, the form that graphs of a run have."""
    from dumpers.formats.ge_graph import read_ge_graphs, write_ge_json
    from dumpers.importing.place import put_in_place
    from dumpers.importing.plan import Step

    graphs = read_ge_graphs(path)
    files = []
    for number, graph in enumerate(graphs):
        text = f"ge_proto_{number}_graph_{number}_Build.txt" if number else "ge_proto_0_Build.txt"
        target = workspace.npu_graph() / f"{text}.json"
        put_in_place([Step(None, target.with_name(text))], copy=True, progress=lambda done, total: None)
        write_ge_json(graph, target)
        files.append(target)
    names = ", ".join(graph.name for graph in graphs)
    return Result(
        title=f"{path}: {len(graphs)} graphs ({names}) imported into {workspace.root}",
        data={"root": str(workspace.root), "graphs": [str(path)], "dumps": [], "reference": None, "results": []},
        files=files,
    )

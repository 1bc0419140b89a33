"""``convert`` and ``dc``: dump files -> npy files, device graphs -> JSON."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dumpers.errors import DataError, UsageError
from precision_tool.result import ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dumpers.formats.conversion import Known, Wanted, Written
    from dumpers.formats.kinds import Identified
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

FAILED_LIST: Final = "convert_failed_file_list.txt"
_SHOWN: Final = 200
_DEVICE_FILES: Final = ("npu", "overflow")
_FOLDERS_OF_FILES: Final = frozenset({"npu_folder", "npu_tree", "overflow_folder", "data_tree"})


@dataclass
class Job:
    """One run of the converter.

    Attributes:
        everything: All steps, models and devices of a folder, not only the newest dump.
        target: Where files go.
    """

    wanted: Wanted
    target: Path
    everything: bool = False
    files: list[Path] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchanged: int = 0

    def add(self, written: Written) -> None:
        """Takes over what one conversion did."""
        self.files += written.files
        self.failed += written.failed
        self.notes += written.notes
        self.unchanged += written.unchanged

    def folder(self, *parts: str) -> Path:
        """Creates and returns the target folder or one below it."""
        place = self.target.joinpath(*parts)
        place.mkdir(parents=True, exist_ok=True)
        return place


class Convert:
    """Write the tensors of dump files as npy, in the framework's layout; device graphs become JSON.

    PATH is a file or folder of any kind that holds tensors or a device graph. Private layouts are undone where the
    original shape is known, and the answer says where not. --stored leaves every layout as it is, --format names
    another. Overflow records become JSON, buffers and workspaces .bin. Of a folder with several steps, models and
    devices the newest dump is taken; --all takes each, into a sub-folder of its own.
    """

    name = "convert"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the paths and options."""
        parser.add_argument("paths", nargs="*", metavar="PATH", help="file or folder")
        parser.add_argument(
            "-o",
            "--out",
            default=None,
            metavar="DIR",
            help="where the files go (precision_data/temp/decode/dump_convert)",
        )
        parser.add_argument("-f", "--format", default="", metavar="LAYOUT", help="NCHW, NHWC, HWCN, ND, ...")
        parser.add_argument("--stored", action="store_true", help="leave the stored layout as it is")
        parser.add_argument("--raw", action="store_true", help="raw bytes (.bin) instead of npy")
        parser.add_argument("--all", action="store_true", help="every step, model and device of a folder")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Converts; exit code 3 when something could not be."""
        if not args.paths:
            raise UsageError("convert: no path given; convert PATH -o DIR writes its tensors as npy")
        if args.stored and args.format:
            raise UsageError("convert: --stored and --format contradict each other; give one")
        job = _job(args.out, args.format, workbench, stored=args.stored, raw=args.raw)
        job.everything = args.all
        for path in args.paths:
            convert_path(Path(path), job, workbench, progress)
        return answer(job)


class DumpConvert:
    """Convert dump files as the public converter does: the stored layout unless -f names another.

    NAME is a dump file, a folder, the name of a file in the newest dump, or an op. The files go to -o, else to
    precision_data/temp/decode/dump_convert, and are listed.
    """

    name = "dc"
    aliases: tuple[str, ...] = ()
    name_option = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the name and options."""
        parser.add_argument("operand", nargs="?", metavar="NAME", help="file, folder, dump file name or op")
        parser.add_argument("-n", "--name", default=None, help="the same")
        parser.add_argument("-f", "--format", default="", metavar="LAYOUT", help="NCHW, NHWC, HWCN, ND, ...")
        parser.add_argument("-o", "--out", "--output", dest="out", default=None, metavar="DIR", help="where they go")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Converts; exit code 3 when something could not be."""
        name = args.name or args.operand
        if not name:
            raise UsageError("dc: no name given; dc NAME converts a dump file or the files of an op")
        job = _job(args.out, args.format, workbench, stored=not args.format)
        if Path(name).exists():
            convert_path(Path(name), job, workbench, progress)
        else:
            _convert_named(name, job, workbench, progress)
        return answer(job)


def _job(out: str | None, layout: str, workbench: Workbench, *, stored: bool, raw: bool = False) -> Job:
    from dumpers.formats.conversion import Wanted
    from dumpers.formats.relayout import PLAIN

    if layout and layout.upper() not in PLAIN:
        raise UsageError(f"{layout}: no layout that can be written; one of {', '.join(PLAIN)}")
    target = Path(out) if out else workbench.workspace.decode / "dump_convert"
    return Job(Wanted(layout=layout.upper(), stored=stored, raw=raw), target)


# ---------------------------------------------------------------------------------------------------------- paths


def convert_path(path: Path, job: Job, workbench: Workbench, progress: Progress) -> None:
    """Converts one path.

    Raises:
        DataError: nothing there, or nothing that can be converted.
    """
    from dumpers.formats.kinds import identify
    from dumpers.formats.sniff import name_sort

    found = identify(path)
    if path.is_dir():
        if found is None or found.kind.name in _FOLDERS_OF_FILES:
            _folder(path, job, workbench, progress)
        else:
            _tensors(found, job, workbench)
    elif found is None:
        reason = "not recognised; info shows its first bytes" if path.exists() else "no such file or folder"
        raise DataError(f"{path}: {reason}")
    elif found.kind.name in ("npu_dump", "overflow_record") or name_sort(path.name) in _DEVICE_FILES:
        _device_file(path, job, job.folder(), None)
    elif found.kind.content == "tensors":
        _tensors(found, job, workbench)
    elif found.kind.content == "graph" and found.kind.side == "npu":
        _graph(found, job)
    else:
        raise DataError(f"{path}: is a {found.kind.title}; convert takes tensors and NPU graphs, info shows this one")


def _device_file(path: Path, job: Job, target: Path, known: Known | None) -> bool:
    from dumpers.formats.conversion import convert_dump

    try:
        job.add(convert_dump(path, target, job.wanted, known))
    except DataError as error:
        job.failed.append((str(path), str(error).removeprefix(f"{path}: ")))
        return False
    return True


def _folder(path: Path, job: Job, workbench: Workbench, progress: Progress) -> None:
    """Converts the dump files of a folder; what failed stands in a list beside the results."""
    leaves = _leaves(path)
    if not leaves:
        from dumpers.formats.kinds import identify

        found = identify(path)
        if found is None or found.kind.content == "tensors":
            _dump(path, job, workbench)  # says what is wrong if there is nothing
        return
    from dumpers.formats.walk import choose_leaf

    chosen = [choose_leaf(path, {leaf: len(files) for leaf, files in leaves.items()})[0]]
    several = job.everything and len(leaves) > 1
    if job.everything:
        chosen = list(leaves)
    else:
        job.notes += [f"{leaf}: another dump, not converted (--all)" for leaf in leaves if leaf not in chosen]
    total = sum(len(leaves[leaf]) for leaf in chosen)
    seen = 0
    for leaf in chosen:
        target = job.folder(*(leaf.relative_to(path).parts if several else ()))
        known = _known(leaf, workbench)
        failed: list[str] = []
        for file in leaves[leaf]:
            progress("converting", seen, total)
            seen += 1
            before = len(job.failed)
            _device_file(file, job, target, known)
            if len(job.failed) > before:
                failed.append(str(file))
        _write_failed(failed, target, job)


def _write_failed(failed: Sequence[str], target: Path, job: Job) -> None:
    from dumpers.formats.atomic import atomic_file

    place = target / FAILED_LIST
    if not failed:
        place.unlink(missing_ok=True)  # of an earlier run
        return
    with atomic_file(place) as out:
        out.write("".join(f"{name}\n" for name in failed).encode("utf-8", "surrogateescape"))
    job.files.append(place)


def _leaves(path: Path) -> dict[Path, list[Path]]:
    """Returns the dump files and overflow records of each folder below one."""
    from dumpers.formats.kinds import identify
    from dumpers.formats.sniff import full_names, name_sort
    from dumpers.formats.walk import walk_folders

    found: dict[Path, list[Path]] = {}
    for folder, names in walk_folders(path):
        for name, meant in zip(names, full_names(folder, names), strict=True):
            sort = name_sort(meant)
            if sort in _DEVICE_FILES or (not sort and name.isdigit() and _is_dump(identify(folder / name, mapping={}))):
                found.setdefault(folder, []).append(folder / name)
    return found


def _is_dump(found: Identified | None) -> bool:
    return found is not None and found.kind.name == "npu_dump"


def _known(leaf: Path, workbench: Workbench) -> Known:
    """Records of a leaf with what its graph tells; nothing where the leaf holds overflow records only."""
    try:
        dump = workbench.read_dump(leaf)
    except DataError:
        return {}  # each file says itself what is wrong with it
    return {(record.path, record.io, record.slot): record for record in dump}


def _tensors(found: Identified, job: Job, workbench: Workbench) -> None:
    from dumpers.formats.registry import DUMP_FILES, read_tensor

    if found.path.is_dir() or found.kind.name in DUMP_FILES:
        _dump(found.path, job, workbench)
    else:
        _write(read_tensor(found.path), job)


def _dump(path: Path, job: Job, workbench: Workbench) -> None:
    from dumpers.formats.registry import read_dump

    dump = read_dump(path)
    job.failed += [(str(problem.path), problem.reason) for problem in dump.problems]
    _write(dump.records, job)


def _write(records: Iterable[object], job: Job) -> None:
    from dumpers.formats.conversion import convert_tensors, write_index
    from dumpers.records import TensorRecord

    target = job.folder()
    done = convert_tensors((r for r in records if isinstance(r, TensorRecord)), target, job.wanted)
    job.add(done)
    if done.records:
        job.files.append(write_index(target, done.records))


def _graph(found: Identified, job: Job) -> None:
    from dumpers.formats.conversion import placed
    from dumpers.formats.ge_graph import read_ge_graphs, write_ge_json

    graphs = read_ge_graphs(found.path)
    for graph in graphs:
        name = f"{found.path.name}.{graph.name}.json" if len(graphs) > 1 else f"{found.path.name}.json"
        file = placed(job.folder(), name)
        if file.exists() and file.samefile(found.path):
            raise DataError(f"{file}: is the source itself; give another folder with -o")
        try:
            write_ge_json(graph, file)
        except ValueError as error:
            job.failed.append((f"{found.path}: graph {graph.name}", str(error)))
        else:
            job.files.append(file)


# ---------------------------------------------------------------------------------------------------------- names


def _convert_named(name: str, job: Job, workbench: Workbench, progress: Progress) -> None:
    """Converts what a name means in the newest dumps: one file, or the files of an op."""
    from dumpers.names import flatten
    from precision_tool.workbench import did_you_mean, typed_name

    meant = typed_name(name)
    hits: dict[str, dict[Path, Known]] = {}
    names: set[str] = set()
    for run in workbench.workspace.runs():
        for leaf in workbench.latest_leaves(run)[0]:
            known = _known(leaf, workbench)
            for record in known.values():
                names.add(record.op)
                file = record.path
                if file is not None and (meant in (record.op, file.name) or flatten(meant) == flatten(record.op)):
                    hits.setdefault(run, {})[file] = known
    if not hits:
        hint = did_you_mean(meant, sorted(names)) or "no dump holds a name like it"
        raise DataError(f"{name}: no such file or folder, and no dump file or op of that name; {hint}")
    for run, files in hits.items():
        target = job.folder(*((run,) if len(hits) > 1 else ()))
        for done, (file, known) in enumerate(files.items()):
            progress(f"converting {run}", done, len(files))
            _device_file(file, job, target, known)


# --------------------------------------------------------------------------------------------------------- answer


def answer(job: Job) -> Result:
    """Returns what was written, what was done to layouts, and what failed."""
    blocks: list[Panel | Table] = []
    if job.files:
        shown = tuple(str(file) for file in job.files[:_SHOWN])
        more = f", the first {_SHOWN} shown" if len(job.files) > _SHOWN else ""
        blocks.append(Panel(f"{len(job.files)} files{more}", shown))
    if job.failed:
        blocks.append(Table("Not converted", ("What", "Reason"), tuple(job.failed[:_SHOWN])))
    if job.unchanged:
        job.notes.append(f"{job.unchanged} tensors have no layout to turn into {job.wanted.layout}; taken as they are")
    known = [f"{what}: {reason}" for what, reason in job.failed]
    damaged = [line for line in known if ": no value" not in line]
    return Result(
        title=f"{len(job.files)} files in {job.target}",
        blocks=blocks,
        notes=job.notes,
        data={
            "directory": str(job.target),
            "files": [str(file) for file in job.files],
            "notes": job.notes,
            "failed": [{"what": what, "reason": reason} for what, reason in job.failed],
        },
        files=job.files,
        exit_code=ExitCode.DATA if damaged or not job.files else ExitCode.CLEAN,
        problems=damaged,
    )

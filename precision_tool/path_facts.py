"""What ``info`` says about one path: what it is and why, its header, its tensors, its graph or its facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError
from dumpers.formats.kinds import Identified, identify
from dumpers.graph import Graph
from dumpers.records import Dump, TensorRecord
from precision_tool.plain_data import Plain, lines, plain
from precision_tool.result import Block, Panel, Table

if TYPE_CHECKING:
    from dumpers.formats.npu_dump import NpuDumpFile

OUTLINE = 400
"""Lines of a header or of facts that are shown; the JSON answer has all."""

_FIRST = 32
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Attributes:
        limit: Tensors and lines of a list that are shown; 0 for all.
        values: Whether values are read.
        dtype: What raw npy data are.
    """

    limit: int = 20
    values: bool = True
    dtype: str | None = None


@dataclass(frozen=True)
class PathFacts:
    """What was found out about a path.

    Attributes:
        known: Whether it was recognised.
        problems: What is damaged in it.
    """

    title: str
    blocks: list[Block]
    data: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    known: bool = True


def describe(path: Path, options: Options, progress: Progress) -> PathFacts:
    """Says what a path is and what is in it.

    Raises:
        DataError: there is nothing there.
    """
    found = identify(path)
    if found is None:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; check the path")
        return _folder(path, None, options, progress) if path.is_dir() else _unknown(path)
    if found.kind.container == "folder" and path.is_dir():
        return _folder(path, found, options, progress)
    facts = _start(found)
    try:
        return _file(found, facts, options)
    except DataError as error:
        return replace(facts, problems=[str(error)])


def _start(found: Identified) -> PathFacts:
    path, kind = found.path, found.kind
    size = path.stat().st_size if path.is_file() else None
    data: dict[str, Any] = {
        "path": str(path),
        "kind": kind.name,
        "title": kind.title,
        "why": found.why,
        "bytes": size,
        "place": kind.place or None,
    }
    said = [f"Path: {path}", f"Kind: {kind.title} ({found.why})"]
    if path.is_symlink():
        said.append(f"Link to: {path.resolve()}")
    if size is not None:
        said.append(f"Bytes: {size}")
    return PathFacts(f"{path}: {kind.title}", [Panel("", tuple(said))], data)


def _file(found: Identified, facts: PathFacts, options: Options) -> PathFacts:
    if found.kind.name == "npu_dump":
        return _npu_dump(found, facts, options)
    if found.kind.content == "tensors":
        return _tensors(found, facts, options)
    if found.kind.content == "graph":
        return _graphs(found, facts, options)
    return _with_facts(facts, found.kind.title, found.kind.read(found.path))


# ------------------------------------------------------------------------------------------------------- tensors


def _npu_dump(found: Identified, facts: PathFacts, options: Options) -> PathFacts:
    from dumpers.formats.npu_dump import read_npu_dump

    dump = read_npu_dump(found.path)
    facts = _with_header(facts, _dump_header(dump))
    problems = [f"{problem.path}: {problem.reason}" for problem in dump.problems]
    return _with_tensors(replace(facts, problems=problems), (*dump.inputs, *dump.outputs), options)


def _dump_header(dump: NpuDumpFile) -> dict[str, Any]:
    from dumpers.formats.dump_names import full_name, parse_dump_name, read_mapping

    meant = full_name(dump.path.name, read_mapping(dump.path.parent)) or dump.path.name
    name = parse_dump_name(meant)
    return {
        "file_name": plain(name),
        **({"full_name": meant} if meant != dump.path.name else {}),
        "version": dump.version,
        "op_name": dump.op_name,
        "dump_time": dump.dump_time,
        "dfx_message": dump.dfx_message,
        "attributes": plain(dump.attrs),
        "slices": plain(dump.slices),
        "buffers": plain(dump.buffers),
        "inputs": plain(dump.input_fields),
        "outputs": plain(dump.output_fields),
    }


def _tensors(found: Identified, facts: PathFacts, options: Options) -> PathFacts:
    from dumpers.formats.registry import is_dump_file, read_dump, read_tensor

    if is_dump_file(found.path):  # some of its tensors may be damaged
        return _with_dump(read_dump(found.path), facts, options)
    if found.kind.name in ("npy", "tf_npy", "npu_converted_npy") and found.path.suffix not in (".pb", ".quant"):
        from dumpers.formats.npy import read_npy_header

        header = plain(read_npy_header(found.path))
        facts = _with_header(facts, header if isinstance(header, dict) else {})
    return _with_tensors(facts, read_tensor(found.path, dtype=options.dtype), options)


def _with_tensors(facts: PathFacts, records: Sequence[TensorRecord], options: Options) -> PathFacts:
    from precision_tool.tensor_facts import tensor_tables

    shown = tensor_tables(records, limit=options.limit, values=options.values)
    data = facts.data | {"tensor_count": len(records), "tensors": shown.data}
    return replace(facts, blocks=[*facts.blocks, *shown.blocks], data=data, problems=[*facts.problems, *shown.problems])


def _with_header(facts: PathFacts, header: dict[str, Any]) -> PathFacts:
    return replace(facts, blocks=[*facts.blocks, _outline("Header", header)], data=facts.data | {"header": header})


def _outline(title: str, content: Plain) -> Panel:
    text = lines(content)
    more = f" (the first {OUTLINE} of {len(text)} lines)" if len(text) > OUTLINE else ""
    return Panel(title + more, tuple(text[:OUTLINE]))


def _with_facts(facts: PathFacts, title: str, content: object) -> PathFacts:
    found = plain(content)
    return replace(facts, blocks=[*facts.blocks, _outline(title, found)], data=facts.data | {"facts": found})


# -------------------------------------------------------------------------------------------------------- graphs


def _graphs(found: Identified, facts: PathFacts, options: Options) -> PathFacts:
    graphs = found.kind.read(found.path)
    for graph in (graphs,) if isinstance(graphs, Graph) else _graph_list(graphs):
        facts = _with_graph(facts, graph, options)
    return _with_constants(found, facts, options) if found.kind.name == "om" else facts


def _graph_list(graphs: object) -> list[Graph]:
    return [graph for graph in graphs if isinstance(graph, Graph)] if isinstance(graphs, (list, tuple)) else []


def _with_constants(found: Identified, facts: PathFacts, options: Options) -> PathFacts:
    from dumpers.formats.registry import read_tensor

    try:
        return _with_tensors(facts, read_tensor(found.path), options)
    except DataError as error:
        return replace(facts, problems=[*facts.problems, str(error)])


def _with_graph(facts: PathFacts, graph: Graph, options: Options) -> PathFacts:
    found = graph_facts(graph)
    types: Mapping[str, int] = found["types"]
    rows = tuple(types.items())
    shown = rows[: options.limit] if options.limit else rows
    more = f", the first {len(shown)} shown (--limit N)" if len(shown) < len(rows) else ""
    outline = {key: value for key, value in found.items() if key != "types"}
    types_table = Table(f"{len(rows)} op types{more}", ("OpType", "Count"), shown)
    blocks: list[Block] = [_outline(f"Graph {graph.name}", outline), types_table]
    graphs = [*facts.data.get("graphs", []), found]
    return replace(facts, blocks=[*facts.blocks, *blocks], data=facts.data | {"graphs": graphs})


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Returns what a graph holds: ops by type, edges by sort, fused ops, passes, streams, frames, attributes."""
    data_edges = sum(1 for op in graph for source in op.inputs if source.op)
    absent = sum(1 for op in graph for source in op.inputs if not source.op)
    passes = Counter(name for op in graph for name in op.pass_names)
    frames = sorted(
        {str(op.attrs["frame_name"]) for op in graph if op.type.endswith("Enter") and "frame_name" in op.attrs}
    )
    return {
        "name": graph.name,
        "kind": graph.kind,
        "ops": len(graph),
        "types": dict(Counter(op.type for op in graph).most_common()),
        "data_edges": data_edges,
        "control_edges": sum(len(op.control_inputs) for op in graph),
        "absent_inputs": absent,
        "fused_ops": sum(1 for op in graph if op.fused),
        "fusion_failed": sum(1 for op in graph if op.attrs.get("fusion_failed") is not None),
        "passes": dict(passes),
        "streams": sorted({op.stream_id for op in graph}) if graph.kind == "ge" else [],
        "frames": frames,
        "attributes": plain(graph.attrs),
    }


# ------------------------------------------------------------------------------------------------------- folders


def _folder(path: Path, found: Identified | None, options: Options, progress: Progress) -> PathFacts:
    census, unknown = _census(path, progress)
    data: dict[str, Any] = {"path": str(path), "kind": found.kind.name if found else "folder"}
    said = [f"Path: {path}", f"Kind: {found.kind.title} ({found.why})" if found else "Kind: folder"]
    facts = PathFacts(f"{path}: {found.kind.title if found else 'folder'}", [Panel("", tuple(said))], data)
    if found:
        data |= {"title": found.kind.title, "why": found.why, "place": found.kind.place or None}
    rows = tuple((title, count, example) for title, (count, example) in census.items())
    blocks = [
        *facts.blocks,
        Table(f"{sum(count for _, count, _ in rows)} files by kind", ("Kind", "Files", "One of them"), rows),
    ]
    notes = [f"{name}: not recognised" for name in unknown[: options.limit or None]]
    if len(unknown) > len(notes):
        notes.append(f"{len(unknown) - len(notes)} more files were not recognised")
    data |= {"census": {title: count for title, count, _ in rows}, "unknown": unknown}
    facts = replace(facts, blocks=blocks, notes=notes, known=found is not None or len(census) > bool(unknown))
    return _folder_content(path, found, facts, options)


def _census(path: Path, progress: Progress) -> tuple[dict[str, tuple[int, str]], list[str]]:
    """Returns (kind -> count and an example, names of files that nothing knows) of all files below a folder."""
    from dumpers.formats.dump_names import is_alias, read_mapping
    from dumpers.formats.walk import walk_folders

    found: dict[str, tuple[int, str]] = {}
    unknown: list[str] = []
    seen = 0
    for folder, names in walk_folders(path):
        mapping = read_mapping(folder) if any(map(is_alias, names)) else {}
        for name in names:
            seen += 1
            progress(seen, 0)
            known = identify(folder / name, mapping=mapping)
            title = known.kind.title if known else "not recognised"
            relative = (folder / name).relative_to(path).as_posix()
            count, example = found.get(title, (0, relative))
            found[title] = (count + 1, example)
            if known is None:
                unknown.append(relative)
    return found, unknown


def _folder_content(path: Path, found: Identified | None, facts: PathFacts, options: Options) -> PathFacts:
    if found is None or found.kind.name == "data_tree":
        return facts
    if found.kind.content == "graph":
        try:
            return _graphs(found, facts, options)
        except DataError as error:
            return replace(facts, problems=[str(error)])
    from dumpers.formats.registry import read_dump

    try:
        dump = read_dump(path)
    except DataError as error:
        if found.kind.name == "tf_runs":  # several runs are no damage
            return replace(facts, notes=[*facts.notes, str(error)])
        if found.kind.name == "overflow_folder":
            return facts
        return replace(facts, problems=[str(error)])
    return _with_dump(dump, facts, options)


def _with_dump(dump: Dump, facts: PathFacts, options: Options) -> PathFacts:
    problems = [f"{problem.path}: {problem.reason}" for problem in dump.problems]
    ignored = [f"{path}: ignored, no part of the dump" for path in dump.ignored[: options.limit or None]]
    if len(dump.ignored) > len(ignored):
        ignored.append(f"{len(dump.ignored) - len(ignored)} more paths are no part of the dump")
    data = facts.data | {"dump": str(dump.path), "ignored": [str(path) for path in dump.ignored]}
    facts = replace(facts, data=data, notes=[*facts.notes, *ignored], problems=[*facts.problems, *problems])
    facts = _with_tensors(facts, dump.records, options)
    return _with_graph(facts, dump.graph, options) if dump.graph is not None else facts


# ------------------------------------------------------------------------------------------------------- unknown


def _unknown(path: Path) -> PathFacts:
    if not path.is_file():
        raise DataError(f"{path}: is neither a file nor a folder (a pipe or a device); it is not opened")
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            start = file.read(_FIRST)
    except OSError as error:  # one of reading names no file
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    guess = _guess(path, start, size)
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in start)
    said = (f"Path: {path}", "Kind: not recognised", f"Bytes: {size}", f"First bytes: {start.hex(' ')}  {text}",
            f"Nearest guess: {guess}")  # fmt: skip
    data = {"path": str(path), "kind": None, "bytes": size, "first_bytes": start.hex(), "guess": guess}
    problem = f"{path}: not recognised; {guess}"
    return PathFacts(f"{path}: not recognised", [Panel("", said)], data, problems=[problem], known=False)


def _guess(path: Path, start: bytes, size: int) -> str:
    if not size:
        return "an empty file: the writer was interrupted, or the disk was full"
    if start[:1] in (b"{", b"["):
        return "JSON of some other program"
    if all(byte in (9, 10, 13) or 32 <= byte < 127 for byte in start):
        return "a table of some other program" if path.suffix == ".csv" else "text"
    for width, dtype in ((4, "float32"), (2, "float16")):
        if size % width == 0 and path.suffix in (".bin", ".raw", ".data"):
            return f"raw values, for example {size // width} of {dtype}; nothing in the file says which"
    return "binary data of some other program, or a damaged file of a known kind"


def progress_of(report: Callable[[str, int, int], None]) -> Progress:
    """Returns the progress of a walk whose end is not known."""
    return partial(report, "looking at files")

"""A folder of device dump files: one device, graph, model and step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import (
    INCOMPLETE_FILE,
    MAPPING_FILE,
    DumpName,
    full_name,
    is_alias,
    parse_dump_name,
    read_mapping,
)
from dumpers.formats.npu_dump import read_npu_dump
from dumpers.formats.npu_slice_info import without_sub_graph
from dumpers.formats.npu_slices import SliceFile, SliceSource, join_slices
from dumpers.formats.npu_statistics import read_statistics_file, with_statistics
from dumpers.formats.op_names import OpNames
from dumpers.formats.raw import RawSource, regular_only
from dumpers.formats.walk import step_of
from dumpers.graph import Graph
from dumpers.records import Dump, Problem, TensorRecord, execution_order

_REASON_CHARACTERS: Final = 500


def is_dump_file(name: str) -> bool:
    """Tells whether a file name can be that of a device dump: the usual fields, or digits only (an alias)."""
    return parse_dump_name(name) is not None or (is_alias(name) and not name.endswith(".npy"))


def read_npu_dir(folder: Path, names: list[str], *, graph: Graph | None = None) -> Dump:
    """Reads the headers of all dump files of one folder.

    The op name comes from the header where the device filled it, else from the graph by the flattened name, else it is
    the flattened name. Names that a device shortened to digits are looked up in ``mapping.csv``, in memory only.
    Operators that ran in slices are put together where their files fit. Statistics files give their figures to the
    tensor beside them, or records without values. Overflow records are no tensors of an op: they are listed in
    ``ignored``. A mark that the step was not written to its end is a problem, the first one.

    Args:
        folder: The folder.
        names: Its file names.
        graph: The device graph that belongs to it.
    """
    reader = _FolderReader(folder, OpNames(graph), step_of(folder))
    reader.problems += _incomplete(folder, names)
    mapping = _mapping(folder, names, reader.problems)
    for name in names:
        if name in (MAPPING_FILE, INCOMPLETE_FILE):
            continue
        parsed = _meaning(folder / name, mapping, reader.problems)
        if parsed is not None and not parsed.is_overflow:
            reader.read(folder / name, parsed)
        elif parsed is not None or not is_alias(name):
            reader.ignored.append(folder / name)
    joined, problems = join_slices(reader.sliced, reader.whole_name)
    records = with_statistics([*reader.records, *joined], reader.statistics)
    records = [_with_graph(record, graph) for record in records] if graph else records
    return Dump(folder, execution_order(records), (*reader.problems, *problems), tuple(reader.ignored), graph)


@dataclass
class _FolderReader:
    """What the files of a folder hold, sorted by kind."""

    folder: Path
    resolver: OpNames
    step: int | None
    records: list[TensorRecord] = field(default_factory=list)
    sliced: list[SliceFile] = field(default_factory=list)
    statistics: list[TensorRecord] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)

    def read(self, path: Path, name: DumpName) -> None:
        """Reads one file; damage is a problem of that file only."""
        try:
            if name.statistics:
                self._read_statistics(path, name)
            else:
                self._read_dump(path, name)
        except DataError as error:
            self.problems.append(Problem.of(path, error))

    def _read_dump(self, path: Path, name: DumpName) -> None:
        found = read_npu_dump(path, name=name, step=self.step, op_name=self.resolver.full)
        self.problems += found.problems
        records = (*found.inputs, *found.outputs)
        if found.slices is not None and found.slices.index is not None:
            self.sliced.append(SliceFile(path, name, found.op_name or name.op_name, found.slices, records))
        else:
            self.records += records

    def _read_statistics(self, path: Path, name: DumpName) -> None:
        found = read_statistics_file(path, name=name, step=self.step, op_name=self.resolver.full)
        self.statistics += found.records
        self.problems += found.problems

    def whole_name(self, name: str, op_type: str) -> str:
        """Returns the name of an op whose slices were joined: the graph's, else without a sub-graph's part."""
        for candidate in (name, without_sub_graph(name)):
            full = self.resolver.full(candidate, op_type)
            if self.resolver.op(full) is not None:
                return full
        return without_sub_graph(name)


def _mapping(folder: Path, names: list[str], problems: list[Problem]) -> Mapping[str, str]:
    if MAPPING_FILE not in names:
        return {}
    try:
        return read_mapping(folder)
    except DataError as error:
        problems.append(Problem.of(folder / MAPPING_FILE, error))
        return {}


def _incomplete(folder: Path, names: list[str]) -> list[Problem]:
    """Returns what the mark of an unfinished step says; an empty list for a whole one."""
    if INCOMPLETE_FILE not in names:
        return []
    mark = folder / INCOMPLETE_FILE
    try:
        with open(mark, opener=regular_only, encoding="utf-8", errors="replace") as file:
            reason = " ".join(file.read(_REASON_CHARACTERS).split())
    except OSError as error:
        reason = f"its mark cannot be read: {error.strerror or error}"
    return [Problem(mark, f"dump is incomplete: {reason or 'this step was not written to its end'}")]


def _meaning(path: Path, mapping: Mapping[str, str], problems: list[Problem]) -> DumpName | None:
    full = full_name(path.name, mapping)
    if full is None:
        problems.append(Problem(path, f"name of digits only that {MAPPING_FILE} does not have; its op is not known"))
        return None
    return parse_dump_name(full)


def _with_graph(record: TensorRecord, graph: Graph) -> TensorRecord:
    """Adds what only the graph knows: the original shape of a private layout, and which layout that shape is in."""
    op = graph.ops.get(record.op)
    if op is None:
        return record
    ports = op.output_ports if record.io == "output" else op.input_ports
    if record.slot >= len(ports):
        return record
    attrs = ports[record.slot].attrs
    original, layout = attrs.get("origin_shape"), attrs.get("origin_format")
    source = record.source
    if isinstance(source, (RawSource, SliceSource)) and isinstance(layout, str):
        source = replace(source, layout=layout)
    shape = record.original_shape
    if shape is None and record.shape is not None and isinstance(original, tuple):
        dims = tuple(dim for dim in original if isinstance(dim, int) and dim >= 0)
        shape = dims if len(dims) == len(original) and dims != record.shape else None
    return replace(record, source=source, original_shape=shape)
